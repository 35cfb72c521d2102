//! Profiles as people and their tools look at them.
//!
//! [`Weights`] adds up any number of requests, each packet once; the views are made from that. Only [`pprof()`] keeps addresses and
//! build IDs, so it is made from requests.

mod diff;
mod firefox;
mod flame;
mod folded;
mod hottest;
mod pprof;
mod weights;

pub use diff::{Change, Cost, diff, diff_text, functions};
pub use firefox::firefox;
pub use flame::flame_graph;
pub use folded::folded;
pub use hottest::hottest;
pub use pprof::{pprof, pprof_of_series};
pub use weights::{Label, Weights};
