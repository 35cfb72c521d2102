//! The agent against targets that take, refuse, fail and stay away.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod collector;
mod grpc;
mod http;
mod kill;
mod packets;
mod push;
