//! Public conformance inputs of CTF 1.8: what must be read, what must be refused.

use std::collections::BTreeSet;
use std::fs;
use std::panic;
use std::path::Path;

use serde_json::Value as Json;

use crate::support::{Tally, read_stream, read_trace, stream_files, trace_folders};

/// Events of a whole case, or the first error.
fn read_case(folder: &Path) -> Result<u64, String> {
    let mut tally = Tally::default();
    let folders = trace_folders(folder);
    assert!(!folders.is_empty(), "{} has no metadata", folder.display());
    for folder in folders {
        let trace = read_trace(&folder).map_err(|error| error.to_string())?;
        for file in stream_files(&folder) {
            let bytes = fs::read(&file).expect("stream");
            read_stream(&trace, &bytes, &mut tally, |_| ()).map_err(|error| error.to_string())?;
        }
    }
    Ok(tally.events)
}

/// Where we differ from the verdict that the suite and the reference agree on, with the reason.
const KNOWN: [(&str, &str); 1] = [(
    "babeltrace-ctf1/intersection__onestream",
    "its packets carry another UUID than its metadata: to us they belong to another trace",
)];

#[test]
fn agreed_verdicts_are_ours_and_nothing_panics() {
    let Some(root) = testkit::unpacked_trace("conformance") else {
        return testkit::skip("no conformance inputs");
    };
    let expected: Json =
        serde_json::from_slice(&fs::read(root.join("expected.json")).expect("expected"))
            .expect("JSON");
    let mut differing = BTreeSet::new();
    let mut verdicts = std::collections::BTreeMap::<(String, bool), u32>::new();
    for (name, case) in expected["cases"].as_object().expect("cases") {
        if case["ctf"] != 1 {
            continue;
        }
        let folder = root.join(name);
        let read = panic::catch_unwind(|| read_case(&folder));
        let Ok(read) = read else { panic!("{name} panics") };
        let tier = case["tier"].as_str().unwrap_or("").to_owned();
        let wanted = case["suite_says"].as_str().unwrap_or("");
        let agrees = match (wanted, &read) {
            ("succeed", Ok(events)) => case["events"].as_u64() == Some(*events) || tier != "agreed",
            ("fail", Err(_)) => true,
            _ => false,
        };
        *verdicts.entry((format!("{tier}, {wanted}"), agrees)).or_default() += 1;
        if !agrees {
            eprintln!("{name} ({tier}): wanted {wanted} {}, found {read:?}", case["events"]);
        }
        if !agrees && tier == "agreed" {
            differing.insert(name.clone());
        }
    }
    for ((verdict, agrees), count) in verdicts {
        eprintln!("{verdict}: {count} {}", if agrees { "as wanted" } else { "differ" });
    }
    let known: BTreeSet<String> = KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unknown: Vec<_> = differing.difference(&known).collect();
    assert!(unknown.is_empty(), "these differ: {unknown:?}");
}
