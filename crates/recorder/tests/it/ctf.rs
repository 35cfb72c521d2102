//! Chunks of the Common Trace Format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::ctf::format::json::JsonWriter;
use ::ctf::format::{Output, StreamText};
use journal::{Bounds, Journal};
use model::{TimeRange, Timestamp};
use recorder::{Recorder, Settings};
use records::{EntryKind, Pair, Process as Recording, RingId, Times};
use serde_json::{Value, json};
use testkit::skip;
use tracedir::Item;
use tracepoint::layout::{FieldType, Severity, SiteKind, Tag, Word};

use crate::process::{Process, TICKS, WRITERS, mixed};
use crate::settings;

const HOUR: Duration = Duration::from_secs(3600);

/// What is in chunks.
pub(crate) struct Read {
    /// Event records in order of time, as readers show them.
    pub(crate) events: Vec<Value>,
    pub(crate) lost: u64,
}

impl Read {
    /// Of the ticks of each writer: their numbers, in the order of their times.
    pub(crate) fn ticks(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut ticks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event["name"] == "tick") {
            let field = |name: &str| event["payload"][name].as_u64().unwrap();
            assert_eq!(field("mixed"), mixed(field("number")), "a torn record");
            ticks.entry(field("writer")).or_default().push(field("number"));
        }
        ticks
    }

    fn named(&self, name: &str) -> &Value {
        let mut found = self.events.iter().filter(|event| event["name"] == name);
        let (event, None) = (found.next().unwrap(), found.next()) else { panic!("{name}") };
        event
    }
}

/// Reads the chunks of a folder, in which nothing is to be wrong.
pub(crate) fn read(folder: &Path) -> Read {
    let recording = tracedir::Recording::open(&[folder]).unwrap();
    assert!(recording.findings().is_empty());
    let mut merged = recording.merged(TimeRange::ALL);
    let (mut writer, mut out) = (JsonWriter::new(), Output::default());
    let mut texts: BTreeMap<usize, StreamText> = BTreeMap::new();
    let mut lost = 0;
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => {
                let text = texts.entry(event.stream_index).or_insert_with(|| StreamText::new(""));
                writer.write(&event.record, text, &mut out);
            }
            Item::Loss(loss) => lost += loss.count,
        }
    }
    assert!(merged.findings().is_empty());
    assert_eq!(merged.backward(), 0);
    let lines = out.as_bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    Read { events, lost }
}

fn target(folder: &Path) -> (PathBuf, Settings) {
    let chunks = folder.join("chunks");
    let mut settings = settings(folder, &[&format!("ctf:{}", chunks.display())]);
    settings.targets[0].chunk_every = HOUR;
    (chunks, settings)
}

/// The chunks of a folder, the oldest first.
fn chunks(folder: &Path) -> Vec<PathBuf> {
    let mut chunks: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    chunks.sort();
    chunks
}

/// What babeltrace2 prints of a folder.
fn babeltrace2(folder: &Path) -> Option<String> {
    if !testkit::is_installed("babeltrace2") {
        skip("babeltrace2 is not installed");
        return None;
    }
    let output = Command::new("babeltrace2").arg(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn records_wait_for_others_and_are_one_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let (into, settings) = target(folder.path());
    let recorder = Recorder::start(settings).unwrap();
    Process::start("ticks", folder.path()).ends();
    while recorder.ledger().stored < WRITERS * TICKS {
        std::thread::yield_now();
    }
    assert_eq!(chunks(&into).len(), 0);
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up(), "{ledger:?}");
    let [chunk] = &chunks(&into)[..] else { panic!() };
    let name = chunk.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("chunk-00000000000000000000-0000000000"), "{name}");
    let read = read(&into);
    assert_eq!((read.events.len() as u64, read.lost), (WRITERS * TICKS, 0));
    for numbers in read.ticks().values() {
        assert_eq!(*numbers, (0..TICKS).collect::<Vec<_>>());
    }
    let Some(text) = babeltrace2(&into) else { return };
    assert_eq!(text.lines().count() as u64, WRITERS * TICKS);
    for writer in 0..WRITERS {
        let field = format!("{{ writer = {writer}, number = ");
        let numbers = text.lines().filter_map(|line| line.split_once(&field)?.1.split_once(','));
        let numbers: Vec<u64> = numbers.map(|(number, _)| number.parse().unwrap()).collect();
        assert_eq!(numbers, (0..TICKS).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_before_the_last_segment_of_the_journal_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (into, mut settings) = target(folder.path());
    settings.bounds = Bounds { bytes: 1 << 20, ..Bounds::default() };
    let recorder = Recorder::start(settings).unwrap();
    Process::start("ticks", folder.path()).ends();
    // Segments of such a journal are of 64 KiB.
    while chunks(&into).len() < 2 {
        std::thread::yield_now();
    }
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up() && ledger.dropped().is_empty(), "{ledger:?}");
    for numbers in read(&into).ticks().values() {
        assert_eq!(*numbers, (0..TICKS).collect::<Vec<_>>());
    }
}

