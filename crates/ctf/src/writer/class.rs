//! What a trace is declared to be, as plain values. [`super::Schema::new`] checks them.

use crate::class::{Base, ByteOrder, CtfVersion, EnvValue, Identity};
use crate::clock::{ClockClass, Uuid};
use crate::value::Encoding;

/// A whole trace: what all its streams have in common, and the classes of those streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceClass {
    /// The form that metadata and packets take.
    pub version: CtfVersion,
    /// Names beyond the trace; CTF 2 only.
    pub identity: Identity,
    /// The identity that metadata and packets repeat.
    pub uuid: Option<Uuid>,
    /// The order of packet headers, packet contexts, event record headers, and of fields that do not say otherwise.
    pub byte_order: ByteOrder,
    /// Facts about where the trace comes from, as name and value.
    pub environment: Vec<(String, EnvValue)>,
    /// The clocks that stream classes name by position.
    pub clocks: Vec<ClockClass>,
    /// Whether packets tell the streams of one class apart by an instance id.
    pub instance_ids: bool,
    /// The data stream classes.
    pub streams: Vec<StreamClass>,
}

impl TraceClass {
    /// A little-endian trace without clock and environment.
    #[must_use]
    pub fn new(version: CtfVersion, streams: Vec<StreamClass>) -> Self {
        Self {
            version,
            identity: Identity::default(),
            uuid: None,
            byte_order: ByteOrder::Little,
            environment: Vec::new(),
            clocks: Vec::new(),
            instance_ids: false,
            streams,
        }
    }

    /// The form of traces whose streams are CPUs', as this project's own: CTF 1.8, one stream class of id 0, headers
    /// of a 16-bit id and a 64-bit time, packets that are numbered, count discarded event records and say their
    /// `cpu_id`. [`super::Schema::open_cpu`] opens such packets.
    #[must_use]
    pub fn per_cpu(
        uuid: Uuid,
        clock: ClockClass,
        environment: Vec<(String, EnvValue)>,
        context: Vec<Field>,
        events: Vec<EventClass>,
    ) -> Self {
        let header = EventHeader::Plain { id_bits: Some(16), time_bits: 64 };
        let cpu = Field::new("cpu_id", FieldClass::Int(IntClass::U32));
        let stream = StreamClass {
            clock: Some(0),
            packet: PacketContext {
                sequence_numbers: true,
                discarded_bits: Some(64),
                members: Structure::new(vec![cpu]),
            },
            context: (!context.is_empty()).then(|| Structure::new(context)),
            ..StreamClass::new(0, header, events)
        };
        Self {
            uuid: Some(uuid),
            environment,
            clocks: vec![clock],
            instance_ids: true,
            ..Self::new(CtfVersion::V1_8, vec![stream])
        }
    }

    /// Width of the stream class ids in packet headers.
    pub(super) fn stream_id_bits(&self) -> u8 {
        let is_wide = self.streams.iter().any(|stream| stream.id > u64::from(u32::MAX));
        if is_wide { 64 } else { 32 }
    }
}

/// A data stream class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamClass {
    /// The number that packets carry; unique in the trace.
    pub id: u64,
    /// Names beyond the trace; CTF 2 only.
    pub identity: Identity,
    /// Position of its clock in [`TraceClass::clocks`]; packets and event records have no time without one.
    pub clock: Option<usize>,
    /// What precedes each event record.
    pub header: EventHeader,
    /// What packets say of themselves.
    pub packet: PacketContext,
    /// What every event record carries before its payload.
    pub context: Option<Structure>,
    /// The event record classes.
    pub events: Vec<EventClass>,
}

impl StreamClass {
    /// A stream class with numbered packets, without clock and context.
    #[must_use]
    pub fn new(id: u64, header: EventHeader, events: Vec<EventClass>) -> Self {
        Self {
            id,
            identity: Identity::default(),
            clock: None,
            header,
            packet: PacketContext::default(),
            context: None,
            events,
        }
    }
}

/// The header of event records: their class's id and, with a clock, their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventHeader {
    /// One integer for each, byte-aligned, of 1 to 64 bits. A time that is narrower than 64 bits gives its low bits;
    /// it cannot stand for a step of more than its width.
    Plain {
        /// Width of the id; `None` for a stream class of one event record class.
        id_bits: Option<u8>,
        /// Width of the time; not looked at without a clock.
        time_bits: u8,
    },
    /// LTTng's: 4 bytes for ids up to 30 and times within 2^27 cycles of the one before, else 13.
    Compact,
    /// LTTng's: 6 bytes for ids up to 65,534 and times within 2^32 cycles of the one before, else 14.
    Large,
}

