//! One recording session: its relay sessions (one for each consumer daemon), streams and chunks.
//!
//! Methods are the protocol's commands: they check, change the state and act on small files (an index
//! record, a new file, a rename); packets' bytes are written outside, between [`Recording::begin_packet`] and
//! [`Recording::end_packet`]. What takes long (syncing, deleting) is handed out as [`Job`]s.
//!
//! Invariants: a stream is in at most one chunk; a chunk's `streams` counts the streams in it; a chunk with
//! `closing` and no streams becomes a job exactly once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracedir::manifest::SealedBy;
use wire::live::{
    AddStream, ChunkId, CloseStream, CloseTraceChunk, CreateTraceChunk, DataHeader, DataPending,
    NetSeqNum, PacketIndex, PacketSeqNum, PendingReply, RelativePath, RelaySessionId,
    ResetMetadata, RotateStreams, SendMetadata, StreamHandle, UnixSeconds,
};

use crate::chunk::{Chunk, Closing, Fate, placement};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::RecordingName;
use crate::feed::Feed;
use crate::journal;
use crate::losses::{Loss, LossCause};
use crate::merge::{Lost, Place, Refused, Step};
use crate::names;
use crate::release::Released;
use crate::resume::Present;
use crate::seal::{Job, SealJob};
use crate::stream::{Kind, Slot, Stream};

/// Chunks remembered after they ended, for requests of consumer daemons that are late.
const FINISHED_KEPT: usize = 16;
/// Streams remembered after they ended, for the same reason.
const LEFT_KEPT: usize = 1024;

/// A recording session.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) host: String,
    pub(crate) session: String,
    /// Relative to the root.
    pub(crate) folder: RelativePath,
    /// What viewers are shown of it.
    pub(crate) feed: Arc<Feed>,
    sessions: BTreeMap<RelaySessionId, Session>,
    streams: HashMap<StreamHandle, Stream>,
    chunks: BTreeMap<ChunkId, Chunk>,
    finished: VecDeque<(ChunkId, RelativePath)>,
    session_folder_is_used: bool,
    has_rotated: bool,
    /// Streams that ended last, and whose they were; for questions that come late.
    left: VecDeque<(RelaySessionId, StreamHandle)>,
    is_closed: bool,
    /// Who it is and where it was, for sessions that may come back.
    pub(crate) resume: Option<Present>,
    jobs: Vec<Job>,
    /// Streams that ended since the last call of [`Recording::take_gone`].
    gone: Vec<StreamHandle>,
}

/// A relay session: the connections of one consumer daemon.
#[derive(Debug)]
pub(crate) struct Session {
    /// What its streams carry, metadata apart.
    pub(crate) kind: Kind,
    /// When the control connection ended.
    pub(crate) ended: Option<Instant>,
    /// Data connections at present.
    pub(crate) data_connections: usize,
    pub(crate) arrivals: Arc<Arrivals>,
}

/// Tells a control connection whether its data connection still brings something.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(AtomicU64);

impl Arrivals {
    /// Bytes came; they are being written until [`Arrivals::wait`].
    pub(crate) fn came(&self) {
        self.0.fetch_or(1, Ordering::Relaxed);
    }

