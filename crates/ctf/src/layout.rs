//! One scope's field classes, flat and compiled.
//!
//! A **layout** is the structure of one scope (packet header, packet context, event header, two event contexts,
//! payload) as a list of nodes in the order of decoding: a node is followed by what it contains, `next` tells where
//! its successor is. From it a **program** is compiled: segments of constant size, each ended by something whose size
//! only the data tell. A field outside of arrays and variants then has a **place**: a segment and a constant distance
//! from that segment's beginning.

use std::sync::Arc;

use crate::bits;
use crate::class::{Base, ByteOrder};
use crate::show::{self, Show};
use crate::value::{Encoding, Mappings};

/// The number of a slot that keeps a field's value for references to it.
pub(crate) type Register = u32;

/// What a field means to the reader itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The packet's first 32 bits, 0xC1FC1FC1.
    Magic,
    /// The UUID of the trace (CTF 1.8) or of the metadata stream (CTF 2), or a byte of it.
    TraceUuid,
    /// The id of the packet's data stream class.
    StreamClassId,
    /// Tells the streams of one class apart.
    StreamInstanceId,
    /// The packet's length with padding, in bits.
    PacketTotal,
    /// The packet's length without padding, in bits.
    PacketContent,
    /// The clock's value in cycles: at the packet's beginning or of an event record.
    ClockTimestamp,
    /// The clock's value in cycles at the packet's end.
    PacketEnd,
    /// The stream's count of discarded event records.
    DiscardedEvents,
    /// Counts the stream's packets.
    SequenceNumber,
    /// The id of the event record's class; the last one in a header counts.
    EventClassId,
    /// The CPU that wrote the packet, by name (`cpu_id`) and not declared.
    CpuId,
}

/// What the bits of an integer stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// A number; mappings name values.
    Number,
    /// True when any bit is set (CTF 2).
    Boolean,
    /// Bits side by side (CTF 2); mappings name their positions, 0 being the least significant.
    Bits,
}

/// A number of bits with a meaning: a field of constant size, or LEB128 in [`Kind::VarInteger`].
#[derive(Debug, Clone)]
pub(crate) struct Integer {
    /// 1 to 64; 64 for LEB128.
    pub(crate) bits: u8,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    /// The first bit is the one that is last by `order` alone (CTF 2, `bit-order`).
    pub(crate) reversed: bool,
    pub(crate) base: Base,
    pub(crate) meaning: Meaning,
    pub(crate) role: Option<Role>,
    /// Further roles of the same field (CTF 2).
    pub(crate) more_roles: Box<[Role]>,
    pub(crate) save: Option<Register>,
    /// Registers of references that may lead here or to other fields, of which the one decoded last counts.
    pub(crate) shared_saves: Box<[Register]>,
    pub(crate) mappings: Option<Arc<Mappings>>,
}

impl Integer {
    /// An unsigned number.
    pub(crate) fn unsigned(bits: u8, order: ByteOrder) -> Self {
        Self {
            bits,
            signed: false,
            order,
            reversed: false,
            base: Base::Decimal,
            meaning: Meaning::Number,
            role: None,
            more_roles: Box::default(),
            save: None,
            shared_saves: Box::default(),
            mappings: None,
        }
    }

    /// All its roles.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        self.role.into_iter().chain(self.more_roles.iter().copied())
    }

    /// Whether references lead here.
    pub(crate) const fn is_saved(&self) -> bool {
        self.save.is_some() || !self.shared_saves.is_empty()
    }

    /// The value at bit `pos`, its sign extended; `None` when it is not all there.
    #[inline]
    pub(crate) fn read(&self, data: &[u8], pos: u64) -> Option<u64> {
        let raw = bits::read_uint(data, pos, self.bits, self.order)?;
        let raw = if self.reversed { bits::reverse(raw, self.bits) } else { raw };
        Some(if self.signed { bits::sign_extend(raw, self.bits).cast_unsigned() } else { raw })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    Fixed(u64),
    Register(Register),
}

#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) register: Register,
    pub(crate) signed: bool,
    /// Sorted, without overlap: first value, last value, number of the option.
    pub(crate) ranges: Vec<(i128, i128, u32)>,
    /// The node of each option.
    pub(crate) options: Vec<u32>,
    /// Registers of references into single options, or into an optional field: unset unless that is chosen.
    pub(crate) clears: Vec<Register>,
}

/// What a register holds when the field it is of was not decoded. No length and no selector's label.
pub(crate) const UNSET: u64 = u64::MAX;

