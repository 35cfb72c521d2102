//! Where debug information is by which frames of profiles are named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use model::samples::Batch;
use store::lake::Symbolize;
use symbolizer::{Settings, Symbolizer};

use crate::units::parse_size;

/// Where debug information is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SymbolsArgs {
    /// Name native frames that come without, by the build id of their file: from a folder such as /usr/lib/debug, or a debuginfod server by
    /// URL; may be given several times
    #[arg(long, value_name = "PLACE")]
    symbols: Vec<String>,
    /// Where files of debuginfod servers are kept [default: throughline-data/symbols, or `symbols` in the data folder of `up`]
    #[arg(long, value_name = "FOLDER")]
    symbols_cache: Option<PathBuf>,
    /// How much of them is kept; a larger file is not taken
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    symbols_cache_size: u64,
}

/// What names frames.
#[derive(Debug)]
pub(crate) struct Names(pub(crate) Symbolizer);

impl Symbolize for Names {
    fn symbolize(&self, samples: &mut Batch, patience: Duration) {
        self.0.symbolize(samples, patience);
    }
}

/// The data folder of who has none of another name.
const DATA: &str = "throughline-data";

impl SymbolsArgs {
    /// What names frames from these places; nothing when there is none.
    ///
    /// # Errors
    ///
    /// Which place cannot be used, and why.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Arc<Names>>> {
        self.open_in(Path::new(DATA))
    }

    /// The same for who has a data folder.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub(crate) fn open_in(&self, data: &Path) -> anyhow::Result<Option<Arc<Names>>> {
        if self.symbols.is_empty() {
            return Ok(None);
        }
        let cache = self.symbols_cache.clone().unwrap_or_else(|| data.join("symbols"));
        let mut settings = Settings {
            cache: Some(cache),
            cache_bytes: self.symbols_cache_size,
            ..Settings::default()
        };
        for place in &self.symbols {
            if place.contains("://") {
                let uri = place.parse();
                settings.servers.push(uri.with_context(|| format!("--symbols {place}"))?);
                continue;
            }
            let folder = PathBuf::from(place);
            let about = folder.metadata().with_context(|| format!("--symbols {place}"))?;
            if !about.is_dir() {
                anyhow::bail!("--symbols {place}: not a folder");
            }
            settings.folders.push(folder);
        }
        let symbolizer = Symbolizer::new(&settings).context("--symbols")?;
        Ok(Some(Arc::new(Names(symbolizer))))
    }
}
