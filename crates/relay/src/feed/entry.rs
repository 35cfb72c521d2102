//! A stream of a session: who sends it, where its files are, and what it carries.

use std::collections::VecDeque;

use wire::live::{Name, RelativePath, RelaySessionId, StreamHandle, TracefileLimit, ViewedTraceId};

use super::chunks::{ChunkKey, Chunks};
use super::cursor::Cursor;
use super::file::{TraceFile, WeakFile};
use super::metadata::Metadata;
use super::returnable::Key;
use super::stream::Stream;
use crate::index;
use crate::stream::data_name;

/// Files of one stream that are remembered as open.
const OPEN_KEPT: usize = 8;

/// A stream of either kind.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) owner: RelaySessionId,
    pub(super) path: RelativePath,
    pub(super) channel: Name,
    pub(super) limit: Option<TracefileLimit>,
    pub(super) trace: ViewedTraceId,
    /// The publication that it became visible with.
    pub(super) published: Option<u64>,
    pub(super) content: Content,
    /// Files that somebody has open.
    pub(super) open: VecDeque<((ChunkKey, u64), WeakFile)>,
}

#[derive(Debug)]
pub(super) enum Content {
    Packets(Stream),
    Metadata(Metadata),
}

/// A stream as a viewer is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) handle: StreamHandle,
    pub(crate) trace: ViewedTraceId,
    pub(crate) is_metadata: bool,
    pub(crate) path: RelativePath,
    pub(crate) channel: Name,
    /// At the first packet that is kept, and behind the last one.
    pub(crate) beginning: Cursor,
    pub(crate) end: Cursor,
}

/// Where a viewer begins in streams that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All streams.
    All,
    /// Those of traces to which something may still be added.
    Open,
}

impl Entry {
    /// The stream, if it is not metadata.
    pub(super) const fn packets(&self) -> Option<&Stream> {
        match &self.content {
            Content::Packets(stream) => Some(stream),
            Content::Metadata(_) => None,
        }
    }

    /// What it is known by when its producer is back.
    pub(super) fn key(&self) -> Key {
        (self.path.clone(), self.channel.clone())
    }

    /// Number of the trace file that has this name in this folder, if it is one of the stream's.
    pub(super) fn file_number(&self, path: &RelativePath, name: &Name) -> Option<u64> {
        self.packets().filter(|_| self.path == *path)?;
        match self.limit {
            None => (*name == self.channel).then_some(0),
            Some(_) => {
                name.as_str().strip_prefix(self.channel.as_str())?.strip_prefix('_')?.parse().ok()
            }
        }
    }

    /// Its producer is back.
    pub(super) fn reopen(&mut self, owner: RelaySessionId) {
        (self.owner, self.published) = (owner, None);
        match &mut self.content {
            Content::Packets(stream) => stream.reopen(),
            Content::Metadata(metadata) => metadata.reopen(),
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        match &mut self.content {
            Content::Packets(stream) => stream.close(),
            Content::Metadata(metadata) => metadata.close(),
        }
    }

    pub(super) const fn is_closed(&self) -> bool {
        match &self.content {
            Content::Packets(stream) => stream.is_closed(),
            Content::Metadata(metadata) => metadata.is_closed(),
        }
    }

    pub(super) fn listed(&self, handle: StreamHandle) -> Listed {
        let (beginning, end) = match &self.content {
            Content::Packets(stream) => (stream.beginning(), stream.end()),
            Content::Metadata(_) => (Cursor::default(), Cursor::default()),
        };
        Listed {
            handle,
            trace: self.trace,
            is_metadata: matches!(self.content, Content::Metadata(_)),
            path: self.path.clone(),
            channel: self.channel.clone(),
            beginning,
            end,
        }
    }

    /// Where a trace file may be, in the folders of its chunk.
    pub(super) fn data_paths(
        &self,
        chunks: &Chunks,
        chunk: ChunkKey,
        file: u64,
    ) -> Vec<RelativePath> {
        let name = data_name(&self.channel, self.limit, file);
        let name = RelativePath::new(&name).unwrap_or_default();
        let folders = chunks.folders(chunk);
        folders.map(|folder| folder.join_path(&self.path).join_path(&name)).collect()
    }

    /// Where the index of a trace file may be.
    pub(super) fn index_paths(
        &self,
        chunks: &Chunks,
        chunk: ChunkKey,
        file: u64,
    ) -> Vec<RelativePath> {
        let name = index::path(&data_name(&self.channel, self.limit, file));
        let folders = chunks.folders(chunk);
        folders.map(|folder| folder.join_path(&self.path).join_path(&name)).collect()
    }

    /// A file, if somebody has it open.
    pub(super) fn open_file(&self, chunk: ChunkKey, file: u64) -> Option<TraceFile> {
        let open = self.open.iter().find(|(known, _)| *known == (chunk, file));
        open.and_then(|(_, file)| file.upgrade())
    }

    /// A file is open: others may share it.
    pub(super) fn opened(&mut self, chunk: ChunkKey, number: u64, file: &TraceFile) {
        let key = (chunk, number);
        if self.open.back().is_some_and(|(known, open)| *known == key && open.is(file)) {
            return;
        }
        self.open.retain(|(known, open)| *known != key && open.is_open());
        if self.open.len() >= OPEN_KEPT {
            self.open.pop_front();
        }
        self.open.push_back((key, file.downgrade()));
    }
}
