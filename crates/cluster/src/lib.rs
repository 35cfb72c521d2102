//! Jobs on recordings done by workers: other processes, on other machines.
//!
//! In goes a job's steps ([`blocks::Step`]), out come their outcomes, as from threads of this process: [`Cluster`] is an
//! [`blocks::Engine`]. The steps are the leaf of a plan of datafusion-distributed, which cuts it into a task for each worker, sends
//! the tasks and brings back the rows. A worker ([`serve`]) does its steps, merges neighbours, commits every summary as a block where
//! the job keeps them, and answers with a row for each: a name, a length and a checksum. The coordinator takes the blocks from there.
//!
//! ```text
//!             coordinator                                   worker, several
//! steps ─▶ StepsExec ─ cut ─▶ a task each ── gRPC ──▶ StepsExec ─▶ Hands::work ─▶ blocks in a folder or a bucket
//!                        rows: names of blocks ◀─────────┘                                │
//! outcomes ◀── the blocks ◀───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is remembered about a worker. When one is lost its rows are missing, the plan ends with its name, and the job plans
//! again what is not committed, for those who still answer.
//!
//! Vocabulary:
//! - **worker**: a process that does steps; **coordinator**: one that has a job;
//! - **address**: a host and a port, at which one worker answers or, if a name stands for several hosts, several ([`Address`]);
//! - **task**: neighbouring steps for one worker ([`blocks::Task`]); **row**: a [`blocks::Report`].

mod address;
mod channel;
mod codec;
mod engine;
mod error;
mod gate;
mod plan;
mod split;
mod worker;

pub use address::{Address, BadAddress, DEFAULT_PORT};
pub use engine::Cluster;
pub use error::Error;
pub use worker::{MAX_CONNECTIONS, MAX_TASKS, serve};

use blocks::{BlockId, TASK_VERSION};

/// What a worker says that it is, and a coordinator demands: programs that would make other blocks of the same recordings, or
/// speak of them in another way, do not work together.
///
/// # Errors
///
/// [`blocks::Error::Summary`] when this program can write no summary.
pub fn version() -> Result<String, blocks::Error> {
    let reading = BlockId::of_nothing()?.to_hex();
    let reading = reading.get(..16).unwrap_or(&reading);
    Ok(format!("throughline {}, tasks {TASK_VERSION}, blocks {reading}", env!("CARGO_PKG_VERSION")))
}
