//! One data stream as one viewer reads it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::live::StreamHandle;
use wire::live::viewer::{GetPacket, NextIndex, PacketEntry, PacketPiece};

use super::PIECE;
use super::disk;
use super::session::Tail;
use crate::error::{Error, Result};
use crate::feed::{ChunkKey, Cursor, Feed, Next, Packet, Page, TraceFile};
use crate::files::Kept;
use crate::registry::Registry;

/// How long entries that cannot be read are tried again before their packets are counted as missed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often entries that moved meanwhile are looked for in one go.
const TRIES: usize = 4;

/// A viewer's place in a data stream.
pub(super) struct Reading {
    handle: StreamHandle,
    cursor: Cursor,
    /// Entries read ahead, of a viewer that is behind what is in memory.
    page: Option<Page>,
    /// The trace file of `page`.
    page_file: Option<Kept<TraceFile>>,
    /// Since when what comes next cannot be read.
    stuck: Option<Instant>,
    /// The trace file that was waited for in vain: its packets are not waited for one by one.
    given_up: Option<(ChunkKey, u64)>,
    current: Option<Current>,
}

/// The packet that was announced last.
struct Current {
    number: u64,
    /// As it was announced.
    packet: Packet,
    /// Where it was found last.
    found: Packet,
    /// The file that it was found in. As long as it is open the packet can be read whatever becomes of it.
    file: Kept<TraceFile>,
}

impl Reading {
    pub(super) const fn new(handle: StreamHandle, cursor: Cursor) -> Self {
        Self {
            handle,
            cursor,
            page: None,
            page_file: None,
            stuck: None,
            given_up: None,
            current: None,
        }
    }

    /// Whether the viewer has all there will be.
    pub(super) fn is_over(&self, feed: &Feed) -> bool {
        feed.is_read(self.handle, &self.cursor)
    }

    /// The packet that the viewer reads, or reads next.
    pub(super) fn number(&self) -> u64 {
        self.current.as_ref().map_or(self.cursor.next, |current| current.number)
    }

    /// What comes next. At most `most` entries are read ahead.
    pub(super) async fn next(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        most: usize,
        now: Instant,
    ) -> NextIndex {
        self.current = None;
        let before = self.cursor;
        let answer = self.find(registry, feed, most, now).await;
        let missed = self.cursor.missed - before.missed;
        if missed > 0 {
            tracing::info!(stream = %self.handle, packets = missed, "a viewer was overtaken");
        }
        let counters = &registry.env.counters;
        counters.packets_missed_by_viewers.add(missed);
        counters.packets_withheld.add(self.cursor.withheld - before.withheld);
        answer
    }

    async fn find(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        most: usize,
        now: Instant,
    ) -> NextIndex {
        let mut tries = 0;
        loop {
            let page = self.page.as_ref();
            match feed.next(self.handle, &mut self.cursor, page, now) {
                None | Some(Next::Ended) => return NextIndex::HangUp,
                Some(Next::NotYet) => return NextIndex::NotYet,
                Some(Next::Inactive { until, class }) => {
                    self.page = None;
                    return NextIndex::Inactive { until, stream_class_id: class };
                }
                Some(Next::Packet(number, packet)) => {
                    match self.open(registry, feed, number, packet).await {
                        Ok(Some(packet)) => {
                            (self.cursor.next, self.stuck) = (number + 1, None);
                            return NextIndex::Packet(entry(&packet));
                        }
                        Err(error) if self.is_given_up(&packet, now) => self.complain(&error),
                        // Descriptors may be short, or it is on its way from one chunk to the next.
                        Err(_may_pass) => return NextIndex::NotYet,
                        Ok(None) => {}
                    }
                    self.cursor.next = number + 1;
                    self.cursor.missed += 1;
                }
                Some(Next::Stored(stored)) => {
                    tries += 1;
                    let (reader, root) = (Arc::clone(feed), Arc::clone(registry));
                    let handle = self.handle;
                    let read =
                        disk::wait(move || reader.read_page(&root.env.root, handle, &stored, most));
                    match read.await.map_err(Error::from).flatten() {
                        Ok(Some(mut page)) => {
                            self.page_file = page.file.take().map(|file| keep(registry, file));
                            (self.page, self.stuck) = (Some(page), None);
                        }
                        // It is elsewhere by now.
                        Ok(None) if tries < TRIES => {}
                        Ok(None) => return NextIndex::NotYet,
                        Err(error) if self.is_stuck(now) => {
                            self.complain(&error);
                            self.cursor.missed += stored.end() - self.cursor.next;
                            self.cursor.next = stored.end();
                        }
                        // It may be on its way from one chunk to the next.
                        Err(_may_pass) => return NextIndex::NotYet,
                    }
                }
            }
        }
    }

