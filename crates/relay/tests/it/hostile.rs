//! Peers that lie: names that lead elsewhere, lengths that are not meant, handles of others, bytes that are nothing.
//! Every time: a clear answer or a closed connection, nothing outside the root, and the next producer is served.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

use relay::{Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::{
    AddStream, COMMAND_HEADER_LEN, ChunkId, CloseAction, Command, CommandHeader, CreateTraceChunk,
    DataHeader, DataPending, Name, NetSeqNum, PendingReply, Request, ReturnCode, ReturnReply,
    StreamHandle, TracefileLimit, UnixSeconds,
};

use crate::client::{Reply, end, is_closed};
use crate::disk::{files, manifests, wait_until};
use crate::producer::{
    CREATED, Producer, STREAM_PATH, add_stream, greet, index, packets, session, start,
};

struct Setup {
    runtime: Runtime,
    relay: Relay,
    root: PathBuf,
    /// Holds the root and nothing else.
    outside: tempfile::TempDir,
}

impl Setup {
    fn new(limits: Limits) -> Self {
        let runtime = Runtime::new().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("a/b/c/root");
        let relay = start(&runtime, &root, limits);
        Self { runtime, relay, root, outside }
    }

    /// An honest producer with chunk 0.
    fn producer(&self, name: &str) -> Producer {
        let mut create = session(name);
        let identity = create.identity.as_mut().unwrap();
        identity.sessiond.0[0] = name.bytes().next().unwrap();
        let mut producer = Producer::new(&self.relay, create);
        producer.chunk(0);
        producer
    }

    /// Serves one more producer, then looks for anything outside the root.
    fn end(self) {
        let mut producer = self.producer("honest");
        let stream = producer.stream("ch_0", 0);
        let before = self.relay.totals().packets;
        producer.packet(stream, 0);
        producer.index(stream, 0);
        wait_until("an honest packet", || self.relay.totals().packets == before + 1);
        self.runtime.block_on(self.relay.shutdown());
        let root = self.root.strip_prefix(self.outside.path()).unwrap().to_str().unwrap();
        for path in files(self.outside.path()).keys() {
            assert!(path.starts_with(root), "{path} is outside {root}");
        }
    }
}

/// The request's bytes with one text replaced by another of the same length.
fn forged(request: &Request<'_>, placeholder: &str, text: &str) -> Vec<u8> {
    assert_eq!(placeholder.len(), text.len());
    let mut bytes = Vec::new();
    request.encode(wire::live::ProtocolMinor::OURS, &mut bytes).unwrap();
    let at = bytes.windows(text.len()).position(|w| w == placeholder.as_bytes()).unwrap();
    bytes.get_mut(at..at + text.len()).unwrap().copy_from_slice(text.as_bytes());
    bytes
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_the_connection_goes_on() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    let channel = Request::AddStream(add_stream("PLACEHOLD", STREAM_PATH, 0));
    let folder = Request::AddStream(add_stream("ch_0", "PLACEHOLD", 0));
    let chunk = Request::CreateTraceChunk(CreateTraceChunk {
        chunk: ChunkId::new(1),
        created: UnixSeconds::new(CREATED),
        override_name: Some(Name::new("PLACEHOLD").unwrap()),
    });
    let cases = [
        (&channel, "../../../"),
        (&channel, "ust/../xx"),
        (&channel, ".hidden__"),
        (&folder, "../../xyz"),
        (&folder, "ust/../.."),
        (&folder, "/tmp/xyza"),
        (&chunk, "../../abc"),
        (&chunk, "archives/"),
    ];
    for (request, text) in cases {
        producer.control.socket.write_all(&forged(request, "PLACEHOLD", text)).unwrap();
        let code = match producer.control.reply(request.command()) {
            Reply::Stream(reply) => reply.code,
            Reply::Plain(ReturnReply(code)) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code, ReturnCode::INVALID, "{text}");
    }
    assert_eq!(setup.relay.totals().requests_refused, cases.len() as u64);
    producer.stream("ch_0", 0);
    setup.end();
}

#[test]
fn sessions_whose_names_lead_elsewhere_are_refused() {
    let setup = Setup::new(Limits::default());
    let mut create = session("SESSION__");
    create.hostname = Some(Name::new("HOSTNAME_").unwrap());
    create.identity.as_mut().unwrap().base_path =
        wire::live::RelativePath::new("BASE/PATH").unwrap();
    let request = Request::CreateSession(create);
    let cases = [
        ("HOSTNAME_", "../../../"),
        ("SESSION__", "../../abc"),
        ("BASE/PATH", "../../../"),
        ("BASE/PATH", "/tmp/abcd"),
        ("BASE/PATH", "archives/"),
    ];
    for (placeholder, text) in cases {
        let mut control = greet(&setup.relay);
        control.socket.write_all(&forged(&request, placeholder, text)).unwrap();
        let Reply::Session(reply) = control.reply(Command::CreateSession) else {
            panic!("a session reply")
        };
        assert_eq!(reply.code, ReturnCode::INVALID, "{text}");
    }
    setup.end();
}

#[test]
fn folders_of_the_relay_are_not_for_streams() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    for folder in ["archives/x", ".relay", "20261120T162219+0000-1/ust"] {
        let request = Request::AddStream(add_stream("ch_0", folder, 0));
        assert_eq!(producer.code(&request), ReturnCode::INVALID, "{folder}");
    }
    // What a manifest says is believed, for example when chunks are deleted by size.
    for (channel, folder) in [("manifest.json", "ust"), ("ch_0", "ust/manifest.json")] {
        let request = Request::AddStream(add_stream(channel, folder, 0));
        assert_eq!(producer.code(&request), ReturnCode::INVALID, "{folder}/{channel}");
    }
    setup.end();
}

