//! Text, byte for byte that of the reference: of the conformance inputs by stored checksums, and with every option of
//! the reference against the program itself where it is installed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use ctf::format::text::{Color, HeaderFields, Names, TextOptions, TimeStyle};
use serde_json::Value as Json;
use tracedir::Recording;

use crate::expected::parts;
use crate::reading::{canonical, sha256, sorted_lines, text};

fn conformance() -> Option<(std::path::PathBuf, Json)> {
    let root = testkit::unpacked_trace("conformance")?;
    let expected = std::fs::read(root.join("expected.json")).expect("expected.json");
    Some((root, serde_json::from_slice(&expected).expect("JSON")))
}

/// Whether both texts of a case have the expected checksums.
fn is_as_expected(folder: &Path, case: &Json) -> bool {
    let recording =
        Recording::open(&[folder]).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let default = sha256(&text(&recording, TextOptions::default()));
    let canonical = sha256(&sorted_lines(&text(&recording, canonical())));
    case["sha256_default_text"] == default && case["sha256_canonical_sorted"] == canonical
}

#[test]
fn the_text_of_every_agreed_case_is_the_references() {
    let Some((root, expected)) = conformance() else {
        return testkit::skip("no conformance inputs");
    };
    let mut differing = BTreeSet::new();
    let mut alike = [0, 0];
    for (name, case) in expected["cases"].as_object().expect("cases") {
        if case["tier"] != "agreed" || case["expect"] != "succeed" {
            continue;
        }
        if is_as_expected(&root.join(name), case) {
            alike[usize::from(case["ctf"] == 2)] += 1;
        } else {
            differing.insert(name.as_str());
        }
    }
    assert_eq!(differing, BTreeSet::new(), "alike: {alike:?} of CTF 1.8 and 2");
    assert_eq!(alike, [128, 110]);
}

#[test]
fn the_text_of_a_recorded_trace_of_ctf_2_is_the_references() {
    for (path, part) in parts("ust-ctf2") {
        let recording = Recording::open(&[&path]).expect("a trace");
        let default = text(&recording, TextOptions::default());
        assert_eq!(sha256(&default), part.reference.sha256_default_text);
        let canonical = sorted_lines(&text(&recording, canonical()));
        assert_eq!(sha256(&canonical), part.reference.sha256_canonical_sorted);
    }
}

/// A choice of the reference's options, and ours.
struct Choice {
    arguments: Vec<String>,
    options: TextOptions,
}

const NAMES: [(&str, Names); 4] = [
    ("payload", Names::PAYLOAD),
    ("context", Names::CONTEXT),
    ("header", Names::HEADER),
    ("scope", Names::SCOPE),
];

const FIELDS: [(&str, HeaderFields); 6] = [
    ("trace:hostname", HeaderFields::HOSTNAME),
    ("trace:domain", HeaderFields::DOMAIN),
    ("trace:procname", HeaderFields::PROCNAME),
    ("trace:vpid", HeaderFields::VPID),
    ("loglevel", HeaderFields::LOG_LEVEL),
    ("emf", HeaderFields::EMF),
];

const TIMES: [(&str, TimeStyle); 4] = [
    ("", TimeStyle::TimeOfDay),
    ("--clock-date", TimeStyle::DateAndTime),
    ("--clock-seconds", TimeStyle::Seconds),
    ("--clock-cycles", TimeStyle::Cycles),
];

/// The words of `all` whose bits are set in `which`, joined, and their values.
fn subset<T: Copy>(all: &[(&str, T)], which: usize) -> (String, Vec<T>) {
    let chosen = || all.iter().enumerate().filter(|(at, _)| which & (1 << at) != 0);
    let words: Vec<_> = chosen().map(|(_, (word, _))| *word).collect();
    (words.join(","), chosen().map(|(_, (_, value))| *value).collect())
}

/// Every set of names, every set of parts before the name, every style of time; each with one of the other kinds in
/// turn, so that all pairs of choices occur.
fn choices() -> impl Iterator<Item = Choice> {
    (0..1 << FIELDS.len()).map(|number| {
        let (time_word, time) = TIMES[number % TIMES.len()];
        let (names_word, names) = subset(&NAMES, (number * 7 + number / 16) % 16);
        let (fields_word, fields) = subset(&FIELDS, number);
        let (delta, color) = (number / 4 % 2 == 0, number / 8 % 2 == 0);
        let names_word = if names.is_empty() { "none".to_owned() } else { names_word };
        let mut arguments = vec![format!("--names={names_word}")];
        let mut options = TextOptions {
            time,
            delta,
            names: names.into_iter().fold(Names::NONE, |all, one| all | one),
            color: if color { Color::Bold } else { Color::Never },
            ..TextOptions::default()
        };
        if !fields.is_empty() {
            arguments.push(format!("--fields={fields_word}"));
            options.header = fields.into_iter().fold(HeaderFields::NONE, |all, one| all | one);
        }
        arguments.extend((!time_word.is_empty()).then(|| time_word.to_owned()));
        arguments.extend((!delta).then(|| "--no-delta".to_owned()));
        Choice { arguments, options }
    })
}

fn reference(choice: &Choice, path: &Path) -> Vec<u8> {
    let color = if choice.options.color == Color::Never { "NEVER" } else { "ALWAYS" };
    let output = Command::new("babeltrace2")
        .args(&choice.arguments)
        .arg(path)
        .envs([("TZ", "UTC"), ("LC_ALL", "C.UTF-8"), ("BABELTRACE_TERM_COLOR", color)])
        .env_remove("BABELTRACE_TERM_COLOR_BRIGHT_MEANS_BOLD")
        .stderr(Stdio::null())
        .output()
        .expect("babeltrace2 runs");
    // With colours the program also resets the terminal when it ends.
    let text = output.stdout;
    text.strip_suffix(b"\x1b[0m").unwrap_or(&text).to_vec()
}

#[test]
fn every_choice_of_options_gives_the_text_of_the_installed_reference() {
    if !testkit::is_installed("babeltrace2") {
        return testkit::skip("no babeltrace2");
    }
    // Traces without empty strings, which version 2.0 shows as the string before.
    for name in ["ust-statedump", "kernel-perf-ctf-old"] {
        for (path, _) in parts(name) {
            let recording = Recording::open(&[&path]).expect("a trace");
            for choice in choices() {
                let ours = text(&recording, choice.options);
                let theirs = reference(&choice, &path);
                let [ours, theirs] = [&ours, &theirs].map(|text| String::from_utf8_lossy(text));
                for (ours, theirs) in ours.lines().zip(theirs.lines()) {
                    assert_eq!(ours, theirs, "{name} {:?}", choice.arguments);
                }
                assert_eq!(ours.len(), theirs.len(), "{name} {:?}", choice.arguments);
            }
        }
    }
}
