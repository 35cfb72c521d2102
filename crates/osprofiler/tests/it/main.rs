//! What clients of Redis are told, what notifications become, and OSProfiler itself as a peer.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod header;
mod json;
mod memory;
mod notification;
mod peers;
mod resp;
mod server;
mod session;
mod spans;
