//! Packets: the same samples give the same bytes, and the bytes alone give the samples.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod packets;
mod stream;
mod views;
