//! Showing the fields of a scope whose segments are known: one flat list, without a stack.
//!
//! Going over an event record notes where each segment of a scope begins. Every field outside of arrays, variants and
//! optionals then lies at a constant distance from such an anchor, and what ends a segment ends where the next one
//! begins; so neither the ends of texts nor lengths are looked for again.

use crate::class::ByteOrder;
use crate::decoder::Decoder;
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Then};
use crate::value::{Context, Field, Shape, Value, Visitor};
use crate::walk;

/// One thing to show: a field so many bits after the beginning of its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    what: What,
    node: u32,
    offset: u32,
    /// The byte that holds the first of these bits.
    byte: u32,
}

impl Show {
    const fn new(what: What, node: u32, offset: u32) -> Self {
        Self { what, node, offset, byte: offset / 8 }
    }
}

/// How to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A number of whole bytes at a whole byte, if its segment begins at one; least significant byte first, and without
    /// names for values.
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F64,
    /// Any other number without names for values, if its segment begins at a whole byte; least significant byte first.
    Unsigned(Word),
    /// The same, signed.
    Signed(Word),
    /// The same, most significant byte first.
    UnsignedBig(Word),
    SignedBig(Word),
    /// A floating point number of 64 bits, the same.
    DoubleBig(Word),
    /// Any other integer that nothing refers to.
    Integer,
    /// Anything else of constant size that is no compound.
    Scalar,
    Enter,
    Leave,
    /// The segment's end, and the next one.
    Next,
    /// UTF-8 up to the next segment, whose last byte is the NUL.
    Text,
    /// Text in an array, or a BLOB, up to the next segment.
    Bytes,
    /// An array of numbers, side by side, up to the next segment.
    Numbers,
    /// An array of as many numbers, side by side, as the metadata say.
    FixedNumbers,
    /// Node by node; also an integer that a later field refers to.
    Walk,
}

/// How to cut a number out of the eight bytes that begin where it does: first to the left, then to the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    left: u8,
    right: u8,
}

/// The list for a layout whose places are all known; else empty.
pub(crate) fn compile(layout: &Layout) -> Vec<Show> {
    let mut shows = Vec::new();
    let mut open: Vec<u32> = Vec::new();
    let (mut at, mut segment) = (1, 0);
    while let Some(node) = layout.node(at) {
        close(layout, &mut open, at, &mut shows);
        let Some(place) = node.place else { return Vec::new() };
        while segment < place.segment {
            shows.push(Show::new(What::Next, 0, 0));
            segment += 1;
        }
        let what = what(layout, at, node);
        let Ok(offset) = u32::try_from(place.offset) else { return Vec::new() };
        shows.push(Show::new(what, at, offset));
        at = if what == What::Enter {
            open.push(at);
            at + 1
        } else {
            node.next
        };
    }
    close(layout, &mut open, u32::MAX, &mut shows);
    shows
}

/// Leaves the structures that end before node `at`.
fn close(layout: &Layout, open: &mut Vec<u32>, at: u32, shows: &mut Vec<Show>) {
    let is_over = |open: &mut u32| layout.node(*open).is_none_or(|node| node.next <= at);
    while let Some(node) = open.pop_if(is_over) {
        shows.push(Show::new(What::Leave, node, 0));
    }
}

fn what(layout: &Layout, index: u32, node: &Node) -> What {
    let place = node.place;
    let segment = place.and_then(|place| layout.segment(place));
    let (Some(place), Some(segment)) = (place, segment) else { return What::Walk };
    let elements = || layout.node(index + 1).is_some_and(Node::is_number);
    match (&node.kind, segment.then) {
        (Kind::Structure, _) => What::Enter,
        (_, Then::Walk(end)) if end == index => What::Walk,
        (_, Then::Text(end)) if end == index => What::Text,
        (Kind::TextArray(..) | Kind::Blob(..), Then::Repeat { node: end, .. }) if end == index => {
            What::Bytes
        }
        (_, Then::Repeat { node: end, .. }) if end == index && elements() => What::Numbers,
        (Kind::Array(Length::Fixed(_)), _) if elements() => What::FixedNumbers,
        (Kind::Integer(int), _) if !int.is_saved() => match Word::of(int, place.offset) {
            Some(word) => match (int.signed, int.order) {
                (_, ByteOrder::Little) if place.offset.is_multiple_of(8) => What::bytewise(int)
                    .unwrap_or(if int.signed { What::Signed(word) } else { What::Unsigned(word) }),
                (false, ByteOrder::Little) => What::Unsigned(word),
                (true, ByteOrder::Little) => What::Signed(word),
                (false, ByteOrder::Big) => What::UnsignedBig(word),
                (true, ByteOrder::Big) => What::SignedBig(word),
            },
            None => What::Integer,
        },
        (Kind::Float { bits: 64, order, reversed: false }, _) => {
            match (Word::new(64, place.offset, *order), order) {
                (Some(_), ByteOrder::Little) if place.offset.is_multiple_of(8) => What::F64,
                (Some(word), ByteOrder::Big) => What::DoubleBig(word),
                _ => What::Scalar,
            }
        }
        (Kind::Float { .. } | Kind::TextArray(..) | Kind::Blob(..), _) => What::Scalar,
        _ => What::Walk,
    }
}

