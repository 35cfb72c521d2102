//! What of a recording is counted.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;
use mapper::{Analysis, Options};
use model::{CpuId, Tid, TimeRange, Timestamp};
use stitch::fact::Line;
use stitch::{Between, Question, Selection};
use tracedir::Recording;

use super::Input;
use crate::command::read::range::RangeArgs;
use crate::units;

#[derive(clap::Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct FilterArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Only these threads
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<i32>,
    /// Only threads with these command names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    procname: Vec<String>,
    /// Only what ended on these CPUs
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    cpu: Vec<u32>,
    /// Only these hardware interrupts
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    irq: Vec<u16>,
    /// Only these software interrupts
    #[arg(long, value_name = "VECTOR", value_delimiter = ',')]
    softirq: Vec<u8>,
    /// Only interrupts, latencies, calls and requests that took as long: 10us, 1ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_nanos)]
    min: Option<u64>,
    /// Only those that took no longer
    #[arg(long, value_name = "TIME", value_parser = units::parse_nanos)]
    max: Option<u64>,
    /// Only calls and requests that moved as much: 4096B, 64KiB
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    minsize: Option<u64>,
    /// Only those that moved no more
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    maxsize: Option<u64>,
}

#[derive(clap::Args)]
pub(super) struct PeriodFilterArgs {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    #[command(flatten)]
    range: RangeArgs,
    /// Only periods that took as long: 10us, 1ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_nanos)]
    min: Option<u64>,
    /// Only those that took no longer
    #[arg(long, value_name = "TIME", value_parser = units::parse_nanos)]
    max: Option<u64>,
}

impl PeriodFilterArgs {
    pub(super) fn range(&self) -> anyhow::Result<TimeRange> {
        self.range.range(&TimeZone::system(), || first(&self.paths))
    }

    pub(super) fn wanted(&self) -> Between {
        between(self.min, self.max)
    }
}

impl FilterArgs {
    /// How to read what is wanted; threads are those given by number.
    pub(super) fn options(&self, input: &Input) -> anyhow::Result<Options> {
        let range = self.range.range(&TimeZone::system(), || first(&input.paths))?;
        let selection = Selection {
            cpus: given(self.cpu.iter().map(|cpu| CpuId::new(*cpu))),
            tids: given(self.tid.iter().map(|tid| Tid::new(*tid))),
            lines: given(self.lines()),
            ns: between(self.min, self.max),
            bytes: between(self.minsize, self.maxsize),
            ..Selection::default()
        };
        Ok(Options { range, selection: Some(Arc::new(selection)), ..input.options() })
    }

    /// Which rows to show.
    pub(super) fn question(&self, limit: Option<usize>) -> Question {
        Question {
            limit,
            tids: self.tid.iter().map(|tid| Tid::new(*tid)).collect(),
            comms: self.procname.clone(),
            cpus: self.cpu.iter().map(|cpu| CpuId::new(*cpu)).collect(),
            lines: self.lines().collect(),
        }
    }

    /// The options with threads by number where they were asked for by name: whose names they are is known once all is
    /// read. `None` where none was.
    pub(super) fn by_name(&self, options: &Options, all: &Analysis) -> Option<Options> {
        if self.procname.is_empty() {
            return None;
        }
        let mut tids = stitch::threads_named(&all.summary, &self.procname);
        let mut selection = options.selection.as_deref().cloned().unwrap_or_default();
        tids.retain(|tid| selection.tids.as_ref().is_none_or(|given| given.contains(tid)));
        selection.tids = Some(tids);
        Some(Options { selection: Some(Arc::new(selection)), ..options.clone() })
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let hard = self.irq.iter().map(|number| Line::Hard(*number));
        hard.chain(self.softirq.iter().map(|vector| Line::Soft(*vector)))
    }
}

fn given<T>(list: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let list: Vec<T> = list.collect();
    (!list.is_empty()).then_some(list)
}

fn between(least: Option<u64>, greatest: Option<u64>) -> Between {
    let all = Between::default();
    Between { least: least.unwrap_or(all.least), greatest: greatest.unwrap_or(all.greatest) }
}

/// When the recording begins. What cannot be opened is said by the analysis itself.
fn first(paths: &[PathBuf]) -> Option<Timestamp> {
    let recording = Recording::open(paths).ok()?;
    recording.covers().iter().filter_map(|cover| cover.begin).min()
}
