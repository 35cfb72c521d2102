//! Applications that write, and what is read of them.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test fails by panicking; helpers stand outside of test functions, and applications say how far they are"
)]

mod app;
mod c;
mod costs;
mod hostile;
mod killed;
mod peer;
mod python;
mod spans;
mod written;
