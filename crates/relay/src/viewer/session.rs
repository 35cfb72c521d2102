//! One viewer: what it is attached to, how far it has read, and the answer to each of its requests.
//!
//! Sockets are [`super::Connection`]'s. Answers are small and go into one buffer; lists and bytes that may be long follow
//! as a [`Tail`], so that a viewer costs the relay a buffer and not what it asks for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::live::viewer::{
    AttachReply, AttachSession, Connect, CreateViewerSessionReply, DetachReply, Flags, GetPacket,
    MAX_LISTED, MAX_METADATA_PIECE_LEN, MetadataReply, NewStreamsReply, NextIndex, NextIndexReply,
    PacketPiece, PacketReply, Request, Seek, SessionEntry, SessionListHead, StreamEntry,
};
use wire::live::{
    ProtocolMinor, StreamHandle, TraceFormat, Version, ViewedSessionId, ViewedStreamId,
    ViewedTraceId, ViewerSessionId,
};

use super::disk;
use super::reading::Reading;
use crate::doors::Who;
use crate::error::{Error, Result};
use crate::feed::{Cursor, Extent, Feed, Hold, Listed, TraceFile};
use crate::registry::Registry;

/// Entries of index files that one viewer keeps of all its streams, and one more for each stream.
const MAX_AHEAD: usize = 256;
/// Entries that are kept of one stream.
const MAX_AHEAD_OF_STREAM: usize = 32;

/// A viewer's connection as the protocol sees it.
pub(super) struct Viewer {
    registry: Arc<Registry>,
    who: Who,
    id: ViewerSessionId,
    minor: Option<ProtocolMinor>,
    has_session: bool,
    attached: BTreeMap<ViewedSessionId, Attached>,
    streams: HashMap<ViewedStreamId, Viewed>,
}

/// A recording session that is being read.
struct Attached {
    feed: Arc<Feed>,
    /// What it has still to read.
    hold: Arc<Hold>,
    /// Where it began.
    seek: Seek,
    /// The publication up to which its streams were listed.
    listed: u64,
    /// The viewer is asked to ask for streams.
    asks_for_streams: bool,
}

/// A stream that is being read.
struct Viewed {
    session: ViewedSessionId,
    trace: ViewedTraceId,
    handle: StreamHandle,
    place: Place,
}

enum Place {
    Metadata(Sent),
    Packets(Box<Reading>),
}

/// Metadata that were sent: the beginning of an edition. When others replace them, the viewer keeps those it has; what follows
/// them in a file of others would begin inside of a declaration.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    edition: u64,
    len: u64,
}

impl Sent {
    /// Whether there are more than these.
    const fn is_behind(&self, whole: u64, edition: u64) -> bool {
        whole > self.len && (self.len == 0 || self.edition == edition)
    }
}

/// What follows a reply.
pub(super) enum Tail {
    Nothing,
    /// Entries of a list.
    Streams(std::vec::IntoIter<StreamEntry>),
    /// Bytes of a file.
    Bytes {
        file: TraceFile,
        offset: u64,
        len: u64,
        /// Of a packet: its stream, and the offset of its beginning, should it be moved meanwhile.
        packet: Option<(ViewedStreamId, u64)>,
    },
}

impl Viewer {
    pub(super) fn new(registry: Arc<Registry>, who: Who, number: u64) -> Self {
        Self {
            registry,
            who,
            id: ViewerSessionId::new(number),
            minor: None,
            has_session: false,
            attached: BTreeMap::new(),
            streams: HashMap::new(),
        }
    }

    /// Whether versions were exchanged.
    pub(super) const fn is_connected(&self) -> bool {
        self.minor.is_some()
    }

    /// Whether it follows a session.
    pub(super) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// How long it may say nothing while it follows no session.
    pub(super) fn idle_limit(&self) -> Duration {
        self.registry.env.limits.viewer_idle
    }

