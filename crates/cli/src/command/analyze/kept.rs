//! Analyses whose summaries are kept as blocks, of chunks that may be in buckets.

#[cfg(feature = "cluster")]
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, anyhow, bail};
use blocks::{Answer, CacheOptions, Engine, Hands, Options, Threads};
use mapper::Analysis;
use model::TimeRange;

use crate::log;
use crate::outcome::complain;
use crate::stop;
use crate::units::parse_size;

// Its group of options would have the same name as that of the tables.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Keep the summary of each window, and of runs of them, as blocks in this folder or s3://BUCKET[/PREFIX]; what is
    /// there is not made again
    #[arg(long, value_name = "FOLDER|URL")]
    blocks: Option<String>,
    /// Have windows read and merged by `throughline worker` processes at these addresses, HOST[:PORT] or http://HOST[:PORT]; a name
    /// that stands for several hosts is a worker on each. They must reach the recordings and --blocks by the same names. See
    /// docs/cluster.md
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL,…", value_delimiter = ',', requires = "blocks")]
    workers: Vec<cluster::Address>,
    // The answer does not depend on it: `cargo xtask bench cluster` looks whether it does.
    /// Into how many tasks the work is cut [default: one for each worker]
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "N", requires = "workers", hide = true)]
    tasks: Option<NonZeroUsize>,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Where chunks of buckets are copied to while they are read.
#[derive(clap::Args)]
pub(crate) struct CacheArgs {
    /// Copy chunks of buckets to a folder in this one while they are read [default: where temporary files go]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// How much those copies may take together
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_size)]
    cache_size: u64,
}

impl CacheArgs {
    pub(crate) fn hands(&self) -> anyhow::Result<Hands> {
        let options = CacheOptions { folder: self.cache.clone(), bytes: self.cache_size };
        Hands::new(&options).context("cannot keep a cache")
    }
}

impl Args {
    /// Whether something is to be kept, or comes from elsewhere than a folder.
    pub(super) fn are_wanted(&self, paths: &[PathBuf]) -> bool {
        let is_url = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains("://"));
        self.blocks.is_some() || paths.iter().any(is_url)
    }

    /// As `mapper::analyse` does, of all the time of the recordings. What is kept serves all tables.
    pub(super) fn analyse(
        &self,
        paths: &[PathBuf],
        options: &mapper::Options,
    ) -> anyhow::Result<Analysis> {
        if options.range != TimeRange::ALL {
            bail!(
                "with --blocks or s3://, answers are of all the time: --begin and --end need folders"
            );
        }
        log::start();
        let hands = self.cache.hands()?;
        let mut selection = options.selection.as_deref().cloned().unwrap_or_default();
        selection.longest_calls = true;
        let job = Options {
            rules: options.rules.clone(),
            selection: Some(selection),
            blocks: self.blocks.as_deref().map(absolute).transpose()?,
            windows: None,
        };
        #[cfg(feature = "cluster")]
        if !self.workers.is_empty() {
            let cluster = cluster::Cluster::new(&hands, self.workers.clone())?;
            let cluster = match self.tasks {
                Some(tasks) => cluster.with_tasks(tasks),
                None => cluster,
            };
            let answer = run(paths, &job, &hands, &cluster);
            cluster.absent().iter().for_each(|absent| complain(absent));
            return self.tell(answer?);
        }
        self.tell(run(paths, &job, &hands, &Threads::new(&hands, options.threads))?)
    }

    fn tell(&self, answer: Answer) -> anyhow::Result<Analysis> {
        answer.refused.iter().for_each(|refused| complain(refused));
        answer.lost.iter().for_each(|lost| complain(&format!("lost, and done again: {lost}")));
        if self.blocks.is_some() {
            let (made, used) = (answer.blocks_made, answer.blocks_used);
            complain(&format!("blocks: {made} made, {used} used"));
        }
        Ok(answer.analysis)
    }
}

/// A folder by its whole path, which is the same wherever it is opened; a URL as it is.
fn absolute(place: &str) -> anyhow::Result<String> {
    if place.contains("://") {
        return Ok(place.to_owned());
    }
    let path = std::path::absolute(place).with_context(|| format!("--blocks {place}"))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow!("--blocks {}: not UTF-8", path.display()))
}

/// What ends waiting for a signal.
#[derive(PartialEq, Eq)]
enum Woken {
    Signal,
    Done,
}

/// Wakes when it is dropped.
struct Done(Sender<Woken>);

impl Drop for Done {
    fn drop(&mut self) {
        // Nobody listens after a signal.
        drop(self.0.send(Woken::Done));
    }
}

/// Runs a job until it is done, or until a signal tells its engine to end.
fn run(
    paths: &[PathBuf],
    options: &Options,
    hands: &Hands,
    engine: &dyn Engine,
) -> anyhow::Result<Answer> {
    let asked = stop::on_signal()?;
    let (sender, woken) = mpsc::channel();
    let signals = sender.clone();
    // It ends with the process when there is no signal.
    thread::spawn(move || asked.recv().map(|()| signals.send(Woken::Signal)));
    thread::scope(|scope| {
        let _done = Done(sender);
        scope.spawn(move || {
            if woken.recv() == Ok(Woken::Signal) {
                complain("stopping after what is being read; a second signal ends it at once");
                engine.cancel();
            }
        });
        blocks::analyse(paths, options, hands, engine).context("cannot analyse")
    })
}