/// Their streams are named by paths below the root.
#[test]
fn producers_before_2_11_stay_in_a_folder_of_their_own() {
    let setup = Setup::new(Limits::default());
    let mut victim = setup.producer("victim");
    let theirs = victim.stream("ch_0", 0);
    victim.packet(theirs, 0);
    victim.index(theirs, 0);
    let before = files(&setup.root);
    let mut old = Producer::old(&setup.relay, "host", "victim");
    let add = |folder: &str| {
        Request::AddStream(AddStream { chunk: None, ..add_stream("forged", folder, 0) })
    };
    let hidden = format!("{}/.hidden/kernel", victim.folder);
    let archives = "host/archives/kernel";
    for folder in ["other/s/kernel", "host", "kernel", ".relay/s/kernel", archives] {
        assert_eq!(old.code(&add(folder)), ReturnCode::INVALID, "{folder}");
    }
    assert_eq!(old.code(&add(&hidden)), ReturnCode::INVALID);
    // The first names the victim's folder and gets one beside it; the others have to follow.
    let stream = old.old_stream("forged", &format!("{}/{STREAM_PATH}", victim.folder));
    old.packet(stream, 0);
    let elsewhere = format!("{}-1/{STREAM_PATH}", victim.folder);
    for folder in ["host/s/kernel", elsewhere.as_str()] {
        assert_eq!(old.code(&add(folder)), ReturnCode::INVALID, "{folder}");
    }
    assert!(setup.root.join(&elsewhere).join("forged").exists());
    // Its chunk is the relay's to close, whatever version it says later.
    let version = Request::Version(wire::live::Version::OURS);
    assert!(matches!(old.control.ask(&version), Reply::Version(_)));
    let delete = crate::producer::close_chunk(0, Some(CloseAction::Delete));
    assert_eq!(old.code(&delete), ReturnCode::INVALID);
    let rotate = crate::producer::rotate(None, &[(stream, 0)]);
    assert_eq!(old.code(&rotate), ReturnCode::INVALID);
    old.close_stream(stream, NetSeqNum::new(0));
    let mut after = files(&setup.root);
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    setup.end();
}

#[test]
fn a_snapshot_has_a_folder_of_its_own_in_its_sessions() {
    let setup = Setup::new(Limits::default());
    let victim = setup.producer("s");
    let mut create = session("s");
    create.snapshot = true;
    create.identity.as_mut().unwrap().sessiond.0[0] = 1;
    let mut other = Producer::new(&setup.relay, create);
    assert_eq!(other.folder, victim.folder);
    let in_place = Request::CreateTraceChunk(CreateTraceChunk {
        chunk: ChunkId::new(0),
        created: UnixSeconds::new(CREATED),
        override_name: None,
    });
    assert_eq!(other.code(&in_place), ReturnCode::INVALID);
    setup.end();
}

#[test]
fn no_session_lies_in_the_folder_of_another_one() {
    let setup = Setup::new(Limits::default());
    let based = |base: &str, id: u8| {
        let mut create = session("s");
        let identity = create.identity.as_mut().unwrap();
        identity.base_path = wire::live::RelativePath::new(base).unwrap();
        identity.sessiond.0[0] = id;
        Producer::new(&setup.relay, create)
    };
    let [prod, within, again] = [based("prod", 1), based("prod/b", 2), based("prod/b", 3)];
    assert_eq!(prod.folder.as_str(), "host/prod");
    assert_eq!(within.folder.as_str(), "host/prod-1/b");
    assert_eq!(again.folder.as_str(), "host/prod-3/b");
    let [deep, above] = [based("deep/b", 4), based("deep", 5)];
    assert_eq!(deep.folder.as_str(), "host/deep/b");
    assert_eq!(above.folder.as_str(), "host/deep-1");
    setup.end();
}