    /// Puts the answer into `reply`. An error ends the connection, after what is in `reply` was sent.
    pub(super) async fn answer(&mut self, request: &Request, reply: &mut Vec<u8>) -> Result<Tail> {
        if let Request::Connect(request) = request {
            return self.connect(request, reply).map(|()| Tail::Nothing);
        }
        let minor = self.minor.ok_or(Error::ViewerNotConnected)?;
        match request {
            Request::Connect(_) => {}
            Request::CreateSession => {
                self.has_session = true;
                CreateViewerSessionReply::Made.encode(reply);
            }
            Request::ListSessions => self.list(minor, reply),
            Request::AttachSession(request) => {
                return Ok(self.attach(*request, minor, reply).await);
            }
            Request::GetNewStreams(session) => return Ok(self.new_streams(*session, reply)),
            Request::GetNextIndex(stream) => {
                self.next_index(*stream, minor).await.encode(reply);
            }
            Request::GetPacket(request) => return Ok(self.packet(*request, reply).await),
            Request::GetMetadata(stream) => return Ok(self.metadata(*stream, reply)),
            Request::DetachSession(session) => self.detach(*session).encode(reply),
        }
        Ok(Tail::Nothing)
    }

    fn connect(&mut self, request: &Connect, reply: &mut Vec<u8>) -> Result<()> {
        let major = request.version.major;
        self.minor = Version::OURS.negotiate(request.version);
        Connect { viewer_session: self.id, version: Version::OURS, kind: 0 }.encode(reply);
        self.minor.map(|_| ()).ok_or(Error::WrongMajor { major })
    }

    /// Whether this viewer may look at a session and can read it: those before 2.15 cannot read CTF 2.
    fn is_shown(&self, feed: &Feed, minor: ProtocolMinor) -> bool {
        self.who.may_have(&feed.hostname)
            && (feed.format == TraceFormat::Ctf1_8 || minor.has_trace_format())
    }

    fn list(&self, minor: ProtocolMinor, reply: &mut Vec<u8>) {
        let mut sessions = self.registry.feeds.sessions();
        sessions.retain(|feed| self.is_shown(feed, minor));
        sessions.truncate(MAX_LISTED);
        SessionListHead { count: count(sessions.len()) }.encode(reply);
        for feed in sessions {
            let entry = SessionEntry {
                session: feed.id,
                live_timer_us: feed.live_timer_us,
                viewers: feed.viewers(),
                streams: count(feed.stream_count()),
                format: feed.format,
                hostname: feed.hostname.clone(),
                name: feed.name.clone(),
            };
            entry.encode(minor, reply);
        }
    }

    async fn attach(
        &mut self,
        AttachSession { session, seek }: AttachSession,
        minor: ProtocolMinor,
        reply: &mut Vec<u8>,
    ) -> Tail {
        let found = self.registry.feeds.find(session).filter(|feed| self.is_shown(feed, minor));
        let refused = match found {
            _ if !self.has_session => AttachReply::NoViewerSession,
            _ if self.attached.contains_key(&session) => AttachReply::Taken,
            None => AttachReply::Unknown,
            Some(feed) => {
                let extent = match seek {
                    Seek::Beginning | Seek::Since(_) => Extent::All,
                    Seek::Last => Extent::Open,
                };
                // Before anything else, so that nothing is deleted meanwhile.
                feed.viewer_came();
                let attached = Attached {
                    hold: feed.hold(Instant::now()),
                    feed: Arc::clone(&feed),
                    seek,
                    listed: 0,
                    asks_for_streams: true,
                };
                self.attached.insert(session, attached);
                if extent == Extent::All {
                    look_at_past(&feed, &self.registry).await;
                }
                let (streams, listed) = feed.streams(0, extent, MAX_LISTED);
                if let Some(attached) = self.attached.get_mut(&session) {
                    attached.listed = listed;
                }
                let found = match seek {
                    Seek::Since(cycles) => places(&feed, &self.registry, &streams, cycles).await,
                    Seek::Beginning | Seek::Last => HashMap::new(),
                };
                AttachReply::Attached(count(streams.len())).encode(reply);
                return self.take_up(session, streams, |listed| match seek {
                    Seek::Beginning => listed.beginning,
                    Seek::Since(_) => {
                        found.get(&listed.handle).copied().unwrap_or(listed.beginning)
                    }
                    Seek::Last => listed.end,
                });
            }
        };
        refused.encode(reply);
        Tail::Nothing
    }

