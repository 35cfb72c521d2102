//! Recorded traces: what SQL counts and sums is what counting event record by event record gives.

use std::collections::BTreeMap;
use std::path::Path;

use ctf::format::json::JsonWriter;
use ctf::format::{Output, StreamText};
use model::TimeRange;
use serde_json::Value;
use testkit::{skip, unpacked_trace};
use tracedir::{Item, Recording};

use crate::ask::{open, rows};

/// Of so many classes, the most frequent, the fields are added up: each is a question of its own.
const CLASSES: usize = 8;

/// Of each class: how many event records, and the sums of its payload's integers by path.
type Summed = BTreeMap<String, (u64, BTreeMap<String, i128>)>;

/// Adds all up by the lines that `throughline read --format json` prints.
fn by_hand(path: &Path) -> Summed {
    let recording = Recording::open(&[path]).unwrap();
    let mut merged = recording.merged(TimeRange::ALL);
    let streams = vec![StreamText::new(""); recording.streams().len()];
    let (mut writer, mut out) = (JsonWriter::new(), Output::new());
    let mut sums = Summed::new();
    while let Some(item) = merged.next_item() {
        let Item::Event(event) = item else { continue };
        out.clear();
        writer.write(&event.record, &streams[event.stream_index], &mut out);
        let line: Value = serde_json::from_slice(out.as_bytes()).unwrap();
        let (count, fields) = sums.entry(line["name"].as_str().unwrap().to_owned()).or_default();
        *count += 1;
        if let Some(payload) = line["payload"].as_object() {
            payload.iter().for_each(|(name, value)| add(fields, name.clone(), value));
        }
    }
    sums
}

fn add(sums: &mut BTreeMap<String, i128>, path: String, value: &Value) {
    match value {
        Value::Number(number) => {
            let number = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            if let Some(number) = number {
                *sums.entry(path).or_default() += number;
            }
        }
        // An integer with names.
        Value::Object(members) if members.contains_key("labels") && members.len() == 2 => {
            add(sums, format!("{path}_n"), &members["value"]);
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| add(sums, format!("{path}.{name}"), value));
        }
        _ => {}
    }
}

/// The integer columns of a class's table.
fn integers(database: &query::Database, class: &str) -> Vec<String> {
    let answer = database.ask(&format!("select * from events.\"{class}\" limit 0")).unwrap();
    let schema = answer.schema();
    let is_integer = |field: &&std::sync::Arc<datafusion::arrow::datatypes::Field>| {
        field.data_type().is_integer() || field.data_type().is_decimal()
    };
    schema.fields().iter().filter(is_integer).map(|field| field.name().clone()).collect()
}

fn check(path: &Path) {
    let expected = by_hand(path);
    let database = open(path);
    let counts =
        rows(&database, "select class, count(*) from events group by class order by class");
    let by_hand: Vec<String> =
        expected.iter().map(|(name, (count, _))| format!("{name},{count}")).collect();
    assert_eq!(counts, by_hand, "{}", path.display());
    let mut columns = 0;
    let mut classes: Vec<_> = expected.iter().collect();
    classes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (class, (count, sums)) in classes.into_iter().take(CLASSES) {
        let there: Vec<String> = integers(&database, class);
        let summed: Vec<(&String, &i128)> =
            sums.iter().filter(|(path, _)| there.contains(path)).collect();
        columns += summed.len();
        let sql: Vec<String> = summed
            .iter()
            .map(|(path, _)| format!(", sum(cast(\"{path}\" as decimal(38, 0)))"))
            .collect();
        let sql = format!("select count(*){} from events.\"{class}\"", sql.concat());
        let expected: String = summed.iter().map(|(_, sum)| format!(",{sum}")).collect();
        assert_eq!(rows(&database, &sql), [format!("{count}{expected}")], "{sql}");
    }
    assert!(columns > 0, "nothing was added up in {}", path.display());
}

macro_rules! recorded {
    ($($test:ident: $name:literal),+ $(,)?) => {$(
        #[test]
        fn $test() {
            match unpacked_trace($name) {
                Some(path) => check(&path),
                None => skip("no shared traces"),
            }
        }
    )+};
}

#[test]
fn counts_and_sums_of_nested_fields_equal_those_by_hand() {
    match unpacked_trace("otf2-mpi") {
        Some(path) => check(&path.join("ssend")),
        None => skip("no shared traces"),
    }
}

recorded! {
    counts_and_sums_of_a_desktop_equal_those_by_hand: "kernel-basic-lttng210",
    counts_and_sums_of_a_big_endian_kernel_equal_those_by_hand: "kernel-big-endian",
    counts_and_sums_of_perf_equal_those_by_hand: "kernel-perf-ctf-old",
    counts_and_sums_of_chunks_and_a_kernel_equal_those_by_hand: "pair-ust-chunks-and-kernel",
    counts_and_sums_of_a_trace_with_loss_equal_those_by_hand: "ust-lost-events",
    counts_and_sums_of_robots_equal_those_by_hand: "ust-ros2",
}
