//! A viewer as babeltrace2 is one: asks each stream it needs to know more of, and shows what no stream can precede.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use ctf::index::IndexEntry;
use wire::live::StreamHandle;

use super::super::cursor::ORIGIN;
use super::super::law;
use super::super::packet::Stored;
use super::super::{Cursor, Extent, Next, Packet, Page, TraceFile};
use super::{
    CLASS, METADATA, MOST_DELAY, Mutant, PERIOD, Random, Run, STEP, TRACE, World, disk, to_usize,
};

#[derive(Debug)]
pub(super) struct Viewer {
    streams: BTreeMap<StreamHandle, Reading>,
    metadata: u64,
    /// The latest time shown.
    shown: u64,
    /// It asks no more from this step on.
    dies: Option<u64>,
}

#[derive(Debug)]
struct Reading {
    cursor: Cursor,
    page: Option<Page>,
    /// What is being read, and what the disk gave.
    wanted: Option<(Stored, Option<Vec<IndexEntry>>)>,
    began: u64,
    given: u64,
    /// Number of the last packet.
    last: Option<u64>,
    /// Begin and end of a packet that is not shown yet.
    held: Option<(u64, u64)>,
    /// Nothing before this is still to come.
    bound: u64,
    class: Option<u64>,
    has_ended: bool,
}

impl Reading {
    fn new(cursor: Cursor) -> Self {
        Self {
            cursor,
            page: None,
            wanted: None,
            began: cursor.next,
            given: 0,
            last: None,
            held: None,
            bound: 0,
            class: None,
            has_ended: false,
        }
    }
}

impl Viewer {
    pub(super) fn new(world: &World, random: &mut Random) -> Self {
        let dies = (world.viewers_die && random.one_in(2)).then(|| random.below(world.steps));
        Self { streams: BTreeMap::new(), metadata: 0, shown: 0, dies }
    }

    /// It has all there was.
    pub(super) fn check_end(&self, number: usize, run: &Run) {
        for (handle, place) in &self.streams {
            let sink = &run.sinks[to_usize(handle.get())];
            let all = ORIGIN + sink.released.len() as u64 - place.began;
            let Cursor { missed, withheld, .. } = place.cursor;
            let whose = format!("viewer {number} stream {handle}");
            assert!(run.world.lies || withheld <= sink.slow, "{whose}: {withheld} withheld");
            if self.dies.is_some() {
                continue;
            }
            assert!(place.has_ended, "{whose} has not ended");
            assert!(run.feed.is_read(*handle, &place.cursor), "{whose} is not read");
            assert_eq!(place.given + missed + withheld, all, "{whose}: given, missed, withheld");
            assert!(run.world.lets_go() || missed == 0, "{whose}: {missed} missed");
        }
    }
}

impl Run {
    pub(super) fn view(&mut self) {
        for number in 0..self.viewers.len() {
            let viewer = &self.viewers[number];
            if viewer.dies.is_some_and(|dies| self.now >= dies) {
                continue;
            }
            if viewer.streams.is_empty() {
                if self.random.one_in(40) || self.now >= self.world.steps {
                    self.attach(number);
                }
            } else if !self.random.one_in(3) {
                self.look(number);
            }
        }
    }

    fn attach(&mut self, number: usize) {
        let is_from_beginning = !self.random.one_in(3);
        let (listed, _) = self.feed.streams(0, Extent::All, usize::MAX);
        for stream in listed.into_iter().filter(|stream| !stream.is_metadata) {
            let cursor = if is_from_beginning { stream.beginning } else { stream.end };
            self.viewers[number].streams.insert(stream.handle, Reading::new(cursor));
        }
    }

    /// Asks each stream that it knows nothing more of, and shows what it can.
    fn look(&mut self, number: usize) {
        let time = self.time();
        let handles: Vec<StreamHandle> = self.viewers[number].streams.keys().copied().collect();
        for handle in handles {
            let place = &self.viewers[number].streams[&handle];
            if place.held.is_none() && !place.has_ended {
                self.ask(number, handle, time);
            }
        }
        self.show(number);
    }

    fn ask(&mut self, number: usize, handle: StreamHandle, time: Instant) {
        let Some(answer) = self.next(number, handle, time) else { return };
        write!(self.log, "{} viewer {number} stream {handle}: ", self.now).unwrap();
        match answer {
            Next::Packet(found, _) => writeln!(self.log, "packet {}", found - ORIGIN),
            other => writeln!(self.log, "{other:?}"),
        }
        .unwrap();
        let place = self.viewers[number].streams.get_mut(&handle).unwrap();
        match answer {
            Next::Stored(_) => unreachable!("it was read"),
            Next::Packet(found, packet) => self.take(number, handle, found, packet),
            Next::Inactive { until, class } => {
                assert!(until >= place.bound, "inactive {until} after {}", place.bound);
                assert_eq!(*place.class.get_or_insert(class), CLASS, "class");
                place.bound = until;
            }
            Next::Ended => place.has_ended = true,
            Next::NotYet => {
                // What was sent a delay ago is here, and each period something is sent. Packets that are not
                // written say nothing, and one of which half is here makes a beacon wait or stale.
                let late = self.now.saturating_sub(MOST_DELAY + PERIOD + 1) * STEP;
                let sink = &self.sinks[to_usize(handle.get())];
                let known = place.bound.max(sink.reached);
                let world = &self.world;
                let is_sure = world.is_live
                    && world.loss == 0
                    && !world.lies
                    && !world.fills
                    && !sink.waits()
                    && self.now < world.steps;
                assert!(!is_sure || known >= late, "nothing is said after {known} at {late}");
            }
        }
    }

