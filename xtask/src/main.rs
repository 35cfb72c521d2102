//! Development automation: `cargo xtask`.

mod bench;
mod fuzz;
mod kill;
mod law;
mod memory;
mod producer;
mod relays;
mod sim;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development automation.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure one part against a peer in the same run; prints ratios
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run the fuzz targets, each for a while, on a corpus that begins with the conformance cases
    Fuzz(fuzz::Fuzz),
    /// Kill the relay at random moments while producers write, and look for what it acknowledged
    Kill(kill::Args),
    /// Cut random facts anywhere, merge the summaries in any order, and compare with the summary of the whole; `law profile`: of
    /// packets of samples
    Law(law::Args),
    /// Simulate recording sessions with faults, and check what viewers are shown
    Sim(sim::Args),
    /// Run a command and print its CPU time, wall time and peak memory
    #[command(hide = true)]
    Measured {
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Decode and analyse a recording once
    #[command(hide = true)]
    Pass(bench::Pass),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Bench(bench) => bench::run(&bench),
        Task::Fuzz(fuzz) => fuzz::run(&fuzz),
        Task::Kill(kill) => kill::run(&kill),
        Task::Law(law) => match law::run(&law) {
            Ok(true) => Ok(()),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Task::Sim(sim) => sim::run(&sim),
        Task::Measured { command } => bench::measured(&command),
        Task::Pass(pass) => pass.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("xtask: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is the command line of a development tool")]
fn complain(line: &str) {
    eprintln!("{line}");
}