impl What {
    /// An integer of one, two, four or eight bytes.
    const fn bytewise(int: &Integer) -> Option<Self> {
        Some(match (int.bits, int.signed) {
            (8, false) => Self::U8,
            (16, false) => Self::U16,
            (32, false) => Self::U32,
            (64, false) => Self::U64,
            (8, true) => Self::I8,
            (16, true) => Self::I16,
            (32, true) => Self::I32,
            (64, true) => Self::I64,
            _ => return None,
        })
    }
}

impl Word {
    /// `None` for an integer that does not lie in eight bytes or is more than a number.
    fn of(int: &Integer, offset_bits: u64) -> Option<Self> {
        let is_plain = !int.reversed && int.meaning == Meaning::Number && int.mappings.is_none();
        Self::new(int.bits, offset_bits, int.order).filter(|_| is_plain)
    }

    /// `None` when the bits do not lie in eight bytes.
    fn new(bits: u8, offset_bits: u64, order: ByteOrder) -> Option<Self> {
        let first = u8::try_from(offset_bits % 8).ok()?;
        let after = 64_u8.checked_sub(first.checked_add(bits)?)?;
        let left = if order == ByteOrder::Big { first } else { after };
        Some(Self { left, right: 64_u8.checked_sub(bits)? })
    }

    /// The field in the eight bytes as a number.
    #[inline(always)]
    const fn unsigned(self, word: u64) -> u64 {
        word << (self.left & 63) >> (self.right & 63)
    }

    #[inline(always)]
    const fn signed(self, word: u64) -> i64 {
        (word << (self.left & 63)).cast_signed() >> (self.right & 63)
    }
}

/// The bytes from byte `at` on.
#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.wrapping_add(N))?.first_chunk().copied()
}

/// The eight bytes from byte `at` on, least significant first.
#[inline(always)]
fn little(bytes: &[u8], at: usize) -> Option<u64> {
    chunk(bytes, at).map(u64::from_le_bytes)
}

/// The same, most significant first.
#[inline(always)]
fn big(bytes: &[u8], at: usize) -> Option<u64> {
    little(bytes, at).map(u64::swap_bytes)
}

/// Shows all fields; `anchors` begins with the beginning of the first segment. `None` when they do not lie in the
/// content, where finding the event record's end would have met them.
#[inline(never)]
pub(crate) fn run<'a>(
    decoder: &'a Decoder,
    data: &'a [u8],
    layout: &'a Layout,
    anchors: &[u64],
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let (begin, mut rest) = anchors.split_first()?;
    let mut begin = *begin;
    let mut bytes = tail(data, begin);
    for show in &layout.shows {
        let field = Field { layout, index: show.node };
        let at = usize::try_from(show.byte).ok()?;
        match show.what {
            What::U8 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(u8::from_le_bytes(raw).into()));
            }
            What::U16 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(u16::from_le_bytes(raw).into()));
            }
            What::U32 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(u32::from_le_bytes(raw).into()));
            }
            What::U64 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(u64::from_le_bytes(raw)));
            }
            What::I8 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Signed(i8::from_le_bytes(raw).into()));
            }
            What::I16 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Signed(i16::from_le_bytes(raw).into()));
            }
            What::I32 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Signed(i32::from_le_bytes(raw).into()));
            }
            What::I64 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Signed(i64::from_le_bytes(raw)));
            }
            What::F64 if let Some(raw) = chunk(bytes, at) => {
                visitor.scalar(field, Value::Float(f64::from_le_bytes(raw)));
            }
            What::Unsigned(cut) if let Some(word) = little(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(cut.unsigned(word)));
            }
            What::Signed(cut) if let Some(word) = little(bytes, at) => {
                visitor.scalar(field, Value::Signed(cut.signed(word)));
            }
            What::UnsignedBig(cut) if let Some(word) = big(bytes, at) => {
                visitor.scalar(field, Value::Unsigned(cut.unsigned(word)));
            }
            What::SignedBig(cut) if let Some(word) = big(bytes, at) => {
                visitor.scalar(field, Value::Signed(cut.signed(word)));
            }
            What::Text if let Some(text) = text(bytes, at, begin, rest) => {
                visitor.scalar(field, Value::Str(text));
            }
            What::Next => {
                (begin, rest) = rest.split_first().map(|(begin, rest)| (*begin, rest))?;
                bytes = tail(data, begin);
            }
            _ => unusual(&decoder.context(data), layout, show, (begin, rest.first()), visitor)?,
        }
    }
    Some(())
}

