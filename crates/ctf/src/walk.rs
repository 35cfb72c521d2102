//! Decoding node by node, for everything that has no constant place and for showing all fields.
//!
//! The stack is explicit and reused: nesting in the metadata costs no call depth and an event record no allocation.

use std::cell::Cell;
use std::fmt;

use crate::bits;
use crate::class::ByteOrder;
use crate::error::DecodeErrorKind;
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Register, UNSET};
use crate::load;
use crate::value::{
    BitsValue, Context, Encoding, EnumValue, Field, Shape, Value, Visitor, WideText,
};

/// A packet may have so many array elements of no size, and one more for each bit of content. They take no bits, so
/// nothing else bounds them.
pub(crate) const MAX_EMPTY_ELEMENTS: u64 = 1 << 16;

/// Bytes of the longest LEB128 integer that is read: 64 bits, seven a byte.
const MAX_LEB128_BYTES: usize = 10;

/// Why decoding stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) pos: u64,
    pub(crate) node: u32,
    pub(crate) kind: DecodeErrorKind,
}

/// A compound whose end has not been reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    node: u32,
    /// The next child of a structure, the one child of an array, the chosen option of a variant.
    child: u32,
    /// Children of an array or variant that are still to come.
    remaining: u64,
    shape: Shape,
    /// Where the element before began.
    before: Option<u64>,
}

/// What is kept from one walk to the next.
#[derive(Default)]
pub(crate) struct Stack {
    /// The frames of the walk under way, kept for their memory.
    frames: Cell<Vec<Frame>>,
    /// Array elements of no size in the packet so far.
    empty_elements: Cell<u64>,
}

impl Stack {
    /// Another packet begins.
    pub(crate) fn start_packet(&self) {
        self.empty_elements.set(0);
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stack")
    }
}

/// A decoder in the middle of a scope.
pub(crate) struct Walk<'a> {
    context: Context<'a>,
    layout: &'a Layout,
    pub(crate) pos: u64,
    /// Byte order of the scalar before; it may only change at a byte boundary.
    order: Option<ByteOrder>,
    empty_elements: u64,
    /// Whether array elements of no size count for the packet.
    is_first: bool,
}

impl<'a> Walk<'a> {
    pub(crate) const fn new(context: Context<'a>, layout: &'a Layout, pos: u64) -> Self {
        Self { context, layout, pos, order: None, empty_elements: 0, is_first: false }
    }

    /// Goes over this part of the packet for the first time, which is when its array elements of no size are counted.
    pub(crate) fn first(mut self) -> Self {
        self.is_first = true;
        self.empty_elements = self.context.stack.empty_elements.get();
        self
    }

    /// Continues after another scope whose last scalar had this byte order.
    pub(crate) const fn after(mut self, order: Option<ByteOrder>) -> Self {
        self.order = order;
        self
    }