    /// What a viewer is told. Entries that it needs are read, now or later: `None` until they are.
    fn next(&mut self, number: usize, handle: StreamHandle, time: Instant) -> Option<Next> {
        loop {
            self.finish_reading(number, handle);
            let place = self.viewers[number].streams.get_mut(&handle).unwrap();
            let answer = self.feed.next(handle, &mut place.cursor, place.page.as_ref(), time);
            match answer.unwrap() {
                Next::Stored(stored) => {
                    place.wanted = Some((stored, None));
                    if self.random.one_in(3) {
                        return None;
                    }
                    self.read(number, handle);
                    if self.random.one_in(3) {
                        return None;
                    }
                }
                answer => return Some(answer),
            }
        }
    }

    /// The disk answers some of those who wait for it.
    pub(super) fn read_some(&mut self) {
        for number in 0..self.viewers.len() {
            let handles: Vec<StreamHandle> = self.viewers[number].streams.keys().copied().collect();
            for handle in handles {
                if self.random.one_in(2) {
                    self.read(number, handle);
                }
            }
        }
    }

    /// Reads the entries that a viewer wants, as they are on the disk now.
    fn read(&mut self, number: usize, handle: StreamHandle) {
        let most = 1 + self.random.below(4);
        let place = self.viewers[number].streams.get(&handle).unwrap();
        let Some((stored, None)) = &place.wanted else { return };
        let (chunk, file) = stored.file();
        let name = (handle, disk::number_of(chunk), self.name_of(file));
        let count = to_usize((stored.end() - stored.number).min(most));
        let read = self.disk.read(name, stored.record(), count);
        let place = self.viewers[number].streams.get_mut(&handle).unwrap();
        if let Some((_, answer)) = &mut place.wanted {
            *answer = Some(read.unwrap_or_default());
        }
    }

    /// Takes what was read, if it still holds.
    fn finish_reading(&mut self, number: usize, handle: StreamHandle) {
        self.read(number, handle);
        let place = self.viewers[number].streams.get_mut(&handle).unwrap();
        let Some((stored, Some(entries))) = place.wanted.take() else { return };
        if entries.is_empty() {
            return;
        }
        let file = TraceFile::written(&self.file);
        place.page = self.feed.accept(handle, &stored, entries, file);
    }

    /// A viewer is given a packet.
    fn take(&mut self, number: usize, handle: StreamHandle, found: u64, packet: Packet) {
        let sink = &self.sinks[to_usize(handle.get())];
        let place = self.viewers[number].streams.get_mut(&handle).unwrap();
        let is_from_disk = place.page.as_ref().is_some_and(|page| page.is_of(&packet));
        place.cursor.next = match self.mutant {
            Some(Mutant::TwiceAtTheSeam) if is_from_disk => found,
            Some(Mutant::NoneAtTheSeam) if is_from_disk => found + 2,
            _ => found + 1,
        };
        let net = packet.entry.position.unwrap().packet_seq_num;
        let last = place.last.replace(net).map(wire::live::NetSeqNum::new);
        assert!(law::in_order(last, wire::live::NetSeqNum::new(net)), "twice or out of order");
        assert!(packet.entry.timestamp_begin >= place.cursor.told, "time goes back");
        let written = sink.released[to_usize(found - ORIGIN)];
        assert_eq!(packet.entry, written.entry, "another packet, or elsewhere");
        assert_eq!(disk::number_of(packet.chunk), written.chunk, "another chunk");
        assert_eq!(packet.file, written.file, "another file");
        let name = (handle, written.chunk, self.name_of(written.file));
        assert!(self.disk.has(name, &packet.entry), "it is not written");
        let viewer = &mut self.viewers[number];
        if self.feed.metadata_of(TRACE).unwrap().1 > viewer.metadata {
            viewer.metadata = self.feed.metadata_file(METADATA).unwrap().1;
        }
        // In a live session metadata go before the entry, in another they have the grace.
        let needed = packet.entry.events_discarded * 2;
        assert!(viewer.metadata >= needed, "metadata {} of {needed}", viewer.metadata);
        let place = viewer.streams.get_mut(&handle).unwrap();
        place.given += 1;
        place.held = Some((packet.entry.timestamp_begin, packet.entry.timestamp_end));
        assert_eq!(*place.class.get_or_insert(packet.entry.stream_class_id), CLASS, "class");
    }

    /// Shows packets that no stream can precede, whole as they are.
    fn show(&mut self, number: usize) {
        let keeps = !self.world.lies;
        let viewer = &mut self.viewers[number];
        loop {
            let bound = viewer
                .streams
                .values()
                .filter(|place| !place.has_ended)
                .map(|place| place.held.map_or(place.bound, |(begin, _)| begin))
                .min();
            let first = viewer
                .streams
                .values_mut()
                .filter(|place| place.held.is_some_and(|(begin, _)| Some(begin) <= bound))
                .min_by_key(|place| place.held);
            let Some(place) = first else { return };
            let (begin, end) = place.held.take().unwrap();
            place.bound = place.bound.max(end);
            // Its first event is at its begin; later ones are shown as the other streams allow.
            assert!(!keeps || begin >= viewer.shown, "{begin} after {} was shown", viewer.shown);
            viewer.shown = viewer.shown.max(begin);
        }
    }
}
