//! `throughline ctf convert PATH… -o OUT --to FORM`: traces in another form.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use convert::{Options, Report, Summary, ViewerError, ViewerOptions, convert_ctf};
use ctf::CtfVersion;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use model::{TimeRange, Timestamp};
use tracedir::Recording;

use crate::command::read::when::{self, When};
use crate::outcome::{Outcome, complain};
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  throughline ctf convert session/ -o session-ctf2/ --to 2        the same traces in CTF 2
  throughline ctf convert session/ -o old/ --to 1.8               for readers that know CTF 1.8 only
  throughline ctf convert session/ -o part/ --to 2 --begin 16:44:07.5 --end 16:44:08
                                                                  half a second of it
  throughline ctf convert session/ -o session.pftrace --to perfetto
                                                                  to be opened at ui.perfetto.dev
  throughline ctf convert session/ -o session.json --to firefox   to be opened at profiler.firefox.com

What CTF 1.8 has no form for becomes something near to it; each kind is said in one line.
Exit code 1: some of the data cannot be read; the rest was converted.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What to write: a folder that does not exist yet or is empty; for a viewer, a file that does not exist yet, or `-`
    /// for standard output. It appears when it is whole
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// In which form
    #[arg(long, value_enum, value_name = "FORM")]
    to: Form,
    /// Leave out what is earlier: seconds or nanoseconds since the epoch, a time of day, or a date and time
    #[arg(long, value_name = "TIME", value_parser = when::parse, allow_hyphen_values = true)]
    begin: Option<When>,
    /// Leave out what is at this time or later
    #[arg(long, value_name = "TIME", value_parser = when::parse, allow_hyphen_values = true)]
    end: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// CTF 1.8: metadata in TSDL
    #[value(name = "1.8")]
    Ctf1,
    /// CTF 2: metadata in JSON
    #[value(name = "2")]
    Ctf2,
    /// Perfetto's format: one file with a track for each thread
    Perfetto,
    /// The Firefox Profiler's format: one file with markers for each thread
    Firefox,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let range = range(args)?;
    let version = match args.to {
        Form::Ctf1 => CtfVersion::V1_8,
        Form::Ctf2 => CtfVersion::V2,
        Form::Perfetto | Form::Firefox => return show(args, range),
    };
    anyhow::ensure!(args.output.as_os_str() != "-", "a folder cannot go to standard output");
    let stop = Stopped::on_signal()?;
    let bar = progress_bar();
    let report =
        convert_ctf(&args.paths, &args.output, &Options { version, range }, &mut |done, all| {
            if let Some(bar) = &bar {
                bar.set_length(all);
                bar.set_position(done);
            }
            stop.asked()
        });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(tell(report.context("cannot convert")?))
}

/// Writes one file for a viewer: under another name until it is whole, or as it comes to standard output.
fn show(args: &Args, range: TimeRange) -> anyhow::Result<Outcome> {
    let target = &args.output;
    if target.as_os_str() == "-" {
        let unwritten = || "cannot write to standard output".to_owned();
        let summary = write_for_viewer(args, range, &mut io::stdout().lock(), unwritten)?;
        return Ok(tell_shown(&summary));
    }
    anyhow::ensure!(!target.exists(), "{} is there already", target.display());
    let mut name = target.file_name().context("the output has no name")?.to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    let partial = target.with_file_name(name);
    let unwritten = || format!("cannot write {}", target.display());
    let mut file = File::create_new(&partial).with_context(unwritten)?;
    let written = write_for_viewer(args, range, &mut file, unwritten).and_then(|summary| {
        std::fs::rename(&partial, target).map(|()| summary).with_context(unwritten)
    });
    if written.is_err() {
        // The failure that is under way says more than one of tidying up.
        drop(std::fs::remove_file(&partial));
    }
    written.map(|summary| tell_shown(&summary))
}

