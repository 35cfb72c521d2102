//! Damaged recordings: what is said, and what is still read.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, OpenPacket, Schema, TraceClass,
};
use ctf::{ClockClass, DecodeErrorKind, Uuid};
use model::{TimeRange, Timestamp};
use tempfile::TempDir;
use tracedir::{Cause, Error, Finding, Item, LossKind, Merged, Recording};

/// Bytes before the first event record, and of one event record.
const HEADER: usize = 84;
const RECORD: usize = 2 + 8 + 4;
const UUID: [u8; 16] = [7; 16];

/// One packet of stream `instance`: event records at the given times, with as many discarded so far.
struct Spec {
    times: &'static [u64],
    discarded: u64,
}

const fn spec(times: &'static [u64], discarded: u64) -> Spec {
    Spec { times, discarded }
}

fn schema() -> Schema {
    let count = Field::new("count", FieldClass::Int(IntClass::U32));
    let events = vec![EventClass::new(0, "tick", vec![count])];
    let clock = ClockClass::new("monotonic");
    Schema::new(TraceClass::per_cpu(Uuid(UUID), clock, vec![], vec![], events)).unwrap()
}

fn packets(instance: u64, specs: &[Spec]) -> Vec<Vec<u8>> {
    let schema = schema();
    let begin = specs.first().and_then(|spec| spec.times.first()).copied().unwrap_or(0);
    let cpu = u32::try_from(instance).unwrap();
    let mut packet: OpenPacket<'_> = schema.open_cpu(cpu, begin, 1 << 16).unwrap();
    let seal = |spec: &Spec| {
        for time in spec.times {
            let appended = packet.append(0, *time, |record| record.unsigned(*time));
            assert_eq!(appended, Ok(Appended::Yes));
        }
        let end = spec.times.last().copied().unwrap_or(begin);
        packet.roll(end, spec.discarded).bytes
    };
    specs.iter().map(seal).collect()
}

fn trace(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("metadata"), schema().metadata()).unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn times(merged: &mut Merged<'_>) -> Vec<i64> {
    let mut times = Vec::new();
    while let Some(item) = merged.next_item() {
        if let Item::Event(event) = item {
            times.push(event.timestamp.nanos());
        }
    }
    times
}

/// Reads a trace whose stream files are `files`: the times of its event records, and its findings.
fn read(files: &[(&str, Vec<u8>)]) -> (Vec<i64>, Vec<String>, TempDir) {
    let folder = trace(files);
    let recording = Recording::open(&[folder.path()]).expect("metadata is fine");
    let mut merged = recording.merged(TimeRange::ALL);
    let times = times(&mut merged);
    let all = recording.findings().kept().iter().chain(merged.findings().kept());
    let findings = all.map(ToString::to_string).collect();
    drop(merged);
    (times, findings, folder)
}

fn one_finding(findings: &[String], parts: &[&str]) {
    assert_eq!(findings.len(), 1, "{findings:?}");
    for part in parts {
        assert!(findings[0].contains(part), "{part} in {}", findings[0]);
    }
    assert!(!findings[0].contains('\n'), "one line");
}

#[test]
fn an_undamaged_trace_is_read_in_order_of_time() {
    let first = packets(0, &[spec(&[10, 30], 0), spec(&[50], 0)]).concat();
    let second = packets(1, &[spec(&[20, 30, 40], 0)]).concat();
    let (times, findings, _) = read(&[("b", first), ("a", second)]);
    assert_eq!(times, [10, 20, 30, 30, 40, 50]);
    assert!(findings.is_empty());
}

#[test]
fn a_truncated_last_packet_gives_what_is_there_and_its_offset() {
    let whole = packets(0, &[spec(&[10, 20], 0), spec(&[30, 40, 50], 0)]);
    let offset = whole[0].len();
    let mut bytes = whole.concat();
    bytes.truncate(offset + HEADER + RECORD + 5);
    let (times, findings, _) = read(&[("s", bytes)]);
    assert_eq!(times, [10, 20, 30]);
    one_finding(&findings, &[&format!("packet at byte {offset}"), "are there"]);
}

#[test]
fn a_file_that_ends_inside_a_packet_header_says_where() {
    let mut bytes = packets(0, &[spec(&[10], 0), spec(&[20], 0)]).concat();
    let offset = HEADER + RECORD;
    bytes.truncate(offset + 40);
    let (times, findings, _) = read(&[("s", bytes)]);
    assert_eq!(times, [10]);
    one_finding(&findings, &[&format!("packet at byte {offset}"), "ends 40 bytes into"]);
}

