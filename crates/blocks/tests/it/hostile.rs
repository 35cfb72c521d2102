//! Tasks that ask for much with few bytes.

use std::collections::{BTreeMap, BTreeSet};

use blocks::{BadTask, Error, TASK_BASE_BYTES, TASK_FACTOR, Task};
use serde::Serialize;
use testkit::alloc::most_held;

// What a task's body is, field by field: as tuples, so that they can say what a job never would. Variants are a number.

type Selection = (
    (Option<Vec<u32>>, Option<Vec<i32>>, Option<Vec<(u32, u16)>>),
    ((u64, u64), (u64, u64)),
    (Vec<u32>, bool, (Option<i64>, Option<u64>)),
);
type Common =
    ((String, Vec<String>, Vec<String>), BTreeMap<[u8; 16], i64>, (i64, i64), Option<Selection>);
type Part = (i64, i64, bool, Vec<usize>);
type Folder = ((u32, String), [u8; 32], u64);
type Entry = (
    (BTreeMap<u32, (u32, i32)>, bool),
    (BTreeMap<i32, i32>, BTreeMap<u64, i32>),
    (u32, BTreeSet<i32>),
    (BTreeMap<i32, ((u32, i32), bool)>, BTreeMap<i32, u32>),
    Option<i64>,
);
type Map = ((u32, usize, [u8; 32]), Entry);

#[derive(Default, Serialize)]
struct Body {
    common: Common,
    parts: Vec<Part>,
    pieces: Vec<Folder>,
    blocks: Option<String>,
    steps: Vec<Map>,
}

const MANY: usize = 1 << 16;
/// One more than a vector has room for that begins with a mebibyte, as one whose length is only announced does, and doubles once.
const JUST_MORE_NAMES: usize = 2 * ((1 << 20) / size_of::<String>()) + 1;

/// Who is who, with so many of everything.
fn entry(count: u16) -> Entry {
    let numbers = || (0..i32::from(count)).map(|n| (n, n));
    (
        ((0..u32::from(count)).map(|n| (n, (0, 0))).collect(), false),
        (numbers().collect(), (0..u64::from(count)).map(|n| (n, 0)).collect()),
        (1, numbers().map(|(n, _)| n).collect()),
        (
            numbers().map(|(n, _)| (n, ((0, n), false))).collect(),
            numbers().map(|(n, _)| (n, 0)).collect(),
        ),
        None,
    )
}

fn maps(entry: &Entry) -> Body {
    let map = ((0, 0, [0; 32]), entry.clone());
    Body { steps: vec![map; MANY / 16], ..Body::default() }
}

fn greedy() -> Vec<(&'static str, Body)> {
    let mut all = vec![
        ("stretches", Body { parts: vec![Part::default(); MANY], ..Body::default() }),
        (
            "stretches of a piece",
            Body { parts: vec![(0, 0, false, vec![0]); MANY], ..Body::default() },
        ),
        ("folders", Body { pieces: vec![Folder::default(); MANY], ..Body::default() }),
        ("steps that know nobody", maps(&entry(0))),
        ("steps that know one of each", maps(&entry(1))),
        ("steps that know twelve of each", maps(&entry(12))),
        (
            "a step that knows many",
            Body { steps: vec![((0, 0, [0; 32]), entry(u16::MAX))], ..Body::default() },
        ),
    ];
    let mut names = Body::default();
    names.common.0.1 = vec![String::new(); JUST_MORE_NAMES];
    all.push(("names without letters", names));
    let mut letters = Body::default();
    letters.common.0.1 = vec!["a".to_owned(); MANY];
    all.push(("names of a letter", letters));
    let mut clocks = Body::default();
    clocks.common.1 = (0..u16::MAX).map(|n| (u128::from(n).to_be_bytes(), 0)).collect();
    all.push(("clocks", clocks));
    let mut selected = Body::default();
    let lists = (Some(vec![0; MANY]), Some(vec![0; MANY]), Some(vec![(0, 0); MANY]));
    let rest = (vec![0; MANY], false, (None, None));
    selected.common.3 = Some((lists, ((0, 0), (0, 0)), rest));
    all.push(("what is selected", selected));
    all
}

fn refused(body: &[u8]) -> (BadTask, usize, usize) {
    let bytes = [Task::header().unwrap(), body.to_vec()].concat();
    let (decoded, most) = most_held(|| Task::decode(&bytes).map(drop));
    match decoded {
        Err(Error::Task(bad)) => (bad, bytes.len(), most),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_holds_no_more_memory_than_its_size_accounts_for() {
    for (what, body) in greedy() {
        let (bad, len, most) = refused(&postcard::to_stdvec(&body).unwrap());
        // They are read to their end, and only then refused: for saying nowhere to keep blocks.
        assert!(matches!(bad, BadTask::Inconsistent(_)), "{what}: {bad}");
        assert!(
            most > len && most <= TASK_BASE_BYTES + TASK_FACTOR * len,
            "{what}: {len} bytes take {most}"
        );
    }
}

#[test]
fn what_a_task_only_announces_holds_the_base_at_most() {
    let many = postcard::to_stdvec(&u64::MAX).unwrap();
    let empty = postcard::to_stdvec(&Body::default()).unwrap();
    for at in 0..empty.len() {
        // Every length of an empty body is a zero; what follows it is not there.
        let (_, len, most) = refused(&[&empty[..at], &many, &empty[at..]].concat());
        assert!(most <= TASK_BASE_BYTES, "{at}: {len} bytes take {most}");
    }
}
