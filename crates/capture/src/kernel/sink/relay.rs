//! A recording session at a relay: the producer's side of LTTng's relay protocol, version 2.11 and later.
//!
//! Everything is sent in the order lttng-consumerd uses. A packet goes out on the data connection, its index entry on
//! the control connection, and the relay's answer is awaited before the next packet: a slow relay slows us down, which
//! is what the bounded queue in front is for. Each chunk gets the whole metadata.
//!
//! Rotation: `CREATE_TRACE_CHUNK n+1`, `ROTATE_STREAMS` (data, then metadata), `CLOSE_TRACE_CHUNK n`, metadata again.
//! The relay takes one closing chunk at a time, so before the next rotation we wait until chunk `n` is archived.
//!
//! A relay of ours that is lost (killed, restarted, cut off) is looked for until [`Config::reconnect`] is over. It says which
//! packets it has (`STREAM_POSITIONS`), the one without acknowledgement is sent again if it is not among them, and
//! the recording goes on in the next chunk. Meanwhile the queue in front fills, then the rings, and what they have no
//! room for is counted in the trace. lttng-relayd cannot resume a session: without it the recording ends.
//!
//! [`Config::reconnect`]: crate::kernel::Config::reconnect

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ctf::writer::SealedPacket;
use door::{Client, Role, Stream as Socket};
use wire::live::{
    AddStream, AddStreamReply, ChunkExistsReply, ChunkId, CloseAction, CloseStream,
    CloseTraceChunk, CloseTraceChunkReply, Command, ConfigurationReply, CreateSession,
    CreateSessionReply, CreateTraceChunk, DataHeader, DataPending, Decoded, FullIndexFields,
    GetConfiguration, Name, NetSeqNum, PacketIndex, PacketSeqNum, PendingReply, ProtocolMinor,
    RelativePath, RelaySessionId, Request, ReturnCode, ReturnReply, RotateStreams, SendMetadata,
    SessionIdentity, SessiondSessionId, SessiondUuid, StreamHandle, StreamPosition,
    StreamPositionsReply, TraceChunkExists, TraceFormat, UnixSeconds, Version,
};

use super::{Recording, Sink, stream_name};
use crate::error::{Error, Result};
use crate::kernel::{RelayAddress, clock};

/// How long the relay may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long one answer, or the room for one packet, may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Between two attempts to reach a relay that was lost: at first, and at most.
const RETRY_PERIOD: Duration = Duration::from_millis(20);
const MAX_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Between two questions whether the relay is done.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// Where the streams are in a chunk.
const FOLDER: &str = "kernel";

