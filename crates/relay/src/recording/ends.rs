//! Connections come and go: what ends with them, and what has waited too long.

use std::sync::Arc;
use std::time::Instant;

use wire::live::ChunkId;
use wire::live::PacketSeqNum;
use wire::live::RelativePath;
use wire::live::RelaySessionId;
use wire::live::StreamHandle;
use wire::live::UnixSeconds;

use super::Recording;
use crate::arrivals::Arrivals;
use crate::chunk::Chunk;
use crate::chunk::Closing;
use crate::chunk::Fate;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::resume::Present;

impl Recording {
    /// A data connection showed whose it is.
    pub(crate) fn data_connected(&mut self, session: RelaySessionId) -> Option<Arc<Arrivals>> {
        let session = self.sessions.get_mut(&session)?;
        session.data_connections += 1;
        session.data_is_gone = false;
        Some(Arc::clone(&session.arrivals))
    }

    /// A data connection ended: nothing of a closed stream can still come.
    pub(crate) fn data_ended(&mut self, env: &Env, id: RelaySessionId) -> Result<()> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        session.data_connections = session.data_connections.saturating_sub(1);
        if session.data_connections > 0 {
            return Ok(());
        }
        session.data_is_gone = true;
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

    /// The producer can resume: gives the last packet of each stream as far as it is known from before. What earlier
    /// relay sessions of the recording session still hold is the same producer's from before; they end, and can change
    /// nothing of those that came after them.
    pub(crate) fn resume(
        &mut self,
        env: &Env,
        id: RelaySessionId,
        now: Instant,
    ) -> Result<Vec<(RelativePath, PacketSeqNum)>> {
        if !self.sessions.contains_key(&id) {
            return Err(Error::UnknownSession { session: id });
        }
        if let Some(present) = &mut self.resume {
            present.can_resume = true;
        }
        self.drop_streams(env, |stream| stream.session < id)?;
        for (_, session) in self.sessions.iter_mut().filter(|(other, _)| **other < id) {
            session.ended.get_or_insert(now);
        }
        self.sessions.retain(|other, _| *other >= id);
        let Some(present) = &self.resume else { return Ok(Vec::new()) };
        let positions = present.known.positions.iter();
        let positions =
            positions.map(|(path, last)| (path.clone(), PacketSeqNum::new(last.number)));
        let positions = positions.collect();
        self.close_open_chunks(env)?;
        Ok(positions)
    }

    /// The relay stops: whatever is there is all there will be.
    pub(crate) fn end_all(&mut self, env: &Env) -> Result<()> {
        self.drop_streams(env, |_| true)?;
        self.sessions.clear();
        self.retire(env)
    }

    /// Drops halves, rotations and streams that have waited too long. What waits behind a full disk has not.
    pub(crate) fn expire(&mut self, env: &Env, now: Instant) -> Result<()> {
        let timeout = env.limits.pair_timeout;
        let is_held = env.room.was_short(now, timeout);
        let handles: Vec<StreamHandle> = self.streams.keys().copied().collect();
        for handle in handles {
            let Some(stream) = self.streams.get_mut(&handle) else { continue };
            let steps = if is_held { Vec::new() } else { stream.merge.expire(now, timeout) };
            let since = stream.merge.rotation_since();
            self.carry_out(env, handle, steps)?;
            let is_late = |since| now.saturating_duration_since(since) > timeout;
            if since.is_some_and(is_late) && !is_held {
                self.finish_waiting_rotation(env, handle)?;
            } else {
                self.settle(env, handle)?;
            }
        }
        let is_old = |ended: Option<Instant>| {
            !is_held && ended.is_some_and(|ended| now.saturating_duration_since(ended) > timeout)
        };
        let old: Vec<RelaySessionId> =
            self.sessions.iter().filter(|(_, s)| is_old(s.ended)).map(|(id, _)| *id).collect();
        self.drop_streams(env, |stream| old.contains(&stream.session))?;
        self.finish_moves(env)?;
        // Those whose end failed.
        let chunks: Vec<ChunkId> = self.chunks.keys().copied().collect();
        chunks.into_iter().try_for_each(|id| self.finish_chunk(env, id))?;
        self.retire(env)
    }

    /// Removes relay sessions that are over; with the last of them, closes the chunks nobody closed.
    fn retire(&mut self, env: &Env) -> Result<()> {
        let streams = &self.streams;
        self.sessions.retain(|id, session| {
            session.ended.is_none() || streams.values().any(|stream| stream.session == *id)
        });
        if !self.sessions.is_empty() || !self.has_begun() {
            return Ok(());
        }
        self.feed.end();
        self.close_open_chunks(env)
    }

    /// Closes the chunks that their producer left open. They stay where they are; those of a producer that can resume
    /// are archived, so that its next chunk does not mix with them, and what it need not send again is noted.
    fn close_open_chunks(&mut self, env: &Env) -> Result<()> {
        let noted = match &self.resume {
            Some(Present { can_resume: true, identity, known, .. })
                if self.chunks.values().any(Chunk::is_open) =>
            {
                identity.write(&env.root, known)
            }
            _ => Ok(()),
        };
        // There is time until there is room.
        if noted.as_ref().is_err_and(Error::is_no_room) {
            return noted;
        }
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
        noted
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
