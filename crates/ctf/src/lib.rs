//! Common Trace Format, versions 1.8 and 2: from metadata and packets to event records.
//!
//! In go the bytes of a metadata file and of packets, out come classes and event records. Files, sockets and clocks
//! stay the caller's: nothing here does I/O, and "more bytes are needed" is an ordinary answer
//! ([`packet::Outcome::NeedMore`]), so that one decoder serves files and live streams.
//!
//! Vocabulary:
//! - **metadata stream**: declares everything below, as text (TSDL; JSON in CTF 2) or as packets of text; parsed into a
//!   **trace class**;
//! - **data stream**: packets one after the other; a **packet** is a header, a context and event records;
//! - **event record**: header (id, time), up to two contexts, payload; its shape is its **event record class**;
//! - **field class**: integer, floating point number, enumeration, text, structure, array, variant; in CTF 2 also truth
//!   value, bit array and map, BLOB, optional field;
//! - **content length** and **total length**: of a packet, without and with padding, in bits as everything here.
//!
//! Metadata is compiled once; going from event record to event record allocates nothing and touches only what is
//! needed to find the next one. Texts are borrowed from the packet. Bytes are untrusted: every length is checked
//! against what is there, nesting and repetition are bounded, and errors name the bit.
//!
//! ```
//! use std::sync::Arc;
//! use ctf::packet::{EventReader, Outcome, Packets};
//!
//! let metadata = r#"/* CTF 1.8 */
//!     trace { major = 1; minor = 8; byte_order = le; };
//!     clock { name = c; freq = 1000; };
//!     typealias integer { size = 8; } := u8;
//!     stream { event.header := struct { integer { size = 8; map = clock.c.value; } timestamp; }; };
//!     event { name = "hello"; fields := struct { u8 _len; u8 _codes[_len]; string _who; }; };
//! "#;
//! let trace = Arc::new(ctf::TraceClass::parse(metadata.as_bytes())?);
//! let who = trace.event_record_classes()[0].field_handle("who").expect("declared above");
//!
//! let stream = b"\x05\x02ABworld\0\x07\x00you\0";
//! let mut heard = Vec::new();
//! for packet in Packets::new(&trace, stream) {
//!     let Outcome::Ready(mut events) = EventReader::open(trace.clone(), packet?.bytes)? else { continue };
//!     while let Some(event) = events.next_event()? {
//!         heard.push((event.timestamp_ns(), event.get(who).and_then(|value| value.as_bytes().map(<[u8]>::to_vec))));
//!     }
//! }
//! assert_eq!(heard, [(Some(5_000_000), Some(b"world".to_vec())), (Some(7_000_000), Some(b"you".to_vec()))]);
//! # Ok::<(), ctf::Error>(())
//! ```

#[cfg(test)]
mod agree;
mod bits;
mod class;
mod clock;
mod count;
mod decoder;
mod error;
mod event;
pub mod filter;
pub mod format;
mod fuzz;
mod general;
mod header;
pub mod index;
mod layout;
mod load;
mod log_level;
mod metadata;
mod order;
pub mod packet;
mod program;
mod show;
mod ticks;
mod value;
mod view;
mod walk;
mod work;
pub mod writer;

pub use class::{
    Base, ByteOrder, CtfVersion, EnvValue, EventRecordClass, Identity, StreamClass, TraceClass,
};
pub use clock::{ClockClass, ClockOrigin, Uuid};
pub use error::{
    DecodeError, DecodeErrorKind, Error, MetadataPacketProblem, MetadataStreamProblem, TextProblem,
};
pub use event::EventRecord;
#[doc(hidden)]
pub use fuzz::{
    METADATA_BASE_BYTES, METADATA_FACTOR, fuzz_format, fuzz_metadata, fuzz_metadata_stream,
    fuzz_packets, fuzz_trace,
};
pub use layout::{Meaning, Role};
pub use metadata::{
    MAX_METADATA_BYTES, MetadataProgress, MetadataStream, MetadataWarning, WarningKind,
};
pub use value::{
    BitsValue, Compound, Encoding, EnumValue, Field, FieldHandle, Scope, Shape, Value, Visitor,
    WideText,
};
pub use view::{FieldClass, FieldClassKind, FieldKey, IntegerClass, LengthClass, SelectorClass};

/// The examples of the README are tested as those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
