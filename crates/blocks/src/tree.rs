//! Windows and runs of them, as the nodes of a tree.
//!
//! A node of level 0 is a window, one of level `l` up to [`FAN`] nodes of level `l - 1`: those whose number divided by
//! [`FAN`] is the same. Any run of `n` windows is a row of at most `2 (FAN - 1)` nodes of each level, so of O(log n).
//!
//! ```text
//! level 2            0
//! level 1     0             1
//! level 0  0 … 7         8 … 11        twelve windows; a node with one node below it is that node
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stitch::Summary;

use crate::block::{Summarised, Told};
use crate::blocks::{Blocks, find, keep};
use crate::error::Error;
use crate::id::BlockId;
use crate::work::Segment;

/// How many neighbours are merged to one block.
pub const FAN: usize = 8;

/// A run of windows that has a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// The first window.
    pub first: usize,
    /// 0 for a window, one more than those that it is merged from else.
    pub level: u32,
}

impl Node {
    /// The node of one window.
    #[must_use]
    pub const fn window(first: usize) -> Self {
        Self { first, level: 0 }
    }

    /// How many windows a node of its level has, but for the last.
    const fn width(self) -> usize {
        FAN.saturating_pow(self.level)
    }

    /// The first window after it, of so many in all.
    pub(crate) fn end(self, windows: usize) -> usize {
        self.first.saturating_add(self.width()).min(windows)
    }

    /// Whether so many windows have it.
    pub(crate) fn is_one_of(self, windows: usize) -> bool {
        let is_low = self.level <= root(windows).level;
        is_low && self.first < windows && self.first.is_multiple_of(self.width())
    }

    fn parent(self) -> Self {
        let level = self.level + 1;
        let width = FAN.saturating_pow(level);
        Self { first: self.first / width * width, level }
    }

    /// The nodes that it is merged from; none for a window.
    pub(crate) fn children(self, windows: usize) -> impl Iterator<Item = Self> {
        let level = self.level.checked_sub(1);
        let width = level.map_or(1, |level| FAN.saturating_pow(level));
        let end = if level.is_some() { self.end(windows) } else { self.first };
        let firsts = (self.first..end).step_by(width);
        firsts.map(move |first| Self { first, level: level.unwrap_or(0) })
    }

    /// Whether it is only another name for the node below it.
    pub(crate) fn is_only_child(self, windows: usize) -> bool {
        self.children(windows).nth(1).is_none() && self.level > 0
    }
}

/// The node of all windows.
pub(crate) fn root(windows: usize) -> Node {
    let mut root = Node::window(0);
    while root.width() < windows {
        root.level += 1;
    }
    root
}

/// The fewest nodes that make up a run of windows, in order.
pub(crate) fn row(windows: usize, run: std::ops::Range<usize>) -> Vec<Node> {
    let mut nodes = Vec::new();
    add_row(root(windows), windows, &run, &mut nodes);
    nodes
}

fn add_row(node: Node, windows: usize, run: &std::ops::Range<usize>, nodes: &mut Vec<Node>) {
    let end = node.end(windows);
    if run.end <= node.first || end <= run.start || node.first >= end {
        return;
    }
    if run.start <= node.first && end <= run.end {
        nodes.push(node);
        return;
    }
    node.children(windows).for_each(|child| add_row(child, windows, run, nodes));
}

/// The names of all nodes, from those of the windows.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    windows: usize,
    ids: BTreeMap<Node, BlockId>,
}

impl Names {
    pub(crate) fn new(windows: Vec<BlockId>) -> Result<Self, Error> {
        let count = windows.len();
        let ids = windows.into_iter().enumerate().map(|(n, id)| (Node::window(n), id)).collect();
        let mut names = Self { windows: count, ids };
        names.name(root(count))?;
        Ok(names)
    }

    fn name(&mut self, node: Node) -> Result<Option<BlockId>, Error> {
        if let Some(id) = self.ids.get(&node) {
            return Ok(Some(*id));
        }
        let mut below = Vec::new();
        for child in node.children(self.windows) {
            below.extend(self.name(child)?);
        }
        let id = match below.as_slice() {
            [] => return Ok(None),
            [only] => *only,
            several => BlockId::of_merge(several)?,
        };
        self.ids.insert(node, id);
        Ok(Some(id))
    }

    pub(crate) fn id(&self, node: Node) -> Option<BlockId> {
        self.ids.get(&node).copied()
    }
}

