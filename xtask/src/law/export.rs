//! The law of export: for each series, the samples that a receiver has add up to what the store answers, and to what clients pushed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use model::Timestamp;
use serde_json::Value;
use store::catalogue::Catalogue;
use store::lake::name::Tenant;
use testkit::exporting::{self, Outcome, Trial};

use super::say;

/// Cells that are told of, of those that are wrong.
const TOLD: usize = 100;

#[derive(clap::Args)]
pub(super) struct Args {
    /// How often something is killed
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// What decides about everything but time
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many workers merge blocks
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// By remote write 2.0 to the Prometheus that THROUGHLINE_PROMETHEUS names
    #[arg(long)]
    newest: bool,
    /// The binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
    /// The store's catalogue, such as postgres://localhost/profiles, instead of a file
    #[arg(long, value_name = "URL")]
    catalogue: Option<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<bool> {
    let begin = Instant::now();
    let program = args.binary.canonicalize();
    let program = program.with_context(|| args.binary.display().to_string())?;
    let folder = tempfile::tempdir()?;
    let trial = Trial {
        program,
        catalogue: args.catalogue.clone(),
        rules,
        workers: args.workers,
        is_newest: args.newest,
        kills: args.kills,
        seed: args.seed,
    };
    let bar = indicatif::ProgressBar::new(args.kills);
    let outcome = exporting::run(&trial, folder.path(), |kills| bar.set_position(kills));
    bar.finish_and_clear();
    let Some(outcome) = outcome else { bail!("there is no such prometheus") };
    tell(&outcome);
    let [.., cells] = outcome.rules;
    if cells == 0 {
        bail!(
            "no cell of a rule was compared, so that nothing is known of the law: more --kills make more rules"
        );
    }
    say(&format!(
        "seed {}: the law {}; {:.0} s",
        args.seed,
        if outcome.holds() { "holds" } else { "is broken" },
        begin.elapsed().as_secs_f64()
    ));
    Ok(outcome.holds())
}

/// What a catalogue has as rules.
fn rules(url: &str, data: &Path) -> Value {
    // The time is that of tables, which are there.
    let since = Timestamp::from_nanos(0);
    let catalogue = Catalogue::open(url, &data.display().to_string(), since).expect("a catalogue");
    let tenant = Tenant::new("anonymous").expect("a tenant");
    let book = catalogue.rules(&tenant).expect("rules");
    serde_json::to_value(book).expect("JSON")
}

fn tell(outcome: &Outcome) {
    let Outcome { kills, by_workers, pushes, requests, rules, wrong, .. } = outcome;
    let Outcome { pushed, stored, exported, .. } = outcome;
    let ([store, prometheus, worker], [acknowledged, sent], [all, ill, newer]) =
        (kills, pushes, requests);
    say(&format!(
        "killed: the store {store} times, Prometheus {prometheus} times, a worker {worker} times"
    ));
    say(&format!("merges that workers did for the last store: {by_workers}"));
    say(&format!("pushes: {acknowledged} acknowledged, sent {sent} times"));
    say(&format!(
        "remote write: {all} requests, {newer} of them by 2.0; {ill} were refused, unheard, late or lied about"
    ));
    let [made, changed, cells] = rules;
    say(&format!(
        "rules: {made} made and deleted meanwhile, changed in place {changed} times; {cells} cells of them compared"
    ));
    wrong.iter().take(TOLD).for_each(|wrong| say(wrong));
    if wrong.len() > TOLD {
        say(&format!("and {} further cells", wrong.len() - TOLD));
    }
    let functions: BTreeSet<&String> =
        pushed.keys().chain(stored.keys()).chain(exported.keys()).collect();
    for function in functions {
        let of = [pushed, stored, exported].map(|all| all.get(function).copied());
        if of != [of.first().copied().flatten(); 3] {
            say(&format!("{function}: pushed, stored, exported: {of:?}"));
        }
    }
}
