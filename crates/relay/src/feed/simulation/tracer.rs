//! The tracer's end: events happen, timers fire, packets and what is said of them are sent.

use wire::live::{FullIndexFields, NetSeqNum, PacketIndex, PacketSeqNum};

use super::{CLASS, METADATA_DELAY, Message, Mutant, PERIOD, Random, Run, STEP};

/// The tracer's end of a stream.
#[derive(Debug)]
pub(super) struct Source {
    next: u64,
    /// Begin of the packet being filled.
    open: Option<u64>,
    /// The last beacon's time.
    promised: u64,
    is_silent: bool,
}

impl Source {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { next: 0, open: None, promised: 0, is_silent: random.one_in(4) }
    }
}

impl Run {
    /// There is something new to describe; a live session says so before the packets that have it.
    pub(super) fn grow_metadata(&mut self) {
        self.documents += 1;
        let delay = match self.world.is_live {
            _ if self.is(Mutant::LateMetadata) => 2 * PERIOD,
            true => 0,
            false => self.random.below(METADATA_DELAY),
        };
        self.owed.push_back(self.now + delay);
        self.send_metadata();
    }

    pub(super) fn send_metadata(&mut self) {
        while self.owed.pop_front_if(|due| *due <= self.now).is_some() {
            self.control.send(self.now, &mut self.random, Message::Metadata);
        }
    }

    /// Events happen and timers fire.
    pub(super) fn trace(&mut self) {
        let time = self.now * STEP;
        self.send_metadata();
        if self.random.one_in(100) {
            self.grow_metadata();
        }
        for number in 0..self.sources.len() {
            if self.random.one_in(200) {
                self.sources[number].is_silent ^= true;
            }
            let source = &mut self.sources[number];
            let rate = if source.is_silent { 300 } else { 8 };
            if self.random.one_in(rate) {
                // A lie is an event from before the last beacon.
                let is_lie = self.world.lies && self.random.one_in(10);
                let begin = if is_lie { source.promised.saturating_sub(STEP) } else { time };
                source.open.get_or_insert(begin);
                if self.random.one_in(5) {
                    self.flush(number, time);
                }
            }
            let offset = number as u64 * 3;
            if (self.now + offset).is_multiple_of(PERIOD) && !self.flush(number, time) {
                self.beacon(number, time);
            }
        }
    }

    /// The session is stopped: what is being filled is sent.
    pub(super) fn end_of_tracing(&mut self) {
        for number in 0..self.sources.len() {
            self.flush(number, self.now * STEP);
            self.control.send(self.now, &mut self.random, Message::Closed(number));
        }
    }

    /// Sends the packet that is being filled, if there is one.
    fn flush(&mut self, number: usize, time: u64) -> bool {
        let Some(begin) = self.sources[number].open.take() else { return false };
        let net = self.sources[number].next;
        self.sources[number].next += 1;
        let is_other = self.is(Mutant::OtherClass) && net > 5;
        let entry = PacketIndex {
            handle: self.sinks[number].handle,
            net_seq_num: NetSeqNum::new(net),
            packet_size_bits: 8,
            content_size_bits: 8,
            timestamp_begin: begin,
            timestamp_end: time.max(begin),
            // As many documents describe it.
            events_discarded: self.documents,
            stream_class_id: if is_other { CLASS + 1 } else { CLASS },
            full: Some(FullIndexFields {
                stream_instance_id: 0,
                packet_seq_num: PacketSeqNum::new(net),
            }),
        };
        let (loss, doubled) = (self.world.loss, self.world.doubled);
        if !self.random.once_in(loss) {
            self.data.send(self.now, &mut self.random, Message::Packet(number, net));
            if self.random.once_in(doubled) {
                self.data.send(self.now, &mut self.random, Message::Packet(number, net));
            }
        }
        if !self.random.once_in(loss) {
            self.control.send(self.now, &mut self.random, Message::Entry(number, entry));
            if self.random.once_in(doubled) {
                self.control.send(self.now, &mut self.random, Message::Entry(number, entry));
            }
        }
        true
    }

    fn beacon(&mut self, number: usize, time: u64) {
        if !self.world.is_live {
            return;
        }
        self.sources[number].promised = time;
        let beacon = PacketIndex {
            handle: self.sinks[number].handle,
            net_seq_num: NetSeqNum::new(self.sources[number].next.wrapping_sub(1)),
            packet_size_bits: 0,
            content_size_bits: 0,
            timestamp_begin: 0,
            timestamp_end: time,
            events_discarded: 0,
            stream_class_id: CLASS,
            full: None,
        };
        let doubled = self.world.doubled;
        let count = 1 + u32::from(self.random.once_in(doubled));
        for _ in 0..count {
            if !self.is(Mutant::NoBeacons) {
                self.control.send(self.now, &mut self.random, Message::Beacon(number, beacon));
            }
        }
    }
}
