//! Fields of decoded event records: names, values, and ways to reach them.

use std::cell::Cell;
use std::iter;
use std::slice;

use crate::bits;
use crate::class::Base;
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Place, Role};
use crate::load::{Load, find_nul};
use crate::walk::{self, Stack, Walk};

/// Where in a packet a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Magic number, trace UUID, stream class id.
    PacketHeader,
    /// Sizes, times, counters and CPU of a packet.
    PacketContext,
    /// Id and time of an event record.
    EventHeader,
    /// The context that all event records of a data stream class carry (LTTng: `vtid`, `procname`, …).
    EventCommonContext,
    /// The context of one event record class.
    EventSpecificContext,
    /// The fields of one event record class.
    Payload,
}

impl Scope {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PacketHeader => "packet header",
            Self::PacketContext => "packet context",
            Self::EventHeader => "event header",
            Self::EventCommonContext => "stream event context",
            Self::EventSpecificContext => "event context",
            Self::Payload => "payload",
        }
    }
}

/// A field to get from many event records of one class; costs a comparison and an addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldHandle {
    pub(crate) scope: Scope,
    /// Index of the event record class or, for the common context, of the stream class.
    pub(crate) owner: u32,
    pub(crate) node: u32,
    pub(crate) place: Option<Place>,
    /// How to read it where its segment begins at a byte, if it is an integer that is just a number.
    pub(crate) quick: Option<Quick>,
}

/// An integer that one load reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quick {
    pub(crate) load: Load,
    pub(crate) signed: bool,
}

impl Quick {
    fn new(node: &Node) -> Option<Self> {
        let Kind::Integer(int) = &node.kind else { return None };
        let is_plain = int.meaning == Meaning::Number && !int.reversed;
        let load = Load::new(node.place?.offset, int.bits, int.order)?;
        is_plain.then_some(Self { load, signed: int.signed })
    }

    /// The value, its sign extended, of a segment that begins at a bit; `None` where that is not quick.
    #[inline]
    pub(crate) fn read(&self, data: &[u8], begin_bits: u64) -> Option<u64> {
        if begin_bits & 7 != 0 {
            return None;
        }
        let raw = self.load.read(data.get(usize::try_from(begin_bits >> 3).ok()?..)?)?;
        Some(if self.signed { self.load.sign_extended(raw) } else { raw })
    }
}

impl FieldHandle {
    pub(crate) fn find(layout: &Layout, scope: Scope, owner: u32, name: &str) -> Option<Self> {
        let mut node = 0;
        for part in name.split('.') {
            node = present(layout, Self::step(layout, present(layout, node), part)?);
        }
        let found = layout.node(node)?;
        Some(Self { scope, owner, node, place: found.place, quick: Quick::new(found) })
    }

    /// The member or option `name` of a compound. An option need not be named: then its members are the variant's, if
    /// no other option has one of that name.
    fn step(layout: &Layout, node: u32, name: &str) -> Option<u32> {
        match layout.node(node)?.kind {
            Kind::Structure => layout.member(node, name),
            Kind::Variant(_) => layout.member(node, name).or_else(|| {
                let options = layout.children(node).map(|(option, _)| present(layout, option));
                let mut members = options
                    .filter(|option| {
                        layout
                            .node(*option)
                            .is_some_and(|node| matches!(node.kind, Kind::Structure))
                    })
                    .filter_map(|option| layout.member(option, name));
                members.next().filter(|_| members.next().is_none())
            }),
            _ => None,
        }
    }
}

/// What an optional field is when it is there; any other node itself.
fn present(layout: &Layout, node: u32) -> u32 {
    let mut at = node;
    while layout.node(at).is_some_and(|node| matches!(node.kind, Kind::Optional(_))) {
        at += 1;
    }
    at
}

