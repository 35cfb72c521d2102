//! Event records: finding where each one's fields are, and reading them when asked.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use crate::class::{ByteOrder, EventRecordClass, StreamClass, TraceClass};
use crate::clock::{self, ClockClass};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::header::{GeneralPlan, Header};
use crate::layout::{Integer, Kind, Layout, Meaning, Role, Then};
use crate::order;
use crate::packet::{Count, PacketInfo};
use crate::program::Programs;
use crate::show;
use crate::ticks::Ticks;
use crate::value::{Context, Field, FieldHandle, Scope, Shape, Value, Visitor};
use crate::walk::{self, Fault, Stack, advanced, aligned};

impl Fault {
    /// The error with the field's name; `event_index` counts event records of the packet.
    #[cold]
    pub(crate) fn into_error(
        self,
        scope: Scope,
        layout: &Layout,
        event_index: Option<u64>,
    ) -> DecodeError {
        let path = layout.path(self.node);
        let dot = if path.is_empty() { "" } else { "." };
        let field = format!("{}{dot}{path}", scope.name());
        DecodeError { offset_bits: self.pos, event_index, field, kind: self.kind }
    }
}

/// Where the parts of the current event record are, and what later ones need of it.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    pub(crate) registers: Vec<Cell<u64>>,
    pub(crate) stack: Stack,
    programs: Arc<Programs>,
    usual: Usual,
    /// Where each segment begins: see [`Programs`].
    anchors: Vec<u64>,
    /// Where the current event record begins, before alignment.
    begin: u64,
    pos: u64,
    /// Where the readable content ends, in bits.
    pub(crate) limit: u64,
    /// Where the packet says that its content ends, in bits.
    announced: u64,
    clock: Option<u64>,
    /// `None` without a clock.
    ticks: Option<Ticks>,
    timestamp: Option<i64>,
    /// How many event records came before the current one.
    index: u64,
    next_index: u64,
    /// Byte order of the number before the next event record, where that is looked at.
    order: Option<ByteOrder>,
    /// Index of the current event record's class.
    pub(crate) class: Option<u32>,
}

impl Scopes {
    pub(crate) fn new(programs: &Arc<Programs>, registers: Vec<Cell<u64>>) -> Self {
        let anchors = vec![0; programs.anchors];
        Self { registers, anchors, programs: Arc::clone(programs), ..Self::default() }
    }

    pub(crate) const fn timestamp(&self) -> Option<i64> {
        if self.class.is_some() { self.timestamp } else { None }
    }

    /// Stands before the first event record of a packet.
    pub(crate) fn start(
        &mut self,
        info: &PacketInfo,
        clock: Option<&ClockClass>,
        len_bytes: usize,
        order: Option<ByteOrder>,
    ) {
        let available = u64::try_from(len_bytes).unwrap_or(u64::MAX).saturating_mul(8);
        self.announced = info.content_bits.unwrap_or(available);
        self.limit = self.announced.min(available);
        self.pos = info.header_end_bits;
        self.clock = info.begin;
        self.ticks = clock.map(Ticks::new);
        self.usual = Usual::default();
        (self.index, self.next_index, self.class, self.timestamp) = (0, 0, None, None);
        self.order = order;
        self.stack.start_packet();
    }

