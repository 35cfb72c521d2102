//! Profiles as people and their tools look at them.
//!
//! [`Weights`] adds up any number of requests, each packet once; the views are made from that. Only [`pprof()`] keeps addresses and
//! build IDs, so it is made from requests.

mod diff;
mod firefox;
mod flame;
mod folded;
mod functions;
mod hottest;
mod pprof;
mod weights;

pub use diff::{Change, diff, diff_text};
pub use firefox::firefox;
pub use flame::flame_graph;
pub use folded::folded;
pub use functions::{Cost, functions, functions_text};
pub use hottest::hottest;
pub use pprof::{pprof, pprof_of_series};
pub use weights::{Label, Weights};
