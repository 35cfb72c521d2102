//! What blocks promise.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod backfill;
mod blocks;
mod catalogue;
mod cut;
mod exports;
mod faults;
mod lake;
