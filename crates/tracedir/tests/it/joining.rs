//! What belongs together, and what only looks as if it did.

use std::fs;
use std::ops::Range;
use std::path::Path;

use model::TimeRange;
use tempfile::TempDir;
use tracedir::{ClassCache, Findings, Recording, check};

use crate::made::{Packet, Trace, open, packet, range, read};

const CHUNKS: [&str; 3] = [
    "archives/20261120T164408+0000-20261120T164409+0000-9",
    "archives/20261120T164409+0000-20261120T164410+0000-10",
    "20261120T164410+0000-11",
];

/// A session of three chunks with one stream in each, at the times that `times` gives.
fn session(trace: &Trace, times: [&[u64]; 3], name: &str) -> TempDir {
    let session = tempfile::tempdir().unwrap();
    for ((number, chunk), times) in (0..).zip(CHUNKS).zip(times) {
        let folder = session.path().join(chunk).join("ust");
        // Each chunk tells of three more that were lost.
        let packet = Packet { discarded: 3 * number, ..packet(number, times) };
        trace.write(&folder, name, &[packet]);
    }
    session
}

fn streams_and_traces(path: &Path) -> (usize, usize) {
    let recording = open(path);
    (recording.streams().len(), recording.traces().len())
}

const IN_ORDER: [&[u64]; 3] = [&[10, 20], &[30, 40], &[50]];

#[test]
fn chunks_of_a_session_join_without_uuid_or_instance_id() {
    for (uuid, instance) in [(Some(7), true), (Some(7), false), (None, true), (None, false)] {
        let trace = Trace { uuid, instance, ..Trace::default() };
        let session = session(&trace, IN_ORDER, "ch");
        assert_eq!(streams_and_traces(session.path()), (1, 1), "{uuid:?} {instance}");
        let all = read(&open(session.path()), TimeRange::ALL);
        assert_eq!(all.times, [10, 20, 30, 40, 50]);
        // What is lost between chunks is known only when they are one stream.
        assert_eq!(all.losses, [(false, 3, 20, 40), (false, 3, 40, 50)]);
    }
}

#[test]
fn chunks_join_in_the_order_of_their_numbers_where_there_is_no_clock() {
    let trace = Trace { uuid: None, instance: false, clock: None, ..Trace::default() };
    let session = session(&trace, IN_ORDER, "ch");
    let recording = open(session.path());
    assert_eq!(recording.streams().len(), 1);
    let files: Vec<_> = recording.streams()[0].files().map(|file| file.path.clone()).collect();
    assert_eq!(files, CHUNKS.map(|chunk| session.path().join(chunk).join("ust/ch")));
}

#[test]
fn look_alikes_that_do_not_follow_each_other_stay_apart() {
    let unnamed = Trace { uuid: None, instance: false, ..Trace::default() };
    // Chunks whose times are not in the order of their numbers.
    let reversed = session(&unnamed, [&[30], &[10], &[50]], "ch");
    assert_eq!(streams_and_traces(reversed.path()), (3, 1));
    // The same place of two sessions.
    let folder = tempfile::tempdir().unwrap();
    for (name, times) in [("one", [1, 2]), ("two", [3, 4])] {
        unnamed.write(&folder.path().join(name).join(CHUNKS[0]), "ch", &[packet(0, &times)]);
    }
    assert_eq!(streams_and_traces(folder.path()), (2, 2));
    // Another process at the same place.
    let session = session(&unnamed, IN_ORDER, "ch");
    let other = Trace { env: "tracer_name = \"lttng-ust\"; vpid = 5;", ..unnamed };
    other.write(&session.path().join(CHUNKS[1]).join("ust"), "ch", &[packet(1, &[30, 40])]);
    assert_eq!(streams_and_traces(session.path()), (2, 2));
}

