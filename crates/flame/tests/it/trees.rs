//! Call trees: the laws of merging, cutting, bytes.

use flame::{CallTree, NO_STACK, OTHER, PlaceTree, Sums, Walk};
use proptest::prelude::*;

use super::samples::{CPU, Row, batch};

/// Trees by stacks, root first, with semicolons.
pub(crate) fn tree(stacks: &[(&str, i64)]) -> CallTree {
    let mut tree = CallTree::new();
    for (stack, value) in stacks {
        tree.add_stack(stack.split(';'), *value);
    }
    tree
}

pub(crate) fn folded(tree: &CallTree) -> Vec<(String, i64)> {
    tree.stacks().into_iter().map(|(stack, value)| (stack.join(";"), value)).collect()
}

pub(crate) fn stacks() -> impl Strategy<Value = Vec<(Vec<String>, i64)>> {
    let name = prop::sample::select(vec!["a", "b", "c", "other", "main", "é;\n"]);
    let stack = prop::collection::vec(name.prop_map(str::to_owned), 1..6);
    let value = prop_oneof![9 => 1..100_i64, 1 => Just(i64::MAX)];
    prop::collection::vec((stack, value), 0..30)
}

pub(crate) fn of(stacks: &[(Vec<String>, i64)]) -> CallTree {
    let mut tree = CallTree::new();
    for (stack, value) in stacks {
        tree.add_stack(stack.iter().map(String::as_str), *value);
    }
    tree
}

#[test]
fn stacks_that_begin_alike_are_one_branch() {
    let tree = tree(&[("main;work;read", 2), ("main", 3), ("main;work", 5), ("main;work;read", 1)]);
    let expected = [("main", 3), ("main;work", 5), ("main;work;read", 3)];
    assert_eq!(folded(&tree), expected.map(|(stack, value)| (stack.to_owned(), value)));
    assert_eq!((tree.total(), tree.len()), (11, 3));
}

#[test]
fn batches_are_walked_by_stack() {
    let rows: &[Row<'_>] = &[
        (&[("a", "1")], "main;work", 0, 2, 0, 0),
        (&[("a", "2")], "main;work", 0, 3, 0, 0),
        (&[("a", "1")], "", 0, 4, 0, 0),
        (&[("a", "1")], "main;idle;wait", 0, 1, 0, 0),
    ];
    let batch = batch(rows);
    let sums = Sums::of(&batch, batch.samples());
    let mut whole = CallTree::new();
    whole.add(&batch, &sums, Walk::default());
    assert_eq!(whole, tree(&[(NO_STACK, 4), ("main;work", 5), ("main;idle;wait", 1)]));
    let mut leaves = CallTree::new();
    leaves.add(&batch, &sums, Walk { keep_leaves: 2, aggregate_callees: true });
    assert_eq!(leaves, tree(&[(NO_STACK, 4), ("main;work", 5), ("idle;wait", 1)]));
}

#[test]
fn what_is_cut_is_summed_where_it_was() {
    let whole = tree(&[("a;x", 10), ("a;y", 5), ("a;z;deep", 4), ("b", 3), ("c", 2), ("a", 1)]);
    assert_eq!(whole.cut(7), whole);
    // Totals: a 20, x 10, y 5, z 4, deep 4, b 3, c 2. Of z and deep, which are equal, z comes first.
    let expected = tree(&[("a;x", 10), ("a;y", 5), ("a;z;other", 4), ("other", 5), ("a", 1)]);
    assert_eq!(whole.cut(4), expected);
    assert_eq!(whole.cut(0), tree(&[(OTHER, 25)]));
    // A function of that name keeps what it is.
    let taken = tree(&[("other;x", 10), ("b", 3)]);
    assert_eq!(taken.cut(2), tree(&[("other;x", 10), ("other", 3)]));
}

#[test]
fn bytes_are_those_of_format_2() {
    // Virtual root, then depth first with the last child first.
    let bytes = [
        &[0, 0, 2][..],
        b"\x01b\x05\x00",
        b"\x01a\x02\x02",
        b"\x01d\xac\x02\x00",
        b"\x01c\x01\x00",
    ]
    .concat();
    let tree = tree(&[("a", 2), ("b", 5), ("a;c", 1), ("a;d", 300)]);
    assert_eq!(tree.encode(), bytes);
    assert_eq!(CallTree::decode(&bytes), Ok(tree));
    assert!(CallTree::new().encode().is_empty());
    assert_eq!(CallTree::decode(&[]).map(|tree| tree.is_empty()), Ok(true));
    // Other orders and names that come twice are the same tree.
    let other_order =
        b"\x00\x00\x03\x01a\x01\x01\x01c\x01\x00\x01b\x05\x00\x01a\x01\x01\x01d\xac\x02\x00";
    assert_eq!(CallTree::decode(other_order).unwrap().encode(), bytes);
}