    #[inline]
    pub(crate) fn advance(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<bool, DecodeError> {
        if self.pos >= self.limit {
            self.class = None;
            return if self.limit < self.announced { Err(self.truncated()) } else { Ok(false) };
        }
        self.index = self.next_index;
        match self.decode_quickly(trace, stream, bytes) {
            Some(class) => {
                self.class = Some(class);
                self.next_index += 1;
                Ok(true)
            }
            None => self.advance_slowly(trace, stream, bytes),
        }
    }

    #[cold]
    fn advance_slowly(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<bool, DecodeError> {
        let begin = self.pos;
        let mut decoded = self.decode(trace, stream, bytes);
        if stream.orders_may_clash {
            decoded =
                decoded.and_then(|class| self.check_orders(trace, stream, bytes, begin, class));
        }
        match decoded {
            Ok(class) => {
                self.class = Some(class);
                self.next_index += 1;
                Ok(true)
            }
            Err(error) => {
                self.class = None;
                self.pos = self.limit;
                Err(self.explain(error))
            }
        }
    }

    #[cold]
    fn check_orders(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
        begin: u64,
        class: u32,
    ) -> Result<u32, DecodeError> {
        let Self { registers, stack, limit, .. } = self;
        let context = Context { data: bytes, limit: *limit, registers, stack };
        let declared = usize::try_from(class).ok().and_then(|i| trace.events.get(i));
        let order = order::check(&context, stream, declared, begin, self.order)
            .map_err(|(scope, layout, fault)| fault.into_error(scope, layout, Some(self.index)))?;
        self.order = order;
        Ok(class)
    }

    /// Counts the event records that are left whose time is in the range of `times`; see
    /// [`crate::packet::EventReader::count_rest`].
    pub(crate) fn count_rest(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
        times: Range<i64>,
    ) -> Count {
        let range = Cycles::new(trace.clock_of(stream), &times);
        let safe = self.ticks.map_or(u64::MAX, |ticks| ticks.safe_cycles());
        let mut count = Count::default();
        loop {
            self.hurry((trace, stream), bytes, &range, safe, &mut count);
            let before = self.clock;
            match self.advance(trace, stream, bytes) {
                Ok(true) => count.add(before, self.clock, &range),
                Ok(false) => break,
                Err(error) => {
                    count.error = Some(error);
                    break;
                }
            }
        }
        self.class = None;
        count
    }

    /// Counts event records up to one that needs [`Self::advance`].
    fn hurry(
        &mut self,
        (trace, stream): (&TraceClass, &StreamClass),
        bytes: &[u8],
        range: &Cycles<'_>,
        safe: u64,
        count: &mut Count,
    ) {
        let Self { registers, stack, programs, limit, .. } = self;
        let context = Context { data: bytes, limit: *limit, registers, stack };
        let ticking = self.ticks.is_some();
        let mut usual = self.usual;
        let (mut begin, mut clock, mut index) = (self.pos, self.clock, self.next_index);
        while begin < *limit {
            let place = Standing { context, programs, trace, stream, begin };
            let Some(step) = place.step(&mut [], &mut usual) else { break };
            let next = if ticking { ticked(clock, step.header) } else { clock };
            if next.is_some_and(|next| next > safe) {
                break;
            }
            count.add(clock, next, range);
            (begin, clock) = (step.end, next);
            index += 1;
        }
        (self.pos, self.clock, self.next_index) = (begin, clock, index);
        self.usual = usual;
    }

    /// Stands behind the last event record.
    pub(crate) fn end(&mut self) {
        (self.class, self.timestamp) = (None, None);
        self.pos = self.limit;
        self.announced = self.limit;
    }

    /// Says that the data end early, once.
    #[cold]
    fn truncated(&mut self) -> DecodeError {
        let kind = DecodeErrorKind::Truncated {
            announced_bits: self.announced,
            available_bits: self.limit,
        };
        self.announced = self.limit;
        DecodeError {
            offset_bits: self.limit,
            event_index: Some(self.next_index),
            field: String::new(),
            kind,
        }
    }

    /// A field that does not fit in what is there, of a packet that is not all there, is no fault of the field.
    #[cold]
    fn explain(&mut self, mut error: DecodeError) -> DecodeError {
        let short = matches!(
            error.kind,
            DecodeErrorKind::BeyondContent { .. }
                | DecodeErrorKind::UnterminatedString
                | DecodeErrorKind::Length { .. }
        );
        if short && self.limit < self.announced {
            error.kind = DecodeErrorKind::Truncated {
                announced_bits: self.announced,
                available_bits: self.limit,
            };
        }
        self.announced = self.limit;
        error
    }

    /// Goes over the event record at hand; `None` when [`Self::decode`] must say what is wrong, if anything is.
    #[inline]
    fn decode_quickly(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Option<u32> {
        let Self { registers, stack, programs, anchors, usual, .. } = self;
        let context = Context { data: bytes, limit: self.limit, registers, stack };
        let place = Standing { context, programs, trace, stream, begin: self.pos };
        let step = place.step(anchors, usual)?;
        if let Some(ticks) = &mut self.ticks {
            let clock = ticked(self.clock, step.header);
            self.timestamp = match clock {
                Some(cycles) => Some(ticks.nanos(trace.clock_of(stream)?, cycles).ok()?),
                None => None,
            };
            self.clock = clock;
        }
        (self.begin, self.pos) = (self.pos, step.end);
        Some(step.class)
    }

    fn decode(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<u32, DecodeError> {
        let begin = self.pos;
        let index = self.index;
        let Self { registers, stack, programs, anchors, .. } = self;
        let context = Context { data: bytes, limit: self.limit, registers, stack };

        let (header, after_header) = read_header(&context, stream, begin, index)?;
        let class_index = class_of(stream, header.id).map_err(|kind| DecodeError {
            offset_bits: begin,
            event_index: Some(index),
            field: Scope::EventHeader.name().to_owned(),
            kind,
        })?;
        let class = usize::try_from(class_index).ok().and_then(|i| trace.events.get(i));
        let program = programs.get(class_index);
        let mut pos = after_header;
        for (scope, layout) in [
            (Scope::EventCommonContext, stream.event_context.as_ref()),
            (Scope::EventSpecificContext, class.and_then(|class| class.context.as_ref())),
            (Scope::Payload, class.and_then(|class| class.payload.as_ref())),
        ] {
            let Some(layout) = layout else { continue };
            let base = program.and_then(|program| program.base(scope)).unwrap_or(0);
            let anchors = anchors.get_mut(base..).unwrap_or_default();
            let begin = pos;
            pos = run_segments(&context, layout, begin, anchors).map_err(|fault| {
                // A segment has many fields: walking finds the one that is at fault, and where it is.
                let walked = context.walk(layout, begin).run(0, true, &mut ());
                walked.err().unwrap_or(fault).into_error(scope, layout, Some(index))
            })?;
        }

        (self.begin, self.pos) = (begin, pos);
        self.tick(trace, stream, header)?;
        if pos == begin {
            let kind = DecodeErrorKind::EmptyEvent;
            return Err(DecodeError {
                offset_bits: begin,
                event_index: Some(index),
                field: String::new(),
                kind,
            });
        }
        Ok(class_index)
    }

    /// Moves the clock.
    fn tick(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        header: Header,
    ) -> Result<(), DecodeError> {
        let Some(clock_class) = trace.clock_of(stream) else { return Ok(()) };
        if let Some((value, bits)) = header.time {
            self.clock = Some(clock::update(self.clock.unwrap_or(0), value, bits));
        }
        let timestamp = self.clock.map(|cycles| clock_class.to_ns(cycles)).transpose();
        self.timestamp = timestamp.map_err(|kind| DecodeError {
            offset_bits: self.begin,
            event_index: Some(self.index),
            field: Scope::EventHeader.name().to_owned(),
            kind,
        })?;
        Ok(())
    }
}

/// A decoder before an event record that begins at bit `begin`.
struct Standing<'a> {
    context: Context<'a>,
    programs: &'a Programs,
    trace: &'a TraceClass,
    stream: &'a StreamClass,
    begin: u64,
}

/// The class of the event record before. Most often the next one is of the same, and to guess so lets the processor go
/// on before it has seen the id.
#[derive(Debug, Clone, Copy)]
struct Usual {
    id: u64,
    class: u32,
}

impl Usual {
    /// No event record before; if there is an id like this, the general way finds its class.
    const NONE: Self = Self { id: u64::MAX, class: u32::MAX };
}

impl Default for Usual {
    fn default() -> Self {
        Self::NONE
    }
}

/// An event record that was gone over.
#[derive(Debug, Clone, Copy)]
struct Step {
    header: Header,
    class: u32,
    end: u64,
}

impl Standing<'_> {
    /// Looks where the event record ends, and notes in `anchors` where its parts begin. `None` when
    /// [`Scopes::decode`] must say what is wrong, if anything is.
    #[inline(always)]
    fn step(&self, anchors: &mut [u64], usual: &mut Usual) -> Option<Step> {
        let Self { context, programs, trace, stream, begin } = *self;
        let (header, after) = match &stream.header_plan.quick {
            // Nor is this the way to see whether byte orders change inside a byte.
            _ if stream.orders_may_clash => return None,
            Some(quick) => quick.read(&context, begin)?,
            None => read_header(&context, stream, begin, 0).ok()?,
        };
        let id = header.id.unwrap_or_else(|| stream.only_event_id.unwrap_or(0));
        if usual.id != id {
            *usual = Usual { id, class: class_of(stream, header.id).ok()? };
        }
        let class = usual.class;
        let program = programs.get(class)?;
        let end = program.run(&context, (trace, stream, class), after, anchors)?;
        (end != begin).then_some(Step { header, class, end })
    }
}

impl Count {
    /// Counts an event record that moved the clock.
    #[inline(always)]
    fn add(&mut self, before: Option<u64>, after: Option<u64>, range: &Cycles<'_>) {
        let (Some(clock), Some(cycles)) = (range.clock, after) else {
            self.untimed += 1;
            return;
        };
        let is_in = range.first <= cycles && range.end.is_none_or(|end| cycles < end);
        self.events += u64::from(is_in);
        if after < before {
            // Two values of a quick clock can be the same time.
            let before = before.map(|before| clock.to_ns_wide(before));
            self.backward += u64::from(Some(clock.to_ns_wide(cycles)) < before);
        }
    }
}

/// A range of times in cycles of a clock.
struct Cycles<'a> {
    clock: Option<&'a ClockClass>,
    first: u64,
    end: Option<u64>,
}

impl<'a> Cycles<'a> {
    fn new(clock: Option<&'a ClockClass>, times: &Range<i64>) -> Self {
        let at_or_after = |nanos: i64| clock.and_then(|clock| first_cycle(clock, nanos));
        let end = if times.end == i64::MAX { None } else { at_or_after(times.end) };
        match if times.start == i64::MIN { Some(0) } else { at_or_after(times.start) } {
            Some(first) => Self { clock, first, end },
            None => Self { clock, first: u64::MAX, end: Some(0) },
        }
    }
}

/// The first value of a clock whose time is `nanos` or later.
fn first_cycle(clock: &ClockClass, nanos: i64) -> Option<u64> {
    // Times never fall when cycles rise.
    let (mut below, mut above) = (0, u64::MAX);
    let mut found = None;
    while below <= above {
        let middle = below + (above - below) / 2;
        if clock.to_ns_wide(middle) < i128::from(nanos) {
            below = middle.checked_add(1)?;
        } else {
            found = Some(middle);
            let Some(before) = middle.checked_sub(1) else { break };
            above = before;
        }
    }
    found
}

/// The clock behind an event record's header.
#[inline(always)]
fn ticked(clock: Option<u64>, header: Header) -> Option<u64> {
    match header.time {
        Some((value, bits)) => Some(clock::update(clock.unwrap_or(0), value, bits)),
        None => clock,
    }
}

#[inline]
fn class_of(stream: &StreamClass, id: Option<u64>) -> Result<u32, DecodeErrorKind> {
    // Without an id field there can be only one class, whose id is 0 unless the metadata says otherwise.
    let id = id.unwrap_or_else(|| stream.only_event_id.unwrap_or(0));
    stream.event_ids.get(id).ok_or(DecodeErrorKind::UnknownEventClass { id })
}

#[inline]
fn read_header(
    context: &Context<'_>,
    stream: &StreamClass,
    pos: u64,
    index: u64,
) -> Result<(Header, u64), DecodeError> {
    let Some(layout) = &stream.event_header else { return Ok((Header::default(), pos)) };
    let quick = match &stream.header_plan.general {
        GeneralPlan::Flat(plan) => plan.read(context, pos).map(Some),
        GeneralPlan::Selected(plan) => plan.read(context, pos),
        GeneralPlan::Walk => Ok(None),
    };
    if let Ok(Some(read)) = quick {
        return Ok(read);
    }
    // Also taken to say exactly which field of a short cut is at fault.
    let mut roles = HeaderRoles(Header::default());
    let mut walk = context.walk(layout, pos).first();
    walk.run(0, true, &mut roles)
        .map_err(|fault| fault.into_error(Scope::EventHeader, layout, Some(index)))?;
    Ok((roles.0, walk.pos))
}

struct HeaderRoles(Header);

impl<'a> Visitor<'a> for HeaderRoles {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        self.variable_length(field, value, field.bits());
    }

