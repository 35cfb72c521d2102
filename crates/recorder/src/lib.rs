//! Keeps what applications of this machine record, and delivers it by drivers.
//!
//! ```text
//! applications ─ rings ─▶ intake ─▶ journal ─┬▶ driver of json:FOLDER
//!                        (a thread) (disk)   └▶ driver of http://COLLECTOR (OTLP)   a thread each, at its own place
//!                             └────── ledger ◀──────┘
//! ```
//! In come memory files of applications that use crate `tracepoint` (and notifications of OSProfiler, to a port that speaks enough of Redis's protocol, which answers
//! `osprofiler trace` too); what becomes of their records stands in the [`Ledger`]. Signals, arguments and
//! what is printed stay the caller's.
//!
//! - Records are in the journal before their ring is released: an application, this process, or both may be killed at any moment, and what was
//!   published is there once.
//! - While the journal cannot be written nothing is released: rings fill, and applications count what they drop.
//! - Who writes what no ring can have loses that ring, with a reason; others are served on.
//! - Flight recorders are read when their process ends, or when the caller asks ([`Recorder::flight_recorders`]).

mod clock;
mod driver;
mod error;
mod intake;
mod known;
mod ledger;
mod notifications;
mod redis;
mod run;

pub use driver::{Target, TargetError};
pub use error::{Error, Result};
pub use ledger::{DriverLedger, Ledger, ServiceLedger};
pub use run::{FlightRecorders, Recorder, Redis, Settings};
