//! Bodies as clients send them, and as nobody should.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a failure of the test that calls it"
)]

mod ingest;
mod jfr;
mod memory;
mod otlp;
mod pprof;
mod push;
mod support;
