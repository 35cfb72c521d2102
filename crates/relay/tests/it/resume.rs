//! Producers that come back: what they send again is there once, and nothing that was acknowledged is lost.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relay::{Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::{
    ChunkId, CreateSession, PacketSeqNum, ProtocolMinor, Request, ReturnCode, StreamHandle,
};

use crate::client::{Reply, end, is_closed};
use crate::disk::{files, manifests, wait_until};
use crate::producer::{Producer, STREAM_PATH, greet, index, packets, session, start};

const STREAM: &str = "ust/uid/0/64-bit/ch_0";

/// A producer that said that it can resume, with a chunk and a stream; and what the relay has of its streams.
fn comes(relay: &Relay, chunk: u64) -> (Producer, StreamHandle, Vec<(String, u64)>) {
    let mut producer = Producer::new(relay, session("s"));
    let Reply::Positions(reply) = producer.control.ask(&Request::StreamPositions) else {
        panic!("positions")
    };
    assert_eq!(reply.code, ReturnCode::OK);
    let positions = reply.positions.iter();
    let positions = positions.map(|(path, last)| (path.to_string(), last.get())).collect();
    producer.chunk(chunk);
    let stream = producer.stream("ch_0", chunk);
    (producer, stream, positions)
}

fn position(last: u64) -> Vec<(String, u64)> {
    vec![(STREAM.to_owned(), last)]
}

fn request(stream: StreamHandle, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Request::SendIndex(index(stream, number)).encode(ProtocolMinor::OURS, &mut bytes).unwrap();
    bytes
}

/// The streams' bytes of all sealed chunks, in the order of their folders; nothing may be said to be lost.
fn sealed(root: &Path) -> Vec<Vec<u8>> {
    let root = root.canonicalize().unwrap();
    let sealed = manifests(&root).into_iter().map(|(folder, manifest)| {
        assert_eq!(manifest.losses, []);
        fs::read(folder.join(STREAM)).unwrap()
    });
    sealed.collect()
}

fn stream_file(root: &Path) -> PathBuf {
    root.join("host/s-20261120-162218").join(STREAM_PATH).join("ch_0")
}

#[test]
fn an_old_connection_cannot_change_a_chunk_that_was_sealed_without_it() {
    for goes_on in [true, false] {
        let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let relay = start(&runtime, root.path(), Limits::default());
        let (mut old, stream, _) = comes(&relay, 0);
        old.packet(stream, 0);
        old.index(stream, 0);
        let bytes = Producer::packet_bytes(stream, 1);
        let (half, rest) = bytes.split_at(90);
        old.data.write_all(half).unwrap();
        let torn = |len| fs::metadata(stream_file(root.path())).unwrap().len() == len;
        wait_until("half a packet", || torn(128 + 90 - 32));

        let (mut new, stream, positions) = comes(&relay, 1);
        assert_eq!(positions, position(0));
        wait_until("the seal", || relay.totals().chunks_sealed == 1);
        assert_eq!(sealed(root.path()), [packets([0])]);
        let before = files(root.path());
        if goes_on {
            old.data.write_all(rest).unwrap();
            assert!(is_closed(&mut old.data));
        }
        end(&old.data);
        assert!(is_closed(&mut old.data));
        assert_eq!(files(root.path()), before);
        assert_eq!(relay.totals().packets_cut_short, 1);
        new.packet(stream, 1);
        new.index(stream, 1);
        runtime.block_on(relay.shutdown());
        assert_eq!(sealed(root.path()), [packets([0]), packets([1])]);
    }
}

#[test]
fn what_a_producer_sends_again_is_there_once() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    // The connections end between a packet and its entry.
    let (mut producer, stream, positions) = comes(&relay, 0);
    assert_eq!(positions, []);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    producer.packet(stream, 1);
    wait_until("the packet", || relay.totals().packets == 2);
    drop(producer);
    wait_until("the seal", || relay.totals().chunks_sealed == 1);
    assert_eq!(sealed(root.path()), [packets([0])]);
    // It sends it again; the relay stops, again between the two halves of a packet.
    let (mut producer, stream, positions) = comes(&relay, 1);
    assert_eq!(positions, position(0));
    producer.packet(stream, 1);
    producer.index(stream, 1);
    producer.packet(stream, 2);
    wait_until("the packet", || relay.totals().packets == 4);
    assert_eq!(relay.totals().packets_without_index, 0);
    runtime.block_on(relay.shutdown());
    drop(producer);
    // The next one knows what it has, and so does the one after that though nothing was recorded meanwhile.
    for _ in 0..2 {
        let relay = start(&runtime, root.path(), Limits::default());
        assert!(relay.recovered().interrupted.is_empty());
        let mut producer = Producer::new(&relay, session("s"));
        let Reply::Positions(reply) = producer.control.ask(&Request::StreamPositions) else {
            panic!("positions")
        };
        let [(path, last)] = reply.positions.as_slice() else { panic!("{reply:?}") };
        assert_eq!((path.as_str(), *last), (STREAM, PacketSeqNum::new(1)));
        drop(producer);
        runtime.block_on(relay.shutdown());
    }
    let relay = start(&runtime, root.path(), Limits::default());
    let (mut producer, stream, positions) = comes(&relay, 2);
    assert_eq!(positions, position(1));
    producer.packet(stream, 2);
    producer.index(stream, 2);
    drop(producer);
    wait_until("the seal", || relay.totals().chunks_sealed == 1);
    runtime.block_on(relay.shutdown());
    assert_eq!(sealed(root.path()), [packets([0]), packets([1]), packets([2])]);
}

