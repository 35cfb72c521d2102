//! Tests of the analysis against itself under random cuts, against a naive interpreter, and on real recordings.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod arriving;
mod edges;
mod kernel_like;
mod laws;
mod recorded;
mod witness;
