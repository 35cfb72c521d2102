//! All recording sessions of a relay: who belongs to which, and what is to be done for them.
//!
//! Lock order: a recording session's lock may be held when the tables' lock is taken, never the other way round.
//! Neither is held across an `await`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::{Notify, broadcast};
use wire::live::{
    AddStream, CreateSession, Name, ProtocolMinor, RelativePath, RelaySessionId, SessiondSessionId,
    SessiondUuid, StreamHandle,
};

use crate::after::{Announce, pause};
use crate::doors::{self, Who};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::feed::{Catalogue, Feed, sealed_chunks};
use crate::jobs::Jobs;
use crate::names;
use crate::recording::{Purpose, Recording, Session};
use crate::resume::{self, Identity, Known, Present};
use crate::seal::{Attempts, Done, parent};
use crate::stream::Kind;

/// The most numbers tried for a folder that is taken.
const MAX_FOLDER_NUMBER: u32 = 1000;

/// Recording sessions remembered for their return; beyond it those that were opened first are forgotten.
const MAX_KNOWN: usize = 4096;

/// A job, and the recording session that is to know of its end, if it is here.
type Owned = (Option<Arc<Shared>>, Attempts);

/// All recording sessions.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) env: Env,
    /// What viewers may see.
    pub(crate) feeds: Catalogue,
    tables: Mutex<Tables>,
    events: broadcast::Sender<Event>,
    /// At most one job for each chunk there is, so bounded by the limits of chunks and recordings.
    /// Whose they are is told by where a recording session is in memory, which stays while it has jobs.
    jobs: Mutex<Jobs<usize, Owned>>,
    pub(crate) job_added: Notify,
}

#[derive(Debug, Default)]
struct Tables {
    recordings: HashMap<Key, Arc<Shared>>,
    /// Folders of recording sessions, relative to the root.
    folders: HashSet<RelativePath>,
    streams: HashMap<StreamHandle, Arc<Shared>>,
    /// Recording sessions without a producer at present that may come back, at most [`MAX_KNOWN`].
    known: HashMap<Identity, Known>,
    /// What viewers may still read of recording sessions, which may be over, by the session's folder; at most one for each
    /// session and for each viewer of one that is over.
    feeds: Vec<(RelativePath, Weak<Feed>)>,
    last_session: u64,
}

/// What consumer daemons of one recording session have in common. The folder is part of it because each snapshot of
/// a session may go to a folder of its own; who makes it is because nobody joins the session of another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Identity(SessiondUuid, SessiondSessionId, RelativePath, doors::Identity),
    /// Producers before LTTng 2.11 say nothing in common.
    Alone(RelaySessionId),
}

/// A recording session behind its lock.
#[derive(Debug)]
pub(crate) struct Shared {
    key: Key,
    /// Who made it.
    owner: doors::Identity,
    state: Mutex<Recording>,
    /// Told when a chunk reached its last place.
    pub(crate) chunk_done: Notify,
    /// Told when a packet is whole in its file.
    pub(crate) packet_done: Notify,
}

impl Registry {
    /// `known` are recording sessions that may come back.
    pub(crate) fn new(env: Env, known: Vec<(Identity, Known)>) -> Self {
        let (events, _) = broadcast::channel(env.limits.event_backlog.max(1));
        let mut tables = Tables::default();
        for (identity, known) in known {
            tables.remember(&env, identity, known);
        }
        let feeds = Catalogue::new(&env.limits);
        Self {
            env,
            feeds,
            tables: Mutex::new(tables),
            events,
            jobs: Mutex::default(),
            job_added: Notify::new(),
        }
    }

