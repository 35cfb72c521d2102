//! The client side of a relay session, as lttng-consumerd has it: a packet's header and then its bytes on the data connection,
//! its index entry on the control connection, wait for the reply.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use wire::live::{
    AddStream, AddStreamReply, ChunkId, CreateSession, CreateSessionReply, CreateTraceChunk,
    DataHeader, DataPending, Decoded, FullIndexFields, Name, NetSeqNum, PacketIndex, PacketSeqNum,
    PendingReply, ProtocolMinor, RelativePath, Request, ReturnReply, SendMetadata, SessionIdentity,
    SessiondSessionId, SessiondUuid, StreamHandle, UnixSeconds, Version,
};

/// Streams of a session beside the metadata.
pub(crate) const STREAMS: u64 = 4;
/// What lttng-relayd 2.13 and ours both speak.
const MINOR: ProtocolMinor = ProtocolMinor(13);
const PATIENCE: Duration = Duration::from_secs(60);

/// The client side of one relay session.
pub(crate) struct Producer {
    control: TcpStream,
    data: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Producer {
    pub(crate) fn connect(control: SocketAddr, data: SocketAddr) -> anyhow::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let connect = |address| loop {
            match TcpStream::connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("the relay does not listen");
                }
                Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
            }
        };
        let control = connect(control)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { control, data: connect(data)?, request: Vec::new(), reply: Vec::new() })
    }

    /// A session with one chunk and its streams; sessions differ by `number`.
    pub(crate) fn open(&mut self, number: u64) -> anyhow::Result<Vec<StreamHandle>> {
        let version = Version { major: 2, minor: MINOR };
        self.ask(&Request::Version(version), Version::decode)?;
        let session = Request::CreateSession(CreateSession {
            session_name: Some(Name::new(format!("bench-{number}"))?),
            hostname: Some(Name::new("host")?),
            live_timer_us: 0,
            snapshot: false,
            identity: Some(SessionIdentity {
                base_path: RelativePath::default(),
                name_has_creation_time: false,
                sessiond: SessiondUuid([1; 16]),
                sessiond_session: SessiondSessionId::new(number),
                created: UnixSeconds::new(1_795_191_738),
                current_chunk: None,
                trace_format: None,
            }),
        });
        let reply = self.ask(&session, |bytes| CreateSessionReply::decode(bytes, MINOR))?;
        ensure!(reply.code.is_ok(), "CREATE_SESSION: {}", reply.code);
        self.ok(&Request::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId::new(0),
            created: UnixSeconds::new(1_795_191_738),
            override_name: None,
        }))?;
        let mut streams = Vec::new();
        for cpu in 0..STREAMS {
            streams.push(self.add_stream(&format!("ch_{cpu}"))?);
        }
        self.ok(&Request::StreamsSent)?;
        Ok(streams)
    }

    /// A stream of metadata with all there are.
    pub(crate) fn metadata(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let handle = self.add_stream("metadata")?;
        let request = Request::SendMetadata(SendMetadata { handle, padding_len: 0, bytes: text });
        self.request.clear();
        request.encode(MINOR, &mut self.request)?;
        Ok(self.control.write_all(&self.request)?)
    }

    fn add_stream(&mut self, channel: &str) -> anyhow::Result<StreamHandle> {
        let request = Request::AddStream(AddStream {
            channel: Name::new(channel)?,
            path: RelativePath::new("ust/uid/0/64-bit")?,
            tracefile: None,
            chunk: Some(ChunkId::new(0)),
        });
        let reply = self.ask(&request, AddStreamReply::decode)?;
        ensure!(reply.code.is_ok(), "ADD_STREAM: {}", reply.code);
        Ok(reply.handle)
    }

    /// One packet and its entry; `packet` has room for the header in front.
    pub(crate) fn send(
        &mut self,
        handle: StreamHandle,
        number: u64,
        packet: &mut [u8],
    ) -> anyhow::Result<()> {
        write_header(handle, number, packet)?;
        let (header, body) = packet.split_at(wire::live::DATA_HEADER_LEN);
        self.data.write_all(header)?;
        self.data.write_all(body)?;
        self.ok(&index_entry(handle, number, packet.len()))
    }

    /// Sends windows of packets, each with its entries, and waits for the replies to one when the next is sent already.
    pub(crate) fn send_windows(&mut self, mut windows: Windows) -> anyhow::Result<()> {
        windows.packets.rewind()?;
        let mut before = None;
        for window in &windows.windows {
            // The standard library has the kernel copy from file to socket.
            let mut packets = (&windows.packets).take(window.packets_len);
            std::io::copy(&mut packets, &mut &self.data)?;
            self.control.write_all(&window.requests)?;
            before.replace(window).map_or(Ok(()), |before| self.replies(before))?;
        }
        before.map_or(Ok(()), |before| self.replies(before))
    }

    fn replies(&mut self, window: &Window) -> anyhow::Result<()> {
        self.reply.resize(window.count * RETURN_LEN, 0);
        self.control.read_exact(&mut self.reply)?;
        for reply in self.reply.chunks_exact(RETURN_LEN) {
            let Decoded::Complete { value: ReturnReply(code), .. } = ReturnReply::decode(reply)?
            else {
                bail!("a reply is longer than {RETURN_LEN} bytes");
            };
            ensure!(code.is_ok(), "SEND_INDEX: {code}");
        }
        Ok(())
    }

    pub(crate) fn wait_for(&mut self, handle: StreamHandle, last: NetSeqNum) -> anyhow::Result<()> {
        let request = Request::DataPending(DataPending { handle, last });
        while self.ask(&request, PendingReply::decode)? != PendingReply::Complete {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn ok(&mut self, request: &Request<'_>) -> anyhow::Result<()> {
        let ReturnReply(code) = self.ask(request, ReturnReply::decode)?;
        ensure!(code.is_ok(), "{}: {code}", request.command());
        Ok(())
    }

    fn ask<T>(
        &mut self,
        request: &Request<'_>,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> anyhow::Result<T> {
        self.request.clear();
        request.encode(MINOR, &mut self.request)?;
        self.control.write_all(&self.request)?;
        self.reply.clear();
        loop {
            match decode(&self.reply)? {
                Decoded::Complete { value, .. } => return Ok(value),
                Decoded::Incomplete { needed } => {
                    let missing = needed - self.reply.len();
                    let read = (&self.control).take(missing as u64).read_to_end(&mut self.reply)?;
                    ensure!(read == missing, "the relay closed the connection");
                }
            }
        }
    }
}

/// Bytes of the reply to an index entry.
const RETURN_LEN: usize = 4;

/// Packets and their index entries, ready to be sent.
pub(crate) struct Windows {
    /// In memory; nothing is copied on their way to the socket.
    packets: File,
    windows: Vec<Window>,
}

struct Window {
    packets_len: u64,
    requests: Vec<u8>,
    count: usize,
}

impl Windows {
    /// `packets` packets of `size` bytes for the streams in turn, in windows of `window`.
    pub(crate) fn new(
        streams: &[StreamHandle],
        packets: u64,
        window: usize,
        size: usize,
    ) -> anyhow::Result<Self> {
        let mut file = tempfile::tempfile_in("/dev/shm")?;
        let mut packet = vec![0x5a; wire::live::DATA_HEADER_LEN + size];
        let places = streams.len() as u64;
        let mut windows = Vec::new();
        for first in (0..packets).step_by(window) {
            let count = usize::try_from(packets - first)?.min(window);
            let mut requests = Vec::new();
            for number in (first..).take(count) {
                let stream = streams.get(usize::try_from(number % places)?).context("a stream")?;
                write_header(*stream, number / places, &mut packet)?;
                file.write_all(&packet)?;
                index_entry(*stream, number / places, packet.len()).encode(MINOR, &mut requests)?;
            }
            windows.push(Window { packets_len: (count * packet.len()) as u64, requests, count });
        }
        Ok(Self { packets: file, windows })
    }
}

/// The header of a packet that follows it in `packet`.
fn write_header(handle: StreamHandle, number: u64, packet: &mut [u8]) -> anyhow::Result<()> {
    let Some((front, body)) = packet.split_first_chunk_mut() else { bail!("no room") };
    let header = DataHeader {
        stream: handle,
        net_seq_num: NetSeqNum::new(number),
        data_len: u32::try_from(body.len())?,
        padding_len: 0,
    };
    *front = header.encode();
    Ok(())
}

/// The index entry of a packet of `len` bytes with its header.
fn index_entry(handle: StreamHandle, number: u64, len: usize) -> Request<'static> {
    let bits = (len - wire::live::DATA_HEADER_LEN) as u64 * 8;
    Request::SendIndex(PacketIndex {
        handle,
        net_seq_num: NetSeqNum::new(number),
        packet_size_bits: bits,
        content_size_bits: bits,
        timestamp_begin: number,
        timestamp_end: number,
        events_discarded: 0,
        stream_class_id: 0,
        full: Some(FullIndexFields {
            stream_instance_id: 0,
            packet_seq_num: PacketSeqNum::new(number),
        }),
    })
}