#[test]
fn a_wrong_magic_loses_the_rest_of_the_file_and_no_other_file() {
    let mut bytes = packets(0, &[spec(&[10], 0), spec(&[20], 0)]).concat();
    let offset = HEADER + RECORD;
    bytes[offset] ^= 1;
    let (times, findings, _) =
        read(&[("s", bytes.clone()), ("t", packets(1, &[spec(&[15, 25], 0)]).concat())]);
    assert_eq!(times, [10, 15, 25]);
    one_finding(
        &findings,
        &["/s:", &format!("packet at byte {offset}"), "magic", "98 bytes are not read"],
    );
}

#[test]
fn a_damaged_event_record_costs_its_packet_only() {
    let mut whole = packets(0, &[spec(&[10, 20, 30], 0), spec(&[40], 0)]);
    let record = HEADER + RECORD;
    whole[0][record] = 99;
    let folder = trace(&[("s", whole.concat())]);
    let recording = Recording::open(&[folder.path()]).unwrap();
    let mut merged = recording.merged(TimeRange::ALL);
    assert_eq!(times(&mut merged), [10, 40]);
    let [Finding::Packet { path, offset_bytes: 0, cause: Cause::Damaged(error) }] =
        merged.findings().kept()
    else {
        panic!("{:?}", merged.findings());
    };
    assert_eq!(path, &folder.path().join("s"));
    assert_eq!(error.kind, DecodeErrorKind::UnknownEventClass { id: 99 });
    assert_eq!((error.event_index, error.offset_bits), (Some(1), record as u64 * 8));
}

/// Where the total length, in bits, is in a packet.
const TOTAL_BITS: std::ops::Range<usize> = 56..64;

#[test]
fn ten_gigabytes_announced_take_no_memory() {
    let mut bytes = packets(0, &[spec(&[10, 20], 0)]).concat();
    bytes[TOTAL_BITS].copy_from_slice(&(10_u64 << 33).to_le_bytes());
    let len = bytes.len();
    let (times, findings, _) = read(&[("s", bytes)]);
    assert_eq!(times, [10, 20], "the content is there");
    assert!(findings.is_empty(), "content of {len} bytes is complete: {findings:?}");
}

#[test]
fn ten_gigabytes_of_content_announced_are_a_truncated_packet() {
    let mut bytes = packets(0, &[spec(&[10, 20], 0)]).concat();
    bytes[TOTAL_BITS].copy_from_slice(&(10_u64 << 33).to_le_bytes());
    bytes[48..56].copy_from_slice(&(10_u64 << 33).to_le_bytes());
    let (times, findings, _) = read(&[("s", bytes)]);
    assert_eq!(times, [10, 20]);
    one_finding(&findings, &["packet at byte 0", "announces 85899345920 bits"]);
}

#[test]
fn a_packet_longer_than_the_limit_is_refused_before_it_is_read() {
    let mut bytes = packets(0, &[spec(&[10, 20], 0)]).concat();
    bytes[TOTAL_BITS].copy_from_slice(&(10_u64 << 33).to_le_bytes());
    let folder = trace(&[("s", bytes)]);
    // A sparse file: ten gigabytes of nothing that no disk holds.
    let file = fs::OpenOptions::new().append(true).open(folder.path().join("s")).unwrap();
    file.set_len(10 << 30).unwrap();
    let recording = Recording::open(&[folder.path()]).unwrap();
    let mut merged = recording.merged(TimeRange::ALL);
    assert_eq!(times(&mut merged), [0_i64; 0]);
    let limit = tracedir::MAX_PACKET_BYTES;
    assert!(
        matches!(merged.findings().kept(), [Finding::Rest { offset_bytes: 0, cause: Cause::TooLong { announced, limit: l }, .. }]
            if *announced == 10 << 30 && *l == limit),
        "{:?}",
        merged.findings()
    );
}

#[test]
fn an_index_leads_past_a_damaged_packet_header() {
    use ctf::index::{IndexEntry, IndexVersion, PacketIndex, StreamPosition};
    let mut whole = packets(0, &[spec(&[10], 0), spec(&[20], 0), spec(&[30], 0)]);
    let len = whole[0].len() as u64;
    let entries = (0..3).map(|at| IndexEntry {
        offset_bytes: at * len,
        total_length_bits: len * 8,
        content_length_bits: len * 8,
        timestamp_begin: 10,
        timestamp_end: 30,
        events_discarded: 0,
        stream_class_id: 0,
        position: Some(StreamPosition { stream_instance_id: 0, packet_seq_num: at }),
    });
    let index = PacketIndex { version: IndexVersion::V1_1, entries: entries.collect() };
    for damaged in 0..3 {
        whole[damaged][0] ^= 1;
        let folder = trace(&[("s", whole.concat())]);
        fs::create_dir(folder.path().join("index")).unwrap();
        fs::write(folder.path().join("index/s.idx"), index.encode()).unwrap();
        let recording = Recording::open(&[folder.path()]).unwrap();
        let mut merged = recording.merged(TimeRange::ALL);
        let expected: Vec<i64> =
            (0..3).filter(|at| *at != damaged).map(|at| 10 + 10 * at as i64).collect();
        assert_eq!(times(&mut merged), expected);
        assert_eq!(merged.findings().kept().len(), 1);
        whole[damaged][0] ^= 1;
    }
}

