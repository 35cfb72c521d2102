//! Trace chunks of one recording session: where each is written and where it goes.
//!
//! ```text
//! the first chunk            in the session's folder itself
//! every one after it         SESSION/<begin>-<id>/
//! with an override name      SESSION/<name>/                      (snapshots)
//! closed, "move to archives" SESSION/archives/<begin>-<end>-<id>/
//! closed, "delete"           gone; if the session never rotated, the next chunk takes the session's folder
//! closed otherwise           stays
//! ```
//! A chunk is closed by its producer but lives until its last stream has left it; only then is it moved, deleted
//! or, made durable where it stands, sealed.

use std::collections::{BTreeSet, VecDeque};

use wire::live::{ChunkId, CloseAction, CloseTraceChunk, RelativePath, UnixSeconds};

use crate::error::Result;
use crate::journal::{self, Moving};
use crate::losses::{ChunkLosses, Loss, Losses};
use crate::names::Names;

/// A chunk that is being written, or closed and not yet sealed.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) begin: Option<UnixSeconds>,
    /// Where it is written, relative to the root.
    pub(crate) folder: RelativePath,
    pub(crate) is_snapshot: bool,
    /// Streams in it at present.
    pub(crate) streams: usize,
    /// Paths of all streams that were in it, relative to `folder`; at most [`crate::Limits::streams_per_chunk`] and
    /// those that rotated into it.
    pub(crate) members: BTreeSet<RelativePath>,
    /// Paths of streams in the journal, those that failed to enter too; bounded as `members` are.
    pub(crate) noted: BTreeSet<RelativePath>,
    /// Changes that a stream's way into the chunk still needs: none of the session's chunks is sealed before.
    pub(crate) unfinished: Option<Moving>,
    pub(crate) losses: ChunkLosses,
    /// Packets without entries came from the chunk before.
    pub(crate) misses_entries: bool,
    /// Those with a place that are not in the journal yet.
    pub(crate) losses_to_note: VecDeque<(RelativePath, Loss)>,
    pub(crate) closing: Option<Closing>,
    /// Its last move is under way.
    pub(crate) is_sealing: bool,
    pub(crate) journal: Option<journal::Number>,
    /// Where it is put to be deleted, once that has begun.
    pub(crate) trash: Option<RelativePath>,
    /// How often that failed, other than for want of room on the disk.
    pub(crate) discards_failed: u32,
}

/// How a chunk ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closing {
    /// By the producer's clock; `None` when the producer went away without closing it.
    pub(crate) end: Option<UnixSeconds>,
    pub(crate) fate: Fate,
}

/// What becomes of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays where it is.
    Stay,
    /// It moves to this folder, relative to the root.
    Archive(RelativePath),
    /// It is deleted.
    Delete,
}

impl Chunk {
    pub(crate) fn new(begin: Option<UnixSeconds>, folder: RelativePath, is_snapshot: bool) -> Self {
        Self {
            begin,
            folder,
            is_snapshot,
            streams: 0,
            members: BTreeSet::new(),
            noted: BTreeSet::new(),
            unfinished: None,
            losses: ChunkLosses::default(),
            misses_entries: false,
            losses_to_note: VecDeque::new(),
            closing: None,
            is_sealing: false,
            journal: None,
            trash: None,
            discards_failed: 0,
        }
    }

    /// Whether streams may enter.
    pub(crate) const fn is_open(&self) -> bool {
        self.closing.is_none()
    }

    /// Whether all that is left is its last move.
    pub(crate) const fn is_complete(&self) -> bool {
        self.closing.is_some() && self.streams == 0 && !self.is_sealing
    }

    /// Whether a packet of a stream may lie in it without an entry; one that was given up may have come after all.
    pub(crate) fn misses_entries_of(&self, stream: &RelativePath) -> bool {
        self.misses_entries || self.losses.streams.get(stream).is_some_and(Losses::may_miss_entries)
    }

    /// Decides what becomes of it on the producer's request.
    pub(crate) fn fate(
        &self,
        names: &Names,
        session: &RelativePath,
        request: &CloseTraceChunk,
    ) -> Result<Fate> {
        Ok(match (request.action, self.begin) {
            (Some(CloseAction::MoveToArchives), Some(begin)) => {
                let archive = names.archived_chunk(begin, request.closed, request.chunk)?;
                Fate::Archive(session.join_path(&archive))
            }
            (Some(CloseAction::Delete), _) => Fate::Delete,
            _ => Fate::Stay,
        })
    }

    /// The folders and files directly in `folder` that are the chunk's, for one that shares it.
    pub(crate) fn tops(&self) -> BTreeSet<RelativePath> {
        self.members
            .iter()
            .filter_map(|member| RelativePath::new(member.components().next()?).ok())
            .collect()
    }
}

/// The folder a new chunk is written to, relative to the session's.
pub(crate) fn placement(
    names: &Names,
    begin: UnixSeconds,
    chunk: ChunkId,
    session_folder_is_free: bool,
) -> Result<RelativePath> {
    if session_folder_is_free {
        Ok(RelativePath::default())
    } else {
        Ok(names.current_chunk(begin, chunk)?.into())
    }
}
