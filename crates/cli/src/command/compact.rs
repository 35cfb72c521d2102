//! `throughline compact`: merges blocks of a store of profiles beside it.
//!
//! It keeps nothing: what it is told of a job, and the blocks, are all that it needs. Killed at any moment, its job is done by somebody else.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use objects::{Io, Store};
use serde::Serialize;
use server::profiles::work::{Finished, Given, GivenBack, Held};
use store::lake::Symbolize;
use tokio::runtime::Runtime;
use webclient::{Answer, Backoff, Client, shown};

use crate::command::store::{SymbolsArgs, Trouble};
use crate::log;
use crate::outcome::Outcome;
use crate::stop;

/// How often it asks when there was nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// A request that takes longer has failed: longer than any commit is waited for.
const PATIENCE: Duration = Duration::from_secs(150);
/// A renewal is of use for so long.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(3);
/// A lease is not renewed more often.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(500);
/// How often a result is told again when there was no answer.
const TELLS: usize = 5;
/// Jobs at once, each of which takes some hundred megabytes of memory.
const MAX_JOBS: usize = 64;

const EXAMPLES: &str = "\
Examples:
  throughline store --data s3://profiles/blocks --catalogue sqlite:blocks.sqlite --workers 10.0.0.2:4041 --allow 10.0.0.0/24
  throughline compact --store http://10.0.0.2:4041 --data s3://profiles/blocks

Credentials of buckets come from the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, …). See docs/store.md.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the store gives out jobs (its --workers)
    #[arg(long, value_name = "URL")]
    store: http::Uri,
    /// Where the blocks are: what the store has as --data
    #[arg(long, value_name = "PLACE")]
    data: String,
    /// How many merges at once
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    #[command(flatten)]
    symbols: SymbolsArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    log::start();
    let is_url = matches!(args.store.scheme_str(), Some("http" | "https"));
    if !is_url || args.store.authority().is_none() {
        anyhow::bail!("--store: not as http://HOST:PORT: {}", args.store);
    }
    if args.jobs.get() > MAX_JOBS {
        anyhow::bail!("--jobs: {MAX_JOBS} at most");
    }
    let symbols = args.symbols.open()?.map(|names| names as Arc<dyn Symbolize>);
    let io = Io::start().context("cannot start threads")?;
    let blocks = Store::open(&args.data, &io);
    let blocks = blocks.with_context(|| format!("cannot reach blocks in {}", args.data))?;
    let is_encrypted = args.store.scheme_str() == Some("https");
    let client = webclient::new(is_encrypted, webclient::Version::Http1, None, None)
        .context("cannot reach the store")?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stopped = stop::on_signal_set(Arc::clone(&is_stopped))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let base = args.store.to_string().trim_end_matches('/').to_owned();
    let worker = Worker {
        blocks,
        symbols,
        client,
        base,
        runtime,
        is_stopped,
        trouble: Mutex::new(Trouble::of("no jobs come")),
        failing: Mutex::new(Trouble::of("a merge could not be done")),
        made: AtomicU64::new(0),
    };
    writeln!(io::stdout().lock(), "working for {}", args.store)?;
    thread::scope(|scope| {
        for _ in 0..args.jobs.get() {
            scope.spawn(|| worker.work());
        }
        // Until the first signal, which also ends the pauses; each thread ends its job.
        stopped.recv().ok();
    });
    writeln!(io::stdout().lock(), "{} blocks made", worker.made.load(Ordering::Relaxed))?;
    Ok(Outcome::Done)
}

struct Worker {
    blocks: Store,
    symbols: Option<Arc<dyn Symbolize>>,
    client: Client,
    base: String,
    runtime: Runtime,
    is_stopped: Arc<AtomicBool>,
    trouble: Mutex<Trouble>,
    failing: Mutex<Trouble>,
    made: AtomicU64,
}

/// Why a request was not done.
enum No {
    /// The store says so.
    Refused(String),
    /// There is no answer.
    Unheard(String),
}

impl No {
    fn why(self) -> String {
        match self {
            Self::Refused(why) | Self::Unheard(why) => why,
        }
    }
}