/// The text at byte `at` of the segment whose first bit is `begin`, without the NUL before the next segment.
#[inline(always)]
fn text<'a>(bytes: &'a [u8], at: usize, begin: u64, rest: &[u64]) -> Option<&'a [u8]> {
    let len = rest.first()?.wrapping_sub(begin) / 8;
    bytes.get(at..usize::try_from(len).ok()?.checked_sub(1)?)
}

/// What is rare, or takes so long that a call does not matter.
#[inline(never)]
fn unusual<'a>(
    context: &Context<'a>,
    layout: &'a Layout,
    show: &Show,
    (begin, end): (u64, Option<&u64>),
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let index = show.node;
    let field = Field { layout, index };
    let (node, end) = (field.node()?, end.copied());
    let pos = begin.checked_add(show.offset.into())?;
    match show.what {
        What::Enter => visitor.enter(field, Shape::Structure),
        What::Leave => visitor.leave(field, Shape::Structure),
        What::U8
        | What::U16
        | What::U32
        | What::U64
        | What::I8
        | What::I16
        | What::I32
        | What::I64
        | What::Unsigned(_)
        | What::UnsignedBig(_)
        | What::Signed(_)
        | What::SignedBig(_)
        | What::Integer => {
            let Kind::Integer(int) = &node.kind else { return None };
            let raw = int.read(context.data, pos)?;
            visitor.scalar(field, walk::integer_value(int, raw));
        }
        What::Bytes => {
            let bytes = between(context, pos, end?)?;
            visitor.scalar(field, walk::bytes_value(&node.kind, bytes)?);
        }
        What::F64 | What::DoubleBig(_) | What::Scalar => {
            visitor.scalar(field, walk::scalar(context, node, index, pos).ok()?.0);
        }
        What::Numbers => numbers(context, field, (pos, end), visitor)?,
        What::FixedNumbers => numbers(context, field, (pos, None), visitor)?,
        What::Text => {
            visitor.scalar(field, Value::Str(between(context, pos, end?.checked_sub(8)?)?));
        }
        What::Next => return None,
        What::Walk => {
            context.walk(layout, pos).run(index, false, visitor).ok()?;
        }
    }
    Some(())
}

/// The data from bit `pos` on; none when that is no byte's first, so that numbers go the general way.
#[inline]
fn tail(data: &[u8], pos: u64) -> &[u8] {
    if !pos.is_multiple_of(8) {
        return &[];
    }
    usize::try_from(pos / 8).ok().and_then(|begin| data.get(begin..)).unwrap_or_default()
}

/// The bytes from one bit position to another, both at whole bytes.
#[inline]
fn between<'a>(context: &Context<'a>, begin: u64, end: u64) -> Option<&'a [u8]> {
    context.data.get(usize::try_from(begin / 8).ok()?..usize::try_from(end / 8).ok()?)
}

/// An array of numbers: where the first one begins, and where the last one ends when the metadata do not say how many
/// they are.
fn numbers<'a>(
    context: &Context<'a>,
    array: Field<'a>,
    (begin, end): (u64, Option<u64>),
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let element = Field { index: array.index + 1, ..array };
    let (node, index) = (element.node()?, element.index);
    let stride = node.min_bits;
    let length = match (&array.node()?.kind, end) {
        (Kind::Array(Length::Fixed(length)), None) => *length,
        (_, end) => end?.checked_sub(begin)?.checked_div(stride)?,
    };
    let shape = Shape::Array { length };
    visitor.enter(array, shape);
    let cut = match &node.kind {
        Kind::Integer(int) => Word::of(int, 0).map(|cut| (cut, int.signed, int.order)),
        _ => None,
    };
    let mut pos = begin;
    for _ in 0..length {
        let at = usize::try_from(pos / 8).ok()?;
        let word = match cut.filter(|_| pos.is_multiple_of(8)) {
            Some((cut, signed, ByteOrder::Little)) => {
                little(context.data, at).map(|word| (cut, signed, word))
            }
            Some((cut, signed, ByteOrder::Big)) => {
                big(context.data, at).map(|word| (cut, signed, word))
            }
            None => None,
        };
        let value = match word {
            Some((cut, true, word)) => Value::Signed(cut.signed(word)),
            Some((cut, false, word)) => Value::Unsigned(cut.unsigned(word)),
            None => walk::scalar(context, node, index, pos).ok()?.0,
        };
        visitor.scalar(element, value);
        pos += stride;
    }
    visitor.leave(array, shape);
    Some(())
}
