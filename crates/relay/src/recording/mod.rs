//! One recording session: its relay sessions (one for each consumer daemon), streams and chunks.
//!
//! Methods are the protocol's commands: they check, change the state and act on small files (an index
//! record, a new file, a rename); packets' bytes are written outside, between [`Recording::begin_packet`] and
//! [`Recording::end_packet`]. What takes long (syncing, deleting) is handed out as [`Job`]s.
//!
//! Invariants: a stream is in at most one chunk; a chunk's `streams` counts the streams in it; a chunk with
//! `closing` and no streams becomes a job exactly once.

mod chunks;
mod ends;
#[cfg(test)]
mod faulty;
mod metadata;
pub(crate) mod packets;
mod pending;
mod streams;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::live::{ChunkId, RelativePath, RelaySessionId, StreamHandle};

use crate::arrivals::Arrivals;
use crate::chunk::Chunk;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::RecordingName;
use crate::feed::Feed;
use crate::resume::Present;
use crate::seal::Job;
use crate::stream::{Kind, Stream};

/// What is sent by the relay sessions of a recording session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Record,
    Snapshots,
}

/// A recording session.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) host: String,
    pub(crate) session: String,
    /// Relative to the root; empty until a producer before LTTng 2.11 says it with its first stream.
    pub(crate) folder: RelativePath,
    /// What the paths of all streams of such a producer begin with: `folder`, or the name that was taken.
    named: RelativePath,
    pub(crate) purpose: Purpose,
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
    beginning: Beginning,
    is_closed: bool,
    /// Who it is and where it was, for sessions that may come back.
    pub(crate) resume: Option<Present>,
    jobs: Vec<Job>,
    /// Streams that ended since the last call of [`Recording::take_gone`].
    gone: Vec<StreamHandle>,
}

/// Whether a recording session's first producer has come.
#[derive(Debug, Clone, Copy)]
enum Beginning {
    /// It is about to join.
    Awaited,
    /// It could not.
    Failed,
    Joined,
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
    /// There was one, and there is none any more.
    pub(crate) data_is_gone: bool,
    /// Where its plain connections come from, see [`crate::doors::Who::host`].
    pub(crate) host: Option<IpAddr>,
    pub(crate) arrivals: Arc<Arrivals>,
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
            named: RelativePath::default(),
            purpose: Purpose::Record,
            feed,
            sessions: BTreeMap::new(),
            streams: HashMap::new(),
            chunks: BTreeMap::new(),
            finished: VecDeque::new(),
            session_folder_is_used: false,
            has_rotated: false,
            left: VecDeque::new(),
            beginning: Beginning::Awaited,
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
        RecordingName {
            host: self.host.clone(),
            session: self.session.clone(),
            folder: env.root.absolute(&self.folder),
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
        self.beginning = Beginning::Joined;
        Ok(true)
    }

    /// Who made it could not join. It goes again, unless somebody else has joined.
    pub(crate) const fn nobody_came(&mut self) {
        if matches!(self.beginning, Beginning::Awaited) {
            self.beginning = Beginning::Failed;
        }
    }

    /// Whether who made it has joined, or has failed to.
    const fn has_begun(&self) -> bool {
        !matches!(self.beginning, Beginning::Awaited)
    }

    /// Whether it ever had a producer.
    pub(crate) const fn was_joined(&self) -> bool {
        matches!(self.beginning, Beginning::Joined)
    }

    /// Ends the recording session if nobody writes here any more and everything is in its last place. Says so
    /// once; nobody can join afterwards.
    pub(crate) fn close_if_over(&mut self) -> bool {
        let is_over = self.has_begun() && self.sessions.is_empty() && self.chunks.is_empty();
        is_over && !std::mem::replace(&mut self.is_closed, true)
    }

    /// What comes on the data connections of a relay session.
    pub(crate) fn arrivals(&self, session: RelaySessionId) -> Option<Arc<Arrivals>> {
        self.sessions.get(&session).map(|session| Arc::clone(&session.arrivals))
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
}
