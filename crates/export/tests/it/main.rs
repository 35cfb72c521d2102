//! Sending cells to receivers of remote write.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod http;
mod machine;
mod prometheus;
mod receiver;
