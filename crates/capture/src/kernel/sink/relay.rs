//! A recording session at a relay: the producer's side of LTTng's relay protocol, version 2.11 and later.
//!
//! Everything is sent in the order lttng-consumerd uses. A packet goes out on the data connection, its index entry on
//! the control connection, and the relay's answer is awaited before the next packet: a slow relay slows us down, which
//! is what the bounded queue in front is for. Each chunk gets the whole metadata.
//!
//! Rotation: `CREATE_TRACE_CHUNK n+1`, `ROTATE_STREAMS` (data, then metadata), `CLOSE_TRACE_CHUNK n`, metadata again.
//! lttng-relayd takes one closing chunk at a time, so before the next rotation we wait until chunk `n` is archived; ours
//! may have [`MAX_CLOSING`] to do. A relay that answers that it is not done is waited for as long as it answers.
//!
//! The first connection fails at once when nobody listens or the relay refuses. A relay that dies in the middle of it is
//! looked for as one that is lost later is; so is one that hangs up, [`MAX_REBUFFS`] times.
//!
//! A relay of ours that is lost (killed, restarted, cut off) is looked for until [`Config::reconnect`] is over. It says which
//! packets it has (`STREAM_POSITIONS`), the one without acknowledgement is sent again if it is not among them, and
//! the recording goes on in the next chunk. Meanwhile the queue in front fills, then the rings, and what they have no
//! room for is counted in the trace. lttng-relayd cannot resume a session: without it the recording ends.
//!
//! A relay of ours whose disk is full is not lost: it reads and answers nothing until there is room again, or for ten minutes, after
//! which it refuses. It is waited for in the middle of a packet or command as long as its machine answers the system's questions on the
//! control connection, at most for [`HOLD_LIMIT`]; what finds no room meanwhile is counted as above. Only the first connection has to
//! be answered at once.
//!
//! [`Config::reconnect`]: crate::kernel::Config::reconnect

mod control;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ctf::writer::SealedPacket;
use door::{Role, Stream as Socket};
use wire::live::{
    ChunkExistsReply, ChunkId, CloseAction, CloseStream, CloseTraceChunk, CloseTraceChunkReply,
    Command, CreateSession, CreateSessionReply, DataHeader, DataPending, FullIndexFields, Name,
    NetSeqNum, PacketIndex, PacketSeqNum, RelativePath, RelaySessionId, Request, ReturnCode,
    RotateStreams, SendMetadata, SessionIdentity, SessiondSessionId, SessiondUuid, StreamHandle,
    StreamPosition, TraceChunkExists, TraceFormat, UnixSeconds,
};

use self::control::{Control, Entrance, write_both};
use super::{Recording, Sink, stream_name};
use crate::error::{Error, Result};
use crate::kernel::{RelayAddress, clock};

/// How long the relay may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long one answer, or the room for one packet, may take where nothing holds us back.
const ANSWER_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How long a relay of ours may hold us back: longer than it does, which is ten minutes.
const HOLD_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 660 });
/// Between two attempts to reach a relay that was lost: at first, and at most.
const RETRY_PERIOD: Duration = Duration::from_millis(20);
const MAX_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Between two questions whether the relay is done.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// How often the first connection may fail at a relay that is there.
const MAX_REBUFFS: u32 = 5;
/// Chunks that a relay of ours may still be moving to its archives when the next one is closed.
const MAX_CLOSING: usize = 64;

/// Where the streams are in a chunk.
const FOLDER: &str = "kernel";

/// What a relay did wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// Nobody takes the connection.
    #[error("cannot connect")]
    Unreachable(#[source] io::Error),
    /// The connection failed, or the relay was silent for too long.
    #[error("connection lost")]
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
    /// Whether the connection is gone, or of no use for the moment, and another one may do better.
    const fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Io(_)
                | Self::Late { .. }
                | Self::Tls(door::Error::Closed)
                | Self::Refused { code: ReturnCode::FILE_CREATION, .. }
        )
    }

    /// Whether the relay ended the connection.
    fn is_rebuff(&self) -> bool {
        match self {
            Self::Tls(door::Error::Closed) => true,
            Self::Io(error) | Self::Unreachable(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
            _ => false,
        }
    }
}

/// Streams to a relay.
#[derive(Debug)]
pub(in crate::kernel) struct Relay {
    target: Target,
    session: Session,
    /// The chunk that a session begins with when the relay was lost.
    next_chunk: ChunkId,
    /// How long a relay that was lost is looked for.
    patience: Duration,
    /// Set when a chunk began without a rotation; it has no state dump.
    began_chunk: Arc<AtomicBool>,
}

