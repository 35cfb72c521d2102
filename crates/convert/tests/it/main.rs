//! Conversions of recorded and made traces: what is read before is read after.

#![expect(clippy::indexing_slicing, reason = "a test that reaches beyond its data should fail")]

mod conformance;
mod ctf;
mod support;
mod viewers;
