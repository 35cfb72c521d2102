//! `throughline profile`: samples what runs, and shows profiles.

mod files;
mod send;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use capture::profile::{Budget, Config, Means, Packer, Seen, keep_little_memory, sample};
use clap::{Subcommand, ValueEnum};
use model::Pid;
use profile::view::{Weights, diff_text, flame_graph, folded, functions_text, hottest};
use profile::{Limits, Packet, Request, SampleKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::files::Read;
use crate::outcome::{Outcome, complain};
use crate::stop;
use crate::units::parse_duration;

const EXAMPLES: &str = "\
Examples:
  throughline profile -- make -j4                    of a command and all that it starts
  throughline profile --for 10s                      of the whole machine
  throughline profile --pid 1234 --for 10s --output service.otlp.gz
  throughline profile show profile.otlp.gz --format html > flames.html
  throughline profile diff before.otlp.gz after.otlp.gz
  throughline profile send *.otlp.gz --to http://collector:4318";

/// The stacks that are printed.
const HOTTEST: usize = 10;

/// Columns where standard output is no terminal.
const WIDTH: usize = 120;

/// Functions that `diff` prints.
const DIFFERENT: usize = 30;

/// A packet ends by itself after a day.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(clap::Args)]
#[command(before_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    record: RecordArgs,
}

#[derive(Subcommand)]
enum What {
    /// Show profiles as text, or as a file of another program
    Show(ShowArgs),
    /// Which functions cost more or less than before
    Diff(DiffArgs),
    /// Send profiles to whoever takes them
    Send(Box<send::SendArgs>),
}

