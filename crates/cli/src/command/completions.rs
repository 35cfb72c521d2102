//! `throughline completions SHELL`.

use std::io::{self, Write};

use anyhow::Context;
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
    // The generator panics where its writer fails; memory does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "throughline", &mut script);
    io::stdout().lock().write_all(&script).context("cannot write the script")?;
    Ok(Outcome::Done)
}
