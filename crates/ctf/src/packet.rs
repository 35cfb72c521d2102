//! Packets: header and context, then event records one after the other.
//!
//! ```text
//! packet  = header, context, event records … | padding
//!           '------------ content -----------'
//!           '------------------ total ----------------'
//! ```
//!
//! Lengths and positions are bits from the packet's first bit. A packet's time bounds are advice: no event record is
//! left out for lying outside.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use crate::class::{ByteOrder, StreamClass, TraceClass};
use crate::decoder::Decoder;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::event::EventRecord;
use crate::layout::{Kind, Layout, Role};
use crate::program::Programs;
use crate::value::{Context, Field, Scope, Shape, Value, Visitor};
use crate::walk::{Fault, Stack, Walk};
use crate::{ClockClass, Uuid, clock};

/// The first 32 bits of a packet whose header has a magic number.
pub const PACKET_MAGIC: u32 = 0xC1FC_1FC1;

/// No packet header and context may be longer than this.
pub const MAX_PACKET_HEADER_BYTES: usize = 16 << 20;

/// An answer, or the wish for more bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The answer.
    Ready(T),
    /// The bytes end too early. With at least this many, from the same beginning, asking again gets further.
    NeedMore {
        /// Bytes from the packet's beginning; more than were given.
        at_least_bytes: usize,
    },
}

/// What a packet's header and context say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketInfo {
    /// The id of its data stream class, which exists in the trace class.
    pub stream_class_id: u64,
    /// Tells the streams of one class apart.
    pub stream_instance_id: Option<u64>,
    /// Clock value at the beginning, in cycles.
    pub begin: Option<u64>,
    /// Clock value at the end, in cycles; 0 in packets that a tracer did not close.
    pub end: Option<u64>,
    /// Length with header and context, without padding. At most `total_bits`.
    pub content_bits: Option<u64>,
    /// Length with padding, a multiple of 8; `None` when the packet takes the rest of its stream.
    pub total_bits: Option<u64>,
    /// The stream's count of discarded event records so far; wraps at its field's width.
    pub events_discarded: Option<u64>,
    /// Counts the stream's packets.
    pub sequence_number: Option<u64>,
    /// The CPU that wrote the packet.
    pub cpu_id: Option<u64>,
    /// The trace UUID that the packet carries, when the metadata's is another one. Such packets are read all the
    /// same, as Babeltrace 2 does: the metadata that lie next to a stream are most likely its own.
    pub foreign_uuid: Option<Uuid>,
    /// Where the first event record begins, before its alignment.
    pub header_end_bits: u64,
}

impl PacketInfo {
    /// Bytes from the beginning of this packet to the next one's; `None` when there is no next.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bits.map(|bits| bits / 8)
    }
}

/// Reads a packet's header and context from its first bytes. `bytes` may hold less or more than the packet.
///
/// # Errors
/// The packet is of another trace, of an unknown stream class, has no magic number where it should, or its lengths
/// contradict each other.
pub fn decode_packet_header(
    trace: &TraceClass,
    bytes: &[u8],
) -> Result<Outcome<PacketInfo>, DecodeError> {
    let registers = new_registers(trace);
    read_header(trace, bytes, &registers, &Stack::default()).map(|outcome| match outcome {
        Outcome::Ready((info, _)) => Outcome::Ready(info),
        Outcome::NeedMore { at_least_bytes } => Outcome::NeedMore { at_least_bytes },
    })
}

/// What a packet's header and context say, and the byte order of their last number.
type Opening = (PacketInfo, Option<ByteOrder>);

fn new_registers(trace: &TraceClass) -> Vec<Cell<u64>> {
    (0..trace.registers).map(|_| Cell::new(0)).collect()
}