#[derive(clap::Args)]
struct RecordArgs {
    /// Sample this process and those it starts; may be repeated
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Vec<i32>,
    /// Stop after this time; else when the command ends, or with Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How often a second to look at each CPU
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
    /// Sample who waits, too, in proportion to how long; that profile stands beside the other, as `off-cpu-` and its name
    #[arg(long)]
    off_cpu: bool,
    /// Where to write the profile; one that is there is replaced
    #[arg(long, value_name = "FILE", default_value = "profile.otlp.gz")]
    output: PathBuf,
    /// The command to run and sample; without one, and without --pid, the whole machine is sampled
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Profiles: OTLP requests, as they are or in gzip
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How they are shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct DiffArgs {
    /// The profile of before
    before: PathBuf,
    /// The profile of after
    after: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The hottest functions and stacks
    Text,
    /// All functions: what was spent in them, and in what they called
    Functions,
    /// A line for each stack: frames from the root on, and how often
    Folded,
    /// A flame graph as one web page
    Html,
    /// pprof's format, in gzip
    Pprof,
    /// Of the Firefox Profiler (profiler.firefox.com)
    Firefox,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.what {
        Some(What::Show(args)) => show(&args),
        Some(What::Diff(args)) => {
            let weights = |path: &PathBuf| Read::all(std::slice::from_ref(path))?.weights();
            let (before, after) = (weights(&args.before)?, weights(&args.after)?);
            files::print(diff_text(&before, &after, DIFFERENT).as_bytes())?;
            Ok(Outcome::Done)
        }
        Some(What::Send(args)) => send::send(&args),
        None => record(args.record),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<Outcome> {
    let read = Read::all(&args.files)?;
    let bytes = match args.format {
        Format::Text => hottest(&read.weights()?, HOTTEST, WIDTH).into_bytes(),
        Format::Functions => functions_text(&read.weights()?, usize::MAX, usize::MAX).into_bytes(),
        Format::Folded => folded(&read.weights()?).into_bytes(),
        Format::Html => {
            let names: Vec<_> = args.files.iter().map(|path| path.display().to_string()).collect();
            flame_graph(&read.weights()?, &names.join(", ")).into_bytes()
        }
        Format::Pprof => profile::view::pprof(&read.requests()?),
        Format::Firefox => profile::view::firefox(&read.requests()?).into_bytes(),
    };
    files::print(&bytes)?;
    Ok(Outcome::Done)
}

/// Samples until the command, the time or the user ends it, writes the profile and prints its hottest functions and stacks.
fn record(args: RecordArgs) -> anyhow::Result<Outcome> {
    let own = Pid::new(std::process::id().cast_signed());
    let processes = match (args.command.is_empty(), args.pid.is_empty()) {
        (false, _) => Some(vec![own]),
        (true, false) => Some(args.pid.iter().copied().map(Pid::new).collect()),
        (true, true) => None,
    };
    let config = Config {
        frequency_hz: args.frequency.into(),
        processes,
        duration: args.duration,
        off_cpu: args.off_cpu,
        budget: Budget::default(),
        copies_only: false,
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let _signals = stop::on_signal_set(Arc::clone(&stopped))?;
    let stop = Arc::clone(&stopped);
    let mut command = args.command.split_first().map(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    });
    if command.is_none() {
        allow_files(NAMELESS);
    }
    keep_little_memory();
    let mut ran = None;
    let mut packer = Packer::new(WINDOW, config.frequency_hz);
    let mut packets = Vec::new();
    let report = sample(
        &config,
        &stopped,
        |means| {
            say_means(means, args.off_cpu);
            match &mut command {
                Some(command) => {
                    ran = Some(Ran::start(command, stop));
                    allow_files(NAMELESS);
                }
                None => complain("sampling; Ctrl-C ends"),
            }
        },
        |seen| match seen {
            Seen::Sample(sample) => packets.extend(packer.add(&sample)),
            Seen::Until(moment) => packets.extend(packer.until(&moment)),
        },
    )?;
    let lines = packer.lines_left_out();
    packets.extend(packer.finish());
    let status = ran.map(|ran| ran.and_then(Ran::status)).transpose();
    let status = status.with_context(|| {
        format!("cannot run {}", args.command.first().cloned().unwrap_or_default().display())
    })?;
    let (waits, runs): (Vec<_>, Vec<_>) =
        packets.into_iter().partition(|packet| packet.kind == SampleKind::OffCpu);
    say(&args.output, &runs)?;
    if args.off_cpu {
        say(&files::beside(&args.output, "off-cpu-")?, &waits)?;
    }
    for (count, what) in [
        (report.counts.no_room + report.no_room, "samples found no room"),
        (report.counts.waits_no_room, "samples of who waits found no room"),
        (report.counts.waits_kept_back, "samples of who waits were left out: too many at once"),
        (report.counts.waits_missed, "samples of who waits were missed"),
        (report.files.no_room, "times a file found no room: functions of it may have no names"),
        (lines.too_large, "times debug information was too large: lines are missing"),
        (lines.malformed, "times debug information was malformed: lines are missing"),
    ] {
        if count > 0 {
            complain(&format!("{count} {what}"));
        }
    }
    match status {
        Some(status) if !status.success() => Ok(Outcome::Exit(code(status))),
        _ => Ok(Outcome::Done),
    }
}

/// Says in one line what is missing where eBPF programs are not allowed.
pub(crate) fn say_means(means: Means, off_cpu: bool) {
    let Means::Copies { refused, with_kernel } = means else { return };
    let why = match refused.map(anyhow::Error::from) {
        Some(refused) => format!("no eBPF program ({refused:#})"),
        None => "no eBPF program".to_owned(),
    };
    let missing = match (with_kernel, off_cpu) {
        (true, false) => "",
        (false, false) => ", without the kernel's frames",
        (true, true) => ", and not of who waits",
        (false, true) => ", without the kernel's frames and not of who waits",
    };
    complain(&format!("{why}: sampling by copies of stacks, 16 KiB at most{missing}"));
}

/// Has as many files open as the system allows, and says what happens otherwise. A command that is run is to have its own bound already.
pub(crate) fn allow_files(otherwise: &str) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        complain(&format!("no more files may be open than before: {otherwise}"));
    }
}

/// Each file that is sampled stays open.
pub(crate) const NAMELESS: &str = "functions of some may have no names";

/// A command that runs; sampling stops when it has ended.
struct Ran(thread::JoinHandle<std::io::Result<ExitStatus>>);

impl Ran {
    fn start(command: &mut Command, stop: Arc<AtomicBool>) -> std::io::Result<Self> {
        let started = command.spawn();
        if started.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let mut child = started?;
        let wait = move || {
            let status = child.wait();
            stop.store(true, Ordering::Relaxed);
            status
        };
        Ok(Self(thread::spawn(wait)))
    }

    fn status(self) -> std::io::Result<ExitStatus> {
        match self.0.join() {
            Ok(status) => status,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The exit code that a shell would give.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Writes what was sampled, and says where it is.
fn say(output: &Path, packets: &[Packet]) -> anyhow::Result<()> {
    files::write(output, packets)?;
    let mut weights = Weights::new();
    for packet in packets {
        weights.add(&Request::decode(&packet.bytes, Limits::default()).context("our own packet")?);
    }
    files::print(hottest(&weights, HOTTEST, WIDTH).as_bytes())?;
    if packets.is_empty() {
        complain(&format!("nothing to sample: {} is not written", output.display()));
    } else {
        let path = output.display();
        complain(&format!(
            "the profile is {path}; `throughline profile show {path} --format html` draws it"
        ));
    }
    Ok(())
}
