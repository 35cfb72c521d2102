//! By eBPF: kernel tracing, written as CTF with LTTng's names ([`kernel`]), and samples of who runs with whole stacks ([`profile`]).
//!
//! What comes out of [`kernel::run`]: one CTF stream per CPU in time order, cut into rotation chunks that can each be
//! read alone, in a local folder or streamed to a relay. What stays the caller's: being root, telling when to stop,
//! and printing the [`kernel::Report`].
//!
//! Vocabulary:
//! - **record**: what an eBPF program puts into the ring buffer of its CPU;
//! - **event record**: the same as CTF;
//! - **discarded**: a record the ring had no room for, counted per CPU and told in every packet;
//! - **state dump**: processes, threads and open descriptors, written at the head of each chunk;
//! - **trace chunk**: the packets of all CPUs between two cuts; a cut is one point in time for all of them.

mod error;
pub mod kernel;
mod object;
mod preflight;
pub mod profile;

pub use error::{Error, Result};
pub use preflight::{Unavailable, preflight};