/// A field's value. Texts are borrowed from the packet and may be any bytes without NUL.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating point number; 32-bit ones are widened.
    Float(f64),
    /// A text without its NUL; not necessarily UTF-8.
    Str(&'a [u8]),
    /// A text in UTF-16 or UTF-32.
    WideStr(WideText<'a>),
    /// An integer with names for some values.
    Enum(EnumValue<'a>),
    /// A truth value (CTF 2).
    Bool(bool),
    /// Bits side by side, some of which may have names (CTF 2).
    Bits(BitsValue<'a>),
    /// Bytes (CTF 2).
    Blob(&'a [u8]),
    /// A structure, array or variant.
    Compound(Compound<'a>),
}

impl<'a> Value<'a> {
    /// The number, for integers and enumerations that are not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(number) => Some(number),
            Self::Bits(bits) => Some(bits.raw),
            Self::Bool(truth) => Some(truth.into()),
            Self::Signed(number) => u64::try_from(number).ok(),
            Self::Enum(value) => u64::try_from(value.number()).ok(),
            _ => None,
        }
    }

    /// The number, for integers and enumerations that fit.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(number) => i64::try_from(number).ok(),
            Self::Signed(number) => Some(number),
            Self::Enum(value) => i64::try_from(value.number()).ok(),
            _ => None,
        }
    }

    /// The bytes of a text, in its own encoding, or of a BLOB.
    #[must_use]
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Str(bytes) | Self::Blob(bytes) => Some(bytes),
            Self::WideStr(text) => Some(text.bytes),
            _ => None,
        }
    }
}

/// How a text's characters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// UTF-8, and whatever bytes CTF 1.8 tracers call text.
    #[default]
    Utf8,
    /// UTF-16, most significant byte first.
    Utf16Be,
    /// UTF-16, least significant byte first.
    Utf16Le,
    /// UTF-32, most significant byte first.
    Utf32Be,
    /// UTF-32, least significant byte first.
    Utf32Le,
}

impl Encoding {
    /// Bytes of a code unit.
    pub(crate) const fn unit_bytes(self) -> u64 {
        match self {
            Self::Utf8 => 1,
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }

    /// The bytes before the first NUL code unit, which lies at a multiple of the unit's size; `None` without one.
    pub(crate) fn before_nul(self, bytes: &[u8]) -> Option<&[u8]> {
        let unit = match self {
            Self::Utf8 => {
                return find_nul(bytes).and_then(|n| bytes.get(..n));
            }
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        };
        let units = bytes.chunks_exact(unit).position(|code| code.iter().all(|byte| *byte == 0))?;
        bytes.get(..units * unit)
    }
}

/// A text that is not in UTF-8, without its NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WideText<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
}

impl<'a> WideText<'a> {
    /// The bytes as they are in the packet.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The encoding of the bytes.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The characters; U+FFFD for what is none, an incomplete last code unit included.
    pub fn chars(&self) -> impl Iterator<Item = char> + use<'a> {
        let encoding = self.encoding;
        let unit = if encoding.unit_bytes() == 4 { 4 } else { 2 };
        let whole = self.bytes.chunks(unit).map(move |raw| {
            let complete = raw.len() == unit;
            let fold = |all: u32, byte: &u8| all << 8 | u32::from(*byte);
            let code = match encoding {
                Encoding::Utf16Be | Encoding::Utf32Be => raw.iter().fold(0, fold),
                _ => raw.iter().rev().fold(0, fold),
            };
            if complete { code } else { u32::MAX }
        });
        // UTF-32 code units pass through as they are; only UTF-16 has surrogate pairs.
        let mut units = whole.peekable();
        iter::from_fn(move || {
            let code = units.next()?;
            let is_pair = unit == 2 && (0xD800..0xDC00).contains(&code);
            let low =
                if is_pair { units.next_if(|low| (0xDC00..0xE000).contains(low)) } else { None };
            let scalar =
                low.map_or(code, |low| 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00));
            Some(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER))
        })
    }
}

/// The value of a bit array or bit map.
#[derive(Debug, Clone, Copy)]
pub struct BitsValue<'a> {
    pub(crate) raw: u64,
    pub(crate) bits: u8,
    pub(crate) flags: Option<&'a Mappings>,
}

impl<'a> BitsValue<'a> {
    /// The bits; the least significant one has position 0.
    #[must_use]
    pub const fn raw(&self) -> u64 {
        self.raw
    }

    /// How many bits there are: 1 to 64.
    #[must_use]
    pub const fn len_bits(&self) -> u8 {
        self.bits
    }

    /// The names of the flags of which at least one bit is set, in the order of the metadata.
    pub fn flags(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let raw = self.raw;
        let entries = self.flags.map_or(&[] as &[Mapping], |flags| &flags.entries);
        let is_set = move |entry: &&Mapping| {
            let bit = |at: i128| u32::try_from(at.clamp(0, 64)).unwrap_or(64);
            let below = |end: u32| if end >= 64 { u64::MAX } else { (1 << end) - 1 };
            entry.last >= 0
                && raw & below(bit(entry.last.saturating_add(1))) & !below(bit(entry.first)) != 0
        };
        let mut before: Option<&str> = None;
        entries.iter().filter(is_set).map(|entry| &*entry.label).filter(move |label| {
            // The ranges of one flag follow each other.
            before.replace(label) != Some(label)
        })
    }
}

