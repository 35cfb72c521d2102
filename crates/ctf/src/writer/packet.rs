//! Packets: opened, filled record by record, sealed once.

use super::bits::{Bits, Mark};
use super::class::EventHeader;
use super::error::WriteError;
use super::program::Program;
use super::record::{Record, Scratch};
use super::schema::{Schema, StreamPlan};
use crate::class::ByteOrder;
use crate::clock;
use crate::index::{IndexEntry, StreamPosition};
use crate::packet::PACKET_MAGIC;

/// What is known when a packet is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketStart {
    /// The id of its data stream class.
    pub stream_class: u64,
    /// The stream within its class; written when the trace class says so.
    pub instance: u64,
    /// Its number in the stream; written when the stream class says so.
    pub sequence_number: u64,
    /// First time it covers, in clock cycles; written when there is a clock.
    pub begin: u64,
    /// The most bytes it may take.
    pub max_bytes: usize,
}

/// Whether a record is in the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Appended {
    /// It is.
    Yes,
    /// The packet has no room for it and is unchanged: seal it and append to the next one.
    Full,
}

/// A finished packet and what an index says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPacket {
    /// The packet: as long as its total length.
    pub bytes: Vec<u8>,
    /// The id of its data stream class.
    pub stream_class: u64,
    /// The stream's instance id.
    pub instance: u64,
    /// First time it covers, in clock cycles.
    pub begin: u64,
    /// Last time it covers, in clock cycles.
    pub end: u64,
    /// Content length in bits; the total length is the next multiple of 8.
    pub content_bits: u64,
    /// Its number in the stream.
    pub sequence_number: u64,
    /// Event records discarded in the stream up to here.
    pub discarded: u64,
    /// Event records in it.
    pub records: u64,
}

impl SealedPacket {
    /// Its entry in an index of the stream file in which it begins at `offset_bytes`.
    #[must_use]
    pub fn index_entry(&self, offset_bytes: u64) -> IndexEntry {
        IndexEntry {
            offset_bytes,
            total_length_bits: self.content_bits.next_multiple_of(8),
            content_length_bits: self.content_bits,
            timestamp_begin: self.begin,
            timestamp_end: self.end,
            events_discarded: self.discarded,
            stream_class_id: self.stream_class,
            position: Some(StreamPosition {
                stream_instance_id: self.instance,
                packet_seq_num: self.sequence_number,
            }),
        }
    }
}

/// Where the numbers lie that are known only when a packet is sealed.
#[derive(Debug, Clone, Copy, Default)]
struct Late {
    bounds: Option<u64>,
    sizes: u64,
    sequence_number: Option<u64>,
    discarded: Option<(u64, u8)>,
}

/// A packet that is being filled: [`Self::seal`] ends it, [`Self::roll`] goes on to the stream's next one.
///
/// Its bytes, up to [`PacketStart::max_bytes`], are all that it keeps.
#[derive(Debug)]
pub struct OpenPacket<'s> {
    plan: &'s StreamPlan,
    order: ByteOrder,
    start: PacketStart,
    late: Late,
    /// Header and context, as the next packet will have them.
    prefix: Vec<u8>,
    /// After header and context.
    prefix_end: Mark,
    bits: Bits,
    scratch: Scratch,
    /// The clock as readers know it.
    clock: u64,
    records: u64,
}

impl Schema {
    /// Opens a packet. `context` gives the values of the packet context's further members.
    ///
    /// # Errors
    /// [`WriteError::NoStreamClass`], or what is wrong with the values, or that they do not fit.
    pub fn open(
        &self,
        start: PacketStart,
        context: impl FnOnce(&mut Record<'_>) -> Result<(), WriteError>,
    ) -> Result<OpenPacket<'_>, WriteError> {
        let plan = self.streams.iter().find(|plan| plan.id == start.stream_class);
        let plan = plan.ok_or(WriteError::NoStreamClass(start.stream_class))?;
        let order = self.class().byte_order;
        let mut scratch = Scratch { stack: Vec::new(), registers: vec![0; plan.registers] };
        let mut bits = Bits::new(start.max_bytes.min(FIRST_CAPACITY), start.max_bytes);
        self.write_header(&mut bits, &start);
        let late = write_context(&mut bits, plan);
        if let Some(mut record) = Record::new(&[&plan.packet], &mut scratch, &mut bits) {
            context(&mut record)?;
            record.finish()?;
        }
        if bits.is_over() {
            return Err(too_large(bits.pos(), start.max_bytes));
        }
        let (prefix, prefix_end) = (bits.as_bytes().to_vec(), bits.mark());
        let clock = start.begin;
        Ok(OpenPacket {
            plan,
            order,
            start,
            late,
            prefix,
            prefix_end,
            bits,
            scratch,
            clock,
            records: 0,
        })
    }

