//! Flame graphs as Pyroscope has them.
//!
//! ```text
//! names    total  main  read  work            a tree in depth-first order, siblings by name
//! level 0  ├──────── total ────────┤          [0, 10, 0, 0]
//! level 1  ├──── main ────┤                   [0, 10, 3, 1]     offset, total, self, name
//! level 2  self ├ read ┤├── work ──┤          [3, 2, 2, 2,  0, 5, 5, 3]
//! ```
//!
//! A node begins behind its parent's own part and the siblings before it. Its offset is the distance from the end of the node
//! before it in its level, whoever that one's parent is.

use hashbrown::HashMap;
use wire::pyroscope::{FlameGraph, FlameGraphDiff, Level};

use crate::arena::Flat;

pub(crate) fn flame_graph<'a>(tree: &[Flat<1>], name: impl Fn(u32) -> &'a str) -> FlameGraph {
    let mut names = Names::default();
    let mut levels: Vec<Level> = Vec::new();
    let mut max_self = 0;
    place(tree, |node, [offset]| {
        let [own] = node.own;
        let [total] = node.total;
        max_self = max_self.max(own);
        level(&mut levels, node.depth).extend([offset, total, own, names.index(node, &name)]);
    });
    FlameGraph { names: names.names, levels, total: total(tree)[0], max_self }
}

pub(crate) fn flame_graph_diff<'a>(
    tree: &[Flat<2>],
    name: impl Fn(u32) -> &'a str,
) -> FlameGraphDiff {
    let mut names = Names::default();
    let mut levels: Vec<Level> = Vec::new();
    let mut max_self = 0;
    place(tree, |node, [left, right]| {
        max_self = node.own.into_iter().fold(max_self, i64::max);
        let index = names.index(node, &name);
        level(&mut levels, node.depth).extend([
            left,
            node.total[0],
            node.own[0],
            right,
            node.total[1],
            node.own[1],
            index,
        ]);
    });
    let [left_ticks, right_ticks] = total(tree);
    let total = left_ticks.saturating_add(right_ticks);
    FlameGraphDiff { names: names.names, levels, total, max_self, left_ticks, right_ticks }
}

/// Names in the order in which they come, the root's first.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    known: HashMap<u32, i64>,
}

impl Names {
    fn index<'a, const N: usize>(&mut self, node: &Flat<N>, name: impl Fn(u32) -> &'a str) -> i64 {
        if node.depth == 0 {
            self.names.push("total".to_owned());
            return 0;
        }
        *self.known.entry(node.key).or_insert_with(|| {
            self.names.push(name(node.key).to_owned());
            i64::try_from(self.names.len() - 1).unwrap_or(i64::MAX)
        })
    }
}

fn total<const N: usize>(tree: &[Flat<N>]) -> [i64; N] {
    tree.first().map_or([0; N], |root| root.total)
}

fn level(levels: &mut Vec<Level>, depth: usize) -> &mut Vec<i64> {
    // Depth grows by one at a time, as nodes come behind their parents.
    if levels.len() <= depth {
        levels.resize_with(depth + 1, Level::default);
    }
    let last = levels.len() - 1;
    #[expect(clippy::indexing_slicing, reason = "made above")]
    &mut levels[depth.min(last)].values
}

/// Says the offset of each node on each side, in depth-first order, which is from left to right in each level.
fn place<const N: usize>(tree: &[Flat<N>], mut say: impl FnMut(&Flat<N>, [i64; N])) {
    // For each level where the node before ends, and where the next child of the level's last node begins.
    let mut ends: Vec<[i64; N]> = Vec::new();
    let mut nexts: Vec<[i64; N]> = Vec::new();
    for node in tree {
        let at = match node.depth.checked_sub(1).and_then(|parent| nexts.get_mut(parent)) {
            Some(next) => {
                let at = *next;
                *next = sum(at, node.total);
                at
            }
            None => [0; N],
        };
        nexts.truncate(node.depth);
        nexts.push(sum(at, node.own));
        if ends.len() <= node.depth {
            ends.resize(node.depth + 1, [0; N]);
        }
        if let Some(end) = ends.get_mut(node.depth) {
            let before = std::mem::replace(end, sum(at, node.total));
            say(
                node,
                std::array::from_fn(|side| part(at, side).saturating_sub(part(before, side))),
            );
        }
    }
}

fn part<const N: usize>(values: [i64; N], side: usize) -> i64 {
    values.get(side).copied().unwrap_or_default()
}

fn sum<const N: usize>(a: [i64; N], b: [i64; N]) -> [i64; N] {
    std::array::from_fn(|side| part(a, side).saturating_add(part(b, side)))
}