    fn new_streams(&mut self, session: ViewedSessionId, reply: &mut Vec<u8>) -> Tail {
        let Some(attached) = self.attached.get_mut(&session) else {
            NewStreamsReply::Failed.encode(reply);
            return Tail::Nothing;
        };
        attached.asks_for_streams = false;
        // Before the streams, so that none can be published between the two.
        let is_over = attached.feed.is_over();
        let (mut streams, listed) = attached.feed.streams(attached.listed, Extent::All, MAX_LISTED);
        attached.listed = listed;
        // One that has come back is read on.
        streams
            .retain(|stream| !self.streams.contains_key(&ViewedStreamId::new(stream.handle.get())));
        let seek = attached.seek;
        let feed = &attached.feed;
        let is_read = |viewed: &Viewed| match &viewed.place {
            Place::Packets(reading) => reading.is_over(feed),
            Place::Metadata(_) => true,
        };
        if streams.is_empty()
            && is_over
            && self.streams.values().filter(|viewed| viewed.session == session).all(is_read)
        {
            NewStreamsReply::HangUp.encode(reply);
            return Tail::Nothing;
        }
        NewStreamsReply::Streams(count(streams.len())).encode(reply);
        self.take_up(session, streams, |listed| match seek {
            Seek::Beginning | Seek::Since(_) => listed.beginning,
            Seek::Last => listed.beginning.not_before_feed(),
        })
    }

    /// Begins to read streams, each where `place` says.
    fn take_up(
        &mut self,
        session: ViewedSessionId,
        streams: Vec<Listed>,
        place: impl Fn(&Listed) -> Cursor,
    ) -> Tail {
        if self.streams.len() + streams.len() > MAX_LISTED {
            let attached = &self.attached;
            self.streams.retain(|_, viewed| match &viewed.place {
                Place::Metadata(_) => true,
                Place::Packets(reading) => {
                    attached.get(&viewed.session).is_some_and(|it| !reading.is_over(&it.feed))
                }
            });
        }
        let mut entries = Vec::with_capacity(streams.len());
        for listed in streams {
            let stream = ViewedStreamId::new(listed.handle.get());
            let (trace, handle) = (listed.trace, listed.handle);
            let cursor = place(&listed);
            let place = if listed.is_metadata {
                Place::Metadata(Sent::default())
            } else {
                Place::Packets(Box::new(Reading::new(handle, cursor)))
            };
            self.streams.insert(stream, Viewed { session, trace, handle, place });
            entries.push(StreamEntry {
                stream,
                trace,
                is_metadata: listed.is_metadata,
                path: listed.path.to_string(),
                channel: listed.channel.to_string(),
            });
        }
        if let Some(attached) = self.attached.get(&session) {
            let followed = self.streams.values().filter(|viewed| viewed.session == session);
            let places = followed.filter_map(|viewed| match &viewed.place {
                Place::Packets(reading) => Some((viewed.handle, reading.number())),
                Place::Metadata(_) => None,
            });
            attached.hold.follows(places.collect());
        }
        Tail::Streams(entries.into_iter())
    }

