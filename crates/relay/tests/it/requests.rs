//! What a control connection may take up: memory for requests, time to finish them, bytes of metadata.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use relay::{Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::{
    ChunkId, Command, CommandHeader, CreateTraceChunk, DataHeader, Name, NetSeqNum, Request,
    ReturnCode, StreamHandle, UnixSeconds,
};

use crate::client::is_closed;
use crate::disk::wait_until;
use crate::producer::{Producer, greet, session, start};

const MIB: usize = 1 << 20;

/// The header and first bytes of a request that sends metadata.
fn begin(socket: &mut TcpStream, stream: StreamHandle, payload_len: usize, sent: usize) {
    let mut bytes = Vec::new();
    let payload_len = payload_len as u64;
    CommandHeader { command: Command::SendMetadata, payload_len }.encode(&mut bytes);
    let head = bytes.len();
    bytes.extend(stream.get().to_be_bytes());
    bytes.resize(head + sent, 0);
    socket.write_all(&bytes).unwrap();
}

/// A producer with a metadata stream in chunk 0; `name` tells it from others.
fn producer(relay: &Relay, name: &str) -> (Producer, StreamHandle) {
    let mut create = session(name);
    create.identity.as_mut().unwrap().sessiond.0[0] = name.bytes().next().unwrap();
    let mut producer = Producer::new(relay, create);
    producer.chunk(0);
    let metadata = producer.stream("metadata", 0);
    (producer, metadata)
}

#[test]
fn nothing_large_is_taken_before_there_is_a_session() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { first_message: Duration::from_secs(3600), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut greeted = greet(&relay);
    begin(&mut greeted.socket, StreamHandle::new(1), (64 << 10) + 1, 100);
    wait_until("the end of the connection", || is_closed(&mut greeted.socket));
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_request_that_is_begun_and_not_finished_makes_room_for_others() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits {
        request_bytes: MIB,
        request_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let relay = start(&runtime, root.path(), limits);
    let (mut slow, first) = producer(&relay, "slow");
    let (mut other, second) = producer(&relay, "other");
    let begun = Instant::now();
    begin(&mut slow.control.socket, first, MIB, MIB / 2);
    let room = Instant::now();
    wait_until("half a request to be read", || room.elapsed() > Duration::from_millis(100));
    // All the room is taken, so this waits until the first one is given up.
    other.metadata(second, &vec![b' '; MIB - 12]);
    other.ok(&Request::StreamsSent);
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    assert!(slow.control.is_closed());
    assert_eq!(relay.totals().requests_unfinished, 1);
    assert_eq!(relay.totals().metadata_bytes, MIB as u64 - 12);
    // Between requests a connection may say nothing for longer.
    let quiet = Instant::now();
    wait_until("some time", || quiet.elapsed() > Duration::from_secs(1));
    other.ok(&Request::StreamsSent);
    runtime.block_on(relay.shutdown());
}

#[test]
fn metadata_have_a_limit_and_others_go_on() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { metadata_bytes: MIB as u64, ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let (mut greedy, first) = producer(&relay, "greedy");
    let (mut modest, second) = producer(&relay, "modest");
    for _ in 0..4 {
        greedy.metadata(first, &vec![b' '; MIB / 4]);
    }
    greedy.ok(&Request::StreamsSent);
    greedy.metadata(first, b" ");
    assert!(greedy.control.is_closed());
    assert_eq!(relay.totals().metadata_bytes, MIB as u64);
    modest.metadata(second, b"/* CTF 1.8 */");
    modest.ok(&Request::StreamsSent);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_chunk_cannot_take_the_name_of_what_the_relay_keeps() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    for name in ["archives", "20261120T162218+0000-3"] {
        let request = Request::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId::new(0),
            created: UnixSeconds::new(1),
            override_name: Some(Name::new(name).unwrap()),
        });
        assert_eq!(producer.code(&request), ReturnCode::INVALID, "{name}");
    }
    runtime.block_on(relay.shutdown());
}

#[test]
fn halves_that_one_producer_heaps_up_are_given_up_and_harm_no_other() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { unpaired_bytes: 64 << 10, ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut heap = Producer::new(&relay, session("s"));
    heap.chunk(0);
    let first = heap.stream("ch_0", 0);
    for number in 0..2000 {
        heap.data
            .write_all(
                &DataHeader {
                    stream: first,
                    net_seq_num: NetSeqNum::new(number),
                    data_len: 1,
                    padding_len: 0,
                }
                .encode(),
            )
            .unwrap();
        heap.data.write_all(&[1]).unwrap();
    }
    wait_until("the packets", || relay.totals().packets == 2000);
    let given_up = relay.totals().halves_given_up;
    assert!((1000..2000).contains(&given_up), "{given_up}");
    assert_eq!(relay.totals().packets_without_index, given_up);
    // The newest of them is there, and others pair as ever.
    heap.index(first, 1999);
    let mut other = Producer::new(&relay, session("t"));
    other.chunk(0);
    let stream = other.stream("ch_0", 0);
    for number in 0..20 {
        other.packet(stream, number);
    }
    for number in 0..20 {
        other.index(stream, number);
    }
    assert_eq!(relay.totals().index_entries, 21);
    runtime.block_on(relay.shutdown());
}
