//! Tests on recorded traces, a conformance suite and damaged bytes.

mod conformance;
mod real;
mod robust;
mod support;
mod writer;
