//! What viewers are told of streams, their metadata and the time that has passed in them.

use std::time::{Duration, Instant};

use relay::Limits;
use tokio::runtime::Runtime;
use wire::live::viewer::{Flags, NewStreamsReply, NextIndex, Seek};
use wire::live::{Request as Order, ResetMetadata};

use crate::client::shown;
use crate::producer::{Producer, STREAM_PATH, session, start};
use crate::viewer::{METADATA, Setup, Viewer, live, wait_for};
use crate::viewer_replay::Reply;

#[test]
fn streams_are_seen_once_they_are_announced() {
    let mut setup = Setup::new();
    let old = setup.viewed();
    setup.send(0..1);
    let mut viewer = setup.attach(Seek::Last);
    assert_eq!(viewer.next(old).flags, Flags::NEW_STREAMS);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    assert_eq!(viewer.next(old).flags, Flags::NONE);

    let late = setup.producer.stream("ch_1", 0);
    assert_eq!(viewer.sessions().first().unwrap().streams, 2);
    assert_eq!(viewer.next(old).flags, Flags::NONE);
    setup.stream = late;
    setup.send(0..2);
    setup.producer.ok(&Order::StreamsSent);
    let asked = [viewer.next(old).flags, viewer.next(old).flags];
    assert_eq!(asked, [Flags::NEW_STREAMS; 2], "said until it is asked for");
    let Reply::Streams(NewStreamsReply::Streams(1), streams) = viewer.new_streams() else {
        panic!("the new stream")
    };
    let [entry] = streams.as_slice() else { panic!("{streams:?}") };
    assert_eq!((entry.path.as_str(), entry.channel.as_str()), (STREAM_PATH, "ch_1"));
    assert_eq!(viewer.read_on(entry.stream), [0, 1], "from its beginning");

    // Before 2.15 only packets carry flags.
    let mut older = Viewer::connect(&setup.relay, 4);
    let session = older.sessions().first().unwrap().session;
    assert_eq!(older.attach(session, Seek::Last).len(), 3);
    let said = older.next(old);
    assert_eq!((said.index, said.flags), (NextIndex::NotYet, Flags::NONE));
    setup.end();
}

#[test]
fn time_stands_for_a_viewer_that_does_not_know_all_streams() {
    let mut setup = Setup::new();
    let (old, known) = (setup.stream, setup.viewed());
    let mut viewer = setup.attach(Seek::Beginning);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    setup.beacon(u64::MAX, 10);
    assert!(matches!(viewer.next(known).index, NextIndex::Inactive { until: 10, .. }));

    let late = setup.producer.stream("ch_1", 0);
    setup.stream = late;
    setup.send([20]);
    setup.producer.ok(&Order::StreamsSent);
    setup.stream = old;
    setup.beacon(u64::MAX, 90);
    let reply = viewer.next(known);
    assert_eq!(
        (reply.index, reply.flags),
        (NextIndex::NotYet, Flags::NEW_STREAMS),
        "20 is to come"
    );
    let Reply::Streams(NewStreamsReply::Streams(1), streams) = viewer.new_streams() else {
        panic!("the new stream")
    };
    assert!(matches!(viewer.next(known).index, NextIndex::Inactive { until: 90, .. }));
    assert_eq!(viewer.read_on(streams.first().unwrap().stream), [20]);
    setup.end();
}

#[test]
fn metadata_come_whole_and_before_what_they_describe() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    let mut viewer = setup.attach(Seek::Beginning);
    viewer.new_streams();
    setup.send_metadata(b"\nevent { id = 1");
    assert_eq!(viewer.metadata(setup.metadata), b"\n");
    setup.send_metadata(b"; };");
    setup.send(0..1);
    let reply = viewer.next(stream);
    assert!(matches!(reply.index, NextIndex::Packet(_)));
    assert_eq!(reply.flags, Flags::NEW_METADATA);
    assert_eq!(viewer.metadata(setup.metadata), b"event { id = 1; };");
    assert_eq!(viewer.metadata(setup.metadata), b"");
    setup.send(1..2);
    assert_eq!(viewer.next(stream).flags, Flags::NONE);

    // Replaced by others: who has the old ones keeps them, who comes gets the others.
    let (handle, version) = (setup.metadata, 1);
    setup.producer.ok(&Order::ResetMetadata(ResetMetadata { handle, version }));
    assert_eq!(viewer.metadata(setup.metadata), b"");
    setup.send_metadata(METADATA);
    assert_eq!(viewer.metadata(setup.metadata), b"");
    let mut other = setup.attach(Seek::Last);
    setup.send_metadata(b"event { id = 1; }; event { id = 2; }; event { id = 3; };");
    setup.send(2..3);
    assert_eq!(viewer.next(stream).flags, Flags::NONE);
    assert_eq!(viewer.metadata(setup.metadata), b"");
    assert!(other.next(stream).flags.contains(Flags::NEW_METADATA));
    assert!(other.metadata(setup.metadata).ends_with(b"{ id = 3; };"));
    setup.end();
}

#[test]
fn packets_without_metadata_wait() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, live());
    producer.chunk(0);
    let handle = producer.stream("ch_0", 0);
    let metadata = producer.stream("metadata", 0);
    producer.ok(&Order::StreamsSent);
    producer.packet(handle, 0);
    producer.index(handle, 0);
    let mut viewer = Viewer::connect(&relay, 15);
    let session = viewer.sessions().first().unwrap().session;
    viewer.attach(session, Seek::Beginning);
    let stream = shown(handle);
    assert_eq!(viewer.next(stream).index, NextIndex::NotYet);
    producer.metadata(metadata, METADATA);
    producer.ok(&Order::StreamsSent);
    assert_eq!(viewer.metadata(metadata), METADATA);
    assert_eq!(viewer.read_on(stream), [0]);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_packet_that_breaks_a_promise_is_withheld_from_those_who_heard_it() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    let mut viewer = setup.attach(Seek::Beginning);
    setup.beacon(u64::MAX, 50);
    assert!(matches!(viewer.next(stream).index, NextIndex::Inactive { until: 50, .. }));
    setup.send([40, 60]);
    assert_eq!(viewer.read_on(stream), [60]);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [40, 60]);
    let totals = setup.relay.totals();
    assert_eq!((totals.promises_broken, totals.packets_withheld), (1, 1));
    setup.end();
}

#[test]
fn a_session_without_timer_speaks_for_streams_that_are_silent() {
    let grace = Duration::from_millis(300);
    let limits = Limits { untimed_grace: grace, ..Limits::default() };
    let mut setup = Setup::with(session("s"), limits);
    let silent = setup.producer.stream("ch_1", 0);
    setup.producer.ok(&Order::StreamsSent);
    let mut viewer = setup.attach(Seek::Beginning);
    let before = Instant::now();
    setup.send(0..3);
    let stream = setup.viewed();
    let entry = wait_for(|| match viewer.next(stream).index {
        NextIndex::Packet(entry) => Some(entry),
        _ => None,
    });
    assert_eq!(entry.timestamp_begin, 0);
    assert!(before.elapsed() >= grace, "metadata had time to come");
    // The stream that never had a packet: the class of its channel, the time of the other.
    // The packets may have come at some distance from each other, and then it speaks for each.
    let said = wait_for(|| match viewer.next(shown(silent)).index {
        NextIndex::NotYet | NextIndex::Inactive { until: 1..3, .. } => None,
        said => Some(said),
    });
    assert_eq!(said, NextIndex::Inactive { until: 3, stream_class_id: 0 });
    setup.end();
}
