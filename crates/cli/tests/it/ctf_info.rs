//! `throughline ctf info`: what traces hold, in tables and as JSON.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::process::THROUGHLINE;
use crate::read::{stderr, stdout, trace};

fn info(options: &[&str], path: &Path) -> Output {
    Command::new(THROUGHLINE).args(["ctf", "info"]).args(options).arg(path).output().unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).expect("one JSON object")
}

#[test]
fn a_written_trace_is_told_whole() {
    let folder = trace();
    let output = info(&["--format", "json"], folder.path());
    let expected = json!({ "traces": [{
        "uuid": "07070707-0707-0707-0707-070707070707",
        "namespace": null, "name": null, "uid": null,
        "format": "CTF 1.8",
        "folders": [folder.path().display().to_string()],
        "environment": { "hostname": "vm" },
        "clocks": [{
            "name": "monotonic", "uuid": "08080808-0808-0808-0808-080808080808",
            "description": "made", "frequency_hz": 1_000_000_000, "origin": "Unix epoch",
            "offset_s": 0, "offset_cycles": 0, "precision_cycles": 0, "accuracy_cycles": null,
        }],
        "streams": [{
            "class_id": 0, "instance_id": 3, "files": 1, "bytes": 240, "packets": 2,
            "content_bits": 1920, "begin_ns": 1_500_000_000, "end_ns": 3_500_000_000_i64,
            "lost_event_records": 2, "lost_packets": 0, "discarded_at_first_packet": 0,
            "indexes": { "used": 0, "absent": 1, "not_used": [] },
        }],
        "event_record_classes": 1,
    }], "manifests": [] });
    assert_eq!(document(&output), expected);
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
fn an_index_of_another_file_is_named_and_not_used() {
    let folder = trace();
    let index = folder.path().join("index");
    std::fs::create_dir(&index).unwrap();
    std::fs::write(index.join("stream.idx"), [0; 16]).unwrap();
    let output = info(&[], folder.path());
    let problem = format!(
        "  index not used: {}: index has magic 0x00000000 at offset 0, expected 0xc1f1dcc1\n",
        index.join("stream.idx").display()
    );
    assert!(stdout(&output).ends_with(&problem), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn classes_are_told_with_their_fields_and_counts_when_asked_for() {
    let folder = trace();
    let document = document(&info(&["--events", "--fields", "--format", "json"], folder.path()));
    let told = &document["traces"][0];
    assert_eq!(told["streams"][0]["event_records"], 3);
    let expected = json!([{
        "stream_class_id": 0, "id": 0, "name": "tick", "log_level": null, "emf_uri": null,
        "event_records": 3,
        "fields": [{ "name": "value", "class": "u64" }, { "name": "text", "class": "text" }],
    }]);
    assert_eq!(told["classes"], expected);
    let output = info(&["--events", "--fields"], folder.path());
    let table =
        "  class  id  events  name  fields\n      0   0       3  tick  value: u64, text: text\n";
    assert!(stdout(&output).ends_with(table), "{}", stdout(&output));
}

#[test]
fn event_records_of_each_class_add_up_to_those_of_a_recorded_trace() {
    let Some(path) = testkit::unpacked_trace("kernel-uneven-1cpu") else {
        testkit::skip("no shared trace kernel-uneven-1cpu");
        return;
    };
    let document = document(&info(&["--events", "--format", "json"], &path));
    let classes = document["traces"][0]["classes"].as_array().expect("classes");
    let counts = classes.iter().map(|class| class["event_records"].as_u64().expect("a count"));
    assert_eq!(counts.clone().sum::<u64>(), 50_618);
    assert!(counts.is_sorted_by(|a, b| a >= b) && classes.len() > 10);
}