    fn variable_length(&mut self, field: Field<'a>, value: Value<'a>, bits: u8) {
        let (Kind::Integer(int) | Kind::VarInteger(int)) = &field.node.kind else { return };
        for role in int.roles() {
            match role {
                Role::EventClassId => self.0.id = value.as_u64(),
                Role::ClockTimestamp => self.0.time = value.as_u64().map(|value| (value, bits)),
                _ => {}
            }
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

/// Goes over a scope without looking at more than is needed to find its end; notes where each segment begins.
fn run_segments(
    context: &Context<'_>,
    layout: &Layout,
    pos: u64,
    anchors: &mut [u64],
) -> Result<u64, Fault> {
    let mut pos = aligned(context, pos, layout.align, 0)?;
    for (segment, anchor) in layout.segments.iter().zip(anchors) {
        *anchor = pos;
        let end = pos.saturating_add(segment.bits);
        if end > context.limit {
            return Err(walk::beyond(context, pos, 0, end));
        }
        for save in &segment.saves {
            let value = save.read(context.data, pos).unwrap_or(0);
            if let Some(slot) =
                usize::try_from(save.register).ok().and_then(|i| context.registers.get(i))
            {
                slot.set(value);
            }
        }
        pos = end;
        match segment.then {
            Then::End => break,
            Then::Align(align) => pos = aligned(context, pos, align, 0)?,
            Then::Text(node) => pos = walk::text(context, pos, node)?.1,
            Then::Repeat { register, stride, node } => {
                let length = walk::register(context.registers, register).unwrap_or(0);
                let remaining_bits = context.limit.saturating_sub(pos);
                let bits = length.checked_mul(stride).filter(|bits| *bits <= remaining_bits);
                let too_long =
                    Fault { pos, node, kind: DecodeErrorKind::Length { length, remaining_bits } };
                pos = advanced(context, pos, bits.ok_or(too_long)?, node)?;
            }
            Then::Walk(node) => {
                let mut walk = context.walk(layout, pos).first();
                walk.run(node, true, &mut ())?;
                pos = walk.pos;
            }
        }
    }
    Ok(pos)
}

/// One event record. Fields are read from the packet when asked for.
#[derive(Debug, Clone, Copy)]
pub struct EventRecord<'a> {
    trace: &'a TraceClass,
    stream: &'a StreamClass,
    class: &'a EventRecordClass,
    info: &'a PacketInfo,
    scopes: &'a Scopes,
    bytes: &'a [u8],
}

impl<'a> EventRecord<'a> {
    pub(crate) const fn new(
        trace: &'a TraceClass,
        stream: &'a StreamClass,
        class: &'a EventRecordClass,
        info: &'a PacketInfo,
        scopes: &'a Scopes,
        bytes: &'a [u8],
    ) -> Self {
        Self { trace, stream, class, info, scopes, bytes }
    }

    /// Its class.
    #[must_use]
    pub const fn class(&self) -> &'a EventRecordClass {
        self.class
    }

    /// Its class's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.class.name
    }

