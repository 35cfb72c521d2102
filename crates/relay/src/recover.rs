//! What a relay that was killed left behind.
//!
//! Every chunk that was being written has a journal entry (see [`crate::journal`]). A move that had begun is
//! finished. A chunk that was still being written is cut to whole packets and indexed ([`crate::mend`]), then sealed under
//! the name it would have got from a rotation at its last packet; chunks that are never archived are sealed where they
//! stand. Recording sessions that may come back are known again ([`crate::resume`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tracedir::manifest::{HIDDEN_MANIFEST, MANIFEST, SealedBy};
use wire::live::{ChunkId, RelativePath, UnixSeconds};

use crate::env::Env;
use crate::error::Result;
use crate::event::{Event, RecordingName};
use crate::journal::{self, Entry, Move, Number};
use crate::losses::{self, Losses};
use crate::mend::{Mended, Parts, mend};
use crate::metadata;
use crate::names::{self, Names};
use crate::resume::{self, Identity, Known};
use crate::root::Root;
use crate::seal::{Attempts, Done, Job, SealJob, move_chunk};

/// Losses read from a journal.
const MAX_LOSSES: usize = 10_000;

/// What was found at the start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Chunks that were not complete.
    pub interrupted: Vec<Interrupted>,
    /// Chunks that were complete and whose last move was finished now: their folders, absolute.
    pub finished: Vec<PathBuf>,
    /// Journal files that cannot be read, and why.
    pub unreadable: Vec<crate::Error>,
}

/// A chunk that was being written when the relay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupted {
    /// Host of the producer.
    pub host: String,
    /// Name of the recording session.
    pub session: String,
    /// The chunk.
    pub chunk: ChunkId,
    /// The folder it is in, absolute.
    pub folder: PathBuf,
    /// Whether it is sealed; when it could not be, the log says why, and it is tried again as long as the relay runs.
    pub is_sealed: bool,
    /// Data files of streams in it, metadata not counted.
    pub streams: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes of packets and metadata that were not whole; cut off.
    pub bytes_cut: u64,
    /// Packets whose index entry was missing; made from their headers.
    pub packets_indexed: u64,
    /// Folders with streams whose metadata is missing or empty: what is in them cannot be decoded.
    pub without_metadata: Vec<PathBuf>,
    /// What was lost of which stream before the relay ended; paths as in [`crate::Sealed::streams`].
    pub losses: BTreeMap<PathBuf, Losses>,
}

/// What the next start needs beside what it tells.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) recovered: Recovered,
    /// Recording sessions that may come back.
    pub(crate) known: Vec<(Identity, Known)>,
    /// Chunks that are in their last place, and are still to be announced.
    moved: Vec<(Number, RelativePath)>,
    /// Chunks to seal: the n-th is of the n-th interrupted one.
    jobs: Vec<SealJob>,
    /// Above the numbers of all journal files.
    pub(crate) next_number: u64,
}

/// Finishes what had begun, mends the rest and tells it.
pub(crate) fn recover(root: &Root, names: &Names) -> Result<Found> {
    empty_trash(root)?;
    let failed_moves = journal::finish_moves(root)?;
    let resume::Noted { known, unreadable } = resume::read_all(root)?;
    let mut found = Found { known, ..Found::default() };
    found.recovered.unreadable = unreadable;
    found.recovered.unreadable.extend(failed_moves);
    found.next_number = found.known.last().map_or(0, |(_, known)| known.number.0 + 1);
    for (number, entry) in journal::read_all(root)? {
        found.next_number = found.next_number.max(number.0 + 1);
        match entry.and_then(|entry| found.chunk(root, names, number, entry)) {
            Ok(()) => {}
            Err(error) => found.recovered.unreadable.push(error),
        }
    }
    Ok(found)
}

/// Deletes what was put aside. The folder is there from then on, for a full disk may have no room for one.
fn empty_trash(root: &Root) -> Result<()> {
    let trash = Root::own("trash");
    for entry in root.list(&trash)? {
        let name = RelativePath::new(&entry.name).unwrap_or_default();
        if !name.is_empty() {
            root.remove_tree(&trash.join_path(&name))?;
        }
    }
    root.make_dirs(&trash)?;
    Ok(())
}

impl Found {
    /// Hands over the chunks that reached their last place, and seals the interrupted ones; gives those that are to be tried again.
    pub(crate) fn seal(&mut self, env: &Env) -> Vec<Attempts> {
        for (number, folder) in self.moved.drain(..) {
            let taken = env.outbox.add(&env.root, &folder, &env.counters);
            if let Err(error) = taken.and_then(|()| journal::remove(&env.root, number)) {
                self.recovered.unreadable.push(error);
            }
        }
        let mut again = Vec::new();
        for (job, told) in self.jobs.drain(..).zip(&mut self.recovered.interrupted) {
            let mut attempts = Attempts::of(Job::Seal(Box::new(job)));
            let done = attempts.run(env);
            if done.is_none() {
                again.push(attempts);
            }
            if let Some(Done { event: Event::Sealed(sealed), .. }) = done {
                let moved = |path: &PathBuf| match path.strip_prefix(&told.folder) {
                    Ok(rest) => sealed.folder.join(rest),
                    Err(_) => path.clone(),
                };
                told.without_metadata = told.without_metadata.iter().map(moved).collect();
                told.folder = sealed.folder;
                told.is_sealed = true;
            }
        }
        again
    }