#[test]
fn an_index_that_says_something_else_of_its_last_packet_is_not_used_for_a_survey() {
    use ctf::index::{IndexEntry, IndexVersion, PacketIndex, StreamPosition};
    let whole = packets(0, &[spec(&[10], 0), spec(&[20], 0), spec(&[30], 3)]);
    let len = whole[0].len() as u64;
    let folder = trace(&[("s", whole.concat())]);
    let entry = |at: u64| IndexEntry {
        offset_bytes: at * len,
        total_length_bits: len * 8,
        content_length_bits: len * 8,
        timestamp_begin: 10 * at.max(1),
        timestamp_end: 10 + 10 * at,
        events_discarded: if at == 2 { 3 } else { 0 },
        stream_class_id: 0,
        position: Some(StreamPosition { stream_instance_id: 0, packet_seq_num: at }),
    };
    let survey = |change: fn(&mut [IndexEntry])| {
        let mut entries: Vec<IndexEntry> = (0..3).map(entry).collect();
        change(&mut entries);
        let index = PacketIndex { version: IndexVersion::V1_1, entries };
        fs::create_dir_all(folder.path().join("index")).unwrap();
        fs::write(folder.path().join("index/s.idx"), index.encode()).unwrap();
        let mut survey =
            Recording::open(&[folder.path()]).unwrap().survey(&mut tracedir::Findings::default());
        let told = survey.remove(0);
        assert_eq!((told.packets, told.lost_event_records), (3, 3));
        assert_eq!(told.end, Some(Timestamp::from_nanos(30)));
        let refused = told.indexes_refused.into_iter().map(|(_, problem)| problem.to_string());
        (told.indexes_trusted, refused.collect::<Vec<_>>())
    };
    assert_eq!(survey(|_| {}), (1, vec![]));
    for change in [
        |entries: &mut [IndexEntry]| entries[2].timestamp_end = 1_000,
        |entries: &mut [IndexEntry]| entries[2].events_discarded = 7,
        |entries: &mut [IndexEntry]| entries[0].timestamp_end = 9_999,
    ] {
        let (used, refused) = survey(change);
        assert_eq!((used, refused.len()), (0, 1), "{refused:?}");
        assert!(refused[0].contains("says something else of itself"), "{refused:?}");
    }
}

#[test]
fn losses_stand_between_the_packets_that_tell_them() {
    let mut whole =
        packets(0, &[spec(&[10], 5), spec(&[20, 30], 5), spec(&[40], 9), spec(&[60], 9)]);
    whole.remove(3);
    whole.push(
        packets(
            0,
            &[spec(&[50], 9), spec(&[51], 9), spec(&[52], 9), spec(&[53], 9), spec(&[60], 9)],
        )
        .remove(4),
    );
    let folder = trace(&[("s", whole.concat())]);
    let recording = Recording::open(&[folder.path()]).unwrap();
    let mut merged = recording.merged(TimeRange::ALL);
    let mut seen = Vec::new();
    while let Some(item) = merged.next_item() {
        seen.push(match item {
            Item::Event(event) => format!("{}", event.timestamp.nanos()),
            Item::Loss(loss) => {
                let kind = if loss.kind == LossKind::Packets { "packets" } else { "records" };
                format!("{} {kind} in {}..{}", loss.count, loss.begin.nanos(), loss.end.nanos())
            }
        });
    }
    assert_eq!(seen, ["10", "20", "30", "4 records in 30..40", "40", "1 packets in 40..53", "60"]);
}

#[test]
fn covers_say_what_the_first_and_last_packet_of_a_stream_say() {
    let folder =
        trace(&[("s", packets(3, &[spec(&[10], 5), spec(&[20, 30], 6), spec(&[40], 9)]).concat())]);
    let covers = Recording::open(&[folder.path()]).unwrap().covers();
    let [cover] = covers.as_slice() else { panic!("{covers:?}") };
    assert_eq!(cover.stream.instance_id, Some(3));
    assert_eq!(cover.begin, Some(Timestamp::from_nanos(10)));
    assert_eq!(cover.end, Some(Timestamp::from_nanos(40)));
    assert_eq!((cover.first_sequence, cover.last_sequence), (Some(0), Some(2)));
    assert_eq!((cover.first_discarded, cover.last_discarded), (Some(5), Some(9)));
    assert_eq!(cover.discarded_bits, Some(64));
}

