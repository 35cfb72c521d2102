//! Trace chunks of a recording session: made, entered and left by streams, closed, handed out for sealing or deleted.

use std::collections::BTreeSet;

use tracedir::manifest::SealedBy;
use wire::live::ChunkId;
use wire::live::CloseTraceChunk;
use wire::live::CreateTraceChunk;
use wire::live::RelativePath;
use wire::live::StreamHandle;

use super::{Purpose, Recording};
use crate::chunk::Chunk;
use crate::chunk::Closing;
use crate::chunk::Fate;
use crate::chunk::placement;
use crate::env::Env;
use crate::error::Error;
use crate::error::Result;
use crate::journal;
use crate::names;
use crate::seal::Job;
use crate::seal::SealJob;

/// Chunks remembered after they ended, for requests of consumer daemons that are late.
const FINISHED_KEPT: usize = 16;

impl Recording {
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
            Some(name) if names::is_reserved(name.as_str()) => {
                return Err(Error::ReservedPath { path: name.to_string() });
            }
            Some(name) => self.folder.join(name),
            // Further sessions of snapshots may have the same folder.
            None if self.purpose == Purpose::Snapshots => {
                return Err(Error::Meaningless { what: "a snapshot without a name" });
            }
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
        if let Some(present) = &mut self.resume {
            present.was_abandoned = false;
        }
        self.chunks.insert(request.chunk, Chunk::new(Some(request.created), folder, is_snapshot));
        Ok(())
    }

    /// A producer before LTTng 2.11 named its folder in the path of its first stream, and has this one for it. Its one chunk is
    /// written in place.
    pub(crate) fn begin_in(&mut self, folder: RelativePath, named: RelativePath) {
        self.folder = folder;
        self.named = named;
        self.session_folder_is_used = true;
        self.chunks.insert(ChunkId::new(0), Chunk::new(None, self.folder.clone(), false));
    }

    /// The path of a stream of a producer before LTTng 2.11, in its chunk.
    pub(crate) fn path_in_chunk(&self, path: &RelativePath) -> Result<RelativePath> {
        names::below(path, &self.named).ok_or_else(|| Error::ForeignPath { path: path.to_string() })
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

    /// Makes the changes that ways from chunk to chunk still need, before another one is noted in place of them.
    pub(super) fn finish_moves(&mut self, env: &Env) -> Result<()> {
        for chunk in self.chunks.values_mut() {
            if let (Some(moving), Some(number)) = (&chunk.unfinished, chunk.journal) {
                moving.finish(&env.root, number)?;
                chunk.unfinished = None;
            }
        }
        Ok(())
    }

    /// Hands a chunk out for sealing, or deletes it, once the last stream has left.
    pub(super) fn finish_chunk(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        let name = self.name(env);
        if !self.chunks.get(&id).is_some_and(Chunk::is_complete) {
            return Ok(());
        }
        self.finish_moves(env)?;
        let Some(chunk) = self.chunks.get_mut(&id) else { return Ok(()) };
        let Some(Closing { end, fate }) = chunk.closing.clone() else { return Ok(()) };
        if fate == Fate::Delete {
            let discarded = self.discard(env, id);
            return discarded.or_else(|error| self.discard_failed(env, id, error));
        }
        chunk.is_sealing = true;
        let to = match fate {
            Fate::Archive(to) => {
                self.feed.chunk_goes_to(id, &to);
                Some(to)
            }
            Fate::Stay | Fate::Delete => None,
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
            misses_entries: chunk.misses_entries,
            sealed_by: if end.is_some() { SealedBy::Closed } else { SealedBy::ProducerGone },
            session: self.resume.as_ref().map(|present| present.known.number),
            journal: (number, entry),
        })));
        Ok(())
    }

    /// Takes a chunk out of sight at once and leaves the deleting to a job. What fails is tried again; a start after a kill finishes it.
    fn discard(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        let Some(chunk) = self.chunks.get_mut(&id) else { return Ok(()) };
        let was_in_place = chunk.folder == self.folder;
        let trash = chunk.trash.get_or_insert_with(|| env.next_trash()).clone();
        if let Some(number) = chunk.journal {
            let moving = Some(journal::Move { to: trash.clone(), sealed: true });
            let entry = entry(&self.host, &self.session, &self.folder, id, chunk);
            journal::Entry { moving, ..entry }.write(&env.root, number)?;
        }
        let tops =
            if was_in_place { chunk.tops() } else { BTreeSet::from([RelativePath::default()]) };
        for top in tops {
            let from = chunk.folder.join_path(&top);
            if env.root.exists(&from) {
                env.root.rename(&from, &trash.join_path(&top))?;
            }
        }
        if let Some(number) = chunk.journal {
            journal::remove(&env.root, number)?;
        }
        let folder = chunk.folder.clone();
        self.feed.chunk_is_gone(id);
        self.chunk_is_done(id, folder);
        self.jobs.push(Job::Delete { recording: self.name(env), chunk: id, trash });
        if was_in_place && !self.has_rotated { self.move_in_place(env) } else { Ok(()) }
    }

    /// A chunk could not be taken out of sight. After as many failures as sealing may have the next start does it, so that nobody
    /// waits for it any longer.
    fn discard_failed(&mut self, env: &Env, id: ChunkId, error: Error) -> Result<()> {
        let Some(chunk) = self.chunks.get_mut(&id).filter(|_| !error.is_no_room()) else {
            return Err(error);
        };
        chunk.discards_failed += 1;
        if chunk.discards_failed < env.limits.seal_attempts {
            return Err(error);
        }
        let folder = chunk.folder.clone();
        let error = &error as &dyn std::error::Error;
        tracing::error!(%folder, error, "cannot delete a cleared chunk; the next start tries again");
        env.counters.seals_given_up.add(1);
        self.feed.chunk_is_gone(id);
        self.chunk_is_done(id, folder);
        Ok(())
    }

    /// Gives the session's folder, which is free again, to the newest chunk.
    pub(super) fn move_in_place(&mut self, env: &Env) -> Result<()> {
        let newest = self.chunks.iter_mut().next_back().filter(|(_, chunk)| !chunk.is_sealing);
        let Some((id, chunk)) = newest.filter(|(_, chunk)| !chunk.is_snapshot) else {
            self.session_folder_is_used = false;
            return Ok(());
        };
        let from = chunk.folder.clone();
        self.feed.chunk_goes_to(*id, &self.folder);
        if chunk.members.is_empty() {
            chunk.folder = self.folder.clone();
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
        chunk.folder = self.folder.clone();
        env.root.remove_dir(&from)?;
        entry.moving = None;
        entry.at = self.folder.clone();
        chunk.journal.map_or(Ok(()), |number| entry.write(&env.root, number))
    }

    /// Notes for the time after a crash that a stream is about to enter a chunk: before its first file is made.
    pub(super) fn note_stream(
        &mut self,
        env: &Env,
        stream: &RelativePath,
        id: ChunkId,
    ) -> Result<()> {
        self.finish_moves(env)?;
        let chunk = self.chunks.get_mut(&id).ok_or(Error::UnknownChunk { chunk: id })?;
        if chunk.members.contains(stream) || chunk.noted.contains(stream) {
            return Ok(());
        }
        let number = match chunk.journal {
            Some(number) => number,
            None => {
                let number = env.next_number();
                entry(&self.host, &self.session, &self.folder, id, chunk)
                    .write(&env.root, number)?;
                *chunk.journal.insert(number)
            }
        };
        journal::append_stream(&env.root, number, stream)?;
        chunk.noted.insert(stream.clone());
        Ok(())
    }

    /// A stream, whose files are there, is in a chunk.
    pub(super) fn enter_chunk(&mut self, handle: StreamHandle, id: ChunkId) -> Result<()> {
        let (Some(stream), Some(chunk)) = (self.streams.get_mut(&handle), self.chunks.get_mut(&id))
        else {
            return Err(Error::UnknownChunk { chunk: id });
        };
        stream.chunk = Some(id);
        self.feed.chunk_is_at(id, &chunk.folder);
        chunk.streams += 1;
        chunk.members.insert(stream.path_in_chunk());
        Ok(())
    }

    pub(super) fn leave_chunk(&mut self, env: &Env, id: ChunkId) -> Result<()> {
        if let Some(chunk) = self.chunks.get_mut(&id) {
            chunk.streams = chunk.streams.saturating_sub(1);
        }
        self.finish_chunk(env, id)
    }

    pub(super) fn open_chunk(&self, chunk: ChunkId) -> Result<&Chunk> {
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
        names_streams: true,
    }
}
