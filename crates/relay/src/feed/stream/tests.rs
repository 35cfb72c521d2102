//! One stream with packets, beacons and silence.

use super::*;
use crate::feed::file::TraceFile;
use crate::feed::law::MOST_SPAN;
use crate::feed::packet::Stored;
use crate::feed::reach::Reach;
use std::sync::Arc;
use wire::live::{ChunkId, StreamHandle};

const KEPT: Kept = Kept { packets: 4, files: 3, pace: Some(MOST_SPAN) };

fn chunk(number: u64) -> ChunkKey {
    ChunkKey::Since(ChunkId::new(number))
}

pub(crate) fn entry(number: u64, begin: u64, end: u64) -> PacketIndex {
    PacketIndex {
        handle: StreamHandle::new(1),
        net_seq_num: NetSeqNum::new(number),
        packet_size_bits: if begin == u64::MAX { 0 } else { 32_768 },
        content_size_bits: 672,
        timestamp_begin: begin,
        timestamp_end: end,
        events_discarded: 0,
        stream_class_id: 7,
        full: None,
    }
}

fn place(number: u64) -> Place {
    Place { file: 0, offset: number * 4096 }
}

fn release(stream: &mut Stream, number: u64, begin: u64, now: Instant) {
    stream.release(chunk(0), place(number), &entry(number, begin, begin + 9), now, KEPT);
    stream.settled(None, Some(NetSeqNum::new(number)));
}

fn beacon(stream: &mut Stream, number: u64, until: u64) {
    stream.beacon(&entry(number, u64::MAX, until));
    stream.settled(None, Some(NetSeqNum::new(number)));
}

/// The next answer as text; a packet is taken.
fn ask(stream: &Stream, cursor: &mut Cursor, now: Instant, untimed: Option<Untimed<'_>>) -> String {
    ask_with(stream, cursor, None, now, untimed)
}

fn ask_with(
    stream: &Stream,
    cursor: &mut Cursor,
    page: Option<&Page>,
    now: Instant,
    untimed: Option<Untimed<'_>>,
) -> String {
    match stream.next(cursor, page, now, untimed) {
        Next::Packet(number, packet) => {
            cursor.next = number + 1;
            format!("packet {} at {}", number - ORIGIN, packet.entry.offset_bytes)
        }
        Next::Stored(Stored { segment, number, count }) => {
            format!("read {count} from {} of {}", number - segment.first, segment.file)
        }
        Next::Inactive { until, class } => format!("nothing before {until} (class {class})"),
        Next::NotYet => "not yet".to_owned(),
        Next::Ended => "ended".to_owned(),
    }
}

#[test]
fn a_stream_with_a_live_timer_is_packets_and_beacons() {
    let now = Instant::now();
    let mut stream = Stream::default();
    let mut cursor = stream.beginning();
    assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
    beacon(&mut stream, u64::MAX, 50);
    assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 50 (class 7)");
    release(&mut stream, 0, 100, now);
    assert_eq!(ask(&stream, &mut cursor, now, None), "packet 0 at 0");
    assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
    beacon(&mut stream, 0, 150);
    assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 150 (class 7)");
    stream.close();
    assert_eq!(ask(&stream, &mut cursor, now, None), "ended");
}

#[test]
fn a_beacon_waits_for_the_packets_it_speaks_of() {
    let mut stream = Stream::default();
    let mut cursor = stream.beginning();
    let now = Instant::now();
    let number = NetSeqNum::new(0);
    stream.settled(Some(number), Some(number));
    stream.beacon(&entry(0, u64::MAX, 150));
    stream.settled(Some(number), Some(number));
    assert_eq!(ask(&stream, &mut cursor, now, None), "not yet");
    release(&mut stream, 0, 100, now);
    assert_eq!(ask(&stream, &mut cursor, now, None), "packet 0 at 0");
    assert_eq!(ask(&stream, &mut cursor, now, None), "nothing before 150 (class 7)");
}

#[test]
fn a_packet_that_was_said_not_to_come_is_withheld() {
    let now = Instant::now();
    let mut stream = Stream::default();
    let mut early = stream.beginning();
    beacon(&mut stream, u64::MAX, 50);
    ask(&stream, &mut early, now, None);
    assert!(!stream.keeps_promise(&entry(0, 40, 49)));
    release(&mut stream, 0, 40, now);
    release(&mut stream, 1, 60, now);
    assert_eq!(ask(&stream, &mut early, now, None), "packet 1 at 4096");
    assert_eq!((early.withheld, early.missed), (1, 0));
    let mut late = stream.beginning();
    assert_eq!(ask(&stream, &mut late, now, None), "packet 0 at 0");
}

