//! Writes CTF 1.8: declare classes, get the metadata text, fill packets with event records.
//!
//! What goes in: a [`TraceClass`] (identity, clock, environment) and one [`StreamClass`] with its event record
//! classes. What comes out: [`metadata`] as TSDL text, and sealed packets as bytes from a [`PacketBuilder`].
//! Files, sockets and the wall clock stay with the caller. Everything is little endian and byte-aligned.
//!
//! ```text
//! packet header    0  u32 magic 0xC1FC1FC1
//!                  4  u8  trace UUID[16]
//!                 20  u32 stream class id
//!                 24  u64 stream instance id
//! packet context  32  u64 first time, 40 u64 last time (clock cycles)
//!                 48  u64 content length, 56 u64 total length (bits)
//!                 64  u64 packet sequence number
//!                 72  u64 discarded event records, cumulative over the stream
//!                 80  u32 CPU
//! event record    84  u16 event record class id, u64 time, stream's event context, payload; repeated
//! ```
//! The packet header and context are those of LTTng 2.13; the event record header is simpler than either of its two.
//!
//! ```
//! use ctf::writer::*;
//!
//! let tick = EventClass::new("tick", vec![Field::new("count", FieldClass::Int(IntClass::U32))]);
//! let stream = StreamClass { context: vec![], events: vec![tick] };
//! let trace = TraceClass { uuid: [7; 16], clock: ClockClass::nanoseconds("monotonic", [8; 16], 0), env: vec![] };
//! let text = metadata(&trace, &stream);
//! assert!(text.contains("name = \"tick\";"));
//!
//! let id = StreamId { trace: trace.uuid, instance: 0, cpu: 0 };
//! let mut packet = PacketBuilder::new(&stream, id, 4096, 100);
//! packet.append(0, 105, |record| record.unsigned(3))?;
//! let sealed = packet.seal(110, 0);
//! assert_eq!(sealed.content_bits, (84 + 10 + 4) * 8);
//! # Ok::<(), WriteError>(())
//! ```

mod packet;
mod tsdl;

pub use packet::{Appended, PACKET_HEADER_BYTES, PacketBuilder, Record, SealedPacket, StreamId};
pub use tsdl::metadata;

/// A UUID as its 16 bytes.
pub type UuidBytes = [u8; 16];

/// What is common to all streams of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceClass {
    /// Identity; packets repeat it.
    pub uuid: UuidBytes,
    /// The clock of all times.
    pub clock: ClockClass,
    /// Facts about where the trace comes from, as name and value.
    pub env: Vec<(String, EnvValue)>,
}

/// A value of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// A text.
    Text(String),
    /// A number.
    Int(i64),
}

/// A clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockClass {
    /// An identifier.
    pub name: String,
    /// Clocks with the same UUID can be compared.
    pub uuid: UuidBytes,
    /// A remark; may be empty.
    pub description: String,
    /// Cycles per second; not 0.
    pub frequency_hz: u64,
    /// From the Unix epoch to the clock's zero, in cycles.
    pub offset_cycles: u64,
}

impl ClockClass {
    /// A clock that counts nanoseconds, its zero `offset_ns` after the Unix epoch.
    #[must_use]
    pub fn nanoseconds(name: &str, uuid: UuidBytes, offset_ns: u64) -> Self {
        Self {
            name: name.to_owned(),
            uuid,
            description: String::new(),
            frequency_hz: 1_000_000_000,
            offset_cycles: offset_ns,
        }
    }
}

/// The one data stream class of the trace; its id is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamClass {
    /// What every event record carries before its payload.
    pub context: Vec<Field>,
    /// The event record classes; the index is the id. At most 65,536.
    pub events: Vec<EventClass>,
}

/// An event record class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventClass {
    /// Its name.
    pub name: String,
    /// Its payload.
    pub fields: Vec<Field>,
}