    async fn next_index(&mut self, stream: ViewedStreamId, minor: ProtocolMinor) -> NextIndexReply {
        let index = match self.find_next(stream).await {
            // Else this viewer would be past the first events of a stream that it does not know yet.
            NextIndex::Inactive { .. } if self.has_unlisted_streams(stream) => NextIndex::NotYet,
            index => index,
        };
        let mut flags = Flags::NONE;
        let is_packet = matches!(index, NextIndex::Packet(_));
        if (is_packet || minor.has_trace_format()) && self.has_new_streams(stream) {
            flags = flags | Flags::NEW_STREAMS;
        }
        if is_packet && self.has_new_metadata(stream) {
            flags = flags | Flags::NEW_METADATA;
        }
        NextIndexReply { index, flags }
    }

    async fn find_next(&mut self, stream: ViewedStreamId) -> NextIndex {
        let most = (MAX_AHEAD / self.streams.len().max(1)).clamp(1, MAX_AHEAD_OF_STREAM);
        let Some(viewed) = self.streams.get_mut(&stream) else { return NextIndex::Failed };
        let Some(attached) = self.attached.get(&viewed.session) else { return NextIndex::Failed };
        match &mut viewed.place {
            Place::Metadata(_) => NextIndex::HangUp,
            Place::Packets(reading) => {
                let now = Instant::now();
                let next = reading.next(&self.registry, &attached.feed, most, now).await;
                attached.hold.is_at(viewed.handle, reading.number(), now);
                next
            }
        }
    }

    fn has_new_streams(&self, stream: ViewedStreamId) -> bool {
        self.has_unlisted_streams(stream)
            || self.session_of(stream).is_some_and(|attached| attached.asks_for_streams)
    }

    /// Whether the stream's session has streams that were not listed to this viewer.
    fn has_unlisted_streams(&self, stream: ViewedStreamId) -> bool {
        let attached = self.session_of(stream);
        attached.is_some_and(|attached| attached.feed.publications() > attached.listed)
    }

    fn session_of(&self, stream: ViewedStreamId) -> Option<&Attached> {
        self.attached.get(&self.streams.get(&stream)?.session)
    }

    /// Whether the trace of a stream has metadata that were not sent.
    fn has_new_metadata(&self, stream: ViewedStreamId) -> bool {
        let Some(viewed) = self.streams.get(&stream) else { return false };
        let Some(attached) = self.attached.get(&viewed.session) else { return false };
        attached.feed.metadata_of(viewed.trace).is_some_and(|(handle, len, edition)| {
            let metadata = self.streams.get(&ViewedStreamId::new(handle.get()));
            matches!(metadata, Some(Viewed { place: Place::Metadata(sent), .. }) if sent.is_behind(len, edition))
        })
    }

    async fn packet(&mut self, request: GetPacket, reply: &mut Vec<u8>) -> Tail {
        let begin = reply.len();
        let say = |piece| PacketReply { piece, flags: Flags::NONE };
        say(PacketPiece::Bytes(request.len_bytes)).encode(reply);
        self.find_packet(request, reply).await.unwrap_or_else(|piece| {
            reply.truncate(begin);
            say(piece).encode(reply);
            Tail::Nothing
        })
    }

    /// Appends the first bytes of a piece to `out`; gives what follows them.
    async fn find_packet(
        &mut self,
        request: GetPacket,
        out: &mut Vec<u8>,
    ) -> std::result::Result<Tail, PacketPiece> {
        let viewed = self.streams.get_mut(&request.stream).ok_or(PacketPiece::Failed)?;
        let feed = &self.attached.get(&viewed.session).ok_or(PacketPiece::Failed)?.feed;
        match &mut viewed.place {
            Place::Metadata(_) => Err(PacketPiece::Failed),
            Place::Packets(reading) => reading.piece(&self.registry, feed, request, out).await,
        }
    }

    /// Where the packet is that was announced last in a stream: its file, and the offset of its beginning.
    pub(super) async fn packet_again(
        &mut self,
        stream: ViewedStreamId,
    ) -> Option<(TraceFile, u64)> {
        let viewed = self.streams.get_mut(&stream)?;
        let feed = &self.attached.get(&viewed.session)?.feed;
        match &mut viewed.place {
            Place::Metadata(_) => None,
            Place::Packets(reading) => reading.again(&self.registry, feed).await,
        }
    }

