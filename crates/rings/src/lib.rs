//! What applications wrote into shared memory by crate `tracepoint`, as an agent reads it.
//!
//! ```text
//! Door ─▶ memory file ─▶ Rings ─▶ Ring (a thread's) ─▶ Batch: words that were copied ─▶ Items: records, and what was dropped
//!                                                  └─▶ release, once what was read is kept elsewhere
//! ```
//! In go memory files, which applications hand over at the [`Door`]; out come records with their call sites, in the order of their ring. When they
//! are read, and where records go, is the caller's.
//!
//! The other side may be broken or hostile: a file that could be made shorter is refused, each number is checked where it is used, and what
//! is read is copied first. A ring that says what cannot be is an error of that ring alone. No length that it says takes memory
//! beyond the ring's own.
//!
//! Killed at any moment, a reader leaves each ring as it was released last: who comes next reads on from there.

mod describe;
mod door;
mod error;
mod map;
mod reader;
mod record;

pub use describe::{SiteInfo, describe};
pub use door::{Connection, Door, Refused};
pub use error::{Error, Wrong};
pub use reader::{About, Batch, Ring, Rings};
pub use record::{Cursor, Cut, Item, Items, OfSpan, Record, Value};