/// Segments as they come, in any order, each merged with its neighbours as soon as all of a node are there.
///
/// Only whole nodes are merged, and those in the order of time, so what comes out does not depend on who did what when. A
/// stretch that comes twice is refused: an engine that repeats itself must not count anything twice.
#[derive(Debug)]
pub(crate) struct Fold {
    windows: usize,
    segments: BTreeMap<usize, Segment>,
}

impl Fold {
    /// Of so many windows, none of which has come.
    pub(crate) const fn new(windows: usize) -> Self {
        Self { windows, segments: BTreeMap::new() }
    }

    /// Takes in a segment, and commits what it is merged to where blocks are kept.
    ///
    /// # Errors
    ///
    /// [`Error::Twice`]; [`Error::Summary`] when neighbours do not merge; those of the place for blocks.
    pub(crate) fn add(&mut self, segment: Segment, blocks: Option<&Blocks>) -> Result<(), Error> {
        let (first, end) = (segment.node.first, segment.node.end(self.windows));
        let before = self.segments.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.node.end(self.windows) > first) {
            return Err(Error::Twice { first, last: end.saturating_sub(1) });
        }
        let mut node = segment.node;
        self.segments.insert(first, segment);
        let root = root(self.windows);
        while node != root {
            let parent = node.parent();
            let children: Vec<Node> = parent.children(self.windows).collect();
            let is_there = |child: &Node| {
                self.segments.get(&child.first).is_some_and(|segment| segment.node == *child)
            };
            if !children.iter().all(is_there) {
                return Ok(());
            }
            let below: Vec<Segment> =
                children.iter().filter_map(|child| self.segments.remove(&child.first)).collect();
            self.segments.insert(parent.first, merged(parent, below, blocks)?);
            node = parent;
        }
        Ok(())
    }

    /// Whether some of a node has come, or all of it.
    pub(crate) fn has(&self, node: Node) -> Has {
        let end = node.end(self.windows);
        let inside = self.segments.range(node.first..end).next().is_some();
        let before = self.segments.range(..=node.first).next_back();
        let over = before.is_some_and(|(_, segment)| segment.node.end(self.windows) >= end);
        match (over, inside) {
            (true, _) => Has::All,
            (false, true) => Has::Some,
            (false, false) => Has::Nothing,
        }
    }

    /// What has come, in order.
    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments.into_values().collect()
    }
}

/// How much of a node has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Has {
    All,
    Some,
    Nothing,
}

/// All of one node, from what is below it, in order.
fn merged(node: Node, below: Vec<Segment>, blocks: Option<&Blocks>) -> Result<Segment, Error> {
    let ids: Vec<BlockId> = below.iter().map(|segment| segment.id).collect();
    let mut made = below.iter().map(|segment| segment.made).sum();
    let mut loaded = below.iter().map(|segment| segment.loaded).sum();
    let mut refused: Vec<String> =
        below.iter().flat_map(|segment| segment.refused.iter().cloned()).collect();
    if let [only] = below.as_slice() {
        return Ok(Segment { node, ..only.clone() });
    }
    let id = BlockId::of_merge(&ids)?;
    // Whoever committed it may have been gone before it could say so.
    let content = match find(blocks, &id)? {
        Ok(Some(content)) => {
            loaded += 1;
            content
        }
        nothing => {
            refused.extend(nothing.err().map(|damaged| damaged.line()));
            tracing::debug!(block = %id, "merging");
            let content = joined(below.into_iter().map(|segment| segment.content))?;
            made += u64::from(keep(blocks, &id, &content)?);
            content
        }
    };
    Ok(Segment { node, id, content, made, loaded, refused })
}

