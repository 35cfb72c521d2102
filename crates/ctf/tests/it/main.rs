//! Tests on recorded traces, a conformance suite and damaged bytes.

#![expect(clippy::indexing_slicing, reason = "a test that reaches beyond its data should fail")]

mod conformance;
mod ctf2;
mod examples;
mod filter;
mod memory;
mod metadata_stream;
mod real;
mod robust;
mod support;
mod text;
mod tsdl;
mod writer;

/// Counts, so that tests can say how much memory something holds.
#[global_allocator]
static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;