/// The value of an enumeration field.
#[derive(Debug, Clone, Copy)]
pub struct EnumValue<'a> {
    pub(crate) raw: u64,
    pub(crate) signed: bool,
    pub(crate) mappings: &'a Mappings,
}

impl<'a> EnumValue<'a> {
    /// The number in the packet.
    #[must_use]
    pub fn number(&self) -> i128 {
        if self.signed { i128::from(self.raw.cast_signed()) } else { i128::from(self.raw) }
    }

    /// Whether the underlying integer is signed.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        self.signed
    }

    /// All labels of the number, in the order of the metadata; none is legal.
    pub fn labels(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.mappings.labels(self.number())
    }
}

/// The labels of an enumeration: each with an inclusive range of values, in the order of the metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mappings {
    pub(crate) entries: Vec<Mapping>,
    /// Positions in `entries` by rising begin, when no two ranges share a value.
    sorted: Option<Vec<u32>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) label: Box<str>,
    pub(crate) first: i128,
    pub(crate) last: i128,
}

impl Mappings {
    pub(crate) fn new(entries: Vec<Mapping>) -> Self {
        let mut order: Vec<(i128, i128, u32)> = (0_u32..)
            .zip(&entries)
            .map(|(index, entry)| (entry.first, entry.last, index))
            .collect();
        order.sort_unstable();
        let apart = order
            .iter()
            .zip(order.iter().skip(1))
            .all(|((_, last, _), (first, _, _))| last < first);
        let sorted = apart.then(|| order.into_iter().map(|(_, _, index)| index).collect());
        Self { entries, sorted }
    }

    fn entry(&self, index: u32) -> Option<&Mapping> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn labels(&self, value: i128) -> impl Iterator<Item = &str> + use<'_> {
        // One look-up when at most one range can hold the value, else all ranges in order.
        let candidates = match &self.sorted {
            Some(sorted) => {
                let after = sorted
                    .partition_point(|i| self.entry(*i).is_some_and(|entry| entry.first <= value));
                let found =
                    after.checked_sub(1).and_then(|at| sorted.get(at)).and_then(|i| self.entry(*i));
                found.map_or(&[] as &[Mapping], slice::from_ref)
            }
            None => &self.entries,
        };
        candidates
            .iter()
            .filter(move |e| e.first <= value && value <= e.last)
            .map(|entry| &*entry.label)
    }
}

/// A field as the metadata declares it.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) index: u32,
}

impl<'a> Field<'a> {
    /// Looked up when it is asked for, as who only wants the value does not ask.
    #[inline]
    pub(crate) fn node(&self) -> Option<&'a Node> {
        self.layout.node(self.index)
    }

    /// The integer class of an integer of either kind.
    #[inline]
    pub(crate) fn integer(&self) -> Option<&'a Integer> {
        match &self.node()?.kind {
            Kind::Integer(int) | Kind::VarInteger(int) => Some(int),
            _ => None,
        }
    }

    /// The name as shown: without the one leading underscore of the metadata; empty for array elements.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node().map_or("", Node::shown_name)
    }

    /// Position of the field's class in its scope: that of [`crate::FieldClass::position`].
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.index
    }

    /// The name as the metadata spells it.
    #[must_use]
    pub fn spelled_name(&self) -> &'a str {
        self.node().map_or("", |node| &node.name)
    }

    /// How an integer likes to be shown; decimal for everything else.
    #[must_use]
    pub fn base(&self) -> Base {
        self.integer().map_or(Base::Decimal, |int| int.base)
    }

    /// The width of a number in bits, 64 for those of variable length; 0 for everything else.
    #[must_use]
    pub fn bits(&self) -> u8 {
        match self.node().map(|node| &node.kind) {
            Some(Kind::Integer(int) | Kind::VarInteger(int)) => int.bits,
            Some(Kind::Float { bits, .. }) => *bits,
            _ => 0,
        }
    }

    /// Whether the packet reader itself uses the field: sizes, times, ids and counters of packets and event headers.
    #[must_use]
    pub fn is_structural(&self) -> bool {
        let role = match self.node().map(|node| &node.kind) {
            Some(Kind::Integer(int) | Kind::VarInteger(int)) => int.role,
            Some(Kind::Blob(_, blob)) => blob.role,
            _ => None,
        };
        role.is_some_and(|role| role != Role::CpuId)
    }
}