impl EventClass {
    /// An event record class.
    #[must_use]
    pub fn new(name: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { name: name.into(), fields }
    }
}

/// A named member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// An identifier, without the underscore that TSDL puts in front.
    pub name: String,
    /// What it holds.
    pub class: FieldClass,
}

impl Field {
    /// A member.
    #[must_use]
    pub fn new(name: impl Into<String>, class: FieldClass) -> Self {
        Self { name: name.into(), class }
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldClass {
    /// An integer.
    Int(IntClass),
    /// An integer whose values have names.
    Enum(IntClass, Vec<(i64, String)>),
    /// Bytes up to a NUL.
    String,
    /// Exactly this many bytes of text, filled with NULs.
    Text(u32),
    /// Exactly this many integers.
    Array(IntClass, u32),
    /// A counted run of integers; the count is a 32-bit member before it.
    Sequence(IntClass),
}

/// An integer class: little endian, byte-aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntClass {
    /// Width.
    pub width: Width,
    /// Two's complement, or not.
    pub signed: bool,
    /// How to show it.
    pub base: Base,
}

impl IntClass {
    /// Unsigned, 8 bits.
    pub const U8: Self = Self::unsigned(Width::W8);
    /// Unsigned, 16 bits.
    pub const U16: Self = Self::unsigned(Width::W16);
    /// Unsigned, 32 bits.
    pub const U32: Self = Self::unsigned(Width::W32);
    /// Unsigned, 64 bits.
    pub const U64: Self = Self::unsigned(Width::W64);
    /// Signed, 32 bits.
    pub const I32: Self = Self { width: Width::W32, signed: true, base: Base::Decimal };
    /// Signed, 64 bits.
    pub const I64: Self = Self { width: Width::W64, signed: true, base: Base::Decimal };
    /// Unsigned, 32 bits, shown in hexadecimal.
    pub const HEX32: Self = Self { base: Base::Hexadecimal, ..Self::U32 };
    /// Unsigned, 64 bits, shown in hexadecimal.
    pub const HEX64: Self = Self { base: Base::Hexadecimal, ..Self::U64 };

    const fn unsigned(width: Width) -> Self {
        Self { width, signed: false, base: Base::Decimal }
    }
}

/// Width of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    W8,
    /// 16 bits.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    /// The width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::W8 => 8,
            Self::W16 => 16,
            Self::W32 => 32,
            Self::W64 => 64,
        }
    }
}

/// Preferred display base of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// 8.
    Octal,
    /// 10.
    Decimal,
    /// 16.
    Hexadecimal,
}

/// An event record that does not match its class. Always a fault of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no such event record class.
    #[error("no event record class {0}")]
    NoClass(u16),
    /// A value of another kind than the next field, or one more value than there are fields.
    #[error("event record class {event}: field {index} is not {given}")]
    Kind {
        /// The event record class.
        event: u16,
        /// Which field, context first, from 0.
        index: usize,
        /// What was given.
        given: &'static str,
    },
    /// A value that its field's width cannot hold, or the wrong number of array elements.
    #[error("event record class {event}: the value of field {index} does not fit")]
    Range {
        /// The event record class.
        event: u16,
        /// Which field, context first, from 0.
        index: usize,
    },
    /// Fewer values than fields.
    #[error("event record class {event}: fields from {index} on are missing")]
    Missing {
        /// The event record class.
        event: u16,
        /// The first missing field, context first, from 0.
        index: usize,
    },
    /// The record is earlier than the one before it.
    #[error("time {time} is before {last}")]
    Backwards {
        /// The record's time.
        time: u64,
        /// The time reached.
        last: u64,
    },
    /// The record does not even fit in an empty packet.
    #[error("a record of {bytes} bytes does not fit in a packet of {max_bytes}")]
    TooLarge {
        /// Size of the record.
        bytes: usize,
        /// The most a packet may hold.
        max_bytes: usize,
    },
}
