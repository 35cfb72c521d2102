//! What a relay that was killed left behind.
//!
//! Every chunk that was being written has a journal entry (see [`crate::journal`]). A move that had begun is
//! finished; a chunk that was still being written is reported as interrupted and left alone: new recording sessions
//! never write into a folder that holds anything. Its entry stays until its folder is gone, so that every start
//! names it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use wire::live::{ChunkId, RelativePath};

use crate::error::Result;
use crate::journal::{self, Entry, Move, Number};
use crate::losses::{self, Losses};
use crate::names;
use crate::root::Root;
use crate::seal::move_chunk;

/// How deep a chunk's folders are looked at.
const MAX_DEPTH: usize = 16;
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
    /// Data files of streams in it, metadata not counted.
    pub streams: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// Folders with streams whose metadata is missing or empty: what is in them cannot be decoded.
    pub without_metadata: Vec<PathBuf>,
    /// What was lost of which stream before the relay ended; paths as in [`crate::Sealed::streams`].
    pub losses: BTreeMap<PathBuf, Losses>,
}

/// Finishes what had begun and reports the rest.
pub(crate) fn recover(root: &Root) -> Result<(Recovered, u64)> {
    root.remove_tree(&Root::own("trash"))?;
    let mut recovered = Recovered::default();
    let mut next = 0;
    for (number, entry) in journal::read_all(root)? {
        next = number.0 + 1;
        match entry.and_then(|entry| recover_one(root, number, entry)) {
            Ok(Outcome::Finished(folder)) => recovered.finished.push(folder),
            Ok(Outcome::Interrupted(chunk)) => recovered.interrupted.push(chunk),
            Ok(Outcome::Gone) => {}
            Err(error) => recovered.unreadable.push(error),
        }
    }
    Ok((recovered, next))
}

enum Outcome {
    Finished(PathBuf),
    Interrupted(Interrupted),
    /// Its folder was deleted.
    Gone,
}

fn recover_one(root: &Root, number: Number, mut entry: Entry) -> Result<Outcome> {
    if let Some(Move { to, sealed }) = entry.moving.take() {
        // In a folder shared with other chunks the chunk's parts are those that no other chunk is named by.
        let is_shared = entry.at == entry.folder || to == entry.folder;
        let tops = is_shared.then(|| tops(root, &entry.at)).transpose()?;
        move_chunk(root, &entry.at, &to, tops.as_ref())?;
        if sealed {
            journal::remove(root, number)?;
            return Ok(Outcome::Finished(root.absolute(&to)));
        }
        if entry.at != entry.folder {
            root.remove_dir(&entry.at)?;
        }
        entry.at = to;
        entry.write(root, number)?;
    }
    let mut found = Found::default();
    if entry.at == entry.folder {
        for top in tops(root, &entry.at)? {
            found.look(root, &entry.at.join_path(&top), MAX_DEPTH)?;
        }
    } else {
        found.look(root, &entry.at, MAX_DEPTH)?;
    }
    if !found.is_there {
        journal::remove(root, number)?;
        return Ok(Outcome::Gone);
    }
    Ok(Outcome::Interrupted(Interrupted {
        host: entry.host,
        session: entry.session,
        chunk: entry.chunk,
        folder: root.absolute(&entry.at),
        streams: found.streams,
        bytes: found.bytes,
        without_metadata: found.without_metadata,
        losses: losses::by_path(journal::read_losses(root, number, MAX_LOSSES)?.streams),
    }))
}

/// What a session's folder holds directly that is not another chunk's.
fn tops(root: &Root, folder: &RelativePath) -> Result<BTreeSet<RelativePath>> {
    let entries = root.list(folder)?.into_iter();
    Ok(entries
        .filter(|entry| !names::is_reserved(&entry.name))
        .filter_map(|entry| RelativePath::new(&entry.name).ok())
        .collect())
}

#[derive(Default)]
struct Found {
    is_there: bool,
    streams: usize,
    bytes: u64,
    without_metadata: Vec<PathBuf>,
}

impl Found {
    fn look(&mut self, root: &Root, folder: &RelativePath, depth: usize) -> Result<()> {
        let mut has_streams = false;
        let mut has_metadata = false;
        self.is_there |= root.exists(folder);
        for entry in root.list(folder)? {
            let Ok(name) = RelativePath::new(&entry.name) else { continue };
            let path = folder.join_path(&name);
            if entry.is_dir {
                if entry.name != "index" && depth > 0 {
                    self.look(root, &path, depth - 1)?;
                }
                continue;
            }
            let len = root.file_len(&path)?;
            if entry.name == "metadata" {
                has_metadata = len > 0;
            } else {
                has_streams = true;
                self.streams += 1;
                self.bytes += len;
            }
        }
        if has_streams && !has_metadata {
            self.without_metadata.push(root.absolute(folder));
        }
        Ok(())
    }
}
