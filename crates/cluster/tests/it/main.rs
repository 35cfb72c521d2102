//! Workers in threads of the test: the same blocks and answers as without them, however the work is cut.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod busy;
mod crew;
mod jobs;
#[path = "../../../blocks/tests/it/recipe.rs"]
mod recipe;
mod refused;
