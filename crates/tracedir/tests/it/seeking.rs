//! Ranges of time: nothing of them is missed, whatever tracers say about their packets.

use std::fs;
use std::path::Path;

use ctf::index::{IndexEntry, IndexVersion, PacketIndex, StreamPosition};
use model::TimeRange;

use crate::made::{Packet, Trace, open, packet, range, read};

/// Packets with ten event records each: `100 n` to `100 n + 90`.
fn regular(packets: u64) -> Vec<Packet> {
    let times = |number: u64| (0..10).map(|k| 100 * number + 10 * k).collect::<Vec<_>>();
    (0..packets).map(|number| packet(number, &times(number))).collect()
}

fn index(trace: &Trace, packets: &[Packet], version: IndexVersion) -> PacketIndex {
    let mut offset_bytes = 0;
    let mut entries = Vec::new();
    for packet in packets {
        let total_length_bits = trace.bytes(packet).len() as u64 * 8;
        entries.push(IndexEntry {
            offset_bytes,
            total_length_bits,
            content_length_bits: total_length_bits - packet.padding as u64 * 8,
            timestamp_begin: packet.begin,
            timestamp_end: packet.end,
            events_discarded: packet.discarded,
            stream_class_id: 0,
            position: (version == IndexVersion::V1_1).then_some(StreamPosition {
                stream_instance_id: packet.stream,
                packet_seq_num: packet.sequence,
            }),
        });
        offset_bytes += total_length_bits / 8;
    }
    PacketIndex { version, entries }
}

fn write_index(folder: &Path, name: &str, index: &PacketIndex) {
    fs::create_dir_all(folder.join("index")).unwrap();
    fs::write(folder.join("index").join(format!("{name}.idx")), index.encode()).unwrap();
}

/// Every range whose ends are among `cuts` holds exactly the times between them.
fn check_ranges(folder: &Path, all: &[i64], cuts: &[i64]) {
    let recording = open(folder);
    let mut expected = all.to_vec();
    expected.sort_unstable();
    for (at, begin) in cuts.iter().enumerate() {
        for end in &cuts[at..] {
            let mut times = read(&recording, range(*begin, *end)).times;
            times.sort_unstable();
            let inside: Vec<i64> =
                expected.iter().copied().filter(|at| at >= begin && at < end).collect();
            assert_eq!(times, inside, "from {begin} to {end}");
        }
    }
}

fn times(packets: &[Packet]) -> Vec<i64> {
    packets.iter().flat_map(|packet| &packet.times).map(|at| i64::try_from(*at).unwrap()).collect()
}

const CUTS: [i64; 12] =
    [i64::MIN, 0, 90, 91, 100, 101, 1_450, 3_899, 3_900, 3_995, 4_000, i64::MAX];

#[test]
fn with_an_index_by_calculation_and_from_header_to_header_a_range_holds_the_same() {
    let even = regular(40);
    let mut uneven = even.clone();
    uneven.iter_mut().enumerate().for_each(|(number, packet)| packet.padding = number % 3);
    // As long as forty even ones, but not even.
    let mut deceiving = even.clone();
    deceiving[3].padding = 60;
    deceiving.remove(20);
    for packets in [even, uneven, deceiving] {
        for version in [None, Some(IndexVersion::V1_0), Some(IndexVersion::V1_1)] {
            for sequence in [true, false] {
                let trace = Trace { sequence, ..Trace::default() };
                let folder = tempfile::tempdir().unwrap();
                trace.write(folder.path(), "ch", &packets);
                if let Some(version) = version {
                    write_index(folder.path(), "ch", &index(&trace, &packets, version));
                }
                check_ranges(folder.path(), &times(&packets), &CUTS);
            }
        }
    }
}

