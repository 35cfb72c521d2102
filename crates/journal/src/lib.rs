//! Entries in order on the disk, between those who append and those who read, each at its own place.
//!
//! ```text
//! append ─▶ segment, segment, … (oldest first) ─▶ Reader "a": next ─▶ ack
//!                                              └▶ Reader "b": next ─▶ ack
//! ```
//! In go payloads of any kind with the number of records that they hold; out they come, to each [`Reader`] once and in order, for as long as
//! they are kept. What a payload means is the caller's, and so is when to [`Journal::sync`].
//!
//! Vocabulary:
//! - **entry**: a payload with its number, kind and time; it is there whole or not at all;
//! - **record**: what a ledger counts; an entry holds some;
//! - **segment**: a file of entries that follow each other;
//! - **position**: an entry's number, and how many records are before it.
//!
//! What was appended survives the process (and the machine, once it was synced). The journal is bounded by bytes and age: its oldest segment goes, and
//! what a reader has not read of it is counted, by [`Reason`], so that for each reader *records before its position = acknowledged + dropped*, and
//! those behind wait. An entry that was read and not acknowledged is given again at the next start.

mod error;
mod frame;
mod reader;
mod segment;
mod state;

pub use error::{Error, Result};
pub use frame::{Header, MAX_PAYLOAD, Position};
pub use reader::{Entry, Reader};
pub use state::{Bounds, Counts, Journal, Levels, Reason};
