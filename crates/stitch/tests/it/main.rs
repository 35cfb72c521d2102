//! Tests of the analysis against itself under random cuts, and against a naive interpreter.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod blocked;
mod bounds;
mod compare;
mod edges;
mod file;
mod kernel_like;
mod laws;
mod lives;
mod log;
mod paths;
mod periods;
mod story;
mod tables;
mod witness;
