//! What to merge and what to delete, decided from names alone.

use std::collections::{BTreeMap, BTreeSet};

use model::{Nanos, Timestamp};

use super::name::{BlockName, Tenant};

const SECOND_NS: i64 = 1_000_000_000;
/// How long the windows are whose blocks are merged to one: of level 1, 2, and so on.
const WINDOWS_NS: [i64; 4] =
    [60 * SECOND_NS, 600 * SECOND_NS, 2 * 3_600 * SECOND_NS, 24 * 3_600 * SECOND_NS];
/// Samples of a window may come for so long after its end before it is merged; those that come later are merged with the next level.
const SETTLES_NS: i64 = 10 * SECOND_NS;
/// Blocks of a window that are merged before it is over.
const MANY: usize = 32;
/// Blocks are merged to no more than this, compressed: what one merge holds in memory is some tens of times as much.
pub const MAX_MERGED_BYTES: u64 = 16 << 20;

/// Blocks of one tenant that become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// In the order of their names.
    pub sources: Vec<BlockName>,
    /// The level of what they become.
    pub level: u8,
}

/// What is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Only what ended so long ago at most.
    pub age: Option<Nanos>,
    /// Only so many bytes in all, the newest.
    pub bytes: Option<u64>,
}

/// The merges that are due, the lowest level first. A block is in one of them at most.
#[must_use]
pub fn merges<'b>(blocks: impl IntoIterator<Item = &'b BlockName>, now: Timestamp) -> Vec<Merge> {
    let mut all: Vec<&BlockName> = blocks.into_iter().collect();
    all.sort_unstable();
    let mut merges: Vec<Merge> = Vec::new();
    for (level, window_ns) in (1_u8..).zip(WINDOWS_NS) {
        let mut windows: BTreeMap<(&Tenant, i64), Vec<&BlockName>> = BTreeMap::new();
        for block in all.iter().filter(|block| block.level < level) {
            let window = block.begin.nanos().div_euclid(window_ns);
            windows.entry((&block.tenant, window)).or_default().push(block);
        }
        for ((_, window), blocks) in windows {
            let end_ns = window.saturating_add(1).saturating_mul(window_ns);
            let is_over = now.nanos() >= end_ns.saturating_add(SETTLES_NS);
            if is_over || blocks.len() >= MANY {
                merges.extend(in_pieces(&blocks, level));
            }
        }
        let taken: BTreeSet<&BlockName> = merges.iter().flat_map(|merge| &merge.sources).collect();
        all.retain(|block| !taken.contains(block));
    }
    merges
}

/// Neighbours that together are no more than a merged block may be; of one alone nothing is made.
fn in_pieces(blocks: &[&BlockName], level: u8) -> Vec<Merge> {
    let mut merges = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), 0_u64);
    for block in blocks {
        if bytes.saturating_add(block.bytes) > MAX_MERGED_BYTES {
            merges.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes = bytes.saturating_add(block.bytes);
        piece.push((*block).clone());
    }
    merges.push(piece);
    merges.retain(|sources| sources.len() > 1);
    merges.into_iter().map(|sources| Merge { sources, level }).collect()
}

/// The blocks that are not kept, the oldest first.
#[must_use]
pub fn expired<'b>(
    blocks: impl IntoIterator<Item = &'b BlockName>,
    keep: Keep,
    now: Timestamp,
) -> Vec<BlockName> {
    let mut all: Vec<&BlockName> = blocks.into_iter().collect();
    all.sort_unstable_by_key(|block| (block.end, *block));
    let mut bytes: u64 = all.iter().map(|block| block.bytes).sum();
    let mut expired = Vec::new();
    for block in all {
        let is_old = keep.age.is_some_and(|age| now.since(block.end) > age);
        let is_much = keep.bytes.is_some_and(|most| bytes > most);
        if is_old || is_much {
            bytes -= block.bytes;
            expired.push(block.clone());
        }
    }
    expired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Digest;

    fn block(tenant: &str, begin_s: i64, level: u8, bytes: u64) -> BlockName {
        let begin = Timestamp::from_nanos(begin_s * SECOND_NS);
        let end = Timestamp::from_nanos((begin_s + 1) * SECOND_NS);
        let digest = Digest::of(format!("{tenant} {begin_s} {level}").as_bytes());
        BlockName { tenant: Tenant::new(tenant).unwrap(), begin, end, level, bytes, digest }
    }

    const fn at(second: i64) -> Timestamp {
        Timestamp::from_nanos(second * SECOND_NS)
    }

    #[test]
    fn a_window_is_merged_when_it_is_over_by_tenant() {
        let blocks: Vec<BlockName> = (0..6).map(|n| block("a", n * 20, 0, 10)).collect();
        assert_eq!(merges(&blocks, at(69)), []);
        let first = Merge { sources: blocks[..3].to_vec(), level: 1 };
        assert_eq!(merges(&blocks, at(70)), std::slice::from_ref(&first));
        let second = Merge { sources: blocks[3..].to_vec(), level: 1 };
        assert_eq!(merges(&blocks, at(130)), [first, second]);
        let others: Vec<BlockName> =
            [block("a", 0, 0, 10), block("b", 1, 0, 10), block("a", 70, 0, 10)].to_vec();
        assert_eq!(merges(&others, at(140)), [], "one of each tenant and window");
    }

    #[test]
    fn what_was_merged_is_merged_with_more_later() {
        let mut blocks: Vec<BlockName> = (0..10).map(|n| block("a", n * 60, 1, 10)).collect();
        // Late.
        blocks.push(block("a", 65, 0, 10));
        blocks.sort_unstable();
        assert_eq!(merges(&blocks, at(609)), []);
        assert_eq!(merges(&blocks, at(610)), [Merge { sources: blocks, level: 2 }]);
    }

    #[test]
    fn no_merge_takes_more_than_may_be() {
        let blocks: Vec<BlockName> =
            (0..5).map(|n| block("a", n, 0, MAX_MERGED_BYTES / 2)).collect();
        let merges = merges(&blocks, at(1_000_000));
        assert_eq!(merges.iter().map(|it| it.sources.len()).collect::<Vec<_>>(), [2, 2]);
        let many: Vec<BlockName> = (0..32).map(|n| block("a", n, 0, 10)).collect();
        assert_eq!(super::merges(&many, at(33)).len(), 1);
    }

    #[test]
    fn the_oldest_are_deleted() {
        let blocks: Vec<BlockName> = (0..5).map(|n| block("a", n * 100, 0, 10)).collect();
        let age = Keep { age: Some(Nanos::new(250 * 1_000_000_000)), bytes: None };
        assert_eq!(expired(&blocks, age, at(401)), blocks[..2]);
        let bytes = Keep { age: None, bytes: Some(25) };
        assert_eq!(expired(&blocks, bytes, at(401)), blocks[..3]);
        assert_eq!(expired(&blocks, Keep::default(), at(i64::MAX / SECOND_NS)), []);
    }
}
