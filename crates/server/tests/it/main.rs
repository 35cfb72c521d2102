//! The server over real sockets and the page in a real browser.

mod browser;
mod client;
mod http;
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test's own helpers: what is not there fails the test"
)]
mod live;
#[expect(
    clippy::indexing_slicing,
    reason = "a test's own helpers: an index that is not there fails the test"
)]
mod page;
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test's own helpers: what is not there fails the test"
)]
mod profiles;
#[expect(
    clippy::indexing_slicing,
    reason = "a test's own helpers: an index that is not there fails the test"
)]
mod sample;