    fn chunk(
        &mut self,
        root: &Root,
        names: &Names,
        number: Number,
        mut entry: Entry,
    ) -> Result<()> {
        // Of an early version with the whole root for a chunk: nothing says which files are the chunk's.
        if entry.at.components().count() < 2 {
            tracing::warn!(folder = %entry.at, "left as it is: a chunk that is not in a session's folder");
            return journal::remove(root, number);
        }
        let mut streams = journal::read_streams(root, number, &entry)?;
        if let Some(Move { to, sealed }) = entry.moving.take() {
            let is_shared = entry.at == entry.folder || to == entry.folder;
            let tops = is_shared.then(|| tops(root, &entry.at, streams.as_ref())).transpose()?;
            move_chunk(root, &entry.at, &to, tops.as_ref())?;
            if sealed && names::is_trash(&to) {
                root.remove_tree(&to)?;
                return journal::remove(root, number);
            }
            if sealed {
                self.recovered.finished.push(root.absolute(&to));
                self.moved.push((number, to));
                return Ok(());
            }
            if entry.at != entry.folder && root.exists(&entry.at) {
                root.remove_dir(&entry.at)?;
            }
            entry.at = to;
            entry.write(root, number)?;
        }
        if let Some(streams) = &mut streams {
            let chunk = (entry.chunk.get(), &entry.at);
            streams.append(&mut metadata::complete(root, &entry.folder, chunk, streams)?);
        }
        let is_shared_folder = entry.at == entry.folder;
        let below = match is_shared_folder {
            true => tops(root, &entry.at, streams.as_ref())?,
            false => BTreeSet::from([RelativePath::default()]),
        };
        let parts = streams.as_ref().map_or(Parts::Below(&below), Parts::Streams);
        let mended = mend(root, &entry.at, parts, entry.begin.is_some())?;
        let is_there = match &streams {
            Some(_) => !mended.members.is_empty(),
            None => mended.is_there && !below.is_empty(),
        };
        if !is_there {
            return journal::remove(root, number);
        }
        self.interrupted(root, names, number, entry, mended, is_shared_folder.then_some(below))
    }

    fn interrupted(
        &mut self,
        root: &Root,
        names: &Names,
        number: Number,
        entry: Entry,
        mended: Mended,
        tops: Option<BTreeSet<RelativePath>>,
    ) -> Result<()> {
        let losses = journal::read_losses(root, number, MAX_LOSSES)?.streams;
        let last = mended.last_packet.unwrap_or(mended.last_change);
        let end = entry.begin.map(|begin| last.max(begin));
        let to = entry.begin.zip(end).map(|(begin, end)| archive(names, &entry, begin, end));
        let known = self.known.iter_mut().find(|(_, known)| known.folder == entry.folder);
        let session = known.map(|(_, known)| {
            known.positions.extend(mended.positions);
            known.number
        });
        self.recovered.interrupted.push(Interrupted {
            host: entry.host.clone(),
            session: entry.session.clone(),
            chunk: entry.chunk,
            folder: root.absolute(&entry.at),
            is_sealed: false,
            streams: mended.streams,
            bytes: mended.bytes,
            bytes_cut: mended.bytes_cut,
            packets_indexed: mended.packets_indexed,
            without_metadata: mended.without_metadata,
            losses: losses::by_path(losses.clone()),
        });
        self.jobs.push(SealJob {
            recording: RecordingName {
                host: entry.host.clone(),
                session: entry.session.clone(),
                folder: root.absolute(&entry.folder),
            },
            chunk: entry.chunk,
            begin: entry.begin,
            end: None,
            from: entry.at.clone(),
            to: to.transpose()?,
            is_shared_folder: tops.is_some(),
            tops: tops.unwrap_or_default(),
            members: mended.members,
            losses,
            misses_entries: false,
            sealed_by: SealedBy::Interrupted,
            session,
            journal: (number, entry),
        });
        Ok(())
    }
}

fn archive(
    names: &Names,
    entry: &Entry,
    begin: UnixSeconds,
    end: UnixSeconds,
) -> Result<RelativePath> {
    Ok(entry.folder.join_path(&names.archived_chunk(begin, end, entry.chunk)?))
}

/// What a folder holds directly that is the chunk's: the tops of its streams and its manifest. Of a chunk whose streams were
/// not noted: what no other chunk is named by.
fn tops(
    root: &Root,
    folder: &RelativePath,
    streams: Option<&BTreeSet<RelativePath>>,
) -> Result<BTreeSet<RelativePath>> {
    let is_own = |name: &str| match streams {
        Some(streams) => {
            [MANIFEST, HIDDEN_MANIFEST].contains(&name)
                || streams.iter().any(|stream| stream.components().next() == Some(name))
        }
        None => !names::is_reserved(name) || name == HIDDEN_MANIFEST,
    };
    let entries = root.list(folder)?.into_iter().filter(|entry| is_own(&entry.name));
    Ok(entries.filter_map(|entry| RelativePath::new(&entry.name).ok()).collect())
}
