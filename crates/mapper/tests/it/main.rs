//! Tests on real recordings: as a whole, cut anywhere, and arriving chunk by chunk.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod arriving;
#[path = "../../../stitch/tests/it/compare.rs"]
mod compare;
mod events;
mod recorded;
mod streams;
mod written;
