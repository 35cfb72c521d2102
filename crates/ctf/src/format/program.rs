//! One flat program for each event record class, which writes its lines.
//!
//! ```text
//! "vm sched_switch: "             packet context
//! "{ prev_comm = \""              text of 16 bytes at byte 0
//! "\", prev_tid = "               signed decimal, 32 bits at byte 16
//! …                               …
//! " }\n"                          nothing
//! ```
//!
//! Everything that is the same in all event records of a class stands in literals, made once. Going over an event record
//! noted where the segments of its scopes begin (see [`crate::layout`]), so that most values lie at a constant distance
//! from such an anchor; they are read by one load of eight bytes. What has no constant place, and what is rare, goes
//! through [`Visitor`] as any reader's fields do.

use crate::bits;
use crate::class::ByteOrder;
use crate::event::EventRecord;
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Place, Then};
use crate::load::find_nul;
use crate::value::{Context, Encoding, Field, Scope, Shape, Value, Visitor};
use crate::walk;

use super::number::{
    SHORT_LIMIT, decimal, general, general_digits, hexadecimal, hexadecimal_digits, long_digits,
    short_digits, signed_decimal,
};
use super::output::{Cursor, Output, SHORT};
use super::quote::{self, Escapes};
use super::stream::StreamText;

/// Arrays of up to so many numbers are written as so many values, each with a literal of its own.
const UNROLLED: u64 = 64;

/// A program of so many operations unrolls no more arrays.
const UNROLLING_OPS: usize = 4_096;

/// A literal, then a value.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) literal: [u8; SHORT],
    /// How much of the literal there is.
    pub(crate) len: u8,
    pub(crate) what: What,
    /// The value's field in the layout of its scope, and its distance from the segment's beginning in bits.
    pub(crate) node: u32,
    pub(crate) offset: u32,
}

/// What follows a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Nothing,
    /// The folder of the stream's trace, after a slash if `slash`.
    Folder {
        slash: bool,
    },
    /// The packet's context, and a comma when there is one and more follows.
    Packet {
        more: bool,
    },
    /// The first segment of a scope begins.
    Scope(Scope),
    /// The next segment begins.
    Segment,
    /// Decimal.
    Unsigned(Load),
    Signed(Load),
    /// An unsigned number in hexadecimal.
    Hexadecimal(Load),
    /// A floating point number of 64 bits, with six significant digits.
    General(Load),
    /// UTF-8 up to the next segment, whose last byte is the NUL.
    Text,
    /// UTF-8 up to the next segment or a NUL.
    TextToNul,
    /// UTF-8 of so many bytes or up to a NUL.
    FixedText {
        bytes: u32,
    },
    /// Any other field that is no compound and of constant size.
    Scalar,
    /// An array of numbers, side by side, up to the next segment.
    Numbers,
    /// Node by node.
    Walk,
    /// All of a scope, node by node.
    Visit(Scope),
}

/// How to cut a number out of the eight bytes that begin where it does: first to the left, then to the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    byte: u32,
    left: u8,
    right: u8,
    big: bool,
}

impl Load {
    /// `None` for a number that does not lie in eight bytes or is more than a number.
    pub(crate) fn of(int: &Integer, offset_bits: u32) -> Option<Self> {
        let is_plain = !int.reversed && int.meaning == Meaning::Number && int.mappings.is_none();
        Self::new(int.bits, offset_bits, int.order).filter(|_| is_plain)
    }

    /// `None` for bits that do not lie in eight bytes.
    fn new(bits: u8, offset_bits: u32, order: ByteOrder) -> Option<Self> {
        let first = u8::try_from(offset_bits % 8).ok()?;
        let after = 64_u8.checked_sub(first.checked_add(bits)?)?;
        let big = order == ByteOrder::Big;
        Some(Self {
            byte: offset_bits / 8,
            left: if big { first } else { after },
            right: 64_u8.checked_sub(bits)?,
            big,
        })
    }

    /// The number's bits, most significant first, from the top of the word; `bytes` begin where the segment does.
    #[inline(always)]
    fn top(self, bytes: &[u8]) -> Option<u64> {
        let raw = *bytes.get(usize::try_from(self.byte).ok()?..)?.first_chunk()?;
        let word = if self.big { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) };
        Some(word << (self.left & 63))
    }

    /// The number; `None` when eight bytes are not there.
    #[inline(always)]
    pub(crate) fn unsigned(self, bytes: &[u8]) -> Option<u64> {
        Some(self.top(bytes)? >> (self.right & 63))
    }

    /// As [`Self::unsigned`], signed.
    #[inline(always)]
    pub(crate) fn signed(self, bytes: &[u8]) -> Option<i64> {
        Some(self.top(bytes)?.cast_signed() >> (self.right & 63))
    }
}

