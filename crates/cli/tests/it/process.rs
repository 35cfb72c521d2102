//! The command under test, and what starts and ends it.

pub(crate) use testkit::{Running, wait_for};

/// The command under test.
pub(crate) const THROUGHLINE: &str = env!("CARGO_BIN_EXE_throughline");
