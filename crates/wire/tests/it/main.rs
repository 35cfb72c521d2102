//! Tests of the wire codecs against recorded byte streams and damaged input.
#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test that fails here fails"
)]

mod live;
