//! `throughline lami NAME`: the tables of an analysis for viewers of traces, in the LTTng analyses machine interface.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use mapper::{Options, analyse, read_log};
use model::{TimeRange, Timestamp};
use serde_json::Value;
use stitch::table::Table;
use stitch::{Question, Selection, Subject, Tables};

use super::analyze::print;
use crate::outcome::Outcome;

const EXAMPLES: &str = "\
Examples:
  throughline lami cputop --metadata                   which tables there are
  throughline lami cputop kernel/                      the tables
  throughline lami cputop --test-compatibility kernel/

In Trace Compass: External Analyses, Manage: the command is `throughline lami cputop`.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES, arg_required_else_help = true)]
#[expect(clippy::struct_excessive_bools, reason = "flags that the interface prescribes")]
pub(crate) struct Args {
    /// The analysis, as `throughline analyze` names those that answer with tables
    #[arg(value_name = "NAME", value_parser = subject)]
    subject: Subject,
    /// Print the version of the interface
    #[arg(long)]
    mi_version: bool,
    /// Print what the analysis is called and which tables it has
    #[arg(long)]
    metadata: bool,
    /// Say nothing, with exit code 0, where the recordings can be analysed
    #[arg(long)]
    test_compatibility: bool,
    /// At most so many rows of each table
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Leave out what ends earlier, in nanoseconds since the epoch
    #[arg(long, value_name = "NS", allow_hyphen_values = true)]
    begin: Option<i64>,
    /// Leave out what ends later
    #[arg(long, value_name = "NS", allow_hyphen_values = true)]
    end: Option<i64>,
    /// Accepted for viewers that ask for it; an analysis is one step
    #[arg(long)]
    output_progress: bool,
    /// Folders with traces of one host in or below them
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn subject(name: &str) -> Result<Subject, String> {
    let known = || Subject::ALL.iter().chain(&Subject::LOGS);
    known().find(|subject| subject.name() == name).copied().ok_or_else(|| {
        let names: Vec<&str> = known().map(|subject| subject.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Prints the version of the interface.
pub(crate) fn print_version() -> anyhow::Result<Outcome> {
    print(&format!("{}\n", report::lami::VERSION))?;
    Ok(Outcome::Done)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.mi_version {
        return print_version();
    }
    if args.metadata {
        return object(&report::lami::metadata(args.subject, env!("CARGO_PKG_VERSION")));
    }
    let options = args.options();
    let analysis = match analyse(&args.paths, &options) {
        Ok(analysis) => analysis,
        Err(error) => {
            let causes: Vec<String> =
                anyhow::Error::from(error).chain().map(ToString::to_string).collect();
            object(&report::lami::error(&causes.join(": ")))?;
            return Ok(Outcome::No);
        }
    };
    if args.test_compatibility {
        return Ok(Outcome::Done);
    }
    if args.output_progress {
        print("1.0\n")?;
    }
    let question = Question { limit: args.limit, ..Question::default() };
    let tables = Tables::new(&analysis.summary, &question);
    let answer = match args.subject.logged() {
        Some(_) => args.log(&options, &tables)?.into_iter().collect(),
        None => tables.of(args.subject),
    };
    object(&report::lami::results(&answer))
}

impl Args {
    fn options(&self) -> Options {
        let begin = self.begin.map_or(Timestamp::MIN, Timestamp::from_nanos);
        let after = |end: i64| Timestamp::from_nanos(end.saturating_add(1));
        let range = TimeRange { begin, end: self.end.map_or(Timestamp::MAX, after) };
        let selection = Selection { longest_calls: true, ..Selection::default() };
        Options { range, selection: Some(Arc::new(selection)), ..Options::default() }
    }

    /// All rows of a log: the interface has them in one document.
    fn log(&self, options: &Options, tables: &Tables<'_>) -> anyhow::Result<Option<Table>> {
        let Some(logged) = self.subject.logged() else { return Ok(None) };
        let selection = Selection { logs: vec![logged], ..Selection::default() };
        let options = Options { selection: Some(Arc::new(selection)), ..options.clone() };
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut all: Option<Table> = None;
        read_log(&self.paths, &options, &mut |log| {
            let part = tables.log(logged, log);
            match &mut all {
                Some(all) => all.rows.extend(part.rows),
                None => all = Some(part),
            }
            match all.as_ref().is_some_and(|all| all.rows.len() >= limit) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        if let Some(all) = &mut all {
            all.rows.truncate(limit);
        }
        Ok(all)
    }
}

fn object(object: &Value) -> anyhow::Result<Outcome> {
    print(&format!("{object}\n"))?;
    Ok(Outcome::Done)
}