#[test]
fn two_files_of_one_folder_are_two_streams_without_instance_ids() {
    let trace = Trace { instance: false, ..Trace::default() };
    let folder = tempfile::tempdir().unwrap();
    trace.write(folder.path(), "a", &[packet(0, &[1])]);
    trace.write(folder.path(), "b", &[packet(0, &[2])]);
    assert_eq!(streams_and_traces(folder.path()), (2, 1));
}

#[test]
fn tracefiles_that_lttng_rotated_join_by_cpu_when_they_follow_each_other() {
    let trace = Trace { instance: false, ..Trace::default() };
    let rotated = |second: [u64; 2], cpu: u64, name: &str| {
        let folder = tempfile::tempdir().unwrap();
        trace.write(folder.path(), "ch_0_1", &[packet(0, &[10, 20])]);
        let second = Packet { stream: cpu, discarded: 2, ..packet(1, &second) };
        trace.write(folder.path(), name, &[second]);
        let recording = open(folder.path());
        let losses = read(&recording, TimeRange::ALL).losses.len();
        (recording.streams().len(), losses)
    };
    assert_eq!(rotated([30, 40], 0, "ch_0_0"), (1, 1), "the newest file is called 0 again");
    assert_eq!(rotated([15, 40], 0, "ch_0_0"), (2, 0), "they overlap");
    assert_eq!(rotated([30, 40], 1, "ch_0_0"), (2, 0), "of another CPU");
    assert_eq!(rotated([30, 40], 0, "other_0_0"), (2, 0), "of another channel");
}

