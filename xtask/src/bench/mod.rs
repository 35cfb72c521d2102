//! `cargo xtask bench NAME`: one measurement a module, each beside a peer in the same run.
//!
//! A benchmark needs the release binary (`cargo build --release -p cli`) and the peer's program; it says
//! which of them is missing. Figures are ratios of medians over several rounds with their spread.

use clap::Subcommand;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {}

/// Runs one measurement and prints its table.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match *bench {}
}