impl Selector {
    /// The option node for a raw selector value.
    pub(crate) fn choose(&self, raw: u64) -> Result<u32, i128> {
        let value = if self.signed { i128::from(raw.cast_signed()) } else { i128::from(raw) };
        let after = self.ranges.partition_point(|(first, _, _)| *first <= value);
        let range = after
            .checked_sub(1)
            .and_then(|i| self.ranges.get(i))
            .filter(|(_, last, _)| value <= *last);
        let option =
            range.and_then(|(_, _, option)| self.options.get(usize::try_from(*option).ok()?));
        option.copied().ok_or(value)
    }
}

#[derive(Debug)]
pub(crate) enum Kind {
    Integer(Integer),
    /// An integer in LEB128: seven bits a byte, the least significant first.
    VarInteger(Integer),
    Float {
        bits: u8,
        order: ByteOrder,
        /// As [`Integer::reversed`].
        reversed: bool,
    },
    /// Text up to and with a NUL code unit.
    Text(Encoding),
    /// Text in an array of so many bytes; ends early at the first NUL code unit.
    TextArray(Length, Encoding),
    /// So many bytes.
    Blob(Length, Box<Blob>),
    Structure,
    /// The one child is the element.
    Array(Length),
    /// The children are the options.
    Variant(Box<Selector>),
    /// The one child is there when the selector chooses it.
    Optional(Box<Selector>),
}

/// What is known of bytes without further meaning to the reader.
#[derive(Debug, Default)]
pub(crate) struct Blob {
    /// The IANA media type; empty when none is declared.
    pub(crate) media_type: Box<str>,
    pub(crate) role: Option<Role>,
}

/// Where a field outside of arrays and variants is: `offset` bits after the beginning of segment `segment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// As spelled in the metadata; empty for array elements and for the root.
    pub(crate) name: Box<str>,
    /// How many bytes of the name are left out where it is shown: CTF 1.8's one underscore.
    pub(crate) prefix: u8,
    pub(crate) kind: Kind,
    /// In bits, a power of two.
    pub(crate) align: u64,
    /// The node after this one and all it contains.
    pub(crate) next: u32,
    /// The fewest bits it can take, without padding.
    pub(crate) min_bits: u64,
    pub(crate) place: Option<Place>,
}

impl Node {
    /// The name without the one underscore that keeps it apart from keywords.
    pub(crate) fn shown_name(&self) -> &str {
        self.name.get(usize::from(self.prefix)..).unwrap_or(&self.name)
    }

    /// Whether it is a number of constant size that nothing refers to, and elements of it lie side by side.
    pub(crate) fn is_number(&self) -> bool {
        let is_number = match &self.kind {
            Kind::Integer(int) => !int.is_saved(),
            Kind::Float { .. } => true,
            _ => false,
        };
        is_number && self.min_bits.is_multiple_of(self.align)
    }
}

/// A run of constant size, then something of a size that the data tell.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) bits: u64,
    pub(crate) saves: Vec<Save>,
    pub(crate) then: Then,
}

/// An integer whose value a later field refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Save {
    pub(crate) offset: u64,
    pub(crate) bits: u8,
    pub(crate) signed: bool,
    pub(crate) order: ByteOrder,
    pub(crate) reversed: bool,
    pub(crate) register: Register,
}

impl Save {
    /// The value to keep, of a segment that begins at `pos`; `None` when it is not all there.
    pub(crate) fn read(&self, data: &[u8], pos: u64) -> Option<u64> {
        let raw = bits::read_uint(data, pos.checked_add(self.offset)?, self.bits, self.order)?;
        let raw = if self.reversed { bits::reverse(raw, self.bits) } else { raw };
        Some(if self.signed { bits::sign_extend(raw, self.bits).cast_unsigned() } else { raw })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    End,
    /// Padding to a multiple of so many bits.
    Align(u64),
    /// Bytes up to and with a NUL, at a byte boundary.
    Text(u32),
    /// As many elements of `stride` bits as the register says.
    Repeat {
        register: Register,
        stride: u64,
        node: u32,
    },
    /// Node by node.
    Walk(u32),
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<Node>,
    /// The root's alignment in bits.
    pub(crate) align: u64,
    pub(crate) segments: Vec<Segment>,
    /// A power of two that divides the position of its end.
    pub(crate) end_align: u64,
    /// How to show all fields; empty when a place is not known.
    pub(crate) shows: Vec<Show>,
}

impl Layout {
    /// Compiles nodes whose first is the root structure.
    pub(crate) fn compile(mut nodes: Vec<Node>) -> Self {
        let sizes = measure(&mut nodes);
        let align = nodes.first().map_or(1, |root| root.align);
        let (segments, end_align) = Compiler::new(align).run(&mut nodes, &sizes);
        let mut layout = Self { nodes, align, segments, end_align, shows: Vec::new() };
        layout.shows = show::compile(&layout);
        layout
    }

