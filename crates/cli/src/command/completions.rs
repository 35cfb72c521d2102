//! `throughline completions SHELL`.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Arguments;
use crate::outcome::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to complete in
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    clap_complete::generate(
        args.shell,
        &mut Arguments::command(),
        "throughline",
        &mut io::stdout().lock(),
    );
    Ok(Outcome::Done)
}