/// A form of lines: what stands between values, and how values are written.
pub(crate) trait Form {
    /// Writes fields one by one.
    type Fields<'o>: for<'a> Visitor<'a>
    where
        Self: 'o;

    /// Before the `number`th member of a structure or, without a name, element of an array.
    fn label(&self, out: &mut Output, scope: Scope, number: u64, name: Option<&str>);

    fn open(&self, out: &mut Output, compound: Compound);
    fn close(&self, out: &mut Output, compound: Compound);

    /// How a number is written, and what stands before it; `None` if only [`Self::scalar`] can.
    fn number(&self, out: &mut Output, int: &Integer, load: Load) -> Option<What>;
    /// The same of a floating point number of 64 bits.
    fn float(&self, out: &mut Output, load: Load) -> Option<What>;
    fn after_number(&self, out: &mut Output);

    /// What stands before and after text.
    fn before_text(&self, out: &mut Output);
    fn after_text(&self, out: &mut Output);

    /// What is escaped in texts that are otherwise written as they are.
    type Escapes: Escapes;

    /// A text, with escapes.
    fn text(&self, out: &mut Output, text: &[u8]);
    /// Any value but a compound's.
    fn scalar(&self, out: &mut Output, field: &Field<'_>, value: Value<'_>);
    /// A visitor for one value whose label stands already.
    fn value<'o>(&'o mut self, out: &'o mut Output, scope: Scope) -> Self::Fields<'o>;
    /// The root structure of a scope, whose members `visit` shows.
    fn structure(
        &mut self,
        out: &mut Output,
        scope: Scope,
        visit: impl FnOnce(&mut Self::Fields<'_>),
    );
}

/// A compound that a program opens and closes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compound {
    Structure,
    Array,
}

/// Makes a program.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    ops: Vec<Op>,
    /// Literal text since the last value.
    pub(crate) literal: Output,
    scope: Option<Scope>,
}

impl Builder {
    /// Ends the literal with a value.
    pub(crate) fn emit(&mut self, what: What, node: u32, offset: u32) {
        let mut rest = self.literal.as_bytes();
        while let Some((piece, after)) = rest.split_at_checked(SHORT).filter(|(_, r)| !r.is_empty())
        {
            self.ops.push(Op::new(piece, What::Nothing, 0, 0));
            rest = after;
        }
        self.ops.push(Op::new(rest, what, node, offset));
        self.literal.clear();
    }

    /// Ends the literal with something that is no field.
    pub(crate) fn emit_bare(&mut self, what: What) {
        self.emit(what, 0, 0);
    }

    /// The program.
    pub(crate) fn finish(mut self) -> Box<[Op]> {
        self.emit_bare(What::Nothing);
        self.ops.into()
    }

    /// A scope's root structure and all that is in it.
    pub(crate) fn scope(&mut self, form: &impl Form, scope: Scope, layout: &Layout) {
        let checkpoint = (self.ops.len(), self.literal.clone());
        if self.try_scope(form, scope, layout).is_none() {
            self.ops.truncate(checkpoint.0);
            self.literal = checkpoint.1;
            self.emit_bare(What::Visit(scope));
        }
    }

    /// `None` when something of the scope has no place, or holds values that depend on what was decoded last.
    fn try_scope(&mut self, form: &impl Form, scope: Scope, layout: &Layout) -> Option<()> {
        self.scope = Some(scope);
        if layout.nodes.iter().any(is_shared) {
            return None;
        }
        self.emit_bare(What::Scope(scope));
        form.open(&mut self.literal, Compound::Structure);
        // Structures that are open: where they end, and how many members came.
        let mut open = vec![(u32::MAX, 0_u64)];
        let (mut at, mut segment) = (1, 0);
        while let Some(node) = layout.node(at) {
            self.close(form, &mut open, at);
            let place = node.place?;
            while segment < place.segment {
                self.emit_bare(What::Segment);
                segment += 1;
            }
            if let Some((_, count)) = open.last_mut() {
                form.label(&mut self.literal, scope, *count, Some(node.shown_name()));
                *count += 1;
            }
            if matches!(node.kind, Kind::Structure) {
                form.open(&mut self.literal, Compound::Structure);
                open.push((node.next, 0));
                at += 1;
            } else {
                self.value(form, layout, at, node, place)?;
                at = node.next;
            }
        }
        self.close(form, &mut open, u32::MAX);
        Some(())
    }