    /// Whether fields must be read while the registers hold the values of their event record.
    ///
    /// Not for texts and for numbers side by side that end a segment: how many they are is known from where the next one
    /// begins.
    pub(crate) fn needs_registers(&self) -> bool {
        let ends_segment = |index: u32, node: &Node| {
            let segment = node.place.and_then(|place| self.segment(place));
            let then = segment.filter(|_| !self.shows.is_empty()).map(|segment| segment.then);
            matches!(then, Some(Then::Repeat { node: end, stride, .. }) if end == index && stride > 0)
        };
        (0..).zip(&self.nodes).any(|(index, node)| match &node.kind {
            Kind::Variant(_) | Kind::Optional(_) => true,
            Kind::TextArray(Length::Register(_), encoding) => {
                *encoding != Encoding::Utf8 || !ends_segment(index, node)
            }
            Kind::Array(Length::Register(_)) => {
                !self.node(index + 1).is_some_and(Node::is_number) || !ends_segment(index, node)
            }
            Kind::Blob(Length::Register(_), _) => true,
            _ => false,
        })
    }

    /// The segment that a place lies in.
    pub(crate) fn segment(&self, place: Place) -> Option<&Segment> {
        self.segments.get(usize::try_from(place.segment).ok()?)
    }

    pub(crate) fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(index).ok()?)
    }

    /// Direct children of a node, in order.
    pub(crate) fn children(&self, parent: u32) -> impl Iterator<Item = (u32, &Node)> {
        let end = self.node(parent).map_or(0, |node| node.next);
        let mut at = parent + 1;
        std::iter::from_fn(move || {
            let node = (at < end).then(|| self.node(at)).flatten()?;
            let index = std::mem::replace(&mut at, node.next);
            Some((index, node))
        })
    }

    pub(crate) fn member_names(&self) -> impl Iterator<Item = &str> {
        self.children(0).map(|(_, node)| node.shown_name())
    }

    /// The child of `parent` with this name: as spelled first, else as shown.
    pub(crate) fn member(&self, parent: u32, name: &str) -> Option<u32> {
        let spelled = self.children(parent).find(|(_, node)| &*node.name == name);
        spelled
            .or_else(|| self.children(parent).find(|(_, node)| node.shown_name() == name))
            .map(|(index, _)| index)
    }

    pub(crate) fn role_bits(&self, role: Role) -> Option<u8> {
        self.nodes.iter().find_map(|node| match &node.kind {
            Kind::Integer(int) | Kind::VarInteger(int) => {
                int.roles().any(|known| known == role).then_some(int.bits)
            }
            _ => None,
        })
    }

    /// The names from the root to a node, with dots between.
    pub(crate) fn path(&self, target: u32) -> String {
        let mut path = String::new();
        let (mut at, mut end) = (1, self.node(0).map_or(0, |root| root.next));
        while let Some(node) = self.node(at).filter(|_| at < end && at <= target) {
            if target >= node.next {
                at = node.next;
                continue;
            }
            if !path.is_empty() && !node.name.is_empty() {
                path.push('.');
            }
            path.push_str(node.shown_name());
            if matches!(node.kind, Kind::Array(_)) {
                path.push_str("[]");
            }
            (at, end) = (at + 1, node.next);
        }
        path
    }
}

/// Fills in the least sizes, and returns for each node its exact size in bits when that is always the same and
/// elements of it lie next to each other without padding.
fn measure(nodes: &mut [Node]) -> Vec<Option<u64>> {
    let mut sizes = vec![None; nodes.len()];
    for index in (0..nodes.len()).rev() {
        let (min, size) = measure_one(nodes, &sizes, index);
        if let (Some(node), Some(slot)) = (nodes.get_mut(index), sizes.get_mut(index)) {
            node.min_bits = min;
            *slot = size;
        }
    }
    sizes
}

fn measure_one(nodes: &[Node], sizes: &[Option<u64>], index: usize) -> (u64, Option<u64>) {
    let Some(node) = nodes.get(index) else { return (0, None) };
    let child = || Some((nodes.get(index + 1)?.min_bits, *sizes.get(index + 1)?));
    match &node.kind {
        Kind::Integer(int) => {
            let bits = u64::from(int.bits);
            (bits, (!int.is_saved()).then_some(bits))
        }
        Kind::Float { bits, .. } => (u64::from(*bits), Some(u64::from(*bits))),
        Kind::VarInteger(_) => (8, None),
        Kind::Text(encoding) => (encoding.unit_bytes() * 8, None),
        Kind::TextArray(Length::Fixed(length), _) | Kind::Blob(Length::Fixed(length), _) => {
            (length.saturating_mul(8), length.checked_mul(8))
        }
        Kind::TextArray(Length::Register(_), _)
        | Kind::Blob(Length::Register(_), _)
        | Kind::Array(Length::Register(_))
        | Kind::Optional(_) => (0, None),
        Kind::Array(Length::Fixed(length)) => {
            let (min, size) = child().unwrap_or((0, None));
            let stride = size.filter(|size| size % node.align == 0);
            (length.saturating_mul(min), stride.and_then(|stride| stride.checked_mul(*length)))
        }
        Kind::Structure => measure_structure(nodes, sizes, index),
        Kind::Variant(_) => {
            (children(nodes, index).map(|(_, option)| option.min_bits).min().unwrap_or(0), None)
        }
    }
}

