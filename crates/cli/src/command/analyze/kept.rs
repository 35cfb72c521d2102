//! Analyses whose summaries are kept as blocks, of chunks that may be in buckets.

use std::path::PathBuf;

use anyhow::{Context, bail};
use blocks::{Answer, CacheOptions, Hands, Options, Threads};
use mapper::Analysis;
use model::TimeRange;

use crate::outcome::complain;
use crate::units::parse_size;

// Its group of options would have the same name as that of the tables.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Keep the summary of each window, and of runs of them, as blocks in this folder or s3://BUCKET[/PREFIX]; what is
    /// there is not made again
    #[arg(long, value_name = "FOLDER|URL")]
    blocks: Option<String>,
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
        let hands = self.cache.hands()?;
        let engine = Threads::new(&hands, options.threads);
        let mut selection = options.selection.as_deref().cloned().unwrap_or_default();
        selection.longest_calls = true;
        let options = Options {
            rules: options.rules.clone(),
            selection: Some(selection),
            blocks: self.blocks.clone(),
            windows: None,
        };
        let answer = blocks::analyse(paths, &options, &hands, &engine).context("cannot analyse")?;
        self.tell(&answer);
        Ok(answer.analysis)
    }

    fn tell(&self, answer: &Answer) {
        answer.refused.iter().for_each(|refused| complain(refused));
        answer.lost.iter().for_each(|lost| complain(&format!("lost, and done again: {lost}")));
        if self.blocks.is_some() {
            let (made, used) = (answer.blocks_made, answer.blocks_used);
            complain(&format!("blocks: {made} made, {used} used"));
        }
    }
}
