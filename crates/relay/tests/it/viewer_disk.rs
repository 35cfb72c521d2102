//! Packets that are not in memory any more: viewers get them from the chunks.

use relay::Limits;
use wire::live::CloseAction;
use wire::live::viewer::{NextIndex, Seek};

use crate::disk::wait_until;
use crate::producer::STREAM_PATH;
use crate::viewer::{Setup, Viewer, live, whole};

/// Four packets in memory; the others are on the disk.
fn little_memory() -> Limits {
    Limits { viewed_packets_per_stream: 4, ..Limits::default() }
}

#[test]
fn what_is_not_in_memory_is_read_from_the_chunks() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..1);
    let mut early = setup.attach(Seek::Beginning);
    assert_eq!(early.next_entry(stream).timestamp_begin, 0);
    setup.send(1..70);
    setup.rotate(0, 70, CloseAction::MoveToArchives);
    setup.send(70..75);
    let mut second = setup.attach(Seek::Beginning);
    let read = |viewer: &mut Viewer, count: u64| -> Vec<u64> {
        (0..count).map(|_| viewer.next_entry(stream).timestamp_begin).collect()
    };
    assert_eq!(read(&mut second, 40), (0..40).collect::<Vec<_>>());
    // Its chunks move while it stands in them.
    setup.rotate(1, 75, CloseAction::MoveToArchives);
    setup.send(75..76);
    setup.rotate(2, 76, CloseAction::MoveToArchives);
    assert_eq!(second.read_on(stream), (40..76).collect::<Vec<_>>());
    assert_eq!(early.read_on(stream), (1..76).collect::<Vec<_>>());
    setup.send(76..90);
    for viewer in [&mut early, &mut second] {
        assert_eq!(viewer.read_on(stream), (76..90).collect::<Vec<_>>(), "at the seam");
    }
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..90).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn chunks_that_were_compressed_are_read_on() {
    let mut setup = Setup::configured(live(), |config| {
        config.limits = little_memory();
        config.compress = Some("zstd".parse().unwrap());
    });
    let stream = setup.viewed();
    setup.send(0..40);
    // One stands in the file that goes, one comes later.
    let mut early = setup.attach(Seek::Beginning);
    assert_eq!(early.next_entry(stream).timestamp_begin, 0);
    setup.rotate(0, 40, CloseAction::MoveToArchives);
    wait_until("compression", || setup.relay.totals().chunks_compressed == 1);
    assert_eq!(early.bytes(stream, 0, 128), whole(0));
    setup.send(40..60);
    setup.rotate(1, 60, CloseAction::MoveToArchives);
    wait_until("compression", || setup.relay.totals().chunks_compressed == 2);
    setup.send(60..65);
    assert_eq!(early.read_on(stream), (1..65).collect::<Vec<_>>());
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..65).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn what_was_announced_from_the_disk_is_given_whatever_becomes_of_its_chunk() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..40);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 40, CloseAction::Delete);
    setup.send(40..50);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0));
    assert_eq!(viewer.read_on(stream), (40..50).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 39);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (40..50).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 39, "they were gone before");
    setup.end();
}

#[test]
fn packets_that_ran_ahead_are_read_from_the_disk_where_they_go() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..30);
    let mut viewer = setup.attach(Seek::Beginning);
    for number in 0..12 {
        assert_eq!(viewer.next_entry(stream).timestamp_begin, number);
    }
    // Packet 11 was announced in the file that it and what was read ahead now leave.
    setup.rotate(0, 10, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, 11 * 128, 128), whole(11));
    assert_eq!(viewer.read_on(stream), (12..30).collect::<Vec<_>>());
    setup.end();
}

#[test]
fn an_index_that_cannot_be_read_costs_its_packets_and_not_the_viewer() {
    let mut setup = Setup::with(live(), little_memory());
    let stream = setup.viewed();
    setup.send(0..20);
    setup.rotate(0, 20, CloseAction::MoveToArchives);
    setup.send(20..30);
    let archives = setup.relay.root().join(setup.producer.folder.as_path()).join("archives");
    let chunk = std::fs::read_dir(&archives).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(chunk.join(STREAM_PATH).join("index/ch_0.idx")).unwrap();
    let mut viewer = setup.attach(Seek::Beginning);
    wait_until(
        "what can be read",
        || matches!(viewer.next(stream).index, NextIndex::Packet(entry) if entry.timestamp_begin == 20),
    );
    assert_eq!(viewer.read_on(stream), (21..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 20);
    setup.end();
}

#[test]
fn history_is_bounded_by_its_files_and_what_is_beyond_is_counted() {
    let limits = Limits { viewed_files_per_stream: 2, ..little_memory() };
    let mut setup = Setup::with(live(), limits);
    let stream = setup.viewed();
    setup.send(0..1);
    let mut viewer = setup.attach(Seek::Beginning);
    setup.send(1..10);
    setup.rotate(0, 10, CloseAction::MoveToArchives);
    setup.send(10..20);
    setup.rotate(1, 20, CloseAction::MoveToArchives);
    setup.send(20..30);
    assert_eq!(viewer.read_on(stream), (10..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 10);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (10..30).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 10);
    setup.end();
}