    /// Goes through `start` and all it contains; `bare` leaves out entering and leaving `start` itself.
    /// Returns the byte order of the last scalar.
    pub(crate) fn run(
        &mut self,
        start: u32,
        bare: bool,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<Option<ByteOrder>, Fault> {
        let mut stack = self.context.stack.frames.take();
        stack.clear();
        let walked = self.run_on(&mut stack, start, bare, visitor);
        self.context.stack.frames.set(stack);
        if self.is_first {
            self.context.stack.empty_elements.set(self.empty_elements);
        }
        walked.map(|()| self.order)
    }

    fn run_on(
        &mut self,
        stack: &mut Vec<Frame>,
        start: u32,
        bare: bool,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        self.visit(stack, start, !bare, visitor)?;
        while let Some(frame) = stack.last_mut() {
            let Some(node) = self.layout.node(frame.node) else { break };
            if frame.shape == Shape::Structure {
                self.leading_scalars(frame, node.next, visitor)?;
            }
            if let Some(child) = self.next_child(frame, node)? {
                self.visit(stack, child, true, visitor)?;
            } else {
                let (index, shape) = (frame.node, frame.shape);
                stack.pop();
                if !(bare && stack.is_empty()) {
                    visitor.leave(Field { layout: self.layout, index }, shape);
                }
            }
        }
        Ok(())
    }

    /// Goes through the members of a structure up to its next compound.
    fn leading_scalars(
        &mut self,
        frame: &mut Frame,
        end: u32,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        while frame.child < end {
            let Some(node) = self.layout.node(frame.child) else { break };
            if matches!(
                node.kind,
                Kind::Structure | Kind::Array(_) | Kind::Variant(_) | Kind::Optional(_)
            ) {
                break;
            }
            self.pos = aligned(&self.context, self.pos, node.align, frame.child)?;
            self.scalar(node, frame.child, visitor)?;
            frame.child = node.next;
        }
        Ok(())
    }

    fn next_child(&mut self, frame: &mut Frame, node: &Node) -> Result<Option<u32>, Fault> {
        if frame.shape == Shape::Structure {
            let child = (frame.child < node.next).then_some(frame.child);
            if let Some(after) = child.and_then(|child| self.layout.node(child)) {
                frame.child = after.next;
            }
            return Ok(child);
        }
        let Some(remaining) = frame.remaining.checked_sub(1) else { return Ok(None) };
        frame.remaining = remaining;
        if frame.before == Some(self.pos) {
            self.empty_elements += 1;
            let limit = MAX_EMPTY_ELEMENTS.saturating_add(self.context.limit);
            if self.empty_elements > limit {
                let kind = DecodeErrorKind::EmptyElements { limit };
                return Err(Fault { pos: self.pos, node: frame.node, kind });
            }
        }
        frame.before = Some(self.pos);
        Ok(Some(frame.child))
    }

    fn visit(
        &mut self,
        stack: &mut Vec<Frame>,
        index: u32,
        announce: bool,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        let Some(node) = self.layout.node(index) else { return Ok(()) };
        self.pos = aligned(&self.context, self.pos, node.align, index)?;
        let (child, remaining, shape) = match &node.kind {
            Kind::Structure => (index + 1, 0, Shape::Structure),
            Kind::Array(length) => {
                let length = self.length(*length, index)?;
                (index + 1, length, Shape::Array { length })
            }
            Kind::Variant(selector) => {
                let raw = register(self.context.registers, selector.register).unwrap_or(0);
                for clear in &selector.clears {
                    set(self.context.registers, *clear, UNSET);
                }
                let option = selector.choose(raw).map_err(|selector| {
                    self.fault(index, DecodeErrorKind::NoOption { selector })
                })?;
                (option, 1, Shape::Variant)
            }
            Kind::Optional(selector) => {
                let raw = register(self.context.registers, selector.register).unwrap_or(0);
                let present = selector.choose(raw).is_ok();
                for clear in &selector.clears {
                    set(self.context.registers, *clear, UNSET);
                }
                (index + 1, u64::from(present), Shape::Optional { present })
            }
            _ => return self.scalar(node, index, visitor),
        };
        if announce {
            visitor.enter(Field { layout: self.layout, index }, shape);
        }
        stack.push(Frame { node: index, child, remaining, shape, before: None });
        Ok(())
    }

    #[inline]
    fn scalar(
        &mut self,
        node: &'a Node,
        index: u32,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        if let Kind::Integer(int) = &node.kind {
            return self.integer(int, index, visitor);
        }
        match &node.kind {
            Kind::VarInteger(int) => return self.var_integer(int, index, visitor),
            Kind::Float { order, .. } => self.check_order(*order, index)?,
            _ => {}
        }
        let (value, end) = scalar(&self.context, node, index, self.pos)?;
        self.pos = end;
        visitor.scalar(Field { layout: self.layout, index }, value);
        Ok(())
    }

    /// Most fields are integers, so they have a way of their own.
    #[inline]
    fn integer(
        &mut self,
        int: &'a Integer,
        index: u32,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        self.check_order(int.order, index)?;
        let end = advanced(&self.context, self.pos, u64::from(int.bits), index)?;
        let raw = int
            .read(self.context.data, self.pos)
            .ok_or_else(|| beyond(&self.context, self.pos, index, end))?;
        self.save(int, raw);
        self.pos = end;
        visitor.scalar(Field { layout: self.layout, index }, integer_value(int, raw));
        Ok(())
    }

    fn var_integer(
        &mut self,
        int: &'a Integer,
        index: u32,
        visitor: &mut impl Visitor<'a>,
    ) -> Result<(), Fault> {
        let (raw, end) = leb128(&self.context, int.signed, self.pos, index)?;
        self.save(int, raw);
        let bits = u8::try_from((end - self.pos) / 8 * 7).unwrap_or(u8::MAX);
        self.pos = end;
        visitor.variable_length(
            Field { layout: self.layout, index },
            integer_value(int, raw),
            bits,
        );
        Ok(())
    }

    /// Keeps the value for references to it.
    #[inline]
    fn save(&self, int: &Integer, raw: u64) {
        if let Some(save) = int.save {
            set(self.context.registers, save, raw);
        }
        for save in &int.shared_saves {
            set(self.context.registers, *save, raw);
        }
    }

    #[inline]
    fn check_order(&mut self, order: ByteOrder, index: u32) -> Result<(), Fault> {
        if !self.pos.is_multiple_of(8) && self.order.is_some_and(|before| before != order) {
            return Err(self.fault(index, DecodeErrorKind::ByteOrderChange));
        }
        self.order = Some(order);
        Ok(())
    }

    /// The length of an array, checked against what is left.
    fn length(&self, length: Length, index: u32) -> Result<u64, Fault> {
        let length = match length {
            Length::Fixed(length) => length,
            Length::Register(save) => register(self.context.registers, save).unwrap_or(0),
        };
        let least = self.layout.node(index + 1).map_or(0, |element| element.min_bits);
        let remaining_bits = self.context.limit.saturating_sub(self.pos);
        if length.checked_mul(least).is_none_or(|bits| bits > remaining_bits) {
            return Err(self.fault(index, DecodeErrorKind::Length { length, remaining_bits }));
        }
        Ok(length)
    }

    const fn fault(&self, node: u32, kind: DecodeErrorKind) -> Fault {
        Fault { pos: self.pos, node, kind }
    }
}

pub(crate) fn register(registers: &[Cell<u64>], register: Register) -> Option<u64> {
    registers.get(usize::try_from(register).ok()?).map(Cell::get)
}

fn set(registers: &[Cell<u64>], register: Register, value: u64) {
    if let Some(slot) = usize::try_from(register).ok().and_then(|i| registers.get(i)) {
        slot.set(value);
    }
}

/// The value of an integer field whose sign is extended already.
#[inline]
pub(crate) fn integer_value(int: &Integer, raw: u64) -> Value<'_> {
    match (int.meaning, &int.mappings) {
        (Meaning::Number, None) if int.signed => Value::Signed(raw.cast_signed()),
        (Meaning::Number, None) => Value::Unsigned(raw),
        (Meaning::Number, Some(mappings)) => {
            Value::Enum(EnumValue { raw, signed: int.signed, mappings })
        }
        (Meaning::Boolean, _) => Value::Bool(raw != 0),
        (Meaning::Bits, flags) => {
            Value::Bits(BitsValue { raw, bits: int.bits, flags: flags.as_deref() })
        }
    }
}

