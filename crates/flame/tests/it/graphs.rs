//! Flame graphs, read as Grafana reads them.

use flame::CallTree;
use proptest::prelude::*;
use wire::pyroscope::{FlameGraph, Level};

use super::trees::{folded, of, stacks, tree};

/// A node that was read: name, begin, end, self, index of the parent.
struct Node {
    name: String,
    begin: i64,
    end: i64,
    own: i64,
    parent: Option<usize>,
}

/// Attaches each node of a level to the first node of the level before whose range it begins in, and gives the tree. `width` numbers
/// stand for a node, of which `side` is the first of this side.
fn read(names: &[String], levels: &[Level], width: usize, side: usize) -> CallTree {
    let mut nodes: Vec<Node> = Vec::new();
    let mut above: Vec<usize> = Vec::new();
    for level in levels {
        let mut here = Vec::new();
        let mut end = 0;
        for values in level.values.chunks_exact(width) {
            let begin = end + values[side];
            end = begin + values[side + 1];
            let contains = |at: &usize| {
                let parent: &Node = &nodes[*at];
                begin >= parent.begin && end <= parent.end
            };
            let parent = above.iter().copied().find(contains);
            let name = names[usize::try_from(values[width - 1]).unwrap()].clone();
            here.push(nodes.len());
            nodes.push(Node { name, begin, end, own: values[side + 2], parent });
        }
        above = here;
    }
    let mut tree = CallTree::new();
    for node in &nodes {
        let mut stack = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next {
            stack.push(node.name.as_str());
            next = node.parent.map(|parent| &nodes[parent]);
        }
        assert_eq!(stack.pop(), Some("total"));
        stack.reverse();
        tree.add_stack(stack, node.own);
    }
    tree
}

#[test]
fn levels_are_those_worked_out_by_hand() {
    // main 3 ┬ read 2          level 1 begins at 0: main 0..10, z 10..14
    //        └ work 4 ─ x 1    level 2: read 3..5, work 5..10, q 14-1..14
    // z 3 ─ q 1
    let tree = tree(&[
        ("main", 3),
        ("main;read", 2),
        ("main;work", 4),
        ("main;work;x", 1),
        ("z", 3),
        ("z;q", 1),
    ]);
    let graph = tree.flame_graph(100);
    let expected = FlameGraph {
        names: ["total", "main", "read", "work", "x", "z", "q"].map(str::to_owned).to_vec(),
        levels: [
            vec![0, 14, 0, 0],
            vec![0, 10, 3, 1, 0, 4, 3, 5],
            vec![3, 2, 2, 2, 0, 5, 4, 3, 3, 1, 1, 6],
            vec![9, 1, 1, 4],
        ]
        .map(|values| Level { values })
        .to_vec(),
        total: 14,
        max_self: 4,
    };
    assert_eq!(graph, expected);
    assert_eq!(read(&graph.names, &graph.levels, 4, 0), tree);
}

#[test]
fn an_empty_tree_is_a_root_alone() {
    let graph = CallTree::new().flame_graph(10);
    assert_eq!((graph.names, graph.total), (vec!["total".to_owned()], 0));
    assert_eq!(graph.levels, [Level { values: vec![0; 4] }]);
}

#[test]
fn two_trees_have_one_shape() {
    let left = tree(&[("main;read", 2), ("main;work", 3)]);
    let right = tree(&[("idle", 4), ("main;work", 1), ("main", 5)]);
    let diff = CallTree::diff(&left, &right, 100);
    assert_eq!(diff.names, ["total", "idle", "main", "read", "work"]);
    let expected = [
        vec![0, 5, 0, 0, 10, 0, 0],
        vec![0, 0, 0, 0, 4, 4, 1, 0, 5, 0, 0, 6, 5, 2],
        vec![0, 2, 2, 9, 0, 0, 3, 0, 3, 3, 0, 1, 1, 4],
    ];
    assert_eq!(diff.levels, expected.map(|values| Level { values }));
    assert_eq!((diff.total, diff.left_ticks, diff.right_ticks, diff.max_self), (15, 5, 10, 5));
    // Of idle 4, main 11, read 2, work 4 the two greatest.
    let cut = CallTree::diff(&left, &right, 2);
    assert_eq!(cut.names, ["total", "idle", "main", "other"]);
    let last = vec![0, 5, 5, 9, 1, 1, 3];
    assert_eq!(cut.levels[2], Level { values: last });
}

/// Small values, so that no sum reaches its greatest value and ranges are exact; each node has a value, so that each has a range of its own.
fn exact(mut stacks: Vec<(Vec<String>, i64)>) -> Vec<(Vec<String>, i64)> {
    for (_, value) in &mut stacks {
        *value %= 1000;
        *value += 1;
    }
    stacks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_gets_the_tree_back(stacks in stacks(), max_nodes in 0..40_usize) {
        let tree = of(&exact(stacks));
        let graph = tree.flame_graph(max_nodes);
        let cut = tree.cut(max_nodes);
        prop_assert_eq!(folded(&read(&graph.names, &graph.levels, 4, 0)), folded(&cut));
        prop_assert_eq!(graph.total, tree.total());
        let most = folded(&cut).iter().map(|(_, own)| *own).max().unwrap_or(0);
        prop_assert_eq!(graph.max_self, most);
    }

    /// Nodes that one side does not have are empty ranges there, which a reader may attach anywhere: they add nothing.
    #[test]
    fn a_diff_is_both_trees(left in stacks(), right in stacks()) {
        let (left, right) = (of(&exact(left)), of(&exact(right)));
        let diff = CallTree::diff(&left, &right, 1000);
        prop_assert_eq!((diff.left_ticks, diff.right_ticks), (left.total(), right.total()));
        prop_assert_eq!(diff.total, left.total() + right.total());
        prop_assert_eq!(folded(&read(&diff.names, &diff.levels, 7, 0)), folded(&left));
        prop_assert_eq!(folded(&read(&diff.names, &diff.levels, 7, 3)), folded(&right));
        let same = CallTree::diff(&left, &left, 10);
        for node in same.levels.iter().flat_map(|level| level.values.chunks_exact(7)) {
            prop_assert_eq!(&node[..3], &node[3..6]);
        }
    }
}