#[test]
fn ten_gigabytes_announced_close_the_connection() {
    let setup = Setup::new(Limits::default());
    for command in [Command::AddStream, Command::SendMetadata] {
        let mut producer = setup.producer("s");
        let mut header = Vec::new();
        CommandHeader { command, payload_len: 10 << 30 }.encode(&mut header);
        producer.control.socket.write_all(&header).unwrap();
        let plain = producer.control.reply(Command::StreamsSent);
        assert_eq!(plain, Reply::Plain(ReturnReply(ReturnCode::UNKNOWN_ERROR)));
        assert!(producer.control.is_closed());
    }
    let mut producer = setup.producer("t");
    let stream = producer.stream("ch_0", 0);
    let header = DataHeader {
        stream,
        net_seq_num: NetSeqNum::new(0),
        data_len: u32::MAX,
        padding_len: u32::MAX,
    };
    producer.data.write_all(&header.encode()).unwrap();
    assert!(is_closed(&mut producer.data));
    assert_eq!(setup.relay.totals().packet_bytes, 0);
    setup.end();
}

#[test]
fn an_unknown_command_is_answered_and_closed() {
    let setup = Setup::new(Limits::default());
    let mut control = greet(&setup.relay);
    let mut header = [0; COMMAND_HEADER_LEN];
    header[19] = 99;
    control.socket.write_all(&header).unwrap();
    let plain = control.reply(Command::StreamsSent);
    assert_eq!(plain, Reply::Plain(ReturnReply(ReturnCode::UNKNOWN_ERROR)));
    assert!(control.is_closed());
    setup.end();
}

#[test]
fn requests_without_a_session_close_the_connection() {
    let setup = Setup::new(Limits::default());
    for request in [Request::StreamsSent, Request::AddStream(add_stream("a", "ust", 0))] {
        let mut control = greet(&setup.relay);
        let code = match control.ask(&request) {
            Reply::Stream(reply) => reply.code,
            Reply::Plain(ReturnReply(code)) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code, ReturnCode::INVALID_PROTOCOL);
        assert!(control.is_closed());
    }
    setup.end();
}

#[test]
fn handles_of_another_session_do_not_work() {
    let setup = Setup::new(Limits::default());
    let mut victim = setup.producer("victim");
    let theirs = victim.stream("ch_0", 0);
    victim.packet(theirs, 0);
    victim.index(theirs, 0);
    wait_until("a packet", || setup.relay.totals().packets == 1);
    let before = files(&setup.root);

    let mut thief = setup.producer("thief");
    let own = thief.stream("ch_0", 0);
    assert_eq!(thief.code(&Request::SendIndex(index(theirs, 1))), ReturnCode::INVALID);
    let rotate = crate::producer::rotate(None, &[(theirs, 0)]);
    assert_eq!(thief.code(&rotate), ReturnCode::INVALID);
    let data_pending =
        Request::DataPending(DataPending { handle: theirs, last: NetSeqNum::new(0) });
    let failed = Reply::Pending(PendingReply::Failed(ReturnCode::INVALID));
    assert_eq!(thief.control.ask(&data_pending), failed);
    let pending = Request::BeginDataPending(victim.session);
    assert_eq!(thief.code(&pending), ReturnCode::INVALID);
    thief.packet(own, 0);
    thief.packet(theirs, 1);
    assert!(is_closed(&mut thief.data));

    let mut after = files(&setup.root);
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    setup.end();
}

#[test]
fn a_second_connection_cannot_write_where_a_packet_is_being_written() {
    let setup = Setup::new(Limits::default());
    let mut victim = setup.producer("victim");
    let stream = victim.stream("ch_0", 0);
    victim.packet(stream, 0);
    victim.index(stream, 0);
    let bytes = Producer::packet_bytes(stream, 1);
    let (half, rest) = bytes.split_at(70);
    victim.data.write_all(half).unwrap();
    let file = setup.root.join(victim.folder.as_path()).join(STREAM_PATH).join("ch_0");
    wait_until("half a packet", || fs::metadata(&file).unwrap().len() == 128 + 70 - 32);
    for number in [1, 2, 1 << 63] {
        let mut stranger = TcpStream::connect(setup.relay.data_addr()).unwrap();
        let mut bytes = Producer::packet_bytes(stream, 1);
        bytes[16..24].copy_from_slice(&u64::to_be_bytes(number));
        stranger.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stranger));
    }
    victim.data.write_all(rest).unwrap();
    victim.index(stream, 1);
    assert_eq!(fs::read(&file).unwrap(), packets(0..2));
    setup.end();
}

