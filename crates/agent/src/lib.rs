//! Delivers profile packets: from a sampler to whoever takes them, through a bounded spool on the disk.
//!
//! ```text
//! offer ─▶ inbox ─▶ writer ─▶ spool: one folder for each target ─▶ driver of the target ─▶ OTLP, files, …
//!          (memory)  (thread)  (disk; memory while it cannot be written)
//! ```
//! In go [`profile::Packet`]s; what is done with them shows in [`Status`] and in the packets that follow. Sampling, signals and what is
//! printed stay the caller's duty. [`Agent::offer`] does not wait for disk or network, so that a sampler may call it.
//!
//! Vocabulary:
//! - **target**: who takes packets, by URL; its **driver** is the task that sends them, one at a time, the oldest first;
//! - **queue**: the packets of one target that are neither delivered nor dropped;
//! - **spool**: all queues; bounded by bytes, number and age, the oldest packet goes first;
//! - **ledger**: for each target, packets sealed + found at the start = delivered + dropped, by reason + waiting.
//!
//! A packet is written before any driver sees it, and leaves a queue after its target has taken it: killed at any moment, a packet
//! may be delivered twice, with the same id, and none is lost that was written. What is dropped is told in a later packet's losses, under
//! `undelivered.REASON`: the samples of the dropped packet and those that it told to be lost.

mod driver;
mod error;
mod ledger;
mod name;
mod run;
mod spool;
mod target;

pub use driver::{Attempt, Keep, Sender, Sending};
pub use error::{Error, Result};
pub use ledger::{Counts, Kind, Loss, Reason};
pub use name::PacketName;
pub use run::{Agent, Settings, Status};
pub use spool::Bounds;
pub use target::{Target, TargetError};
pub use webclient::{Headers, HeadersError};