/// Neighbours in order, merged.
pub(crate) fn joined(parts: impl Iterator<Item = Summarised>) -> Result<Summarised, Error> {
    let mut summary = Summary::identity();
    let mut told = Told::default();
    for part in parts {
        summary = summary.merge(Summary::from_bytes(&part.summary)?)?;
        told.append(&part.told);
    }
    Ok(Summarised { told, summary: summary.to_bytes()? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::Timestamp;
    use objects::Io;
    use stitch::Cover;

    use super::*;

    fn id(n: usize) -> BlockId {
        BlockId::from_hex(&format!("{n:064x}")).unwrap()
    }

    /// A window of ten nanoseconds that nobody recorded.
    fn window(n: usize) -> Segment {
        let at = |n: usize| Timestamp::from_nanos(10 * i64::try_from(n).unwrap());
        let summary = Summary::gap(Cover { host: "h".into(), begin: at(n), end: at(n + 1) });
        let told = Told::new(1, vec![n.to_string()], 0);
        let content = Summarised { told, summary: summary.to_bytes().unwrap() };
        Segment {
            node: Node::window(n),
            id: id(n),
            content,
            made: 1,
            loaded: 0,
            refused: Vec::new(),
        }
    }

    #[test]
    fn every_run_is_a_row_of_few_neighbours() {
        for windows in [1, 2, 7, 8, 9, 63, 64, 65, 100, 1_000] {
            let levels = usize::try_from(root(windows).level).unwrap();
            for start in (0..windows).step_by(1 + windows / 40) {
                for end in (start + 1..=windows).step_by(1 + windows / 40) {
                    let row = row(windows, start..end);
                    let mut at = start;
                    for node in &row {
                        assert_eq!(node.first, at, "{start}..{end} of {windows}: {row:?}");
                        at = node.end(windows);
                    }
                    assert_eq!(at, end);
                    assert!(row.len() <= 2 * (FAN - 1) * levels.max(1), "{}", row.len());
                }
            }
        }
        assert_eq!(row(1_000, 0..1_000), [root(1_000)]);
    }

    /// Each order of arrival, from a generator, with segments of any level.
    #[test]
    fn any_order_of_arrival_gives_the_same_block() {
        let mut state = 11_u64;
        let mut dice = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (below as u64)).unwrap()
        };
        for windows in [1_usize, 2, 5, 8, 9, 17, 64, 70] {
            let names = Names::new((0..windows).map(id).collect()).unwrap();
            let mut results = BTreeSet::new();
            for _ in 0..20 {
                // Some runs come as nodes that were merged elsewhere.
                let cut = dice(windows + 1);
                let mut parts: Vec<Segment> = Vec::new();
                for run in [0..cut, cut..windows] {
                    let mut elsewhere = Fold::new(windows);
                    for n in run {
                        elsewhere.add(window(n), None).unwrap();
                    }
                    parts.extend(elsewhere.into_segments());
                }
                for n in (1..parts.len()).rev() {
                    parts.swap(n, dice(n + 1));
                }
                let mut fold = Fold::new(windows);
                for part in parts {
                    fold.add(part, None).unwrap();
                }
                assert_eq!(fold.has(root(windows)), Has::All);
                let all = fold.into_segments();
                assert_eq!(all.len(), 1);
                assert_eq!(Some(all[0].id), names.id(root(windows)));
                results.insert((
                    all[0].content.summary.clone(),
                    all[0].content.told.findings.clone(),
                    all[0].made,
                ));
            }
            assert_eq!(results.len(), 1, "{windows}");
        }
    }

    #[test]
    fn what_comes_twice_is_refused_and_what_does_not_come_is_missed() {
        let mut fold = Fold::new(20);
        for n in 0..8 {
            fold.add(window(n), None).unwrap();
        }
        let again = fold.add(window(3), None);
        assert!(matches!(again, Err(Error::Twice { first: 3, last: 3 })), "{again:?}");
        assert_eq!(fold.has(Node::window(7)), Has::All);
        assert_eq!(fold.has(Node::window(8)), Has::Nothing);
        assert_eq!(fold.has(root(20)), Has::Some);
        assert_eq!(fold.into_segments().len(), 1);
    }

    #[test]
    fn a_merge_that_is_committed_is_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let io = Io::start().unwrap();
        let blocks = Blocks::open(folder.path().to_str().unwrap(), "h", &io).unwrap();
        let all = || {
            let mut fold = Fold::new(8);
            for n in 0..8 {
                fold.add(window(n), Some(&blocks)).unwrap();
            }
            fold.into_segments().remove(0)
        };
        let (first, second) = (all(), all());
        assert_eq!((first.made, first.loaded), (9, 0));
        // The windows say of themselves that they were made.
        assert_eq!((second.made, second.loaded), (8, 1));
        assert_eq!(second.content, first.content);
        // One that is damaged is refused by name, and made again.
        let path = folder.path().join(format!("h/{}.block", first.id));
        std::fs::write(&path, b"nothing").unwrap();
        let third = all();
        assert_eq!((third.made, third.loaded), (9, 0));
        assert_eq!(third.content, first.content);
        assert!(third.refused[0].contains(&first.id.to_string()), "{:?}", third.refused);
    }
}
