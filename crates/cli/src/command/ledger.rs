//! `throughline ledger`: what became of every record that applications of this machine wrote.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use recorder::{DriverLedger, Ledger, ServiceLedger};

use crate::command::recording::JOURNAL;
use crate::outcome::Outcome;
use crate::table::{Align, Table};
use crate::units::size;

const EXAMPLES: &str = "\
Examples:
  throughline ledger
  throughline ledger --journal /var/lib/throughline/journal --format json

What an agent that records has noted, at most a second ago while it runs: for each service what was emitted, which is what was stored and
what was dropped by reason; for each target what of that was delivered, dropped by reason, or waits. Exit code 0: every record is accounted
for; 1: some are not. See docs/recording.md";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent's folder of records that wait
    #[arg(long, value_name = "DIR", default_value = JOURNAL)]
    journal: PathBuf,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let ledger = Ledger::read(&args.journal)
        .with_context(|| format!("no ledger in {}", args.journal.display()))?;
    let text = match args.format {
        Format::Table => table(&ledger),
        Format::Json => serde_json::to_string_pretty(&ledger)? + "\n",
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(if ledger.adds_up() { Outcome::Done } else { Outcome::No })
}

fn table(ledger: &Ledger) -> String {
    use Align::{Left, Right};
    let mut out = String::new();
    let align = [Left, Right, Right, Right, Right, Left];
    let heading = ["service", "processes", "emitted", "stored", "dropped", "by reason"];
    let mut services = Table::new(heading, align);
    for (name, service) in &ledger.services {
        services.row(of_service(name, service));
    }
    services.render("", &mut out);
    out.push('\n');
    let heading = ["target", "seen", "delivered", "waiting", "dropped", "by reason"];
    let mut drivers = Table::new(heading, align);
    for (name, driver) in &ledger.drivers {
        drivers.row(of_driver(name, driver));
    }
    drivers.render("", &mut out);
    out.push('\n');
    for (what, count) in &ledger.troubles {
        out.push_str(&format!("{what}: {count} times since the agent began\n"));
    }
    let answer = if ledger.adds_up() { "yes" } else { "no" };
    out.push_str(&format!(
        "journal: {}; every record is accounted for: {answer}\n",
        size(ledger.bytes)
    ));
    out
}

fn of_service(name: &str, it: &ServiceLedger) -> [String; 6] {
    let processes = format!("{} ({} ended)", it.processes, it.ended);
    let dropped = it.dropped.values().sum::<u64>().to_string();
    let reasons = reasons(it.dropped.iter());
    [name.to_owned(), processes, it.emitted().to_string(), it.stored.to_string(), dropped, reasons]
}

fn of_driver(name: &str, it: &DriverLedger) -> [String; 6] {
    let numbers = [it.seen, it.delivered, it.waiting, it.dropped.values().sum()];
    let [seen, delivered, waiting, dropped] = numbers.map(|number| number.to_string());
    [name.to_owned(), seen, delivered, waiting, dropped, reasons(it.dropped.iter())]
}

fn reasons<'a>(dropped: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    dropped.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

/// The same for the end of an agent: a line for each service and target.
pub(crate) fn lines(ledger: &Ledger) -> Vec<String> {
    let told = |dropped: String| if dropped.is_empty() { dropped } else { format!(" ({dropped})") };
    let services = ledger.services.iter().map(|(name, it)| {
        let dropped = told(reasons(it.dropped.iter()));
        format!("{name}: {} records stored of {}{dropped}", it.stored, it.emitted())
    });
    let drivers = ledger.drivers.iter().map(|(name, it)| {
        let dropped = told(reasons(it.dropped.iter()));
        let waiting = if it.waiting > 0 { format!(", {} wait", it.waiting) } else { String::new() };
        format!("{name}: {} records delivered of {}{dropped}{waiting}", it.delivered, it.seen)
    });
    services.chain(drivers).collect()
}
