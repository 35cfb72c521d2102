//! `throughline store`: keeps profiles, and answers what is asked of them.

mod exports;
mod limits;
mod metrics;
mod receivers;
mod service;
mod symbols;

use std::future::pending;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use export::Prefix;
use intake::Limits;
use rules::{Config, SeriesLimits};
use server::profiles::work::serve_workers;
use store::cells::Grid;
use store::lake::name::Tenant;
use store::lake::plan::Keep;
use store::lake::tenants::PerTenant;
use tokio::net::TcpListener;

use self::limits::Share;
use self::service::now;
pub(crate) use self::service::{Options, Service, Trouble};
use self::symbols::Names;
pub(crate) use self::symbols::SymbolsArgs;
use crate::command::profile::allow_files;
use crate::command::relay::PeerArgs;
use crate::log;
use crate::outcome::Outcome;
use crate::stop::Stop;
use crate::units::{parse_duration, parse_size};

/// A client waits for its reply for so long, and no reply at the end of the process takes longer than its replies may.
const MAX_FLUSH: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  throughline store                                   profiles come to http://127.0.0.1:4040
  throughline agent --send http://127.0.0.1:4040
  throughline store --data s3://profiles/blocks --catalogue sqlite:blocks.sqlite --keep-for 720h
  throughline store --rules rules.toml --remote-write http://prometheus:9090/api/v1/write

Clients of OpenTelemetry (OTLP over HTTP and gRPC) and of Pyroscope (push.v1, /ingest) push to it, and its querier answers as Pyroscope's does; a browser shows its page. See docs/store.md.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where blocks are kept: a folder, which is made, or a bucket (s3://bucket/prefix); one process at a time uses it
    #[arg(long, value_name = "PLACE", default_value = "throughline-data/profiles")]
    data: String,
    /// Where the catalogue of the blocks is (sqlite:PATH or postgres://…); a folder has it inside
    #[arg(long, value_name = "URL")]
    catalogue: Option<String>,
    /// Start although blocks of the catalogue are not there, and forget them
    #[arg(long)]
    forget_missing: bool,
    /// Where clients push profiles and ask for them
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4040")]
    listen: SocketAddr,
    #[command(flatten)]
    peers: PeerArgs,
    /// Give merges to `throughline compact` at this address, where whoever may connect can change what is stored
    #[arg(long, value_name = "ADDR")]
    workers: Option<SocketAddr>,
    /// Tell tenants apart by the field X-Scope-OrgID of requests; those without it are refused
    #[arg(long)]
    tenants: bool,
    /// Each tenant may send so much in a second on average, unpacked; who sends more is told to wait
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_size)]
    rate: u64,
    /// What was pushed is on the disk, and acknowledged, after so long at most
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    flush: Duration,
    /// Samples may have been taken so long before they come
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    take_for: Duration,
    /// Samples that are older are deleted, such as 720h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep_for: Option<Duration>,
    /// The oldest samples are deleted while all blocks together are larger, such as 20GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_size: Option<u64>,
    /// What each tenant may send, and what is kept of it (TOML); options hold where it says nothing
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    #[command(flatten)]
    symbols: SymbolsArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// A metric's sample is of so much time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    cell: Duration,
    /// What metrics' names begin with
    #[arg(long, value_name = "PREFIX", default_value = export::DEFAULT_PREFIX)]
    metric_prefix: Prefix,
}

/// Which metrics are made of profiles, and who gets them.
#[derive(Debug, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Rules that say which sums of profiles are exported as metrics (TOML)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Send metrics to this receiver of Prometheus remote write; may be given several times
    #[arg(long, value_name = "URL")]
    remote_write: Vec<String>,
    /// Receivers with tenants, credentials and certificates (TOML)
    #[arg(long, value_name = "FILE")]
    receivers: Option<PathBuf>,
}

