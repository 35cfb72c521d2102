//! `throughline profile send`: sends packets from files, as often as one likes.

use std::path::PathBuf;
use std::time::Duration;

use agent::{Attempt, Keep, PacketName, Sender, Sending, Target};
use anyhow::Context;
use profile::{Limits, ungzip};

use crate::command::sending::SendingArgs;
use crate::outcome::{Outcome, complain};
use crate::units::parse_duration;

#[derive(clap::Args)]
pub(super) struct SendArgs {
    /// Profiles: OTLP requests, as they are or in gzip
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Who takes them, as `throughline agent --send`
    #[arg(long, value_name = "URL", required = true)]
    to: Target,
    #[command(flatten)]
    sending: SendingArgs,
    /// How long to try to send one file
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    give_up: Duration,
}

/// Sends each file until it is taken or refused.
pub(super) fn send(args: &SendArgs) -> anyhow::Result<Outcome> {
    let keep = Keep { bytes: u64::MAX, age: None };
    let sending = args.sending.of(std::slice::from_ref(&args.to), keep)?;
    let sender =
        Sender::new(&args.to, &sending.into_iter().next().unwrap_or_else(Sending::default))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (mut sent, mut refused, mut rejected) = (0_usize, 0_usize, 0);
    for path in &args.files {
        let shown = || path.display().to_string();
        let bytes = std::fs::read(path).with_context(shown)?;
        let plain = ungzip(&bytes, Limits::default()).with_context(shown)?;
        let name = PacketName::of_bytes(&plain)
            .with_context(|| format!("{} is no profile", path.display()))?;
        let packet = if plain == bytes { profile::gzip(&plain) } else { bytes };
        match runtime.block_on(sender.send_patiently(&name, packet.into(), args.give_up)) {
            Attempt::Delivered { rejected_profiles } => {
                sent += 1;
                rejected += rejected_profiles;
            }
            Attempt::Refused { why } => {
                refused += 1;
                complain(&format!("{}: refused: {why}", path.display()));
            }
            Attempt::Again { why, .. } => {
                anyhow::bail!("{sent} files were sent; {} could not be: {why}", path.display());
            }
        }
    }
    complain(&format!("{sent} files sent to {}", args.to));
    if rejected > 0 {
        complain(&format!("{rejected} profiles of them were rejected"));
    }
    Ok(if refused + usize::from(rejected > 0) == 0 { Outcome::Done } else { Outcome::No })
}
