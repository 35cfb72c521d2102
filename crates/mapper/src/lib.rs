//! From recordings to summaries.
//!
//! In go folders of recordings of one host, cut in time anywhere; out come [`stitch::Summary`]s, mapped window by window,
//! and what could not be read. What events mean is decided here, once for each event record class; what they add up to is
//! [`stitch`]'s.
//!
//! ```text
//! recordings ─ event map ─ facts ─▶ stitch::Window ─▶ Summary ─ merge ─▶ Summary
//! ```
//!
//! Vocabulary:
//! - **event map**: which event record class of which tracer says which fact;
//! - **window**: a stretch of time whose facts are summarised together, from all recordings that overlap it;
//! - **cut**: where one window ends and the next begins;
//! - **origin**: the distance of a clock from the epoch, one for all recordings of a boot.

mod adapter;
mod error;
pub mod job;
mod local;
mod periods;
mod stitcher;

pub use adapter::SpanRules;
pub use error::Error;
pub use local::{Analysis, Mapped, Options, Windows, analyse, read_log, unsealed};
pub use periods::{DefinitionError, PeriodAnalysis, PeriodRules, read_periods};
pub use stitcher::{Advance, Stitcher};
