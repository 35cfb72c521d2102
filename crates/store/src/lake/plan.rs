//! What to merge and what to delete, decided from names alone.

use std::collections::{BTreeMap, BTreeSet};

use model::{Nanos, Timestamp};

use super::name::{BlockName, Tenant};
use super::tenants::PerTenant;
use crate::cells::Grid;

const SECOND_NS: i64 = 1_000_000_000;
/// How long the windows of time are whose blocks are merged to one: of level 2, 3, and so on.
const WINDOWS_NS: [i64; 3] = [600 * SECOND_NS, 2 * 3_600 * SECOND_NS, 24 * 3_600 * SECOND_NS];
/// Blocks of a window may come for so long after its end before it is merged; those that come later are merged with the next level.
const SETTLES_NS: i64 = 30 * SECOND_NS;
/// What came is not merged for so long while its cell goes on: a rule that was made just before the cell, and whose commit lost its answer, may
/// not be in the catalogue yet.
const RULES_SETTLE_NS: i64 = 15 * SECOND_NS;
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

/// What is kept of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Only what ended so long ago at most.
    pub age: Option<Nanos>,
    /// Only so many bytes of it, the newest.
    pub bytes: Option<u64>,
}

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Of each tenant.
    pub tenants: PerTenant<Keep>,
    /// Only so many bytes of all tenants together, the newest.
    pub bytes: Option<u64>,
}

impl From<Keep> for Retention {
    /// The same of each tenant.
    fn from(keep: Keep) -> Self {
        Self { tenants: keep.into(), bytes: None }
    }
}