#[test]
fn what_is_not_in_memory_is_read() {
    let now = Instant::now();
    let mut stream = Stream::default();
    for number in 0..12 {
        let place = Place { file: number / 3, offset: number % 3 * 4096 };
        stream.release(chunk(0), place, &entry(number, number, number), now, KEPT);
    }
    assert_eq!(stream.len(), (4, 3), "the first file is forgotten");
    let mut cursor = stream.beginning();
    assert_eq!(cursor.next, ORIGIN + 3);
    assert_eq!(ask(&stream, &mut cursor, now, None), "read 3 from 0 of 1");
    let null = Arc::new(std::fs::File::open("/dev/null").unwrap());
    let page = |number, first| Page {
        chunk: chunk(0),
        number,
        first: ORIGIN + first,
        entries: (first..first + 2)
            .map(|number| index::entry(number % 3 * 4096, &entry(number, number, number)))
            .collect(),
        file: Some(TraceFile::written(&null)),
    };
    let mut say = |page| ask_with(&stream, &mut cursor, Some(&page), now, None);
    assert_eq!(say(page(1, 3)), "packet 3 at 0");
    assert_eq!(say(page(1, 3)), "packet 4 at 4096");
    assert_eq!(say(page(1, 3)), "read 1 from 2 of 1");
    assert_eq!(say(page(2, 5)), "read 1 from 2 of 1", "a page of another file");
    assert_eq!(say(page(1, 5)), "packet 5 at 8192");
    assert_eq!(say(page(1, 5)), "read 2 from 0 of 2");
    assert_eq!(say(page(2, 6)), "packet 6 at 0");
    assert_eq!(say(page(2, 6)), "packet 7 at 4096");
    let seen: Vec<String> = (0..5).map(|_| ask(&stream, &mut cursor, now, None)).collect();
    let memory = ["packet 8 at 8192", "packet 9 at 0", "packet 10 at 4096", "packet 11 at 8192"];
    assert_eq!(seen[..4], memory);
    assert_eq!((seen[4].as_str(), cursor.missed), ("not yet", 0));

    let mut late = stream.beginning();
    assert_eq!(stream.lose(|_, file| file == 1).files, -1);
    assert_eq!(ask(&stream, &mut late, now, None), "read 2 from 0 of 2");
    assert_eq!(late.missed, 3);
}

#[test]
fn what_is_gone_is_missed_and_counted() {
    let now = Instant::now();
    let mut stream = Stream::default();
    let mut cursor = stream.beginning();
    for number in 0..6 {
        let place = Place { file: number, offset: 7 };
        stream.release(chunk(0), place, &entry(number, number, number), now, KEPT);
    }
    assert_eq!(stream.lose(|_, file| file == 2 || file == 4).files, -1);
    assert_eq!(ask(&stream, &mut cursor, now, None), "packet 3 at 7");
    assert_eq!(ask(&stream, &mut cursor, now, None), "packet 5 at 7");
    assert_eq!((cursor.missed, stream.len()), (4, (4, 2)));
}

#[test]
fn packets_that_were_moved_are_found_where_they_are() {
    let now = Instant::now();
    let mut stream = Stream::default();
    for number in 0..4 {
        release(&mut stream, number, number * 10, now);
    }
    stream.relocate((chunk(0), 0, 8192), &[2], chunk(1));
    let at = |number| {
        let packet = stream.find(ORIGIN + number).unwrap().unwrap();
        (packet.chunk, packet.entry.offset_bytes)
    };
    assert_eq!([at(1), at(2), at(3)], [(chunk(0), 4096), (chunk(1), 0), (chunk(1), 4096)]);
}

#[test]
fn without_a_timer_silence_speaks_after_a_while() {
    let start = Instant::now();
    let grace = Duration::from_secs(2);
    let at = |millis| start + Duration::from_millis(millis);
    let mut reach = Reach::default();
    let mut stream = Stream::default();
    let mut cursor = stream.beginning();
    let say = |stream: &Stream, cursor: &mut Cursor, millis, reach: &Reach| {
        let is_final = stream.is_closed();
        let untimed = Untimed { grace, reach, span: Duration::ZERO, is_final, class: None };
        ask(stream, cursor, at(millis), Some(untimed))
    };
    // Its packets take 400 ms to be sent.
    let first = entry(0, 100, 400_000_100);
    stream.release(chunk(0), place(0), &first, at(0), KEPT);
    stream.settled(None, Some(NetSeqNum::new(0)));
    assert_eq!(say(&stream, &mut cursor, 1999, &reach), "not yet");
    assert_eq!(say(&stream, &mut cursor, 2000, &reach), "packet 0 at 0");
    assert_eq!(say(&stream, &mut cursor, 2000, &reach), "not yet");
    reach.note(at(100), 300_000_000, MOST_SPAN);
    assert_eq!(say(&stream, &mut cursor, 2501, &reach), "not yet", "it would go back");
    reach.note(at(200), 500_000_000, MOST_SPAN);
    assert_eq!(say(&stream, &mut cursor, 2599, &reach), "not yet");
    assert_eq!(say(&stream, &mut cursor, 2600, &reach), "nothing before 500000000 (class 7)");
    release(&mut stream, 1, 600_000_000, at(3000));
    assert_eq!(say(&stream, &mut cursor, 3000, &reach), "not yet");
    stream.close();
    assert_eq!(say(&stream, &mut cursor, 3000, &reach), "packet 1 at 4096");
    assert_eq!(say(&stream, &mut cursor, 3000, &reach), "ended");
}

#[test]
fn a_silent_stream_takes_class_and_span_of_others() {
    let start = Instant::now();
    let mut reach = Reach::default();
    reach.note(start, 5, MOST_SPAN);
    let (grace, span) = (Duration::from_millis(10), Duration::from_millis(30));
    let stream = Stream::default();
    let say = |millis, class| {
        let untimed = Untimed { grace, reach: &reach, span, is_final: false, class };
        let now = start + Duration::from_millis(millis);
        ask(&stream, &mut stream.beginning(), now, Some(untimed))
    };
    assert_eq!(say(40, None), "not yet");
    assert_eq!(say(39, Some(3)), "not yet");
    assert_eq!(say(40, Some(3)), "nothing before 5 (class 3)");
}
