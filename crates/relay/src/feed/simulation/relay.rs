//! The relay's end: halves of packets meet, files are written, chunks come and go, and the feed is told.

use std::fmt::Write;

use ctf::index::IndexEntry;
use wire::live::{NetSeqNum, PacketIndex, StreamHandle};

use super::{METADATA, Message, Mutant, Run, disk};
use crate::index;
use crate::merge::{Merge, Place, Step};

/// The most halves of a stream that wait.
const MOST_WAITING: usize = 4096;
/// Bytes between two packets.
const LEN: u64 = 10;

/// The relay's end of a stream.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) handle: StreamHandle,
    merge: Merge,
    /// The place of the next packet's bytes.
    place: Place,
    /// Entries as released, in order, and where they are now; what viewers must get.
    pub(super) released: Vec<Written>,
    /// End of the last one.
    pub(super) reached: u64,
    /// Of a session without live timer: packets that took longer to be sent than any before, so that silence may have been
    /// taken for nothing.
    pub(super) slow: u64,
    /// A packet that waits for the next one to go before it.
    swapped: Option<(Place, PacketIndex)>,
    is_closing: bool,
}

/// An entry that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) chunk: u64,
    pub(super) file: u64,
    pub(super) entry: IndexEntry,
}

impl Sink {
    pub(super) fn new(handle: StreamHandle) -> Self {
        Self {
            handle,
            merge: Merge::default(),
            place: Place { file: 0, offset: 0 },
            released: Vec::new(),
            reached: 0,
            slow: 0,
            swapped: None,
            is_closing: false,
        }
    }
}

impl Sink {
    /// Whether half of a packet waits for the other.
    pub(super) fn waits(&self) -> bool {
        self.merge.lowest_waiting().is_some()
    }
}

impl Run {
    /// What is due arrives at the relay.
    pub(super) fn arrive(&mut self) {
        let time = self.time();
        while let Some(message) = self.data.arrived(self.now) {
            let Message::Packet(number, net) = message else { panic!("{message:?}") };
            self.packet(number, NetSeqNum::new(net));
        }
        while let Some(message) = self.control.arrived(self.now) {
            match message {
                Message::Entry(number, entry) => {
                    let merge = &mut self.sinks[number].merge;
                    let is_doubled =
                        merge.last_index().is_some_and(|last| entry.net_seq_num <= last);
                    let taken = merge.index(entry, MOST_WAITING, time);
                    assert_eq!(taken.is_ok(), !is_doubled, "an entry is taken once");
                    self.settle(number);
                }
                Message::Beacon(number, beacon) => {
                    self.feed.beacon(beacon.handle, &beacon);
                    self.settle(number);
                }
                Message::Metadata => self.feed.metadata(METADATA, b"a;", 0),
                Message::Closed(number) => {
                    self.sinks[number].is_closing = true;
                    self.settle(number);
                }
                Message::Packet(..) => panic!("{message:?}"),
            }
        }
    }

    fn packet(&mut self, number: usize, net: NetSeqNum) {
        let time = self.time();
        if self.sinks[number].merge.packet_begins(net, MOST_WAITING).is_err() {
            assert!(self.world.doubled > 0, "a packet is refused");
            return;
        }
        self.next_file(number);
        let sink = &mut self.sinks[number];
        sink.merge.packet_done(net, sink.place, true, time);
        sink.place.offset += LEN;
        self.settle(number);
    }

    /// Begins the next trace file when this one is full.
    fn next_file(&mut self, number: usize) {
        let Some((len, count)) = self.world.ring else { return };
        let sink = &mut self.sinks[number];
        if sink.place.offset < len * LEN {
            return;
        }
        let file = sink.place.file + 1;
        sink.place = Place { file, offset: 0 };
        let handle = sink.handle;
        if let Some(last) = file.checked_sub(count)
            && !self.is(Mutant::SecretOverwriting)
        {
            self.feed.overwritten(handle, disk::chunk_id(self.chunk), last);
        }
        self.read_some();
        self.disk.replace((handle, self.chunk, self.name_of(file)));
    }

    /// The number that a trace file has in its name.
    pub(super) fn name_of(&self, file: u64) -> u64 {
        self.world.ring.map_or(file, |(_, count)| file % count)
    }

    fn settle(&mut self, number: usize) {
        loop {
            let step = self.sinks[number].merge.step();
            if step == Step::Wait {
                break;
            }
            self.carry_out(number, step);
        }
        let Sink { handle, merge, .. } = &self.sinks[number];
        let waiting = merge.lowest_waiting().filter(|_| !self.is(Mutant::HastyBeacons));
        self.feed.settled(*handle, waiting, merge.last_index());
        let is_complete = merge.lowest_waiting().is_none() || self.is(Mutant::HastyEnd);
        if self.sinks[number].is_closing && is_complete {
            self.feed.close_stream(*handle);
        }
    }

    fn carry_out(&mut self, number: usize, step: Step) {
        let Step::Commit(place, entry) = step else { return };
        if self.is(Mutant::OutOfOrder) && self.sinks[number].swapped.is_none() {
            self.sinks[number].swapped = Some((place, entry));
            return;
        }
        self.release(number, place, entry);
        if let Some((place, entry)) = self.sinks[number].swapped.take() {
            self.release(number, place, entry);
        }
    }