impl Worker {
    /// Does one job after the other until it is told to stop.
    fn work(&self) {
        let mut backoff = Backoff::default();
        while !self.is_stopped.load(Ordering::Relaxed) {
            let given = self.take();
            let told = given.as_ref().map(drop).map_err(|why| anyhow::anyhow!("{why}"));
            self.trouble.lock().unwrap_or_else(PoisonError::into_inner).tell(told);
            let pause = match given {
                Ok(Some(given)) => {
                    let done = self.run(&given);
                    let is_done = done.is_ok();
                    self.failing.lock().unwrap_or_else(PoisonError::into_inner).tell(done);
                    if is_done {
                        backoff.reset();
                        continue;
                    }
                    backoff.after_failure(None, fastrand::f64())
                }
                Ok(None) => {
                    backoff.reset();
                    IDLE.mul_f64(0.5 + fastrand::f64())
                }
                Err(_) => backoff.after_failure(None, fastrand::f64()),
            };
            self.pause(pause);
        }
    }

    fn take(&self) -> Result<Option<Given>, String> {
        let answer = self.post("take", &(), PATIENCE).map_err(No::why)?;
        if answer.status == http::StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let job = serde_json::from_slice(&answer.body);
        job.map(Some).map_err(|error| format!("a job that is not understood: {error}"))
    }

    /// Does a job, whose lease is renewed meanwhile, and tells of it.
    fn run(&self, given: &Given) -> anyhow::Result<()> {
        let (end, ended) = mpsc::channel::<()>();
        let third = Duration::from_millis(given.lease_ms / 3).max(SHORTEST_RENEWAL);
        let ran = thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(third) == Err(RecvTimeoutError::Timeout) {
                    // What it says is asked once more before the block is put.
                    drop(self.renew(given));
                }
            });
            let symbols = self.symbols.as_deref();
            let ran = given.job.run(&self.blocks, symbols, |_name| self.renew(given).is_ok());
            drop(end);
            ran
        });
        match ran {
            Ok(Some(done)) => {
                self.finish(&Finished { lease: given.lease.clone(), done })?;
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(None) => anyhow::bail!("its lease has ended"),
            Err(error) => {
                let why = Some(model::with_causes(&error));
                let back = GivenBack { lease: given.lease.clone(), why };
                // If that is not heard either, the lease ends by itself.
                drop(self.post("give-back", &back, RENEWAL_PATIENCE));
                Err(error.into())
            }
        }
    }

    fn renew(&self, given: &Given) -> Result<(), No> {
        let held = Held { lease: given.lease.clone() };
        self.post("renew", &held, RENEWAL_PATIENCE).map(drop)
    }

    fn finish(&self, finished: &Finished) -> anyhow::Result<()> {
        let mut backoff = Backoff::default();
        let mut last = String::new();
        for _ in 0..TELLS {
            match self.post("finish", finished, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(No::Refused(why)) => anyhow::bail!("its result is not taken: {why}"),
                // Told again, it is refused if it was taken: by then the lease has ended.
                Err(No::Unheard(why)) => last = why,
            }
            self.pause(backoff.after_failure(None, fastrand::f64()));
        }
        anyhow::bail!("its result was not heard: {last}")
    }

    fn post(&self, path: &str, body: &impl Serialize, patience: Duration) -> Result<Answer, No> {
        let unheard = |why: String| No::Unheard(why);
        let body = serde_json::to_vec(body).map_err(|error| unheard(error.to_string()))?;
        let request = http::Request::post(format!("{}/compaction/v1/{path}", self.base))
            .header(http::header::USER_AGENT, webclient::PRODUCT)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.into())
            .map_err(|error| unheard(error.to_string()))?;
        let exchange = webclient::exchange(&self.client, request);
        let answer =
            self.runtime.block_on(async { tokio::time::timeout(patience, exchange).await });
        let answer = answer
            .map_err(|_elapsed| unheard(format!("no answer within {} s", patience.as_secs())))?
            .map_err(unheard)?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let why = format!("{}: {}", answer.status, shown(&answer.body));
        Err(if answer.status.is_server_error() { No::Unheard(why) } else { No::Refused(why) })
    }

    /// Waits, or until it is told to stop.
    fn pause(&self, time: Duration) {
        let step = Duration::from_millis(100);
        let mut left = time;
        while !left.is_zero() && !self.is_stopped.load(Ordering::Relaxed) {
            let now = left.min(step);
            thread::park_timeout(now);
            left = left.saturating_sub(now);
        }
    }
}
