//! `throughline read PATH…`: the event records of any recording, merged in time.

mod counts;
mod follow;
pub(super) mod print;
pub(super) mod progress;
pub(super) mod range;
pub(super) mod select;
mod style;
pub(crate) mod summary;
pub(super) mod when;

use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use ctf::filter::{Filter, FilterError};
use ctf::format::json::JsonWriter;
use jiff::tz::TimeZone;
use model::{TimeRange, Timestamp};
use tracedir::{
    ClassCache, Correlate, Follow, FollowOptions, Item, Loss, PacketEnds, ReadOptions, Recording,
};

use self::counts::{Count, Counts};
use self::print::{Printer, Sink, Unseen, Writer};
use self::progress::Progress;
use self::range::RangeArgs;
use self::select::Selection;
use self::summary::Losses;
use crate::outcome::Outcome;

const EXAMPLES: &str = "\
Examples:
  throughline read session/                           all event records below a folder, as text
  throughline read --begin 16:44:07 --end 16:44:08 session/
  throughline read --grep 'sched_* && prev_tid == 42' kernel/
  throughline read --grep 'ret < 0 || filename ~ \"*.conf\"' --format json kernel/
  throughline read --count=by-name archives/*         how many there are of each name
  throughline read --follow --name 'svc:*' session/   what is written from the beginning on, until Ctrl-C
  throughline read --fields all --names all --clock-date session/

Exit code 1: some of the data cannot be read, the rest was; or nothing fits --name or --grep.";

const GREP_HELP: &str = "\
Only event records for which EXPR holds

  sched_*                     the name fits: * stands for any characters, ? for one
  prev_tid == 42              a field: == != < <= > >=, numbers also as 0x2A, 0b101, 0o52
  state == RUNNING            an enumeration by label or number
  filename ~ \"*.conf\"         a text fits a pattern; !~ does not
  comm =~ \"^kworker/[0-9]\"    a regular expression is found in a text
  $ctx.vtid, context.vtid     a field of the contexts; payload.name of the payload only
  packet.cpu_id, host, name, loglevel, env.KEY, has(FIELD)
  a && b, a || b, !a, (a)     a test is false where there is no such field";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print only how many event records there are
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    count: Option<Count>,
    /// Go on with what is written later, until Ctrl-C
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    clocks: ClockArgs,
    #[command(flatten)]
    printing: PrintArgs,
}

/// How event records are printed, and where to.
#[derive(Clone, clap::Args)]
pub(crate) struct PrintArgs {
    /// How event records are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Stop after this many event records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    style: style::StyleArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines as babeltrace2 prints them
    Text,
    /// One JSON object a line
    Json,
    /// Nothing: reads and checks every field
    None,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Selection")]
struct SelectionArgs {
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    wanted: WantedArgs,
}

/// Which event records are printed.
#[derive(clap::Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct WantedArgs {
    /// Only event records of this name; `*` stands for any characters, and the option may be repeated
    #[arg(long = "name", value_name = "PATTERN")]
    patterns: Vec<String>,
    #[arg(long, value_name = "EXPR", value_parser = parse_filter, help = "Only event records for which EXPR holds: --help explains", long_help = GREP_HELP)]
    grep: Option<Filter>,
}

impl WantedArgs {
    /// What is wanted of so many streams, or more.
    pub(crate) fn selection(&self, streams: usize) -> Selection {
        Selection::new(&self.patterns, self.grep.clone(), streams)
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "Clocks")]
pub(super) struct ClockArgs {
    /// Take all clocks to count from the Unix epoch, whatever they say
    #[arg(long)]
    clock_force_correlate: bool,
    /// Add seconds to all times
    #[arg(
        long,
        value_name = "SEC",
        default_value_t = 0,
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    clock_offset: i64,
    /// Add nanoseconds to all times
    #[arg(
        long,
        value_name = "NS",
        default_value_t = 0,
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    clock_offset_ns: i64,
}

fn parse_filter(text: &str) -> Result<Filter, FilterError> {
    Filter::parse(text)
}

impl ClockArgs {
    pub(super) fn options(&self) -> ReadOptions {
        let nanos =
            i128::from(self.clock_offset) * 1_000_000_000 + i128::from(self.clock_offset_ns);
        let correlate = if self.clock_force_correlate {
            Correlate::ForceUnixEpoch
        } else {
            Correlate::Required
        };
        ReadOptions { clock_offset_ns: nanos, correlate }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.follow { run_following(args) } else { run_once(args) }
}

fn run_once(args: &Args) -> anyhow::Result<Outcome> {
    let options = args.clocks.options();
    let recording =
        Recording::open_as(&args.paths, &options, &mut ClassCache::default()).map_err(explained)?;
    let first = || recording.covers().iter().filter_map(|cover| cover.begin).min();
    let range = range(args, first)?;
    let selection = args.selection.wanted.selection(recording.streams().len());
    selection.check(&recording).context("--grep")?;
    if args.count == Some(Count::All) && selection.is_all() && args.printing.limit.is_none() {
        return count(args, &recording, range);
    }
    // Text is the reference's, also where its order is its own.
    let packet_ends = match args.printing.format {
        Format::Text if args.count.is_none() => PacketEnds::Awaited,
        _ => PacketEnds::Passed,
    };
    let mut merged = recording.merged_with(range, packet_ends);
    let progress = progress(args, &recording, range);
    let mut reading = reading(args, selection, progress)?;
    reading.printer.name_streams(&recording);
    while !reading.is_full()
        && let Some(item) = merged.next_item()
    {
        reading.take(&item).with_context(|| args.printing.unwritten())?;
    }
    let found = reading.finish(&args.printing).with_context(|| args.printing.unwritten())?;
    summary::tell_backward(merged.backward());
    let unreadable = summary::tell(recording.findings()) | summary::tell(merged.findings());
    Ok(if unreadable || !found { Outcome::No } else { Outcome::Done })
}

fn progress(args: &Args, recording: &Recording, range: TimeRange) -> Progress {
    let PrintArgs { format, output, limit, .. } = &args.printing;
    let whole = range == TimeRange::ALL && limit.is_none();
    let late = output.is_some() || args.count.is_some() || *format == Format::None;
    Progress::new(recording, late, whole)
}

/// Counts what needs neither to be shown nor to be chosen.
fn count(args: &Args, recording: &Recording, range: TimeRange) -> anyhow::Result<Outcome> {
    let mut sink = Sink::open(args.printing.output.as_deref())?;
    let mut losses = Losses::default();
    let mut progress = progress(args, recording, range);
    let lose = |loss: &Loss<'_>| progress.aside(|| losses.add(loss));
    let counted = recording.count_with(range, lose, |bytes| progress.pass(bytes));
    progress.finish();
    sink.write(&format!("{}\n", counted.events)).with_context(|| args.printing.unwritten())?;
    losses.complain();
    summary::tell_backward(counted.backward);
    let unreadable = summary::tell(recording.findings()) | summary::tell(&counted.findings);
    Ok(if unreadable { Outcome::No } else { Outcome::Done })
}

impl PrintArgs {
    /// What output that cannot be written is an error about.
    pub(crate) fn unwritten(&self) -> String {
        match &self.output {
            Some(path) => format!("cannot write {}", path.display()),
            None => "cannot write to standard output".to_owned(),
        }
    }

    /// Prints a text where event records would go.
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        Ok(Sink::open(self.output.as_deref())?.write(text)?)
    }

    /// The zone of times of day.
    pub(crate) fn zone(&self) -> TimeZone {
        self.style.zone()
    }

    fn writer(&self) -> Writer {
        match self.format {
            Format::None => Writer::Unseen(Unseen),
            Format::Json => Writer::Json(JsonWriter::new()),
            Format::Text => Writer::Text(Box::new(self.style.writer(self.output.is_some()))),
        }
    }
}

/// The error, with what to do about it.
pub(super) fn explained(error: tracedir::Error) -> anyhow::Error {
    match error {
        tracedir::Error::Uncorrelated(_) => {
            anyhow::anyhow!("{error}; --clock-force-correlate takes both for the Unix epoch's")
        }
        error => error.into(),
    }
}

fn run_following(args: &Args) -> anyhow::Result<Outcome> {
    let options = FollowOptions {
        read: args.clocks.options(),
        range: range(args, today)?,
        ..FollowOptions::default()
    };
    let mut follow = Follow::new(&args.paths, options);
    let mut reading = reading(args, args.selection.wanted.selection(0), Progress::none())?;
    follow::follow(&mut follow, &options, &mut reading, || args.printing.unwritten())?;
    let found = reading.finish(&args.printing).with_context(|| args.printing.unwritten())?;
    summary::tell_late(follow.late());
    let unreadable = summary::tell(follow.findings());
    Ok(if unreadable || !found { Outcome::No } else { Outcome::Done })
}

fn reading(args: &Args, selection: Selection, progress: Progress) -> anyhow::Result<Reading> {
    Reading::new(&args.printing, args.count, &args.paths, selection, progress)
}

/// What time it is: a time of day is one of today.
#[expect(clippy::disallowed_methods, reason = "what is being written is from now")]
pub(crate) fn today() -> Option<Timestamp> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok().map(Timestamp::from_nanos)
}

fn range(args: &Args, first: impl Fn() -> Option<Timestamp>) -> anyhow::Result<TimeRange> {
    args.selection.range.range(&args.printing.zone(), first)
}

/// A reading under way.
pub(crate) struct Reading {
    pub(crate) selection: Selection,
    limit: u64,
    pub(crate) printer: Printer,
    count: Option<Count>,
    counts: Option<Counts>,
    progress: Progress,
    losses: Losses,
    /// Event records that were wanted.
    events: u64,
}

impl Reading {
    /// Of what lies below `paths`, which folders of traces are named by. With `count`, only numbers are printed.
    pub(crate) fn new(
        args: &PrintArgs,
        count: Option<Count>,
        paths: &[PathBuf],
        selection: Selection,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let sink = Sink::open(args.output.as_deref())?;
        let writer = if count.is_some() { Writer::Nothing } else { args.writer() };
        Ok(Self {
            selection,
            limit: args.limit.unwrap_or(u64::MAX),
            printer: Printer::new(writer, sink, paths),
            count,
            counts: (count == Some(Count::ByName)).then(Counts::default),
            progress,
            losses: Losses::default(),
            events: 0,
        })
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.events >= self.limit
    }

    #[inline]
    pub(crate) fn take(&mut self, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Event(event) => {
                self.progress.at(event);
                if self.selection.takes(event) {
                    self.events += 1;
                    self.printer.event(event)?;
                    if let Some(counts) = &mut self.counts {
                        counts.add(event);
                    }
                }
            }
            Item::Loss(loss) => {
                self.printer.flush()?;
                self.progress.aside(|| self.losses.add(loss));
            }
        }
        Ok(())
    }

    /// Writes what is left; gives whether anything that was looked for was found.
    pub(crate) fn finish(mut self, args: &PrintArgs) -> io::Result<bool> {
        self.progress.finish();
        let mut sink = self.printer.finish()?;
        match (self.counts.map(Counts::finish), args.format) {
            (Some(counts), Format::Json) => sink.write(&counts::json_lines(&counts))?,
            (Some(counts), _) => sink.write(&counts::table(&counts))?,
            (None, _) if self.count.is_some() => sink.write(&format!("{}\n", self.events))?,
            (None, Format::Text) => sink.write(args.style.epilogue(args.output.is_some()))?,
            (None, _) => {}
        }
        self.losses.complain();
        Ok(self.events > 0 || self.selection.is_all())
    }
}