impl EventHeader {
    /// LTTng's choice for the ids of a stream class with a clock; plain integers without one.
    #[must_use]
    pub fn suited_to(highest_id: u64, has_clock: bool) -> Self {
        match highest_id {
            0..=30 if has_clock => Self::Compact,
            _ if has_clock && highest_id <= u64::from(u32::MAX) => Self::Large,
            0..=0xFF => Self::Plain { id_bits: Some(8), time_bits: 64 },
            0x100..=0xFFFF => Self::Plain { id_bits: Some(16), time_bits: 64 },
            0x1_0000..=0xFFFF_FFFF => Self::Plain { id_bits: Some(32), time_bits: 64 },
            _ => Self::Plain { id_bits: Some(64), time_bits: 64 },
        }
    }
}

/// What packets say of themselves beyond their sizes and, with a clock, their bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketContext {
    /// Whether they are numbered.
    pub sequence_numbers: bool,
    /// Width of the counter of discarded event records in bits; `None`: nobody counts.
    pub discarded_bits: Option<u8>,
    /// Further members, such as `cpu_id`; none is called as [`Self::own_names`] are.
    pub members: Structure,
}

impl PacketContext {
    /// The names of the members that the writer gives values to itself: none of [`Self::members`] may have one of them.
    #[must_use]
    pub fn own_names(&self, has_clock: bool) -> Vec<&'static str> {
        let mut names = vec!["content_size", "packet_size"];
        if has_clock {
            names.extend(["timestamp_begin", "timestamp_end"]);
        }
        names.extend(self.sequence_numbers.then_some("packet_seq_num"));
        names.extend(self.discarded_bits.map(|_| "events_discarded"));
        names
    }
}

impl Default for PacketContext {
    fn default() -> Self {
        Self { sequence_numbers: true, discarded_bits: None, members: Structure::default() }
    }
}

/// An event record class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventClass {
    /// The number that event records carry; unique in the stream class.
    pub id: u64,
    /// Its name; may be empty.
    pub name: String,
    /// Names beyond the trace, but not the name itself; CTF 2 only.
    pub identity: Identity,
    /// The tracer's number for its severity.
    pub log_level: Option<i64>,
    /// URI of its description in the Eclipse Modeling Framework.
    pub emf_uri: Option<String>,
    /// What only event records of this class carry before the payload.
    pub context: Option<Structure>,
    /// The payload.
    pub payload: Option<Structure>,
}

impl EventClass {
    /// An event record class with a payload.
    #[must_use]
    pub fn new(id: u64, name: impl Into<String>, fields: Vec<Field>) -> Self {
        Self {
            id,
            name: name.into(),
            identity: Identity::default(),
            log_level: None,
            emf_uri: None,
            context: None,
            payload: Some(Structure::new(fields)),
        }
    }
}

/// Named members, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// The members.
    pub members: Vec<Field>,
    /// Least alignment in bits; a power of two.
    pub align: u64,
}

impl Structure {
    /// A structure that is aligned as its members need it.
    #[must_use]
    pub const fn new(members: Vec<Field>) -> Self {
        Self { members, align: 1 }
    }
}

impl Default for Structure {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// Stands for the value of a field that later fields refer to.
///
/// Any number; unique in an event record with its contexts and the context of its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u32);

/// A named member or option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name as readers show it. In CTF 1.8 letters, digits and underscores; an underscore is put in front of
    /// it, which readers drop.
    pub name: String,
    /// What it holds.
    pub class: FieldClass,
    /// The key under which later fields refer to its value.
    pub key: Option<Key>,
}

impl Field {
    /// A member that nothing refers to.
    #[must_use]
    pub fn new(name: impl Into<String>, class: FieldClass) -> Self {
        Self { name: name.into(), class, key: None }
    }

    /// A member that later fields refer to.
    #[must_use]
    pub fn keyed(name: impl Into<String>, class: FieldClass, key: Key) -> Self {
        Self { name: name.into(), class, key: Some(key) }
    }

