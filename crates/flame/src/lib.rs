//! Answers of Pyroscope's querier, as pure functions over samples.
//!
//! In go requests ([`wire::pyroscope`]) and batches of samples ([`model::samples`]) that somebody has fetched; out come the protocol's
//! answers. Which batches are looked at, the clock and the transport stay the caller's.
//!
//! ```text
//! request ─ Rules ─▶ question ─┬─ Selection::samples(batch) ─▶ Sums ─▶ CallTree ─▶ flame graph · diff · tree bytes · dot
//!                              │                                   └─▶ PlaceTree ─▶ pprof         (all of it: stacktraces, profile)
//!                              ├─ Selection::samples(batch) ─▶ SeriesSums ─▶ series
//!                              └─ Selection::samples(batch) ─▶ HeatmapSums ─▶ heat maps
//! series ─ Selector ─▶ profile types · label names · label values · label sets
//! ```
//!
//! Everything merges: batches may be added in any order and grouping, and the answer is the same, byte for byte.
//!
//! # Budget
//!
//! A sample that is asked for costs an addition to its stack's sum, and each stack with a value is walked once. The aim is 20 ns for a
//! sample, 100 ns for a frame of a distinct stack and 200 ns for a node of a tree that is cut to a flame graph, on one core; `cargo run
//! --release -p flame --example cost -- 10000000 100000` measures them (12.6, 94 and 164 ns on a machine with much else to do: 0.7 s for the
//! flame graph of ten million samples of 100,000 stacks with 3.2 million frames).
//!
//! # Where answers are not Pyroscope's own
//!
//! A cut tree has exactly as many nodes as asked for, and those that stand for the rest: of nodes with equal totals the first in depth-first order
//! stay, where Pyroscope keeps all. `SelectMergeProfile` without a number of nodes has as many as there may be. A sample
//! without frames is below [`NO_STACK`]. A profile whose samples are at several times is an observation in each step that it reaches.
//!
//! # Vocabulary
//!
//! A **selector** says which series; a **selection** which samples of them; a **question** what becomes of these. A **call tree** has a
//! node for each distinct beginning of a stack; a node's **self** is what ends there, its **total** includes what is below. A **step**
//! is the time between two points of a series.
//!
//! ```
//! use flame::{CallTree, Millis, Selection, Selector, Sums, Walk};
//! use model::samples::{Batch, Frame, Labels, Sample, Series};
//! use model::Timestamp;
//!
//! let mut batch = Batch::new();
//! let [main, work] = ["main", "work"].map(|name| {
//!     let function = batch.text(name);
//!     batch.frame(Frame { function, ..Frame::default() })
//! });
//! let stack = batch.stack(&[work, main]);
//! let labels = Labels::new([("service_name", "shop")]);
//! let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".parse()?;
//! let series = batch.series(Series { profile_type, labels });
//! let at = Timestamp::from_nanos(1_500_000_000);
//! batch.add(Sample { series, stack, at, value: 10, profile: 1, span_id: 0, trace_id: 0 });
//!
//! let selector = Selector::parse(r#"{service_name="shop"}"#)?;
//! let selection = Selection::new(selector, Millis { start: 1_000, end: 2_000 });
//! let mut tree = CallTree::new();
//! tree.add(&batch, &Sums::of(&batch, selection.samples(&batch)), Walk::default());
//! let graph = tree.flame_graph(8_192);
//! assert_eq!((graph.names, graph.total), (vec!["total".into(), "main".into(), "work".into()], 10));
//! assert_eq!(graph.levels[2].values, [0, 10, 10, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod answers;
mod arena;
mod bytes;
mod dot;
mod graph;
mod heatmap;
mod labels;
mod merge;
mod observe;
mod pattern;
mod pprof;
mod render;
mod request;
mod select;
mod selector;
mod series;
mod stacks;
mod tree;

pub use answers::{LabelSet, label_names, label_values, profile_stats, profile_types, series};
pub use heatmap::{CELLS, HeatmapAnswer, HeatmapQuestion, HeatmapSums};
pub use labels::{NAME, PROFILE_TYPE, SERVICE_NAME, is_plain_name, label, names};
pub use merge::{MergedCalls, MergedPlaces, MergedStacks};
pub use observe::{Of, Steps, uuid};
pub use pattern::Pattern;
pub use pprof::PlaceTree;
pub use render::{render, render_diff, timeline, timeline_steps};
pub use request::{Limits, MergeQuestion, Rules};
pub use select::{Millis, Selection, millis};
pub use selector::{
    Fault, MAX_MATCHERS, MAX_SELECTOR_BYTES, Matcher, Selector, SelectorError, Test,
};
pub use series::{Aggregation, SeriesAnswer, SeriesQuestion, SeriesSums};
pub use stacks::{Sums, Walk, frame_name};
pub use tree::{CallTree, NO_STACK, OTHER};
