//! Tests of catalogues against their readers.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod lake;
mod random;
mod readers;
mod reference;
mod refusals;
mod speed;
mod statistics;