fn read_header(
    trace: &TraceClass,
    bytes: &[u8],
    registers: &[Cell<u64>],
    stack: &Stack,
) -> Result<Outcome<Opening>, DecodeError> {
    let limit = u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_mul(8);
    let context = Context { data: bytes, limit, registers, stack };
    let mut roles = Roles::default();
    let (mut pos, mut order) = (0, None);
    if let Some(layout) = &trace.packet_header {
        let mut walk = context.walk(layout, pos);
        let walked = walk.run(0, true, &mut roles);
        roles.check_magic()?;
        match walked {
            Ok(last) => (pos, order) = (walk.pos, last),
            Err(fault) => return short(fault, bytes.len(), Scope::PacketHeader, layout),
        }
    }
    let stream = stream_class(trace, roles.stream_class_id)?;
    if let Some(layout) = &stream.packet_context {
        let mut walk = context.walk(layout, pos).after(order);
        match walk.run(0, true, &mut roles) {
            Ok(last) => (pos, order) = (walk.pos, last),
            Err(fault) => return short(fault, bytes.len(), Scope::PacketContext, layout),
        }
    }
    let mut info = roles.info;
    info.stream_class_id = stream.id;
    info.foreign_uuid = roles.foreign_uuid(trace);
    info.header_end_bits = pos;
    info.total_bits = info.total_bits.or(info.content_bits);
    info.content_bits = info.content_bits.or(info.total_bits);
    check_sizes(&info)?;
    Ok(Outcome::Ready((info, order)))
}

/// A fault in the header because the bytes end is a wish for more of them.
fn short(
    fault: Fault,
    len: usize,
    scope: Scope,
    layout: &Layout,
) -> Result<Outcome<Opening>, DecodeError> {
    let wanted = match fault.kind {
        DecodeErrorKind::BeyondContent { end_bits, .. } => {
            usize::try_from(end_bits.div_ceil(8)).unwrap_or(usize::MAX)
        }
        DecodeErrorKind::UnterminatedString | DecodeErrorKind::Length { .. } => {
            len.saturating_add(1)
        }
        _ => usize::MAX,
    };
    if wanted <= MAX_PACKET_HEADER_BYTES {
        Ok(Outcome::NeedMore { at_least_bytes: wanted })
    } else {
        Err(fault.into_error(scope, layout, None))
    }
}

fn stream_class(trace: &TraceClass, id: Option<u64>) -> Result<&StreamClass, DecodeError> {
    match (id, &*trace.streams) {
        (Some(id), _) => trace.stream_class(id).ok_or(DecodeErrorKind::UnknownStreamClass { id }),
        (None, [only]) => Ok(only),
        (None, several) => Err(DecodeErrorKind::NoStreamClass { classes: several.len() }),
    }
    .map_err(|kind| DecodeError {
        offset_bits: 0,
        event_index: None,
        field: "packet header".to_owned(),
        kind,
    })
}

fn check_sizes(info: &PacketInfo) -> Result<(), DecodeError> {
    let (Some(content_bits), Some(total_bits)) = (info.content_bits, info.total_bits) else {
        return Ok(());
    };
    let header_end_bits = info.header_end_bits;
    if header_end_bits <= content_bits
        && content_bits <= total_bits
        && total_bits % 8 == 0
        && total_bits > 0
    {
        return Ok(());
    }
    let kind = DecodeErrorKind::PacketSizes { content_bits, total_bits, header_end_bits };
    Err(DecodeError { offset_bits: 0, event_index: None, field: "packet context".to_owned(), kind })
}

/// Picks the fields that mean something to the reader.
#[derive(Default)]
struct Roles {
    info: PacketInfo,
    stream_class_id: Option<u64>,
    magic: Option<u64>,
    uuid: [u8; 16],
    uuid_len: usize,
}

impl Roles {
    fn check_magic(&self) -> Result<(), DecodeError> {
        match self.magic {
            Some(found) if found != u64::from(PACKET_MAGIC) => Err(DecodeError {
                offset_bits: 0,
                event_index: None,
                field: "packet header".to_owned(),
                kind: DecodeErrorKind::Magic { found },
            }),
            _ => Ok(()),
        }
    }

