//! The machine interface for external analyses: what viewers ask, and every answer against what the metadata promise.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::THROUGHLINE;

fn run(arguments: &[&str]) -> Output {
    Command::new(THROUGHLINE).args(arguments).output().unwrap()
}

fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fields that a cell of a class must have, by the interface's version 1.0; other classes have a value or bounds.
fn required(class: &str) -> &'static [&'static str] {
    match class {
        "process" | "syscall" | "disk" | "netif" => &["name"],
        "path" => &["path"],
        "fd" => &["fd"],
        "cpu" => &["id"],
        "irq" => &["hard", "nr"],
        "time-range" => &["begin", "end"],
        "unknown" => &[],
        _ => &["value"],
    }
}

/// What the interface asks of metadata; the classes of the columns of each table.
fn check_metadata(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    assert_eq!(metadata["mi-version"]["major"], 1);
    for field in ["title", "authors", "description", "table-classes"] {
        assert!(!metadata[field].is_null(), "no {field}");
    }
    let classes = metadata["table-classes"].as_object().unwrap().iter();
    let classes = classes.map(|(name, class)| {
        assert!(class["title"].is_string(), "{name} has no title");
        let columns = class["column-descriptions"].as_array().unwrap().iter();
        let columns = columns.map(|column| {
            assert!(column["title"].is_string(), "a column of {name} has no title");
            column["class"].as_str().unwrap_or("mixed").to_owned()
        });
        (name.clone(), columns.collect())
    });
    classes.collect()
}

/// Every cell is of its column's class and has what its class must have. Gives the number of rows.
fn check_results(results: &Value, classes: &BTreeMap<String, Vec<String>>) -> usize {
    let mut rows = 0;
    for table in results["results"].as_array().unwrap() {
        assert_eq!(table["time-range"]["class"], "time-range");
        let class = table["class"].as_str().or(table["class"]["inherit"].as_str()).unwrap();
        let columns =
            classes.get(class).unwrap_or_else(|| panic!("{class} is not in the metadata"));
        for row in table["data"].as_array().unwrap() {
            rows += 1;
            let cells = row.as_array().unwrap();
            assert_eq!(cells.len(), columns.len(), "{class}: {row}");
            for (cell, column) in cells.iter().zip(columns).filter(|(cell, _)| !cell.is_null()) {
                check_cell(cell, column, class);
            }
        }
    }
    rows
}

fn check_cell(cell: &Value, column: &str, table: &str) {
    let class = cell["class"].as_str().unwrap_or_else(|| panic!("{table}: {cell} has no class"));
    assert!(
        class == column || class == "unknown" || column == "mixed",
        "{table}: {cell} in {column}"
    );
    let bounded = cell["low"].is_number() && (cell["high"].is_number() || cell["high"] == "+inf");
    for field in required(class) {
        let has = !cell[field].is_null() || (*field == "value" && bounded);
        assert!(has, "{table}: {cell} has no {field}");
    }
}

const NAMES: [&str; 19] = [
    "syscallstats",
    "schedstats",
    "schedtop",
    "schedfreq",
    "irqstats",
    "irqfreq",
    "cputop",
    "iolatencystats",
    "iolatencytop",
    "iolatencyfreq",
    "iousagetop",
    "memtop",
    "blocked",
    "critical-path",
    "irqlog",
    "schedlog",
    "iolog",
    "syscalllog",
    "disklog",
];

#[test]
fn the_version_is_told_to_viewers_that_know_only_the_first_word_too() {
    for arguments in [&["--mi-version"] as &[&str], &["lami", "cputop", "--mi-version"]] {
        let output = run(arguments);
        assert!(output.status.success());
        assert_eq!(output.stdout, b"1.0\n");
    }
}

#[test]
fn every_cell_is_what_the_metadata_promise() {
    let Some(trace) = testkit::unpacked_trace("kernel-basic-lttng210") else {
        return testkit::skip("no recording kernel-basic-lttng210");
    };
    let trace = trace.to_str().unwrap();
    // Paths are those of requests.
    let Some(with_spans) = testkit::unpacked_trace("pair-ust-chunks-and-kernel") else {
        return testkit::skip("no recording pair-ust-chunks-and-kernel");
    };
    for name in NAMES {
        let classes = check_metadata(&object(&run(&["lami", name, "--metadata"])));
        let of = if name == "critical-path" { with_spans.to_str().unwrap() } else { trace };
        let results = object(&run(&["lami", name, of]));
        assert!(check_results(&results, &classes) > 0, "{name} has no row");
    }
    let peer = |arguments: &[&str]| {
        let output = Command::new("/usr/bin/lttng-cputop-mi").args(arguments).output();
        output.ok().map(|output| object(&output))
    };
    let Some(metadata) = peer(&["--metadata"]) else {
        return testkit::skip("no lttng-analyses (Debian: python3-lttnganalyses)");
    };
    let kernel = format!("{trace}/trace/kernel");
    let results = peer(&["--no-intersection", "--skip-validation", &kernel]).unwrap();
    assert!(check_results(&results, &check_metadata(&metadata)) > 0, "the check refuses no peer");
}

#[test]
fn a_range_of_time_and_a_limit_keep_what_ends_in_it() {
    let Some(trace) = testkit::unpacked_trace("kernel-basic-lttng210") else {
        return testkit::skip("no recording kernel-basic-lttng210");
    };
    let trace = trace.to_str().unwrap();
    let ends = |arguments: &[&str]| -> Vec<i64> {
        let arguments = [&["lami", "schedlog", trace], arguments].concat();
        let results = object(&run(&arguments));
        let rows = results["results"][0]["data"].as_array().unwrap().clone();
        rows.iter().map(|row| row[1]["value"].as_i64().unwrap()).collect()
    };
    let all = ends(&[]);
    assert!(all.is_sorted() && all.len() == 906, "{}", all.len());
    let (from, to) = (all[100], all[199]);
    let (begin, end) = (from.to_string(), to.to_string());
    assert_eq!(ends(&["--begin", &begin, "--end", &end]), all[100..200]);
    assert_eq!(ends(&["--begin", &begin, "--limit", "7"]), all[100..107]);
}

#[test]
fn compatibility_is_silent_and_its_lack_is_explained() {
    let empty = tempfile::tempdir().unwrap();
    let arguments = ["lami", "cputop", "--test-compatibility", empty.path().to_str().unwrap()];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error-message"].is_string(), "{answer}");
    let Some(trace) = testkit::unpacked_trace("kernel-uneven-1cpu") else {
        return testkit::skip("no recording kernel-uneven-1cpu");
    };
    let output = run(&["lami", "cputop", "--test-compatibility", trace.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
}