/// A CTF 2 trace with one packet: an event record of one byte at `at`.
fn ctf2(folder: &Path, uuid: u8, identity: &str, at: u8) {
    let metadata = format!(
        "\u{1e}{{\"type\":\"preamble\",\"version\":2,\"uuid\":[{uuid},1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}
        \u{1e}{{\"type\":\"trace-class\",{identity}\"packet-header-field-class\":{{\"type\":\"structure\",\"member-classes\":[
          {{\"name\":\"id\",\"field-class\":{{\"type\":\"fixed-length-unsigned-integer\",\"length\":8,\"byte-order\":\"little-endian\",\"alignment\":8,\"roles\":[\"data-stream-id\"]}}}}]}}}}
        \u{1e}{{\"type\":\"clock-class\",\"id\":\"c\",\"name\":\"c\",\"frequency\":1000000000,\"origin\":\"unix-epoch\"}}
        \u{1e}{{\"type\":\"data-stream-class\",\"default-clock-class-id\":\"c\",\"event-record-header-field-class\":{{\"type\":\"structure\",\"member-classes\":[
          {{\"name\":\"t\",\"field-class\":{{\"type\":\"fixed-length-unsigned-integer\",\"length\":8,\"byte-order\":\"little-endian\",\"alignment\":8,\"roles\":[\"default-clock-timestamp\"]}}}}]}}}}
        \u{1e}{{\"type\":\"event-record-class\",\"name\":\"e\"}}"
    );
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("metadata"), metadata).unwrap();
    fs::write(folder.join("stream"), [3, at]).unwrap();
}

#[test]
fn ctf_2_traces_join_by_namespace_name_and_unique_id() {
    let named = |namespace: &str, name: &str, uid: &str| {
        format!("\"namespace\":\"{namespace}\",\"name\":\"{name}\",\"uid\":\"{uid}\",")
    };
    let joined = |a: &str, b: &str, same_uuid: bool| {
        let folder = tempfile::tempdir().unwrap();
        ctf2(&folder.path().join("a"), 1, a, 10);
        ctf2(&folder.path().join("b"), if same_uuid { 1 } else { 2 }, b, 20);
        assert_eq!(read(&open(folder.path()), TimeRange::ALL).times, [10, 20]);
        streams_and_traces(folder.path())
    };
    let own = named("n", "t", "1");
    assert_eq!(joined(&own, &own, true), (1, 1));
    assert_eq!(joined(&own, &own, false), (1, 1), "metadata streams may differ");
    assert_eq!(joined(&own, &named("m", "t", "1"), true), (2, 2));
    assert_eq!(joined(&own, &named("n", "u", "1"), true), (2, 2));
    assert_eq!(joined(&own, &named("n", "t", "2"), true), (2, 2));
    assert_eq!(joined("", "", true), (1, 1), "by the UUID of the metadata stream");
    assert_eq!(joined("", "", false), (2, 2));
}

/// The trace in two folders of a session, with these of eight packets.
fn snapshots(trace: &Trace, a: Range<usize>, b: Range<usize>) -> TempDir {
    let packets: Vec<Packet> = (0..8).map(|n| packet(n, &[n * 10, n * 10 + 5])).collect();
    let folder = tempfile::tempdir().unwrap();
    for (name, packets) in [("snapshot-1", &packets[a]), ("snapshot-2", &packets[b])] {
        trace.write(&folder.path().join(name).join("ust"), "ch", packets);
    }
    folder
}

#[test]
fn packets_that_two_snapshots_hold_are_read_once() {
    for (a, b) in [
        (0..5, 3..8),
        (0..8, 0..8),
        (0..8, 0..3),
        (0..8, 2..5),
        (2..5, 0..8),
        (0..3, 0..8),
        (0..4, 4..8),
    ] {
        let session = snapshots(&Trace::default(), a.clone(), b.clone());
        let recording = open(session.path());
        let expected: Vec<i64> = (0..16).map(|n| n * 5).collect();
        let all = read(&recording, TimeRange::ALL);
        assert_eq!((all.times, all.losses), (expected, vec![]), "{a:?} {b:?}");
        assert_eq!(recording.merged(TimeRange::ALL).backward(), 0);
        for begin in 0..80 {
            let counted = recording.count(range(begin, 1_000), |_| {});
            assert_eq!(
                counted.events,
                (80 - begin).cast_unsigned() / 5,
                "{a:?} {b:?} from {begin}"
            );
        }
        let survey = recording.survey(&mut Findings::default());
        assert_eq!((survey.len(), survey[0].packets, survey[0].lost_packets), (1, 8, 0));
        let checked = check(&[session.path()], &mut |remark| panic!("{remark}")).unwrap();
        assert_eq!((checked.packets, checked.event_records), (8, 16));
    }
}

#[test]
fn packets_that_only_begin_alike_are_all_read() {
    let trace = Trace::default();
    let session = snapshots(&trace, 0..3, 1..3);
    let other = [packet(1, &[10, 15]), Packet { end: 27, ..packet(2, &[20, 26]) }];
    trace.write(&session.path().join("snapshot-2/ust"), "ch", &other);
    let times = read(&open(session.path()), TimeRange::ALL).times;
    assert_eq!(times, [0, 5, 10, 15, 20, 25, 20, 26]);
    // Without a time, nothing tells that they are the same.
    let untimed = snapshots(&Trace { clock: None, ..trace }, 0..3, 1..3);
    assert_eq!(read(&open(untimed.path()), TimeRange::ALL).times.len(), 10);
}

#[test]
fn one_metadata_in_a_hundred_folders_is_parsed_once() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::default();
    for chunk in 0..100 {
        let stream = Packet { stream: chunk % 3, ..packet(chunk, &[chunk * 10]) };
        trace.write(&folder.path().join(chunk.to_string()), "ch", &[stream]);
    }
    let mut cache = ClassCache::default();
    let recording = Recording::open_with(&[folder.path()], &mut cache).unwrap();
    assert_eq!(cache.parsed(), 1);
    assert_eq!((recording.streams().len(), recording.traces().len()), (3, 1));
    let expected: Vec<i64> = (0..100).map(|chunk| chunk * 10).collect();
    assert_eq!(read(&recording, TimeRange::ALL).times, expected);
}
