//! What happens to a chunk after its last stream has left: made durable, moved, announced; or deleted.
//!
//! Order: entries that never came are made, every file and folder of the chunk is synced, its manifest is written beside
//! them, the journal says where it goes, it moves in one step, the folders it left and entered are synced, the outbox takes it,
//! the journal entry goes. A crash between any two leaves either a chunk that is still named by the journal or one that is
//! whole in its last place.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;

use tracedir::manifest::{Contents, MANIFEST_FORMAT, Manifest, Origin, SealedBy};
use wire::live::{ChunkId, RelativePath, UnixSeconds};

use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::{Event, RecordingName, Sealed};
use crate::journal;
use crate::losses::{self, Losses};
use crate::mend::{Parts, mend};
use crate::metadata;
use crate::resume;
use crate::root::Root;

/// Work that takes long and needs no lock.
#[derive(Debug)]
pub(crate) enum Job {
    /// Bring a chunk to its last place.
    Seal(Box<SealJob>),
    /// Delete a chunk that was put aside.
    Delete {
        recording: RecordingName,
        chunk: ChunkId,
        /// Where it was put.
        trash: RelativePath,
    },
}

/// A chunk that nobody writes to any more.
#[derive(Debug)]
pub(crate) struct SealJob {
    pub(crate) recording: RecordingName,
    pub(crate) chunk: ChunkId,
    pub(crate) begin: Option<UnixSeconds>,
    pub(crate) end: Option<UnixSeconds>,
    /// Where it is.
    pub(crate) from: RelativePath,
    /// Where it goes; `None` when it stays.
    pub(crate) to: Option<RelativePath>,
    /// Whether `from` is the session's folder, which holds more than this chunk.
    pub(crate) is_shared_folder: bool,
    /// What is directly in `from` and belongs to the chunk.
    pub(crate) tops: BTreeSet<RelativePath>,
    /// Its streams.
    pub(crate) members: BTreeSet<RelativePath>,
    /// What was lost of them.
    pub(crate) losses: BTreeMap<RelativePath, Losses>,
    /// Packets without entries came from the chunk before.
    pub(crate) misses_entries: bool,
    /// Why it ended.
    pub(crate) sealed_by: SealedBy,
    /// The file that says where the recording session is, if it may come back.
    pub(crate) session: Option<journal::Number>,
    /// Its journal file, which is there if it ever had streams, and what belongs in it.
    pub(crate) journal: (journal::Number, journal::Entry),
}

/// What became of a job.
pub(crate) struct Done {
    pub(crate) event: Event,
    /// The chunk and its last folder, when the recording session has to be told.
    pub(crate) chunk: Option<(ChunkId, RelativePath)>,
}

/// A job and how far it has come, for it is tried again when it fails.
#[derive(Debug)]
pub(crate) struct Attempts {
    job: Job,
    failures: u32,
    /// Those that were not for want of room on the disk.
    not_for_room: u32,
    step: Step,
}

/// What of sealing is to be done next. No step is done again because a later one fails.
#[derive(Debug, Clone, Copy)]
enum Step {
    Prepare,
    Move {
        /// Name of the manifest.
        manifest: &'static str,
    },
    Announce,
    Forget,
}

impl Attempts {
    pub(crate) const fn of(job: Job) -> Self {
        Self { job, failures: 0, not_for_room: 0, step: Step::Prepare }
    }

    /// How many failed.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether waiting helps no more: what is in its way is not the want of room, and has been for as often as
    /// [`Limits::seal_attempts`] says.
    ///
    /// [`Limits::seal_attempts`]: crate::Limits::seal_attempts
    pub(crate) const fn is_hopeless(&self, env: &Env) -> bool {
        self.not_for_room >= env.limits.seal_attempts
    }

    /// Does the job, or what is left of it. `None` when that failed, which is logged and counted: it is to be tried again, or given
    /// up when that [is hopeless](Self::is_hopeless).
    pub(crate) fn run(&mut self, env: &Env) -> Option<Done> {
        let (job, step) = (&self.job, &mut self.step);
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| job.run(env, step)));
        let error = match done {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => Some(error),
            // It has been reported where it happened.
            Err(_panic) => None,
        };
        env.counters.seals_failed.add(1);
        self.failures = self.failures.saturating_add(1);
        if !error.as_ref().is_some_and(Error::is_no_room) {
            self.not_for_room = self.not_for_room.saturating_add(1);
        }
        let from = self.job.place();
        let error = error.as_ref().map(|error| error as &dyn std::error::Error);
        if self.is_hopeless(env) {
            tracing::error!(folder = %from, error, attempts = self.failures, "cannot seal a chunk; the next start tries again");
        } else {
            tracing::error!(folder = %from, error, "cannot seal a chunk; it is tried again");
        }
        None
    }

    /// It is not tried again in this run of the relay.
    pub(crate) fn give_up(self, env: &Env) -> Option<Done> {
        match self.job {
            Job::Seal(job) => {
                env.counters.seals_given_up.add(1);
                Some(job.failed(env))
            }
            Job::Delete { .. } => None,
        }
    }
}

