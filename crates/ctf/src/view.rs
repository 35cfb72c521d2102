//! What the metadata declare, field class by field class, for those who show it or write it in another form.
//!
//! A [`FieldClass`] is a position in the tree of one scope. References (lengths, selectors) are by [`FieldKey`]: a key
//! belongs to each field that something refers to, and the reference holds the same key. Several fields can have one
//! key: then the one that was decoded last counts (CTF 2).

use crate::class::{Base, ByteOrder, EventRecordClass, StreamClass, TraceClass};
use crate::layout::{Integer, Kind, Layout, Length, Meaning, Node, Register, Role, Selector};
use crate::value::{Encoding, Mappings};

/// One field class of a scope; cheap to copy.
#[derive(Clone, Copy)]
pub struct FieldClass<'a> {
    layout: &'a Layout,
    node: &'a Node,
    index: u32,
}

/// Stands for the value of a field that later fields refer to. Unique in an event record with its packet and stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldKey(Register);

/// Where the number of elements or bytes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthClass {
    /// The metadata.
    Fixed(u64),
    /// An earlier field.
    Field(FieldKey),
}

/// What kind of field class it is, with the properties of that kind.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum FieldClassKind<'a> {
    /// A number, truth value or bits.
    Integer(IntegerClass<'a>),
    /// A floating point number of IEEE 754.
    Float {
        /// 16, 32 or 64.
        bits: u8,
        /// The order of its bytes.
        byte_order: ByteOrder,
        /// Its bits come in the order that is not the natural one of `byte_order` (CTF 2, `bit-order`).
        reversed: bool,
    },
    /// Text up to and with a NUL code unit.
    Text(Encoding),
    /// Text in so many bytes; it ends early at the first NUL code unit.
    TextArray(LengthClass, Encoding),
    /// So many bytes (CTF 2), with their IANA media type if one is declared.
    Blob(LengthClass, Option<&'a str>),
    /// The children are its members.
    Structure,
    /// The one child is the element.
    Array(LengthClass),
    /// The children are the options.
    Variant(SelectorClass<'a>),
    /// The one child is there when a range holds the selector's value (CTF 2).
    Optional(SelectorClass<'a>),
}

impl std::fmt::Debug for FieldClass<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldClass")
            .field("path", &self.path())
            .field("kind", &self.kind())
            .finish()
    }
}

impl<'a> FieldClass<'a> {
    fn root(layout: Option<&'a Layout>) -> Option<Self> {
        let layout = layout?;
        Some(Self { layout, node: layout.node(0)?, index: 0 })
    }

    /// The name as shown; empty for the scope itself, for elements of arrays and for options without a name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node.shown_name()
    }

    /// The name as the metadata spell it: in CTF 1.8 often with an underscore before [`Self::name`].
    #[must_use]
    pub fn spelled_name(&self) -> &'a str {
        &self.node.name
    }

    /// Position in the scope: dense, for tables by field class; the scope itself has 0.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.index
    }

    /// The names from the scope to here, with dots between and `[]` behind arrays.
    #[must_use]
    pub fn path(&self) -> String {
        self.layout.path(self.index)
    }

    /// In bits, a power of two; of compounds with that of what they contain.
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        self.node.align
    }

    /// Its kind and the properties of that kind.
    #[must_use]
    pub fn kind(&self) -> FieldClassKind<'a> {
        match &self.node.kind {
            Kind::Integer(int) => {
                FieldClassKind::Integer(IntegerClass { int, is_variable_length: false })
            }
            Kind::VarInteger(int) => {
                FieldClassKind::Integer(IntegerClass { int, is_variable_length: true })
            }
            Kind::Float { bits, order, reversed } => {
                FieldClassKind::Float { bits: *bits, byte_order: *order, reversed: *reversed }
            }
            Kind::Text(encoding) => FieldClassKind::Text(*encoding),
            Kind::TextArray(length, encoding) => {
                FieldClassKind::TextArray((*length).into(), *encoding)
            }
            Kind::Blob(length, blob) => {
                let media_type = Some(&*blob.media_type).filter(|name| !name.is_empty());
                FieldClassKind::Blob((*length).into(), media_type)
            }
            Kind::Structure => FieldClassKind::Structure,
            Kind::Array(length) => FieldClassKind::Array((*length).into()),
            Kind::Variant(selector) => FieldClassKind::Variant(SelectorClass { selector }),
            Kind::Optional(selector) => FieldClassKind::Optional(SelectorClass { selector }),
        }
    }

    /// Members, the element, options or the optional field, in order; nothing for scalars.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'a> {
        let layout = self.layout;
        layout.children(self.index).map(move |(index, node)| Self { layout, node, index })
    }

    /// The child with this name: as spelled first, else as shown.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        let index = self.layout.member(self.index, name)?;
        Some(Self { layout: self.layout, node: self.layout.node(index)?, index })
    }

    /// The key under which later fields refer to this one's value.
    #[must_use]
    pub fn key(&self) -> Option<FieldKey> {
        match &self.node.kind {
            Kind::Integer(int) | Kind::VarInteger(int) => int.save.map(FieldKey),
            _ => None,
        }
    }

    /// What the field means to the reader itself; of several meanings the first.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.roles().next()
    }

    /// What the field means to the reader itself; in CTF 2 it can be more than one thing.
    pub fn roles(&self) -> impl Iterator<Item = Role> + use<'a> {
        let (first, more): (Option<Role>, &'a [Role]) = match &self.node.kind {
            Kind::Integer(int) | Kind::VarInteger(int) => (int.role, &int.more_roles),
            Kind::Blob(_, blob) => (blob.role, &[]),
            _ => (None, &[]),
        };
        first.into_iter().chain(more.iter().copied())
    }
}

