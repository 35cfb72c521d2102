//! Public conformance inputs of CTF 2: what must be read, what must be refused.

use std::collections::{BTreeMap, BTreeSet};
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

/// No packet can be read without a data stream class, so that metadata without any describe nothing; the reference
/// refuses them, too, as does `babeltrace-ctf2/fail__meta-no-stream-cls`.
const NO_STREAM_CLASS: &str = "no data stream class";

/// Where we differ from a suite's verdict, with the reason. In all of them the reference differs from the suite, too.
const KNOWN: &[(&str, &str)] = &[
    (
        "actf-ctf2/pkt_hdr_wrong_uuid_nok",
        "packets with another UUID than their metadata's are read, and say so; the reference reads them, too",
    ),
    ("yactfr-ctf2/data-auto__pass-diff-magic", NO_STREAM_CLASS),
    ("yactfr-ctf2/data-auto__pass-no-ers-no-dst-id-fl-ints", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-array-basic-1dim", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-array-basic-2dim", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-array-of-struct", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-metadata-big-endian", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-struct-align-larger", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-struct-align-valid", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-struct-inner-struct", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-typealias-reserved-keyword", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-variant-integers-unnamed", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-variant-missing-selector", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-variant-scope-tag", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-ctf-testsuite-variant-two-levels-redefinition", NO_STREAM_CLASS),
    ("yactfr-ctf2/meta-auto__pass-dt-aliases-xref", NO_STREAM_CLASS),
];

#[test]
fn verdicts_are_ours_but_for_listed_ones_and_nothing_panics() {
    let Some(root) = testkit::unpacked_trace("conformance") else {
        return testkit::skip("no conformance inputs");
    };
    let expected: Json =
        serde_json::from_slice(&fs::read(root.join("expected.json")).expect("expected"))
            .expect("JSON");
    let mut differing = BTreeSet::new();
    let mut verdicts = BTreeMap::<(String, bool), u32>::new();
    for (name, case) in expected["cases"].as_object().expect("cases") {
        if case["ctf"] != 2 {
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
            eprintln!(
                "DIFFERS {name} ({tier}): wanted {wanted} {}, found {read:?}",
                case["events"]
            );
            differing.insert(name.clone());
        }
    }
    for ((verdict, agrees), count) in verdicts {
        eprintln!("{verdict}: {count} {}", if agrees { "as wanted" } else { "differ" });
    }
    let known: BTreeSet<String> = KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(differing, known);
}