impl Job {
    /// Where the chunk is.
    const fn place(&self) -> &RelativePath {
        match self {
            Self::Seal(job) => &job.from,
            Self::Delete { trash, .. } => trash,
        }
    }

    fn run(&self, env: &Env, step: &mut Step) -> Result<Done> {
        match self {
            Self::Seal(job) => job.run(env, step),
            Self::Delete { recording, chunk, trash } => {
                if let Err(error) = env.root.remove_tree(trash) {
                    tracing::error!(
                        folder = %trash,
                        error = &error as &dyn std::error::Error,
                        "cannot delete a cleared chunk; the next start tries again"
                    );
                }
                let event = Event::Cleared { recording: recording.clone(), chunk: *chunk };
                Ok(Done { event, chunk: None })
            }
        }
    }
}

impl SealJob {
    fn run(&self, env: &Env, step: &mut Step) -> Result<Done> {
        let Err(error) = self.seal(env, step) else { return Ok(self.sealed(env)) };
        // Nothing brings back what somebody has deleted.
        if env.root.is_missing(&self.from) && env.root.is_missing(self.last_place()) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(folder = %self.from, error, "cannot seal a chunk: it is gone");
            return Ok(self.failed(env));
        }
        Err(error)
    }

    fn last_place(&self) -> &RelativePath {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn sealed(&self, env: &Env) -> Done {
        env.counters.chunks_sealed.add(1);
        let folder = self.last_place();
        let sealed = Sealed {
            recording: self.recording.clone(),
            chunk: self.chunk,
            folder: env.root.absolute(folder),
            begin: self.begin,
            end: self.end,
            losses: losses::by_path(self.losses.clone()),
            streams: self.members.iter().map(|path| path.as_path().into()).collect(),
        };
        Done { event: Event::Sealed(sealed), chunk: Some((self.chunk, folder.clone())) }
    }

    fn failed(&self, env: &Env) -> Done {
        // It leaves its place in one step; another thing may be at its last one.
        let is_left = |top: &RelativePath| env.root.exists(&self.from.join_path(top));
        let is_there = match self.is_shared_folder {
            true => self.tops.iter().any(is_left),
            false => is_left(&RelativePath::default()),
        };
        let folder = if is_there { &self.from } else { self.last_place() };
        let event = Event::SealFailed {
            recording: self.recording.clone(),
            chunk: self.chunk,
            folder: env.root.absolute(folder),
        };
        Done { event, chunk: Some((self.chunk, folder.clone())) }
    }

    fn seal(&self, env: &Env, step: &mut Step) -> Result<()> {
        // One that never had streams and stays is no more than its number.
        if self.members.is_empty() && self.to.is_none() {
            return Ok(());
        }
        let (root, to) = (&env.root, self.last_place());
        loop {
            *step = match *step {
                Step::Prepare => Step::Move { manifest: self.prepare(root, to)? },
                Step::Move { manifest } => {
                    let tops = self.is_shared_folder.then(|| {
                        let manifest = RelativePath::new(manifest).ok();
                        self.tops.iter().cloned().chain(manifest).collect()
                    });
                    move_chunk(root, &self.from, to, tops.as_ref())?;
                    Step::Announce
                }
                Step::Announce => {
                    env.outbox.add(root, to, &env.counters)?;
                    Step::Forget
                }
                Step::Forget => return journal::remove(root, self.journal.0),
            };
        }
    }

    /// Makes the chunk complete and durable where it is; gives the name of its manifest.
    fn prepare(&self, root: &Root, to: &RelativePath) -> Result<&'static str> {
        let (number, entry) = &self.journal;
        let members = self.complete_metadata(root)?;
        self.complete_indexes(root, &members)?;
        self.sync(root, &members)?;
        self.session.map_or(Ok(()), |session| resume::sync(root, session))?;
        let manifest = self.write_manifest(root, to)?;
        journal::sync_streams(root, *number)?;
        let moving = Some(journal::Move { to: to.clone(), sealed: true });
        journal::Entry { moving, ..entry.clone() }.write_synced(root, *number)?;
        Ok(manifest)
    }

    /// Finishes what its producer began to send anew; gives the streams that there are then, which may be a metadata stream more.
    fn complete_metadata(&self, root: &Root) -> Result<BTreeSet<RelativePath>> {
        let mut members = self.members.clone();
        match self.sealed_by {
            SealedBy::Closed => metadata::put_back(root, &self.from, &self.members)?,
            _ => {
                let chunk = (self.chunk.get(), &self.from);
                let session = &self.journal.1.folder;
                members.append(&mut metadata::complete(root, session, chunk, &self.members)?);
            }
        }
        Ok(members)
    }

    /// Makes the entries that never came from the headers of their packets.
    fn complete_indexes(&self, root: &Root, members: &BTreeSet<RelativePath>) -> Result<()> {
        let misses_entries =
            self.misses_entries || self.losses.values().any(Losses::may_miss_entries);
        if misses_entries && self.begin.is_some() {
            mend(root, &self.from, Parts::Streams(members), true)?;
        }
        Ok(())
    }

    /// Writes the manifest beside the chunk's files, for its last place `to`; gives its name.
    fn write_manifest(&self, root: &Root, to: &RelativePath) -> Result<&'static str> {
        let origin = Origin {
            host: self.recording.host.clone(),
            session: self.recording.session.clone(),
            chunk: self.chunk.get(),
            folder: to.to_string(),
            begin_s: self.begin.map(UnixSeconds::get),
            end_s: self.end.map(UnixSeconds::get),
            sealed_by: self.sealed_by,
        };
        let tops = self.is_shared_folder.then_some(&self.tops);
        write_manifest(root, &self.from, tops, origin, &self.losses)
    }

    /// Brings every file and folder of the chunk to the disk.
    fn sync(&self, root: &Root, members: &BTreeSet<RelativePath>) -> Result<()> {
        let mut folders = BTreeSet::new();
        for member in members {
            let mut path = self.from.clone();
            folders.insert(path.clone());
            let depth = member.components().count().saturating_sub(1);
            for component in member.components().take(depth) {
                path = path.join_path(&RelativePath::new(component).unwrap_or_default());
                folders.insert(path.clone());
            }
            root.sync_tree(&path)?;
        }
        folders.iter().try_for_each(|folder| root.sync_dir(folder))
    }
}

