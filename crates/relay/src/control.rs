//! A control connection: one request after the other, each answered in one write.
//!
//! Producers write some requests in pieces and wait, by Nagle's algorithm, until the first piece is acknowledged;
//! the kernel delays that acknowledgement by 40 ms unless `TCP_QUICKACK` is set anew. It is set
//! whenever the connection waits in the middle of a request or after one that has no reply; a reply carries the
//! acknowledgement of its request, so setting it more often would only add packets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant as Deadline;
use wire::live::{
    AddStreamReply, COMMAND_HEADER_LEN, ChunkExistsReply, ChunkId, CloseTraceChunkReply, Command,
    CommandHeader, ConfigurationReply, CreateSession, CreateSessionReply, ErrorKind,
    GetConfiguration, PacketIndex, ProtocolMinor, RelaySessionId, Request, ReturnCode, ReturnReply,
    RotateStreams, SendMetadata, StreamPositionsReply, Version, refuse,
};

use crate::arrivals::Arrivals;
use crate::doors::{Socket, Who, has_ended};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::recording::Recording;
use crate::recording::packets::Awaited;
use crate::registry::{Registry, Shared};
use crate::room;

/// Bytes the buffer begins with and goes back to after a large request. Larger requests need room in
/// [`Limits::request_bytes`], and come after the session was made.
///
/// [`Limits::request_bytes`]: crate::Limits::request_bytes
const BUFFER: usize = 64 * 1024;
/// How long `TRACE_CHUNK_EXISTS` waits for a chunk that is on its last move, so that the producer need not ask
/// again half a second later.
const EXISTS_PATIENCE: Duration = Duration::from_millis(25);

/// Bytes of metadata that are written at a time.
const METADATA_PIECE: usize = 1 << 20;

/// After so many times [`Limits::ack_patience`] in which its data connection brought nothing, a packet of a producer that
/// can resume is taken for lost.
///
/// [`Limits::ack_patience`]: crate::Limits::ack_patience
const MOST_STALLED: u32 = 20;

/// A control connection.
pub(crate) struct Control {
    registry: Arc<Registry>,
    who: Who,
    minor: Option<ProtocolMinor>,
    session: Option<(RelaySessionId, Arc<Shared>)>,
    /// Of that session.
    arrivals: Arc<Arrivals>,
}

impl Control {
    pub(crate) fn new(registry: Arc<Registry>, who: Who) -> Self {
        Self { registry, who, minor: None, session: None, arrivals: Arc::default() }
    }

    /// Serves the connection until its end, or until `stop` says so.
    pub(crate) async fn serve(
        mut self,
        mut stream: impl Socket,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        stream.tcp()?.set_nodelay(true)?;
        let result = tokio::select! {
            result = self.answer_all(&mut stream) => result,
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        };
        if let Some((id, shared)) = self.session.take() {
            self.registry
                .act(&shared, |recording, env| recording.control_ended(env, id, Instant::now()))?;
        }
        stream.say_goodbye().await;
        result
    }

