//! Event records as text: the lines that Babeltrace 2 prints, and JSON.
//!
//! A writer appends lines to an [`Output`] that the caller keeps, and takes no memory for each event record. What the
//! lines of a data stream have in common is in a [`StreamText`], which the caller keeps for each stream:
//!
//! ```
//! use std::sync::Arc;
//! use ctf::format::text::{TextOptions, TextWriter};
//! use ctf::format::{Output, StreamText};
//! use ctf::packet::{EventReader, Outcome, Packets};
//!
//! let metadata = r#"/* CTF 1.8 */
//!     trace { major = 1; minor = 8; byte_order = le; };
//!     stream { packet.context := struct { integer { size = 8; } cpu_id; }; };
//!     event { name = "hello"; fields := struct { string _who; }; };
//! "#;
//! let trace = Arc::new(ctf::TraceClass::parse(metadata.as_bytes())?);
//! let mut writer = TextWriter::new(TextOptions::default(), Box::new(|_| 0));
//! let (mut stream, mut out) = (StreamText::new(""), Output::new());
//! for packet in Packets::new(&trace, b"\x03you\0me\0") {
//!     let Outcome::Ready(mut events) = EventReader::open(trace.clone(), packet?.bytes)? else { continue };
//!     writer.enter_packet(&mut stream, |fields| events.visit_packet(ctf::Scope::PacketContext, fields));
//!     while let Some(event) = events.next_event()? {
//!         writer.write(&event, &stream, &mut out);
//!     }
//! }
//! assert_eq!(out.as_bytes(), b"hello: { cpu_id = 3 }, { who = \"you\" }\nhello: { cpu_id = 3 }, { who = \"me\" }\n");
//! # Ok::<(), ctf::Error>(())
//! ```

mod cache;
mod fields;
pub mod json;
mod number;
mod options;
mod output;
mod program;
mod quote;
mod stream;
pub mod text;
mod time;

pub use output::Output;
pub use stream::StreamText;