    /// Adds jobs that failed at the start, of recording sessions that are not here.
    pub(crate) fn try_again(&self, jobs: Vec<Attempts>) {
        let then = Instant::now() + self.env.outbox.announce.first_pause;
        let mut waiting = lock(&self.jobs);
        // No recording session is at one of these places.
        for (whose, attempts) in (0..).zip(jobs) {
            waiting.again(whose, (None, attempts), then);
        }
        drop(waiting);
        self.job_added.notify_one();
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Does something to a recording session, then what follows from it.
    pub(crate) fn act<T>(
        &self,
        shared: &Arc<Shared>,
        action: impl FnOnce(&mut Recording, &Env) -> T,
    ) -> T {
        let mut recording = lock(&shared.state);
        let result = action(&mut recording, &self.env);
        let jobs = recording.take_jobs();
        if !jobs.is_empty() {
            let mut waiting = lock(&self.jobs);
            for job in jobs {
                let job = Attempts::of(job);
                waiting.add(Arc::as_ptr(shared).addr(), (Some(Arc::clone(shared)), job));
            }
            drop(waiting);
            self.job_added.notify_one();
        }
        let gone = recording.take_gone();
        let is_over = recording.close_if_over();
        if is_over || !gone.is_empty() {
            let mut tables = lock(&self.tables);
            for handle in gone {
                tables.streams.remove(&handle);
            }
            if is_over {
                tables.recordings.remove(&shared.key);
                self.feeds.close(&recording.feed);
                tables.folders.remove(&recording.folder);
                let was_opened = !recording.folder.is_empty();
                let may_return = recording.may_return();
                match recording.resume.take() {
                    Some(present) if may_return => {
                        tables.remember(&self.env, present.identity, present.known);
                    }
                    Some(present) => forget(&self.env, &present.known),
                    None => {}
                }
                if was_opened && recording.was_joined() {
                    self.tell(Event::SessionClosed(recording.name(&self.env)));
                }
            }
        }
        result
    }

    /// A consumer daemon begins a relay session: finds or makes its recording session.
    pub(crate) fn create_session(
        &self,
        minor: ProtocolMinor,
        request: &CreateSession,
        who: &Who,
    ) -> Result<(RelaySessionId, Arc<Shared>, RelativePath)> {
        let hostname = request.hostname.as_ref().map(Name::to_string).unwrap_or_default();
        if !who.may_have(&hostname) {
            return Err(Error::ForeignHost { hostname });
        }
        // Their streams name places below the root, and nothing else of theirs speaks TLS.
        if !minor.has_trace_chunks() && who.identity != doors::Identity::default() {
            return Err(Error::TooOld { what: "a session over TLS".to_owned(), minor: minor.0 });
        }
        let owner = &who.identity;
        let wanted = self.env.names.session(request)?;
        if wanted.components().skip(1).any(names::is_reserved) || names::has_manifest(&wanted) {
            return Err(Error::ReservedPath { path: wanted.to_string() });
        }
        let id = {
            let mut tables = lock(&self.tables);
            tables.last_session += 1;
            RelaySessionId::new(tables.last_session)
        };
        let key = match &request.identity {
            Some(identity) => {
                let (sessiond, session) = (identity.sessiond, identity.sessiond_session);
                Key::Identity(sessiond, session, wanted.clone(), owner.clone())
            }
            None => Key::Alone(id),
        };
        let identity = request.identity.as_ref().filter(|_| !request.snapshot);
        let identity =
            identity.map(|identity| Identity::new(identity, wanted.clone(), owner.clone()));
        let current = request.identity.as_ref().and_then(|identity| identity.current_chunk);
        loop {
            let (shared, is_new) =
                self.find_or_make(id, &key, request, &wanted, identity.as_ref(), owner)?;
            let session = Session {
                kind: if minor.has_session_names() && !request.snapshot {
                    Kind::Indexed { full: minor.has_full_index() }
                } else {
                    Kind::Bare
                },
                ended: None,
                data_connections: 0,
                data_is_gone: false,
                host: who.host,
                arrivals: Arc::default(),
            };
            let joined: Result<Option<RelativePath>> = self.act(&shared, |recording, _| {
                if !recording.join(id, session, current)? {
                    return Ok(None);
                }
                Ok(Some(recording.folder.clone()))
            });
            if joined.is_err() {
                self.act(&shared, |recording, _| recording.nobody_came());
            }
            let Some(folder) = joined? else { continue };
            // One without a folder is opened with its first stream.
            if is_new && !folder.is_empty() {
                self.tell(Event::SessionOpened(shared.look(|recording| recording.name(&self.env))));
            }
            return Ok((id, shared, folder));
        }
    }

    fn find_or_make(
        &self,
        id: RelaySessionId,
        key: &Key,
        request: &CreateSession,
        wanted: &RelativePath,
        identity: Option<&Identity>,
        owner: &doors::Identity,
    ) -> Result<(Arc<Shared>, bool)> {
        let mut tables = lock(&self.tables);
        let limit = self.env.limits.recordings;
        let count = tables.recordings.len();
        let known = identity.and_then(|identity| tables.known.get(identity));
        let known = known.filter(|known| !tables.folders.contains(&known.folder)).cloned();
        let folder = match tables.recordings.get(key) {
            Some(shared) => return Ok((Arc::clone(shared), false)),
            None if count >= limit => {
                return Err(Error::Limit { what: "recording sessions", limit });
            }
            None if request.snapshot || request.identity.is_none() => wanted.clone(),
            None if let Some(known) = &known => known.folder.clone(),
            None => self.free_folder(&tables, wanted)?,
        };
        let text = |name: &Option<Name>| name.as_ref().map(Name::to_string).unwrap_or_default();
        let goes_on = known.is_some();
        // Nothing has changed yet when this fails.
        let past = if goes_on { sealed_chunks(&self.env.root, &folder)? } else { Vec::new() };
        let present = identity.map(|identity| {
            let known = known.map_or_else(|| self.note(identity, &folder), Ok)?;
            Ok::<_, Error>(Present {
                identity: identity.clone(),
                known,
                was_abandoned: goes_on,
                can_resume: false,
            })
        });
        let present = present.transpose()?;
        if let Some(present) = &present {
            tables.known.remove(&present.identity);
        }
        if !folder.is_empty() {
            tables.folders.insert(folder.clone());
        }
        let feed = self.feeds.open(id, request, past, &self.env.limits);
        tables.feeds.retain(|(_, feed)| feed.strong_count() > 0);
        if !folder.is_empty() {
            tables.feeds.push((folder.clone(), Arc::downgrade(&feed)));
        }
        let mut recording =
            Recording::new(text(&request.hostname), text(&request.session_name), folder, feed);
        recording.resume = present;
        if request.snapshot {
            recording.purpose = Purpose::Snapshots;
        }
        if goes_on {
            recording.goes_on();
        }
        let shared = Arc::new(Shared {
            key: key.clone(),
            owner: owner.clone(),
            state: Mutex::new(recording),
            chunk_done: Notify::new(),
            packet_done: Notify::new(),
        });
        tables.recordings.insert(key.clone(), Arc::clone(&shared));
        Ok((shared, true))
    }

    /// Notes that a session has its folder.
    fn note(&self, identity: &Identity, folder: &RelativePath) -> Result<Known> {
        let number = self.env.next_number();
        let known = Known { number, folder: folder.clone(), positions: BTreeMap::new() };
        identity.write(&self.env.root, &known)?;
        Ok(known)
    }

    /// Adds a stream. The first one of a producer before LTTng 2.11 says where its session is recorded.
    pub(crate) fn add_stream(
        &self,
        shared: &Arc<Shared>,
        id: RelaySessionId,
        handle: StreamHandle,
        request: &AddStream,
    ) -> Result<()> {
        self.act(shared, |recording, env| {
            if request.chunk.is_some() {
                return recording.add_stream(env, id, handle, request);
            }
            if recording.folder.is_empty() {
                let named = names::session_of(&request.path, &recording.host)?;
                let mut tables = lock(&self.tables);
                let folder = self.free_folder(&tables, &named)?;
                tables.folders.insert(folder.clone());
                tables.feeds.push((folder.clone(), Arc::downgrade(&recording.feed)));
                drop(tables);
                recording.begin_in(folder, named);
                self.tell(Event::SessionOpened(recording.name(env)));
            }
            let path = recording.path_in_chunk(&request.path)?;
            let request = AddStream { path, ..request.clone() };
            recording.add_stream(env, id, handle, &request)
        })
    }

    /// `wanted`, or the first numbered one that nothing is in: recordings never mix. It neither lies in the folder of another
    /// one nor holds it.
    fn free_folder(&self, tables: &Tables, wanted: &RelativePath) -> Result<RelativePath> {
        let mut candidate = wanted.clone();
        for number in 1..=MAX_FOLDER_NUMBER {
            let Some(depth) = self.taken_at(tables, &candidate)? else { return Ok(candidate) };
            candidate = names::numbered(wanted, depth, number)?;
        }
        Err(Error::Limit { what: "folders with the same name", limit: MAX_FOLDER_NUMBER as usize })
    }

    /// How many components of a folder's path lead to what is another recording's; `None` when it is free.
    fn taken_at(&self, tables: &Tables, folder: &RelativePath) -> Result<Option<usize>> {
        let depth = folder.components().count();
        let known = tables.known.values().map(|known| &known.folder);
        let mut taken =
            tables.folders.iter().chain(known).filter(|used| names::overlap(used, folder));
        if let Some(used) = taken.next() {
            return Ok(Some(used.components().count().min(depth)));
        }
        // Below the host's folder, which is nobody's.
        for depth in 2..depth {
            if self.env.root.has_manifest(&names::first_components(folder, depth)?) {
                return Ok(Some(depth));
            }
        }
        Ok((!self.env.root.list(folder)?.is_empty()).then_some(depth))
    }

    /// A handle for a stream of the recording session: one that others cannot guess, for who knows it can write there.
    pub(crate) fn new_handle(&self, shared: &Arc<Shared>) -> Result<StreamHandle> {
        let mut tables = lock(&self.tables);
        let limit = self.env.limits.streams;
        if tables.streams.len() >= limit {
            return Err(Error::Limit { what: "streams", limit });
        }
        loop {
            let handle = random_handle()?;
            if let Entry::Vacant(free) = tables.streams.entry(handle) {
                free.insert(Arc::clone(shared));
                return Ok(handle);
            }
        }
    }

    /// Takes a handle back that came to nothing.
    pub(crate) fn forget_handle(&self, handle: StreamHandle) {
        lock(&self.tables).streams.remove(&handle);
    }

    /// The recording session a stream belongs to, if it was made by who asks.
    pub(crate) fn find_stream(
        &self,
        handle: StreamHandle,
        asker: &doors::Identity,
    ) -> Result<Arc<Shared>> {
        let tables = lock(&self.tables);
        let shared = tables.streams.get(&handle).filter(|shared| shared.owner == *asker);
        shared.cloned().ok_or(Error::UnknownStream { handle })
    }

    /// Does jobs until there is none to begin; others may do so at the same time. Blocks on the disk.
    pub(crate) fn run_jobs(&self) {
        loop {
            let mut jobs = lock(&self.jobs);
            let now = Instant::now();
            let Some((whose, (shared, mut attempts))) = jobs.begin(now) else { return };
            if jobs.is_ready(now) {
                self.job_added.notify_one();
            }
            drop(jobs);
            let Announce { first_pause, longest_pause, .. } = self.env.outbox.announce;
            let left = match attempts.run(&self.env) {
                Some(done) => {
                    self.job_is_done(shared.as_ref(), done);
                    None
                }
                None if attempts.is_hopeless(&self.env) => Some((shared.clone(), attempts)),
                None => {
                    let pause = pause(first_pause, longest_pause, attempts.failures());
                    let job = (shared.clone(), attempts);
                    lock(&self.jobs).again(whose, job, Instant::now() + pause)
                }
            };
            // So that those behind it go on, and its producer. Nor is anything tried again when the relay ends.
            if let Some((_, attempts)) = left
                && let Some(done) = attempts.give_up(&self.env)
            {
                self.job_is_done(shared.as_ref(), done);
            }
            let mut jobs = lock(&self.jobs);
            jobs.end(whose);
            if jobs.next_rested().is_some() {
                // Who wakes what rests is to know.
                self.job_added.notify_one();
            }
        }
    }

    fn job_is_done(&self, shared: Option<&Arc<Shared>>, Done { event, chunk }: Done) {
        self.tell(event);
        if let (Some(shared), Some((chunk, folder))) = (shared, chunk) {
            self.act(shared, |recording, _| recording.chunk_is_done(chunk, folder));
            shared.chunk_done.notify_waiters();
        }
    }

    /// When the next job that failed is to be tried again.
    pub(crate) fn next_rested(&self) -> Option<Instant> {
        lock(&self.jobs).next_rested()
    }

    /// What failed is tried once more, and no further time.
    pub(crate) fn end_rests(&self) {
        lock(&self.jobs).end_rests();
    }

    /// Lets go of what has waited too long.
    pub(crate) fn expire(&self, now: Instant) {
        self.for_all(|recording, env| recording.expire(env, now));
    }

    /// Ends every recording session where it stands.
    pub(crate) fn end_all(&self) {
        self.for_all(Recording::end_all);
    }

    /// Whether a viewer who moves has still to read of a sealed chunk, however long its session is over.
    pub(crate) fn is_viewed(&self, folder: &RelativePath, now: Instant) -> bool {
        let patience = self.env.limits.viewer_hold;
        self.feeds_of(folder).iter().any(|feed| feed.is_held(folder, now, patience))
    }

    /// Whether a place is the folder of a recording session that is recorded, or holds one.
    pub(crate) fn holds_recording(&self, place: &RelativePath) -> bool {
        let tables = lock(&self.tables);
        tables.folders.iter().any(|folder| folder.as_path().starts_with(place.as_path()))
    }

    /// A sealed chunk was deleted: viewers are not shown it.
    pub(crate) fn chunk_is_gone(&self, folder: &RelativePath) {
        self.feeds_of(folder).iter().for_each(|feed| feed.folder_is_gone(folder));
    }

    fn feeds_of(&self, chunk: &RelativePath) -> Vec<Arc<Feed>> {
        let tables = lock(&self.tables);
        let above = |folder: &RelativePath| chunk.as_path().starts_with(folder.as_path());
        // Sessions may lie in each other's folders.
        let depth = |folder: &RelativePath| folder.components().count();
        let above = tables.feeds.iter().filter(|(folder, _)| above(folder));
        let deepest = above.clone().map(|(folder, _)| depth(folder)).max();
        above
            .filter(|(folder, _)| Some(depth(folder)) == deepest)
            .filter_map(|(_, feed)| feed.upgrade())
            .collect()
    }

    /// Removes the folders that a chunk left empty, up to its session's, where nobody records.
    pub(crate) fn remove_empty_folders(&self, chunk: &RelativePath) {
        // A session has its folder in the tables before it makes it, and until its last chunk is sealed.
        let tables = lock(&self.tables);
        let is_used = |folder: &RelativePath| {
            tables.folders.iter().any(|used| {
                used.as_path().starts_with(folder.as_path())
                    || (!used.is_empty() && folder.as_path().starts_with(used.as_path()))
                    || used.is_empty()
            })
        };
        let mut folder = chunk.clone();
        // The host's folder stays.
        while folder.components().count() > 1 && !is_used(&folder) {
            let is_left = self.env.root.exists(&folder);
            if is_left && self.env.root.remove_dir(&folder).is_err() {
                return;
            }
            folder = parent(&folder);
        }
    }

    fn for_all(&self, action: impl Fn(&mut Recording, &Env) -> Result<()>) {
        let all: Vec<Arc<Shared>> = lock(&self.tables).recordings.values().cloned().collect();
        for shared in all {
            if let Err(error) = self.act(&shared, &action) {
                tracing::error!(error = &error as &dyn std::error::Error, "recording session");
            }
        }
    }

    /// Nobody listening is no failure.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.events.send(event));
    }
}

