//! Jobs whose summaries are kept, on sessions of many chunks and on recorded ones.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

#[path = "../../../stitch/tests/it/compare.rs"]
#[expect(dead_code, reason = "shared with tests that look at more of an answer")]
mod compare;
mod damage;
mod hostile;
mod jobs;
mod recipe;
mod sent;

#[global_allocator]
static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;
