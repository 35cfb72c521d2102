//! Which packets of a stream are in which of its trace files. The index file of each lists them in the same order, so the
//! n-th packet of a segment has the n-th entry.

use std::collections::VecDeque;

use super::chunks::ChunkKey;

/// The packets of one trace file, by their numbers in the stream's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) chunk: ChunkKey,
    /// The trace file's number in the chunk.
    pub(crate) file: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Segment {
    /// Behind its last packet.
    pub(crate) const fn end(&self) -> u64 {
        self.first + self.count
    }

    /// Whether it is the same file.
    pub(crate) fn is_in(&self, chunk: ChunkKey, file: u64) -> bool {
        (self.chunk, self.file) == (chunk, file)
    }
}

/// The segments of a stream, in order; between two there may be packets that are gone.
#[derive(Debug, Default)]
pub(super) struct Segments(VecDeque<Segment>);

impl Segments {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The packet `number`, which follows all others, is in this file.
    pub(super) fn add(&mut self, chunk: ChunkKey, file: u64, number: u64) {
        match self.0.back_mut() {
            Some(last) if last.is_in(chunk, file) && last.end() == number => last.count += 1,
            _ => self.0.push_back(Segment { chunk, file, first: number, count: 1 }),
        }
    }

    /// Puts files with so many packets each in front, the last of which is the one before `before`; of older files than `kept`
    /// in all nothing is known. Gives how many there are more.
    pub(super) fn prepend(
        &mut self,
        parts: Vec<(ChunkKey, u64, u64)>,
        before: u64,
        kept: usize,
    ) -> usize {
        let len = self.0.len();
        let mut first = before;
        for (chunk, file, count) in parts.into_iter().rev().take(kept.saturating_sub(len)) {
            first = first.saturating_sub(count);
            self.0.push_front(Segment { chunk, file, first, count });
        }
        self.0.len() - len
    }

    /// Forgets the oldest, as long as there are more than `kept`; gives how many it forgot.
    pub(super) fn cut(&mut self, kept: usize) -> usize {
        let excess = self.0.len().saturating_sub(kept.max(1));
        self.0.drain(..excess);
        excess
    }

    /// The one that a packet is in.
    pub(super) fn of(&self, number: u64) -> Option<Segment> {
        let after = self.0.partition_point(|segment| segment.first <= number);
        let segment = self.0.get(after.checked_sub(1)?).copied()?;
        (number < segment.end()).then_some(segment)
    }

    /// The first packet from `number` on that is in one.
    pub(super) fn first_from(&self, number: u64) -> Option<u64> {
        let at = self.0.partition_point(|segment| segment.end() <= number);
        self.0.get(at).map(|segment| segment.first.max(number))
    }

    /// Those that have packets before `number`, cut to these.
    pub(super) fn before(&self, number: u64) -> Vec<Segment> {
        let older = self.0.iter().take_while(|segment| segment.first < number);
        older.map(|it| Segment { count: it.count.min(number - it.first), ..*it }).collect()
    }

    /// Whether the packet `number` or a later one is in this chunk.
    pub(super) fn has_from(&self, chunk: ChunkKey, number: u64) -> bool {
        let older = self.0.partition_point(|segment| segment.end() <= number);
        self.0.range(older..).any(|segment| segment.chunk == chunk)
    }

    /// Those that `which` picks are gone; gives how many.
    pub(super) fn lose(&mut self, which: impl Fn(&Segment) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|segment| !which(segment));
        before - self.0.len()
    }

    /// The last packets of the stream, those in front of `end`, are in the first files of another chunk, as many as `moved` says.
    pub(super) fn relocate(&mut self, moved: &[u64], end: u64, to: ChunkKey) {
        let all = moved.iter().sum();
        let Some(mut first) = end.checked_sub(all).filter(|first| *first < end) else { return };
        while let Some(last) = self.0.back_mut().filter(|last| last.end() > first) {
            last.count = first.saturating_sub(last.first);
            if last.count > 0 {
                break;
            }
            self.0.pop_back();
        }
        for (file, count) in (0..).zip(moved.iter().copied()).filter(|(_, count)| *count > 0) {
            self.0.push_back(Segment { chunk: to, file, first, count });
            first += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::live::ChunkId;

    fn chunk(number: u64) -> ChunkKey {
        ChunkKey::Since(ChunkId::new(number))
    }

    /// Three files of four packets each, from number 10 on.
    fn segments() -> Segments {
        let mut segments = Segments::default();
        for number in 0..12 {
            segments.add(chunk(0), number / 4, 10 + number);
        }
        segments
    }

    #[test]
    fn a_packet_is_in_one_file_or_gone() {
        let mut segments = segments();
        let at = |segments: &Segments, number| segments.of(number).map(|it| (it.file, it.first));
        assert_eq!(
            [9, 10, 13, 14, 21, 22].map(|number| at(&segments, number)),
            [None, Some((0, 10)), Some((0, 10)), Some((1, 14)), Some((2, 18)), None]
        );
        assert_eq!(segments.lose(|segment| segment.file == 1), 1);
        assert_eq!(at(&segments, 15), None);
        assert_eq!(
            [0, 12, 14, 17, 21, 22].map(|number| segments.first_from(number)),
            [Some(10), Some(12), Some(18), Some(18), Some(21), None]
        );
        assert!(segments.has_from(chunk(0), 0) && segments.has_from(chunk(0), 21));
        assert!(!segments.has_from(chunk(0), 22) && !segments.has_from(chunk(1), 0));
        assert_eq!((segments.cut(1), segments.len()), (1, 1));
        assert_eq!(segments.first_from(0), Some(18));
    }

    #[test]
    fn what_was_before_is_put_in_front() {
        let mut segments = segments();
        let before = |file| (ChunkKey::Before(0), file, 2);
        assert_eq!(segments.prepend((0..4).map(before).collect(), 10, 5), 2);
        let at = |number| segments.of(number).map(|it| (it.file, it.first));
        assert_eq!(
            [5, 6, 7, 8, 9, 10].map(at),
            [None, Some((2, 6)), Some((2, 6)), Some((3, 8)), Some((3, 8)), Some((0, 10))]
        );
        assert_eq!(segments.prepend(vec![before(0)], 6, 5), 0);
    }

    #[test]
    fn packets_that_were_moved_are_in_the_other_chunk() {
        let mut segments = segments();
        segments.relocate(&[3], 22, chunk(1));
        segments.add(chunk(1), 0, 22);
        let all: Vec<_> = segments.0.iter().map(|it| (it.chunk, it.first, it.count)).collect();
        let expected = [(chunk(0), 10, 4), (chunk(0), 14, 4), (chunk(0), 18, 1), (chunk(1), 19, 4)];
        assert_eq!(all, expected);
        segments.relocate(&[0], 23, chunk(2));
        segments.relocate(&[4], 23, chunk(2));
        assert_eq!(segments.of(19).map(|it| it.chunk), Some(chunk(2)));
        assert_eq!(segments.len(), 4);
    }
}