impl MetricsArgs {
    /// A store that makes these metrics, in a place, and names frames by `symbols`.
    ///
    /// # Errors
    ///
    /// What is wrong with the files, by name.
    pub(crate) fn options(
        &self,
        data: String,
        symbols: Option<Arc<Names>>,
    ) -> anyhow::Result<Options> {
        Ok(Options {
            symbols,
            rules: self.rules.as_deref().map(read_rules).transpose()?,
            receivers: receivers::all(&self.remote_write, self.receivers.as_deref())?,
            ..Options::new(data)
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    log::start();
    let peers = args.peers.of_page(args.listen)?;
    allow_files("only so many clients are served at once");
    let service = Service::start(args.options()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let profiles = service.profiles();
    let workers_peers = args.workers.map(|address| args.peers.of_page(address)).transpose()?;
    let served = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        if let (Some(address), Some(peers)) = (args.workers, workers_peers) {
            let listener = TcpListener::bind(address).await;
            let listener =
                listener.with_context(|| format!("cannot listen at {address} (--workers)"))?;
            let address = listener.local_addr().context("no address")?;
            writeln!(io::stdout().lock(), "workers at http://{address}")?;
            let admits = move |from, to| peers.allow(from, to);
            // It ends with the runtime: a worker whose request is cut off asks again.
            let jobs = serve_workers(listener, service.lake(), now, admits, pending());
            tokio::spawn(jobs);
        }
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("cannot listen at {}", args.listen))?;
        let address = listener.local_addr().context("no address")?;
        writeln!(io::stdout().lock(), "listening at http://{address}")?;
        let admits = move |from, to| peers.allow(from, to);
        server::profiles::serve(listener, profiles, admits, async move { stop.asked().await })
            .await
            .context("cannot go on")
    });
    service.finish();
    served.map(|()| Outcome::Done)
}

impl Args {
    fn options(&self) -> anyhow::Result<Options> {
        if self.flush > MAX_FLUSH {
            anyhow::bail!("--flush: clients wait for it; {} s at most", MAX_FLUSH.as_secs());
        }
        Ok(Options {
            catalogue: self.catalogue.clone(),
            forgets_missing: self.forget_missing,
            are_tenants_told: self.tenants,
            flush: self.flush,
            shares: self.shares()?,
            keep_bytes: self.keep_size,
            grid: grid(self.cell)?,
            prefix: self.metric_prefix.clone(),
            ..self.metrics.options(self.data.clone(), self.symbols.open()?)?
        })
    }
}

impl Args {
    /// What each tenant may have.
    fn shares(&self) -> anyhow::Result<PerTenant<Share>> {
        let limits = Limits {
            oldest: Some(service::nanos(self.take_for)),
            bytes_per_second: self.rate,
            ..Limits::default()
        };
        let keep = Keep { age: self.keep_for.map(service::nanos), bytes: None };
        let share = Share { limits, keep, ..Share::default() };
        match &self.limits {
            Some(path) => limits::read(path, &share, self.tenants),
            None => Ok(share.into()),
        }
    }
}

/// The cells of a store's time.
///
/// # Errors
///
/// When they are too short or too long.
pub(crate) fn grid(cell: Duration) -> anyhow::Result<Grid> {
    match u32::try_from(cell.as_millis()) {
        Ok(ms @ 1_000..=3_600_000) => Ok(Grid::new(ms)),
        _ => anyhow::bail!("--cell: from 1s to 1h"),
    }
}

/// How many series a tenant may have, by a file of limits.
///
/// # Errors
///
/// What is wrong with the file.
pub(crate) fn series_limits(
    path: Option<&std::path::Path>,
    tenant: &Tenant,
) -> anyhow::Result<SeriesLimits> {
    let shares = path.map(|path| limits::read(path, &Share::default(), true)).transpose()?;
    Ok(shares.map_or_else(SeriesLimits::default, |shares| shares.of(tenant).series))
}

/// The rules of a file.
///
/// # Errors
///
/// What is wrong with it, by name.
pub(crate) fn read_rules(path: &std::path::Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}