#[test]
fn spans_have_their_ids_and_the_contexts_of_lttng() {
    let folder = tempfile::tempdir().unwrap();
    let (into, settings) = target(folder.path());
    let recorder = Recorder::start(settings).unwrap();
    Process::start("spans", folder.path()).ends();
    recorder.stop(Duration::from_secs(30)).unwrap();
    let read = read(&into);
    assert_eq!(read.events.len(), 8);
    let request = read.named("request_begin");
    assert_eq!(request["payload"], json!({"path": "/a", "bytes": u64::MAX}));
    let decode = read.named("decode_begin");
    let (of_request, of_decode) = (&request["context"], &decode["context"]);
    assert_eq!(of_request["parent_span_id"], "");
    assert_eq!(of_decode["parent_span_id"], of_request["span_id"]);
    assert_eq!(of_decode["trace_id"], of_request["trace_id"]);
    assert_eq!(of_request["trace_id"].as_str().unwrap().len(), 32);
    assert_eq!(decode["payload"], json!({"frame": -7}));
    let error = json!({"value": 2, "labels": ["error"]});
    assert_eq!(read.named("decode_end")["context"]["status"], error);
    let inside = read.named("inside");
    assert_eq!(inside["context"]["span_id"], of_decode["span_id"]);
    assert_eq!(inside["payload"], json!({"ratio": 0.5, "ok": {"value": 1, "labels": ["true"]}}));
    assert_eq!(read.named("alone")["payload"]["note"], "in no span");
    let context = &request["common_context"];
    assert_ne!(read.named("send_end")["common_context"]["vtid"], context["vtid"]);
    let Some(text) = babeltrace2(&into) else { return };
    let (trace_id, span_id) = (&of_decode["trace_id"], &of_decode["span_id"]);
    let (vpid, vtid, procname) = (&context["vpid"], &context["vtid"], &context["procname"]);
    let line = format!(
        "inside: {{ vpid = {vpid}, vtid = {vtid}, procname = {procname} }}, \
         {{ trace_id = {trace_id}, span_id = {span_id} }}, \
         {{ ratio = 0.5, ok = ( \"true\" : container = 1 ) }}"
    );
    assert!(text.lines().any(|it| it.ends_with(&line)), "{line}\n{text}");
}

/// A call site as a ring describes it.
fn site(number: u16, kind: SiteKind, name: &str, fields: &[(&str, FieldType)]) -> Vec<u8> {
    let len = |len: usize| u16::try_from(len).unwrap().to_ne_bytes();
    let text = |text: &str| [&len(text.len()), text.as_bytes()].concat();
    let count = u8::try_from(fields.len()).unwrap();
    let mut bytes = vec![kind as u8, count, Severity::Warn as u8, 0, 0, 0, 0, 0];
    bytes.extend([name, "module", "file.c"].map(text).concat());
    bytes.extend(fields.iter().flat_map(|(name, kind)| [vec![*kind as u8], text(name)].concat()));
    let whole = (4 + bytes.len()).next_multiple_of(8);
    bytes.resize(whole - 4, 0);
    [&len(whole)[..], &number.to_ne_bytes(), &bytes].concat()
}