/// Writes one file for a viewer to `out`; `unwritten` says what it is about when that cannot be done.
fn write_for_viewer(
    args: &Args,
    range: TimeRange,
    out: &mut dyn Write,
    unwritten: impl Fn() -> String,
) -> anyhow::Result<Summary> {
    const EVERY: u64 = 1 << 14;
    let mut out = BufWriter::new(out);
    let (stop, bar) = (Stopped::on_signal()?, spinner());
    let mut progress = |events: u64| {
        if let Some(bar) = bar.as_ref().filter(|_| events.is_multiple_of(EVERY)) {
            bar.set_position(events);
        }
        stop.asked()
    };
    let options = ViewerOptions { range };
    let written = match args.to {
        Form::Firefox => convert::firefox::write(&args.paths, &options, &mut out, &mut progress),
        _ => convert::perfetto::write(&args.paths, &options, &mut out, &mut progress),
    };
    let summary = match written {
        Err(ViewerError::Write(error)) => return Err(error).with_context(unwritten),
        written => written.context("cannot convert")?,
    };
    out.flush().with_context(unwritten)?;
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(summary)
}

/// Whether SIGINT or SIGTERM has come, so that nothing that is half done stays behind. A second one ends the process at
/// once.
struct Stopped(Receiver<()>);

impl Stopped {
    fn on_signal() -> anyhow::Result<Self> {
        stop::on_signal().map(Self)
    }

    fn asked(&self) -> ControlFlow<()> {
        match self.0.try_recv() {
            Ok(()) => ControlFlow::Break(()),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => ControlFlow::Continue(()),
        }
    }
}

/// Says what is not shown.
fn tell_shown(summary: &Summary) -> Outcome {
    if summary.left_out > 0 {
        let most = convert::firefox::MAX_MARKERS;
        complain(&format!("left out: {} markers after the first {most}", summary.left_out));
    }
    if summary.lost > 0 {
        complain(&format!("lost: {} event records and packets, not shown", summary.lost));
    }
    summary.unreadable.iter().for_each(|line| complain(&format!("unreadable: {line}")));
    if summary.more_unreadable > 0 {
        complain(&format!("unreadable: {} more", summary.more_unreadable));
    }
    if summary.unreadable.is_empty() { Outcome::Done } else { Outcome::No }
}

/// Says what became of what could not be kept, and what could not be read.
fn tell(report: Report) -> Outcome {
    for note in &report.notes {
        complain(&format!("note: {} ({})", note.what, note.count));
    }
    let is_whole = report.damage.is_empty() && report.refused.is_empty();
    report.damage.iter().for_each(|damage| complain(&format!("unreadable: {damage}")));
    for refused in report.refused {
        complain(&format!("unreadable: {:#}", anyhow::Error::from(refused)));
    }
    if report.more_damage > 0 {
        complain(&format!("unreadable: {} more", report.more_damage));
    }
    if is_whole { Outcome::Done } else { Outcome::No }
}

/// The range of time in the local zone; a time of day is one of the recording's first day.
fn range(args: &Args) -> anyhow::Result<TimeRange> {
    let zone = TimeZone::system();
    let resolve = |when: Option<When>, default| {
        when.map_or(Ok(default), |when| when.resolve(&zone, || first(&args.paths)))
    };
    let begin = resolve(args.begin, Timestamp::MIN).context("--begin")?;
    let end = resolve(args.end, Timestamp::MAX).context("--end")?;
    anyhow::ensure!(
        begin <= end,
        "the range of time begins at {} ns, after its end at {} ns",
        begin.nanos(),
        end.nanos()
    );
    Ok(TimeRange { begin, end })
}

/// When the recording begins. What cannot be opened is said by the conversion itself.
fn first(paths: &[PathBuf]) -> Option<Timestamp> {
    let recording = Recording::open(paths).ok()?;
    recording.covers().iter().filter_map(|cover| cover.begin).min()
}

fn spinner() -> Option<ProgressBar> {
    let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner)?;
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {human_pos} event records, {per_sec}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(bar)
}

fn progress_bar() -> Option<ProgressBar> {
    let bar = io::stderr().is_terminal().then(|| ProgressBar::new(0))?;
    let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(bar)
}