#[test]
fn damaged_bytes_are_refused_with_their_place() {
    let bytes = tree(&[("a", 2), ("b", 5), ("a;c", 1)]).encode();
    for end in 1..bytes.len() {
        let error = CallTree::decode(&bytes[..end]).unwrap_err();
        assert!(error.offset <= end, "{error}");
    }
    for (damaged, offset, words) in [
        (&[0, 0, 0, 9][..], 3, "more than 0 bytes behind the last node"),
        (&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f], 7, "more than 0 nodes to come"),
        (&[0, 0, 1, 1, 0xff, 0, 0], 5, "not UTF-8"),
        (b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 11, "outside the field's range"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, "bytes are needed"),
    ] {
        let error = CallTree::decode(damaged).unwrap_err();
        assert_eq!(error.offset, offset, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn dot_counts_recursion_once() {
    let dot = tree(&[("main;f;g;f;g", 3), ("main;f", 1), ("g", 2)]).dot(100);
    let expected = "digraph \"calls\" {\nnode [shape=box]\n\
        N1 [label=\"f\\nself 1\\ntotal 4\"]\n\
        N2 [label=\"g\\nself 5\\ntotal 5\"]\n\
        N3 [label=\"main\\nself 0\\ntotal 4\"]\n\
        N1 -> N2 [label=\"3\"]\n\
        N2 -> N1 [label=\"3\"]\n\
        N3 -> N1 [label=\"4\"]\n}\n";
    assert_eq!(dot, expected);
}

#[test]
fn pprof_keeps_places_and_what_was_cut() {
    let rows: &[Row<'_>] = &[
        (&[], "main;work", 0, 20, 0, 0),
        (&[], "main;idle", 0, 3, 0, 0),
        (&[], "main;idle;wait", 0, 1, 0, 0),
    ];
    let of = CPU.parse().unwrap();
    let time = flame::Millis { start: 5, end: 8 };
    let profile = |max_nodes, walk| {
        let batch = batch(rows);
        let mut tree = PlaceTree::new();
        tree.add(&batch, &Sums::of(&batch, batch.samples()), walk);
        tree.profile(&of, time, max_nodes)
    };
    let stacks = |profile: &wire::pyroscope::pprof::Profile| {
        let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].clone();
        let name = |id: &u64| {
            let location = profile.location.iter().find(|location| location.id == *id).unwrap();
            let line = &location.line[0];
            let function = profile.function.iter().find(|f| f.id == line.function_id).unwrap();
            format!("{}:{}", text(function.name), line.line)
        };
        let mut stacks: Vec<(String, i64)> = profile
            .sample
            .iter()
            .map(|s| (s.location_id.iter().map(name).collect::<Vec<_>>().join(" "), s.value[0]))
            .collect();
        stacks.sort();
        let kind = profile.sample_type.first().map(|kind| (text(kind.kind), text(kind.unit)));
        assert_eq!(kind, Some(("cpu".to_owned(), "nanoseconds".to_owned())));
        assert_eq!((profile.time_nanos, profile.duration_nanos), (5_000_000, 3_000_000));
        stacks
    };
    let named = |stacks: &[(&str, i64)]| -> Vec<(String, i64)> {
        stacks.iter().map(|(stack, value)| ((*stack).to_owned(), *value)).collect()
    };
    assert_eq!(
        stacks(&profile(100, Walk::default())),
        named(&[("idle:7 main:7", 3), ("wait:7 idle:7 main:7", 1), ("work:7 main:7", 20)])
    );
    assert_eq!(
        stacks(&profile(2, Walk::default())),
        named(&[("other:0 main:7", 4), ("work:7 main:7", 20)])
    );
    assert_eq!(
        stacks(&profile(100, Walk { keep_leaves: 2, aggregate_callees: true })),
        named(&[("idle:0 main:7", 3), ("wait:0 idle:7", 1), ("work:0 main:7", 20)])
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any order and grouping of stacks gives the same bytes, graph and cut.
    #[test]
    fn merging_is_associative_and_commutative(
        stacks in stacks(),
        keys in prop::collection::vec(any::<u32>(), 30),
        parts in prop::collection::vec(0..4_usize, 30),
        max_nodes in 0..20_usize,
    ) {
        let whole = of(&stacks);
        let mut shuffled: Vec<_> = keys.iter().zip(&parts).zip(&stacks).collect();
        shuffled.sort_by_key(|((key, _), _)| **key);
        let mut trees = vec![CallTree::new(); 4];
        for ((_, part), (stack, value)) in shuffled {
            trees[*part].add_stack(stack.iter().map(String::as_str), *value);
        }
        let [a, b, c, d] = trees.try_into().unwrap();
        let merged = |trees: &[&CallTree]| {
            let mut merged = CallTree::new();
            for tree in trees {
                merged.merge(tree);
            }
            merged
        };
        for merged in [
            merged(&[&a, &b, &c, &d]),
            merged(&[&merged(&[&d, &a]), &merged(&[&c, &b])]),
            merged(&[&c, &merged(&[&b, &merged(&[&a, &d])])]),
        ] {
            prop_assert_eq!(merged.encode(), whole.encode());
            prop_assert_eq!(merged.flame_graph(max_nodes), whole.flame_graph(max_nodes));
            prop_assert_eq!(merged.cut(max_nodes).encode(), whole.cut(max_nodes).encode());
            prop_assert_eq!(merged.dot(max_nodes), whole.dot(max_nodes));
        }
    }

    /// The same of places: samples in any order and in any number of batches give the same profile.
    #[test]
    fn profiles_do_not_depend_on_order_or_batches(
        rows in prop::collection::vec((0..6_usize, 1..50_i64), 0..30),
        keys in prop::collection::vec(any::<u32>(), 30),
        cut in 0..30_usize,
        max_nodes in 0..12_usize,
    ) {
        const STACKS: [&str; 6] = ["main;a", "main;b", "main;a;b", "z", "main;other", ""];
        let row = |&(stack, value): &(usize, i64)| -> Row<'_> {
            (&[], STACKS[stack], 0, value, 0, 0)
        };
        let ordered: Vec<Row<'_>> = rows.iter().map(row).collect();
        let mut shuffled: Vec<_> = keys.iter().zip(&ordered).collect();
        shuffled.sort_by_key(|(key, _)| **key);
        let shuffled: Vec<Row<'_>> = shuffled.into_iter().map(|(_, row)| *row).collect();
        let (one, two) = shuffled.split_at(cut.min(shuffled.len()));
        let of = CPU.parse().unwrap();
        let profile = |parts: &[&[Row<'_>]]| {
            let mut tree = PlaceTree::new();
            for part in parts {
                let batch = batch(part);
                tree.add(&batch, &Sums::of(&batch, batch.samples()), Walk::default());
            }
            tree.profile(&of, flame::Millis { start: 0, end: 1 }, max_nodes)
        };
        let whole = profile(&[&ordered]);
        prop_assert_eq!(&profile(&[one, two]), &whole);
        let total: i64 = whole.sample.iter().map(|sample| sample.value[0]).sum();
        prop_assert_eq!(total, rows.iter().map(|(_, value)| value).sum::<i64>());
    }

    #[test]
    fn bytes_come_back_as_the_tree(stacks in stacks()) {
        let tree = of(&stacks);
        let bytes = tree.encode();
        let read = CallTree::decode(&bytes).unwrap();
        prop_assert_eq!(read.encode(), bytes);
        prop_assert_eq!(folded(&read), folded(&tree));
    }

    #[test]
    fn bytes_of_anyone_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(tree) = CallTree::decode(&bytes) {
            prop_assert!(tree.len() <= bytes.len() / 3);
            prop_assert_eq!(CallTree::decode(&tree.encode()).unwrap(), tree);
        }
    }

    /// A cut tree has the whole's total, at most so many nodes of its own, and below each of them what the whole has.
    #[test]
    fn cuts_lose_no_value(stacks in stacks(), max_nodes in 0..20_usize) {
        let whole = of(&stacks);
        let cut = whole.cut(max_nodes);
        prop_assert_eq!(cut.total(), whole.total());
        let own = folded(&cut).iter().filter(|(stack, _)| !stack.ends_with(OTHER)).count();
        prop_assert!(own <= max_nodes);
        prop_assert!(cut.len() <= 2 * max_nodes + 1);
    }
}