#[test]
fn a_producer_that_can_resume_is_not_told_of_a_packet_that_was_lost_with_its_connection() {
    for is_there_first in [true, false] {
        let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let relay = start(&runtime, root.path(), Limits::default());
        let (mut producer, stream, _) = comes(&relay, 0);
        producer.packet(stream, 0);
        producer.index(stream, 0);
        let begin = Instant::now();
        if is_there_first {
            producer.control.socket.write_all(&request(stream, 1)).unwrap();
            end(&producer.data);
        } else {
            end(&producer.data);
            assert!(is_closed(&mut producer.data));
            producer.control.socket.write_all(&request(stream, 1)).unwrap();
        }
        assert!(producer.control.is_closed());
        assert!(begin.elapsed() < Duration::from_secs(10));
        let (_producer, _, positions) = comes(&relay, 1);
        assert_eq!(positions, position(0));
        assert_eq!(relay.totals().acknowledged_early, 0);
        runtime.block_on(relay.shutdown());
    }
}

#[test]
fn a_packet_that_never_comes_is_not_acknowledged_where_it_can_be_sent_again() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { ack_patience: Duration::from_millis(5), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let (mut producer, stream, _) = comes(&relay, 0);
    producer.control.socket.write_all(&request(stream, 0)).unwrap();
    assert!(producer.control.is_closed());
    assert_eq!(relay.totals().acknowledged_early, 0);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_producer_that_cannot_resume_does_not_wait_for_a_connection_that_ended() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    end(&producer.data);
    assert!(is_closed(&mut producer.data));
    let begin = Instant::now();
    producer.index(stream, 1);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(relay.totals().acknowledged_early, 1);
    runtime.block_on(relay.shutdown());
}

#[test]
fn one_that_cannot_join_does_not_make_the_relay_forget_a_session() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let (mut producer, stream, _) = comes(&relay, 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    let folder = producer.folder.clone();
    drop(producer);
    wait_until("the seal", || relay.totals().chunks_sealed == 1);
    let create = session("s");
    let mut identity = create.identity.clone().unwrap();
    identity.current_chunk = Some(ChunkId::new(9));
    let create = CreateSession { identity: Some(identity), ..create };
    let Reply::Session(reply) = greet(&relay).ask(&Request::CreateSession(create)) else {
        panic!("a session reply")
    };
    assert_ne!(reply.code, ReturnCode::OK);
    let (producer, _, positions) = comes(&relay, 1);
    assert_eq!((producer.folder.clone(), positions), (folder, position(0)));
    runtime.block_on(relay.shutdown());
}

#[test]
fn what_the_tracer_discarded_while_its_relay_was_away_is_counted() {
    for restarts in [false, true] {
        let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let mut relay = start(&runtime, root.path(), Limits::default());
        let (mut producer, stream, _) = comes(&relay, 0);
        let send = |producer: &mut Producer, stream, number, events_discarded| {
            producer.packet(stream, number);
            let entry = wire::live::PacketIndex { events_discarded, ..index(stream, number) };
            producer.ok(&Request::SendIndex(entry));
        };
        send(&mut producer, stream, 0, 2);
        drop(producer);
        wait_until("the seal", || relay.totals().chunks_sealed == 1);
        if restarts {
            runtime.block_on(relay.shutdown());
            relay = start(&runtime, root.path(), Limits::default());
        }
        let (mut producer, stream, positions) = comes(&relay, 1);
        assert_eq!(positions, position(0));
        send(&mut producer, stream, 1, 9);
        drop(producer);
        runtime.block_on(relay.shutdown());
        let manifests = manifests(&root.path().canonicalize().unwrap());
        let discarded = manifests.values().map(|manifest| {
            let losses = manifest.losses.iter().map(|losses| losses.tracer_event_records);
            (manifest.origin.chunk, losses.sum())
        });
        let mut discarded: Vec<(u64, u64)> = discarded.collect();
        discarded.sort_unstable();
        assert_eq!(discarded, [(0, 2), (1, 7)], "restarts: {restarts}");
    }
}