    fn metadata(&mut self, stream: ViewedStreamId, reply: &mut Vec<u8>) -> Tail {
        let Some(Viewed { session, handle, place: Place::Metadata(sent), .. }) =
            self.streams.get_mut(&stream)
        else {
            MetadataReply::Failed.encode(reply);
            return Tail::Nothing;
        };
        let found =
            self.attached.get(session).and_then(|attached| attached.feed.metadata_file(*handle));
        let more = found.filter(|(_, whole, edition)| sent.is_behind(*whole, *edition));
        let Some((file, whole, edition)) = more else {
            MetadataReply::NoneNew.encode(reply);
            return Tail::Nothing;
        };
        let (offset, len) = (sent.len, (whole - sent.len).min(MAX_METADATA_PIECE_LEN));
        *sent = Sent { edition, len: offset + len };
        MetadataReply::Bytes(len).encode(reply);
        Tail::Bytes { file, offset, len, packet: None }
    }

    fn detach(&mut self, session: ViewedSessionId) -> DetachReply {
        let Some(attached) = self.attached.remove(&session) else { return DetachReply::Unknown };
        attached.feed.viewer_left();
        self.streams.retain(|_, viewed| viewed.session != session);
        DetachReply::Detached
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        for attached in self.attached.values() {
            attached.feed.viewer_left();
        }
    }
}

/// Has what was recorded before the feed shown too.
async fn look_at_past(feed: &Arc<Feed>, registry: &Arc<Registry>) {
    // Who waits for another's look takes no place from those who wait for the disk.
    let Some(unseen) = feed.unseen_past().await else { return };
    let (feed, registry) = (Arc::clone(feed), Arc::clone(registry));
    if let Err(error) = disk::look(move || feed.look_at_past(unseen, &registry.env)).await {
        tracing::warn!(%error, "viewers are not shown what was recorded before");
    }
}

/// Where in each stream a time is.
async fn places(
    feed: &Arc<Feed>,
    registry: &Arc<Registry>,
    streams: &[Listed],
    cycles: u64,
) -> HashMap<StreamHandle, Cursor> {
    let (feed, registry) = (Arc::clone(feed), Arc::clone(registry));
    let data = streams.iter().filter(|stream| !stream.is_metadata);
    let streams: Vec<StreamHandle> = data.map(|stream| stream.handle).collect();
    let found = disk::look(move || {
        let place = |stream| Some((stream, feed.since(&registry.env.root, stream, cycles)?));
        streams.into_iter().filter_map(place).collect()
    });
    found.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "a viewer begins at the beginning");
        HashMap::new()
    })
}

/// A number of things of which there are at most [`MAX_LISTED`].
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::{registry, request};
    use wire::live::{RelativePath, RelaySessionId};

    #[tokio::test]
    async fn who_waits_for_a_look_at_the_past_keeps_nobody_from_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let past = vec![RelativePath::new("host/s/archives/0-0-0").unwrap()];
        let limits = &registry.env.limits;
        let feed = registry.feeds.open(RelaySessionId::new(1), &request(), past, limits);
        let unseen = feed.unseen_past().await.expect("what nobody has looked at");
        let waiting: Vec<_> = (0..64)
            .map(|_| {
                let (feed, registry) = (Arc::clone(&feed), Arc::clone(&registry));
                tokio::spawn(async move { look_at_past(&feed, &registry).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let read = tokio::time::timeout(Duration::from_secs(60), disk::wait(|| 7)).await;
        assert_eq!(read.expect("nobody is in the way").unwrap(), 7);
        drop(unseen);
        for viewer in waiting {
            viewer.await.unwrap();
        }
        assert!(feed.unseen_past().await.is_none());
    }
}