/// What a relay did wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The connection failed, or the relay was silent for too long.
    #[error("connection lost or not possible")]
    Io(#[from] io::Error),
    /// Its encrypted port does not let us in, or is not the relay's.
    #[error(transparent)]
    Tls(#[from] door::Error),
    /// A reply is malformed, or a name cannot be sent.
    #[error("protocol")]
    Wire(#[from] wire::live::Error),
    /// It answered a command with another code than OK.
    #[error("refused {command} with code {code}")]
    Refused {
        /// The command.
        command: Command,
        /// The code.
        code: ReturnCode,
    },
    /// Its protocol is not 2.11 or later.
    #[error("speaks protocol {major}.{minor}; 2.11 or later is needed")]
    Version {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// It did not finish in time what it had acknowledged.
    #[error("did not {what} within {} s", ANSWER_LIMIT.as_secs())]
    Late {
        /// What was waited for.
        what: &'static str,
    },
}

impl RelayError {
    /// Whether the connection is gone and another one may do better.
    const fn is_lost(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Late { .. })
    }
}

/// Streams to a relay.
#[derive(Debug)]
pub(in crate::kernel) struct Relay {
    address: RelayAddress,
    names: (Name, Name),
    recording: Recording,
    session: Session,
    /// How long a relay that was lost is looked for.
    patience: Duration,
    /// Set when a chunk began without a rotation; it has no state dump.
    began_chunk: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Session {
    control: Control,
    data: Socket,
    id: RelaySessionId,
    metadata_text: String,
    metadata: StreamHandle,
    streams: Vec<Stream>,
    chunk: ChunkId,
    /// A chunk that the relay may still be moving to its archives.
    closing: Option<ChunkId>,
    rotates: bool,
    /// Whether the relay can resume sessions.
    can_resume: bool,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    handle: StreamHandle,
    /// Packet sequence number of the last packet that the relay had before this session.
    stored: Option<PacketSeqNum>,
    next: NetSeqNum,
    last: NetSeqNum,
}

impl Relay {
    pub(in crate::kernel) fn connect(
        address: &RelayAddress,
        recording: Recording,
        patience: Duration,
        began_chunk: Arc<AtomicBool>,
    ) -> Result<Self> {
        let name = |what, name: &str| {
            Name::new(name).map_err(|_problem| Error::Name { what, name: name.to_owned() })
        };
        let names = (name("session", &recording.session)?, name("host", &recording.host)?);
        let first = Begin { chunk: ChunkId::new(0), at: UnixSeconds::new(recording.begin_unix_s) };
        match Session::open(address, &names, &recording, first) {
            Ok(session) => {
                let address = address.clone();
                Ok(Self { address, names, recording, session, patience, began_chunk })
            }
            Err(source) => Err(Error::Relay { address: shown(address), source }),
        }
    }

    /// Does a step; when the relay is lost in it, finds the relay again and lets `again` decide whether the step is
    /// still to be done.
    fn attempt(
        &mut self,
        mut step: impl FnMut(&mut Session) -> std::result::Result<(), RelayError>,
        again: impl Fn(&Session) -> bool,
    ) -> Result<()> {
        loop {
            match step(&mut self.session) {
                Ok(()) => return Ok(()),
                Err(lost) if lost.is_lost() && self.session.can_resume => self.reconnect(lost)?,
                Err(source) => {
                    return Err(Error::Relay { address: shown(&self.address), source });
                }
            }
            if !again(&self.session) {
                return Ok(());
            }
        }
    }

    /// Goes on in the next chunk as soon as the relay is there.
    fn reconnect(&mut self, lost: RelayError) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let mut pause = RETRY_PERIOD;
        let mut why = lost;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Relay { address: shown(&self.address), source: why });
            }
            thread::park_timeout(pause.min(left));
            pause = (pause * 2).min(MAX_RETRY_PERIOD);
            let chunk = ChunkId::new(self.session.chunk.get() + 1);
            let next = Begin { chunk, at: UnixSeconds::new(clock::unix_seconds()) };
            match Session::open(&self.address, &self.names, &self.recording, next) {
                // Its chunks after the first are archived, whatever was planned.
                Ok(session) => {
                    self.session = Session { rotates: true, ..session };
                    self.began_chunk.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => {
                    // A chunk that the relay knows already must not be begun a second time.
                    self.session.chunk = chunk;
                    why = error;
                }
            }
        }
    }
}

impl Sink for Relay {
    fn packet(&mut self, stream: usize, packet: &SealedPacket) -> Result<()> {
        let number = PacketSeqNum::new(packet.sequence_number);
        self.attempt(
            |session| session.packet(stream, packet),
            |session| !session.has_stored(stream, number),
        )
    }

    fn rotate(&mut self, at_unix_s: u64, next: &[u64]) -> Result<()> {
        // To find the relay again is a rotation.
        self.attempt(|session| session.rotate(UnixSeconds::new(at_unix_s), next), |_| false)
    }

    fn finish(&mut self, at_unix_s: u64, next: &[u64]) -> Result<()> {
        self.attempt(|session| session.finish(UnixSeconds::new(at_unix_s), next), |_| true)
    }
}

/// A chunk to begin with.
#[derive(Debug, Clone, Copy)]
struct Begin {
    chunk: ChunkId,
    at: UnixSeconds,
}

fn shown(address: &RelayAddress) -> String {
    format!("{}:{}", address.host, address.control_port)
}

