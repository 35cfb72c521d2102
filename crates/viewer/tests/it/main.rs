//! The viewer from outside, against a relay that does what a test says.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod order;
mod relay;
mod untrusted;
