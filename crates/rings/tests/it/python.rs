//! Python: a service with OSProfiler, whose notifications the driver of `python/throughline-osprofiler` writes.

use std::collections::BTreeSet;
use std::process::Command;

use rings::Door;
use testkit::osprofiler::{driver_package, driver_python, succeeds};
use tracepoint::DropReason;
use tracepoint::layout::{MAX_VALUE_LEN, SiteKind};

use crate::peer::{App, Kept, KeptValue, comes, drain_all};

/// The JSON of a notification, whole, and the trace that it is of.
fn notification(record: &Kept) -> (String, String) {
    assert_eq!((&*record.name, record.kind), ("osprofiler", SiteKind::Event));
    let mut texts = record.values.iter().map(|value| match value {
        KeptValue::Text(bytes, had) => {
            assert_eq!(bytes.len(), *had as usize, "cut");
            String::from_utf8(bytes.clone()).unwrap()
        }
        other => panic!("{other:?}"),
    });
    let base_id = texts.next().unwrap();
    let pieces: Vec<String> = texts.collect();
    let (last, others) = pieces.split_last().unwrap();
    assert!(!last.is_empty() && others.iter().all(|piece| piece.len() == MAX_VALUE_LEN));
    assert!(record.fields[0] == "base_id" && record.fields[1..].iter().all(|name| name == "json"));
    (base_id, pieces.concat())
}

/// What was read of each ring.
fn notifications(rings: &rings::Rings) -> BTreeSet<Vec<String>> {
    let of_ring = |records: Vec<Kept>| {
        let jsons = records.iter().map(|record| {
            let (base_id, json) = notification(record);
            assert!(json.contains(&format!("\"base_id\": \"{base_id}\"")), "{base_id} {json}");
            json
        });
        jsons.collect()
    };
    drain_all(rings).into_iter().map(|read| of_ring(read.records)).collect()
}

#[test]
fn notifications_of_threads_and_children_are_what_osprofiler_would_have_pushed() {
    let Some(python) = driver_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/python/app.py"));
    command.arg(folder.path());
    command.arg(format!("throughline://?ring_bytes=8388608&socket={}", path.display()));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let nowhere = folder.path().join("nowhere");
    let mut app = App::run(command, &nowhere, &[]);
    app.hears("parent has written");
    app.hears("child has written");
    let (first, second) = (comes(&door), comes(&door));
    let is_parent = first.0.pid == app.child.id();
    let ((_, parent), (_, child)) = if is_parent { (first, second) } else { (second, first) };
    assert_eq!((&*parent.about().service, &*child.about().service), ("api", "api"));
    let expected = |names: &[&str]| -> Vec<String> {
        let files = names.iter().map(|name| std::fs::read_to_string(folder.path().join(name)));
        let lines = files.map(|file| file.unwrap().lines().map(str::to_owned).collect::<Vec<_>>());
        lines.flatten().collect()
    };
    let of_parent = ["thread-0", "thread-1", "thread-2"].map(|name| expected(&[name]));
    let main = expected(&["before", "after"]);
    assert!(of_parent.iter().all(|lines| lines.len() == 300 * 14) && main.len() == 12 * 14 + 2);
    assert!(main.iter().filter(|line| line.len() > 20_000).count() >= 1);
    let of_parent: BTreeSet<_> = of_parent.into_iter().chain([main]).collect();
    assert!(notifications(&parent) == of_parent, "of the parent");
    assert_eq!(notifications(&child), BTreeSet::from([expected(&["child"])]));
    let dropped = (0..parent.touched()).map(|place| {
        let ring = parent.ring(place).unwrap().unwrap();
        parent.dropped_in(&ring)[DropReason::TooLong as usize]
    });
    assert_eq!(dropped.sum::<u64>(), 1);
    app.ends();
}

#[test]
fn the_package_s_own_tests_pass() {
    let Some(python) = driver_python() else { return };
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]);
    succeeds(tests.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(driver_package()));
}
