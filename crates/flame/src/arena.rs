//! Trees of keys: what call trees by name, by place and of two sides have in common.

use std::cmp::Reverse;

use hashbrown::HashMap;

/// The root's number.
pub(crate) const ROOT: u32 = 0;

/// A tree in which each node's children have different keys, and `N` values for each node. It has at most as many nodes as paths of so
/// many keys were added to it.
#[derive(Debug, Clone)]
pub(crate) struct Arena<const N: usize> {
    nodes: Vec<Node<N>>,
    /// By parent and key.
    children: HashMap<(u32, u32), u32>,
}

#[derive(Debug, Clone, Copy)]
struct Node<const N: usize> {
    key: u32,
    /// Always a smaller number than the node's own; the root is its own parent.
    parent: u32,
    own: [i64; N],
}

/// A node of a tree that is written in depth-first order, parents first and siblings by rank of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flat<const N: usize> {
    pub(crate) key: u32,
    /// 0 for the root.
    pub(crate) depth: usize,
    pub(crate) own: [i64; N],
    /// With all that is below.
    pub(crate) total: [i64; N],
    /// Index behind the last node below.
    pub(crate) end: usize,
}

impl<const N: usize> Default for Arena<N> {
    fn default() -> Self {
        let root = Node { key: 0, parent: ROOT, own: [0; N] };
        Self { nodes: vec![root], children: HashMap::new() }
    }
}

impl<const N: usize> Arena<N> {
    /// The child of a node that has a key, which it has from now on.
    ///
    /// # Panics
    ///
    /// For the 4,294,967,296th node.
    #[inline]
    pub(crate) fn child(&mut self, parent: u32, key: u32) -> u32 {
        let nodes = &mut self.nodes;
        *self.children.entry((parent, key)).or_insert_with(|| {
            let number = u32::try_from(nodes.len()).expect("fewer than 2^32 nodes");
            nodes.push(Node { key, parent, own: [0; N] });
            number
        })
    }

    /// Adds to the own values of a node. Sums stay at their greatest value when they reach it, so that no order of adding
    /// matters where no value is below 0.
    #[inline]
    pub(crate) fn add(&mut self, node: u32, own: [i64; N]) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            plus(&mut node.own, own);
        }
    }

    /// How many nodes there are below the root.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - 1
    }

    /// For each node its number, its parent's, its key and own values, parents first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, u32, [i64; N])> {
        (0..).zip(&self.nodes).map(|(number, node)| (number, node.parent, node.key, node.own))
    }

    /// Adds another tree, whose keys are called otherwise, to one of the sides.
    pub(crate) fn merge<const M: usize>(
        &mut self,
        other: &Arena<M>,
        key: impl Fn(u32) -> u32,
        own: impl Fn([i64; M]) -> [i64; N],
    ) {
        let mut here = Vec::with_capacity(other.nodes.len());
        for (number, parent, theirs, values) in other.iter() {
            let node = match here.get(parent as usize) {
                Some(&parent) if number != ROOT => self.child(parent, key(theirs)),
                _ => ROOT,
            };
            here.push(node);
            self.add(node, own(values));
        }
    }

    /// The nodes in depth-first order, siblings by the rank of their keys.
    pub(crate) fn flat(&self, ranks: &[u32]) -> Vec<Flat<N>> {
        let totals = self.totals();
        // Last siblings first, so that a stack gives the first ones first.
        let mut order: Vec<(u32, Reverse<u32>, u32)> = self
            .iter()
            .skip(1)
            .map(|(number, parent, key, _)| {
                (parent, Reverse(ranks.get(key as usize).copied().unwrap_or(u32::MAX)), number)
            })
            .collect();
        order.sort_unstable();
        let mut starts = vec![0; self.nodes.len() + 1];
        for &(parent, ..) in &order {
            if let Some(count) = starts.get_mut(parent as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut flat: Vec<Flat<N>> = Vec::with_capacity(self.nodes.len());
        let mut path: Vec<usize> = Vec::new();
        let mut stack = vec![(ROOT, 0)];
        while let Some((number, depth)) = stack.pop() {
            for at in path.drain(depth..) {
                close(&mut flat, at);
            }
            path.push(flat.len());
            let at = number as usize;
            if let (Some(node), Some(&total)) = (self.nodes.get(at), totals.get(at)) {
                flat.push(Flat { key: node.key, depth, own: node.own, total, end: 0 });
            }
            if let (Some(&begin), Some(&end)) = (starts.get(at), starts.get(at + 1)) {
                let children = order.get(begin..end).unwrap_or_default();
                stack.extend(children.iter().map(|&(.., child)| (child, depth + 1)));
            }
        }
        for at in path {
            close(&mut flat, at);
        }
        flat
    }

    /// The same with at most so many nodes below the root: those with the greatest totals (of equal ones, those that come first in
    /// depth-first order). What is left out is summed into a child `other` of the node that it was below, which comes on top of them.
    pub(crate) fn cut(&self, max_nodes: usize, ranks: &[u32], other: u32) -> Self {
        if self.len() <= max_nodes {
            return self.clone();
        }
        let flat = self.flat(ranks);
        let sum = |at: usize| {
            flat.get(at).map_or(0, |node| node.total.iter().map(|&part| i128::from(part)).sum())
        };
        let mut by_total: Vec<(Reverse<i128>, usize)> =
            (1..flat.len()).map(|at| (Reverse(sum(at)), at)).collect();
        if max_nodes < by_total.len() {
            by_total.select_nth_unstable(max_nodes);
        }
        let mut kept = vec![false; flat.len()];
        for (_, at) in by_total.into_iter().take(max_nodes) {
            if let Some(kept) = kept.get_mut(at) {
                *kept = true;
            }
        }
        let mut out = Self::default();
        let mut path = vec![ROOT];
        let mut at = 1;
        out.add(ROOT, flat.first().map_or([0; N], |root| root.own));
        while let (Some(node), Some(&kept)) = (flat.get(at), kept.get(at)) {
            path.truncate(node.depth);
            let parent = path.last().copied().unwrap_or(ROOT);
            if kept {
                let child = out.child(parent, node.key);
                out.add(child, node.own);
                path.push(child);
                at += 1;
            } else {
                let child = out.child(parent, other);
                out.add(child, node.total);
                at = node.end;
            }
        }
        out
    }

    fn totals(&self) -> Vec<[i64; N]> {
        let mut totals: Vec<[i64; N]> = self.nodes.iter().map(|node| node.own).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            if let Ok([parent, total]) = totals.get_disjoint_mut([node.parent as usize, at]) {
                plus(parent, *total);
            }
        }
        totals
    }
}

fn close<const N: usize>(flat: &mut [Flat<N>], at: usize) {
    let end = flat.len();
    if let Some(node) = flat.get_mut(at) {
        node.end = end;
    }
}

fn plus<const N: usize>(sum: &mut [i64; N], more: [i64; N]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

/// For each key its place in the order of what the keys stand for.
pub(crate) fn ranks<T: Ord>(items: impl Iterator<Item = T>) -> Vec<u32> {
    let mut items: Vec<(T, u32)> = items.zip(0..).collect();
    items.sort_unstable();
    let mut ranks = vec![0; items.len()];
    for (rank, (_, key)) in (0..).zip(items) {
        if let Some(slot) = ranks.get_mut(key as usize) {
            *slot = rank;
        }
    }
    ranks
}
