//! Public conformance inputs through all conversions: the same event records come out, or a reason why not.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use convert::{Error, Options, convert_ctf};
use ctf::CtfVersion;
use model::TimeRange;

use crate::support::read_what_can_be;

/// Cases that can be read and not be converted, with the reason.
const REFUSED: &[(&str, &str)] = &[
    (
        "ctf-testsuite-1.8-stress/stress__struct-nest-n-deep-1024",
        "the writer nests at most 256 fields",
    ),
    (
        "ctf-testsuite-1.8-stress/stress__struct-nest-n-deep-with-field-512",
        "the writer nests at most 256 fields",
    ),
];

/// What a case came to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing of it can be read.
    Unreadable,
    /// The same event records came out of every conversion but for what notes said.
    Same,
    Refused,
}

/// Reads a case and what each of three conversions in a row makes of it.
fn convert_case(name: &str, folder: &Path) -> Verdict {
    let Some((before, losses, findings)) = read_what_can_be(folder, TimeRange::ALL) else {
        return Verdict::Unreadable;
    };
    let out = tempfile::tempdir().expect("a folder");
    let (mut from, mut is_noted) = (folder.to_owned(), false);
    for (step, version) in [CtfVersion::V2, CtfVersion::V1_8, CtfVersion::V2].iter().enumerate() {
        let to = out.path().join(step.to_string());
        let options = Options { version: *version, range: TimeRange::ALL };
        let mut progress = |_, _| ControlFlow::Continue(());
        let report = match convert_ctf(&[&from], &to, &options, &mut progress) {
            Ok(report) => report,
            Err(error) if step == 0 && REFUSED.iter().any(|(known, _)| *known == name) => {
                assert!(matches!(error, Error::Class { .. }), "{name}: {error:?}");
                return Verdict::Refused;
            }
            Err(error) => panic!("{name}, conversion {step}: {error:?}"),
        };
        is_noted |= !report.notes.is_empty();
        let (after, found, more_findings) =
            read_what_can_be(&to, TimeRange::ALL).expect("what is written can be read");
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&after), lines(&before), "{name}, conversion {step}");
        assert_eq!(report.events, lines(&before) as u64, "{name}, conversion {step}");
        assert!(is_noted || after == before, "{name}, conversion {step}:\n{before}\n{after}");
        assert!(more_findings <= findings, "{name}, conversion {step}");
        assert_eq!(found, losses, "{name}, conversion {step}");
        from = to;
    }
    Verdict::Same
}

#[test]
fn conversions_there_and_back_keep_the_event_records_of_all_conformance_inputs() {
    let Some(root) = testkit::unpacked_trace("conformance") else {
        return testkit::skip("no conformance inputs");
    };
    let text = fs::read(root.join("expected.json")).expect("expected");
    let expected: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let (mut refused, mut same) = (BTreeSet::new(), 0);
    for name in expected["cases"].as_object().expect("cases").keys() {
        match convert_case(name, &root.join(name)) {
            Verdict::Unreadable => {}
            Verdict::Same => same += 1,
            Verdict::Refused => drop(refused.insert(name.as_str())),
        }
    }
    assert_eq!(refused, REFUSED.iter().map(|(name, _)| *name).collect());
    assert!(same > 300, "{same}");
}