#[test]
fn a_damaged_packet_outside_of_the_range_is_not_met() {
    let mut whole = packets(0, &[spec(&[10], 0), spec(&[20], 0), spec(&[30], 0), spec(&[40], 0)]);
    whole[0][HEADER] = 99;
    let folder = trace(&[("s", whole.concat())]);
    let recording = Recording::open(&[folder.path()]).unwrap();
    let range = TimeRange { begin: Timestamp::from_nanos(25), end: Timestamp::from_nanos(40) };
    let mut merged = recording.merged(range);
    assert_eq!(times(&mut merged), [30]);
    assert!(merged.findings().is_empty(), "{:?}", merged.findings());
}

fn copied(folder: &Path, metadata: &[u8]) -> PathBuf {
    fs::write(folder.join("metadata"), metadata).unwrap();
    folder.to_owned()
}

#[test]
fn half_of_the_metadata_is_an_error_with_its_place() {
    let folder = trace(&[("s", packets(0, &[spec(&[10], 0)]).concat())]);
    let text = fs::read(folder.path().join("metadata")).unwrap();
    let path = copied(folder.path(), &text[..text.len() / 2]);
    let error = Recording::open(&[&path]).unwrap_err();
    let Error::Metadata { path: named, source } = &error else { panic!("{error:?}") };
    assert_eq!(*named, path.join("metadata"));
    assert!(
        matches!(source, ctf::Error::MetadataText { offset_bytes, .. } if *offset_bytes > 0),
        "{source}"
    );
}

#[test]
fn an_unreadable_trace_beside_a_readable_one_is_a_finding() {
    let good = trace(&[("s", packets(0, &[spec(&[10], 0)]).concat())]);
    let bad = trace(&[("s", vec![0; 300])]);
    copied(bad.path(), b"");
    assert!(matches!(
        Recording::open(&[bad.path()]),
        Err(Error::MetadataEmpty { stream_bytes: 300, .. })
    ));
    let recording = Recording::open(&[bad.path(), good.path()]).unwrap();
    assert!(matches!(
        recording.findings().kept(),
        [Finding::Trace(Error::MetadataEmpty { stream_bytes: 300, .. })]
    ));
    assert_eq!(times(&mut recording.merged(TimeRange::ALL)), [10]);
}

#[test]
fn a_folder_that_cannot_be_listed_is_a_finding_beside_what_can() {
    let folder = trace(&[("s", packets(0, &[spec(&[10], 0)]).concat())]);
    // Deeper than a path may be long, so that not even the superuser can list it.
    let nested = |top: &str| {
        let path = (0..9).fold(folder.path().join(top), |path, _| path.join("d".repeat(250)));
        fs::create_dir_all(&path).unwrap();
        path
    };
    let deepest = nested("a");
    nested("b");
    fs::rename(folder.path().join("b"), deepest.join("b")).unwrap();
    let recording = Recording::open(&[folder.path()]).unwrap();
    assert!(
        matches!(recording.findings().kept(), [Finding::Trace(Error::Io { .. })]),
        "{:?}",
        recording.findings()
    );
    assert_eq!(times(&mut recording.merged(TimeRange::ALL)), [10]);
    assert!(matches!(tracedir::discover(&[folder.path()]), Err(Error::Io { .. })));
    let mut follow = tracedir::Follow::new(&[folder.path()], tracedir::FollowOptions::default());
    follow.finish(Timestamp::from_nanos(0)).unwrap();
    assert!(matches!(follow.next_item(), Some(Item::Event(_))));
    assert_eq!(follow.findings().kept().len(), 1);
    let mut remarks = Vec::new();
    tracedir::check(&[folder.path()], &mut |remark| remarks.push(remark.path)).unwrap();
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].starts_with(folder.path()) && remarks[0] != folder.path());
}

#[test]
fn a_folder_without_a_trace_is_an_error_and_an_empty_trace_is_not() {
    let nothing = tempfile::tempdir().unwrap();
    assert!(matches!(Recording::open(&[nothing.path()]), Err(Error::NoTrace { .. })));
    let empty = trace(&[("s", Vec::new())]);
    let recording = Recording::open(&[empty.path()]).unwrap();
    assert!(recording.merged(TimeRange::ALL).next_item().is_none());
}
