//! System calls, scheduling, process life, interrupts, disks, network and memory of the whole machine, as a CTF trace.
//!
//! ```text
//! eBPF programs ─▶ ring of each CPU ─▶ sorter ─▶ packet of each CPU ─▶ bounded queue ─▶ output
//!  (kernel)          [programs]       [sorter]      [recorder]           [delivery]      [sink]
//! ```
//! A state dump is a pair of eBPF iterators that write into the same rings, so its records lie in the stream of the
//! CPU it ran on, each with its own time.
//!
//! Chunks are cut at one point in time for all CPUs: what is later is in the next chunk, and a state dump follows
//! the cut. A chunk lasts until its dump has ended, however short chunks are to be. Every stream has at least one packet in each chunk, so that a reader knows what time it covers.

mod address;
mod calls;
pub(crate) mod clock;
mod delivery;
mod devices;
mod dumper;
mod encode;
mod programs;
mod record;
mod recorder;
mod schema;
mod sink;
mod sorter;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use model::Pid;

use crate::error::Result;
use crate::preflight::Unavailable;

pub use encode::EncodeError;
pub use record::RecordError;
pub use sink::RelayError;

/// What to capture and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the trace goes.
    pub output: Output,
    /// Name of the recording session.
    pub session: String,
    /// Length of a trace chunk, which is longer when its state dump takes longer; `None`: one chunk.
    pub rotate: Option<Duration>,
    /// When to stop by itself; `None`: only when told.
    pub duration: Option<Duration>,
    /// Size of each CPU's ring in bytes; rounded up to a power of two, from 4 KiB to 1 GiB.
    pub ring_bytes: u64,
    /// The most bytes of a packet; from 64 KiB.
    pub packet_bytes: u64,
    /// Whose system calls to capture. All other events are always those of all processes.
    pub processes: Processes,
    /// What to capture.
    pub groups: BTreeSet<Group>,
    /// How long a relay that was lost is looked for; only one of ours can go on where it stopped.
    pub reconnect: Duration,
}

impl Config {
    /// The usual settings for an output.
    #[must_use]
    pub fn new(output: Output) -> Self {
        Self {
            output,
            session: "kernel".to_owned(),
            rotate: None,
            duration: None,
            ring_bytes: 8 << 20,
            packet_bytes: 256 << 10,
            processes: Processes::AllBut(Vec::new()),
            groups: Group::USUAL.into(),
            reconnect: Duration::from_secs(60),
        }
    }
}

/// Events that are captured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// System calls.
    Calls,
    /// Scheduling, process life, and a state dump of threads and descriptors at the head of each chunk. Without them
    /// processes that a listed process starts are not followed.
    Scheduling,
    /// Interrupts of devices, and soft interrupts.
    Interrupts,
    /// Requests to block devices, and their names at the head of each chunk.
    Disks,
    /// Packets that network interfaces send and receive.
    Network,
    /// Pages that are allocated and freed: by far the most events on a busy machine.
    Memory,
}

impl Group {
    /// All groups but those that are for a question of their own.
    pub const USUAL: [Self; 5] =
        [Self::Calls, Self::Scheduling, Self::Interrupts, Self::Disks, Self::Network];
}

/// Whose system calls are captured. This process is never among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Processes {
    /// All except these.
    AllBut(Vec<Pid>),
    /// Only these and the processes they start from now on.
    Only(Vec<Pid>),
}

/// Where a trace goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A folder on this machine, made when it is not there. Without rotation it holds `kernel/`, else `archives/`.
    Folder(PathBuf),
    /// A relay that speaks LTTng's protocol: lttng-relayd or ours.
    Relay(RelayAddress),
}

/// The two connections of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAddress {
    /// Host name or IP address.
    pub host: String,
    /// TCP port for commands; 5342 by default.
    pub control_port: u16,
    /// TCP port for packets; 5343 by default.
    pub data_port: u16,
    /// What is shown to the relay when its ports are encrypted, which then are one. The files are read for each connection.
    pub tls: Option<door::Settings>,
}

/// What was captured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Event records in packets.
    pub events: u64,
    /// Records that the rings could not take, by CPU.
    pub discarded: Vec<u64>,
    /// Packets.
    pub packets: u64,
    /// Trace chunks.
    pub chunks: u64,
    /// Times the relay was lost and found again.
    pub reconnections: u64,
    /// Records that came later than the sorter waits; they stand in their stream with the time of the record
    /// before them.
    pub late: u64,
    /// Times a program did not run because it interrupted itself on the same CPU.
    pub missed: u64,
}

impl Report {
    /// Records that the rings could not take, over all CPUs.
    #[must_use]
    pub fn discarded_total(&self) -> u64 {
        self.discarded.iter().sum()
    }
}

/// Says whether [`run`] can work here, without loading anything.
///
/// # Errors
/// The first reason found why not.
pub fn preflight() -> std::result::Result<(), Unavailable> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Unavailable::SystemCalls);
    }
    crate::preflight()
}

/// Captures until `stop` is set or the configured time is over, then ends the recording in order.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) before anything is written when this machine cannot do it;
/// [`Error::Undelivered`](crate::Error::Undelivered) when the output is lost in mid-run; others as they say.
pub fn run(config: &Config, stop: &AtomicBool) -> Result<Report> {
    run_with(config, stop, || {})
}

/// Like [`run`], and calls `attached` once everything that happens from then on is captured.
///
/// # Errors
/// As [`run`].
pub fn run_with(config: &Config, stop: &AtomicBool, attached: impl FnOnce()) -> Result<Report> {
    preflight()?;
    recorder::run(config, stop, attached)
}
