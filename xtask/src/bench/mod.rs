//! `cargo xtask bench NAME`: one measurement a module, each beside a peer in the same run.
//!
//! A benchmark needs the release binary (`cargo build --release -p cli`) and the peer's program; it says
//! which of them is missing. Figures are medians over several rounds with their spread, and ratios.

mod capture;
mod chunks;
mod cluster;
mod live;
mod lttng;
mod measure;
mod profile;
mod read;
mod relay;
mod repeat;
mod stitch;
mod store;
mod table;
mod tracepoint;
mod two_sessions;
mod ust_loss;
mod viewers;

use clap::Subcommand;

pub(crate) use measure::measured;
pub(crate) use stitch::Pass;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Slowdown of a loop of system calls under `throughline capture kernel`, bpftrace and perf trace
    Capture(capture::Args),
    /// What sealing, compressing, copying and reading of chunks costs, beside `zstd -T1` and `cp`
    Chunks(chunks::Args),
    /// What having a job done by one to three workers costs, and what killing one of them does
    Cluster(cluster::Args),
    /// What `throughline store` and a `pyroscope` server cost for the same pushes and questions
    Pyroscope(store::servers::Args),
    /// How long an event takes from the traced program to a viewer's output: `throughline live` and babeltrace2, side by side
    Live(live::Args),
    /// Slowdown of programs under `throughline profile`, perf and py-spy, and what profiling costs itself
    Profile(profile::Args),
    /// Every speed of `throughline read` against babeltrace2 and against a loop written for one layout
    Read(read::Args),
    /// CPU seconds per GB and microseconds per small packet against `lttng-relayd`
    Relay(relay::Args),
    /// What analysing recordings costs, in time, memory and bytes, beside babeltrace2
    Stitch(stitch::Args),
    /// What the store of profiles costs: pushes, merges, bytes of a sample by column, questions
    Store(store::Args),
    /// What a record costs an application, beside LTTng-UST and a bare loop
    Tracepoint(tracepoint::Args),
    /// What two saturating sessions get done against one, with our relay and with `lttng-relayd`
    TwoSessions(two_sessions::Args),
    /// Events that a saturating user-space producer loses while it streams to our relay and to `lttng-relayd`
    UstLoss(ust_loss::Args),
    /// Memory, CPU time and delay of many viewers of one live session, babeltrace2 among them
    Viewers(viewers::Args),
}

/// Runs one measurement and prints its table.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Capture(args) => capture::run(args),
        Bench::Chunks(args) => chunks::run(args),
        Bench::Cluster(args) => cluster::run(args),
        Bench::Pyroscope(args) => store::servers::run(args),
        Bench::Live(args) => live::run(args),
        Bench::Profile(args) => profile::run(args),
        Bench::Read(args) => read::run(args),
        Bench::Relay(args) => relay::run(args),
        Bench::Stitch(args) => stitch::run(args),
        Bench::Store(args) => store::run(args),
        Bench::Tracepoint(args) => tracepoint::run(args),
        Bench::TwoSessions(args) => two_sessions::run(args),
        Bench::UstLoss(args) => ust_loss::run(args),
        Bench::Viewers(args) => viewers::run(args),
    }
}