/// Describes the chunk in `folder`, all of it or what is at and below `tops`, and writes that beside it; gives the
/// name of the file. It is on the disk afterwards.
pub(crate) fn write_manifest(
    root: &Root,
    folder: &RelativePath,
    tops: Option<&BTreeSet<RelativePath>>,
    origin: Origin,
    losses: &BTreeMap<RelativePath, Losses>,
) -> Result<&'static str> {
    root.make_dirs(folder)?;
    let path = root.absolute(folder);
    let tops = tops.map(|tops| tops.iter().map(|top| top.as_path().into()).collect());
    let contents = Contents::of(&path, tops.as_ref())
        .map_err(|source| Error::Manifest { folder: path.clone(), source: Box::new(source) })?;
    let losses = losses.iter().map(|(stream, losses)| losses.described(stream)).collect();
    let manifest = Manifest { format: MANIFEST_FORMAT.to_owned(), origin, contents, losses };
    let name = Manifest::name_in(&path);
    root.write_whole_synced(folder, name, &manifest.to_json())?;
    Ok(name)
}

/// Moves a chunk, or what is left of it after a crash: the whole folder, or `tops` out of a folder that holds more.
/// What is not at the old place is taken to be at the new one already. The last place appears in one step with all
/// that belongs there.
pub(crate) fn move_chunk(
    root: &Root,
    from: &RelativePath,
    to: &RelativePath,
    tops: Option<&BTreeSet<RelativePath>>,
) -> Result<()> {
    if from == to {
        return if root.exists(to) { root.sync_dir(to) } else { Ok(()) };
    }
    match tops {
        Some(tops) if !root.exists(to) => {
            // Hidden from readers of the archives while it is filled. Nothing is synced meanwhile: one who follows the
            // session should not look just then.
            let filling = hidden_beside(to);
            root.make_dirs(&filling)?;
            move_tops(root, from, &filling, tops)?;
            root.rename(&filling, to)?;
        }
        Some(tops) => move_tops(root, from, to, tops)?,
        None if root.exists(from) => root.rename(from, to)?,
        None => {
            root.make_dirs(to)?;
        }
    }
    root.sync_dir(to)?;
    // It is gone when all of it was moved before a crash.
    if tops.is_some() && root.exists(from) {
        root.sync_dir(from)?;
    }
    for folder in [parent(from), parent(to)].iter().filter(|folder| root.exists(folder)) {
        root.sync_dir(folder)?;
    }
    Ok(())
}

fn move_tops(
    root: &Root,
    from: &RelativePath,
    to: &RelativePath,
    tops: &BTreeSet<RelativePath>,
) -> Result<()> {
    for top in tops.iter().filter(|top| root.exists(&from.join_path(top))) {
        root.rename(&from.join_path(top), &to.join_path(top))?;
    }
    Ok(())
}

/// `a/b` as `a/.b`.
fn hidden_beside(path: &RelativePath) -> RelativePath {
    let (folder, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    RelativePath::new(format!("{folder}/.{name}").trim_start_matches('/')).unwrap_or_default()
}

/// The folder that something lies in.
pub(crate) fn parent(path: &RelativePath) -> RelativePath {
    let parent = path.as_str().rsplit_once('/').map(|(parent, _)| parent);
    parent.and_then(|parent| RelativePath::new(parent).ok()).unwrap_or_default()
}