    /// All that came is written, and more is waited for.
    pub(crate) fn wait(&self) {
        if self.0.load(Ordering::Relaxed) & 1 == 1 {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A number that differs after bytes came; odd while they are being written.
    pub(crate) fn mark(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Recording {
    pub(crate) fn new(
        host: String,
        session: String,
        folder: RelativePath,
        feed: Arc<Feed>,
    ) -> Self {
        Self {
            host,
            session,
            folder,
            feed,
            sessions: BTreeMap::new(),
            streams: HashMap::new(),
            chunks: BTreeMap::new(),
            finished: VecDeque::new(),
            session_folder_is_used: false,
            has_rotated: false,
            left: VecDeque::new(),
            is_closed: false,
            resume: None,
            jobs: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// The session was here before: its folder holds chunks.
    pub(crate) const fn goes_on(&mut self) {
        self.session_folder_is_used = true;
        self.has_rotated = true;
    }

    /// Whether its producer may come back and go on in the same folder. Not when a chunk lies in that folder itself,
    /// where further chunks would be taken for part of it.
    pub(crate) fn may_return(&self) -> bool {
        self.resume.as_ref().is_some_and(|present| present.was_abandoned)
            && self.finished.iter().all(|(_, folder)| *folder != self.folder)
    }

    /// Streams that ended since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<StreamHandle> {
        std::mem::take(&mut self.gone)
    }

    /// Work that piled up since the last call.
    pub(crate) fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// How the outside knows this recording session.
    pub(crate) fn name(&self, env: &Env) -> RecordingName {
        let folder = if self.folder.is_empty() {
            // Producers before LTTng 2.11 name HOST/SESSION in each stream's path.
            let first = self.chunks.values().find_map(|chunk| chunk.members.first());
            let two = first.map(|path| path.components().take(2).collect::<Vec<_>>().join("/"));
            two.and_then(|path| RelativePath::new(&path).ok()).unwrap_or_default()
        } else {
            self.folder.clone()
        };
        RecordingName {
            host: self.host.clone(),
            session: self.session.clone(),
            folder: env.root.absolute(&folder),
        }
    }

    /// A consumer daemon joins; `false` when the recording session is over already.
    pub(crate) fn join(
        &mut self,
        id: RelaySessionId,
        session: Session,
        current: Option<ChunkId>,
    ) -> Result<bool> {
        if self.is_closed {
            return Ok(false);
        }
        if let Some(chunk) = current
            && !self.chunks.contains_key(&chunk)
        {
            return Err(Error::UnknownChunk { chunk });
        }
        self.sessions.insert(id, session);
        Ok(true)
    }

    /// Ends the recording session if nobody writes here any more and everything is in its last place. Says so
    /// once; nobody can join afterwards.
    pub(crate) fn close_if_over(&mut self) -> bool {
        let is_over = self.sessions.is_empty() && self.chunks.is_empty();
        is_over && !std::mem::replace(&mut self.is_closed, true)
    }

    // Trace chunks.

    pub(crate) fn create_chunk(&mut self, env: &Env, request: &CreateTraceChunk) -> Result<()> {
        if self.chunks.contains_key(&request.chunk) {
            return Ok(());
        }
        if self.finished.iter().any(|(chunk, _)| *chunk == request.chunk) {
            return Err(Error::UnknownChunk { chunk: request.chunk });
        }
        let limit = env.limits.chunks_per_recording;
        if self.chunks.len() >= limit {
            return Err(Error::Limit { what: "chunks of one recording session", limit });
        }
        let folder = match &request.override_name {
            Some(name) => self.folder.join(name),
            None => {
                let is_free = !self.session_folder_is_used && !self.has_rotated;
                self.session_folder_is_used |= is_free;
                let place = placement(&env.names, request.created, request.chunk, is_free)?;
                self.folder.join_path(&place)
            }
        };
        if folder != self.folder && env.root.exists(&folder) {
            return Err(Error::ReservedPath { path: folder.to_string() });
        }
        let is_snapshot = request.override_name.is_some();
        self.chunks.insert(request.chunk, Chunk::new(Some(request.created), folder, is_snapshot));
        Ok(())
    }

    /// The one chunk of producers before LTTng 2.11, written in place.
    pub(crate) fn create_implicit_chunk(&mut self) {
        self.session_folder_is_used = true;
        self.chunks.insert(ChunkId::new(0), Chunk::new(None, self.folder.clone(), false));
    }

    /// Closes a chunk; gives the folder it will be in.
    pub(crate) fn close_chunk(
        &mut self,
        env: &Env,
        request: &CloseTraceChunk,
    ) -> Result<RelativePath> {
        let unknown = Error::UnknownChunk { chunk: request.chunk };
        let Some(chunk) = self.chunks.get_mut(&request.chunk) else {
            let finished = self.finished.iter().find(|(chunk, _)| *chunk == request.chunk);
            return finished.map(|(_, path)| path.clone()).ok_or(unknown);
        };
        let fate = match &chunk.closing {
            Some(closing) => closing.fate.clone(),
            None => chunk.fate(&env.names, &self.folder, request)?,
        };
        let path = match &fate {
            Fate::Archive(to) => to.clone(),
            Fate::Stay | Fate::Delete => chunk.folder.clone(),
        };
        self.has_rotated |= matches!(fate, Fate::Archive(_));
        chunk.closing.get_or_insert(Closing { end: Some(request.closed), fate });
        self.finish_chunk(env, request.chunk)?;
        Ok(path)
    }

    pub(crate) fn chunk_exists(&self, chunk: ChunkId) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// A job ended and the chunk is where it belongs, or its move failed for good.
    pub(crate) fn chunk_is_done(&mut self, chunk: ChunkId, folder: RelativePath) {
        self.feed.chunk_is_at(chunk, &folder);
        self.chunks.remove(&chunk);
        if self.finished.len() >= FINISHED_KEPT {
            self.finished.pop_front();
        }
        self.finished.push_back((chunk, folder));
    }

    /// Hands a chunk out for sealing, or deletes it, once the last stream has left.
    fn finish_chunk(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        let name = self.name(env);
        let Some(chunk) = self.chunks.get_mut(&id).filter(|chunk| chunk.is_complete()) else {
            return Ok(());
        };
        let Some(Closing { end, fate }) = chunk.closing.clone() else { return Ok(()) };
        chunk.is_sealing = true;
        let to = match fate {
            Fate::Delete => return self.discard(env, id),
            Fate::Archive(to) => {
                self.feed.chunk_goes_to(id, &to);
                Some(to)
            }
            Fate::Stay => None,
        };
        let number = chunk.journal.unwrap_or_else(|| env.next_number());
        let entry = entry(&self.host, &self.session, &self.folder, id, chunk);
        self.jobs.push(Job::Seal(Box::new(SealJob {
            recording: name,
            chunk: id,
            begin: chunk.begin,
            end,
            is_shared_folder: chunk.folder == self.folder,
            from: chunk.folder.clone(),
            to,
            tops: chunk.tops(),
            members: chunk.members.clone(),
            losses: chunk.losses.streams.clone(),
            sealed_by: if end.is_some() { SealedBy::Closed } else { SealedBy::ProducerGone },
            journal: (number, entry),
        })));
        Ok(())
    }

    /// Takes a chunk out of sight at once and leaves the deleting to a job.
    fn discard(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        let Some(chunk) = self.chunks.remove(&id) else { return Ok(()) };
        self.feed.chunk_is_gone(id);
        let recording = self.name(env);
        let trash = env.next_trash();
        let was_in_place = chunk.folder == self.folder;
        if was_in_place {
            for top in chunk.tops() {
                env.root.rename(&chunk.folder.join_path(&top), &trash.join_path(&top))?;
            }
        } else if !chunk.members.is_empty() {
            env.root.rename(&chunk.folder, &trash)?;
        }
        if let Some(number) = chunk.journal {
            journal::remove(&env.root, number)?;
        }
        self.chunk_is_done(id, chunk.folder);
        self.jobs.push(Job::Delete { recording, chunk: id, trash });
        if was_in_place && !self.has_rotated { self.move_in_place(env) } else { Ok(()) }
    }

    /// Gives the session's folder, which is free again, to the newest chunk.
    fn move_in_place(&mut self, env: &Env) -> Result<()> {
        let newest = self.chunks.iter_mut().next_back().filter(|(_, chunk)| !chunk.is_sealing);
        let Some((id, chunk)) = newest.filter(|(_, chunk)| !chunk.is_snapshot) else {
            self.session_folder_is_used = false;
            return Ok(());
        };
        let from = std::mem::replace(&mut chunk.folder, self.folder.clone());
        self.feed.chunk_goes_to(*id, &self.folder);
        if chunk.members.is_empty() {
            return Ok(());
        }
        let mut entry = entry(&self.host, &self.session, &self.folder, *id, chunk);
        if let Some(number) = chunk.journal {
            let to = self.folder.clone();
            let moving = Some(journal::Move { to, sealed: false });
            journal::Entry { at: from.clone(), moving, ..entry.clone() }
                .write(&env.root, number)?;
        }
        for top in chunk.tops() {
            env.root.rename(&from.join_path(&top), &self.folder.join_path(&top))?;
        }
        env.root.remove_dir(&from)?;
        entry.moving = None;
        chunk.journal.map_or(Ok(()), |number| entry.write(&env.root, number))
    }

    // Streams.

    pub(crate) fn add_stream(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
    ) -> Result<()> {
        let owner = self.sessions.get(&session).ok_or(Error::UnknownSession { session })?;
        let id = request.chunk.unwrap_or(ChunkId::new(0));
        let seen = (Arc::clone(&self.feed), handle);
        let mut stream = Stream::new(session, request, owner.kind, seen);
        let path = stream.path_in_chunk();
        if path.components().next().is_none_or(names::is_reserved) || names::has_manifest(&path) {
            return Err(Error::ReservedPath { path: path.to_string() });
        }
        let chunk = self.open_chunk(id)?;
        let limit = env.limits.streams_per_chunk;
        if chunk.members.len() >= limit {
            return Err(Error::Limit { what: "streams of one chunk", limit });
        }
        let folder = chunk.folder.clone();
        self.feed.add(session, handle, request, || env.next_trace());
        if let Err(error) = stream.enter(env, &folder, &folder, None) {
            self.feed.forget(handle);
            return Err(error);
        }
        self.streams.insert(handle, stream);
        self.enter_chunk(env, handle, id)
    }

    pub(crate) fn rotate(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: &RotateStreams,
        now: Instant,
    ) -> Result<()> {
        if let Some(chunk) = request.new_chunk {
            self.open_chunk(chunk)?;
        }
        for position in &request.positions {
            self.own(session, position.handle)?;
        }
        for position in &request.positions {
            self.finish_waiting_rotation(env, position.handle)?;
            let stream = self.own(session, position.handle)?;
            stream.target = request.new_chunk;
            let at = match stream.kind {
                Kind::Metadata => PacketSeqNum::new(0),
                Kind::Indexed { .. } | Kind::Bare => position.rotate_at,
            };
            stream.merge.rotate_at(at, now);
            self.settle(env, position.handle)?;
        }
        Ok(())
    }

    /// Makes a rotation that still waits happen now; another one follows it.
    fn finish_waiting_rotation(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        if stream.merge.rotation_since().is_some() {
            env.counters.rotations_forced.add(1);
            tracing::warn!(%handle, "rotated without the packet it waited for");
            stream.merge.force_rotation();
            self.settle(env, handle)?;
        }
        Ok(())
    }

    pub(crate) fn close_stream(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: CloseStream,
    ) -> Result<()> {
        self.own(session, request.handle)?.closing = Some(request.last);
        self.settle(env, request.handle)
    }

    /// Takes an index entry; says whether packet and entry are written.
    pub(crate) fn index(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        index: PacketIndex,
        now: Instant,
    ) -> Result<bool> {
        let handle = index.handle;
        let stream = self.own(session, handle)?;
        if index.is_beacon() {
            env.counters.beacons.add(1);
            self.release(env, handle, &Released::Beacon(index))?;
            return Ok(true);
        }
        if !stream.kind.is_indexed() {
            return Err(Error::WrongKind { handle });
        }
        if stream.chunk.is_none() {
            return Err(Error::NoChunk { handle });
        }
        let max = env.limits.unpaired_per_stream;
        stream
            .merge
            .index(index, max, now)
            .map_err(|why| refused(why, handle, index.net_seq_num, max))?;
        self.settle(env, handle)?;
        Ok(self.is_resolved(handle, index.net_seq_num))
    }

    /// Whether packet and entry are written, or nothing is waited for any more.
    pub(crate) fn is_resolved(&self, handle: StreamHandle, number: NetSeqNum) -> bool {
        self.streams.get(&handle).is_none_or(|stream| stream.merge.is_resolved(number))
    }

    /// What comes on the data connections of a relay session.
    pub(crate) fn arrivals(&self, session: RelaySessionId) -> Option<Arc<Arrivals>> {
        self.sessions.get(&session).map(|session| Arc::clone(&session.arrivals))
    }

    pub(crate) fn metadata(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: SendMetadata<'_>,
    ) -> Result<()> {
        let handle = request.handle;
        let stream = self.own(session, handle)?;
        if stream.kind != Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let padding = u64::from(request.padding_len);
        if padding > env.limits.packet_bytes {
            return Err(Error::Meaningless { what: "padding larger than a packet may be" });
        }
        let chunk = stream.chunk;
        let folder = chunk.and_then(|chunk| self.chunks.get(&chunk)).map(|it| it.folder.clone());
        let folder = folder.ok_or(Error::NoChunk { handle })?;
        let stream = self.own(session, handle)?;
        if !stream.append_metadata(env, &folder, request.bytes, padding)? {
            return Err(Error::NoChunk { handle });
        }
        env.counters.metadata_bytes.add(request.bytes.len() as u64 + padding);
        Ok(())
    }

    pub(crate) fn reset_metadata(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: ResetMetadata,
    ) -> Result<()> {
        let handle = request.handle;
        let stream = self.own(session, handle)?;
        if stream.kind != Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let chunk = stream.chunk;
        let folder = chunk.and_then(|chunk| self.chunks.get(&chunk)).map(|it| it.folder.clone());
        let folder = folder.ok_or(Error::NoChunk { handle })?;
        let stream = self.own(session, handle)?;
        if stream.reset_metadata(env, &folder)? { Ok(()) } else { Err(Error::NoChunk { handle }) }
    }

    // Packets.

    /// A packet's header came. `bound` is the relay session its connection belongs to, once known.
    pub(crate) fn begin_packet(
        &mut self,
        env: &Env,
        bound: Option<RelaySessionId>,
        header: &DataHeader,
    ) -> Result<(RelaySessionId, Slot)> {
        let handle = header.stream;
        let stream = self.streams.get_mut(&handle).ok_or(Error::UnknownStream { handle })?;
        if bound.is_some_and(|bound| bound != stream.session) {
            return Err(Error::UnknownStream { handle });
        }
        if stream.kind == Kind::Metadata {
            return Err(Error::WrongKind { handle });
        }
        let chunk = stream.chunk.ok_or(Error::NoChunk { handle })?;
        let folder = self
            .chunks
            .get(&chunk)
            .map(|chunk| &chunk.folder)
            .ok_or(Error::UnknownChunk { chunk })?;
        let max = env.limits.unpaired_per_stream;
        stream
            .merge
            .packet_begins(header.net_seq_num, max)
            .map_err(|why| refused(why, handle, header.net_seq_num, max))?;
        let slot = match stream.slot(env, folder, header) {
            Ok(Some(slot)) => slot,
            other => {
                stream.merge.packet_cut_short();
                return Err(other.err().unwrap_or(Error::NoChunk { handle }));
            }
        };
        Ok((stream.session, slot))
    }

    /// The packet's bytes and padding are in its file.
    pub(crate) fn end_packet(
        &mut self,
        env: &Env,
        header: &DataHeader,
        place: Place,
        now: Instant,
    ) -> Result<()> {
        let handle = header.stream;
        let stream = self.streams.get_mut(&handle).ok_or(Error::UnknownStream { handle })?;
        stream.grow(header.packet_len());
        let indexed = stream.kind.is_indexed();
        stream.merge.packet_done(header.net_seq_num, place, indexed, now);
        env.counters.packets.add(1);
        env.counters.packet_bytes.add(header.packet_len());
        self.settle(env, handle)
    }

    /// The connection ended inside the packet; what was written of it is to be cut off by the caller.
    pub(crate) fn cut_packet(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        env.counters.packets_cut_short.add(1);
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.merge.packet_cut_short();
        }
        self.settle(env, handle)
    }

    // Questions about pending data.

    pub(crate) fn begin_pending(&mut self, session: RelaySessionId) {
        for stream in self.streams.values_mut().filter(|stream| stream.session == session) {
            stream.asked = false;
        }
    }

    pub(crate) fn data_pending(
        &mut self,
        session: RelaySessionId,
        request: DataPending,
    ) -> Result<PendingReply> {
        if self.has_left(session, request.handle) {
            return Ok(PendingReply::Complete);
        }
        let stream = self.own(session, request.handle)?;
        stream.asked = true;
        let complete = stream.merge.is_complete(request.last, stream.kind.is_indexed());
        Ok(if complete { PendingReply::Complete } else { PendingReply::Pending })
    }

    pub(crate) fn quiescent(
        &mut self,
        session: RelaySessionId,
        handle: StreamHandle,
    ) -> Result<()> {
        if !self.has_left(session, handle) {
            self.own(session, handle)?.asked = true;
        }
        Ok(())
    }

    pub(crate) fn end_pending(&self, session: RelaySessionId) -> PendingReply {
        let mut streams = self.streams.values().filter(|stream| stream.session == session);
        if streams.any(|stream| !stream.asked) {
            PendingReply::Pending
        } else {
            PendingReply::Complete
        }
    }

    // Ends.

    /// A data connection showed whose it is.
    pub(crate) fn data_connected(&mut self, session: RelaySessionId) -> Option<Arc<Arrivals>> {
        let session = self.sessions.get_mut(&session)?;
        session.data_connections += 1;
        Some(Arc::clone(&session.arrivals))
    }

    /// The producer can resume: gives the last packet of each stream as far as it is known from before. What other
    /// relay sessions of the recording session still hold is the same producer's from before; they end.
    pub(crate) fn resume(
        &mut self,
        env: &Env,
        id: RelaySessionId,
        now: Instant,
    ) -> Result<Vec<(RelativePath, PacketSeqNum)>> {
        if let Some(present) = &mut self.resume {
            present.can_resume = true;
        }
        self.drop_streams(env, |stream| stream.session != id)?;
        for (_, session) in self.sessions.iter_mut().filter(|(other, _)| **other != id) {
            session.ended.get_or_insert(now);
        }
        self.sessions.retain(|other, _| *other == id);
        let Some(present) = &self.resume else { return Ok(Vec::new()) };
        let positions = present.known.positions.iter();
        let positions = positions.map(|(path, last)| (path.clone(), PacketSeqNum::new(*last)));
        let positions = positions.collect();
        self.close_open_chunks(env)?;
        Ok(positions)
    }

    /// A data connection ended: nothing of a closed stream can still come.
    pub(crate) fn data_ended(&mut self, env: &Env, id: RelaySessionId) -> Result<()> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        session.data_connections = session.data_connections.saturating_sub(1);
        if session.data_connections > 0 {
            return Ok(());
        }
        let is_over = session.ended.is_some();
        self.drop_streams(env, |stream| {
            stream.session == id && (is_over || stream.closing.is_some())
        })?;
        self.retire(env)
    }

    /// The control connection ended. Streams whose last packets are still on their way stay until they are there.
    pub(crate) fn control_ended(
        &mut self,
        env: &Env,
        id: RelaySessionId,
        now: Instant,
    ) -> Result<()> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        session.ended = Some(now);
        let data_is_open = session.data_connections > 0;
        self.drop_streams(env, |stream| {
            stream.session == id && !data_is_open && stream.closing.is_none()
        })?;
        self.retire(env)
    }

    /// The relay stops: whatever is there is all there will be.
    pub(crate) fn end_all(&mut self, env: &Env) -> Result<()> {
        self.drop_streams(env, |_| true)?;
        self.sessions.clear();
        self.retire(env)
    }

    /// Drops halves, rotations and streams that have waited too long.
    pub(crate) fn expire(&mut self, env: &Env, now: Instant) -> Result<()> {
        let timeout = env.limits.pair_timeout;
        let handles: Vec<StreamHandle> = self.streams.keys().copied().collect();
        for handle in handles {
            let Some(stream) = self.streams.get_mut(&handle) else { continue };
            let steps = stream.merge.expire(now, timeout);
            let since = stream.merge.rotation_since();
            self.carry_out(env, handle, steps)?;
            if since.is_some_and(|since| now.saturating_duration_since(since) > timeout) {
                self.finish_waiting_rotation(env, handle)?;
            } else {
                self.settle(env, handle)?;
            }
        }
        let is_old = |ended: Option<Instant>| {
            ended.is_some_and(|ended| now.saturating_duration_since(ended) > timeout)
        };
        let old: Vec<RelaySessionId> =
            self.sessions.iter().filter(|(_, s)| is_old(s.ended)).map(|(id, _)| *id).collect();
        self.drop_streams(env, |stream| old.contains(&stream.session))?;
        self.retire(env)
    }

    /// Removes relay sessions that are over; with the last of them, closes the chunks nobody closed.
    fn retire(&mut self, env: &Env) -> Result<()> {
        let streams = &self.streams;
        self.sessions.retain(|id, session| {
            session.ended.is_none() || streams.values().any(|stream| stream.session == *id)
        });
        if !self.sessions.is_empty() {
            return Ok(());
        }
        self.feed.end();
        self.close_open_chunks(env)
    }

    /// Closes the chunks that their producer left open. They stay where they are; those of a producer that can resume
    /// are archived, so that its next chunk does not mix with them.
    fn close_open_chunks(&mut self, env: &Env) -> Result<()> {
        let open: Vec<ChunkId> = self.chunks.keys().copied().collect();
        for id in open {
            if let Some(chunk) = self.chunks.get_mut(&id).filter(|chunk| chunk.is_open()) {
                let mut fate = Fate::Stay;
                if let Some(present) = &mut self.resume {
                    present.was_abandoned = true;
                    if let (true, Some(begin)) = (present.can_resume, chunk.begin) {
                        let archive = env.names.archived_chunk(begin, unix_now().max(begin), id)?;
                        fate = Fate::Archive(self.folder.join_path(&archive));
                        self.has_rotated = true;
                    }
                }
                chunk.closing = Some(Closing { end: None, fate });
            }
            self.finish_chunk(env, id)?;
        }
        Ok(())
    }

    // Helpers.

    /// Does what the stream's halves allow, then lets the stream go if it is closed and complete.
    fn settle(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        loop {
            let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
            match stream.merge.step() {
                Step::Wait => break,
                step => self.carry_out(env, handle, [step])?,
            }
        }
        let Some(stream) = self.streams.get(&handle) else { return Ok(()) };
        self.feed.settled(handle, stream.merge.lowest_waiting(), stream.merge.last_index());
        match stream.closing {
            Some(last) if stream.merge.is_complete(last, false) => self.drop_stream(env, handle),
            _ => Ok(()),
        }
    }

    fn carry_out(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<()> {
        for step in steps {
            match step {
                Step::Wait => {}
                Step::Rotate(at) => self.follow_rotation(env, handle, at)?,
                Step::Commit(place, entry) => {
                    self.release(env, handle, &Released::Packet(place, entry))?;
                }
                Step::Lost(lost) => self.release(env, handle, &Released::Lost(lost))?,
            }
        }
        Ok(())
    }

    /// The one way of what a stream brought to those who read it: packets whose bytes are written and packets that
    /// were lost, in the order of their numbers, and beacons as they come. When it returns, an entry is written.
    fn release(&mut self, env: &Env, handle: StreamHandle, released: &Released) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let chunk = stream.chunk.and_then(|chunk| self.chunks.get_mut(&chunk));
        match released {
            Released::Packet(place, entry) => {
                let written = match &chunk {
                    Some(chunk) => stream.append_index(env, &chunk.folder, *place, entry)?,
                    None => false,
                };
                let written = if written {
                    stream.show(env, *place, entry);
                    &env.counters.index_entries
                } else {
                    self.feed.pass(handle, entry);
                    &env.counters.beyond_last_chunk
                };
                written.add(1);
            }
            Released::Lost(lost) => count_lost(env, handle, lost),
            Released::Beacon(beacon) => {
                self.feed.beacon(handle, beacon);
                self.feed.settled(handle, stream.merge.lowest_waiting(), stream.merge.last_index());
            }
        }
        let losses = stream.meter.read(released);
        let by_network = losses.iter().filter(|loss| loss.cause.is_network());
        let by_network = by_network.map(|loss| loss.count).fold(0, u64::saturating_add);
        if by_network > 0 {
            self.feed.lost_by_network(&stream.path_in_chunk(), by_network);
        }
        match chunk {
            Some(chunk) if !losses.is_empty() => {
                note_losses(env, chunk, &stream.path_in_chunk(), losses)
            }
            _ => Ok(()),
        }
    }

    /// A stream enters the chunk its rotation names, or none.
    fn follow_rotation(&mut self, env: &Env, handle: StreamHandle, at: PacketSeqNum) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        stream.meter.rotated();
        let left = stream.chunk.take();
        let entered = match stream.target.take() {
            None => {
                env.counters.beyond_last_chunk.add(stream.merge.drain().len() as u64);
                stream.leave();
                Ok(())
            }
            Some(id) => {
                let old = left.and_then(|id| self.chunks.get(&id)).map(|old| old.folder.clone());
                let old = old.unwrap_or_default();
                let new = self.chunks.get(&id).ok_or(Error::UnknownChunk { chunk: id })?;
                let first = stream.split(env, &old, at.get())?;
                let number = stream.file_number();
                stream.enter(env, &old, &new.folder, first).map(|moved| {
                    if let (Some(left), Some(first)) = (left, first) {
                        self.feed.relocate(handle, (left, number, first), moved, id);
                    }
                })
            }
            .and_then(|()| self.enter_chunk(env, handle, id)),
        };
        match left {
            Some(left) => entered.and(self.leave_chunk(env, left)),
            None => entered,
        }
    }

    /// Notes that a stream, whose files are there, is in a chunk.
    fn enter_chunk(&mut self, env: &Env, handle: StreamHandle, id: ChunkId) -> Result<()> {
        let (Some(stream), Some(chunk)) = (self.streams.get_mut(&handle), self.chunks.get_mut(&id))
        else {
            return Err(Error::UnknownChunk { chunk: id });
        };
        stream.chunk = Some(id);
        self.feed.chunk_is_at(id, &chunk.folder);
        chunk.streams += 1;
        chunk.members.insert(stream.path_in_chunk());
        if chunk.journal.is_none() {
            let number = env.next_number();
            chunk.journal = Some(number);
            entry(&self.host, &self.session, &self.folder, id, chunk).write(&env.root, number)?;
        }
        Ok(())
    }

    fn leave_chunk(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.streams = chunk.streams.saturating_sub(1);
        }
        self.finish_chunk(env, id)
    }