    async fn answer_all(&mut self, stream: &mut impl Socket) -> Result<()> {
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut reply = Vec::new();
        let greeting = Deadline::now() + self.registry.env.limits.first_message;
        // Of the request that has begun.
        let mut room = None;
        let mut deadline = None;
        loop {
            let mut used = 0;
            let mut was_answered = true;
            let missing = loop {
                let rest = buffer.get(used..).unwrap_or(&[]);
                let (header, payload) = match split_request(rest, self.longest_request()) {
                    Ok(Parsed::Whole(header, payload)) => (header, payload),
                    Ok(Parsed::Missing(missing)) => break missing,
                    Err(error) => {
                        // The reference relay answers a command it does not know before it closes.
                        ReturnReply(ReturnCode::UNKNOWN_ERROR).encode(&mut reply);
                        stream.write_all(&reply).await?;
                        stream.flush().await?;
                        return Err(error.into());
                    }
                };
                let socket = stream.tcp()?;
                let outcome = self.answer(socket, header.command, payload, &mut reply).await;
                was_answered = !reply.is_empty();
                if !reply.is_empty() {
                    stream.write_all(&reply).await?;
                    stream.flush().await?;
                    reply.clear();
                }
                outcome?;
                used += COMMAND_HEADER_LEN + payload.len();
            };
            buffer.drain(..used);
            if used > 0 || buffer.is_empty() {
                buffer.shrink_to(BUFFER);
                (room, deadline) = (None, None);
            }
            if missing <= BUFFER {
                buffer.reserve(missing);
            } else if room.is_none() {
                room = Some(self.room(missing).await?);
                buffer.reserve_exact(missing);
                deadline = None;
            }
            if !buffer.is_empty() && deadline.is_none() {
                let timeout = self.registry.env.limits.request_timeout;
                let more = Duration::from_secs((missing >> 20) as u64);
                deadline = Some(Deadline::now() + timeout + more);
            }
            if !buffer.is_empty() || !was_answered {
                sockopt::set_tcp_quickack(stream.tcp()?, true).map_err(std::io::Error::from)?;
            }
            let read = stream.read_buf(&mut buffer);
            let missing_bytes = missing as u64;
            let read = match (&self.session, deadline) {
                (None, _) => tokio::time::timeout_at(greeting, read)
                    .await
                    .map_err(|_elapsed| Error::NoSession)??,
                (_, Some(deadline)) => {
                    tokio::time::timeout_at(deadline, read).await.map_err(|_elapsed| {
                        self.registry.env.counters.requests_unfinished.add(1);
                        Error::RequestUnfinished { missing: missing_bytes }
                    })??
                }
                // Between requests it may be silent for as long as it likes.
                _ => read.await?,
            };
            if read == 0 {
                return if buffer.is_empty() {
                    Ok(())
                } else {
                    Err(Error::CutShort { missing: missing as u64 })
                };
            }
        }
    }

    /// The longest payload that a request may have, whatever its command.
    const fn longest_request(&self) -> u64 {
        if self.session.is_some() { u64::MAX } else { BUFFER as u64 }
    }