impl From<Length> for LengthClass {
    fn from(length: Length) -> Self {
        match length {
            Length::Fixed(length) => Self::Fixed(length),
            Length::Register(register) => Self::Field(FieldKey(register)),
        }
    }
}

/// The properties of an integer, enumeration, truth value, bit array or bit map.
#[derive(Clone, Copy)]
pub struct IntegerClass<'a> {
    int: &'a Integer,
    is_variable_length: bool,
}

impl std::fmt::Debug for IntegerClass<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.int.fmt(f)
    }
}

impl<'a> IntegerClass<'a> {
    /// The width in bits: 1 to 64; 64 for variable length.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.int.bits
    }

    /// Whether it is LEB128: seven bits a byte.
    #[must_use]
    pub const fn is_variable_length(&self) -> bool {
        self.is_variable_length
    }

    /// Whether it is in two's complement.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        self.int.signed
    }

    /// The order of its bytes; says nothing for variable length.
    #[must_use]
    pub const fn byte_order(&self) -> ByteOrder {
        self.int.order
    }

    /// Whether its bits come in the order that is not the natural one of its byte order (CTF 2, `bit-order`).
    #[must_use]
    pub const fn is_reversed(&self) -> bool {
        self.int.reversed
    }

    /// How it likes to be shown.
    #[must_use]
    pub const fn base(&self) -> Base {
        self.int.base
    }

    /// What its bits stand for.
    #[must_use]
    pub const fn meaning(&self) -> Meaning {
        self.int.meaning
    }

    /// Whether values (or bits) can have names, be it that none has.
    #[must_use]
    pub const fn has_mappings(&self) -> bool {
        self.int.mappings.is_some()
    }

    /// Names of values or, for [`Meaning::Bits`], of bits: name, first and last value, both inclusive. In the order of
    /// the metadata; the ranges of one name follow each other in CTF 2, and may not in CTF 1.8.
    pub fn mappings(&self) -> impl Iterator<Item = (&'a str, i128, i128)> + use<'a> {
        let mappings: Option<&'a Mappings> = self.int.mappings.as_deref();
        let entries = mappings.map_or(&[] as &[_], |mappings| &mappings.entries);
        entries.iter().map(|entry| (&*entry.label, entry.first, entry.last))
    }
}

/// How a variant's option, or whether an optional field, is chosen.
#[derive(Clone, Copy)]
pub struct SelectorClass<'a> {
    selector: &'a Selector,
}

