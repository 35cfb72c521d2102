//! Applications that record, recorders that are killed, and targets that take what comes or do not.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking; helpers stand outside of test functions, and processes say how far they are"
)]

mod ctf;
mod hostile;
mod json;
mod killed;
mod osprofiler;
mod otlp;
mod process;

use std::collections::BTreeMap;
use std::path::Path;

use recorder::{Recorder, Settings, Target};
use serde_json::Value;

/// A recorder that keeps lines of JSON in `FOLDER/lines`, or whoever else is said.
fn settings(folder: &Path, targets: &[&str]) -> Settings {
    let lines = format!("json:{}", folder.join("lines").display());
    let mut all: Vec<Target> = targets.iter().map(|it| it.parse().unwrap()).collect();
    all.push(lines.parse().unwrap());
    Settings {
        folder: folder.join("journal"),
        bounds: journal::Bounds::default(),
        socket: folder.join("rings.sock"),
        is_open_to_all: false,
        targets: all,
        machine: vec![("host.name".to_owned(), "here".to_owned())],
        redis: None,
    }
}

fn start(folder: &Path) -> Recorder {
    Recorder::start(settings(folder, &[])).unwrap()
}

/// All lines that a recorder has written, in order.
fn lines(folder: &Path) -> Vec<Value> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder.join("lines")).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|it| std::fs::read_to_string(it).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Of the ticks of each writer: their numbers, in the order of their lines.
fn ticks(lines: &[Value]) -> BTreeMap<u64, Vec<u64>> {
    let mut ticks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["name"] == "tick") {
        let fields = &line["fields"];
        let [writer, number, mixed] =
            ["writer", "number", "mixed"].map(|field| fields[field].as_u64().unwrap());
        assert_eq!(mixed, process::mixed(number), "a torn record");
        ticks.entry(writer).or_default().push(number);
    }
    ticks
}
