//! What happens to a chunk after its last stream has left: made durable, moved, announced; or deleted.
//!
//! Order: every file and folder of the chunk is synced, the journal says where it goes, it moves, the folders it
//! left and entered are synced, the journal entry goes. A crash between any two leaves either a chunk that is
//! still named by the journal or one that is whole in its last place.

use std::collections::{BTreeMap, BTreeSet};

use wire::live::{ChunkId, RelativePath, UnixSeconds};

use crate::env::Env;
use crate::error::Result;
use crate::event::{Event, RecordingName, Sealed};
use crate::journal;
use crate::losses::{self, Losses};
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
    pub(crate) journal: Option<(journal::Number, journal::Entry)>,
}

/// What became of a job.
pub(crate) struct Done {
    pub(crate) event: Event,
    /// The chunk and its last folder, when the recording session has to be told.
    pub(crate) chunk: Option<(ChunkId, RelativePath)>,
}

impl Job {
    /// Does it; what fails is logged here and told by the event.
    pub(crate) fn run(self, env: &Env) -> Done {
        match self {
            Self::Seal(job) => job.run(env),
            Self::Delete { recording, chunk, trash } => {
                if let Err(error) = env.root.remove_tree(&trash) {
                    tracing::error!(
                        folder = %trash,
                        error = &error as &dyn std::error::Error,
                        "cannot delete a cleared chunk; the next start tries again"
                    );
                }
                Done { event: Event::Cleared { recording, chunk }, chunk: None }
            }
        }
    }
}

impl SealJob {
    fn run(self, env: &Env) -> Done {
        let folder = self.to.clone().unwrap_or_else(|| self.from.clone());
        match self.seal(&env.root) {
            Ok(()) => {
                env.counters.chunks_sealed.add(1);
                let sealed = Sealed {
                    recording: self.recording,
                    chunk: self.chunk,
                    folder: env.root.absolute(&folder),
                    begin: self.begin,
                    end: self.end,
                    losses: losses::by_path(self.losses),
                    streams: self.members.iter().map(|path| path.as_path().into()).collect(),
                };
                Done { event: Event::Sealed(sealed), chunk: Some((self.chunk, folder)) }
            }
            Err(error) => {
                tracing::error!(
                    folder = %self.from,
                    error = &error as &dyn std::error::Error,
                    "cannot seal a chunk"
                );
                let event = Event::SealFailed {
                    recording: self.recording,
                    chunk: self.chunk,
                    folder: env.root.absolute(&self.from),
                };
                Done { event, chunk: Some((self.chunk, self.from)) }
            }
        }
    }

    fn seal(&self, root: &Root) -> Result<()> {
        self.sync(root)?;
        if let Some(to) = &self.to {
            if let Some((number, entry)) = &self.journal {
                let moving = Some(journal::Move { to: to.clone(), sealed: true });
                journal::Entry { moving, ..entry.clone() }.write(root, *number)?;
                root.sync_dir(&Root::own(""))?;
            }
            let tops = self.is_shared_folder.then_some(&self.tops);
            move_chunk(root, &self.from, to, tops)?;
        }
        match &self.journal {
            Some((number, _)) => journal::remove(root, *number),
            None => Ok(()),
        }
    }

    /// Brings every file and folder of the chunk to the disk.
    fn sync(&self, root: &Root) -> Result<()> {
        let mut folders = BTreeSet::new();
        for member in &self.members {
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

/// Moves a chunk, or what is left of it after a crash: the whole folder, or `tops` out of a folder that holds more.
/// What is not at the old place is taken to be at the new one already.
pub(crate) fn move_chunk(
    root: &Root,
    from: &RelativePath,
    to: &RelativePath,
    tops: Option<&BTreeSet<RelativePath>>,
) -> Result<()> {
    match tops {
        Some(tops) => {
            root.make_dirs(to)?;
            for top in tops.iter().filter(|top| root.exists(&from.join_path(top))) {
                root.rename(&from.join_path(top), &to.join_path(top))?;
            }
            root.sync_dir(to)?;
            root.sync_dir(from)?;
        }
        None if root.exists(from) => root.rename(from, to)?,
        None => {
            root.make_dirs(to)?;
        }
    }
    for moved in [from, to] {
        root.sync_dir(&parent(moved))?;
    }
    Ok(())
}

fn parent(path: &RelativePath) -> RelativePath {
    let parent = path.as_str().rsplit_once('/').map(|(parent, _)| parent);
    parent.and_then(|parent| RelativePath::new(parent).ok()).unwrap_or_default()
}
