//! `throughline store`: keeps profiles, and answers what is asked of them.

mod exports;
mod metrics;
mod receivers;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use export::Prefix;
use intake::Limits;
use model::{Nanos, Timestamp};
use objects::Io;
use rules::Config;
use server::profiles::Profiles;
use store::cells::Grid;
use store::lake::plan::Keep;
use store::lake::{Exporting, Lake, Settings};
use tokio::net::TcpListener;

use self::exports::Exports;
use crate::command::profile::allow_files;
use crate::command::relay::PeerArgs;
use crate::log;
use crate::outcome::{Outcome, complain};
use crate::stop::Stop;
use crate::units::{parse_duration, parse_size};

/// How often blocks are looked at: which are merged, which are deleted.
const LOOK: Duration = Duration::from_secs(5);

/// A client waits for its reply for so long, and no reply at the end of the process takes longer than its replies may.
const MAX_FLUSH: Duration = Duration::from_secs(5);

/// Samples may be of a time so far ahead ([`Limits::newest`]), and are in time for so much longer.
const MAX_AHEAD: Duration = Duration::from_secs(600);

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
    /// Tell tenants apart by the field X-Scope-OrgID of requests; those without it are refused
    #[arg(long)]
    tenants: bool,
    /// Each tenant may send so much in a second on average; who sends more is told to wait
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
    /// Rules that say which sums are exported as metrics (TOML)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Send metrics to this receiver of Prometheus remote write; may be given several times
    #[arg(long, value_name = "URL")]
    remote_write: Vec<String>,
    /// Receivers with tenants, credentials and certificates (TOML)
    #[arg(long, value_name = "FILE")]
    receivers: Option<PathBuf>,
    /// A metric's sample is of so much time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    cell: Duration,
    /// What metrics' names begin with
    #[arg(long, value_name = "PREFIX", default_value = export::DEFAULT_PREFIX)]
    metric_prefix: Prefix,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    log::start();
    let nanos = |time: Duration| Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    if args.flush > MAX_FLUSH {
        anyhow::bail!("--flush: clients wait for it; {} s at most", MAX_FLUSH.as_secs());
    }
    let peers = args.peers.of_page(args.listen)?;
    allow_files("only so many clients are served at once");
    let io = Io::start().context("cannot start threads")?;
    let receivers = receivers::all(&args.remote_write, args.receivers.as_deref())?;
    let exporting = Exporting { prefix: args.metric_prefix.clone(), ..Exporting::default() };
    let settings = Settings {
        // A retry that is taken was not forgotten.
        retries: nanos(args.take_for.saturating_add(MAX_AHEAD)),
        grid: grid(args.cell)?,
        export: (!receivers.is_empty()).then_some(exporting),
        catalogue: args.catalogue.clone(),
        forgets_missing: args.forget_missing,
        ..Settings::default()
    };
    let rules = args.rules.as_deref().map(read_rules).transpose()?;
    let lake = Lake::open(&args.data, &io, settings, now());
    let lake = Arc::new(lake.with_context(|| format!("cannot keep profiles in {}", args.data))?);
    let keep = Keep { age: args.keep_for.map(nanos), bytes: args.keep_size };
    let oldest = Some(nanos(args.take_for));
    let limits = Limits { oldest, bytes_per_second: args.rate, ..Limits::default() };
    let profiles = Profiles::new(Arc::clone(&lake), limits, args.tenants, now);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let exports = Exports::new(Arc::clone(&lake), receivers, args.tenants, rules);
    let look = LOOK.min(args.cell);
    let told = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&told);
    let profiles = profiles.with_metric_prefix(args.metric_prefix.clone());
    let profiles = profiles.with_metrics(Arc::new(move || {
        shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }));
    let keeper = Keeper::start(lake, exports, told, args.flush, look, keep);
    let served = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("cannot listen at {}", args.listen))?;
        let address = listener.local_addr().context("no address")?;
        writeln!(io::stdout().lock(), "listening at http://{address}")?;
        let admits = move |from, to| peers.allow(from, to);
        server::profiles::serve(listener, profiles, admits, async move { stop.asked().await })
            .await
            .context("cannot go on")
    });
    keeper.finish();
    served.map(|()| Outcome::Done)
}

/// Writes what waits, and merges and deletes blocks.
struct Keeper {
    ends: Vec<mpsc::Sender<()>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Keeper {
    fn start(
        lake: Arc<Lake>,
        mut exports: Exports,
        told: Arc<Mutex<String>>,
        flush: Duration,
        look: Duration,
        keep: Keep,
    ) -> Self {
        let mut keeper = Self { ends: Vec::new(), threads: Vec::new() };
        let other = Arc::clone(&lake);
        keeper.every(flush, move || {
            if other.is_pending() {
                other.flush(now());
            }
        });
        let mut troubles =
            [Trouble::of("blocks are not merged or deleted"), Trouble::of("metrics are not made")];
        keeper.every(look, move || {
            let [blocks, metrics_of] = &mut troubles;
            // Rules come before what is counted by them.
            let provisioned = exports.provision(now());
            let merged = lake.compact_for(now(), |tenant| exports.is_provisioned(tenant));
            let expired = lake.expire(keep, now());
            blocks.tell(merged.map(drop).and(expired.map(drop)).map_err(anyhow::Error::from));
            let closed = provisioned.and(exports.close(now()));
            let text = metrics::text(&lake, &exports, now());
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            // Nothing rather than what is not true any more.
            metrics_of.tell(closed.and(match text {
                Ok(text) => {
                    *told = text;
                    Ok(())
                }
                Err(error) => {
                    told.clear();
                    Err(error)
                }
            }));
        });
        keeper
    }

    /// Does something again and again, and once more at the end.
    fn every(&mut self, pause: Duration, mut work: impl FnMut() + Send + 'static) {
        let (end, ends) = mpsc::channel::<()>();
        self.ends.push(end);
        self.threads.push(thread::spawn(move || {
            while ends.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                work();
            }
            work();
        }));
    }

    fn finish(self) {
        drop(self.ends);
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// What does not go well is said once, until it does again.
struct Trouble {
    what: &'static str,
    is_said: bool,
}

impl Trouble {
    const fn of(what: &'static str) -> Self {
        Self { what, is_said: false }
    }

    fn tell(&mut self, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.is_said = false,
            Err(error) if !std::mem::replace(&mut self.is_said, true) => {
                complain(&format!("{}: {error:#}", self.what));
            }
            Err(_) => {}
        }
    }
}

fn grid(cell: Duration) -> anyhow::Result<Grid> {
    match u32::try_from(cell.as_millis()) {
        Ok(ms @ 1_000..=3_600_000) => Ok(Grid::new(ms)),
        _ => anyhow::bail!("--cell: from 1s to 1h"),
    }
}

fn read_rules(path: &std::path::Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

#[expect(clippy::disallowed_methods, reason = "what is pushed is from now")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    Timestamp::from_nanos(nanos)
}