impl std::fmt::Debug for SelectorClass<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.selector.fmt(f)
    }
}

impl<'a> SelectorClass<'a> {
    /// The field whose value chooses.
    #[must_use]
    pub const fn key(&self) -> FieldKey {
        FieldKey(self.selector.register)
    }

    /// Rising ranges of the selector's values, without overlap: first and last value, both inclusive, and the position
    /// of the chosen child. For an optional field with a truth value as selector: what is not 0.
    pub fn ranges(&self) -> impl Iterator<Item = (i128, i128, usize)> + use<'a> {
        let position = |option: u32| usize::try_from(option).unwrap_or(usize::MAX);
        self.selector
            .ranges
            .iter()
            .map(move |(first, last, option)| (*first, *last, position(*option)))
    }
}

impl TraceClass {
    /// The class of the packet header.
    #[must_use]
    pub fn packet_header_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.packet_header.as_ref())
    }
}

impl StreamClass {
    /// The class of the packet context.
    #[must_use]
    pub fn packet_context_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.packet_context.as_ref())
    }

    /// The class of the event record header.
    #[must_use]
    pub fn event_header_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.event_header.as_ref())
    }

    /// The class of the context that all its event records carry.
    #[must_use]
    pub fn event_context_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.event_context.as_ref())
    }
}

impl EventRecordClass {
    /// The class of the context that only this event record class has.
    #[must_use]
    pub fn context_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.context.as_ref())
    }

    /// The class of the payload.
    #[must_use]
    pub fn payload_class(&self) -> Option<FieldClass<'_>> {
        FieldClass::root(self.payload.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        typealias integer { size = 8; base = hex; } := u8;
        stream { event.header := struct { enum : u8 { few = 0 ... 9, many } id; }; };
        event { name = "e"; id = 3; fields := struct {
            enum : u8 { a = 1, b = 4 ... 6 } _t;
            variant <_t> { u8 a; struct { floating_point { exp_dig = 8; mant_dig = 24; } f; } align(16) b; } _v;
            u8 _list[_t][2];
        }; };"#;

    #[test]
    fn every_property_of_a_declared_class_can_be_asked_for() {
        let trace = TraceClass::parse(METADATA.as_bytes()).expect("right");
        let payload = trace.event_record_classes()[0].payload_class().expect("declared");
        let names: Vec<_> =
            payload.children().map(|c| (c.name(), c.spelled_name(), c.alignment())).collect();
        assert_eq!(names, [("t", "_t", 8), ("v", "_v", 1), ("list", "_list", 8)]);

        let tag = payload.child("t").expect("declared");
        let FieldClassKind::Integer(int) = tag.kind() else { panic!("{tag:?}") };
        assert_eq!((int.bits(), int.is_signed(), int.base()), (8, false, Base::Hexadecimal));
        assert_eq!(int.mappings().collect::<Vec<_>>(), [("a", 1, 1), ("b", 4, 6)]);

        let variant = payload.child("v").expect("declared");
        let FieldClassKind::Variant(selector) = variant.kind() else { panic!("{variant:?}") };
        assert_eq!(Some(selector.key()), tag.key());
        assert_eq!(selector.ranges().collect::<Vec<_>>(), [(1, 1, 0), (4, 6, 1)]);
        let second = variant.child("b").expect("declared");
        assert_eq!((second.alignment(), second.path()), (16, "v.b".to_owned()));
        let float = second.child("f").expect("declared").kind();
        assert!(matches!(float, FieldClassKind::Float { bits: 32, reversed: false, .. }));

        let list = payload.child("list").expect("declared");
        let key = tag.key().expect("referred to");
        assert!(matches!(list.kind(), FieldClassKind::Array(LengthClass::Field(of)) if of == key));
        let inner: Vec<_> = list.children().collect();
        assert!(
            matches!(inner[0].kind(), FieldClassKind::Array(LengthClass::Fixed(2))),
            "{inner:?}"
        );
        let header = trace.stream_classes()[0].event_header_class().expect("declared");
        assert_eq!(header.child("id").and_then(|id| id.role()), Some(Role::EventClassId));
        assert!(trace.packet_header_class().is_none());
    }
}