/// `pos` moved to a multiple of `align`; the padding must lie in the content.
#[inline]
pub(crate) fn aligned(
    context: &Context<'_>,
    pos: u64,
    align: u64,
    node: u32,
) -> Result<u64, Fault> {
    let end = bits::align_up(pos, align).unwrap_or(u64::MAX);
    if end <= context.limit { Ok(end) } else { Err(beyond(context, pos, node, end)) }
}

/// `pos` moved by `bits`, which must lie in the content.
#[inline]
pub(crate) fn advanced(
    context: &Context<'_>,
    pos: u64,
    bits: u64,
    node: u32,
) -> Result<u64, Fault> {
    let end = pos.saturating_add(bits);
    if end <= context.limit { Ok(end) } else { Err(beyond(context, pos, node, end)) }
}

#[cold]
pub(crate) const fn beyond(context: &Context<'_>, pos: u64, node: u32, end_bits: u64) -> Fault {
    Fault {
        pos,
        node,
        kind: DecodeErrorKind::BeyondContent { end_bits, content_bits: context.limit },
    }
}

/// The value of a scalar node at its aligned position, and where it ends.
#[inline]
pub(crate) fn scalar<'a>(
    context: &Context<'a>,
    node: &'a Node,
    index: u32,
    pos: u64,
) -> Result<(Value<'a>, u64), Fault> {
    let read = |bits: u8, order| {
        let end = advanced(context, pos, u64::from(bits), index)?;
        let raw = bits::read_uint(context.data, pos, bits, order)
            .ok_or(beyond(context, pos, index, end))?;
        Ok((raw, end))
    };
    match &node.kind {
        Kind::Integer(int) => {
            let end = advanced(context, pos, u64::from(int.bits), index)?;
            let raw = int.read(context.data, pos).ok_or(beyond(context, pos, index, end))?;
            Ok((integer_value(int, raw), end))
        }
        Kind::VarInteger(int) => {
            let (raw, end) = leb128(context, int.signed, pos, index)?;
            Ok((integer_value(int, raw), end))
        }
        Kind::Float { bits, order, reversed } => {
            let (raw, end) = read(*bits, *order)?;
            let raw = if *reversed { bits::reverse(raw, *bits) } else { raw };
            Ok((Value::Float(bits::float(raw, *bits)), end))
        }
        Kind::TextArray(length, _) | Kind::Blob(length, _) => {
            let length = match *length {
                Length::Fixed(length) => length,
                Length::Register(save) => register(context.registers, save).unwrap_or(0),
            };
            let remaining_bits = context.limit.saturating_sub(pos);
            let too_long = Fault {
                pos,
                node: index,
                kind: DecodeErrorKind::Length { length, remaining_bits },
            };
            let bits =
                length.checked_mul(8).filter(|bits| *bits <= remaining_bits).ok_or(too_long)?;
            let bytes =
                content(context, pos).and_then(|tail| tail.get(..usize::try_from(length).ok()?));
            let bytes = bytes.ok_or(too_long)?;
            Ok((bytes_value(&node.kind, bytes).ok_or(too_long)?, pos + bits))
        }
        Kind::Text(encoding) if *encoding != Encoding::Utf8 => {
            let found = content(context, pos).and_then(|tail| encoding.before_nul(tail));
            let text = found.ok_or(Fault {
                pos,
                node: index,
                kind: DecodeErrorKind::UnterminatedString,
            })?;
            let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX) + encoding.unit_bytes();
            Ok((text_value(text, *encoding), pos + bytes * 8))
        }
        _ => text(context, pos, index).map(|(text, end)| (Value::Str(text), end)),
    }
}

