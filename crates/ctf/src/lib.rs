//! Common Trace Format: metadata, packets, event records, indexes; reading and writing.

pub mod index;