fn measure_structure(nodes: &[Node], sizes: &[Option<u64>], index: usize) -> (u64, Option<u64>) {
    let (mut min, mut end) = (0_u64, Some(0_u64));
    for (child, node) in children(nodes, index) {
        min = min.saturating_add(node.min_bits);
        end = end.and_then(|end| {
            let begin = bits::align_up(end, node.align)?;
            begin.checked_add((*sizes.get(child)?)?)
        });
    }
    (min, end)
}

fn children(nodes: &[Node], parent: usize) -> impl Iterator<Item = (usize, &Node)> {
    let end = nodes.get(parent).map_or(0, |node| to_index(node.next));
    let mut at = parent + 1;
    std::iter::from_fn(move || {
        let node = (at < end).then(|| nodes.get(at)).flatten()?;
        let index = std::mem::replace(&mut at, to_index(node.next));
        Some((index, node))
    })
}

fn to_index(node: u32) -> usize {
    usize::try_from(node).unwrap_or(usize::MAX)
}

/// Builds the segments: `offset` bits after the beginning of the open segment, which lies on a multiple of `known`.
struct Compiler {
    segments: Vec<Segment>,
    saves: Vec<Save>,
    offset: u64,
    known: u64,
}

impl Compiler {
    const fn new(align: u64) -> Self {
        Self { segments: Vec::new(), saves: Vec::new(), offset: 0, known: align }
    }

    fn run(mut self, nodes: &mut [Node], sizes: &[Option<u64>]) -> (Vec<Segment>, u64) {
        let mut at = 1;
        while let Some(node) = nodes.get_mut(at) {
            self.align(node.align);
            let segment = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
            node.place = Some(Place { segment, offset: self.offset });
            let node = &*node;
            let stride =
                sizes.get(at + 1).copied().flatten().filter(|stride| stride % node.align == 0);
            at = self.add(node, at, sizes.get(at).copied().flatten(), stride);
        }
        let end_align = self.known.min(bits::lowest_bit(self.offset));
        self.close(Then::End, 1);
        (self.segments, end_align)
    }

    /// Adds one node; returns the node to go on with.
    fn add(&mut self, node: &Node, at: usize, size: Option<u64>, stride: Option<u64>) -> usize {
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let after = to_index(node.next);
        match (&node.kind, size) {
            (Kind::Structure, _) => return at + 1,
            (Kind::Integer(int), _) => {
                let registers = int.save.iter().chain(&*int.shared_saves);
                self.saves.extend(registers.map(|register| Save {
                    offset: self.offset,
                    bits: int.bits,
                    signed: int.signed,
                    order: int.order,
                    reversed: int.reversed,
                    register: *register,
                }));
                self.skip(u64::from(int.bits), index);
            }
            (_, Some(size)) => self.skip(size, index),
            (Kind::Text(Encoding::Utf8), _) => self.close(Then::Text(index), 8),
            (
                Kind::TextArray(Length::Register(register), _)
                | Kind::Blob(Length::Register(register), _),
                _,
            ) => {
                self.close(Then::Repeat { register: *register, stride: 8, node: index }, 8);
            }
            (Kind::Array(Length::Register(register)), _)
                if stride.is_some_and(|stride| stride > 0) =>
            {
                let stride = stride.unwrap_or(0);
                self.close(Then::Repeat { register: *register, stride, node: index }, node.align);
            }
            _ => self.close(Then::Walk(index), 1),
        }
        after
    }

    fn skip(&mut self, bits: u64, node: u32) {
        match self.offset.checked_add(bits) {
            Some(end) => self.offset = end,
            None => self.close(Then::Walk(node), 1),
        }
    }

    fn align(&mut self, align: u64) {
        match bits::align_up(self.offset, align).filter(|_| align <= self.known) {
            Some(offset) => self.offset = offset,
            None => self.close(Then::Align(align), align),
        }
    }

    /// Ends the open segment with `then`, after which the position is a multiple of `known`.
    fn close(&mut self, then: Then, known: u64) {
        let saves = std::mem::take(&mut self.saves);
        self.segments.push(Segment { bits: self.offset, saves, then });
        (self.offset, self.known) = (0, known);
    }
}
