//! Questions and their answers: against counting by hand, over recorded traces and made ones.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod ask;
mod exported;
mod items;
mod made;
mod pushdown;
mod recorded;
mod refused;
mod rows;
