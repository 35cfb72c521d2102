//! Which sums of profile samples become exported metrics, and these sums.
//!
//! ```text
//! TOML ─ Config ─┐
//! requests ──────┴▶ Book (rules by cell) ─ at ─▶ rules ─┐
//!                           samples (a Batch) ──────────┴─ sums ─▶ Sums ─ merge ─▶ Sums of a cell ─▶ one value for each series
//! ```
//! In go rules ([`Draft`]), samples ([`model::samples::Batch`]) and requests of Pyroscope's settings services; out come exact sums of integers by
//! series ([`Sums`]), changed [`Book`]s and answers. Which samples a cell has, when it is closed, where books are kept and who sends sums stay the caller's duty.
//!
//! Vocabulary:
//! - **cell**: a stretch of time whose samples are summed together; it is named by the time at which it begins;
//! - **default form**: metrics that are called as in Pyroscope's proof of concept ([`export::Prefix`]); other rules have a metric name of their own
//!   and the label [`RULE_ID`];
//! - **total** of a function: what its stacks have anywhere, once however often; **self**: what ends in it;
//! - **known** series: those that were exported before, which keep their place when there are too many.
//!
//! Sums merge: samples may be split over batches in any way and batches added in any order and grouping, and the result is the same, also when
//! there are more series than there may be ([`Bounds`]).
//!
//! ```
//! use model::Timestamp;
//! use model::samples::{Batch, Frame, Labels, Sample, Series};
//! use rules::{Bounds, Config, sums};
//!
//! let config: Config = r#"
//!     [[rule]]
//!     profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
//!     group_by = ["service_name"]
//!     functions = { prefix = "shop." }
//! "#.parse()?;
//!
//! let mut batch = Batch::new();
//! let [main, work] = ["main", "shop.work"].map(|name| {
//!     let function = batch.text(name);
//!     batch.frame(Frame { function, ..Frame::default() })
//! });
//! let stack = batch.stack(&[work, work, main]);
//! let labels = Labels::new([("service_name", "shop"), ("pod", "a")]);
//! let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse()?;
//! let series = batch.series(Series { profile_type, labels });
//! let at = Timestamp::from_nanos(1_500_000_000);
//! batch.add(Sample { series, stack, at, value: 10, profile: 1, span_id: 0, trace_id: 0 });
//!
//! let made = sums(config.of("anonymous"), &export::Prefix::default(), &batch, &Bounds::default());
//! let all: Vec<_> = made.iter().map(|(labels, sum)| (labels.to_string(), sum)).collect();
//! let name = "pyroscope_exported_metrics_functions_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
//! assert_eq!(all, [(format!("{name}{{function=\"shop.work\",service_name=\"shop\"}}"), 10)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod book;
mod config;
mod error;
mod functions;
mod preview;
mod rule;
mod service;
mod settings;
mod sums;

pub use book::{Book, BookLimits, Version};
pub use config::{Config, ConfigError};
pub use error::{Error, Fault};
pub use functions::Functions;
pub use preview::{EXAMPLES, Example, MAX_SHOWN, Preview, preview};
pub use rule::{
    Draft, FUNCTION, MAX_LABELS, MAX_MATCHERS, MAX_PATTERN_BYTES, METRIC_PREFIX, RULE_ID, Rule,
    Value,
};
pub use service::{delete_rule, get_rule, list_rules, rule_of, upsert_rule};
pub use settings::{MAX_SETTING_BYTES, MAX_SETTING_NAME_BYTES, MAX_SETTINGS, Settings};
pub use sums::{
    Amount, Bounds, Increase, Reason, SeriesLimits, Sums, counter, increase, overflow, sums,
    sums_by_cell, value,
};
