//! Every message ends at every byte, and every number in it is as large as it can be: the connection pays for it, nobody
//! else does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use relay::{Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::viewer::{AttachSession, Connect, GetPacket, Request as ViewerRequest, Seek};
use wire::live::{
    ChunkId, CloseStream, DataPending, NetSeqNum, ProtocolMinor, Request, SendMetadata,
    StreamHandle, TraceChunkExists, Version, ViewedSessionId, ViewedStreamId, ViewerSessionId,
};

use crate::client::end;
use crate::disk::wait_until;
use crate::producer::{
    Producer, add_stream, close_chunk, greet, index, packets, rotate, session, start,
};

struct Setup {
    runtime: Runtime,
    relay: Relay,
    root: tempfile::TempDir,
    honest: Producer,
    stream: StreamHandle,
    /// Dishonest producers so far.
    others: u32,
}

impl Setup {
    fn new() -> Self {
        let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let relay = start(&runtime, root.path(), Limits::default());
        let mut honest = Producer::new(&relay, session("honest"));
        honest.chunk(0);
        let stream = honest.stream("ch_0", 0);
        honest.packet(stream, 0);
        honest.index(stream, 0);
        Self { runtime, relay, root, honest, stream, others: 0 }
    }

    /// A producer with a chunk and a stream.
    fn other(&mut self) -> (Producer, StreamHandle) {
        self.others += 1;
        let mut create = session(&format!("other-{}", self.others));
        let sessiond = &mut create.identity.as_mut().unwrap().sessiond.0;
        sessiond[..4].copy_from_slice(&self.others.to_be_bytes());
        let mut producer = Producer::new(&self.relay, create);
        producer.chunk(0);
        let stream = producer.stream("ch_0", 0);
        (producer, stream)
    }

    /// The honest producer goes on, and all of it is there.
    fn end(mut self) {
        self.honest.packet(self.stream, 1);
        self.honest.index(self.stream, 1);
        let file = self.root.path().join(self.honest.folder.as_str()).join("ust/uid/0/64-bit/ch_0");
        wait_until("the honest packets", || std::fs::read(&file).unwrap() == packets(0..2));
        drop(greet(&self.relay));
        let mut viewer = TcpStream::connect(self.relay.viewers_addr()).unwrap();
        viewer.write_all(&viewing().remove(0)).unwrap();
        viewer.read_exact(&mut [0; Connect::LEN]).unwrap();
        self.runtime.block_on(self.relay.shutdown());
    }
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(ProtocolMinor::OURS, &mut bytes).unwrap();
    bytes
}

/// The messages of a producer that has a stream.
fn requests(stream: StreamHandle) -> Vec<Vec<u8>> {
    let metadata = SendMetadata { handle: stream, padding_len: 3, bytes: b"/* CTF 1.8 */" };
    let pending = DataPending { handle: stream, last: NetSeqNum::new(0) };
    let requests = [
        Request::AddStream(add_stream("ch_1", "ust/uid/0/64-bit", 0)),
        Request::SendMetadata(metadata),
        Request::SendIndex(index(stream, 0)),
        Request::DataPending(pending),
        rotate(Some(1), &[(stream, 0)]),
        Request::CloseStream(CloseStream { handle: stream, last: NetSeqNum::NONE }),
        close_chunk(0, None),
        Request::TraceChunkExists(TraceChunkExists { chunk: ChunkId::new(0) }),
    ];
    requests.iter().map(encoded).collect()
}

/// The first messages of a producer, which come in this order.
fn greeting() -> Vec<Vec<u8>> {
    let mut create = session("greeting");
    create.identity.as_mut().unwrap().sessiond.0 = [0xEE; 16];
    vec![encoded(&Request::Version(Version::OURS)), encoded(&Request::CreateSession(create))]
}

