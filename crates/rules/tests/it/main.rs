//! Rules, books and sums from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod book;
mod config;
mod laws;
mod samples;
mod service;
mod sums;