    /// Whether what comes next could not be read for too long.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let since = *self.stuck.get_or_insert(now);
        let is_stuck = now.saturating_duration_since(since) >= PATIENCE;
        if is_stuck {
            self.stuck = None;
        }
        is_stuck
    }

    /// Whether a packet that cannot be opened has been waited for long enough.
    fn is_given_up(&mut self, packet: &Packet, now: Instant) -> bool {
        let place = Some((packet.chunk, packet.file));
        if self.given_up != place && self.is_stuck(now) {
            self.given_up = place;
        }
        self.given_up == place
    }

    fn complain(&self, error: &Error) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(stream = %self.handle, error, "packets cannot be shown");
    }

    /// Opens the file of a packet that is to be announced; `None` when it is gone.
    async fn open(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        number: u64,
        packet: Packet,
    ) -> Result<Option<Packet>> {
        let read = self.page.as_ref().filter(|page| page.is_of(&packet));
        let file = read.and_then(|_| Some(self.page_file.as_ref()?.open()?.as_ref().clone()));
        let (file, packet) = match file.or_else(|| feed.open_file(self.handle, &packet)) {
            Some(file) => (file, packet),
            None => match self.look(registry, feed, number).await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        if file.content_len()? < packet.entry.offset_bytes.saturating_add(packet.len()) {
            if feed.file_of(self.handle, number) != Some((packet.chunk, packet.file)) {
                return Err(Error::Meaningless { what: "a packet that is being moved" });
            }
            registry.env.counters.packets_short.add(1);
            tracing::warn!(stream = %self.handle, "an index entry promises more than its packet has");
            return Ok(None);
        }
        let file = keep(registry, file);
        self.current = Some(Current { number, packet, found: packet, file });
        Ok(Some(packet))
    }

    /// Finds a packet, and its file, where it is now.
    async fn look(
        &self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        number: u64,
    ) -> Result<Option<(TraceFile, Packet)>> {
        let (feed, root, handle) = (Arc::clone(feed), Arc::clone(registry), self.handle);
        let opened = disk::wait(move || feed.open(&root.env.root, handle, number)).await;
        opened.map_err(Error::from).flatten()
    }

    /// The file of the packet that was announced last, and the packet as it is in it.
    async fn find_again(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
    ) -> Result<Option<(TraceFile, Packet)>> {
        let Some(current) = &self.current else { return Ok(None) };
        let Current { number, found, file, .. } = current;
        let place = feed.file_of(self.handle, *number);
        // Where it was, or gone for others.
        let is_there = place.is_none_or(|place| place == (found.chunk, found.file));
        if let Some(file) = file.open().filter(|_| is_there) {
            return Ok(Some((file.as_ref().clone(), *found)));
        }
        let Some((file, found)) = self.look(registry, feed, *number).await? else {
            // Gone meanwhile.
            return Ok(file.open().map(|file| (file.as_ref().clone(), *found)));
        };
        let current = Current { file: keep(registry, file.clone()), found, ..*current };
        self.current = Some(current);
        Ok(Some((file, found)))
    }

    /// Where the packet that was announced last is, when it is no longer where it was found.
    pub(super) async fn again(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
    ) -> Option<(TraceFile, u64)> {
        let found = self.find_again(registry, feed).await.unwrap_or_else(|error| {
            self.complain(&error);
            None
        });
        found.map(|(file, packet)| (file, packet.entry.offset_bytes))
    }

    /// The first bytes of a piece of the packet that was announced last, appended to `out`, and what follows them.
    pub(super) async fn piece(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        GetPacket { stream, offset_bytes, len_bytes }: GetPacket,
        out: &mut Vec<u8>,
    ) -> std::result::Result<Tail, PacketPiece> {
        let Current { packet, .. } = self.current.as_ref().ok_or(PacketPiece::Failed)?;
        let len = u64::from(len_bytes);
        let skipped = offset_bytes.checked_sub(packet.entry.offset_bytes).filter(|skipped| {
            len > 0 && skipped.checked_add(len).is_some_and(|end| end <= packet.len())
        });
        let skipped = skipped.ok_or(PacketPiece::Failed)?;
        let first = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
        let filled = out.len();
        let mut ended = None;
        // A packet may be moved to another chunk between the look and the reading.
        for _ in 0..TRIES {
            let (file, packet) = match self.find_again(registry, feed).await {
                Ok(Some(found)) => found,
                Ok(None) => return Err(PacketPiece::Failed),
                Err(error) => {
                    self.complain(&error);
                    continue;
                }
            };
            let offset = packet.entry.offset_bytes + skipped;
            match disk::append(&file, offset, first, out).await {
                Ok(()) => {
                    let first = first as u64;
                    let begin = Some((stream, packet.entry.offset_bytes));
                    let (offset, len) = (offset + first, len - first);
                    return Ok(Tail::Bytes { file, offset, len, packet: begin });
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    out.truncate(filled);
                    // Where it still is it will not grow.
                    if ended.replace((packet.chunk, packet.file))
                        == Some((packet.chunk, packet.file))
                    {
                        self.complain(&error.into());
                        return Err(PacketPiece::Failed);
                    }
                }
                Err(error) => {
                    self.complain(&error.into());
                    out.truncate(filled);
                    return Err(PacketPiece::Failed);
                }
            }
        }
        Err(PacketPiece::NotYet)
    }
}

/// Keeps a file that is likely to be read again.
fn keep(registry: &Registry, file: TraceFile) -> Kept<TraceFile> {
    registry.env.viewed.keep(Arc::new(file))
}

const fn entry(packet: &Packet) -> PacketEntry {
    let entry = &packet.entry;
    PacketEntry {
        offset_bytes: entry.offset_bytes,
        packet_size_bits: entry.total_length_bits,
        content_size_bits: entry.content_length_bits,
        timestamp_begin: entry.timestamp_begin,
        timestamp_end: entry.timestamp_end,
        events_discarded: entry.events_discarded,
        stream_class_id: entry.stream_class_id,
    }
}
