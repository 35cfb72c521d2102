//! Recordings in other forms: CTF 1.8 and 2 into each other and cut by time, and into the formats of trace viewers.
//!
//! In go folders with traces, out comes a folder of the same layout ([`convert_ctf`]) or one file
//! for a viewer ([`perfetto`], [`firefox`]). Streams are read packet by packet, so memory does not depend on a
//! trace's length; what a viewer's format needs to know as a whole is bounded and said.
//!
//! Vocabulary:
//! - **note** ([`Note`]): a class that the target has no form for, and what took its place;
//! - **damage** ([`Damage`]): what could not be read and is left out.

mod classes;
mod cut;
mod error;
pub mod firefox;
mod folder;
mod packets;
pub mod perfetto;
mod scene;
mod values;
mod viewer;

pub use error::{Action, Damage, Error, Note};
pub use folder::{Options, Report, convert_ctf};
pub use viewer::{Summary, ViewerError, ViewerOptions};
