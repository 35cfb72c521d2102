//! Tests on recorded traces, a conformance suite and damaged bytes.

mod conformance;
mod real;
mod support;
mod writer;
