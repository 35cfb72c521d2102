//! Chunk-wise trace analysis: where did the time of requests go?
//!
//! In go event records of any number of recordings of one host, cut in time anywhere; out come answers as plain data. Each
//! stretch of time is summarised by itself, summaries of neighbours merge, and the answer of all is the same, byte for
//! byte, for every cut and every grouping.
//!
//! ```text
//! recordings ─ facts ─▶ Window ─▶ Summary ─┐
//! recordings ─ facts ─▶ Window ─▶ Summary ─┼─ merge ─▶ Summary ─ phases / syscalls ─▶ answer ─▶ JSON, table
//! missing ──────────────── gap ─▶ Summary ─┘
//! ```
//!
//! Vocabulary:
//! - **fact**: an event in the few words the analysis understands ([`fact`]);
//! - **window**: a stretch of time whose facts are summarised together;
//! - **boundary**: the begin of a window; what lies to its left is unknown until the merge and stands as a *term*;
//! - **head**: what waits for the left neighbour; **tail**: what is offered to the right one;
//! - **request**: the outermost span of a thread; **phase**: a span inside it.

mod adapter;
mod call;
mod cpu;
mod error;
mod file;
mod finish;
mod ident;
mod local;
mod spent;
mod stack;
mod stitcher;
mod summary;
mod thread;
mod window;

pub mod answer;
pub mod fact;
pub mod render;

pub use adapter::SpanRules;
pub use error::Error;
pub use finish::{phases, syscalls};
pub use ident::Kind;
pub use local::{Analysis, Options, Windows, analyse};
pub use stitcher::{Advance, Stitcher};
pub use summary::{Cover, MAX_LISTED_REQUESTS, Summary};
pub use window::Window;
