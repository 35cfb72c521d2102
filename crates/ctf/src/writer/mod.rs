//! Writes CTF 1.8 and CTF 2: declare classes, get the metadata, fill packets with event records.
//!
//! What goes in: a [`TraceClass`] with its data stream and event record classes, then values. What comes out: a
//! [`Schema`] with the metadata text, and sealed packets as bytes. Files, sockets and the wall clock stay with the
//! caller, as does the order of event records in time.
//!
//! One packet after the other: [`Schema::open`] gives an [`OpenPacket`], [`OpenPacket::append`] takes event records
//! until there is no room, [`OpenPacket::seal`] ends it, and a [`SealedPacket`] never changes. Every value is checked
//! against its class, errors name the field, and a record that is refused leaves the packet as it was.
//!
//! ```text
//! packet header    u32 magic 0xC1FC1FC1, u8 trace UUID[16] (if there is one), u32 stream class id,
//!                  u64 stream instance id (if declared)
//! packet context   u64 first time, u64 last time (clock cycles; with a clock), u64 content length, u64 total
//!                  length (bits), u64 packet sequence number (if declared), discarded event records, cumulative over
//!                  the stream (if declared), further members
//! event record     header (see EventHeader), common context, specific context, payload; repeated
//! ```
//! All but the event records lies at byte boundaries, in the trace's byte order. This is the form of LTTng 2.13.
//!
//! ```
//! use ctf::CtfVersion;
//! use ctf::writer::*;
//!
//! let key = Key(0);
//! let tick = EventClass::new(0, "tick", vec![
//!     Field::keyed("count", FieldClass::Int(IntClass::U8), key),
//!     Field::new("words", FieldClass::array(FieldClass::String(Default::default()), Length::Of(key))),
//! ]);
//! let mut stream = StreamClass::new(0, EventHeader::Large, vec![tick]);
//! stream.clock = Some(0);
//! let mut trace = TraceClass::new(CtfVersion::V2, vec![stream]);
//! trace.clocks = vec![ctf::ClockClass::new("monotonic")];
//! let schema = Schema::new(trace)?;
//! assert!(schema.metadata().contains(r#""name":"tick""#));
//!
//! let start = PacketStart { stream_class: 0, instance: 0, sequence_number: 0, begin: 100, max_bytes: 4096 };
//! let mut packet = schema.open(start, |_context| Ok(()))?;
//! let appended = packet.append(0, 105, |record| {
//!     record.unsigned(2)?;
//!     record.string(b"tick")?;
//!     record.string(b"tock")
//! })?;
//! assert_eq!(appended, Appended::Yes);
//! let sealed = packet.seal(110, 0);
//! assert_eq!(sealed.bytes.len(), 48 + 6 + 1 + 5 + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bits;
mod class;
mod error;
mod json;
mod packet;
mod program;
mod quoted;
mod record;
mod schema;
mod tree;
mod tsdl;

pub use class::{
    ArrayClass, EventClass, EventHeader, Field, FieldClass, FloatClass, IntClass, Key, Length,
    Mapping, OptionalClass, PacketContext, StreamClass, Structure, TraceClass, VarIntClass,
    VariantClass,
};
pub use error::{ClassError, ClassProblem, WriteError};
pub use packet::{Appended, OpenPacket, PacketStart, SealedPacket};
pub use record::Record;
pub use schema::Schema;
pub use tree::{MAX_DEPTH, is_tsdl_member, is_tsdl_name};
