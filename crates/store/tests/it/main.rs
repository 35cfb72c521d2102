//! What blocks promise.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod blocks;
mod catalogue;
#[path = "../../../ducklake/tests/it/duckdb.rs"]
mod duckdb;
mod exports;
mod lake;
