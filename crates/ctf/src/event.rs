//! Event records: reading their fields when asked.

use std::sync::Arc;

use crate::class::{EventRecordClass, StreamClass, TraceClass};
use crate::decoder::{Decoder, Mark};
use crate::layout::{Kind, Layout, Meaning, Place, Then};
use crate::packet::PacketInfo;
use crate::program::Programs;
use crate::show;
use crate::value::{Context, Field, FieldHandle, Scope, Shape, Value, Visitor};

/// One event record. Fields are read from the packet when asked for.
#[derive(Debug, Clone, Copy)]
pub struct EventRecord<'a> {
    trace: &'a TraceClass,
    stream: &'a StreamClass,
    class: &'a EventRecordClass,
    info: &'a PacketInfo,
    decoder: &'a Decoder,
    mark: &'a Mark,
    bytes: &'a [u8],
}

impl<'a> EventRecord<'a> {
    pub(crate) const fn new(
        trace: &'a TraceClass,
        stream: &'a StreamClass,
        class: &'a EventRecordClass,
        info: &'a PacketInfo,
        decoder: &'a Decoder,
        mark: &'a Mark,
        bytes: &'a [u8],
    ) -> Self {
        Self { trace, stream, class, info, decoder, mark, bytes }
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
    pub fn index(&self) -> u64 {
        self.decoder.index()
    }

    /// The clock's value in cycles; `None` without a clock.
    #[must_use]
    pub fn clock_value(&self) -> Option<u64> {
        self.mark.clock()
    }

    /// Nanoseconds since the clock's origin; `None` without a clock. See [`crate::ClockClass::to_ns`].
    #[must_use]
    pub fn timestamp_ns(&self) -> Option<i64> {
        self.mark.timestamp()
    }

    /// Where it begins, in bits from the packet's beginning, before alignment.
    #[must_use]
    pub const fn begin_bits(&self) -> u64 {
        self.mark.begin
    }

    /// Where it ends, in bits from the packet's beginning.
    #[must_use]
    pub const fn end_bits(&self) -> u64 {
        self.mark.end
    }

    pub(crate) const fn context(&self) -> Context<'a> {
        self.decoder.context(self.bytes)
    }

