//! Where in a stream a time is: found by the index files, and read only as far as halving a list needs.
//!
//! Packets of a stream end in the order of their release, so all before the one that is found are older. What cannot be
//! read counts as not older: then reading begins earlier than it could, and nothing is left out.

use wire::live::StreamHandle;

use super::file::TraceFile;
use super::segments::Segment;
use super::{Cursor, Feed, history, lock};
use crate::root::Root;

/// Where the first packet is that is not older.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sought {
    At(Cursor),
    /// In these trace files, which are in order, or behind them.
    In(Vec<Segment>),
}

/// An index file that is looked at more than once.
struct Looked {
    segment: Segment,
    index: TraceFile,
}

impl Feed {
    /// At the first packet that ends at this clock value or later. Waits for the disk.
    pub(crate) fn since(&self, root: &Root, handle: StreamHandle, cycles: u64) -> Option<Cursor> {
        let segments = match lock(&self.state).packets(handle)?.seek(cycles) {
            Sought::At(cursor) => return Some(cursor),
            Sought::In(segments) => segments,
        };
        let mut looked = None;
        let next = first_not_older(&segments, cycles, |segment, record| {
            self.end_of(root, handle, segment, record, &mut looked)
        })?;
        Some(Cursor { next, ..Cursor::default() })
    }

    /// When the packet of an entry ends; `None` when it cannot be read.
    fn end_of(
        &self,
        root: &Root,
        handle: StreamHandle,
        segment: &Segment,
        record: u64,
        looked: &mut Option<Looked>,
    ) -> Option<u64> {
        if looked.as_ref().is_none_or(|looked| looked.segment != *segment) {
            let paths = {
                let state = lock(&self.state);
                let entry = state.streams.get(&handle)?;
                entry.index_paths(&state.chunks, segment.chunk, segment.file)
            };
            let index = TraceFile::open(root, &paths).ok()?;
            *looked = Some(Looked { segment: *segment, index });
        }
        let entries = history::entries(&looked.as_ref()?.index, record, 1).ok()?;
        entries.first().map(|entry| entry.timestamp_end)
    }
}

/// The number of the first packet of some trace files that does not end before `cycles`, or the one behind them;
/// `end_of` is asked for the end of a file's n-th packet. `None` without files.
fn first_not_older(
    segments: &[Segment],
    cycles: u64,
    mut end_of: impl FnMut(&Segment, u64) -> Option<u64>,
) -> Option<u64> {
    let mut is_older =
        |segment: &Segment, record| end_of(segment, record).is_some_and(|end| end < cycles);
    let begun = segments.partition_point(|segment| is_older(segment, 0));
    let Some(segment) = begun.checked_sub(1).and_then(|last| segments.get(last)) else {
        return segments.first().map(|segment| segment.first);
    };
    let (mut low, mut high) = (1, segment.count);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_older(segment, middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(segment.first + low)
}

#[cfg(test)]
mod tests {
    use super::super::ChunkKey;
    use super::*;

    /// Four files of eight packets each; the packet `n` of them ends at `10 * n`.
    fn segments() -> Vec<Segment> {
        let chunk = ChunkKey::Before(0);
        (0..4).map(|file| Segment { chunk, file, first: 100 + file * 8, count: 8 }).collect()
    }

    fn end(segment: &Segment, record: u64) -> Option<u64> {
        Some((segment.first - 100 + record) * 10)
    }

    #[test]
    fn the_first_packet_that_is_not_older_is_found_with_few_looks() {
        for cycles in 0..400 {
            let mut looks = 0;
            let found = first_not_older(&segments(), cycles, |segment, record| {
                looks += 1;
                end(segment, record)
            });
            let expected = (0..32).find(|n| n * 10 >= cycles).unwrap_or(32);
            assert_eq!(found, Some(100 + expected), "{cycles}");
            assert!(looks <= 7, "{looks}");
        }
        assert_eq!(first_not_older(&[], 7, end), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_left_out() {
        let unreadable = |which: u64| {
            move |segment: &Segment, record| end(segment, record).filter(|_| segment.file != which)
        };
        for cycles in 0..400 {
            let right = first_not_older(&segments(), cycles, end).unwrap();
            for file in 0..4 {
                let found = first_not_older(&segments(), cycles, unreadable(file)).unwrap();
                assert!(found <= right, "{cycles} without {file}");
            }
        }
    }
}