impl Session {
    fn open(
        address: &RelayAddress,
        (session_name, hostname): &(Name, Name),
        recording: &Recording,
        begin: Begin,
    ) -> std::result::Result<Self, RelayError> {
        let entrance = Entrance::open(address)?;
        let (mut control, can_resume) = Control::open(&entrance)?;
        let identity = SessionIdentity {
            base_path: RelativePath::default(),
            name_has_creation_time: false,
            sessiond: SessiondUuid(recording.uuid),
            sessiond_session: SessiondSessionId::new(1),
            created: UnixSeconds::new(recording.begin_unix_s),
            current_chunk: None,
            trace_format: Some(TraceFormat::Ctf1_8),
        };
        let create = Request::CreateSession(CreateSession {
            session_name: Some(session_name.clone()),
            hostname: Some(hostname.clone()),
            live_timer_us: 0,
            snapshot: false,
            identity: Some(identity),
        });
        let minor = control.minor;
        let created = control.query(
            &create,
            |bytes| CreateSessionReply::decode(bytes, minor),
            |reply| reply.code,
        )?;
        let stored = if can_resume { control.stored()? } else { Vec::new() };
        let data = entrance.connect(Role::Data)?;
        let Begin { chunk, at } = begin;
        control.create_chunk(chunk, at)?;
        let metadata = control.add_stream("metadata", chunk)?;
        let streams = (0..recording.streams)
            .map(|stream| {
                let name = stream_name(stream);
                let handle = control.add_stream(&name, chunk)?;
                let path = format!("{FOLDER}/{name}");
                let stored = stored.iter().find(|(stored, _)| stored.as_str() == path);
                let stored = stored.map(|(_, number)| *number);
                Ok(Stream { handle, stored, next: NetSeqNum::new(0), last: NetSeqNum::NONE })
            })
            .collect::<std::result::Result<_, RelayError>>()?;
        control.command(&Request::StreamsSent)?;
        let mut session = Self {
            control,
            data,
            id: created.session,
            metadata_text: recording.metadata.clone(),
            metadata,
            streams,
            chunk,
            closing: None,
            rotates: recording.rotates,
            can_resume,
        };
        session.send_metadata()?;
        Ok(session)
    }

    /// Whether the relay had the packet before this session.
    fn has_stored(&self, stream: usize, number: PacketSeqNum) -> bool {
        let stored = self.streams.get(stream).and_then(|stream| stream.stored);
        stored.is_some_and(|stored| number <= stored)
    }

    fn send_metadata(&mut self) -> std::result::Result<(), RelayError> {
        self.control.send(&Request::SendMetadata(SendMetadata {
            handle: self.metadata,
            padding_len: 0,
            bytes: self.metadata_text.as_bytes(),
        }))
    }