    /// The programs that its trace class's event records are decoded by, which no other trace class shares.
    pub(crate) const fn programs(&self) -> &'a Arc<Programs> {
        &self.decoder.programs
    }

    /// The layout of a scope, its owner's index, its anchors and where it begins.
    #[inline]
    pub(crate) fn part(&self, scope: Scope) -> Option<Part<'a>> {
        let layout = self.layout(scope)?;
        let owner = match scope {
            Scope::EventHeader => {
                let (owner, begin) = (self.stream.index, self.mark.begin);
                return Some(Part { layout, owner, anchors: &[], begin });
            }
            Scope::EventCommonContext => self.stream.index,
            _ => self.class.index,
        };
        let base = self.decoder.program(self.mark.class)?.base(scope)?;
        let anchors = self.decoder.anchors(self.mark, base)?;
        Some(Part { layout, owner, anchors, begin: *anchors.first()? })
    }

    /// A field's value; `None` when the handle is of another class.
    #[must_use]
    #[inline]
    pub fn get(&self, handle: FieldHandle) -> Option<Value<'a>> {
        let part = self.part(handle.scope).filter(|part| part.owner == handle.owner)?;
        let Some(place) = handle.place else { return self.search(part, handle.node) };
        let anchor = part.anchors.get(usize::try_from(place.segment).ok()?)?;
        let pos = anchor.checked_add(place.offset)?;
        let context = self.context();
        if let Some(Then::Repeat { node, register, stride }) =
            part.layout.segment(place).map(|segment| segment.then)
            && node == handle.node
        {
            // The register may be of an event record ahead.
            let next = part.anchors.get(usize::try_from(place.segment).ok()? + 1)?;
            let length = next.checked_sub(pos)?.checked_div(stride);
            let slot = context.registers.get(usize::try_from(register).ok()?)?;
            slot.set(length.unwrap_or_else(|| slot.get()));
        }
        context.value(part.layout, handle.node, pos)
    }

    /// A field's number, as [`Value::as_u64`] gives it, without making a [`Value`] of most integers.
    #[must_use]
    #[inline]
    pub fn u64(&self, handle: FieldHandle) -> Option<u64> {
        match self.number(handle) {
            Some((true, raw)) => u64::try_from(raw.cast_signed()).ok(),
            Some((_, raw)) => Some(raw),
            None => self.get(handle)?.as_u64(),
        }
    }

    /// A field's number, as [`Value::as_i64`] gives it, without making a [`Value`] of most integers.
    #[must_use]
    #[inline]
    pub fn i64(&self, handle: FieldHandle) -> Option<i64> {
        match self.number(handle) {
            Some((true, raw)) => Some(raw.cast_signed()),
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

    /// An integer that has a place and is a number: whether it is signed, and its value with the sign extended.
    #[inline]
    fn number(&self, handle: FieldHandle) -> Option<(bool, u64)> {
        let place = handle.place?;
        if let Some(quick) = &handle.quick
            && let Some(begin) = self.segment(handle, place)
            && let Some(raw) = quick.read(self.bytes, begin)
        {
            return Some((quick.signed, raw));
        }
        self.placed_number(handle, place)
    }

    /// Where the segment of a context or payload begins that a field is in, in bits.
    #[inline]
    fn segment(&self, handle: FieldHandle, place: Place) -> Option<u64> {
        let owner = match handle.scope {
            Scope::EventCommonContext => self.stream.index,
            Scope::EventSpecificContext | Scope::Payload => self.class.index,
            _ => return None,
        };
        if owner != handle.owner {
            return None;
        }
        let base = self.decoder.program(self.mark.class)?.base(handle.scope)?;
        self.decoder.anchor(self.mark, base.checked_add(usize::try_from(place.segment).ok()?)?)
    }

    /// The same by the way that is open to all of them.
    #[inline(never)]
    fn placed_number(&self, handle: FieldHandle, place: Place) -> Option<(bool, u64)> {
        let part = self.part(handle.scope).filter(|part| part.owner == handle.owner)?;
        let Kind::Integer(int) = &part.layout.node(handle.node)?.kind else { return None };
        let anchor = part.anchors.get(usize::try_from(place.segment).ok()?)?;
        let raw = int.read(self.bytes, anchor.checked_add(place.offset)?)?;
        (int.meaning == Meaning::Number).then_some((int.signed, raw))
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

    /// Shows all fields of its contexts and its payload, scope after scope.
    #[inline(always)]
    pub fn visit_all(&self, visitor: &mut impl Visitor<'a>) {
        self.visit(Scope::EventCommonContext, visitor);
        self.visit(Scope::EventSpecificContext, visitor);
        self.visit(Scope::Payload, visitor);
    }

    /// The layout of a scope that is declared.
    #[inline]
    pub(crate) const fn layout(&self, scope: Scope) -> Option<&'a Layout> {
        match scope {
            Scope::EventHeader => self.stream.event_header.as_ref(),
            Scope::EventCommonContext => self.stream.event_context.as_ref(),
            Scope::EventSpecificContext => self.class.context.as_ref(),
            Scope::Payload => self.class.payload.as_ref(),
            Scope::PacketHeader | Scope::PacketContext => None,
        }
    }

    #[inline(always)]
    fn show(&self, part: Part<'a>, visitor: &mut impl Visitor<'a>) {
        // Finding the event record's end went over these very bits, so this cannot fail.
        let shown = if part.layout.shows.is_empty() || part.anchors.is_empty() {
            self.context().walk(part.layout, part.begin).run(0, true, visitor).is_ok()
        } else {
            show::run(self.decoder, self.bytes, part.layout, part.anchors, visitor).is_some()
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