    fn drop_streams(&mut self, env: &Env, which: impl Fn(&Stream) -> bool) -> Result<()> {
        let chosen: Vec<StreamHandle> = self
            .streams
            .iter()
            .filter(|(_, stream)| which(stream))
            .map(|(handle, _)| *handle)
            .collect();
        // One that fails must not keep the others; the first failure is the one that is told.
        let dropped = chosen.into_iter().map(|handle| self.drop_stream(env, handle));
        dropped.fold(Ok(()), Result::and)
    }

    /// A stream ends: what still waits for its other half is counted.
    fn drop_stream(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let steps = stream.merge.drain();
        let released = self.carry_out(env, handle, steps);
        let Some(stream) = self.streams.remove(&handle) else { return released };
        let can_resume = self.resume.as_ref().is_some_and(|present| present.can_resume);
        if can_resume && stream.closing.is_none() {
            self.feed.suspend_stream(handle);
        } else {
            self.feed.close_stream(handle);
        }
        self.gone.push(handle);
        if let (Some(present), Some(number)) = (&mut self.resume, stream.merge.last_committed()) {
            present.known.positions.insert(stream.path_in_chunk(), number.get());
        }
        if self.left.len() >= LEFT_KEPT {
            self.left.pop_front();
        }
        self.left.push_back((stream.session, handle));
        match stream.chunk {
            Some(chunk) => released.and(self.leave_chunk(env, chunk)),
            None => released,
        }
    }

