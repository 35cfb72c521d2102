//! A client of web servers that take what is posted to them, one request at a time, or give files.
//!
//! In goes a request, out comes an [`Answer`] that was read whole, or in one line why there is none. What an answer means, how long it may
//! take and when the request is sent again stay the caller's business; [`Backoff`] and [`retry_after`] say when that makes sense.
//! What is longer than an answer comes by [`download`], piece by piece.

mod client;
mod headers;
mod retry;

pub use client::{Answer, Client, PRODUCT, Version, download, exchange, new, shown};
pub use headers::{Headers, HeadersError};
pub use retry::{Backoff, retry_after};