    fn foreign_uuid(&self, trace: &TraceClass) -> Option<Uuid> {
        let found = Some(Uuid(self.uuid)).filter(|_| self.uuid_len == 16)?;
        Some(found).filter(|found| trace.uuid.is_some_and(|expected| expected != *found))
    }
}

impl<'a> Visitor<'a> for Roles {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if let (Some(Kind::Blob(_, blob)), Value::Blob(bytes)) =
            (field.node().map(|node| &node.kind), value)
        {
            if blob.role == Some(Role::TraceUuid)
                && let Ok(uuid) = bytes.try_into()
            {
                (self.uuid, self.uuid_len) = (uuid, 16);
            }
            return;
        }
        self.variable_length(field, value, field.bits());
    }

    fn variable_length(&mut self, field: Field<'a>, value: Value<'a>, bits: u8) {
        let Some(int) = field.integer() else { return };
        if let Some(number) = value.as_u64() {
            int.roles().for_each(|role| self.take(role, number, bits));
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

impl Roles {
    /// Takes the number of a field of so many bits that has this role.
    fn take(&mut self, role: Role, number: u64, bits: u8) {
        let info = &mut self.info;
        match role {
            Role::Magic => self.magic = Some(number),
            Role::TraceUuid => {
                if let (Some(slot), Ok(byte)) =
                    (self.uuid.get_mut(self.uuid_len), u8::try_from(number))
                {
                    *slot = byte;
                    self.uuid_len += 1;
                }
            }
            Role::StreamClassId => self.stream_class_id = Some(number),
            Role::StreamInstanceId => info.stream_instance_id = Some(number),
            Role::PacketTotal => info.total_bits = Some(number),
            Role::PacketContent => info.content_bits = Some(number),
            Role::ClockTimestamp => {
                info.begin = Some(clock::update(info.begin.unwrap_or(0), number, bits));
            }
            Role::PacketEnd => info.end = Some(number),
            Role::DiscardedEvents => info.events_discarded = Some(number),
            Role::SequenceNumber => info.sequence_number = Some(number),
            Role::CpuId => info.cpu_id = Some(number),
            Role::EventClassId => {}
        }
    }
}

/// What [`EventReader::count_rest`] met.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// Event records in the range.
    pub events: u64,
    /// Event records without a time.
    pub untimed: u64,
    /// How many, in the range or not, are earlier than the one before, or than the packet's begin if they are its
    /// first.
    pub backward: u64,
    /// What is wrong with the event record after the last that was gone over.
    pub error: Option<DecodeError>,
}

/// Goes through the event records of one packet.
///
/// `B` holds the packet's bytes: a borrowed slice, a `Vec<u8>`, an `Arc<[u8]>`. After an error the packet is over:
/// where the next event record would begin is not known.
#[derive(Debug)]
pub struct EventReader<B> {
    trace: Arc<TraceClass>,
    bytes: B,
    info: PacketInfo,
    /// Position of the packet's stream class in the trace class.
    stream: usize,
    decoder: Decoder,
}

impl<B: AsRef<[u8]>> EventReader<B> {
    /// Reads the packet's header and stands before its first event record.
    ///
    /// `bytes` begins with the packet; what follows its announced length is not looked at. With fewer bytes than
    /// announced, the event records that are there are given and then [`DecodeErrorKind::Truncated`]; a caller who
    /// can wait for the rest first asks [`decode_packet_header`].
    ///
    /// # Errors
    /// As [`decode_packet_header`].
    pub fn open(trace: Arc<TraceClass>, bytes: B) -> Result<Outcome<Self>, DecodeError> {
        let programs = trace.programs.get_or_init(|| Programs::new(&trace));
        let decoder = Decoder::new(programs, new_registers(&trace));
        Self::start(trace, bytes, decoder)
    }

    /// As [`Self::open`] for the next packet of the same trace, without allocating.
    ///
    /// # Errors
    /// As [`decode_packet_header`].
    pub fn reopen<C: AsRef<[u8]>>(self, bytes: C) -> Result<Outcome<EventReader<C>>, DecodeError> {
        EventReader::start(self.trace, bytes, self.decoder)
    }

    fn start(
        trace: Arc<TraceClass>,
        bytes: B,
        mut decoder: Decoder,
    ) -> Result<Outcome<Self>, DecodeError> {
        let opening = read_header(&trace, bytes.as_ref(), &decoder.registers, &decoder.stack)?;
        let (info, order) = match opening {
            Outcome::Ready(opening) => opening,
            Outcome::NeedMore { at_least_bytes } => {
                return Ok(Outcome::NeedMore { at_least_bytes });
            }
        };
        let class = trace.stream_class(info.stream_class_id);
        let stream = class.map_or(0, |stream| stream.index);
        let clock = class.and_then(|stream| trace.clock_of(stream));
        decoder.start(&info, clock, bytes.as_ref().len(), order);
        let stream = usize::try_from(stream).unwrap_or(usize::MAX);
        Ok(Outcome::Ready(Self { trace, bytes, info, stream, decoder }))
    }

    /// What the packet's header and context say.
    #[must_use]
    pub const fn packet(&self) -> &PacketInfo {
        &self.info
    }

    /// The trace class that the packet is read by.
    #[must_use]
    pub const fn trace_class(&self) -> &Arc<TraceClass> {
        &self.trace
    }

    /// The class of the packet's stream.
    #[must_use]
    pub fn stream_class(&self) -> Option<&StreamClass> {
        self.trace.streams.get(self.stream)
    }

    /// The clock of the packet's stream.
    #[must_use]
    pub fn clock_class(&self) -> Option<&ClockClass> {
        self.trace.clock_of(self.stream_class()?)
    }

    /// Moves to the next event record. `false`: the packet has no more.
    ///
    /// # Errors
    /// What is wrong with the event record; the next call returns `false`.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, DecodeError> {
        let Some(stream) = self.trace.streams.get(self.stream) else { return Ok(false) };
        self.decoder.advance(&self.trace, stream, self.bytes.as_ref())
    }

    /// [`Self::advance`] and [`Self::timestamp_ns`] in one, where that costs next to nothing: `None`, without moving, if
    /// the next event record was not gone over yet, or has no time.
    #[inline]
    pub fn step_on(&mut self) -> Option<i64> {
        self.decoder.step_on()
    }

    /// The time of the event record that the last [`Self::advance`] moved to, as
    /// [`EventRecord::timestamp_ns`]; `None` without one or without a clock.
    #[must_use]
    #[inline]
    pub fn timestamp_ns(&self) -> Option<i64> {
        self.decoder.mark()?.timestamp()
    }

    /// Goes through the event records that are left and counts those in a range of time, without giving them: costs
    /// less than half of [`Self::advance`].
    ///
    /// `i64::MIN` and `i64::MAX` are no bounds. Everything is checked as by [`Self::advance`], with the same errors.
    pub fn count_rest(&mut self, times: Range<i64>) -> Count {
        let Some(stream) = self.trace.streams.get(self.stream) else { return Count::default() };
        self.decoder.count_rest(&self.trace, stream, self.bytes.as_ref(), times)
    }

    /// The event record that the last [`Self::advance`] moved to.
    #[must_use]
    #[inline]
    pub fn event(&self) -> Option<EventRecord<'_>> {
        let mark = self.decoder.mark()?;
        let class = self.trace.events.get(usize::try_from(mark.class).ok()?)?;
        let stream = self.trace.streams.get(self.stream)?;
        Some(EventRecord::new(
            &self.trace,
            stream,
            class,
            &self.info,
            &self.decoder,
            mark,
            self.bytes.as_ref(),
        ))
    }

    /// [`Self::advance`] and [`Self::event`] in one.
    ///
    /// # Errors
    /// As [`Self::advance`].
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<EventRecord<'_>>, DecodeError> {
        Ok(if self.advance()? { self.event() } else { None })
    }

    /// Shows the fields of the packet's header or context; other scopes belong to event records.
    pub fn visit_packet<'a>(&'a self, scope: Scope, visitor: &mut impl Visitor<'a>) {
        // Values of earlier fields are kept once more, as opening the packet kept them.
        let Decoder { registers, stack, limit, .. } = &self.decoder;
        let context = Context { data: self.bytes.as_ref(), limit: *limit, registers, stack };
        let Some(stream) = self.trace.streams.get(self.stream) else { return };
        let mut pos = 0;
        for (layout, this) in [
            (&self.trace.packet_header, Scope::PacketHeader),
            (&stream.packet_context, Scope::PacketContext),
        ] {
            let Some(layout) = layout else { continue };
            // Opening the packet went over these bits already, so there is nothing to report.
            let walked = if this == scope {
                context.walk(layout, pos).run(0, true, visitor).map(|_| pos)
            } else {
                let mut walk: Walk<'_> = context.walk(layout, pos);
                walk.run(0, true, &mut ()).map(|_| walk.pos)
            };
            pos = walked.unwrap_or(pos);
        }
    }

    /// Gives the bytes back before [`Self::reopen`] brings others, so that their memory can be used for those. The
    /// packet is over.
    pub fn take_bytes(&mut self) -> B
    where
        B: Default,
    {
        self.decoder.end();
        std::mem::take(&mut self.bytes)
    }

    /// Gives the bytes back.
    #[must_use]
    pub fn into_bytes(self) -> B {
        self.bytes
    }
}

