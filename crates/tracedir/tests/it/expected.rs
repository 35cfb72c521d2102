//! `expected.json` of a trace folder: what the reference reader found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    parts: BTreeMap<String, Part>,
}

/// One readable part of a trace folder.
#[derive(Deserialize)]
pub(crate) struct Part {
    pub(crate) events: u64,
    pub(crate) event_counts_top: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) chunks: BTreeMap<String, u64>,
    #[serde(rename = "babeltrace2_2.1.2")]
    pub(crate) reference: Reference,
}

/// What Babeltrace 2.1.2 printed for it.
#[derive(Deserialize)]
pub(crate) struct Reference {
    pub(crate) warnings_lost: u64,
    pub(crate) sha256_default_text: String,
    pub(crate) sha256_canonical_sorted: String,
}

/// The parts of the trace `name` with their folders; empty, and said so, when the data is absent.
pub(crate) fn parts(name: &str) -> Vec<(PathBuf, Part)> {
    let Some(folder) = testkit::unpacked_trace(name) else {
        testkit::skip(&format!("no shared trace {name}"));
        return Vec::new();
    };
    let text = std::fs::read(folder.join("expected.json")).expect("expected.json");
    let file: File = serde_json::from_slice(&text).expect("expected.json of the known shape");
    file.parts.into_iter().map(|(part, expected)| (folder.join(part), expected)).collect()
}