/// The messages of a viewer, which come in this order.
fn viewing() -> Vec<Vec<u8>> {
    let (viewer_session, version) = (ViewerSessionId::NONE, Version::OURS);
    let (session, stream) = (ViewedSessionId::new(1), ViewedStreamId::new(1));
    let requests = [
        ViewerRequest::Connect(Connect { viewer_session, version, kind: Connect::COMMAND }),
        ViewerRequest::CreateSession,
        ViewerRequest::ListSessions,
        ViewerRequest::AttachSession(AttachSession { session, seek: Seek::Beginning }),
        ViewerRequest::GetMetadata(stream),
        ViewerRequest::GetNextIndex(stream),
        ViewerRequest::GetPacket(GetPacket { stream, offset_bytes: 0, len_bytes: 128 }),
        ViewerRequest::GetNewStreams(session),
        ViewerRequest::DetachSession(session),
    ];
    let encoded = |request: &ViewerRequest| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes
    };
    requests.iter().map(encoded).collect()
}

/// Ends our half and waits until the relay has ended its own; what it says meanwhile does not matter.
fn until_closed(mut socket: TcpStream) {
    end(&socket);
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut said = [0; 4096];
    loop {
        match socket.read(&mut said) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                return;
            }
        }
    }
}

/// Says all messages but the last one whole, and that one as it is.
fn say(address: SocketAddr, before: &[Vec<u8>], last: &[u8]) {
    let mut socket = TcpStream::connect(address).unwrap();
    // The relay may close before it has read everything.
    let sent = socket.write_all(&before.concat()).and_then(|()| socket.write_all(last));
    drop(sent);
    until_closed(socket);
}

/// The message with each of its words in turn as large as it can be.
fn swollen(message: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let words = (0..message.len()).step_by(4);
    words.map(|at| {
        let mut swollen = message.to_vec();
        swollen.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xFF);
        swollen
    })
}

#[test]
fn messages_before_there_is_a_session_and_those_of_viewers_may_be_cut_or_swollen_anywhere() {
    let setup = Setup::new();
    let before = setup.relay.totals();
    let ports = [(setup.relay.control_addr(), greeting()), (setup.relay.viewers_addr(), viewing())];
    for (address, messages) in ports {
        for (number, message) in messages.iter().enumerate() {
            let whole = &messages[..number];
            (0..message.len()).for_each(|len| say(address, whole, &message[..len]));
            swollen(message).for_each(|message| say(address, whole, &message));
        }
    }
    let after = setup.relay.totals();
    assert_eq!((after.packets, after.index_entries), (before.packets, before.index_entries));
    assert_eq!((after.connections_refused, after.viewers_refused), (0, 0));
    setup.end();
}

#[test]
fn messages_of_a_producer_may_be_cut_anywhere() {
    let mut setup = Setup::new();
    let kinds = requests(StreamHandle::new(0)).len();
    for kind in 0..kinds {
        let len = requests(StreamHandle::new(0))[kind].len();
        for cut in 0..len {
            let (producer, stream) = setup.other();
            let mut socket = producer.control.socket;
            socket.write_all(&requests(stream)[kind][..cut]).unwrap();
            until_closed(socket);
        }
    }
    assert_eq!(setup.relay.totals().index_entries, 1, "the honest one");
    setup.end();
}

#[test]
fn messages_of_a_producer_may_be_swollen_anywhere() {
    let mut setup = Setup::new();
    for kind in 0..requests(StreamHandle::new(0)).len() {
        let swellings = requests(StreamHandle::new(0))[kind].len().div_ceil(4);
        for number in 0..swellings {
            let (producer, stream) = setup.other();
            let mut socket = producer.control.socket;
            let message = swollen(&requests(stream)[kind]).nth(number).unwrap();
            drop(socket.write_all(&message));
            until_closed(socket);
        }
    }
    setup.end();
}

#[test]
fn packets_may_be_cut_or_swollen_anywhere() {
    let mut setup = Setup::new();
    let len = Producer::packet_bytes(StreamHandle::new(0), 0).len();
    for cut in 1..len {
        let (mut producer, stream) = setup.other();
        producer.data.write_all(&Producer::packet_bytes(stream, 0)[..cut]).unwrap();
        until_closed(producer.data);
    }
    // Only the header has numbers.
    for number in 0..wire::live::DATA_HEADER_LEN / 4 {
        let (mut producer, stream) = setup.other();
        let message = swollen(&Producer::packet_bytes(stream, 0)).nth(number).unwrap();
        drop(producer.data.write_all(&message));
        until_closed(producer.data);
    }
    let counted = setup.relay.totals();
    // The circuit id and the number of the packet may be anything.
    assert!(counted.packets <= 1 + 4, "{counted:?}");
    setup.end();
}