    /// Closes the structures that end before node `at`.
    fn close(&mut self, form: &impl Form, open: &mut Vec<(u32, u64)>, at: u32) {
        while open.pop_if(|(end, _)| *end <= at).is_some() {
            form.close(&mut self.literal, Compound::Structure);
        }
    }

    fn value(
        &mut self,
        form: &impl Form,
        layout: &Layout,
        index: u32,
        node: &Node,
        place: Place,
    ) -> Option<()> {
        let offset = u32::try_from(place.offset).ok()?;
        let then = layout.segment(place)?.then;
        let ends_segment = match then {
            Then::Text(end) | Then::Walk(end) | Then::Repeat { node: end, .. } => end == index,
            Then::End | Then::Align(_) => false,
        };
        let what = match (&node.kind, then) {
            (_, Then::Walk(_)) if ends_segment => What::Walk,
            (Kind::Text(Encoding::Utf8), Then::Text(_)) if ends_segment => What::Text,
            (Kind::TextArray(_, Encoding::Utf8), Then::Repeat { .. }) if ends_segment => {
                What::TextToNul
            }
            (Kind::Array(_), Then::Repeat { .. }) if ends_segment => {
                let is_numbers = layout.node(index + 1).is_some_and(Node::is_number);
                if is_numbers { What::Numbers } else { What::Walk }
            }
            (_, Then::Repeat { .. } | Then::Text(_)) if ends_segment => What::Walk,
            (Kind::Array(Length::Fixed(length)), _) => {
                if let Some(element) = layout.node(index + 1).filter(|node| node.is_number())
                    && *length <= UNROLLED
                    && self.ops.len() < UNROLLING_OPS
                {
                    return self.unrolled(form, (index + 1, element), offset, *length);
                }
                What::Walk
            }
            (Kind::Structure | Kind::Array(_) | Kind::Variant(_) | Kind::Optional(_), _) => {
                What::Walk
            }
            _ => return self.scalar(form, index, node, offset),
        };
        let is_text = matches!(what, What::Text | What::TextToNul);
        if is_text {
            form.before_text(&mut self.literal);
        }
        self.emit(what, index, offset);
        if is_text {
            form.after_text(&mut self.literal);
        }
        Some(())
    }

    fn scalar(&mut self, form: &impl Form, index: u32, node: &Node, offset: u32) -> Option<()> {
        match &node.kind {
            Kind::Integer(int) => {
                let load = Load::of(int, offset);
                let what = load.and_then(|load| form.number(&mut self.literal, int, load));
                self.emit(what.unwrap_or(What::Scalar), index, offset);
                if what.is_some() {
                    form.after_number(&mut self.literal);
                }
            }
            Kind::Float { bits: 64, order, reversed: false } => {
                let load = Load::new(64, offset, *order);
                let what = load.and_then(|load| form.float(&mut self.literal, load));
                self.emit(what.unwrap_or(What::Scalar), index, offset);
                if what.is_some() {
                    form.after_number(&mut self.literal);
                }
            }
            Kind::TextArray(Length::Fixed(bytes), Encoding::Utf8) => {
                let bytes = u32::try_from(*bytes).ok()?;
                form.before_text(&mut self.literal);
                self.emit(What::FixedText { bytes }, index, offset);
                form.after_text(&mut self.literal);
            }
            _ => self.emit(What::Scalar, index, offset),
        }
        Some(())
    }

    /// An array of so many numbers.
    fn unrolled(
        &mut self,
        form: &impl Form,
        (index, element): (u32, &Node),
        offset: u32,
        length: u64,
    ) -> Option<()> {
        let stride = u32::try_from(element.min_bits).ok()?;
        form.open(&mut self.literal, Compound::Array);
        let scope = self.scope.unwrap_or(Scope::Payload);
        let mut begin = offset;
        for number in 0..length {
            form.label(&mut self.literal, scope, number, None);
            self.scalar(form, index, element, begin)?;
            begin = begin.checked_add(stride)?;
        }
        form.close(&mut self.literal, Compound::Array);
        Some(())
    }
}

/// Whether a register that the field is kept in may be another field's, or depends on options.
fn is_shared(node: &Node) -> bool {
    match &node.kind {
        Kind::Integer(int) | Kind::VarInteger(int) => !int.shared_saves.is_empty(),
        Kind::Variant(selector) | Kind::Optional(selector) => !selector.clears.is_empty(),
        _ => false,
    }
}