impl Tables {
    /// Keeps a recording session in mind for its return.
    fn remember(&mut self, env: &Env, identity: Identity, known: Known) {
        if self.known.len() >= MAX_KNOWN {
            let first = self.known.iter().min_by_key(|(_, known)| known.number);
            if let Some(first) = first.map(|(identity, _)| identity.clone())
                && let Some(known) = self.known.remove(&first)
            {
                forget(env, &known);
            }
        }
        self.known.insert(identity, known);
    }
}

fn forget(env: &Env, known: &Known) {
    if let Err(error) = resume::forget(&env.root, known.number) {
        tracing::warn!(error = &error as &dyn std::error::Error, "session file");
    }
}

impl Shared {
    /// Looks at the recording session without changing it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Recording) -> T) -> T {
        look(&lock(&self.state))
    }
}

fn random_handle() -> Result<StreamHandle> {
    let mut bytes = [0; 8];
    let got = getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| Error::Random { source: error.into() })?;
    if got < bytes.len() {
        return Err(Error::Random { source: std::io::ErrorKind::UnexpectedEof.into() });
    }
    // LTTng's own are positive.
    Ok(StreamHandle::new((u64::from_ne_bytes(bytes) >> 1).max(1)))
}

/// A panic while the lock was held has been reported where it happened; the state is what it was before or after a step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::after::Outbox;
    use crate::config::{Limits, TimeZone};
    use crate::counters::Counters;
    use crate::intake::Intake;
    use crate::names::Names;
    use crate::root::Root;
    use wire::live::{
        AddStream, ChunkId, CreateTraceChunk, DataHeader, NetSeqNum, SessionIdentity, UnixSeconds,
    };

    pub(crate) fn registry(root: &std::path::Path) -> Arc<Registry> {
        let (root, counters) = (Root::open(root).unwrap(), Counters::default());
        let outbox =
            Outbox::open(&root, crate::config::Config::new(root.path()).announce, false, &counters)
                .unwrap();
        let names = Names::new(TimeZone::Utc);
        let env = Env::new(root, names, Limits::default(), counters, outbox, 0);
        Arc::new(Registry::new(env, Vec::new()))
    }

    pub(crate) fn stream_request(channel: &str) -> AddStream {
        AddStream {
            channel: Name::new(channel).unwrap(),
            path: RelativePath::new("ust").unwrap(),
            tracefile: None,
            chunk: Some(ChunkId::new(0)),
        }
    }

    pub(crate) fn request() -> CreateSession {
        CreateSession {
            session_name: Some(Name::new("s").unwrap()),
            hostname: Some(Name::new("host").unwrap()),
            live_timer_us: 0,
            snapshot: false,
            identity: Some(SessionIdentity {
                base_path: RelativePath::default(),
                name_has_creation_time: false,
                sessiond: SessiondUuid([7; 16]),
                sessiond_session: SessiondSessionId::new(1),
                created: UnixSeconds::new(7),
                current_chunk: None,
                trace_format: None,
            }),
        }
    }

    fn from(host: &str) -> Who {
        Who::plain(host.parse::<IpAddr>().unwrap(), None)
    }

    #[test]
    fn packets_come_from_the_host_of_their_session() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let minor = ProtocolMinor::OURS;
        let (id, shared, _) =
            registry.create_session(minor, &request(), &from("192.0.2.1")).unwrap();
        let handle = registry.new_handle(&shared).unwrap();
        registry.act(&shared, |recording, env| {
            let (chunk, created) = (ChunkId::new(0), UnixSeconds::new(7));
            let chunk = CreateTraceChunk { chunk, created, override_name: None };
            recording.create_chunk(env, &chunk).unwrap();
            let stream = AddStream { chunk: Some(chunk.chunk), ..stream_request("ch_0") };
            recording.add_stream(env, id, handle, &stream).unwrap();
        });
        let bring = |host: &str, number: u64| {
            let net_seq_num = NetSeqNum::new(number);
            let header = DataHeader { stream: handle, net_seq_num, data_len: 1, padding_len: 0 };
            let bytes = [header.encode().as_slice(), &[1]].concat();
            let mut intake = Intake::new(Arc::clone(&registry), from(host));
            intake.room()[..bytes.len()].copy_from_slice(&bytes);
            intake.arrived(bytes.len());
            intake.take()
        };
        for host in ["192.0.2.2", "127.0.0.1", "::ffff:192.0.2.2"] {
            assert!(matches!(bring(host, 0), Err(Error::UnknownStream { .. })), "{host}");
        }
        bring("192.0.2.1", 0).unwrap();
        bring("::ffff:192.0.2.1", 1).unwrap();
        assert_eq!(registry.env.counters.totals().packets, 2);
    }

    #[test]
    fn a_session_is_not_over_before_its_producer_has_joined() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let wanted = RelativePath::new("host/s").unwrap();
        let (id, owner) = (RelaySessionId::new(1), doors::Identity::default());
        let request = request();
        let named = request.identity.as_ref().unwrap();
        let identity = Identity::new(named, wanted.clone(), owner.clone());
        let key = Key::Alone(id);
        let make =
            || registry.find_or_make(id, &key, &request, &wanted, Some(&identity), &owner).unwrap();
        let (shared, is_new) = make();
        registry.expire(Instant::now());
        assert!(is_new && !make().1, "it is still there");
        assert!(!shared.look(|recording| recording.feed.is_over()));
        assert!(folder.path().join(".relay/0.session").exists());
    }
}
