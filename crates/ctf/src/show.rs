//! Showing the fields of a scope whose segments are known: one flat list, without a stack.
//!
//! Going over an event record notes where each segment of a scope begins. Every field outside of arrays, variants and
//! optionals then lies at a constant distance from such an anchor, and what ends a segment ends where the next one
//! begins; so neither the ends of texts nor lengths are looked for again.

use crate::class::ByteOrder;
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Then};
use crate::value::{Context, Field, Shape, Value, Visitor};
use crate::walk;

/// One thing to show: a field `offset` bits after the beginning of its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    offset: u64,
    node: u32,
    what: What,
}

/// How to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A number without names for values, if its segment begins at a whole byte.
    Unsigned(Word),
    /// The same, signed.
    Signed(Word),
    /// A floating point number of 64 bits, if its segment begins at a whole byte.
    Double(Word),
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
    big: bool,
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
            shows.push(Show { offset: 0, node: 0, what: What::Next });
            segment += 1;
        }
        let what = what(layout, at, node);
        shows.push(Show { offset: place.offset, node: at, what });
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
        shows.push(Show { offset: 0, node, what: What::Leave });
    }
}

fn what(layout: &Layout, index: u32, node: &Node) -> What {
    let place = node.place;
    let segment = place.and_then(|place| layout.segments.get(usize::try_from(place.segment).ok()?));
    let (Some(place), Some(segment)) = (place, segment) else { return What::Walk };
    let elements = || layout.node(index + 1).is_some_and(|element| is_number(&element.kind));
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
            Some(word) if int.signed => What::Signed(word),
            Some(word) => What::Unsigned(word),
            None => What::Integer,
        },
        (Kind::Float { bits: 64, order, reversed: false }, _) => {
            Word::new(64, place.offset, *order).map_or(What::Scalar, What::Double)
        }
        (Kind::Float { .. } | Kind::TextArray(..) | Kind::Blob(..), _) => What::Scalar,
        _ => What::Walk,
    }
}

/// Whether it is a number of constant size that nothing refers to.
const fn is_number(kind: &Kind) -> bool {
    match kind {
        Kind::Integer(int) => !int.is_saved(),
        Kind::Float { .. } => true,
        _ => false,
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
        let big = order == ByteOrder::Big;
        Some(Self { left: if big { first } else { after }, right: 64_u8.checked_sub(bits)?, big })
    }

    /// The eight bytes as a number whose most significant bits are the field's.
    #[inline(always)]
    fn top(self, bytes: &[u8], offset_bits: u64) -> Option<u64> {
        let raw = *bytes.get(usize::try_from(offset_bits / 8).ok()?..)?.first_chunk()?;
        let word = if self.big { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) };
        Some(word << (self.left & 63))
    }

    #[inline(always)]
    fn unsigned(self, top: u64) -> u64 {
        top >> (self.right & 63)
    }

    #[inline(always)]
    fn signed(self, top: u64) -> i64 {
        top.cast_signed() >> (self.right & 63)
    }
}

/// Shows all fields; `anchors` begins with the beginning of the first segment. `None` when they do not lie in the
/// content, where finding the event record's end would have met them.
#[inline]
pub(crate) fn run<'a>(
    context: &Context<'a>,
    layout: &'a Layout,
    anchors: &[u64],
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let mut anchors = anchors.iter().copied();
    let (mut begin, mut end) = (anchors.next()?, anchors.next());
    let mut bytes = tail(context, begin);
    for Show { offset, node: index, what } in &layout.shows {
        if *what == What::Next {
            (begin, end) = (end?, anchors.next());
            bytes = tail(context, begin);
            continue;
        }
        let node = layout.node(*index)?;
        let field = Field { node, index: *index };
        match *what {
            What::Unsigned(word) if let Some(top) = word.top(bytes, *offset) => {
                visitor.scalar(field, Value::Unsigned(word.unsigned(top)));
            }
            What::Signed(word) if let Some(top) = word.top(bytes, *offset) => {
                visitor.scalar(field, Value::Signed(word.signed(top)));
            }
            What::Double(word) if let Some(top) = word.top(bytes, *offset) => {
                visitor.scalar(field, Value::Float(f64::from_bits(word.unsigned(top))));
            }
            What::Text => {
                let text = between(context, begin + offset, end?.checked_sub(8)?)?;
                visitor.scalar(field, Value::Str(text));
            }
            other => unusual(context, layout, field, (other, begin + offset, end), visitor)?,
        }
    }
    Some(())
}

/// What is rare, or takes so long that a call does not matter.
#[inline(never)]
fn unusual<'a>(
    context: &Context<'a>,
    layout: &'a Layout,
    field: Field<'a>,
    (what, pos, end): (What, u64, Option<u64>),
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let Field { node, index } = field;
    match what {
        What::Enter => visitor.enter(field, Shape::Structure),
        What::Leave => visitor.leave(field, Shape::Structure),
        What::Unsigned(_) | What::Signed(_) | What::Integer => {
            let Kind::Integer(int) = &node.kind else { return None };
            let raw = int.read(context.data, pos)?;
            visitor.scalar(field, walk::integer_value(int, raw));
        }
        What::Bytes => {
            let bytes = between(context, pos, end?)?;
            visitor.scalar(field, walk::bytes_value(&node.kind, bytes)?);
        }
        What::Double(_) | What::Scalar => {
            visitor.scalar(field, walk::scalar(context, node, index, pos).ok()?.0);
        }
        What::Numbers => numbers(context, layout, field, (pos, end), visitor)?,
        What::FixedNumbers => numbers(context, layout, field, (pos, None), visitor)?,
        What::Text | What::Next => return None,
        What::Walk => {
            context.walk(layout, pos).run(index, false, visitor).ok()?;
        }
    }
    Some(())
}

/// The data from bit `pos` on; none when that is no byte's first, so that numbers go the general way.
#[inline]
fn tail<'a>(context: &Context<'a>, pos: u64) -> &'a [u8] {
    let begin = usize::try_from(pos / 8).ok().filter(|_| pos.is_multiple_of(8));
    begin.and_then(|begin| context.data.get(begin..)).unwrap_or_default()
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
    layout: &'a Layout,
    array: Field<'a>,
    (begin, end): (u64, Option<u64>),
    visitor: &mut impl Visitor<'a>,
) -> Option<()> {
    let index = array.index + 1;
    let node = layout.node(index)?;
    let element = Field { node, index };
    let stride = node.min_bits;
    let length = match (&array.node.kind, end) {
        (Kind::Array(Length::Fixed(length)), None) => *length,
        (_, end) => end?.checked_sub(begin)?.checked_div(stride)?,
    };
    let shape = Shape::Array { length };
    visitor.enter(array, shape);
    let word = match &node.kind {
        Kind::Integer(int) => Word::of(int, 0).map(|word| (word, int.signed)),
        _ => None,
    };
    let mut pos = begin;
    for _ in 0..length {
        let top = word
            .filter(|_| pos.is_multiple_of(8))
            .and_then(|(word, signed)| Some((word, signed, word.top(context.data, pos)?)));
        let value = match top {
            Some((word, true, top)) => Value::Signed(word.signed(top)),
            Some((word, false, top)) => Value::Unsigned(word.unsigned(top)),
            None => walk::scalar(context, node, index, pos).ok()?.0,
        };
        visitor.scalar(element, value);
        pos += stride;
    }
    visitor.leave(array, shape);
    Some(())
}