    /// A run of integers and, before it, the member `_NAME_length` that counts them in 32 bits, as LTTng has it.
    /// [`super::Record::counted`] gives both values.
    #[must_use]
    pub fn counted(name: &str, element: IntClass, key: Key) -> [Self; 2] {
        let count = FieldClass::Int(IntClass::U32);
        [
            Self::keyed(format!("_{name}_length"), count, key),
            Self::new(name, FieldClass::array(FieldClass::Int(element), Length::Of(key))),
        ]
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldClass {
    /// An integer.
    Int(IntClass),
    /// An integer whose values have names.
    Enum(IntClass, Vec<Mapping>),
    /// An integer of seven bits a byte (CTF 2); its values may have names.
    VarInt(VarIntClass, Vec<Mapping>),
    /// A truth value (CTF 2), of a width but without sign and base.
    Bool(IntClass),
    /// Bits side by side (CTF 2); positions, 0 being the least significant, may have names.
    Bits(IntClass, Vec<Mapping>),
    /// A floating point number.
    Float(FloatClass),
    /// Text up to a NUL code unit; CTF 1.8 has UTF-8 only.
    String(Encoding),
    /// Text in so many bytes, the rest filled with NULs; CTF 1.8 has UTF-8 only.
    Text(Length, Encoding),
    /// Bytes (CTF 2) and their IANA media type; the type may be empty.
    Blob(Length, String),
    /// Named members.
    Structure(Structure),
    /// Elements of one class.
    Array(Box<ArrayClass>),
    /// One of several options.
    Variant(VariantClass),
    /// A field that may be absent (CTF 2).
    Optional(Box<OptionalClass>),
}

impl FieldClass {
    /// Text in UTF-8 up to a NUL.
    pub const STRING: Self = Self::String(Encoding::Utf8);

    /// Text in so many bytes of UTF-8.
    #[must_use]
    pub const fn text(bytes: u64) -> Self {
        Self::Text(Length::Fixed(bytes), Encoding::Utf8)
    }

    /// Elements without alignment of their own.
    #[must_use]
    pub fn array(element: Self, length: Length) -> Self {
        Self::Array(Box::new(ArrayClass { element, length, align: 1 }))
    }
}

/// How many elements or bytes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Always so many.
    Fixed(u64),
    /// As many as the earlier unsigned field with this key says.
    Of(Key),
}

/// An integer class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntClass {
    /// Width in bits: 1 to 64.
    pub bits: u8,
    /// Two's complement, or not.
    pub signed: bool,
    /// How to show it.
    pub base: Base,
    /// The order of its bytes; `None` is the trace's.
    pub byte_order: Option<ByteOrder>,
    /// In bits, a power of two.
    pub align: u64,
    /// Its bits come in the order that is not the natural one of its byte order (CTF 2).
    pub reversed: bool,
}

impl IntClass {
    /// Unsigned, 8 bits.
    pub const U8: Self = Self::unsigned(8);
    /// Unsigned, 16 bits.
    pub const U16: Self = Self::unsigned(16);
    /// Unsigned, 32 bits.
    pub const U32: Self = Self::unsigned(32);
    /// Unsigned, 64 bits.
    pub const U64: Self = Self::unsigned(64);
    /// Signed, 32 bits.
    pub const I32: Self = Self { signed: true, ..Self::U32 };
    /// Signed, 64 bits.
    pub const I64: Self = Self { signed: true, ..Self::U64 };
    /// Unsigned, 32 bits, shown in hexadecimal.
    pub const HEX32: Self = Self { base: Base::Hexadecimal, ..Self::U32 };
    /// Unsigned, 64 bits, shown in hexadecimal.
    pub const HEX64: Self = Self { base: Base::Hexadecimal, ..Self::U64 };

    /// Byte-aligned, in decimal and in the trace's byte order.
    #[must_use]
    pub const fn unsigned(bits: u8) -> Self {
        Self {
            bits,
            signed: false,
            base: Base::Decimal,
            byte_order: None,
            align: 8,
            reversed: false,
        }
    }
}

/// An integer class of variable length (LEB128), byte-aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VarIntClass {
    /// Two's complement, or not.
    pub signed: bool,
    /// How to show it.
    pub base: Base,
}

/// A class of floating point numbers of IEEE 754.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatClass {
    /// Width in bits: 32 or 64.
    pub bits: u8,
    /// The order of its bytes; `None` is the trace's.
    pub byte_order: Option<ByteOrder>,
    /// In bits, a power of two.
    pub align: u64,
    /// As [`IntClass::reversed`].
    pub reversed: bool,
}

impl FloatClass {
    /// 32 bits, byte-aligned.
    pub const F32: Self = Self { bits: 32, byte_order: None, align: 8, reversed: false };
    /// 64 bits, byte-aligned.
    pub const F64: Self = Self { bits: 64, ..Self::F32 };
}

/// A name of a range of values. Several ranges may have one name, and several names one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The name.
    pub label: String,
    /// First value.
    pub first: i128,
    /// Last value, which is not below the first.
    pub last: i128,
}

impl Mapping {
    /// The name of one value.
    #[must_use]
    pub fn one(label: impl Into<String>, value: impl Into<i128>) -> Self {
        let value = value.into();
        Self { label: label.into(), first: value, last: value }
    }
}

/// An array class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayClass {
    /// What each element holds.
    pub element: FieldClass,
    /// How many there are.
    pub length: Length,
    /// Least alignment in bits, a power of two; CTF 1.8 has none but the element's.
    pub align: u64,
}

/// A variant class: the value of an earlier integer chooses the option.
///
/// In CTF 1.8 the selector is an enumeration, and each option is chosen by the values that the enumeration gives the
/// option's name to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantClass {
    /// The key of an integer field.
    pub selector: Key,
    /// The options, each with the ranges (first and last value) that choose it. No value may choose two.
    pub options: Vec<(Field, Vec<(i128, i128)>)>,
}

/// A field that is there when an earlier field says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalClass {
    /// The key of a truth value or integer field.
    pub selector: Key,
    /// The values of an integer, as first and last, with which the field is there; empty for a truth value.
    pub ranges: Vec<(i128, i128)>,
    /// What the field holds.
    pub class: FieldClass,
}