    fn own(&mut self, session: RelaySessionId, handle: StreamHandle) -> Result<&mut Stream> {
        self.streams
            .get_mut(&handle)
            .filter(|stream| stream.session == session)
            .ok_or(Error::UnknownStream { handle })
    }

    /// Whether a stream was the session's and ended not long ago.
    fn has_left(&self, session: RelaySessionId, handle: StreamHandle) -> bool {
        self.left.contains(&(session, handle))
    }

    fn open_chunk(&self, chunk: ChunkId) -> Result<&Chunk> {
        self.chunks.get(&chunk).filter(|chunk| chunk.is_open()).ok_or(Error::UnknownChunk { chunk })
    }
}

fn entry(
    host: &str,
    session: &str,
    folder: &RelativePath,
    id: ChunkId,
    chunk: &Chunk,
) -> journal::Entry {
    journal::Entry {
        host: host.to_owned(),
        session: session.to_owned(),
        folder: folder.clone(),
        chunk: id,
        at: chunk.folder.clone(),
        begin: chunk.begin.filter(|_| !chunk.is_snapshot),
        moving: None,
    }
}

fn refused(why: Refused, handle: StreamHandle, found: NetSeqNum, limit: usize) -> Error {
    match why {
        Refused::NotAfter(last) => Error::NotIncreasing { handle, found, last },
        Refused::Full => Error::Limit { what: "unpaired packets of a stream", limit },
    }
}