/// What a compound field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Named members.
    Structure,
    /// Nameless elements.
    Array {
        /// How many follow.
        length: u64,
    },
    /// One option, which carries the option's name.
    Variant,
    /// A field that may be absent.
    Optional {
        /// Whether the field follows.
        present: bool,
    },
}

/// Receives the fields of a scope in the order of the packet.
pub trait Visitor<'a> {
    /// A number, enumeration or text.
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>);

    /// An integer of variable length that takes `bits` bits, seven a byte. Without a method of its own, a scalar.
    fn variable_length(&mut self, field: Field<'a>, value: Value<'a>, bits: u8) {
        let _unasked = bits;
        self.scalar(field, value);
    }

    /// A compound field begins.
    fn enter(&mut self, field: Field<'a>, shape: Shape);

    /// The compound field that was entered last and not left ends.
    fn leave(&mut self, field: Field<'a>, shape: Shape);
}

/// Skips.
impl<'a> Visitor<'a> for () {
    fn scalar(&mut self, _: Field<'a>, _: Value<'a>) {}
    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

/// What reading fields of one event record needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) data: &'a [u8],
    /// Where the content ends, in bits.
    pub(crate) limit: u64,
    pub(crate) registers: &'a [Cell<u64>],
    pub(crate) stack: &'a Stack,
}

impl<'a> Context<'a> {
    pub(crate) fn walk(&self, layout: &'a Layout, pos: u64) -> Walk<'a> {
        Walk::new(*self, layout, pos)
    }

    /// The value of a node at a position that is already aligned for it.
    pub(crate) fn value(&self, layout: &'a Layout, index: u32, pos: u64) -> Option<Value<'a>> {
        let node = layout.node(index)?;
        match &node.kind {
            Kind::Structure | Kind::Array(_) | Kind::Variant(_) | Kind::Optional(_) => {
                Some(Value::Compound(Compound { context: *self, layout, node: index, pos }))
            }
            _ => walk::scalar(self, node, index, pos).ok().map(|(value, _)| value),
        }
    }
}

/// A structure, array or variant inside an event record.
#[derive(Clone, Copy)]
pub struct Compound<'a> {
    context: Context<'a>,
    layout: &'a Layout,
    node: u32,
    pos: u64,
}

impl std::fmt::Debug for Compound<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compound")
            .field("field", &self.layout.path(self.node))
            .field("bit", &self.pos)
            .finish()
    }
}

impl<'a> Compound<'a> {
    /// Visits the members, elements or option inside, without the compound itself.
    pub fn visit(&self, visitor: &mut impl Visitor<'a>) {
        // The reader went over these very bits when it found the event record's end, so this cannot fail.
        let walked = self.context.walk(self.layout, self.pos).run(self.node, true, visitor);
        debug_assert!(walked.is_ok());
    }

    /// What it holds: one that is optional is there.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self.layout.node(self.node).map(|node| &node.kind) {
            Some(Kind::Array(_)) => Shape::Array { length: self.length().unwrap_or(0) },
            Some(Kind::Variant(_)) => Shape::Variant,
            Some(Kind::Optional(_)) => Shape::Optional { present: true },
            _ => Shape::Structure,
        }
    }

    /// How many elements an array has.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self.layout.node(self.node)?.kind {
            Kind::Array(Length::Fixed(length)) => Some(length),
            Kind::Array(Length::Register(register)) => {
                walk::register(self.context.registers, register)
            }
            _ => None,
        }
    }

    /// The elements of an array of byte-wide integers, as the bytes they are.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        let element = self.layout.node(self.node + 1)?;
        let is_byte =
            matches!(&element.kind, Kind::Integer(int) if int.bits == 8) && element.align <= 8;
        let length = self.length().filter(|_| is_byte && self.pos.is_multiple_of(8))?;
        let begin = bits::align_up(self.pos, element.align)? / 8;
        let tail = self.context.data.get(usize::try_from(begin).ok()?..)?;
        tail.get(..usize::try_from(length).ok()?)
    }

    /// The elements of an array of integers, widened; `None` for anything else.
    #[must_use]
    pub fn integers(&self) -> Option<impl Iterator<Item = i128> + use<'a>> {
        let element = self.layout.node(self.node + 1)?;
        let Kind::Integer(int) = &element.kind else { return None };
        let (mut pos, context) = (self.pos, self.context);
        let mut left = self.length()?;
        Some(iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let begin = bits::align_up(pos, element.align)?;
            pos = begin.checked_add(u64::from(int.bits))?;
            let raw = int.read(context.data, begin)?;
            Some(if int.signed { i128::from(raw.cast_signed()) } else { i128::from(raw) })
        }))
    }
}