#[test]
fn an_index_that_contradicts_the_packets_is_not_followed() {
    let (trace, packets) = (Trace::default(), regular(40));
    let good = index(&trace, &packets, IndexVersion::V1_1);
    let lies: [fn(&mut PacketIndex); 4] = [
        // Of another stream.
        |index| {
            index
                .entries
                .iter_mut()
                .for_each(|e| e.position.as_mut().unwrap().stream_instance_id = 9)
        },
        // All packets are said to lie far in the past.
        |index| {
            for entry in &mut index.entries[1..] {
                (entry.timestamp_begin, entry.timestamp_end) = (1, 2);
            }
        },
        // The first is said to be another.
        |index| index.entries[0].timestamp_begin = 1,
        // Ends between packets.
        |index| {
            index.entries[20].total_length_bits += 80;
            for entry in &mut index.entries[21..] {
                entry.offset_bytes += 10;
            }
            index.entries[39].total_length_bits -= 80;
        },
    ];
    for lie in lies {
        let folder = tempfile::tempdir().unwrap();
        trace.write(folder.path(), "ch", &packets);
        let mut index = good.clone();
        lie(&mut index);
        write_index(folder.path(), "ch", &index);
        check_ranges(folder.path(), &times(&packets), &CUTS);
    }
}

#[test]
fn packet_bounds_of_old_tracers_cost_no_event_record() {
    // LTTng's known fault: ends before the last event records.
    let mut ends_early = regular(20);
    ends_early.iter_mut().for_each(|packet| packet.end -= 50);
    // Left by a crash: never closed.
    let mut unclosed = regular(20);
    unclosed.iter_mut().for_each(|packet| packet.end = 0);
    // barectf: begins after the first event records.
    let mut begins_late = regular(20);
    begins_late.iter_mut().for_each(|packet| packet.begin += 50);
    let barectf =
        "tracer_name = \"barectf\"; tracer_major = 2; tracer_minor = 3; tracer_patch = 0;";
    for (packets, env) in [
        (ends_early, Trace::default().env),
        (unclosed, Trace::default().env),
        (begins_late, barectf),
    ] {
        let trace = Trace { env, ..Trace::default() };
        let folder = tempfile::tempdir().unwrap();
        trace.write(folder.path(), "ch", &packets);
        let cuts = [0, 99, 100, 120, 145, 150, 160, 1_000, 1_149, 1_150, 1_989, 1_991];
        check_ranges(folder.path(), &times(&packets), &cuts);
    }
}

#[test]
fn event_records_before_the_begin_of_a_barectf_packet_keep_the_order_over_streams() {
    let env = "tracer_name = \"barectf\"; tracer_major = 2; tracer_minor = 2; tracer_patch = 1;";
    let trace = Trace { env, ..Trace::default() };
    let folder = tempfile::tempdir().unwrap();
    let late = Packet { begin: 60, ..packet(0, &[10, 50, 70]) };
    trace.write(folder.path(), "a", &[late, Packet { begin: 95, ..packet(1, &[80, 100]) }]);
    let other = Packet { stream: 1, ..packet(0, &[20, 55, 65, 90]) };
    fs::write(folder.path().join("b"), trace.stream(&[other])).unwrap();
    let recording = open(folder.path());
    let all = read(&recording, TimeRange::ALL);
    assert_eq!(all.times, [10, 20, 50, 55, 65, 70, 80, 90, 100]);
    assert_eq!(recording.merged(TimeRange::ALL).backward(), 0);
    assert_eq!(read(&recording, range(80, 91)).times, [80, 90]);
}

#[test]
fn ranges_begin_in_the_right_one_of_many_files() {
    let (trace, packets) = (Trace::default(), regular(40));
    let folder = tempfile::tempdir().unwrap();
    for (number, packets) in packets.chunks(4).enumerate() {
        // Not in the order of their names.
        trace.write(folder.path(), &format!("ch_{}", (number * 7) % 10), packets);
    }
    let recording = open(folder.path());
    assert_eq!(recording.streams().len(), 1);
    check_ranges(folder.path(), &times(&packets), &CUTS);
}

#[test]
fn a_packet_whose_lengths_contradict_each_other_costs_itself_alone() {
    let trace = Trace::default();
    let packets = regular(3);
    let mut bytes = trace.stream(&packets);
    let len = bytes.len() / 3;
    // lttng-crash leaves a content length of 0 where nobody closed the packet. It lies after header and two times.
    bytes[len + 48..len + 56].fill(0);
    let folder = tempfile::tempdir().unwrap();
    trace.write(folder.path(), "ch", &[]);
    fs::write(folder.path().join("ch"), bytes).unwrap();
    let recording = open(folder.path());
    let mut merged = recording.merged(TimeRange::ALL);
    let read = crate::made::drain(&mut merged);
    assert_eq!(read.times.len(), 20);
    let findings = merged.findings().kept();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].to_string().contains(&format!("byte {len}")), "{}", findings[0]);
}