    /// Opens the first packet of a CPU's stream in a trace of the form [`super::TraceClass::per_cpu`]: the CPU is the
    /// stream's instance id.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_cpu(
        &self,
        cpu: u32,
        begin: u64,
        max_bytes: usize,
    ) -> Result<OpenPacket<'_>, WriteError> {
        let instance = cpu.into();
        let start = PacketStart { stream_class: 0, instance, sequence_number: 0, begin, max_bytes };
        self.open(start, |context| context.unsigned(cpu.into()))
    }

    fn write_header(&self, bits: &mut Bits, start: &PacketStart) {
        let class = self.class();
        let put = |bits: &mut Bits, value: u64, width: u8| {
            match class.byte_order {
                ByteOrder::Little => {
                    let bytes = value.to_le_bytes();
                    bits.bytes(bytes.get(..usize::from(width / 8)).unwrap_or(&bytes));
                }
                ByteOrder::Big => {
                    let bytes = value.to_be_bytes();
                    bits.bytes(bytes.get(8 - usize::from(width / 8)..).unwrap_or(&bytes));
                }
            };
        };
        put(bits, PACKET_MAGIC.into(), 32);
        if let Some(uuid) = class.uuid {
            bits.bytes(&uuid.0);
        }
        put(bits, start.stream_class, class.stream_id_bits());
        if class.instance_ids {
            put(bits, start.instance, 64);
        }
    }
}

/// Room that a packet has from the beginning: most stay below.
const FIRST_CAPACITY: usize = 64 << 10;

/// Leaves room for what the packet says of itself.
fn write_context(bits: &mut Bits, plan: &StreamPlan) -> Late {
    let mut late = Late::default();
    bits.align(plan.packet_align);
    let mut room = |width: u8| {
        bits.align(8);
        let pos = bits.pos();
        bits.skip(width.into());
        pos
    };
    if plan.has_clock {
        late.bounds = Some(room(64));
        room(64);
    }
    late.sizes = room(64);
    room(64);
    late.sequence_number = plan.sequence_numbers.then(|| room(64));
    late.discarded = plan.discarded_bits.map(|width| (room(width), width));
    late
}

fn too_large(pos: u64, max_bytes: usize) -> WriteError {
    WriteError::TooLarge {
        bytes: pos.div_ceil(8),
        max_bytes: u64::try_from(max_bytes).unwrap_or(u64::MAX),
    }
}

