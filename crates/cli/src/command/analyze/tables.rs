//! The analyses whose answers are tables.

use anyhow::{Context, bail};
use clap::ValueEnum;
use mapper::SpanRules;
use model::{CpuId, Tid};
use stitch::fact::Line;
use stitch::table::Table;
use stitch::{Question, Subject};

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
    /// Only rows of these threads
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<i32>,
    /// Only rows of threads with these command names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    procname: Vec<String>,
    /// Only rows of these CPUs, in tables whose rows have a CPU
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    cpu: Vec<u32>,
    /// Only rows of these hardware interrupts
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    irq: Vec<u16>,
    /// Only rows of these software interrupts
    #[arg(long, value_name = "VECTOR", value_delimiter = ',')]
    softirq: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values of one table
    Csv,
}

impl Args {
    /// Analyses once and prints the tables of all subjects.
    pub(super) fn run(&self, subjects: &[Subject]) -> anyhow::Result<Outcome> {
        self.check_table(subjects)?;
        let analysis = self.input.analyse(SpanRules::default())?;
        let question = self.question();
        let summary = &analysis.summary;
        let of_subject = |subject: &Subject| stitch::tables(summary, *subject, &question);
        let mut tables: Vec<Table> = subjects.iter().flat_map(of_subject).collect();
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
            None if self.format == Format::Csv && known.len() > 1 => {
                let first = known.first().context("an analysis without tables")?;
                bail!(
                    "CSV holds one table: say which, for example --table {first}, of {}",
                    known.join(", ")
                )
            }
            _ => Ok(()),
        }
    }

    fn question(&self) -> Question {
        let hard = self.irq.iter().map(|number| Line::Hard(*number));
        let soft = self.softirq.iter().map(|vector| Line::Soft(*vector));
        Question {
            limit: self.limit.or((self.format == Format::Table).then_some(SHOWN)),
            tids: self.tid.iter().map(|tid| Tid::new(*tid)).collect(),
            comms: self.procname.clone(),
            cpus: self.cpu.iter().map(|cpu| CpuId::new(*cpu)).collect(),
            lines: hard.chain(soft).collect(),
        }
    }
}