    fn packet(
        &mut self,
        stream: usize,
        packet: &SealedPacket,
    ) -> std::result::Result<(), RelayError> {
        let Some(stream) = self.streams.get_mut(stream) else { return Ok(()) };
        let header = DataHeader {
            stream: stream.handle,
            net_seq_num: stream.next,
            data_len: u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX),
            padding_len: 0,
        };
        write_both(&mut self.data, &header.encode(), &packet.bytes)?;
        let index = PacketIndex {
            handle: stream.handle,
            net_seq_num: stream.next,
            packet_size_bits: packet.content_bits,
            content_size_bits: packet.content_bits,
            timestamp_begin: packet.begin,
            timestamp_end: packet.end,
            events_discarded: packet.discarded,
            stream_class_id: 0,
            full: Some(FullIndexFields {
                stream_instance_id: packet.instance,
                packet_seq_num: PacketSeqNum::new(packet.sequence_number),
            }),
        };
        stream.last = stream.next;
        stream.next = stream.next.next();
        self.control.command(&Request::SendIndex(index))
    }

    fn rotate(&mut self, at: UnixSeconds, next: &[u64]) -> std::result::Result<(), RelayError> {
        self.wait_until_archived()?;
        let old = self.chunk;
        self.chunk = ChunkId::new(old.get() + 1);
        self.control.create_chunk(self.chunk, at)?;
        self.leave_chunk(Some(self.chunk), next)?;
        self.close_chunk(old, at, Some(CloseAction::MoveToArchives))?;
        self.send_metadata()
    }

    fn finish(&mut self, at: UnixSeconds, next: &[u64]) -> std::result::Result<(), RelayError> {
        self.wait_until_archived()?;
        self.wait_until_stored()?;
        self.leave_chunk(None, next)?;
        let action = self.rotates.then_some(CloseAction::MoveToArchives);
        self.close_chunk(self.chunk, at, action)?;
        self.wait_until_archived()?;
        let close = |handle, last| Request::CloseStream(CloseStream { handle, last });
        self.control.command(&close(self.metadata, NetSeqNum::NONE))?;
        for stream in &self.streams {
            self.control.command(&close(stream.handle, stream.last))?;
        }
        Ok(())
    }

    fn leave_chunk(
        &mut self,
        new_chunk: Option<ChunkId>,
        next: &[u64],
    ) -> std::result::Result<(), RelayError> {
        let position = |handle, next| StreamPosition { handle, rotate_at: PacketSeqNum::new(next) };
        let data = self.streams.iter().zip(next);
        let data = data.map(|(stream, next)| position(stream.handle, *next)).collect();
        for positions in [data, vec![position(self.metadata, 0)]] {
            self.control
                .command(&Request::RotateStreams(RotateStreams { new_chunk, positions }))?;
        }
        Ok(())
    }

    fn close_chunk(
        &mut self,
        chunk: ChunkId,
        closed: UnixSeconds,
        action: Option<CloseAction>,
    ) -> std::result::Result<(), RelayError> {
        self.control.query(
            &Request::CloseTraceChunk(CloseTraceChunk { chunk, closed, action }),
            CloseTraceChunkReply::decode,
            |reply| reply.code,
        )?;
        self.closing = Some(chunk);
        Ok(())
    }

    fn wait_until_archived(&mut self) -> std::result::Result<(), RelayError> {
        let Some(chunk) = self.closing.take() else { return Ok(()) };
        poll("archive a chunk", || {
            let reply = self.control.query(
                &Request::TraceChunkExists(TraceChunkExists { chunk }),
                ChunkExistsReply::decode,
                |reply| reply.code,
            )?;
            Ok(!reply.exists)
        })
    }

    /// Waits until the relay has written all packets: they travel on a connection of their own.
    fn wait_until_stored(&mut self) -> std::result::Result<(), RelayError> {
        poll("store all packets", || {
            self.control.command(&Request::BeginDataPending(self.id))?;
            let mut stored = true;
            for stream in &self.streams {
                let question = DataPending { handle: stream.handle, last: stream.last };
                stored &= self.control.is_complete(&Request::DataPending(question))?;
            }
            self.control.command(&Request::QuiescentControl(self.metadata))?;
            Ok(self.control.is_complete(&Request::EndDataPending(self.id))? && stored)
        })
    }
}

/// The control connection: commands and their replies in turn.
#[derive(Debug)]
struct Control {
    socket: Socket,
    minor: ProtocolMinor,
    buffer: Vec<u8>,
}

impl Control {
    /// Connects, agrees on a version and asks whether sessions can be resumed.
    fn open(entrance: &Entrance<'_>) -> std::result::Result<(Self, bool), RelayError> {
        let mut control = Self::greet(entrance)?;
        match control.configuration(GetConfiguration::RESUME) {
            Ok(reply) => return Ok((control, reply.can_resume)),
            Err(RelayError::Refused { .. }) => {}
            // A relay that does not know the question may hang up.
            Err(RelayError::Io(_)) => control = Self::greet(entrance)?,
            Err(error) => return Err(error),
        }
        control.configuration(0)?;
        Ok((control, false))
    }

    fn configuration(
        &mut self,
        query_flags: u64,
    ) -> std::result::Result<ConfigurationReply, RelayError> {
        let request = Request::GetConfiguration(GetConfiguration { query_flags });
        self.query(&request, ConfigurationReply::decode, |reply| reply.code)
    }

    /// The last packet that the relay has of each stream of the session.
    fn stored(&mut self) -> std::result::Result<Vec<(RelativePath, PacketSeqNum)>, RelayError> {
        let request = Request::StreamPositions;
        let reply = self.query(&request, StreamPositionsReply::decode, |reply| reply.code)?;
        Ok(reply.positions)
    }

    fn greet(entrance: &Entrance<'_>) -> std::result::Result<Self, RelayError> {
        let socket = entrance.connect(Role::Control)?;
        let mut control = Self { socket, minor: ProtocolMinor::OURS, buffer: Vec::new() };
        control.send(&Request::Version(Version::OURS))?;
        let theirs = control.reply(Version::decode)?;
        match Version::OURS.negotiate(theirs).filter(|minor| minor.has_trace_chunks()) {
            Some(minor) => {
                control.minor = minor;
                Ok(control)
            }
            None => Err(RelayError::Version { major: theirs.major, minor: theirs.minor.0 }),
        }
    }