/// The words of a text.
fn words(bytes: &[u8]) -> Vec<u64> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    let (words, _) = padded.as_chunks::<8>();
    let len = bytes.len() as u64;
    let head = len | len << 32;
    std::iter::once(head).chain(words.iter().map(|word| u64::from_ne_bytes(*word))).collect()
}

/// A ring of a made process, batch by batch.
struct Made {
    position: u64,
    number: u64,
    dropped: u64,
}

impl Made {
    /// The next entry: records of these call sites at these times, by a clock that is so much behind the machine's.
    fn batch(
        &mut self,
        behind_ns: u64,
        sites: &[Vec<u8>],
        records: &[(u16, u64, Vec<u64>)],
    ) -> Vec<u8> {
        let process = Recording {
            file: (1, 2),
            pid: std::process::id(),
            own_pid: u32::MAX,
            service: "made".to_owned(),
        };
        let thread = "a thread of 16 b".to_owned();
        let ring = RingId { place: 0, generation: 1, tid: 7, thread };
        let late = Pair { ticks: 1_000_000 + behind_ns, monotonic_ns: 1_000_000 };
        let early = Pair { ticks: behind_ns, monotonic_ns: 0 };
        let times = Times { early, late, epoch_offset_ns: 1_000_000_000 };
        let begin = (self.position, self.number);
        let mut all: Vec<u64> = Vec::new();
        for (site, time, values) in records {
            let len = u16::try_from(values.len() + 2).unwrap();
            all.push(Word::new(len, *site, self.number).0);
            all.push(*time);
            all.extend(values);
            self.number += 1;
        }
        self.position += 8 * all.len() as u64;
        let end = (self.position, self.number);
        let mut dropped = [0; 8];
        dropped[0] = self.dropped;
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let form = (process, ring, times, begin, end, dropped, [0_u64; 8], 0_u64, 64_u64 << 20);
        [postcard::to_allocvec(&form).unwrap(), postcard::to_allocvec(&(sites, bytes)).unwrap()]
            .concat()
    }
}

/// Starts a recorder whose journal gets these entries before, and stops it.
fn deliver(settings: &Settings, entries: &[(Vec<u8>, u32)]) {
    let journal = Journal::open(&settings.folder, settings.bounds).unwrap();
    for (entry, records) in entries {
        let time = Timestamp::from_nanos(0);
        journal.append(EntryKind::Ring as u16, *records, entry, time).unwrap();
    }
    drop(journal);
    Recorder::start(settings.clone()).unwrap().stop(Duration::from_secs(30)).unwrap();
}

#[test]
fn values_of_all_types_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let (into, settings) = target(folder.path());
    deliver(&settings, &[]);
    let typed = [
        ("http.method", FieldType::Text),
        ("body", FieldType::Bytes),
        ("_body_length", FieldType::Unsigned),
        ("on", FieldType::Bool),
        ("on", FieldType::Float),
        ("", FieldType::Signed),
    ];
    let tagged =
        [("id", FieldType::Tagged), ("part", FieldType::Tagged), ("no", FieldType::Tagged)];
    let sites = [
        site(3, SiteKind::Event, "a \"name\"\n", &typed),
        site(4, SiteKind::Event, "tagged", &tagged),
        site(5, SiteKind::SpanRecord, "more", &[]),
    ];
    let typed =
        [words(b"P\0\xc3"), words(&[1, 255]), vec![9, 0, f64::to_bits(-0.25), -3_i64 as u64]];
    let tag = |kind, field| vec![Tag::new(kind, field).0];
    let tagged = [
        [tag(FieldType::Text, 1), words(b"{\"\xc3")],
        [tag(FieldType::Signed, 0), vec![-5_i64 as u64]],
        [tag(FieldType::Bytes, 1), words(b"\xa4\"}")],
        [tag(FieldType::Bool, 0), vec![1]],
    ];
    let records =
        [(3, 500, typed.concat()), (4, 600, tagged.concat().concat()), (5, 700, vec![0, 9, 1])];
    let mut made = Made { position: 0, number: 0, dropped: 0 };
    deliver(&settings, &[(made.batch(0, &sites, &records), 3)]);
    let read = read(&into);
    let [typed, tagged, more] = &read.events[..] else { panic!() };
    assert_eq!(typed["name"], "a \"name\"\u{FFFD}");
    assert_eq!(typed["timestamp_ns"], 1_000_000_500);
    let context = json!({"vpid": -1, "vtid": 7, "procname": "a thread of 16 b"});
    assert_eq!(typed["common_context"], context);
    let expected = json!({
        "http__2emethod": "P\u{FFFD}\u{FFFD}",
        "_body_length": 2,
        "body": [1, 255],
        "_body_length__n2": 9,
        "on": {"value": 0, "labels": ["false"]},
        "on__n2": -0.25,
        "__": -3,
    });
    assert_eq!(typed["payload"], expected);
    assert_eq!(tagged["payload"], json!({"id": "-5 true", "part": "{\"ä\"}", "no": ""}));
    assert_eq!(more["name"], "more_record");
    let ids =
        json!({"trace_id": "00000000000000000000000000000009", "span_id": "0000000000000001"});
    assert_eq!(more["context"], ids);
    let Some(text) = babeltrace2(&into) else { return };
    assert!(text.contains("body = [ [0] = 0x1, [1] = 0xFF ]"), "{text}");
}