#[test]
fn handles_cannot_be_guessed() {
    let setup = Setup::new(Limits::default());
    let mut victim = setup.producer("victim");
    let handles: Vec<u64> =
        (0..8).map(|number| victim.stream(&format!("ch_{number}"), 0).get()).collect();
    // Each bit but the first is as good as any; eight handles that agree in the upper half are no accident.
    assert!(handles.iter().all(|handle| handle >> 63 == 0));
    assert!(handles.iter().any(|handle| handle >> 31 != handles[0] >> 31), "{handles:x?}");
    let mut numbered = handles.clone();
    numbered.sort_unstable();
    numbered.dedup();
    assert_eq!(numbered.len(), handles.len());
    setup.end();
}

#[test]
fn packets_out_of_order_or_for_nobody_close_the_connection() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 3);
    producer.packet(stream, 3);
    assert!(is_closed(&mut producer.data));
    let mut data = TcpStream::connect(setup.relay.data_addr()).unwrap();
    data.write_all(&Producer::packet_bytes(StreamHandle::new(1 << 40), 0)).unwrap();
    assert!(is_closed(&mut data));
    setup.end();
}

#[test]
fn a_packet_cut_short_leaves_no_trace_in_its_file() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    let bytes = Producer::packet_bytes(stream, 1);
    producer.data.write_all(bytes.get(..70).unwrap()).unwrap();
    end(&producer.data);
    wait_until("the cut", || setup.relay.totals().packets_cut_short == 1);
    let file = setup.root.join(producer.folder.as_path()).join(STREAM_PATH).join("ch_0");
    assert_eq!(std::fs::metadata(file).unwrap().len(), 128);
    producer.control.end();
    wait_until("the seal", || setup.relay.totals().chunks_sealed == 1);
    let manifests = manifests(&setup.root);
    let [manifest] = *manifests.values().collect::<Vec<_>>() else { panic!("{manifests:?}") };
    // The packet before has no index entry; of the one that was cut short nothing is left but the count.
    let [lost] = manifest.losses.as_slice() else { panic!("{manifest:?}") };
    assert_eq!((lost.network_packets, manifest.contents.totals.bytes), (1, 128));
    setup.end();
}

#[test]
fn headers_cut_short_and_noise_close_the_connection() {
    let setup = Setup::new(Limits::default());
    let noise: Vec<u8> =
        (0..4096_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for address in [setup.relay.control_addr(), setup.relay.data_addr()] {
        for len in [1, 23, 31, 200, noise.len()] {
            let mut socket = TcpStream::connect(address).unwrap();
            // The relay may close before all of it was sent.
            drop(socket.write_all(noise.get(..len).unwrap()));
            end(&socket);
            wait_until("the end of the connection", || is_closed(&mut socket));
        }
    }
    setup.end();
}

#[test]
fn limits_are_answered_with_an_error() {
    let limits = Limits { streams: 2, chunks_per_recording: 2, recordings: 2, ..Limits::default() };
    let setup = Setup::new(limits);
    let mut producer = setup.producer("s");
    producer.chunk(1);
    let chunk = Request::CreateTraceChunk(CreateTraceChunk {
        chunk: ChunkId::new(2),
        created: UnixSeconds::new(CREATED),
        override_name: None,
    });
    assert_eq!(producer.code(&chunk), ReturnCode::NO_MEMORY);
    producer.stream("a", 0);
    let b = producer.stream("b", 0);
    let third = Request::AddStream(add_stream("c", STREAM_PATH, 0));
    assert_eq!(producer.code(&third), ReturnCode::NO_MEMORY);
    producer.close_stream(b, NetSeqNum::NONE);
    setup.end();
}

#[test]
fn a_trace_file_limit_without_a_count_keeps_every_file() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    let mut request = add_stream("ch_0", STREAM_PATH, 0);
    request.tracefile = Some(TracefileLimit { size_bytes: 128, count: None });
    let Reply::Stream(reply) = producer.control.ask(&Request::AddStream(request)) else {
        panic!("a stream reply")
    };
    for number in 0..3 {
        producer.packet(reply.handle, number);
        producer.index(reply.handle, number);
    }
    wait_until("three packets", || setup.relay.totals().packets == 3);
    for number in 0..3 {
        let name = format!("{}/{STREAM_PATH}/ch_0_{number}", producer.folder);
        assert_eq!(std::fs::metadata(setup.root.join(name)).unwrap().len(), 128);
    }
    setup.end();
}

#[test]
fn the_same_stream_twice_does_not_overwrite() {
    let setup = Setup::new(Limits::default());
    let mut producer = setup.producer("s");
    producer.stream("ch_0", 0);
    let again = Request::AddStream(add_stream("ch_0", STREAM_PATH, 0));
    assert_eq!(producer.code(&again), ReturnCode::FILE_CREATION);
    setup.end();
}
