//! Streams of a recording session: added, on their way from chunk to chunk, closed.

use std::sync::Arc;
use std::time::Instant;

use wire::live::AddStream;
use wire::live::ChunkId;
use wire::live::CloseStream;
use wire::live::PacketSeqNum;
use wire::live::RelaySessionId;
use wire::live::RotateStreams;
use wire::live::StreamHandle;

use super::Recording;
use crate::env::Env;
use crate::error::Error;
use crate::error::Result;
use crate::merge::{Merge, Step};
use crate::names;
use crate::resume::LastPacket;
use crate::stream::Kind;
use crate::stream::Stream;

/// Streams remembered after they ended, for requests of consumer daemons that are late.
const LEFT_KEPT: usize = 1024;

impl Recording {
    pub(crate) fn add_stream(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
    ) -> Result<()> {
        let owner = self.sessions.get(&session).ok_or(Error::UnknownSession { session })?;
        let id = request.chunk.unwrap_or(ChunkId::new(0));
        let shown = env.next_shown_stream();
        let seen = (Arc::clone(&self.feed), shown);
        let mut stream = Stream::new(session, request, owner.kind, seen);
        stream.merge = Merge::new(&env.halves);
        let path = stream.path_in_chunk();
        if path.components().next().is_none_or(names::is_reserved) || names::has_manifest(&path) {
            return Err(Error::ReservedPath { path: path.to_string() });
        }
        if let Some(present) = self.resume.as_ref().filter(|present| present.can_resume)
            && let Some(last) = present.known.positions.get(&path)
        {
            stream.meter.goes_on(last);
        }
        let chunk = self.open_chunk(id)?;
        let limit = env.limits.streams_per_chunk;
        if chunk.noted.len() >= limit {
            return Err(Error::Limit { what: "streams of one chunk", limit });
        }
        let folder = chunk.folder.clone();
        self.note_stream(env, &path, id)?;
        self.feed.add(session, shown, request, || env.next_trace());
        if let Err(error) = stream.enter(env, (&folder, (id, &folder)), None) {
            self.feed.forget(shown);
            return Err(error);
        }
        self.streams.insert(handle, stream);
        self.enter_chunk(handle, id)
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
        self.end_rotations(env, session, request)?;
        for position in &request.positions {
            let stream = self.own(session, position.handle)?;
            stream.target = request.new_chunk;
            let at = match stream.kind {
                Kind::Metadata => PacketSeqNum::new(0),
                Kind::Indexed { .. } | Kind::Bare => position.rotate_at,
            };
            stream.merge.rotate_at(at, now);
        }
        // One that has no room must not keep the others.
        let settled = request.positions.iter().map(|it| self.settle(env, it.handle));
        settled.fold(Ok(()), Result::and)
    }

    /// Makes rotations that still wait happen now, of the streams that are to rotate again.
    pub(crate) fn end_rotations(
        &mut self,
        env: &Env,
        session: RelaySessionId,
        request: &RotateStreams,
    ) -> Result<()> {
        for position in &request.positions {
            self.own(session, position.handle)?;
            self.finish_waiting_rotation(env, position.handle)?;
        }
        Ok(())
    }