impl OpenPacket<'_> {
    /// Appends a record of class `event` at `time` in clock cycles; without a clock the time is not looked at. `write`
    /// gives the values of the stream class's context, of the event record class's context and of the payload, in the
    /// order of their declaration.
    ///
    /// Times should not go backwards in a stream, but some tracers' do: they are written as they are.
    ///
    /// # Errors
    /// [`WriteError`] when the values do not match the class or the record fits in no packet; the packet is unchanged
    /// then.
    pub fn append(
        &mut self,
        event: u64,
        time: u64,
        write: impl FnOnce(&mut Record<'_>) -> Result<(), WriteError>,
    ) -> Result<Appended, WriteError> {
        let plan = self.plan;
        let class = plan.event(event).ok_or(WriteError::NoClass(event))?;
        let mark = self.bits.mark();
        let begin = self.bits.pos();
        let scopes: [&Program; 3] = [&plan.common, &class.specific, &class.payload];
        let written = self.write_event_header(event, time).and_then(|()| {
            let Some(mut record) = Record::new(&scopes, &mut self.scratch, &mut self.bits) else {
                return Ok(());
            };
            write(&mut record)?;
            record.finish()
        });
        let end = self.bits.pos();
        let outcome = match written {
            Err(error) => Err(error),
            Ok(()) if end == begin => Err(WriteError::Empty),
            Ok(()) if !self.bits.is_over() => {
                self.records += 1;
                if plan.has_clock {
                    self.clock = time;
                }
                return Ok(Appended::Yes);
            }
            Ok(()) if self.records > 0 => Ok(Appended::Full),
            Ok(()) => Err(too_large(end - begin, self.start.max_bytes)),
        };
        self.bits.back_to(mark);
        outcome
    }

    fn write_event_header(&mut self, event: u64, time: u64) -> Result<(), WriteError> {
        let (bits, order) = (&mut self.bits, self.order);
        let follows = |width: u8| clock::update(self.clock, low(time, width), width) == time;
        // Each header begins at a byte boundary, and nothing in it is of another byte order.
        bits.align(8);
        let mut put = |value, width| bits.put(value, width, order).is_ok();
        let (id_bits, last_compact, time_bits) = match self.plan.header {
            EventHeader::Plain { id_bits, time_bits } => {
                if let Some(width) = id_bits {
                    put(event, width);
                }
                if self.plan.has_clock {
                    if !follows(time_bits) {
                        let last = self.clock;
                        return Err(WriteError::Time { time, last, bits: time_bits });
                    }
                    self.bits.align(8);
                    self.bits.put(low(time, time_bits), time_bits, order).unwrap_or_default();
                }
                return Ok(());
            }
            EventHeader::Compact => (5, 30, 27),
            EventHeader::Large => (16, 65_534, 32),
        };
        if event <= last_compact && follows(time_bits) {
            put(event, id_bits);
            put(low(time, time_bits), time_bits);
        } else {
            put(last_compact + 1, id_bits);
            self.bits.align(8);
            let mut put = |value, width| self.bits.put(value, width, order).is_ok();
            put(event, 32);
            put(time, 64);
        }
        Ok(())
    }

    /// Ends the packet, which covers time up to `end` in clock cycles, with the stream's count of discarded records.
    #[must_use]
    pub fn seal(mut self, end: u64, discarded: u64) -> SealedPacket {
        let bits = std::mem::replace(&mut self.bits, Bits::new(0, 0));
        self.sealed(bits, end, discarded)
    }

    /// Ends the packet, which covers time up to `end` in clock cycles and at least to its last record, and begins
    /// the stream's next one there, with the same context.
    #[must_use]
    pub fn roll(&mut self, end: u64, discarded: u64) -> SealedPacket {
        let end = end.max(self.clock);
        let mut next = Bits::new(self.bits.as_bytes().len(), self.start.max_bytes);
        next.bytes(&self.prefix);
        next.back_to(self.prefix_end);
        let bits = std::mem::replace(&mut self.bits, next);
        let sealed = self.sealed(bits, end, discarded);
        (self.start.begin, self.clock, self.records) = (end, end, 0);
        self.start.sequence_number += 1;
        sealed
    }

    fn sealed(&self, mut bits: Bits, end: u64, discarded: u64) -> SealedPacket {
        let Self { start, late, order, .. } = self;
        let content_bits = bits.pos();
        let total_bits = content_bits.next_multiple_of(8);
        let mut set = |pos, value, width| bits.set(pos, low(value, width), width, *order);
        if let Some(pos) = late.bounds {
            set(pos, start.begin, 64);
            set(pos + 64, end, 64);
        }
        set(late.sizes, content_bits, 64);
        set(late.sizes + 64, total_bits, 64);
        if let Some(pos) = late.sequence_number {
            set(pos, start.sequence_number, 64);
        }
        if let Some((pos, width)) = late.discarded {
            set(pos, discarded, width);
        }
        SealedPacket {
            bytes: bits.into_bytes(),
            stream_class: start.stream_class,
            instance: start.instance,
            begin: start.begin,
            end,
            content_bits,
            sequence_number: start.sequence_number,
            discarded,
            records: self.records,
        }
    }

    /// The packet's number in the stream.
    #[must_use]
    pub const fn sequence_number(&self) -> u64 {
        self.start.sequence_number
    }

    /// Event records in it.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// When it begins, in clock cycles.
    #[must_use]
    pub const fn begin(&self) -> u64 {
        self.start.begin
    }

    /// The time of its last record, or its begin, in clock cycles.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.clock
    }
}

const fn low(value: u64, width: u8) -> u64 {
    if width >= 64 { value } else { value & ((1 << width) - 1) }
}
