//! `throughline sql "select …" PATH…`: recordings asked in SQL.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use query::format::{Format, Writer};
use query::{Answer, Database, Limits, Progress};

use super::analyze::periods::PeriodArgs;
use super::read::{ClockArgs, explained};
use crate::outcome::{Outcome, complain};
use crate::units::parse_size;

const EXAMPLES: &str = "\
Examples:
  throughline sql 'select class, count(*) as n from events group by class order by n desc' session/
  throughline sql 'select next_comm, count(*) from sched_switch group by 1 order by 2 desc limit 10' kernel/
  throughline sql \"select ts, tid, fields from events where class like 'net_%' and ts < '2026-11-20T16:44:08'\" kernel/
  throughline sql 'select * from \"svc:request_begin\"' --format csv ust/
  throughline sql 'select name, count(*), sum(duration) from syscalls group by name order by 3 desc' kernel/
  throughline sql \"select * from spans where kind = 'blocked' and comm = 'postgres' and duration > 1000000\" kernel/
  throughline sql --period 'req : svc:begin : svc:end' --period-key 'req : id' 'select * from phases' ust/
  throughline sql 'show tables' session/                which there are; 'describe sched_switch': their columns
  throughline sql 'select * from sched_switch' --format parquet -w switches.parquet kernel/
  throughline sql --profiles throughline-data/profiles 'select function, sum(value) from samples group by 1 order by 2 desc limit 10'
  throughline sql 'explain analyze select ...' kernel/  what was read for it

Exit code 1: some of the data cannot be read, the answer is of the rest. See docs/sql.md.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// One SQL statement that changes nothing; - reads it from standard input
    #[arg(value_name = "SQL")]
    question: String,
    /// Folders with traces in or below them: sessions, chunks, single traces; or files of `throughline chunk export`
    #[arg(required_unless_present = "profiles", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Ask a profile store's blocks: a folder, a bucket (s3://bucket/prefix) or one block; a store may be running there
    #[arg(long, value_name = "PLACE", conflicts_with = "paths")]
    profiles: Option<String>,
    /// Where the catalogue of the blocks is (sqlite:PATH or postgres://…); a folder has it inside
    #[arg(long, value_name = "URL", requires = "profiles")]
    catalogue: Option<String>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Form::Table)]
    format: Form,
    /// Write to this file, which appears when it is whole, instead of standard output
    #[arg(short = 'w', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What sorting, grouping and joining may hold in memory
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    memory: u64,
    /// How many threads read; by default one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    clocks: ClockArgs,
    #[command(flatten, next_help_heading = "The table phases")]
    periods: PeriodArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Columns side by side
    Table,
    /// Comma-separated, with a heading
    Csv,
    /// One JSON object a line
    Json,
    /// Apache Parquet; needs --output or a pipe
    Parquet,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let target = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if args.format == Form::Parquet && target.is_none() && io::stdout().is_terminal() {
        anyhow::bail!("Parquet is nothing for a terminal: --output FILE");
    }
    let database = open(args)?;
    let mut answer = database.ask(&question(&args.question)?)?;
    let progress = io::stderr().is_terminal().then(|| Shown::new(&database));
    match target {
        None => write(args.format, &mut answer, BufWriter::new(io::stdout()), progress)?,
        Some(target) => write_file(args.format, &mut answer, target, progress)?,
    }
    Ok(if tell(&database) { Outcome::No } else { Outcome::Done })
}

fn open(args: &Args) -> anyhow::Result<Database> {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits {
        memory_bytes: usize::try_from(args.memory).unwrap_or(usize::MAX),
        threads: args.threads.map_or_else(all, usize::from),
    };
    if let Some(place) = &args.profiles {
        return Ok(Database::open_profiles(place, args.catalogue.as_deref(), &limits)?);
    }
    let periods = args.periods.rules()?;
    Database::open(&args.paths, &args.clocks.options(), periods, &limits).map_err(|error| {
        match error {
            query::Error::Trace(error) => explained(*error),
            error => error.into(),
        }
    })
}

fn question(text: &str) -> anyhow::Result<String> {
    match text {
        "-" => io::read_to_string(io::stdin()).context("cannot read the question"),
        text => Ok(text.to_owned()),
    }
}

/// Writes all rows. Where they appear on the terminal, progress is shown until the first of them.
fn write<W: Write + Send>(
    form: Form,
    answer: &mut Answer<'_>,
    out: W,
    progress: Option<Shown>,
) -> anyhow::Result<()> {
    let format = match form {
        Form::Table => Format::Table,
        Form::Csv => Format::Csv,
        Form::Json => Format::Json,
        Form::Parquet => Format::Parquet,
    };
    let mut progress = progress;
    let mut writer = Writer::new(format, &answer.schema(), out)?;
    while let Some(batch) = answer.next_batch()? {
        progress = progress.filter(|_| !io::stdout().is_terminal());
        writer.write(&batch)?;
    }
    drop(progress);
    Ok(writer.finish()?.flush()?)
}

/// Under another name until it is whole.
fn write_file(
    form: Form,
    answer: &mut Answer<'_>,
    target: &Path,
    progress: Option<Shown>,
) -> anyhow::Result<()> {
    let mut name = target.file_name().context("the output has no name")?.to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    let partial = target.with_file_name(name);
    let unwritten = || format!("cannot write {}", target.display());
    let file = File::create_new(&partial).with_context(unwritten)?;
    let written = write(form, answer, BufWriter::new(file), progress)
        .and_then(|()| std::fs::rename(&partial, target).with_context(unwritten));
    if written.is_err() {
        // The failure that is under way says more than one of tidying up.
        drop(std::fs::remove_file(&partial));
    }
    written
}

/// Says what was lost or cannot be read; gives whether something cannot.
fn tell(database: &Database) -> bool {
    let lost = database.lost();
    if lost != query::Lost::default() {
        complain(&format!(
            "lost: {} event records and {} packets when it was recorded",
            lost.event_records, lost.packets
        ));
    }
    let (findings, more) = database.findings();
    findings.iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
    if more > 0 {
        complain(&format!("unreadable: {more} more"));
    }
    !findings.is_empty()
}

/// How far reading is, on the terminal, until it is dropped.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    fn new(database: &Database) -> Self {
        let bar = ProgressBar::new(database.bytes());
        let progress: Arc<Progress> = database.progress();
        let state = move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            // When that fails there is nobody left to tell.
            out.write_fmt(format_args!(
                "{} MiB read, {:.0} s",
                progress.bytes() >> 20,
                state.elapsed().as_secs_f32()
            ))
            .unwrap_or_default();
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {read}") {
            bar.set_style(style.with_key("read", state));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