    fn create_chunk(
        &mut self,
        chunk: ChunkId,
        created: UnixSeconds,
    ) -> std::result::Result<(), RelayError> {
        self.command(&Request::CreateTraceChunk(CreateTraceChunk {
            chunk,
            created,
            override_name: None,
        }))
    }

    fn add_stream(
        &mut self,
        channel: &str,
        chunk: ChunkId,
    ) -> std::result::Result<StreamHandle, RelayError> {
        let name = |problem| wire::live::Error::BadName { field: "channel", offset: 0, problem };
        let request = Request::AddStream(AddStream {
            channel: Name::new(channel).map_err(name)?,
            path: RelativePath::new(FOLDER).map_err(name)?,
            tracefile: None,
            chunk: Some(chunk),
        });
        let reply = self.query(&request, AddStreamReply::decode, |reply| reply.code)?;
        Ok(reply.handle)
    }

    /// A command that is answered with a return code alone.
    fn command(&mut self, request: &Request<'_>) -> std::result::Result<(), RelayError> {
        self.query(request, ReturnReply::decode, |reply| reply.0).map(drop)
    }

    fn is_complete(&mut self, request: &Request<'_>) -> std::result::Result<bool, RelayError> {
        self.send(request)?;
        match self.reply(PendingReply::decode)? {
            PendingReply::Complete => Ok(true),
            PendingReply::Pending => Ok(false),
            PendingReply::Failed(code) => {
                Err(RelayError::Refused { command: request.command(), code })
            }
        }
    }

    fn query<T>(
        &mut self,
        request: &Request<'_>,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
        code: impl FnOnce(&T) -> ReturnCode,
    ) -> std::result::Result<T, RelayError> {
        self.send(request)?;
        let reply = self.reply(decode)?;
        let code = code(&reply);
        if code.is_ok() {
            Ok(reply)
        } else {
            Err(RelayError::Refused { command: request.command(), code })
        }
    }

    fn send(&mut self, request: &Request<'_>) -> std::result::Result<(), RelayError> {
        self.buffer.clear();
        request.encode(self.minor, &mut self.buffer)?;
        self.socket.write_all(&self.buffer)?;
        Ok(self.socket.flush()?)
    }

    fn reply<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> std::result::Result<T, RelayError> {
        self.buffer.clear();
        loop {
            match decode(&self.buffer)? {
                Decoded::Complete { value, .. } => return Ok(value),
                Decoded::Incomplete { needed } => {
                    let missing = needed.saturating_sub(self.buffer.len()) as u64;
                    let read = (&mut self.socket).take(missing).read_to_end(&mut self.buffer)?;
                    if (read as u64) < missing {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                }
            }
        }
    }
}

/// How the relay is reached.
struct Entrance<'a> {
    address: &'a RelayAddress,
    tls: Option<Client>,
}

impl<'a> Entrance<'a> {
    fn open(address: &'a RelayAddress) -> std::result::Result<Self, RelayError> {
        let tls = address.tls.as_ref().map(Client::new).transpose()?;
        Ok(Self { address, tls })
    }

    fn connect(&self, role: Role) -> std::result::Result<Socket, RelayError> {
        let RelayAddress { host, control_port, data_port, .. } = self.address;
        let port = if role == Role::Data { data_port } else { control_port };
        let socket = connect(host, *port)?;
        let Some(client) = &self.tls else { return Ok(socket.into()) };
        let socket = client.enter(socket, host, role)?;
        set_patience(socket.socket())?;
        Ok(socket)
    }
}

fn set_patience(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.set_write_timeout(Some(ANSWER_LIMIT))
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                set_patience(&socket)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Writes header and body without copying them together.
fn write_both(socket: &mut Socket, header: &[u8], body: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(header), IoSlice::new(body)];
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        match socket.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.flush()
}

/// Asks until the answer is yes.
fn poll(
    what: &'static str,
    mut is_done: impl FnMut() -> std::result::Result<bool, RelayError>,
) -> std::result::Result<(), RelayError> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    while !is_done()? {
        if Instant::now() > deadline {
            return Err(RelayError::Late { what });
        }
        thread::park_timeout(POLL_PERIOD);
    }
    Ok(())
}
