//! Real traces: the same event records, fields and losses as the reference reader finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ctf::format::text::{HeaderFields, Names, TextOptions, TextWriter, TimeStyle};
use ctf::format::{Output, StreamText};
use model::{TimeRange, Timestamp};
use sha2::{Digest, Sha256};
use tracedir::{Item, LossKind, PacketEnds, Recording};

use crate::expected::parts;

fn open(path: &Path) -> Recording {
    let recording =
        Recording::open(&[path]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(recording.findings().is_empty(), "{:?}", recording.findings());
    recording
}

fn for_each_part(mut check: impl FnMut(&Path, &crate::expected::Part)) {
    for name in testkit::CTF_1_8_TRACES {
        for (path, expected) in parts(name) {
            check(&path, &expected);
        }
    }
}

/// Paths of the parts for which `text` does not have the expected checksum.
fn differing(
    options: TextOptions,
    arranged: impl Fn(Vec<u8>) -> Vec<u8>,
    expected: impl Fn(&crate::expected::Reference) -> &str,
) -> Vec<PathBuf> {
    let mut differing = Vec::new();
    for_each_part(|path, part| {
        let text = arranged(text(&open(path), options));
        if sha256(&text) != expected(&part.reference) {
            differing.push(path.to_owned());
        }
    });
    differing
}

fn count(recording: &Recording, range: TimeRange) -> u64 {
    let mut merged = recording.merged(range);
    let mut events = 0;
    while let Some(item) = merged.next_item() {
        events += u64::from(matches!(item, Item::Event(_)));
    }
    assert!(merged.findings().is_empty(), "{:?}", merged.findings());
    events
}

#[test]
fn event_records_are_counted_by_name_as_the_reference_does() {
    for_each_part(|path, expected| {
        let recording = open(path);
        let mut merged = recording.merged(TimeRange::ALL);
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        let mut lost = 0;
        while let Some(item) = merged.next_item() {
            match item {
                Item::Event(event) => match by_name.get_mut(event.record.name()) {
                    Some(count) => *count += 1,
                    None => drop(by_name.insert(event.record.name().to_owned(), 1)),
                },
                Item::Loss(loss) => lost += u64::from(loss.kind == LossKind::EventRecords),
            }
        }
        assert!(merged.findings().is_empty(), "{}: {:?}", path.display(), merged.findings());
        assert_eq!(by_name.values().sum::<u64>(), expected.events, "{}", path.display());
        for (name, count) in &expected.event_counts_top {
            assert_eq!(by_name.get(name), Some(count), "{}: {name}", path.display());
        }
        assert_eq!(lost, expected.reference.warnings_lost, "{}", path.display());
    });
}

/// All lines of a recording.
pub(crate) fn text(recording: &Recording, options: TextOptions) -> Vec<u8> {
    let mut writer = TextWriter::new(options, Box::new(|_| 0));
    let mut out = Output::new();
    let mut streams = vec![(u64::MAX, StreamText::default()); recording.streams().len()];
    let mut merged = recording.merged_with(TimeRange::ALL, PacketEnds::Awaited);
    while let Some(item) = merged.next_item() {
        let Item::Event(event) = item else { continue };
        let (packet, stream) = &mut streams[event.stream_index];
        if *packet != event.packet_index {
            *packet = event.packet_index;
            writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
        }
        writer.write(&event.record, stream, &mut out);
    }
    out.as_bytes().to_vec()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_default_text_is_the_references_byte_for_byte() {
    let differing =
        differing(TextOptions::default(), |text| text, |reference| &reference.sha256_default_text);
    assert_eq!(differing, [] as [&Path; 0]);
}

/// The options whose sorted lines do not depend on the order of streams.
pub(crate) fn canonical() -> TextOptions {
    TextOptions {
        time: TimeStyle::Seconds,
        delta: false,
        names: Names::ALL,
        header: HeaderFields::default()
            | HeaderFields::DOMAIN
            | HeaderFields::LOG_LEVEL
            | HeaderFields::EMF,
        ..TextOptions::default()
    }
}

pub(crate) fn sorted_lines(text: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[test]
fn the_sorted_lines_with_all_names_are_the_references() {
    let sorted = |text: Vec<u8>| sorted_lines(&text);
    let options = canonical();
    let differing = differing(options, sorted, |reference| &reference.sha256_canonical_sorted);
    assert_eq!(differing, [] as [&Path; 0]);
}

fn chunk_folders() -> Vec<(PathBuf, u64)> {
    parts("pair-ust-chunks-and-kernel")
        .into_iter()
        .flat_map(|(path, part)| {
            part.chunks.into_iter().map(move |(name, n)| (path.join("archives").join(name), n))
        })
        .collect()
}

#[test]
fn chunks_read_alone_add_up_to_the_whole() {
    for (path, events) in chunk_folders() {
        assert_eq!(count(&open(&path), TimeRange::ALL), events, "{}", path.display());
    }
}

#[test]
fn chunks_are_one_trace_whose_streams_join_in_any_order_of_the_folders() {
    let mut folders: Vec<PathBuf> = chunk_folders().into_iter().map(|(path, _)| path).collect();
    if folders.is_empty() {
        return;
    }
    let forward = Recording::open(&folders).unwrap();
    folders.reverse();
    let backward = Recording::open(&folders).unwrap();
    assert_eq!(forward.traces().len(), 1);
    assert_eq!(forward.traces().first().map(|trace| trace.folders().len()), Some(folders.len()));
    assert_eq!(forward.streams().len(), 2);
    let options = TextOptions::default();
    assert!(text(&forward, options) == text(&backward, options), "the same text in both orders");
}

#[test]
fn every_window_holds_exactly_its_own_event_records() {
    for name in ["pair-ust-chunks-and-kernel", "kernel-many-threads", "ust-ros2", "ust-lost-events"]
    {
        for (path, expected) in parts(name) {
            let recording = open(&path);
            let covers = recording.covers();
            let begin = covers.iter().filter_map(|cover| cover.begin).min().unwrap().nanos();
            let end = covers.iter().filter_map(|cover| cover.end).max().unwrap().nanos();
            let cut = |tenth: i64| match tenth {
                0 => Timestamp::MIN,
                10 => Timestamp::MAX,
                _ => Timestamp::from_nanos(begin + (end - begin) / 10 * tenth),
            };
            let counted: u64 = (0..10)
                .map(|tenth| {
                    count(&recording, TimeRange { begin: cut(tenth), end: cut(tenth + 1) })
                })
                .sum();
            assert_eq!(counted, expected.events, "{}", path.display());
        }
    }
}

#[test]
fn event_records_come_in_order_of_time_within_and_over_streams() {
    for (path, _) in parts("kernel-many-threads") {
        let recording = open(&path);
        let mut merged = recording.merged(TimeRange::ALL);
        let mut last = (Timestamp::MIN, 0);
        while let Some(item) = merged.next_item() {
            let Item::Event(event) = item else { continue };
            let this = (event.timestamp, event.stream_index);
            assert!(last <= this, "{last:?} before {this:?}");
            last = this;
        }
        assert_eq!(merged.backward(), 0);
    }
}

#[test]
fn the_traces_environment_is_at_hand() {
    for (path, _) in parts("kernel-basic-lttng210") {
        let recording = open(&path);
        let trace = &recording.traces()[0];
        assert_eq!(trace.domain(), Some("kernel"));
        assert!(trace.hostname().is_some_and(|host| !host.is_empty()));
        assert_eq!(trace.clock_uuids().count(), 1);
    }
}
