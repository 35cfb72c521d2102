//! Viewers of a session that was there before: of a relay that was killed, or a producer that lost its connection.

use std::collections::BTreeMap;

use relay::Limits;
use wire::live::viewer::{NewStreamsReply, NextIndex, Seek, StreamEntry};
use wire::live::{CloseAction, Command, GetConfiguration, Request as Order, StreamHandle};

use crate::client::Reply as Answer;
use crate::crash::copy;
use crate::disk::wait_until;
use crate::producer::{Producer, STREAM_PATH, add_stream};
use crate::viewer::{METADATA, Setup, Viewer, live};
use crate::viewer_replay::Reply;

const OTHER_PATH: &str = "ust/pid/p-7";

impl Setup {
    /// A stream in another folder; the first in it is its metadata.
    fn add(&mut self, channel: &str, folder: &str, chunk: u64) -> StreamHandle {
        let request = Order::AddStream(add_stream(channel, folder, chunk));
        let Answer::Stream(reply) = self.producer.control.ask(&request) else { panic!("a stream") };
        reply.handle
    }

    fn send_to(&mut self, stream: StreamHandle, numbers: impl IntoIterator<Item = u64>) {
        let own = std::mem::replace(&mut self.stream, stream);
        self.send(numbers);
        self.stream = own;
    }

    /// A relay with the same folder as it is now, as if this one had been killed; the producer comes back with `chunk`.
    fn kill(self, chunk: u64, limits: Limits) -> Self {
        let image = tempfile::tempdir().unwrap();
        copy(self.root.path(), image.path());
        self.end();
        Self::in_folder(image, chunk, live(), |config| config.limits = limits)
    }

    /// What a viewer finds in each stream, by folder and channel, and its metadata.
    fn all(&self, seek: Seek) -> (BTreeMap<String, Vec<u64>>, Viewer, Vec<StreamEntry>) {
        let mut viewer = Viewer::connect(&self.relay, 15);
        let session = viewer.sessions().first().unwrap().session;
        let streams = viewer.attach(session, seek);
        let mut found = BTreeMap::new();
        for stream in &streams {
            if stream.is_metadata {
                let metadata = viewer.metadata(StreamHandle::new(stream.stream.get()));
                assert_eq!(metadata, METADATA, "{}", stream.path);
            } else {
                let name = format!("{}/{}", stream.path, stream.channel);
                let numbers = viewer.read_on(stream.stream);
                assert_eq!(found.insert(name, numbers), None);
            }
        }
        (found, viewer, streams)
    }
}

fn found<const N: usize>(streams: [(&str, &str, Vec<u64>); N]) -> BTreeMap<String, Vec<u64>> {
    let name = |folder: &str, channel: &str| format!("{folder}/{channel}");
    streams.into_iter().map(|(folder, channel, numbers)| (name(folder, channel), numbers)).collect()
}

/// Three chunks: one archived, one of them with streams that are only there, the last still open.
fn recorded(limits: Limits) -> Setup {
    let mut setup = Setup::with(live(), limits);
    setup.send(0..10);
    let ended = setup.add("ch_9", OTHER_PATH, 0);
    let its_metadata = setup.add("metadata", OTHER_PATH, 0);
    setup.producer.metadata(its_metadata, METADATA);
    setup.producer.ok(&Order::StreamsSent);
    setup.send_to(ended, 3..6);
    setup.producer.rotate(None, &[(ended, 6), (its_metadata, 0)]);
    setup.rotate(0, 10, CloseAction::MoveToArchives);
    setup.send(10..15);
    setup
}

#[test]
fn what_was_recorded_before_a_kill_is_shown_to_who_begins_at_the_beginning() {
    let memory = Limits { viewed_packets_per_stream: 4, ..Limits::default() };
    let mut setup = recorded(memory.clone()).kill(2, memory);
    setup.send(15..25);
    setup.rotate(2, 25, CloseAction::MoveToArchives);
    setup.send(25..30);
    let all = |to: u64| {
        found([(STREAM_PATH, "ch_0", (0..to).collect()), (OTHER_PATH, "ch_9", vec![3, 4, 5])])
    };
    let (seen, mut viewer, _) = setup.all(Seek::Beginning);
    assert_eq!(seen, all(30));
    setup.send(30..33);
    assert_eq!(viewer.read_on(setup.viewed()), [30, 31, 32]);
    assert_eq!(setup.all(Seek::Beginning).0, all(33), "the next one too");
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);

    // And once more.
    let mut setup = setup.kill(4, Limits::default());
    setup.send(33..35);
    assert_eq!(setup.all(Seek::Beginning).0, all(35));
    setup.end();
}