    /// Waits for room for a large request, which is not read meanwhile.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let env = &self.registry.env;
        let bytes = u32::try_from(bytes.min(env.limits.request_bytes)).unwrap_or(u32::MAX);
        let room = Arc::clone(&env.request_room).acquire_many_owned(bytes).await;
        room.map_err(|closed| std::io::Error::other(closed).into())
    }

    /// Puts the answer into `reply`. An error ends the connection; what is merely refused is answered and logged here.
    async fn answer(
        &mut self,
        socket: &TcpStream,
        command: Command,
        payload: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<()> {
        let minor = self.minor.unwrap_or(ProtocolMinor::OURS);
        let outcome = match speakable(command, minor)
            .and(Request::decode(command, minor, payload).map_err(Error::from))
        {
            Ok(Request::TraceChunkExists(request)) => self.chunk_exists(request.chunk, reply).await,
            Ok(Request::SendIndex(index)) => self.index(index, reply).await,
            Ok(Request::SendMetadata(request)) => self.metadata(request).await,
            Ok(Request::RotateStreams(request)) => self.rotate(&request, reply).await,
            Ok(request) => self.act_with_room(socket, request, reply).await,
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return Ok(()) };
        reply.clear();
        if matches!(error, Error::PacketLost { .. } | Error::ProducerGone) {
            return Err(error);
        }
        refuse(command, minor, error.code(), reply);
        self.registry.env.counters.requests_refused.add(1);
        let is_fatal = match &error {
            Error::Protocol(error) => error.kind() == ErrorKind::Malformed,
            Error::WrongMajor { .. } | Error::OutOfOrder { .. } => true,
            // It cannot be told otherwise, and events without their description are of no use.
            Error::Limit { .. } | Error::File { .. } => command == Command::SendMetadata,
            _ => false,
        };
        if is_fatal {
            return Err(error);
        }
        tracing::warn!(%command, error = &error as &dyn std::error::Error, "request refused");
        Ok(())
    }

    /// Does what a request asks; while the disk has no room for it, again and again. What failed so has changed nothing, and
    /// nobody waits any more for what a producer asked that is gone.
    async fn act_with_room(
        &mut self,
        socket: &TcpStream,
        request: Request<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<()> {
        let mut room = room::Place::default();
        while let Err(error) = self.act(request.clone(), reply) {
            room.failed(&self.registry.env, error)?;
            reply.clear();
            tokio::time::sleep(room::AGAIN).await;
            if has_ended(socket)? {
                return Err(Error::ProducerGone);
            }
        }
        Ok(())
    }

    /// Does something to the recording session; while the disk has no room for it, again and again.
    async fn with_room<T>(
        &self,
        shared: &Arc<Shared>,
        mut action: impl FnMut(&mut Recording, &Env) -> Result<T>,
    ) -> Result<T> {
        let mut room = room::Place::default();
        loop {
            match self.registry.act(shared, &mut action) {
                Ok(value) => return Ok(value),
                Err(error) => room.failed(&self.registry.env, error)?,
            }
            tokio::time::sleep(room::AGAIN).await;
        }
    }

    /// Writes metadata in pieces, between which others have their turn.
    async fn metadata(&self, request: SendMetadata<'_>) -> Result<()> {
        let (id, shared) = self.session(Command::SendMetadata)?;
        let SendMetadata { handle, mut bytes, padding_len } = request;
        self.registry
            .act(shared, |recording, env| recording.has_metadata_room(env, id, &request))?;
        loop {
            let (piece, rest) = bytes.split_at(bytes.len().min(METADATA_PIECE));
            let padding_len = if rest.is_empty() { padding_len } else { 0 };
            let piece = SendMetadata { handle, bytes: piece, padding_len };
            self.with_room(shared, |recording, env| recording.metadata(env, id, piece)).await?;
            if rest.is_empty() {
                return Ok(());
            }
            bytes = rest;
            tokio::task::yield_now().await;
        }
    }

    async fn rotate(&self, request: &RotateStreams, reply: &mut Vec<u8>) -> Result<()> {
        let (id, shared) = self.session(Command::RotateStreams)?;
        self.with_room(shared, |recording, env| recording.end_rotations(env, id, request)).await?;
        let now = Instant::now();
        match self.registry.act(shared, |recording, env| recording.rotate(env, id, request, now)) {
            Err(error) if error.is_no_room() => {
                self.with_room(shared, |recording, env| recording.go_on(env, id)).await?;
            }
            rotated => rotated?,
        }
        ReturnReply(ReturnCode::OK).encode(reply);
        Ok(())
    }

    fn act(&mut self, request: Request<'_>, reply: &mut Vec<u8>) -> Result<()> {
        let command = request.command();
        match request {
            Request::Version(theirs) => return self.version(theirs, reply),
            Request::GetConfiguration(request)
                if matches!(request.query_flags, 0 | GetConfiguration::RESUME) =>
            {
                let can_resume = request.query_flags == GetConfiguration::RESUME;
                ConfigurationReply { code: ReturnCode::OK, clear_allowed: true, can_resume }
                    .encode(reply);
                return Ok(());
            }
            Request::GetConfiguration(_) => {
                return Err(Error::OutOfOrder { request: command, needed: Command::Version });
            }
            Request::CreateSession(request) => return self.create_session(&request, reply),
            _ => {}
        }
        let (id, shared) = self.session(command)?;
        if let Request::AddStream(request) = &request {
            let handle = self.registry.new_handle(shared)?;
            let added = self.registry.add_stream(shared, id, handle, request);
            if added.is_err() {
                self.registry.forget_handle(handle);
            }
            added?;
            AddStreamReply { handle, code: ReturnCode::OK }.encode(reply);
            return Ok(());
        }
        self.registry.act(shared, |recording, env| {
            let now = Instant::now();
            match request {
                Request::CloseTraceChunk(request) => {
                    let path = recording.close_chunk(env, &request)?;
                    CloseTraceChunkReply { code: ReturnCode::OK, path }.encode(reply);
                    return Ok(());
                }
                Request::StreamPositions => {
                    let positions = recording.resume(env, id, now)?;
                    StreamPositionsReply { code: ReturnCode::OK, positions }.encode(reply);
                    return Ok(());
                }
                Request::DataPending(request) => {
                    recording.data_pending(id, request)?.encode(reply);
                    return Ok(());
                }
                Request::EndDataPending(session) => {
                    same(session, id)?;
                    recording.end_pending(id).encode(reply);
                    return Ok(());
                }
                Request::CreateTraceChunk(request) => recording.create_chunk(env, &request)?,
                Request::ResetMetadata(request) => recording.reset_metadata(env, id, request)?,
                Request::CloseStream(request) => recording.close_stream(env, id, request)?,
                Request::QuiescentControl(handle) => recording.quiescent(id, handle)?,
                Request::BeginDataPending(session) => {
                    same(session, id)?;
                    recording.begin_pending(id);
                }
                Request::StreamsSent => recording.feed.publish(id),
                // Answered above.
                Request::Version(_)
                | Request::GetConfiguration(_)
                | Request::CreateSession(_)
                | Request::AddStream(_)
                | Request::SendIndex(_)
                | Request::SendMetadata(_)
                | Request::RotateStreams(_)
                | Request::TraceChunkExists(_) => {}
            }
            ReturnReply(ReturnCode::OK).encode(reply);
            Ok(())
        })
    }

    fn version(&mut self, theirs: Version, reply: &mut Vec<u8>) -> Result<()> {
        if self.session.is_some() {
            return Err(Error::Meaningless { what: "another version in the middle of a session" });
        }
        let minor = Version::OURS.negotiate(theirs);
        self.minor = Some(minor.ok_or(Error::WrongMajor { major: theirs.major })?);
        // The reference relay answers its own numbers; to an older producer they make no difference.
        Version::OURS.encode(reply);
        Ok(())
    }

    fn create_session(&mut self, request: &CreateSession, reply: &mut Vec<u8>) -> Result<()> {
        let needed = Command::Version;
        let minor =
            self.minor.ok_or(Error::OutOfOrder { request: Command::CreateSession, needed })?;
        if self.session.is_some() {
            return Err(Error::Meaningless { what: "a second session on one connection" });
        }
        let (session, shared, folder) = self.registry.create_session(minor, request, &self.who)?;
        self.arrivals = shared.look(|recording| recording.arrivals(session)).unwrap_or_default();
        self.session = Some((session, shared));
        let output_path = minor.has_trace_chunks().then_some(folder);
        CreateSessionReply { session, code: ReturnCode::OK, output_path }.encode(reply);
        Ok(())
    }

    /// Takes an index entry. It is acknowledged when its packet is written too, see [`Limits::ack_patience`].
    ///
    /// [`Limits::ack_patience`]: crate::Limits::ack_patience
    async fn index(&self, index: PacketIndex, reply: &mut Vec<u8>) -> Result<()> {
        let (id, shared) = self.session(Command::SendIndex)?;
        let taken = self
            .registry
            .act(shared, |recording, env| recording.index(env, id, index, Instant::now()));
        let awaited = match taken {
            Err(error) if error.is_no_room() => {
                self.with_room(shared, |recording, env| recording.go_on(env, id)).await?;
                shared.look(|recording| recording.awaited(id, index.handle, index.net_seq_num))
            }
            taken => taken?,
        };
        if awaited != Awaited::Written {
            self.packet_of(&index, id, shared).await?;
        }
        ReturnReply(ReturnCode::OK).encode(reply);
        Ok(())
    }

    /// Waits for an entry's packet. Producers send the packet first, so it is on its way or lost; one that sends the
    /// entry first and waits for the answer must not wait for ever. One that can resume sends a lost packet again, but
    /// not if it was acknowledged: its connection ends instead.
    async fn packet_of(
        &self,
        index: &PacketIndex,
        id: RelaySessionId,
        shared: &Shared,
    ) -> Result<()> {
        let env = &self.registry.env;
        let (handle, number) = (index.handle, index.net_seq_num);
        let mut stalled = 0;
        loop {
            let mark = self.arrivals.mark();
            let done = shared.packet_done.notified();
            let mut done = std::pin::pin!(done);
            done.as_mut().enable();
            let look = |it: &Recording| (it.awaited(id, handle, number), it.can_resume());
            let (awaited, can_resume) = shared.look(look);
            match awaited {
                Awaited::Written => return Ok(()),
                Awaited::Lost => return Err(Error::PacketLost { handle, number }),
                Awaited::Waiting => {}
            }
            let is_busy = mark & 1 == 1;
            let waited = tokio::time::timeout(env.limits.ack_patience, done).await;
            if waited.is_ok() || is_busy || self.arrivals.mark() != mark {
                stalled = 0;
            } else if can_resume {
                stalled += 1;
                if stalled >= MOST_STALLED {
                    return Err(Error::PacketLost { handle, number });
                }
            } else {
                env.counters.acknowledged_early.add(1);
                tracing::warn!(
                    stream = %handle,
                    packet = %number,
                    "index entry acknowledged without its packet"
                );
                return Ok(());
            }
        }
    }

    async fn chunk_exists(&self, chunk: ChunkId, reply: &mut Vec<u8>) -> Result<()> {
        let (_, shared) = self.session(Command::TraceChunkExists)?;
        let deadline = tokio::time::Instant::now() + EXISTS_PATIENCE;
        let exists = loop {
            let done = shared.chunk_done.notified();
            let mut done = std::pin::pin!(done);
            done.as_mut().enable();
            if !shared.look(|recording| recording.chunk_exists(chunk)) {
                break false;
            }
            if tokio::time::timeout_at(deadline, done).await.is_err() {
                break true;
            }
        };
        ChunkExistsReply { code: ReturnCode::OK, exists }.encode(reply);
        Ok(())
    }

    fn session(&self, request: Command) -> Result<(RelaySessionId, &Arc<Shared>)> {
        let needed = Command::CreateSession;
        let (id, shared) = self.session.as_ref().ok_or(Error::OutOfOrder { request, needed })?;
        Ok((*id, shared))
    }
}

enum Parsed<'a> {
    Whole(CommandHeader, &'a [u8]),
    /// At least so many more bytes are needed.
    Missing(usize),
}

/// The request at the front of what has arrived, whose payload may have `max` bytes.
fn split_request(bytes: &[u8], max: u64) -> wire::live::Result<Parsed<'_>> {
    let Some((header, rest)) = bytes.split_first_chunk::<COMMAND_HEADER_LEN>() else {
        return Ok(Parsed::Missing(COMMAND_HEADER_LEN - bytes.len()));
    };
    let header = CommandHeader::decode(header)?;
    let CommandHeader { command, payload_len: len } = header;
    if len > max {
        return Err(wire::live::Error::PayloadTooLarge { command, len, max });
    }
    // The header's decoder bounds the length far below this.
    let len = usize::try_from(header.payload_len).unwrap_or(usize::MAX);
    Ok(match rest.get(..len) {
        Some(payload) => Parsed::Whole(header, payload),
        None => Parsed::Missing(len - rest.len()),
    })
}

/// Whether a command may be said with a version: chunks are for those that have them. What a producer before LTTng 2.11
/// records is one chunk, which nobody but the relay closes.
fn speakable(command: Command, minor: ProtocolMinor) -> Result<()> {
    let is_of_chunks = matches!(
        command,
        Command::CreateTraceChunk
            | Command::CloseTraceChunk
            | Command::TraceChunkExists
            | Command::RotateStreams
            | Command::StreamPositions
    );
    if is_of_chunks && !minor.has_trace_chunks() {
        return Err(Error::TooOld { what: command.to_string(), minor: minor.0 });
    }
    Ok(())
}

fn same(asked: RelaySessionId, own: RelaySessionId) -> Result<()> {
    if asked == own { Ok(()) } else { Err(Error::UnknownSession { session: asked }) }
}
