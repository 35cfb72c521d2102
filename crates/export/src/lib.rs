//! Sends closed cells of time series to a receiver of Prometheus remote write, each exactly once.
//!
//! ```text
//! source ─▶ Machine: plan ─▶ intent durable ─▶ post ─▶ answer ─▶ cursor durable
//!           (pure)    ▲                                  │ no: half of it, again, until one is alone: parked
//!                     └──────────────────────────────────┘ perhaps: the same bytes again
//! ```
//! In go [`Cell`]s by position from a durable [`Source`]; out go requests, one at a time. What was sent last is a [`Cursor`] that the caller
//! keeps by [`KeepCursor`]; [`CursorFile`] does in a file. Which cells there are, when they are closed, that a position's cell
//! never changes and that a series' cells come in the order of time stay the caller's duty.
//!
//! Vocabulary:
//! - **cell**: one sample of one series; **closed**: nothing is added to it any more;
//! - **position**: a cell's number in its source, from 0 on;
//! - **batch**: neighbouring cells that are sent together, no series twice;
//! - **intent**: how many cells are being sent, durable before the first byte leaves, so that a restart sends the same bytes;
//! - **parked**: a series whose cell was refused alone; kept with the receiver's words, and sent alone until it is taken again.
//!
//! Why a receiver without out-of-order window stores each cell exactly once: at most one cell of a series is unanswered, so that a repeat
//! is always a repeat of that series' newest sample, with the same bits, which is taken and stored once.
//!
//! ```
//! use export::{Metric, Prefix, series_labels};
//!
//! let cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
//! let metric = Prefix::default().metric(Metric::Function, cpu);
//! let series = series_labels(&metric, [("service.name", "shop")], &[("function", "main.work")])?;
//! assert_eq!(
//!     series.labels.to_string(),
//!     "pyroscope_exported_metrics_functions_process_cpu_cpu_nanoseconds_cpu_nanoseconds\
//!      {function=\"main.work\",service_name=\"shop\"}"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Receivers that store repeats (VictoriaMetrics without `-dedup.minScrapeInterval`) cannot give that, whoever sends.

mod answer;
mod cell;
mod counter;
mod cursor;
mod error;
mod exporter;
mod file;
mod machine;
mod names;
mod plan;
mod sender;

pub use answer::{Answer, Outcome};
pub use cell::{Cell, Source};
pub use counter::Counter;
pub use cursor::{Cursor, Intent, KeepCursor, Learned, MAX_PARKED, Parked, Reason};
pub use error::{Error, Result};
pub use exporter::{Exporter, Status};
pub use file::CursorFile;
pub use machine::{Machine, Post, Purpose, Step};
pub use names::{
    DEFAULT_PREFIX, Metric, Prefix, PrefixError, SeriesLabels, label_name, series_labels, type_part,
};
pub use plan::Limits;
pub use sender::{Auth, Clock, Endpoint, Next, Remote, Sender, UrlError};