/// The packets of a stream that is wholly in memory, in order.
#[derive(Debug)]
pub struct Packets<'t, 'b> {
    trace: &'t TraceClass,
    rest: &'b [u8],
    offset_bytes: u64,
}

/// One packet of [`Packets`].
#[derive(Debug, Clone, Copy)]
pub struct Packet<'b> {
    /// Where it begins in the stream.
    pub offset_bytes: u64,
    /// What its header and context say.
    pub info: PacketInfo,
    /// Its bytes with padding; fewer than announced when the stream is cut.
    pub bytes: &'b [u8],
}

impl<'t, 'b> Packets<'t, 'b> {
    /// Begins at the stream's first byte.
    #[must_use]
    pub const fn new(trace: &'t TraceClass, stream: &'b [u8]) -> Self {
        Self { trace, rest: stream, offset_bytes: 0 }
    }
}

impl<'b> Iterator for Packets<'_, 'b> {
    type Item = Result<Packet<'b>, DecodeError>;

    /// After an error there is nothing more: where the next packet begins is not known.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.rest);
        let available_bits = u64::try_from(whole.len()).unwrap_or(u64::MAX).saturating_mul(8);
        let info = match decode_packet_header(self.trace, whole) {
            Ok(Outcome::Ready(info)) => info,
            Ok(Outcome::NeedMore { at_least_bytes }) => {
                let announced_bits =
                    u64::try_from(at_least_bytes).unwrap_or(u64::MAX).saturating_mul(8);
                let kind = DecodeErrorKind::Truncated { announced_bits, available_bits };
                let field = Scope::PacketHeader.name().to_owned();
                return Some(Err(DecodeError {
                    offset_bits: available_bits,
                    event_index: None,
                    field,
                    kind,
                }));
            }
            Err(error) => return Some(Err(error)),
        };
        let len =
            info.total_bytes().and_then(|len| usize::try_from(len).ok()).unwrap_or(usize::MAX);
        let (bytes, rest) = whole.split_at_checked(len).unwrap_or((whole, &[]));
        let offset_bytes = self.offset_bytes;
        self.offset_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.rest = rest;
        Some(Ok(Packet { offset_bytes, info, bytes }))
    }
}