impl Op {
    fn new(text: &[u8], what: What, node: u32, offset: u32) -> Self {
        let mut literal = [0; SHORT];
        literal.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
        Self { literal, len: u8::try_from(text.len()).unwrap_or(u8::MAX), what, node, offset }
    }
}

/// Room for a literal and any number, and as much again.
const OP_ROOM: usize = 2 * SHORT;

/// Room for the texts of a line, so that most lines ask for room once.
const TEXT_ROOM: usize = 1_024;

/// Writes the line of an event record of the class that `ops` are for.
pub(crate) fn run<F: Form>(
    ops: &[Op],
    form: &mut F,
    record: &EventRecord<'_>,
    stream: &StreamText,
    out: &mut Output,
) {
    let mut at = Position::new(record);
    // What the operations to come need, without texts.
    let mut room = ops.len().saturating_mul(OP_ROOM);
    let mut line = out.cursor(room.saturating_add(TEXT_ROOM));
    for op in ops {
        room = room.saturating_sub(OP_ROOM);
        line.put(&op.literal, usize::from(op.len));
        match op.what {
            What::Unsigned(load) if let Some(value) = load.unsigned(at.bytes) => {
                put_decimal(&mut line, value);
            }
            What::Signed(load) if let Some(value) = load.signed(at.bytes) => {
                line.put(b"-", usize::from(value < 0));
                put_decimal(&mut line, value.unsigned_abs());
            }
            What::General(load)
                if let Some(bits) = load.unsigned(at.bytes)
                    && let Some((digits, count)) = general_digits(f64::from_bits(bits)) =>
            {
                line.put(&digits, count);
            }
            What::Hexadecimal(load) if let Some(value) = load.unsigned(at.bytes) => {
                let (digits, count) = hexadecimal_digits(value);
                line.put(&digits, count);
            }
            What::Scope(scope) => at.enter(scope),
            What::Segment => at.next(),
            What::Nothing => {}
            What::Packet { more } if stream.packet.is_short() => {
                line.put_piece(&stream.packet);
                line.put(b", ", if more && !stream.packet.is_empty() { 2 } else { 0 });
            }
            What::Text | What::TextToNul | What::FixedText { .. }
                if let Some((bytes, len)) = at.text(op) =>
            {
                let done = if line.left() >= OP_ROOM.saturating_add(room).saturating_add(len) {
                    quote::plain_words::<F::Escapes>(&mut line, bytes, len)
                } else {
                    0
                };
                if done < len {
                    let written = line.written();
                    out.advance(written);
                    form.text(out, bytes.get(done..len).unwrap_or_default());
                    line = out.cursor(room.saturating_add(TEXT_ROOM));
                }
            }
            _ => {
                let written = line.written();
                out.advance(written);
                unusual(op, form, at, stream, out);
                line = out.cursor(room.saturating_add(TEXT_ROOM));
            }
        }
    }
    let written = line.written();
    out.advance(written);
}

#[inline(always)]
fn put_decimal(line: &mut Cursor<'_>, value: u64) {
    if value < SHORT_LIMIT {
        let (digits, count) = short_digits(value);
        line.put(&digits, count);
    } else {
        let (digits, count) = long_digits(value);
        line.put(&digits, count);
    }
}

/// Where in an event record a program is.
#[derive(Debug, Clone, Copy)]
struct Position<'r, 'a> {
    record: &'r EventRecord<'a>,
    context: Context<'a>,
    scope: Scope,
    layout: Option<&'a Layout>,
    /// Those of the segments that are to come.
    anchors: &'a [u64],
    /// Where the segment begins, in bits.
    begin: u64,
    /// The packet from there on; empty when that is no byte's beginning, so that numbers go the general way.
    bytes: &'a [u8],
}

impl<'r, 'a> Position<'r, 'a> {
    fn new(record: &'r EventRecord<'a>) -> Self {
        let context = record.context();
        let scope = Scope::Payload;
        Self { record, context, scope, layout: None, anchors: &[], begin: 0, bytes: &[] }
    }

    #[inline(always)]
    fn enter(&mut self, scope: Scope) {
        if let Some(part) = self.record.part(scope) {
            (self.scope, self.layout, self.anchors) = (scope, Some(part.layout), part.anchors);
            self.next();
        }
    }

    #[inline(always)]
    fn next(&mut self) {
        let Some((begin, rest)) = self.anchors.split_first() else { return };
        (self.begin, self.anchors) = (*begin, rest);
        let first = usize::try_from(begin / 8).ok().filter(|_| begin.is_multiple_of(8));
        self.bytes = first.and_then(|first| self.context.data.get(first..)).unwrap_or_default();
    }