/// What is recorded, and where to.
#[derive(Debug)]
struct Target {
    address: RelayAddress,
    session: Name,
    host: Name,
    recording: Recording,
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
    /// Chunks that the relay may still be moving to its archives; at most [`MAX_CLOSING`].
    closing: VecDeque<ChunkId>,
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
        let session = name("session", &recording.session)?;
        let host = name("host", &recording.host)?;
        let target = Target { address: address.clone(), session, host, recording };
        let mut opening = Opening::first();
        match open_first(&target, &mut opening, patience) {
            Ok(session) => {
                let next_chunk = opening.chunk;
                Ok(Self { target, session, next_chunk, patience, began_chunk })
            }
            Err(source) => Err(target.failed(source)),
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
                Err(source) => return Err(self.target.failed(source)),
            }
            if !again(&self.session) {
                return Ok(());
            }
        }
    }

    /// Goes on in the next chunk as soon as the relay is there.
    fn reconnect(&mut self, lost: RelayError) -> Result<()> {
        let mut opening = Opening::again(self.next_chunk.max(after(self.session.chunk)));
        let found = open_again(&self.target, &mut opening, self.patience, lost, |_, _| false);
        // A chunk that the relay may know already must not be begun a second time.
        self.next_chunk = opening.chunk;
        self.session = found.map_err(|source| self.target.failed(source))?;
        self.began_chunk.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Target {
    fn failed(&self, source: RelayError) -> Error {
        let RelayAddress { host, control_port, .. } = &self.address;
        Error::Relay { address: format!("{host}:{control_port}"), source }
    }
}

/// How far the opening of a session has come.
#[derive(Debug)]
struct Opening {
    /// The chunk to begin with: one that the relay has not been told of.
    chunk: ChunkId,
    /// Whether somebody took the control connection of the last attempt.
    was_taken: bool,
    /// Whether a relay may hold it back.
    is_patient: bool,
}

impl Opening {
    const fn first() -> Self {
        Self { chunk: ChunkId::new(0), was_taken: false, is_patient: false }
    }

    const fn again(chunk: ChunkId) -> Self {
        Self { chunk, was_taken: false, is_patient: true }
    }
}

fn after(chunk: ChunkId) -> ChunkId {
    ChunkId::new(chunk.get() + 1)
}

/// The first connection: a wrong address, and a relay that does not want us, fail at once.
fn open_first(
    target: &Target,
    opening: &mut Opening,
    patience: Duration,
) -> std::result::Result<Session, RelayError> {
    let lost = match Session::open(target, opening) {
        Err(lost) if lost.is_rebuff() && opening.was_taken => lost,
        other => return other,
    };
    let mut rebuffs = 1;
    open_again(target, opening, patience, lost, |error, opening| {
        rebuffs += u32::from(opening.was_taken);
        !error.is_rebuff() || rebuffs >= MAX_REBUFFS
    })
}

/// Looks for a relay that was lost until `patience` is over or `gives_up` says so.
fn open_again(
    target: &Target,
    opening: &mut Opening,
    patience: Duration,
    lost: RelayError,
    mut gives_up: impl FnMut(&RelayError, &Opening) -> bool,
) -> std::result::Result<Session, RelayError> {
    let deadline = Instant::now() + patience;
    let mut pause = RETRY_PERIOD;
    let mut why = lost;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(why);
        }
        thread::park_timeout(pause.min(left));
        pause = (pause * 2).min(MAX_RETRY_PERIOD);
        match Session::open(target, opening) {
            // Its chunks after the first are archived, whatever was planned.
            Ok(session) => return Ok(Session { rotates: true, ..session }),
            Err(error) if gives_up(&error, opening) => return Err(error),
            Err(error) => why = error,
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

impl Session {
    fn open(target: &Target, opening: &mut Opening) -> std::result::Result<Self, RelayError> {
        let Target { address, session, host, recording } = target;
        opening.was_taken = false;
        let entrance = Entrance::open(address)?;
        let (mut control, can_resume) = Control::open(&entrance, &mut opening.was_taken)?;
        if can_resume && opening.is_patient {
            control.be_patient()?;
        }
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
            session_name: Some(session.clone()),
            hostname: Some(host.clone()),
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
        let chunk = opening.chunk;
        let at = if chunk.get() == 0 { recording.begin_unix_s } else { clock::unix_seconds() };
        opening.chunk = after(chunk);
        control.create_chunk(chunk, UnixSeconds::new(at))?;
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
        if can_resume {
            control.be_patient()?;
        }
        let mut session = Self {
            control,
            data,
            id: created.session,
            metadata_text: recording.metadata.clone(),
            metadata,
            streams,
            chunk,
            closing: VecDeque::new(),
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
        write_both(&mut self.data, &header.encode(), &packet.bytes, &self.control)?;
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
        let at_most = if self.can_resume { MAX_CLOSING } else { 1 };
        self.wait_until_archived(at_most - 1)?;
        let old = self.chunk;
        self.chunk = after(old);
        self.control.create_chunk(self.chunk, at)?;
        self.leave_chunk(Some(self.chunk), next)?;
        self.close_chunk(old, at, Some(CloseAction::MoveToArchives))?;
        self.send_metadata()
    }

    fn finish(&mut self, at: UnixSeconds, next: &[u64]) -> std::result::Result<(), RelayError> {
        self.wait_until_archived(0)?;
        self.wait_until_stored()?;
        self.leave_chunk(None, next)?;
        let action = self.rotates.then_some(CloseAction::MoveToArchives);
        self.close_chunk(self.chunk, at, action)?;
        self.wait_until_archived(0)?;
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
        self.closing.push_back(chunk);
        Ok(())
    }

    /// Waits until the relay has no more than `left` chunks to archive.
    fn wait_until_archived(&mut self, left: usize) -> std::result::Result<(), RelayError> {
        while self.closing.len() > left
            && let Some(chunk) = self.closing.front().copied()
        {
            poll(None, || {
                let reply = self.control.query(
                    &Request::TraceChunkExists(TraceChunkExists { chunk }),
                    ChunkExistsReply::decode,
                    |reply| reply.code,
                )?;
                Ok(!reply.exists)
            })?;
            self.closing.pop_front();
        }
        Ok(())
    }

    /// Waits until the relay has written all packets: they travel on a connection of their own.
    fn wait_until_stored(&mut self) -> std::result::Result<(), RelayError> {
        poll(Some("store all packets"), || {
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

/// Asks until the answer is yes: what is called `late` for a limited time, else as long as there are answers.
fn poll(
    late: Option<&'static str>,
    mut is_done: impl FnMut() -> std::result::Result<bool, RelayError>,
) -> std::result::Result<(), RelayError> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    while !is_done()? {
        match late {
            Some(what) if Instant::now() > deadline => return Err(RelayError::Late { what }),
            _ => thread::park_timeout(POLL_PERIOD),
        }
    }
    Ok(())
}