#[test]
fn losses_are_told_once_and_times_of_a_thread_do_not_step_back_between_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let (into, settings) = target(folder.path());
    deliver(&settings, &[]);
    let sites = [site(0, SiteKind::Event, "tock", &[("number", FieldType::Unsigned)])];
    let tock = |number, time| (0, time, vec![number]);
    let mut made = Made { position: 0, number: 0, dropped: 3 };
    let first = made.batch(0, &sites, &[tock(0, 5_000), tock(1, 6_000)]);
    made.dropped = 10;
    // By its clock this one begins 500 ns before the last one ended.
    let second = made.batch(600, &sites, &[tock(2, 6_100), tock(3, 6_500)]);
    deliver(&settings, &[(first, 2), (second, 2)]);
    assert_eq!(read(&into).lost, 10);
    let third = made.batch(900, &sites, &[tock(4, 6_600), tock(5, u64::MAX / 2)]);
    made.dropped = 11;
    let nothing = made.batch(900, &[], &[]);
    deliver(&settings, &[(third, 2), (nothing, 0)]);
    deliver(&settings, &[(made.batch(900, &sites, &[tock(6, 7_000)]), 1)]);
    assert_eq!(chunks(&into).len(), 3);
    let read = read(&into);
    let of = |name: &str| {
        read.events.iter().map(|it| it["payload"][name].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of("number"), (0..7).collect::<Vec<_>>());
    assert_eq!(read.lost, 11);
    let times = read.events.iter().map(|it| it["timestamp_ns"].as_i64().unwrap() - 1_000_000_000);
    // A time that cannot be is one second after the clock was looked at.
    let latest = 1_001_000_000;
    assert_eq!(times.collect::<Vec<_>>(), [5_000, 6_000, 6_000, 6_000, 6_001, latest, latest + 1]);
}

#[test]
fn packets_are_bounded_and_nothing_is_missing_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let (into, settings) = target(folder.path());
    deliver(&settings, &[]);
    let sites = [site(0, SiteKind::Event, "long", &[("text", FieldType::Text)])];
    let mut made = Made { position: 0, number: 0, dropped: 0 };
    let entries = (0..5).map(|at| {
        let record = |number| (0, number, words(format!("{number:08000}").as_bytes()));
        let records: Vec<_> = (at * 100..(at + 1) * 100).map(record).collect();
        (made.batch(0, &sites, &records), 100)
    });
    deliver(&settings, &entries.collect::<Vec<_>>());
    let read = read(&into);
    let numbers = read.events.iter().map(|it| it["payload"]["text"].as_str().unwrap());
    let numbers: Vec<u64> = numbers.map(|text| text.parse().unwrap()).collect();
    assert_eq!((numbers, read.lost), ((0..500).collect(), 0));
    let recording = tracedir::Recording::open(&[&into]).unwrap();
    let [cover] = &recording.covers()[..] else { panic!() };
    assert_eq!((cover.first_sequence, cover.last_sequence), (Some(0), Some(1)));
    let Some(text) = babeltrace2(&into) else { return };
    assert_eq!(text.lines().count(), 500);
}