    fn release(&mut self, number: usize, place: Place, entry: PacketIndex) {
        let (time, chunk) = (self.time(), self.chunk);
        // Its file may have been overwritten since the packet came.
        let kept = self.world.ring.map_or(u64::MAX, |(_, count)| count);
        if self.sinks[number].place.file - place.file >= kept {
            self.feed.pass_at(self.sinks[number].handle, &entry, time);
            self.sinks[number].reached = entry.timestamp_end;
            return;
        }
        if self.world.fills && (self.now / 50) % 3 == 1 {
            writeln!(self.log, "{} no room for {number}:{}", self.now, entry.net_seq_num).unwrap();
            return;
        }
        writeln!(self.log, "{} released {number}:{}", self.now, entry.net_seq_num).unwrap();
        let name = self.name_of(place.file);
        let sink = &mut self.sinks[number];
        let span = entry.timestamp_end - entry.timestamp_begin;
        if !self.world.is_live && span > self.span {
            (self.span, sink.slow) = (span, sink.slow + 1);
        }
        let written = index::entry(place.offset, &entry);
        sink.released.push(Written { chunk, file: place.file, entry: written });
        sink.reached = entry.timestamp_end;
        if self.mutant != Some(Mutant::ShownUnwritten) {
            self.disk.append((sink.handle, chunk, name), written);
        }
        let (at, file) = ((disk::chunk_id(chunk), place), Some(&self.file));
        self.feed.release_at(sink.handle, at, entry, file, &self.counters, time);
    }

    /// What still waits for its other half does not get it, and nobody records any more.
    pub(super) fn end_of_session(&mut self) {
        for number in 0..self.sinks.len() {
            for step in self.sinks[number].merge.drain() {
                self.carry_out(number, step);
            }
            self.settle(number);
            self.feed.close_stream(self.sinks[number].handle);
        }
        self.feed.close_stream(METADATA);
        self.catalogue.close(&self.feed);
    }

    /// Chunks are rotated, cleared and deleted.
    pub(super) fn change_chunks(&mut self) {
        let clears = self.world.clears && self.random.one_in(150);
        if clears || (self.world.rotates && self.random.one_in(60)) {
            self.rotate(clears);
        }
        if self.world.expires
            && self.random.one_in(100)
            && let Some(oldest) = self.archived.pop_front()
        {
            writeln!(self.log, "{} deleted {oldest}", self.now).unwrap();
            self.feed.folder_is_gone(&disk::folder(oldest));
            self.disk.delete(oldest);
        }
    }

    /// Another chunk begins; packets that ran ahead go there.
    fn rotate(&mut self, clears: bool) {
        // Packets that wait for their entries in a file that is full stay where they are.
        let is_settled = |sink: &mut Sink| {
            let file = sink.place.file;
            sink.merge.waiting_places().all(|place| place.file == file)
        };
        if !self.sinks.iter_mut().all(is_settled) {
            return;
        }
        let (old, new) = (self.chunk, self.chunk + 1);
        writeln!(self.log, "{} chunk {new}, {old} cleared: {clears}", self.now).unwrap();
        self.feed.chunk_is_at(disk::chunk_id(new), &disk::folder(new));
        for number in 0..self.sinks.len() {
            self.follow_rotation(number, old, new);
        }
        self.chunk = new;
        if clears {
            self.feed.chunk_is_gone(disk::chunk_id(old));
            self.disk.delete(old);
        } else {
            self.archived.push_back(old);
        }
    }

    fn follow_rotation(&mut self, number: usize, old: u64, new: u64) {
        let (handle, file) = (self.sinks[number].handle, self.sinks[number].place.file);
        let name = (handle, old, self.name_of(file));
        let most = self.disk.len(name).min(3) as u64;
        let moved = super::to_usize(self.random.below(most + 1));
        let copied = self.disk.last(name, moved);
        let sink = &mut self.sinks[number];
        let waiting = sink.merge.waiting_places().map(|place| place.offset).min();
        let first = copied.first().map(|entry| entry.offset_bytes).or(waiting);
        let first = first.unwrap_or(sink.place.offset);
        for place in sink.merge.waiting_places() {
            *place = Place { file: 0, offset: place.offset - first };
        }
        sink.place = Place { file: 0, offset: sink.place.offset - first };
        let entries: Vec<IndexEntry> = copied
            .into_iter()
            .map(|entry| IndexEntry { offset_bytes: entry.offset_bytes - first, ..entry })
            .collect();
        let begin = sink.released.len() - entries.len();
        for (released, entry) in sink.released[begin..].iter_mut().zip(&entries) {
            *released = Written { chunk: new, file: 0, entry: *entry };
        }
        for entry in entries {
            self.disk.append((handle, new, 0), entry);
        }
        // Somebody may look before the feed knows, and before the old ones are cut.
        self.read_some();
        if !self.is(Mutant::SecretMoves) {
            let from = (disk::chunk_id(old), file, first);
            self.feed.relocate(handle, from, &[moved as u64], disk::chunk_id(new));
        }
        self.read_some();
        self.disk.cut(name, moved);
    }
}
