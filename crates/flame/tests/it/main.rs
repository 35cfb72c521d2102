//! Answers over samples whose values were worked out by hand, and laws of merging on random ones.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod graphs;
mod labels;
mod profile_view;
mod render;
mod requests;
mod samples;
mod selectors;
mod series;
mod trees;