    /// A text that begins at a whole byte: the packet from there on, and the text's length.
    #[inline(always)]
    fn text(&self, op: &Op) -> Option<(&'a [u8], usize)> {
        let begin = u64::from(op.offset);
        let bytes = self.bytes.get(usize::try_from(begin / 8).ok()?..)?;
        let to_segment_end = || {
            let bits = self.anchors.first()?.checked_sub(self.begin)?.checked_sub(begin)?;
            usize::try_from(bits / 8).ok()
        };
        let before_nul = |len: usize| {
            let text = bytes.get(..len)?;
            Some(find_nul(text).unwrap_or(len))
        };
        let len = match op.what {
            What::FixedText { bytes } => before_nul(usize::try_from(bytes).ok()?)?,
            What::TextToNul => before_nul(to_segment_end()?)?,
            _ => to_segment_end()?.checked_sub(1)?,
        };
        (len <= bytes.len()).then_some((bytes, len))
    }
}

/// What is rare, or takes so long that a call does not matter.
#[inline(never)]
fn unusual<F: Form>(
    op: &Op,
    form: &mut F,
    at: Position<'_, '_>,
    stream: &StreamText,
    out: &mut Output,
) -> Option<()> {
    let before_nul = |bytes| Encoding::Utf8.before_nul(bytes).unwrap_or(bytes);
    match op.what {
        What::Packet { more } => {
            out.piece(&stream.packet);
            if more && !stream.packet.is_empty() {
                out.fixed(b", ");
            }
            return Some(());
        }
        What::Folder { slash } => {
            if slash && !stream.folder.is_empty() {
                out.push(b'/');
            }
            out.push_bytes(stream.folder.as_bytes());
            return Some(());
        }
        What::Visit(scope) => {
            form.structure(out, scope, |fields| at.record.visit(scope, fields));
            return Some(());
        }
        _ => {}
    }
    let pos = at.begin.checked_add(op.offset.into())?;
    let (layout, data) = (at.layout?, at.context.data);
    let node = layout.node(op.node)?;
    let field = Field { layout, index: op.node };
    match op.what {
        What::FixedText { bytes } => {
            let tail = data.get(usize::try_from(pos / 8).ok()?..)?;
            form.text(out, before_nul(tail.get(..usize::try_from(bytes).ok()?)?));
        }
        What::TextToNul => {
            let end = usize::try_from(at.anchors.first()? / 8).ok()?;
            form.text(out, before_nul(data.get(usize::try_from(pos / 8).ok()?..end)?));
        }
        // The end of the packet is too near for eight bytes, or the segment is off the bytes' borders.
        What::Unsigned(_) | What::Signed(_) | What::Hexadecimal(_) => {
            let Kind::Integer(int) = &node.kind else { return None };
            let raw = int.read(data, pos)?;
            match op.what {
                What::Hexadecimal(_) => hexadecimal(out, raw),
                What::Signed(_) => signed_decimal(out, raw.cast_signed()),
                _ => decimal(out, raw),
            }
        }
        What::General(load) if let Some(bits) = load.unsigned(at.bytes) => {
            general(out, f64::from_bits(bits));
        }
        What::General(_) => {
            let Kind::Float { bits, order, .. } = node.kind else { return None };
            general(out, f64::from_bits(bits::read_uint(data, pos, bits, order)?));
        }
        What::Scalar => {
            let (value, _) = walk::scalar(&at.context, node, op.node, pos).ok()?;
            form.scalar(out, &field, value);
        }
        What::Numbers => numbers(op, form, at, (layout, field, pos), out)?,
        What::Walk => {
            let mut fields = form.value(out, at.scope);
            at.context.walk(layout, pos).run(op.node, false, &mut fields).ok()?;
        }
        _ => {}
    }
    Some(())
}

/// An array of numbers of one size, side by side, up to the next segment.
fn numbers<F: Form>(
    op: &Op,
    form: &mut F,
    at: Position<'_, '_>,
    (layout, array, begin): (&Layout, Field<'_>, u64),
    out: &mut Output,
) -> Option<()> {
    let index = op.node + 1;
    let node = layout.node(index)?;
    let length = at.anchors.first()?.checked_sub(begin)?.checked_div(node.min_bits)?;
    let mut fields = form.value(out, at.scope);
    let shape = Shape::Array { length };
    fields.enter(array, shape);
    let mut pos = begin;
    for _ in 0..length {
        let (value, end) = walk::scalar(&at.context, node, index, pos).ok()?;
        fields.scalar(Field { layout, index }, value);
        pos = end;
    }
    fields.leave(array, shape);
    Some(())
}