    /// Makes a rotation that still waits happen now; another one follows it.
    pub(super) fn finish_waiting_rotation(
        &mut self,
        env: &Env,
        handle: StreamHandle,
    ) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        if stream.merge.rotation_since().is_some() {
            env.counters.rotations_forced.add(1);
            tracing::warn!(%handle, "rotated without the packet it waited for");
            stream.merge.force_rotation();
            self.settle(env, handle)?;
        }
        Ok(())
    }

    /// A stream enters the chunk its rotation names, or none. Whatever fails, it has left the one before; but when there is no room for
    /// it, it stays there and the rotation waits.
    pub(super) fn follow_rotation(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        at: PacketSeqNum,
    ) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let (left, target) = (stream.chunk, stream.target);
        let entered = match target {
            None => Ok(()),
            Some(id) => self.enter_from(env, handle, (left, id), at),
        };
        let Some(stream) = self.streams.get_mut(&handle) else { return entered };
        if entered.as_ref().is_err_and(Error::is_no_room) {
            stream.merge.put_back(Step::Rotate(at));
            return entered;
        }
        if entered.is_err() {
            self.end_in_chunk(env, handle);
        }
        let Some(stream) = self.streams.get_mut(&handle) else { return entered };
        stream.meter.rotated();
        stream.target = None;
        if target.is_none() || entered.is_err() {
            env.counters.beyond_last_chunk.add(stream.merge.drain().len() as u64);
            stream.leave();
        }
        match left {
            Some(left) => entered.and(self.leave_chunk(env, left)),
            None => entered,
        }
    }

    /// What a stream that can enter no other chunk holds stays in the one it leaves, or is cut off where it is sent again.
    fn end_in_chunk(&mut self, env: &Env, handle: StreamHandle) {
        let cut = if self.can_resume() { self.cut_to_committed(env, handle) } else { Ok(()) };
        let steps = self.streams.get_mut(&handle).map(|stream| stream.merge.drain());
        let steps = steps.into_iter().flatten();
        let released = steps.map(|step| self.release_last(env, handle, step));
        if let Err(error) = released.fold(cut, Result::and) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(%handle, error, "a stream that enters no other chunk");
        }
    }

    /// A stream enters a chunk with its packets from `at` on.
    fn enter_from(
        &mut self,
        env: &Env,
        handle: StreamHandle,
        (left, id): (Option<ChunkId>, ChunkId),
        at: PacketSeqNum,
    ) -> Result<()> {
        let Some(stream) = self.streams.get(&handle) else { return Ok(()) };
        let path = stream.path_in_chunk();
        self.note_stream(env, &path, id)?;
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let old = left.and_then(|id| self.chunks.get(&id)).map(|old| old.folder.clone());
        let old = old.unwrap_or_default();
        let new = self.chunks.get(&id).ok_or(Error::UnknownChunk { chunk: id })?;
        let pivot = stream.split(env, &old, at.get())?;
        let note = pivot.zip(new.journal);
        self.feed.chunk_is_at(id, &new.folder);
        let entered = stream.enter(env, (&old, (id, &new.folder)), note);
        let unfinished = stream.unfinished.take();
        if let Some(new) = self.chunks.get_mut(&id).filter(|_| unfinished.is_some()) {
            new.unfinished = unfinished;
        }
        entered?;
        let old = left.and_then(|id| self.chunks.get(&id)).filter(|_| pivot.is_some());
        if old.is_some_and(|old| old.misses_entries_of(&path))
            && let Some(new) = self.chunks.get_mut(&id)
        {
            new.misses_entries = true;
        }
        self.enter_chunk(handle, id)
    }

    /// Does a step of a stream that ends. There is no time to wait for room for an entry.
    fn release_last(&mut self, env: &Env, handle: StreamHandle, step: Step) -> Result<()> {
        match (self.carry_out(env, handle, [step]), step) {
            (Err(error), Step::Commit(place, index)) => {
                self.entry_failed(env, handle, (place, &index), &error)
            }
            (done, _) => done,
        }
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

    pub(super) fn drop_streams(
        &mut self,
        env: &Env,
        which: impl Fn(&Stream) -> bool,
    ) -> Result<()> {
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

    /// A stream ends. What still waits for its other half is counted, or, where the producer sends it again, cut off.
    pub(super) fn drop_stream(&mut self, env: &Env, handle: StreamHandle) -> Result<()> {
        let stopped = self.stop_writing(env, handle);
        let can_resume = self.can_resume();
        let cut = if can_resume { self.cut_to_committed(env, handle) } else { Ok(()) };
        let Some(stream) = self.streams.get_mut(&handle) else { return Ok(()) };
        let steps = stream.merge.drain();
        let released = steps.into_iter().map(|step| self.release_last(env, handle, step));
        let released = released.fold(stopped.and(cut), Result::and);
        let Some(stream) = self.streams.remove(&handle) else { return released };
        if can_resume && stream.closing.is_none() {
            self.feed.suspend_stream(stream.shown);
        } else {
            self.feed.close_stream(stream.shown);
        }
        self.gone.push(handle);
        if let (Some(present), Some(number)) = (&mut self.resume, stream.merge.last_committed()) {
            let (number, discarded) = (number.get(), stream.meter.discarded());
            present.known.note(stream.path_in_chunk(), LastPacket { number, discarded });
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
}