#[test]
fn who_begins_at_the_end_is_not_shown_what_was_before() {
    let mut setup = recorded(Limits::default()).kill(2, Limits::default());
    setup.send(15..20);
    let mut last = setup.attach(Seek::Last);
    last.new_streams();
    setup.all(Seek::Beginning);
    setup.send(20..22);
    assert_eq!(last.read_on(setup.viewed()), [20, 21]);
    assert_eq!(last.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    // One that was there before comes back only now.
    let back = setup.add("ch_9", OTHER_PATH, 2);
    let its_metadata = setup.add("metadata", OTHER_PATH, 2);
    setup.producer.metadata(its_metadata, METADATA);
    setup.producer.ok(&Order::StreamsSent);
    setup.send_to(back, 40..42);
    let Reply::Streams(NewStreamsReply::Streams(2), streams) = last.new_streams() else {
        panic!("the stream that came back, and its metadata")
    };
    let stream = streams.iter().find(|stream| !stream.is_metadata).unwrap();
    assert_eq!(last.read_on(stream.stream), [40, 41]);
    let (all, ..) = setup.all(Seek::Beginning);
    assert_eq!(
        all,
        found([
            (STREAM_PATH, "ch_0", (0..22).collect()),
            (OTHER_PATH, "ch_9", vec![3, 4, 5, 40, 41]),
        ])
    );
    setup.end();
}

#[test]
fn a_chunk_of_before_that_was_deleted_is_missed_and_ends_nobody() {
    let mut setup = recorded(Limits::default()).kill(2, Limits::default());
    setup.send(15..20);
    let mut viewer = setup.attach(Seek::Beginning);
    let archives = setup.relay.root().join(setup.producer.folder.as_path()).join("archives");
    for chunk in std::fs::read_dir(archives).unwrap() {
        let chunk = chunk.unwrap().path();
        if chunk.to_str().unwrap().ends_with("-0") {
            std::fs::remove_dir_all(chunk).unwrap();
        }
    }
    wait_until("what is left", || {
        matches!(viewer.next(setup.viewed()).index,
            NextIndex::Packet(entry) if entry.timestamp_begin == 10)
    });
    assert_eq!(viewer.read_on(setup.viewed()), (11..20).collect::<Vec<_>>());
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 10);
    setup.end();
}

/// Says that it comes back when its connection is lost.
fn can_resume(producer: &mut Producer) {
    let flags = GetConfiguration { query_flags: GetConfiguration::RESUME };
    let Answer::Configuration(reply) = producer.control.ask(&Order::GetConfiguration(flags)) else {
        panic!("a configuration")
    };
    assert!(reply.can_resume);
    assert_eq!(Order::StreamPositions.command(), Command::StreamPositions);
    assert!(matches!(producer.control.ask(&Order::StreamPositions), Answer::Positions(_)));
}

#[test]
fn a_viewer_reads_on_when_the_producer_comes_back_before_it_was_missed() {
    let mut setup = Setup::with(live(), Limits::default());
    can_resume(&mut setup.producer);
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    viewer.new_streams();
    assert_eq!(viewer.read_on(setup.viewed()), [0, 1, 2]);
    let before = setup.viewed();

    // Its old connections still seem to be there.
    let mut back = Producer::new(&setup.relay, live());
    assert_eq!(back.folder, setup.producer.folder);
    can_resume(&mut back);
    assert_eq!(viewer.next(before).index, NextIndex::NotYet, "it is not over");
    back.chunk(1);
    let stream = back.stream("ch_0", 1);
    let metadata = back.stream("metadata", 1);
    back.metadata(metadata, METADATA);
    back.ok(&Order::StreamsSent);
    (setup.producer, setup.stream) = (back, stream);
    setup.send(3..6);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    assert_eq!(viewer.read_on(before), [3, 4, 5]);
    let (all, ..) = setup.all(Seek::Beginning);
    assert_eq!(all, found([(STREAM_PATH, "ch_0", (0..6).collect())]));

    // It ends without a word: so does the session.
    setup.producer.control.end();
    setup.producer.data.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("the end", || viewer.next(before).index == NextIndex::HangUp);
    setup.end();
}

#[test]
fn who_wants_what_ends_at_a_time_or_later_is_shown_nothing_before_it() {
    let memory = Limits { viewed_packets_per_stream: 4, ..Limits::default() };
    let mut setup = recorded(memory.clone()).kill(2, memory);
    setup.send(15..25);
    setup.rotate(2, 25, CloseAction::MoveToArchives);
    setup.send(25..30);
    // The packet N ends at N + 1; 3, 4 and 5 are in the other stream.
    for since in [1, 2, 5, 6, 7, 10, 11, 16, 21, 25, 26, 27, 30, 31, 40] {
        let from = since - 1;
        let expected = found([
            (STREAM_PATH, "ch_0", (from..30).collect()),
            (OTHER_PATH, "ch_9", (from.max(3)..6).collect()),
        ]);
        assert_eq!(setup.all(Seek::Since(since)).0, expected, "{since}");
    }
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}
