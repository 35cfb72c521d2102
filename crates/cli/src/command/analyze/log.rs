//! The analyses that answer with a log: a row for everything that ended, printed while it is read.
//!
//! Names become known late, by a dump or a later event. So all is read once for who and what is called how, and once more
//! for the rows; neither holds more than a part of the log.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use mapper::{Options, read_log};
use report::tables::Lines;
use stitch::table::Table;
use stitch::{Logged, Subject, Tables};

use super::filter::FilterArgs;
use super::{Input, print, tell};
use crate::outcome::Outcome;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    input: Input,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// At most so many rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Aligned columns
    Table,
    /// One JSON object a line
    Json,
    /// Comma-separated values
    Csv,
}

impl Args {
    pub(super) fn run(&self, subject: Subject) -> anyhow::Result<Outcome> {
        let mut options = self.filter.options(&self.input)?;
        let analysis = self.input.analyse(&options)?;
        if let Some(by_name) = self.filter.by_name(&options, &analysis) {
            options = by_name;
        }
        let mut printer = Printer::new(self.format);
        let question = self.filter.question(None);
        let tables = Tables::new(&analysis.summary, &question);
        if let Some(of) = subject.logged() {
            let rows = Rows { tables: &tables, of, limit: self.limit.unwrap_or(usize::MAX) };
            rows.read(&self.input, &options, &mut |part| printer.print(part))?;
        }
        if self.format == Format::Table {
            print(&report::tables::missing(&stitch::loss(&analysis.summary)))?;
        }
        Ok(tell(&analysis))
    }
}

/// The rows of a log, with names as the tables have them.
struct Rows<'a> {
    tables: &'a Tables<'a>,
    of: Logged,
    limit: usize,
}

impl Rows<'_> {
    /// Gives them in parts.
    fn read(
        mut self,
        input: &Input,
        options: &Options,
        give: &mut dyn FnMut(&Table) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut selection = options.selection.as_deref().cloned().unwrap_or_default();
        selection.logs = vec![self.of];
        let options = Options { selection: Some(Arc::new(selection)), ..options.clone() };
        let mut written = Ok(());
        read_log(&input.paths, &options, &mut |log| {
            let mut part = self.tables.log(self.of, log);
            part.rows.truncate(self.limit);
            self.limit -= part.rows.len();
            written = give(&part);
            match written.is_err() || self.limit == 0 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .context("cannot analyse")?;
        Ok(written?)
    }
}

/// Prints a table that comes in parts.
pub(super) struct Printer {
    format: Format,
    lines: Lines,
    is_first: bool,
}

impl Printer {
    pub(super) fn new(format: Format) -> Self {
        Self { format, lines: Lines::default(), is_first: true }
    }

    pub(super) fn print(&mut self, part: &Table) -> io::Result<()> {
        let text = match self.format {
            Format::Table => self.lines.rows(part),
            Format::Json => report::json::lines(part),
            Format::Csv => report::csv::part(part, self.is_first),
        };
        self.is_first = false;
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}
