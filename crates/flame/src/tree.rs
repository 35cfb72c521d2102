//! Call trees: stacks that begin alike are one branch, functions of the same name one node.

use model::intern::Texts;
use model::samples::Batch;
use wire::pyroscope::{FlameGraph, FlameGraphDiff};

use crate::arena::{Arena, Flat, ROOT, ranks};
use crate::graph;
use crate::stacks::{Sums, Walk, frame_name};

/// What stands for nodes that are left out, below the node that they were below.
pub const OTHER: &str = "other";

/// What stands for a stack of which no frame is known.
pub const NO_STACK: &str = "[unknown]";

/// Values by stack of functions.
///
/// Two trees merge into one, and any grouping and order of merging gives the same bytes; a tree has no values below 0, and sums stay at
/// the greatest value when they reach it.
#[derive(Debug, Clone, Default)]
pub struct CallTree {
    names: Texts,
    nodes: Arena<1>,
}

impl CallTree {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds values by stack of a batch, whose sums these are. Each stack is walked once.
    pub fn add(&mut self, batch: &Batch, sums: &Sums, walk: Walk) {
        let mut names = vec![u32::MAX; batch.frame_count()];
        for (stack, value) in sums.iter() {
            let frames = batch.frames_of(stack);
            let mut node = ROOT;
            if frames.len() == 0 {
                node = self.child(ROOT, NO_STACK);
            }
            // The innermost frames come first, the root is last.
            for frame in frames.take(walk.keep()).rev() {
                let Some(name) = names.get_mut(frame.index()) else { continue };
                if *name == u32::MAX {
                    *name = self.names.intern(&frame_name(batch, &batch.frame_of(frame)));
                }
                node = self.nodes.child(node, *name);
            }
            self.nodes.add(node, [value]);
        }
    }

    /// Adds a value for a stack, root first. Values below 1 are passed over.
    pub fn add_stack<'a>(&mut self, stack: impl IntoIterator<Item = &'a str>, value: i64) {
        if value <= 0 {
            return;
        }
        let mut node = ROOT;
        for name in stack {
            node = self.child(node, name);
        }
        if node == ROOT {
            node = self.child(ROOT, NO_STACK);
        }
        self.nodes.add(node, [value]);
    }

    /// Adds all of another tree.
    pub fn merge(&mut self, other: &Self) {
        let keys: Vec<u32> = other.names.iter().map(|name| self.names.intern(name)).collect();
        let key = |theirs: u32| keys.get(theirs as usize).copied().unwrap_or_default();
        self.nodes.merge(&other.nodes, key, |own| own);
    }

    /// The same with at most so many nodes, those with the greatest totals; what is left out is in nodes [`OTHER`], at most
    /// one for each of the others.
    #[must_use]
    pub fn cut(&self, max_nodes: usize) -> Self {
        let mut names = self.names.clone();
        let other = names.intern(OTHER);
        let nodes = self.nodes.cut(max_nodes, &ranks(names.iter()), other);
        Self { names, nodes }
    }

    /// The sum of all values.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.nodes.iter().fold(0, |sum: i64, (.., [own])| sum.saturating_add(own))
    }

    /// How many nodes there are below the root.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stacks with values of their own, root first, in the order of their names.
    #[must_use]
    pub fn stacks(&self) -> Vec<(Vec<&str>, i64)> {
        let mut path = Vec::new();
        let mut stacks = Vec::new();
        for node in self.flat() {
            path.truncate(node.depth.saturating_sub(1));
            if node.depth > 0 {
                path.push(self.name(node.key));
            }
            if node.own != [0] {
                stacks.push((path.clone(), node.own[0]));
            }
        }
        stacks
    }

    /// A flame graph of at most so many nodes and those that stand for the rest.
    #[must_use]
    pub fn flame_graph(&self, max_nodes: usize) -> FlameGraph {
        let cut = self.cut(max_nodes);
        graph::flame_graph(&cut.flat(), |key| cut.name(key))
    }

    /// Two trees in one shape, the same way.
    #[must_use]
    pub fn diff(left: &Self, right: &Self, max_nodes: usize) -> FlameGraphDiff {
        let both = Both::of(left, right, max_nodes);
        graph::flame_graph_diff(&both.nodes, |key| both.names.get(key))
    }

    /// Says each stack of a difference, as [`Self::diff`] has it, that has a value of its own on a side: root first, in the order of
    /// [`Self::stacks`], with the value on each side.
    pub fn diff_stacks(
        left: &Self,
        right: &Self,
        max_nodes: usize,
        mut say: impl FnMut(&[&str], [i64; 2]),
    ) {
        let both = Both::of(left, right, max_nodes);
        let mut path = Vec::new();
        for node in &both.nodes {
            path.truncate(node.depth.saturating_sub(1));
            if node.depth > 0 {
                path.push(both.names.get(node.key));
            }
            if node.own != [0, 0] {
                say(&path, node.own);
            }
        }
    }

    pub(crate) fn flat(&self) -> Vec<Flat<1>> {
        self.nodes.flat(&ranks(self.names.iter()))
    }

    pub(crate) fn child(&mut self, parent: u32, name: &str) -> u32 {
        self.nodes.child(parent, self.names.intern(name))
    }

    pub(crate) fn add_to(&mut self, node: u32, value: i64) {
        self.nodes.add(node, [value]);
    }

    pub(crate) fn name(&self, key: u32) -> &str {
        self.names.get(key)
    }
}

/// Two trees in one shape.
struct Both {
    names: Texts,
    nodes: Vec<Flat<2>>,
}

impl Both {
    fn of(left: &CallTree, right: &CallTree, max_nodes: usize) -> Self {
        let mut names = left.names.clone();
        let keys: Vec<u32> = right.names.iter().map(|name| names.intern(name)).collect();
        let other = names.intern(OTHER);
        let mut both: Arena<2> = Arena::default();
        both.merge(&left.nodes, |key| key, |[own]| [own, 0]);
        let key = |theirs: u32| keys.get(theirs as usize).copied().unwrap_or_default();
        both.merge(&right.nodes, key, |[own]| [0, own]);
        let ranks = ranks(names.iter());
        let nodes = both.cut(max_nodes, &ranks, other).flat(&ranks);
        Self { names, nodes }
    }
}

impl PartialEq for CallTree {
    fn eq(&self, other: &Self) -> bool {
        self.encode() == other.encode()
    }
}