/// The value of a text array or BLOB that is these bytes.
pub(crate) fn bytes_value<'a>(kind: &Kind, bytes: &'a [u8]) -> Option<Value<'a>> {
    match kind {
        Kind::TextArray(_, encoding) => {
            Some(text_value(encoding.before_nul(bytes).unwrap_or(bytes), *encoding))
        }
        Kind::Blob(..) => Some(Value::Blob(bytes)),
        _ => None,
    }
}

const fn text_value(bytes: &[u8], encoding: Encoding) -> Value<'_> {
    match encoding {
        Encoding::Utf8 => Value::Str(bytes),
        _ => Value::WideStr(WideText { bytes, encoding }),
    }
}

/// The LEB128 integer at `pos`, its sign extended, and where it ends.
pub(crate) fn leb128(
    context: &Context<'_>,
    signed: bool,
    pos: u64,
    node: u32,
) -> Result<(u64, u64), Fault> {
    let fault = |kind| Fault { pos, node, kind };
    let tail = content(context, pos).unwrap_or_default();
    let (mut value, mut shift) = (0_u128, 0_u32);
    for byte in tail.iter().take(MAX_LEB128_BYTES) {
        value |= u128::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let end = pos + u64::from(shift / 7) * 8;
            let unused = 128 - shift;
            let number = if signed {
                let extended = (value << unused).cast_signed() >> unused;
                i64::try_from(extended).map(i64::cast_unsigned).ok()
            } else {
                u64::try_from(value).ok()
            };
            return number.map(|number| (number, end)).ok_or(fault(DecodeErrorKind::Oversized));
        }
    }
    if tail.len() >= MAX_LEB128_BYTES {
        return Err(fault(DecodeErrorKind::Oversized));
    }
    let available = u64::try_from(tail.len()).unwrap_or(u64::MAX);
    Err(beyond(context, pos, node, pos.saturating_add((available + 1) * 8)))
}

/// The text at `pos` without its NUL, and the position after the NUL.
#[inline]
pub(crate) fn text<'a>(
    context: &Context<'a>,
    pos: u64,
    node: u32,
) -> Result<(&'a [u8], u64), Fault> {
    let found = content(context, pos).and_then(|tail| tail.get(..load::find_nul(tail)?));
    let text = found.ok_or(Fault { pos, node, kind: DecodeErrorKind::UnterminatedString })?;
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok((text, pos + (bytes + 1) * 8))
}

/// The whole bytes of the content from the byte at `pos` on.
#[inline]
pub(crate) fn content<'a>(context: &Context<'a>, pos: u64) -> Option<&'a [u8]> {
    let begin = usize::try_from(pos / 8).ok()?;
    let end = usize::try_from(context.limit / 8).unwrap_or(usize::MAX).min(context.data.len());
    context.data.get(begin..end)
}
