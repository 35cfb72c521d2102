//! Profile packets that can be read alone.
//!
//! In go the samples of one window of time, resolved already; out comes an OTLP `ExportProfilesServiceRequest` (package
//! `v1development`, field numbers of v1.10 and v1.11) that needs nothing but itself, then views of any number of them. Unwinding and looking
//! up names stay the caller's duty, and so do sockets, files and clocks.
//!
//! - **packet**: one window of one machine's samples, and what was lost of them.
//! - **sample**: a stack at a time with a value; samples that differ in time only stand in one record.
//! - **stack**: locations, leaf first. **Location**: an address in a mapping, with the functions there.
//! - **line**: a function at a source line; several in one location are inlined into each other, innermost first.
//! - **packet id**: a digest of the content, by which the same packet is known however often it comes.
//!
//! Budget: 2 µs for a sample that is added, encoded and compressed; `examples/cost` measures it.
//!
//! ```
//! use profile::{Builder, Frame, FrameKind, Limits, Line, Names, Process, Request, Sample, SampleKind, Status, Window};
//!
//! let window = Window { begin_unix_ns: 1_000_000, duration_ns: 5_000_000_000 };
//! let mut builder = Builder::new(window, SampleKind::OnCpu { period_ns: 10_101_010 });
//! let process = builder.process(&Process {
//!     pid: 7,
//!     start_boot_ns: 40,
//!     executable_name: "app",
//!     executable_path: "/usr/bin/app",
//!     attributes: &[(profile::keys::CONTAINER_ID, "f00d")],
//! })?;
//! let line = Line { function: "main", ..Line::default() };
//! let main = builder.frame(&Frame {
//!     kind: FrameKind::Native,
//!     mapping: None,
//!     address: 0x1139,
//!     names: Names::Known(&[line]),
//! })?;
//! builder.add(&Sample {
//!     process,
//!     tid: 7,
//!     thread_name: "app",
//!     cpu: 0,
//!     at_unix_ns: 2_000_000,
//!     value: 1,
//!     link: None,
//!     frames: &[main],
//!     status: Status::Root,
//! })?;
//! let packet = builder.finish();
//!
//! let request = Request::decode(&packet.bytes, Limits::default())?;
//! assert_eq!(request.packet_id(), Some(packet.id));
//! assert_eq!(request.check(), []);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod check;
mod context;
mod decode;
mod error;
pub mod keys;
mod model;
mod packet;
pub mod request;
mod seal;
pub mod view;

pub use builder::{Builder, CUT, MAX_PACKET_BYTES, MAX_STACK_FRAMES, MAX_TEXT_BYTES, TIME_STEP_NS};
pub use check::Problem;
pub use context::{MAX_CONTEXT_ATTRIBUTES, MAX_CONTEXT_TEXT_BYTES, ProcessContext};
pub use decode::{Limits, packet_id, ungzip};
pub use error::AddError;
pub use model::{
    BuildId, Control, Frame, FrameId, FrameKind, Line, Link, Mapping, Names, Process, ProcessId,
    Sample, SampleKind, Status, Unnamed, Window,
};
pub use packet::{Packet, PacketId, gzip};
pub use request::Request;
pub use wire::proto::{DecodeError, Wrong};
