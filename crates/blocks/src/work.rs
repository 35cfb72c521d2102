//! A job in pieces that anyone can do, and who does them.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mapper::job::{Common, Entry, Part};
use serde::{Deserialize, Serialize};
use tracedir::ARCHIVES;

use crate::block::Summarised;
use crate::error::Error;
use crate::id::BlockId;
use crate::tree::Node;

/// All that doing any step of a job needs besides the step. It is sent to whoever does steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// What reading any part depends on.
    pub common: Common,
    /// The windows.
    pub parts: Vec<Part>,
    /// What they are read from.
    pub pieces: Vec<Piece>,
    /// Where blocks are kept: a folder or a URL; nowhere when absent.
    pub blocks: Option<String>,
}

/// A chunk, or a trace that was never rotated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it is.
    pub place: Place,
    /// SHA-256 of its manifest, or of what a manifest of it would say.
    pub checksum: [u8; 32],
    /// Bytes of its files.
    pub bytes: u64,
}

/// Where a piece is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A folder that whoever reads it can open.
    Folder(PathBuf),
    /// Below a URL.
    Bucket {
        /// `s3://bucket/prefix`.
        url: String,
        /// The chunk's folder below it, and its manifest's name in that.
        folder: String,
        /// Name of the manifest.
        manifest: String,
    },
}

impl Piece {
    /// What it is called where it was recorded: the names of session and chunk, not where they lie.
    pub(crate) fn name(&self) -> String {
        let folder = match &self.place {
            Place::Folder(folder) => folder.to_string_lossy(),
            Place::Bucket { url, folder, .. } => format!("{url}/{folder}").into(),
        };
        let mut names: Vec<&str> = folder.rsplit('/').filter(|name| *name != ARCHIVES).collect();
        names.truncate(2);
        names.reverse();
        names.join("/")
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Summarise a part.
    Map {
        /// Which part.
        part: usize,
        /// The block that it becomes.
        id: BlockId,
        /// What the part begins with.
        entry: Box<Entry>,
    },
    /// Bring a block that was made before.
    Load {
        /// What it covers.
        node: Node,
        /// Which one.
        id: BlockId,
    },
}

impl Step {
    /// How many bytes it takes in a task.
    ///
    /// # Errors
    ///
    /// [`Error::Encoding`].
    pub fn encoded_len(&self) -> Result<usize, Error> {
        Ok(postcard::to_stdvec(self)?.len())
    }

    /// The first window that it is about; steps are given in this order.
    #[must_use]
    pub const fn first(&self) -> usize {
        match self {
            Self::Map { part, .. } => *part,
            Self::Load { node, .. } => node.first,
        }
    }
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The summary of a stretch.
    Segment(Segment),
    /// A block that could not be brought: it is gone, or was refused and removed.
    Gone {
        /// Which one.
        id: BlockId,
        /// Why it was refused; `None` when it was not there.
        refused: Option<String>,
    },
    /// Neighbours do not merge: a window began with less than it has to know.
    Stale {
        /// What it did not know.
        problem: String,
    },
    /// It cannot be done, here or anywhere.
    Failed {
        /// Where it failed: a chunk, a window.
        place: String,
        /// Why.
        problem: String,
    },
}

/// The summary of a stretch of windows, and how it came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// What it covers.
    pub node: Node,
    /// Its block's name.
    pub id: BlockId,
    /// What is in it.
    pub content: Summarised,
    /// How many blocks were made for it that were not there before.
    pub made: u64,
    /// How many blocks it was merged from that were.
    pub loaded: u64,
    /// Blocks that were refused meanwhile, a line each.
    pub refused: Vec<String>,
}

/// Why an engine gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Something that steps were given to is gone. What is missing can be done by the others: run it again.
    #[error("{what}")]
    Lost {
        /// Who or what, by name.
        what: String,
    },
    /// Nobody is left to do anything.
    #[error("{}", tried.join("; "))]
    Nobody {
        /// Who was tried, and why they do not.
        tried: Vec<String>,
    },
    /// [`Stop`] was set.
    #[error("stopped")]
    Stopped,
    /// It cannot be done.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Tells work to end after the step that it is at.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Tells it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was told.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What does the steps of a job. How a job is planned is the same for all ([`crate::analyse`]); an engine shares steps out,
/// brings back what becomes of them, in any order, and can be told to stop. It needs no memory: what it did not bring back is
/// asked for again.
pub trait Engine: Sync {
    /// Does steps that do not depend on each other, until `take` breaks off. Outcomes may be those of single steps, or segments
    /// that several of them were merged to.
    ///
    /// # Errors
    ///
    /// [`EngineError::Lost`] when some outcomes may be missing; [`EngineError::Nobody`], [`EngineError::Stopped`],
    /// [`EngineError::Failed`] when they will be.
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError>;

    /// Ends [`Self::run`] early, from another thread; it does nothing from then on.
    fn cancel(&self);

    /// Whether it was told to end.
    fn is_cancelled(&self) -> bool;
}