/// The merges that are due, the lowest level first. A block is in one of them at most.
///
/// Blocks of level 0 become one of level 1 by the cell in which they came ([`Grid`]), when it is over: nothing comes any more that came
/// before `low`. That is done for one alone, too, as it is when their samples are counted. All others are merged by the time of their samples.
#[must_use]
pub fn merges<'b>(
    blocks: impl IntoIterator<Item = &'b BlockName>,
    grid: Grid,
    low: Timestamp,
    now: Timestamp,
) -> Vec<Merge> {
    let mut all: Vec<&BlockName> = blocks.into_iter().collect();
    all.sort_unstable();
    let (pushed, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(|block| block.level == 0);
    let mut merges: Vec<Merge> = Vec::new();
    for (cell_ms, mut blocks) in windows(pushed, |block| grid.cell_of(block.came)) {
        let is_over = grid.cell_of(low) > cell_ms;
        if !is_over {
            let is_settled =
                |came: Timestamp| came.nanos().saturating_add(RULES_SETTLE_NS) <= low.nanos();
            blocks.retain(|block| is_settled(block.came));
        }
        if is_over || blocks.len() >= MANY {
            merges.extend(in_pieces(&blocks, 1, 1));
        }
    }
    for (level, window_ns) in (2_u8..).zip(WINDOWS_NS) {
        let due = all.iter().copied().filter(|block| block.level < level).collect();
        for (window, blocks) in windows(due, |block| block.begin.nanos().div_euclid(window_ns)) {
            let end_ns = window.saturating_add(1).saturating_mul(window_ns);
            let is_over = now.nanos() >= end_ns.saturating_add(SETTLES_NS);
            if is_over || blocks.len() >= MANY {
                merges.extend(in_pieces(&blocks, level, 2));
            }
        }
        let taken: BTreeSet<&BlockName> = merges.iter().flat_map(|merge| &merge.sources).collect();
        all.retain(|block| !taken.contains(block));
    }
    merges
}

/// Blocks by window, of each tenant.
fn windows(
    blocks: Vec<&BlockName>,
    window: impl Fn(&BlockName) -> i64,
) -> impl Iterator<Item = (i64, Vec<&BlockName>)> {
    let mut windows: BTreeMap<(&Tenant, i64), Vec<&BlockName>> = BTreeMap::new();
    for block in blocks {
        windows.entry((&block.tenant, window(block))).or_default().push(block);
    }
    windows.into_iter().map(|((_, window), blocks)| (window, blocks))
}

/// Neighbours that together are no more than a merged block may be; of fewer than `least` nothing is made.
fn in_pieces(blocks: &[&BlockName], level: u8, least: usize) -> Vec<Merge> {
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
    merges.retain(|sources| sources.len() >= least);
    merges.into_iter().map(|sources| Merge { sources, level }).collect()
}

/// The blocks that are not kept, the oldest first: those that a tenant's own bounds leave out, and of the others the oldest while all
/// together are too much.
#[must_use]
pub fn expired<'b>(
    blocks: impl IntoIterator<Item = &'b BlockName>,
    retention: &Retention,
    now: Timestamp,
) -> Vec<BlockName> {
    let mut all: Vec<&BlockName> = blocks.into_iter().collect();
    all.sort_unstable_by_key(|block| (block.end, *block));
    let mut of_tenant: BTreeMap<&Tenant, u64> = BTreeMap::new();
    for block in &all {
        *of_tenant.entry(&block.tenant).or_default() += block.bytes;
    }
    let mut expired: Vec<&BlockName> = Vec::new();
    all.retain(|block| {
        let keep = retention.tenants.of(&block.tenant);
        let bytes = of_tenant.entry(&block.tenant).or_default();
        let is_old = keep.age.is_some_and(|age| now.since(block.end) > age);
        let is_much = keep.bytes.is_some_and(|most| *bytes > most);
        if is_old || is_much {
            *bytes -= block.bytes;
            expired.push(block);
        }
        !(is_old || is_much)
    });
    let mut bytes: u64 = of_tenant.values().sum();
    for block in all {
        if retention.bytes.is_none_or(|most| bytes <= most) {
            break;
        }
        bytes -= block.bytes;
        expired.push(block);
    }
    expired.sort_unstable_by_key(|block| (block.end, *block));
    expired.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Digest;

    fn block(tenant: &str, begin_s: i64, level: u8, bytes: u64) -> BlockName {
        let begin = Timestamp::from_nanos(begin_s * SECOND_NS);
        let end = Timestamp::from_nanos((begin_s + 1) * SECOND_NS);
        let digest = Digest::of(format!("{tenant} {begin_s} {level}").as_bytes());
        let tenant = Tenant::new(tenant).unwrap();
        BlockName { tenant, begin, end, came: end, level, bytes, digest }
    }

    const fn at(second: i64) -> Timestamp {
        Timestamp::from_nanos(second * SECOND_NS)
    }

    fn due(blocks: &[BlockName], now_s: i64) -> Vec<Merge> {
        merges(blocks, Grid::default(), at(now_s), at(now_s))
    }

    #[test]
    fn what_came_in_a_cell_is_merged_when_it_is_over_by_tenant() {
        let blocks: Vec<BlockName> = (0..6).map(|n| block("a", n * 5, 0, 10)).collect();
        assert_eq!(due(&blocks, 14), []);
        let first = Merge { sources: blocks[..3].to_vec(), level: 1 };
        assert_eq!(due(&blocks, 15), std::slice::from_ref(&first));
        assert_eq!(
            merges(&blocks, Grid::default(), at(14), at(100)),
            [],
            "something of it may come yet"
        );
        let second = Merge { sources: blocks[3..].to_vec(), level: 1 };
        assert_eq!(due(&blocks, 30), [first, second]);
        let others = [block("a", 0, 0, 10), block("b", 1, 0, 10)];
        let alone = |block: &BlockName| Merge { sources: vec![block.clone()], level: 1 };
        assert_eq!(due(&others, 20), [alone(&others[0]), alone(&others[1])]);
    }

    #[test]
    fn what_was_merged_is_merged_by_the_time_of_samples() {
        let mut blocks: Vec<BlockName> = (0..10).map(|n| block("a", n * 60, 1, 10)).collect();
        assert_eq!(due(&blocks, 629), []);
        assert_eq!(due(&blocks, 630), [Merge { sources: blocks.clone(), level: 2 }]);
        // What is not counted yet waits.
        let late = block("a", 65, 0, 10);
        blocks.push(late.clone());
        blocks.sort_unstable();
        let level_1: Vec<BlockName> = blocks.iter().filter(|it| it.level == 1).cloned().collect();
        let alone = Merge { sources: vec![late], level: 1 };
        assert_eq!(due(&blocks, 630), [alone, Merge { sources: level_1, level: 2 }]);
        assert_eq!(due(&[block("a", 0, 1, 10)], 1_000_000), [], "one alone is not made again");
    }

    #[test]
    fn no_merge_takes_more_than_may_be() {
        let blocks: Vec<BlockName> =
            (0..5).map(|n| block("a", n, 1, MAX_MERGED_BYTES / 2)).collect();
        let merges = due(&blocks, 1_000_000);
        assert_eq!(merges.iter().map(|it| it.sources.len()).collect::<Vec<_>>(), [2, 2]);
        let mut many: Vec<BlockName> = (0..32).map(|n| block("a", n, 1, 10)).collect();
        assert_eq!(due(&many, 33).len(), 1);
        many.iter_mut().for_each(|block| block.level = 0);
        many.iter_mut().for_each(|block| block.came = at(0));
        let of_a_minute = |low_s| super::merges(&many, Grid::new(60_000), at(low_s), at(low_s));
        assert_eq!(of_a_minute(14), [], "a rule of this cell may come");
        assert_eq!(of_a_minute(15)[0].sources, many);
    }

    #[test]
    fn the_oldest_are_deleted() {
        let blocks: Vec<BlockName> = (0..5).map(|n| block("a", n * 100, 0, 10)).collect();
        let age = Keep { age: Some(Nanos::new(250 * 1_000_000_000)), bytes: None };
        assert_eq!(expired(&blocks, &age.into(), at(401)), blocks[..2]);
        let bytes = Keep { age: None, bytes: Some(25) };
        assert_eq!(expired(&blocks, &bytes.into(), at(401)), blocks[..3]);
        let end = at(i64::MAX / SECOND_NS);
        assert_eq!(expired(&blocks, &Retention::default(), end), []);
    }

    #[test]
    fn what_a_tenant_has_too_much_of_is_deleted_before_what_is_too_much_of_all() {
        // a and b in turns, each of 30 bytes.
        let of = |n: i64| if n % 2 == 0 { "a" } else { "b" };
        let blocks: Vec<BlockName> = (0..6).map(|n| block(of(n), n * 100, 1, 10)).collect();
        let places = |tenants: PerTenant<Keep>, bytes| {
            let expired = expired(&blocks, &Retention { tenants, bytes }, at(501));
            let place = |it| blocks.iter().position(|block| block == it).unwrap();
            expired.iter().map(place).collect::<Vec<_>>()
        };
        let only_b = |keep| PerTenant::new(Keep::default(), [(Tenant::new("b").unwrap(), keep)]);
        let few = Keep { age: None, bytes: Some(10) };
        assert_eq!(places(only_b(few), None), [1, 3]);
        // What b keeps is not more than all may be, and so a loses nothing.
        assert_eq!(places(only_b(few), Some(40)), [1, 3]);
        assert_eq!(places(only_b(few), Some(39)), [0, 1, 3]);
        let young = Keep { age: Some(Nanos::new(150 * 1_000_000_000)), bytes: None };
        assert_eq!(places(only_b(young), None), [1, 3]);
        assert_eq!(places(young.into(), None), [0, 1, 2, 3]);
        assert_eq!(places(PerTenant::default(), Some(35)), [0, 1, 2]);
        assert_eq!(places(few.into(), None), [0, 1, 2, 3]);
    }
}
