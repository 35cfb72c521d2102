//! Where the chunks of a session are. Packets are known by their chunk and never by a path, for a chunk may move
//! while it is read.

use std::collections::BTreeMap;

use wire::live::{ChunkId, RelativePath};

/// Chunks of one session whose folders are remembered.
const KEPT: usize = 4096;

/// A chunk of a session, as long as its feed is there; older ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChunkKey {
    /// The n-th of those that were there before the feed.
    Before(u32),
    /// One that its producer names so.
    Since(ChunkId),
}

/// The folders of a session's chunks, at most [`KEPT`].
#[derive(Debug, Default)]
pub(super) struct Chunks(BTreeMap<ChunkKey, Places>);

/// Where a chunk is, and where it is being moved.
#[derive(Debug)]
struct Places {
    at: RelativePath,
    to: Option<RelativePath>,
}

impl Chunks {
    /// A chunk is in this folder; gives those that are forgotten for it.
    pub(super) fn is_at(&mut self, chunk: ChunkKey, folder: &RelativePath) -> Vec<ChunkKey> {
        self.0.insert(chunk, Places { at: folder.clone(), to: None });
        let excess = self.0.len().saturating_sub(KEPT);
        let forgotten: Vec<ChunkKey> = self.0.keys().take(excess).copied().collect();
        for chunk in &forgotten {
            self.0.remove(chunk);
        }
        forgotten
    }

    /// A chunk is about to move.
    pub(super) fn goes_to(&mut self, chunk: ChunkKey, folder: &RelativePath) {
        if let Some(places) = self.0.get_mut(&chunk) {
            places.to = Some(folder.clone());
        }
    }

    /// A chunk is nowhere.
    pub(super) fn is_gone(&mut self, chunk: ChunkKey) {
        self.0.remove(&chunk);
    }

    /// The chunk that is in this folder.
    pub(super) fn find(&self, folder: &RelativePath) -> Option<ChunkKey> {
        let is_there = |places: &Places| places.at == *folder || places.to.as_ref() == Some(folder);
        self.0.iter().find(|(_, places)| is_there(places)).map(|(chunk, _)| *chunk)
    }

    /// Where a chunk may be: one place, or two while it moves.
    pub(super) fn folders(&self, chunk: ChunkKey) -> impl Iterator<Item = &RelativePath> {
        self.0.get(&chunk).into_iter().flat_map(|Places { at, to }| std::iter::once(at).chain(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_where_it_was_or_where_it_goes() {
        let path = |text| RelativePath::new(text).unwrap();
        let chunk = ChunkKey::Since(ChunkId::new(3));
        let mut chunks = Chunks::default();
        chunks.is_at(chunk, &path("s/a"));
        chunks.goes_to(chunk, &path("s/b"));
        let folders: Vec<_> = chunks.folders(chunk).map(RelativePath::as_str).collect();
        assert_eq!(folders, ["s/a", "s/b"]);
        assert_eq!(chunks.find(&path("s/b")), Some(chunk));
        chunks.is_at(chunk, &path("s/b"));
        assert_eq!(chunks.find(&path("s/a")), None);
        chunks.is_gone(chunk);
        assert_eq!(chunks.folders(chunk).count(), 0);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut chunks = Chunks::default();
        let folder = RelativePath::default();
        assert!(chunks.is_at(ChunkKey::Before(0), &folder).is_empty());
        for number in 1..KEPT as u64 {
            assert!(chunks.is_at(ChunkKey::Since(ChunkId::new(number)), &folder).is_empty());
        }
        let last = ChunkKey::Since(ChunkId::new(u64::MAX));
        assert_eq!(chunks.is_at(last, &folder), [ChunkKey::Before(0)]);
    }
}
