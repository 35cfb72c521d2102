//! The index files of the simulated relay, under names that trace file rings use again.

use std::collections::BTreeMap;

use ctf::index::IndexEntry;
use wire::live::{ChunkId, RelativePath, StreamHandle};

use super::super::chunks::ChunkKey;

/// A file's name: stream, chunk, number in the ring.
type FileName = (StreamHandle, u64, u64);

#[derive(Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<FileName, Vec<IndexEntry>>,
}

impl Disk {
    pub(super) fn append(&mut self, name: FileName, entry: IndexEntry) {
        self.files.entry(name).or_default().push(entry);
    }

    /// Begins a file in place of the one that has the name.
    pub(super) fn replace(&mut self, name: FileName) {
        self.files.insert(name, Vec::new());
    }

    /// Cuts the last entries off a file.
    pub(super) fn cut(&mut self, name: FileName, count: usize) {
        if let Some(file) = self.files.get_mut(&name) {
            file.truncate(file.len() - count);
        }
    }

    /// The last entries of a file.
    pub(super) fn last(&self, name: FileName, count: usize) -> Vec<IndexEntry> {
        self.files.get(&name).map(|file| file[file.len() - count..].to_vec()).unwrap_or_default()
    }

    pub(super) fn len(&self, name: FileName) -> usize {
        self.files.get(&name).map_or(0, Vec::len)
    }

    /// Deletes a chunk.
    pub(super) fn delete(&mut self, chunk: u64) {
        self.files.retain(|(_, of, _), _| *of != chunk);
    }

    /// Entries from the n-th on; `None` when there are not as many, or there is no such file.
    pub(super) fn read(&self, name: FileName, first: u64, count: usize) -> Option<Vec<IndexEntry>> {
        let first = usize::try_from(first).ok()?;
        self.files.get(&name)?.get(first..first.checked_add(count)?).map(<[_]>::to_vec)
    }

    /// Whether an entry is written there.
    pub(super) fn has(&self, name: FileName, entry: &IndexEntry) -> bool {
        self.files.get(&name).is_some_and(|file| file.contains(entry))
    }
}

pub(super) const fn chunk_id(chunk: u64) -> ChunkId {
    ChunkId::new(chunk)
}

pub(super) fn number_of(chunk: ChunkKey) -> u64 {
    match chunk {
        ChunkKey::Before(_) => unreachable!("nothing is before the simulation"),
        ChunkKey::Since(chunk) => chunk.get(),
    }
}

/// Where a chunk is.
pub(super) fn folder(chunk: u64) -> RelativePath {
    RelativePath::new(&format!("s/{chunk}")).unwrap()
}
