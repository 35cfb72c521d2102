//! The `throughline` command: arguments in, one role run, an exit code out.

mod command;
mod config;
mod log;
mod outcome;
mod stop;
mod table;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::outcome::Outcome;

const EXAMPLES: &str = "\
Examples:
  throughline up                                    take recordings, stitch them, show a page
  throughline capture kernel --to net://127.0.0.1   add the kernel's half
  throughline analyze phases throughline-data/traces
  throughline read throughline-data/traces";

/// Says what the machines really did: traces, reads, stitches and shows.
#[derive(Parser)]
#[command(name = "throughline", version, before_help = EXAMPLES, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trace this machine into a folder or to a relay
    Capture(command::capture::Args),
    /// Sample which functions the machine's time goes to (needs root)
    Profile(command::profile::Args),
    /// Sample the whole machine, always, and keep what applications record; send what it finds (sampling needs root)
    Agent(command::agent::Args),
    /// Say what became of every record that applications of this machine wrote
    Ledger(command::ledger::Args),
    /// Print the event records of recordings, merged in time
    Read(command::read::Args),
    /// Show recording sessions of a relay while they are written
    Live(command::live::Args),
    /// Say what traces in the Common Trace Format hold
    Ctf(command::ctf::Args),
    /// Say where the time of requests went, or which system calls were made
    Analyze(command::analyze::Args),
    /// Merge blocks of a store of profiles beside it
    Compact(command::compact::Args),
    /// Read and merge windows of recordings for jobs of `analyze --workers`
    #[cfg(feature = "cluster")]
    Worker(command::worker::Args),
    /// Answer viewers of traces that call external analyses (LAMI)
    Lami(command::lami::Args),
    /// Ask recordings in SQL
    #[cfg(feature = "sql")]
    Sql(command::sql::Args),
    /// Write recordings to files of Apache Parquet
    #[cfg(feature = "sql")]
    Chunk(command::chunk::Args),
    /// Take recording sessions of LTTng over the network
    Relay(command::relay::Args),
    /// Keep profiles that clients push, and answer what clients of Pyroscope ask of them
    Store(command::store::Args),
    /// Write what rules make of the profiles that a store has
    Rules(command::rules::Args),
    /// Take recordings, stitch their chunks as they arrive, and show the answers on a web page
    Up(command::up::Args),
    /// Print the completion script of a shell
    Completions(command::completions::Args),
}

fn main() -> ExitCode {
    // Viewers of traces ask the first word of the command that calls an analysis, before they give it the other words.
    if std::env::args_os().skip(1).eq(["--mi-version"]) {
        return outcome::report(command::lami::print_version());
    }
    let arguments = config::parse::<Arguments>(std::env::args_os().collect());
    outcome::report(arguments.and_then(|arguments| run(arguments.command)))
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Capture(args) => command::capture::run(args),
        Command::Profile(args) => command::profile::run(args),
        Command::Agent(args) => command::agent::run(args),
        Command::Ledger(args) => command::ledger::run(&args),
        Command::Read(args) => command::read::run(&args),
        Command::Live(args) => command::live::run(&args),
        Command::Ctf(args) => command::ctf::run(&args),
        Command::Analyze(args) => command::analyze::run(&args),
        Command::Compact(args) => command::compact::run(&args),
        #[cfg(feature = "cluster")]
        Command::Worker(args) => command::worker::run(&args),
        Command::Lami(args) => command::lami::run(&args),
        #[cfg(feature = "sql")]
        Command::Sql(args) => command::sql::run(&args),
        #[cfg(feature = "sql")]
        Command::Chunk(args) => command::chunk::run(&args),
        Command::Relay(args) => command::relay::run(&args),
        Command::Store(args) => command::store::run(&args),
        Command::Rules(args) => command::rules::run(&args),
        Command::Up(args) => command::up::run(args),
        Command::Completions(args) => command::completions::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definitions_of_arguments_do_not_contradict_each_other() {
        super::Arguments::command().debug_assert();
    }
}
