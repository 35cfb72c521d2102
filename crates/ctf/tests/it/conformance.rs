//! Public conformance inputs of both versions: what must be read, what must be refused.

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

/// The cases of CTF 1.8 in which we differ from a suite's verdict, with the reason. In all of them the reference differs
/// from the suite, too, or dies.
const KNOWN_1: &[(&str, &str)] = &[
    (
        "ctf-testsuite-1.8/regression-metadata-fail__array-size-identifier",
        "an unused alias may refer to a field of the structures that would use it",
    ),
    (
        "ctf-testsuite-1.8/regression-metadata-fail__array-size-type",
        "as array-size-identifier: lengths and types have different name spaces",
    ),
    (
        "yactfr-ctf1/meta__fail-ctf-testsuite-array-size-type",
        "as array-size-identifier: lengths and types have different name spaces",
    ),
    (
        "yactfr-ctf1/meta__fail-ctf-testsuite-integer-encoding-as-string",
        "`encoding = \"UTF8\"` can only mean one thing",
    ),
    ("yactfr-ctf1/meta__fail-clk-type-unknown-attr", "unknown attributes are warnings"),
    ("yactfr-ctf1/meta__fail-nt-str-type-unknown-attr", "unknown attributes are warnings"),
    ("yactfr-ctf1/meta__fail-trace-type-unknown-attr", "unknown attributes are warnings"),
    (
        "yactfr-ctf1/meta__fail-env-wrong-entry",
        "an environment entry without quotes is a text and a warning",
    ),
    (
        "yactfr-ctf1/meta__fail-var-type-inval-sel-loc-11",
        "an option that no label chooses harms nobody; ctf-testsuite-1.8/regression-stream-pass__variant-missing-enum-mappings wants it read",
    ),
    ("yactfr-ctf1/data__pass-er-header-id-nt-str", "an id that is no number chooses no class"),
    ("yactfr-ctf1/meta__pass-dst-erh-type-id-member-1", "an id that is no number chooses no class"),
    (
        "yactfr-ctf1/data__pass-multiple-dst-id-fl-ints",
        "CTF 1.8.3 gives a meaning to the packet header's own stream_id, not to one inside another member",
    ),
    ("yactfr-ctf1/data__pass-odd-fl-ints", "a field cannot be called `int`, which is a keyword"),
    (
        "yactfr-ctf1/metastream__pass-empty-pkt",
        "the packets are well-formed, the text in them is not",
    ),
    (
        "yactfr-ctf1/metastream__pass-with-signature-be",
        "the packets are well-formed, the text in them is not",
    ),
];

/// No packet can be read without a data stream class, so that metadata without any describe nothing; the reference
/// refuses them, too, as does `babeltrace-ctf2/fail__meta-no-stream-cls`.
const NO_STREAM_CLASS: &str = "no data stream class";

/// The same of CTF 2.
const KNOWN_2: &[(&str, &str)] = &[
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

/// Whether our verdicts on all cases of a version are the suites', but for `known` ones; and that nothing panics.
fn check(version: u64, known: &[(&str, &str)]) {
    let Some(root) = testkit::unpacked_trace("conformance") else {
        return testkit::skip("no conformance inputs");
    };
    let expected: Json =
        serde_json::from_slice(&fs::read(root.join("expected.json")).expect("expected"))
            .expect("JSON");
    let known: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
    let mut differing = BTreeMap::new();
    let cases = expected["cases"].as_object().expect("cases").iter();
    for (name, case) in cases.filter(|(_, case)| case["ctf"] == version) {
        let folder = root.join(name);
        let read = panic::catch_unwind(|| read_case(&folder));
        let Ok(read) = read else { panic!("{name} panics") };
        let tier = case["tier"].as_str().unwrap_or("");
        let wanted = case["suite_says"].as_str().unwrap_or("");
        let agrees = match (wanted, &read) {
            ("succeed", Ok(events)) => case["events"].as_u64() == Some(*events) || tier != "agreed",
            ("fail", Err(_)) => true,
            _ => false,
        };
        if !agrees {
            let found = format!("{tier}: wanted {wanted} {}, found {read:?}", case["events"]);
            differing.insert(name.as_str(), found);
        }
    }
    let unknown: Vec<_> = differing.iter().filter(|(name, _)| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert_eq!(differing.into_keys().collect::<BTreeSet<_>>(), known);
}

#[test]
fn verdicts_on_ctf_1_8_are_ours_but_for_listed_ones_and_nothing_panics() {
    check(1, KNOWN_1);
}

#[test]
fn verdicts_on_ctf_2_are_ours_but_for_listed_ones_and_nothing_panics() {
    check(2, KNOWN_2);
}
