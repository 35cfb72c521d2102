//! The analyses whose answers are tables.

#[cfg(feature = "sql")]
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueEnum;
use mapper::{Analysis, Options};
use stitch::table::Table;
use stitch::{Subject, Tables};

use super::filter::FilterArgs;
use super::{Input, print, tell};
use crate::outcome::Outcome;

/// How many rows of a table people see when they do not say.
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    input: Input,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Only the table of this class, as `--format json` names it
    #[arg(long, value_name = "CLASS")]
    table: Option<String>,
    /// At most so many rows of each table [default: 20 in tables for people, else all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values of one table
    Csv,
    /// Apache Parquet of one table, with the columns of its CSV; needs a file or a pipe
    #[cfg(feature = "sql")]
    Parquet,
}

impl Args {
    /// Whether the format is one of a single table.
    const fn holds_one(&self) -> bool {
        match self.format {
            Format::Table | Format::Json => false,
            Format::Csv => true,
            #[cfg(feature = "sql")]
            Format::Parquet => true,
        }
    }

    /// Refuses to fill a terminal with bytes.
    #[cfg(feature = "sql")]
    fn check_terminal(&self) -> anyhow::Result<()> {
        if self.format == Format::Parquet && io::stdout().is_terminal() {
            bail!("Parquet is nothing for a terminal: > FILE");
        }
        Ok(())
    }

    pub(super) const fn format(&self) -> Format {
        self.format
    }

    /// How to read what is wanted.
    pub(super) fn options(&self) -> anyhow::Result<Options> {
        self.filter.options(&self.input)
    }

    pub(super) fn analyse(&self, options: &Options) -> anyhow::Result<Analysis> {
        self.input.analyse(options)
    }

    /// Prints the tables of all subjects; threads are asked for by name in a second reading.
    pub(super) fn run(&self, subjects: &[Subject]) -> anyhow::Result<Outcome> {
        self.check_table(subjects)?;
        #[cfg(feature = "sql")]
        self.check_terminal()?;
        let mut options = self.filter.options(&self.input)?;
        if let Some(selection) = &mut options.selection {
            Arc::make_mut(selection).longest_calls = subjects.contains(&Subject::Iolatencytop);
        }
        let mut analysis = self.input.analyse(&options)?;
        if let Some(options) = self.filter.by_name(&options, &analysis) {
            analysis = self.input.analyse(&options)?;
        }
        let limit = self.limit.or((self.format == Format::Table).then_some(SHOWN));
        let question = self.filter.question(limit);
        let summary = &analysis.summary;
        let tables = Tables::new(summary, &question);
        let mut tables: Vec<Table> =
            subjects.iter().flat_map(|subject| tables.of(*subject)).collect();
        if let Some(class) = &self.table {
            tables.retain(|table| table.class.name == class);
            tables.truncate(1);
        }
        let loss = stitch::loss(summary);
        let host = summary.cover().map(|cover| cover.host.to_string()).unwrap_or_default();
        print(&match self.format {
            Format::Table => report::tables::tables(&tables, &loss),
            Format::Json => report::json::tables(&host, &tables, &loss).to_string() + "\n",
            Format::Csv => tables.first().map(report::csv::table).unwrap_or_default(),
            #[cfg(feature = "sql")]
            Format::Parquet => {
                if let Some(table) = tables.first() {
                    query::format::write_table(table, io::stdout())?.flush()?;
                }
                return Ok(tell(&analysis));
            }
        })?;
        Ok(tell(&analysis))
    }

    /// Refuses a class that the answer will not have, before anything is read.
    fn check_table(&self, subjects: &[Subject]) -> anyhow::Result<()> {
        let classes = || subjects.iter().flat_map(|subject| subject.classes());
        let known: Vec<&str> = classes().map(|class| class.name).collect();
        match &self.table {
            Some(class) if !known.contains(&class.as_str()) => {
                bail!("there is no table {class:?} here; there are {}", known.join(", "))
            }
            None if self.holds_one() && known.len() > 1 => {
                let first = known.first().context("an analysis without tables")?;
                bail!(
                    "this format holds one table: say which, for example --table {first}, of {}",
                    known.join(", ")
                )
            }
            _ => Ok(()),
        }
    }
}
