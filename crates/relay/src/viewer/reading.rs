//! One data stream as one viewer reads it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::live::StreamHandle;
use wire::live::viewer::{GetPacket, NextIndex, PacketEntry, PacketPiece};

use super::PIECE;
use super::disk;
use super::session::Tail;
use crate::error::Error;
use crate::feed::{Cursor, Feed, Next, Packet, Page, TraceFile};
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
    /// Since when the entries that come next cannot be read.
    stuck: Option<Instant>,
    current: Option<Current>,
}

/// The packet that was announced last.
struct Current {
    number: u64,
    /// As it was announced; the file is kept open so that the packet can be read whatever becomes of it.
    packet: Packet,
    file: TraceFile,
}

impl Reading {
    pub(super) const fn new(handle: StreamHandle, cursor: Cursor) -> Self {
        Self { handle, cursor, page: None, stuck: None, current: None }
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
                    self.cursor.next = number + 1;
                    if let Some(packet) = self.open(registry, feed, number, packet).await {
                        return NextIndex::Packet(entry(&packet));
                    }
                    self.cursor.missed += 1;
                }
                Some(Next::Stored(stored)) => {
                    tries += 1;
                    let (reader, root) = (Arc::clone(feed), Arc::clone(registry));
                    let handle = self.handle;
                    let read =
                        disk::wait(move || reader.read_page(&root.env.root, handle, &stored, most));
                    match read.await.map_err(Error::from).flatten() {
                        Ok(Some(page)) => (self.page, self.stuck) = (Some(page), None),
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

    /// Whether entries could not be read for too long.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let since = *self.stuck.get_or_insert(now);
        let is_stuck = now.saturating_duration_since(since) >= PATIENCE;
        if is_stuck {
            self.stuck = None;
        }
        is_stuck
    }

    fn complain(&self, error: &Error) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(stream = %self.handle, error, "packets cannot be shown");
    }

    /// Opens the file of a packet that is to be announced; `None` when it cannot be had.
    async fn open(
        &mut self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        number: u64,
        packet: Packet,
    ) -> Option<Packet> {
        let read = self.page.as_ref().filter(|page| page.is_of(&packet));
        let file = read.map(|page| page.file.clone());
        let (file, packet) = match file.or_else(|| feed.open_file(self.handle, &packet)) {
            Some(file) => (file, packet),
            None => self.look(registry, feed, number).await?,
        };
        self.current = Some(Current { number, packet, file });
        Some(packet)
    }

    /// Finds a packet, and its file, where it is now.
    async fn look(
        &self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        number: u64,
    ) -> Option<(TraceFile, Packet)> {
        let (feed, root, handle) = (Arc::clone(feed), Arc::clone(registry), self.handle);
        let opened = disk::wait(move || feed.open(&root.env.root, handle, number)).await;
        opened.map_err(Error::from).flatten().unwrap_or_else(|error| {
            self.complain(&error);
            None
        })
    }

    /// The first bytes of a piece of the packet that was announced last, appended to `out`, and what follows them.
    pub(super) async fn piece(
        &self,
        registry: &Arc<Registry>,
        feed: &Arc<Feed>,
        GetPacket { offset_bytes, len_bytes, .. }: GetPacket,
        out: &mut Vec<u8>,
    ) -> std::result::Result<Tail, PacketPiece> {
        let Current { number, packet, file } = self.current.as_ref().ok_or(PacketPiece::Failed)?;
        let len = u64::from(len_bytes);
        let skipped = offset_bytes.checked_sub(packet.entry.offset_bytes).filter(|skipped| {
            len > 0 && skipped.checked_add(len).is_some_and(|end| end <= packet.len())
        });
        let skipped = skipped.ok_or(PacketPiece::Failed)?;
        let first = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
        let filled = out.len();
        // A packet may be moved to another chunk between the look and the reading.
        for _ in 0..TRIES {
            let (file, packet) = match feed.file_of(self.handle, *number) {
                Some(place) if place != (packet.chunk, packet.file) => {
                    let Some(found) = self.look(registry, feed, *number).await else { continue };
                    found
                }
                // Where it was announced, or gone for others.
                _ => (file.clone(), *packet),
            };
            let offset = packet.entry.offset_bytes + skipped;
            match disk::append(&file, offset, first, out).await {
                Ok(()) => {
                    let first = first as u64;
                    return Ok(Tail::Bytes { file, offset: offset + first, len: len - first });
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    out.truncate(filled);
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
