//! `throughline ctf VERB PATH…`: what traces in the Common Trace Format hold.

mod check;
mod classes;
mod compress;
mod convert;
mod info;

use clap::Subcommand;

use crate::outcome::Outcome;

const EXAMPLES: &str = "\
Examples:
  throughline ctf info session/        streams, packets, clocks, environment, loss
  throughline ctf check session/       everything that is wrong, and where
  throughline ctf info --format json session/ | jq '.traces[].streams[].packets'
  throughline ctf convert session/ -o session-ctf2/ --to 2
  throughline ctf compress session/    sealed chunks take less room and are read as before";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what traces hold: streams, packets, clocks, environment, loss
    Info(info::Args),
    /// Read everything and say what is wrong, and where
    Check(check::Args),
    /// Write traces in another version of the format, or cut them by time
    Convert(convert::Args),
    /// Compress the data streams of sealed chunks where they lie
    Compress(compress::Compress),
    /// Undo that
    Decompress(compress::Decompress),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.verb {
        Verb::Info(args) => info::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::Compress(args) => compress::compress(args),
        Verb::Decompress(args) => compress::decompress(args),
    }
}
