//! Development automation: `cargo xtask`.

mod bench;

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Bench(bench) => bench::run(&bench),
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
