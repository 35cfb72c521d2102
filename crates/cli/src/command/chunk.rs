//! `throughline chunk`: recordings and their chunks in other forms of storage.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Subcommand;
use query::{Exported, export_events};

use super::read::{ClockArgs, explained};
use crate::outcome::{Outcome, complain};

const EXAMPLES: &str = "\
Examples:
  throughline chunk export kernel/ -o kernel.parquet
  throughline sql 'select next_comm, count(*) from sched_switch group by 1' kernel.parquet
  throughline chunk export session/archives/20261120T164407-20261120T164437-3/ -o 3.parquet --force

Exit code 1: some of the data cannot be read, the file has the rest. See docs/sql.md.";

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write all event records to a file of Apache Parquet that `throughline sql` and others read
    Export(ExportArgs),
}

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
struct ExportArgs {
    /// Folders with traces in or below them: chunks, sessions, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The file, which appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    clocks: ClockArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Export(args) => export(args),
    }
}

fn export(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let target = &args.output;
    anyhow::ensure!(
        args.force || !target.exists(),
        "{} is there already: --force replaces it",
        target.display()
    );
    let begun = Instant::now();
    let partial = Partial::create(target)?;
    let exported = partial.write(args)?;
    let bytes = fs::metadata(&partial.path).with_context(|| unwritten(target))?.len();
    partial.publish(target)?;
    Ok(tell(&exported, bytes, begun.elapsed().as_secs_f64()))
}

/// A file under another name until it is whole; removed if it does not become so.
struct Partial {
    path: PathBuf,
    file: File,
    /// For what waits; its name is gone already.
    pages: File,
}

impl Partial {
    fn create(target: &Path) -> anyhow::Result<Self> {
        let name = target.file_name().context("the output has no name")?;
        let beside = |ending: &str| {
            let mut name: OsString = name.to_owned();
            name.push(format!(".{ending}-{}", std::process::id()));
            target.with_file_name(name)
        };
        let (path, waiting) = (beside("partial"), beside("pages"));
        let create =
            |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let pages = create(&waiting).with_context(|| unwritten(target))?;
        fs::remove_file(&waiting).with_context(|| unwritten(target))?;
        let file = create(&path).with_context(|| unwritten(target))?;
        Ok(Self { path, file, pages })
    }

    fn write(&self, args: &ExportArgs) -> anyhow::Result<Exported> {
        let (file, pages) = (self.file.try_clone()?, self.pages.try_clone()?);
        let exported = export_events(&args.paths, &args.clocks.options(), file, pages);
        exported.map_err(|error| match error {
            query::Error::Trace(error) => explained(*error),
            error => anyhow::Error::new(error).context(unwritten(&args.output)),
        })
    }

    fn publish(mut self, target: &Path) -> anyhow::Result<()> {
        let partial = std::mem::take(&mut self.path);
        fs::rename(&partial, target).with_context(|| unwritten(target))?;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).with_context(|| unwritten(target))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // The failure that is under way says more than one of tidying up.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn unwritten(target: &Path) -> String {
    format!("cannot write {}", target.display())
}

fn tell(exported: &Exported, bytes: u64, seconds: f64) -> Outcome {
    let Exported { rows, classes, lost, findings, more_findings } = exported;
    let each = if *rows > 0 { bytes as f64 / *rows as f64 } else { 0.0 };
    complain(&format!(
        "{rows} event records of {classes} classes in {bytes} bytes, {each:.2} each; {:.2} million a second",
        *rows as f64 / seconds / 1e6
    ));
    if *lost != query::Lost::default() {
        complain(&format!(
            "lost: {} event records and {} packets when it was recorded",
            lost.event_records, lost.packets
        ));
    }
    findings.iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
    if *more_findings > 0 {
        complain(&format!("unreadable: {more_findings} more"));
    }
    if findings.is_empty() { Outcome::Done } else { Outcome::No }
}
