//! Periods that are defined on the command line, against analyses that count the same by other means.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::THROUGHLINE;

fn analyze(arguments: &[&str]) -> Output {
    Command::new(THROUGHLINE).arg("analyze").args(arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

const SOFT: [&str; 4] = [
    "--period",
    "soft : irq_softirq_entry : irq_softirq_exit",
    "--period-key",
    "soft : cpu_id, vec",
];

#[test]
fn soft_interrupts_as_periods_are_those_of_the_interrupt_analysis() {
    let Some(trace) = testkit::unpacked_trace("kernel-basic-lttng210") else {
        return testkit::skip("no recording kernel-basic-lttng210");
    };
    let trace = trace.to_str().unwrap();
    let arguments = [&["periodstats", trace, "--format", "json", "--group-by", "vec"], &SOFT[..]];
    let figures = |row: &Value| ["count", "min", "max", "total"].map(|name| row[name].as_u64());
    let periods: BTreeMap<u64, _> = lines(&analyze(&arguments.concat()))
        .iter()
        .map(|row| {
            let vector = row["group"].as_str().unwrap().strip_prefix("vec=").unwrap();
            (vector.parse().unwrap(), figures(row))
        })
        .collect();
    let output = analyze(&["irqstats", trace, "--format", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let soft = answer["tables"].as_array().unwrap().iter().find(|t| t["class"] == "irq-soft");
    let rows = soft.unwrap()["rows"].as_array().unwrap().iter();
    let interrupts: BTreeMap<u64, _> = rows
        .map(|row| {
            let figures = [1, 2, 4, 11].map(|column| row[column].as_u64());
            (row[0]["nr"].as_u64().unwrap(), figures)
        })
        .collect();
    assert_eq!(periods, interrupts);
    assert_eq!(periods.len(), 5);
}

#[test]
fn the_log_is_in_the_order_of_ends_and_takes_length_and_limit() {
    let Some(trace) = testkit::unpacked_trace("kernel-basic-lttng210") else {
        return testkit::skip("no recording kernel-basic-lttng210");
    };
    let trace = trace.to_str().unwrap();
    let log = |more: &[&str]| {
        lines(&analyze(&[&["periodlog", trace, "--format", "json"], &SOFT[..], more].concat()))
    };
    let all = log(&[]);
    let ends: Vec<i64> = all.iter().map(|row| row["end"].as_i64().unwrap()).collect();
    assert!(ends.is_sorted() && ends.len() > 1_000, "{}", ends.len());
    let long = all.iter().filter(|row| row["duration"].as_u64().unwrap() >= 100_000).count();
    assert!(long > 3, "{long}");
    assert_eq!(log(&["--min", "100us"]).len(), long);
    assert_eq!(log(&["--limit", "7"]), all[..7]);
}

#[test]
fn definitions_that_make_no_sense_are_refused_with_the_part_that_is_wrong() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    for (arguments, expected) in [
        (&["--period", "a"] as &[&str], "is not NAME : BEGIN : END"),
        (&["--period", "a(b) : x : y"], "there is no period \"b\" before"),
        (&["--period", "a : x", "--period", "a : y"], "there are two periods \"a\""),
        (&["--period", "a : x = 1"], "\"x = 1\""),
        (&["--period", "a : x", "--period-key", "b : tid"], "there is no period \"b\""),
    ] {
        let output = analyze(&[&["periodlog", folder], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