/// The relay's clock, for names of chunks that nobody closed.
#[expect(
    clippy::disallowed_methods,
    reason = "the relay is a shell; the producer is gone with its clock"
)]
fn unix_now() -> UnixSeconds {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    UnixSeconds::new(since.map_or(0, |since| since.as_secs()))
}

/// Notes losses in the chunk and, for the time after a crash, in its journal.
fn note_losses(
    env: &Env,
    chunk: &mut Chunk,
    stream: &RelativePath,
    losses: Vec<Loss>,
) -> Result<()> {
    for loss in losses {
        match loss.cause {
            LossCause::TracerPackets => env.counters.tracer_packets_lost.add(loss.count),
            LossCause::TracerEvents => env.counters.tracer_events_discarded.add(loss.count),
            LossCause::Network | LossCause::PacketNeverCame | LossCause::IndexNeverCame => {}
        }
        let is_noted = chunk.losses.add(stream.clone(), loss, env.limits.losses_per_chunk);
        if let (true, Some(number)) = (is_noted, chunk.journal) {
            journal::append_loss(&env.root, number, stream, &loss)?;
        }
    }
    Ok(())
}

fn count_lost(env: &Env, handle: StreamHandle, lost: &Lost) {
    let (first, last) = lost.numbers();
    match lost {
        Lost::Both(..) => {
            env.counters.packets_never_came.add((last.get() - first.get()).saturating_add(1));
            tracing::warn!(%handle, %first, %last, "packets and their index entries never came");
        }
        Lost::Index(..) => {
            env.counters.packets_without_index.add(1);
            tracing::warn!(%handle, packet = %first, "the index entry of a packet never came");
        }
        Lost::Packet(..) => {
            env.counters.indexes_without_packet.add(1);
            tracing::warn!(%handle, packet = %first, "the packet of an index entry never came");
        }
    }
}
