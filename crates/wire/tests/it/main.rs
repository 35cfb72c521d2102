//! Tests of the wire codecs against recorded byte streams and damaged input.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that fails here fails"
)]

mod live;
mod pyroscope;
mod viewer;
mod viewer_peer;
mod viewer_relay;
