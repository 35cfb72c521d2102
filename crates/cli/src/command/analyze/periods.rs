//! `throughline analyze periodstats PATH…` and its like: how long it took from one event to another.

use std::ops::ControlFlow;

use anyhow::Context;
use mapper::{PeriodRules, read_periods};

use super::filter::PeriodFilterArgs;
use super::log::{Format, Printer};
use crate::outcome::{Outcome, complain};

const EXAMPLES: &str = "\
Examples:
  throughline analyze periodstats --period 'call : syscall_entry_read : syscall_exit_read' --period-key 'call : tid' kernel/
  throughline analyze periodlog --period 'req : svc:req_begin : svc:req_end' --period-key 'req : id' \\
      --period 'db(req) : svc:db_begin : svc:db_end' --period-key 'db : id' --period-captures 'req : path : status' ust/";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    filter: PeriodFilterArgs,
    #[command(flatten)]
    definitions: PeriodArgs,
    /// Figures for each value of these fields of the begin
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    group_by: Vec<String>,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// At most so many rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Which periods there are.
#[derive(clap::Args)]
pub(crate) struct PeriodArgs {
    /// Events that begin and end periods, as expressions of `read --grep`; without END the next begin ends one. A period with a
    /// parent begins only inside of one, and ends with it; may be repeated
    #[arg(long, value_name = "NAME[(PARENT)] : BEGIN [: END]")]
    period: Vec<String>,
    /// Fields whose values must be alike at the begin and at the end, and in the parent's begin; `cpu_id` is the event's CPU. Without
    /// them any end ends all
    #[arg(long, value_name = "NAME : FIELD[=END_FIELD],…")]
    period_key: Vec<String>,
    /// Fields that are shown of the begin and of the end
    #[arg(long, value_name = "NAME : FIELD,… [: FIELD,…]")]
    period_captures: Vec<String>,
}

impl PeriodArgs {
    /// The rules that these define; `None` when they define none.
    pub(crate) fn rules(&self) -> anyhow::Result<Option<PeriodRules>> {
        let mut rules = PeriodRules::default();
        for definition in &self.period {
            rules.define(definition).context("--period")?;
        }
        for key in &self.period_key {
            rules.set_key(key).context("--period-key")?;
        }
        for captures in &self.period_captures {
            rules.capture(captures).context("--period-captures")?;
        }
        Ok(Some(rules).filter(|_| !self.period.is_empty()))
    }
}

/// What is asked of periods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Stats,
    Lengths,
    Longest,
    Log,
}

impl Args {
    pub(super) fn run(&self, what: What) -> anyhow::Result<Outcome> {
        let mut rules = self.definitions.rules()?.context("no periods are defined: --period")?;
        rules.group_by(self.group_by.iter().cloned());
        let range = self.filter.range()?;
        let mut printer = Printer::new(self.format);
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut written = Ok(());
        let found =
            read_periods(&self.filter.paths, &rules, range, self.filter.wanted(), &mut |log| {
                if what != What::Log {
                    return ControlFlow::Continue(());
                }
                let mut part = log.clone();
                part.rows.truncate(left);
                left -= part.rows.len();
                written = printer.print(&part);
                match written.is_err() || left == 0 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .context("cannot analyse")?;
        written?;
        let table = match what {
            What::Stats => Some(found.periods.stats(found.range)),
            What::Lengths => Some(found.periods.lengths(found.range)),
            What::Longest => Some(found.periods.longest(found.range)),
            What::Log => None,
        };
        if let Some(mut table) = table {
            table.rows.truncate(left);
            printer.print(&table)?;
        }
        if found.periods.incomplete() > 0 {
            complain(&format!(
                "{} periods without an end are not counted",
                found.periods.incomplete()
            ));
        }
        if found.losses > 0 {
            complain(&format!(
                "events were lost {} times; periods open then are not counted",
                found.losses
            ));
        }
        found.findings.iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
        Ok(if found.findings.is_empty() { Outcome::Done } else { Outcome::No })
    }
}