    /// The class of its stream.
    #[must_use]
    pub const fn stream_class(&self) -> &'a StreamClass {
        self.stream
    }

    /// The trace class it is read by.
    #[must_use]
    pub const fn trace_class(&self) -> &'a TraceClass {
        self.trace
    }

    /// The packet it is in.
    #[must_use]
    pub const fn packet(&self) -> &'a PacketInfo {
        self.info
    }

    /// The CPU that wrote its packet.
    #[must_use]
    pub const fn cpu_id(&self) -> Option<u64> {
        self.info.cpu_id
    }

    /// How many event records of the packet come before it.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.scopes.index
    }

    /// The clock's value in cycles; `None` without a clock.
    #[must_use]
    pub const fn clock_value(&self) -> Option<u64> {
        self.scopes.clock
    }

    /// Nanoseconds since the clock's origin; `None` without a clock. See [`crate::ClockClass::to_ns`].
    #[must_use]
    pub const fn timestamp_ns(&self) -> Option<i64> {
        self.scopes.timestamp
    }

    /// Where it begins, in bits from the packet's beginning, before alignment.
    #[must_use]
    pub const fn begin_bits(&self) -> u64 {
        self.scopes.begin
    }

    /// Where it ends, in bits from the packet's beginning.
    #[must_use]
    pub const fn end_bits(&self) -> u64 {
        self.scopes.pos
    }

    pub(crate) const fn context(&self) -> Context<'a> {
        let Scopes { registers, stack, limit, .. } = self.scopes;
        Context { data: self.bytes, limit: *limit, registers: registers.as_slice(), stack }
    }

    /// The programs that its trace class's event records are decoded by, which no other trace class shares.
    pub(crate) const fn programs(&self) -> &'a Arc<Programs> {
        &self.scopes.programs
    }

    /// The layout of a scope, its owner's index, its anchors and where it begins.
    #[inline]
    pub(crate) fn part(&self, scope: Scope) -> Option<Part<'a>> {
        let Scopes { anchors, programs, begin, .. } = self.scopes;
        let (stream, class) = (self.stream, self.class);
        let (layout, owner) = match scope {
            Scope::EventHeader => {
                let layout = stream.event_header.as_ref()?;
                return Some(Part { layout, owner: stream.index, anchors: &[], begin: *begin });
            }
            Scope::EventCommonContext => (&stream.event_context, stream.index),
            Scope::EventSpecificContext => (&class.context, class.index),
            Scope::Payload => (&class.payload, class.index),
            Scope::PacketHeader | Scope::PacketContext => return None,
        };
        let layout = layout.as_ref()?;
        let anchors = anchors.get(programs.get(class.index)?.base(scope)?..)?;
        Some(Part { layout, owner, anchors, begin: *anchors.first()? })
    }

    /// A field's value; `None` when the handle is of another class.
    #[must_use]
    #[inline]
    pub fn get(&self, handle: FieldHandle) -> Option<Value<'a>> {
        let part = self.part(handle.scope).filter(|part| part.owner == handle.owner)?;
        let Some(place) = handle.place else { return self.search(part, handle.node) };
        let anchor = part.anchors.get(usize::try_from(place.segment).ok()?)?;
        self.context().value(part.layout, handle.node, anchor.checked_add(place.offset)?)
    }

    /// A field's number, as [`Value::as_u64`] gives it, without making a [`Value`] of most integers.
    #[must_use]
    #[inline]
    pub fn u64(&self, handle: FieldHandle) -> Option<u64> {
        match self.number(handle) {
            Some((int, raw)) if int.signed => u64::try_from(raw.cast_signed()).ok(),
            Some((_, raw)) => Some(raw),
            None => self.get(handle)?.as_u64(),
        }
    }

    /// A field's number, as [`Value::as_i64`] gives it, without making a [`Value`] of most integers.
    #[must_use]
    #[inline]
    pub fn i64(&self, handle: FieldHandle) -> Option<i64> {
        match self.number(handle) {
            Some((int, raw)) if int.signed => Some(raw.cast_signed()),
            Some((_, raw)) => i64::try_from(raw).ok(),
            None => self.get(handle)?.as_i64(),
        }
    }

    /// The bytes of a text field without its NUL, or of a BLOB; borrowed from the packet.
    #[must_use]
    #[inline]
    pub fn bytes(&self, handle: FieldHandle) -> Option<&'a [u8]> {
        self.get(handle)?.as_bytes()
    }

    /// An integer that has a place and is a number: its class, and its value with the sign extended.
    #[inline]
    fn number(&self, handle: FieldHandle) -> Option<(&'a Integer, u64)> {
        let place = handle.place?;
        let part = self.part(handle.scope).filter(|part| part.owner == handle.owner)?;
        let Kind::Integer(int) = &part.layout.node(handle.node)?.kind else { return None };
        let anchor = part.anchors.get(usize::try_from(place.segment).ok()?)?;
        let raw = int.read(self.bytes, anchor.checked_add(place.offset)?)?;
        (int.meaning == Meaning::Number).then_some((int, raw))
    }

    /// Walks the whole scope for a scalar without a constant place.
    fn search(&self, part: Part<'a>, node: u32) -> Option<Value<'a>> {
        let mut found = Search { node, value: None };
        self.context().walk(part.layout, part.begin).run(0, true, &mut found).ok()?;
        found.value
    }

    /// A payload field by name; [`EventRecordClass::field_handle`] is quicker for many event records.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        self.get(self.class.field_handle(name)?)
    }

    /// Whether the scope is declared for this event record, be it without members.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.part(scope).is_some()
    }

    /// Shows all fields of a scope in order; nothing when it is not declared. For the packet's own scopes see
    /// [`crate::packet::EventReader::visit_packet`].
    #[inline(always)]
    pub fn visit(&self, scope: Scope, visitor: &mut impl Visitor<'a>) {
        if let Some(part) = self.part(scope) {
            self.show(part, visitor);
        }
    }

    fn show(&self, part: Part<'a>, visitor: &mut impl Visitor<'a>) {
        let context = self.context();
        // Finding the event record's end went over these very bits, so this cannot fail.
        let shown = if part.layout.shows.is_empty() || part.anchors.is_empty() {
            context.walk(part.layout, part.begin).run(0, true, visitor).is_ok()
        } else {
            show::run(&context, part.layout, part.anchors, visitor).is_some()
        };
        debug_assert!(shown);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) layout: &'a Layout,
    owner: u32,
    pub(crate) anchors: &'a [u64],
    begin: u64,
}

struct Search<'a> {
    node: u32,
    value: Option<Value<'a>>,
}

impl<'a> Visitor<'a> for Search<'a> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        if field.index == self.node {
            self.value = Some(value);
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}
