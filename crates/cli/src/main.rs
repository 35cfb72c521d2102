//! The `throughline` command: arguments in, one role run, an exit code out.

mod command;
mod outcome;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::outcome::Outcome;

const EXAMPLES: &str = "\
Examples:
  throughline --help";

/// Says what the machines really did: traces, reads, stitches and shows.
#[derive(Parser)]
#[command(name = "throughline", version, before_help = EXAMPLES, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take recording sessions of LTTng over the network
    Relay(command::relay::Args),
    /// Print the completion script of a shell
    Completions(command::completions::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    outcome::report(run(arguments.command))
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Relay(args) => command::relay::run(&args),
        Command::Completions(args) => command::completions::run(&args),
    }
}
