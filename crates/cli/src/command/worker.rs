//! `throughline worker`: does steps of other processes' jobs until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::command::analyze::kept::CacheArgs;
use crate::log;
use crate::outcome::Outcome;
use crate::stop::Stop;

/// How long steps that are being done when the worker is told to stop may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  throughline worker --listen 10.0.0.3:5345          on each machine, and then on any of them:
  throughline analyze all --workers 10.0.0.3,10.0.0.4,10.0.0.5 --blocks s3://traces/blocks s3://traces/fleet/HOST

Whoever can connect to the port can have recordings read, and blocks written into any folder or bucket, with the rights and the
credentials of this process. There is no password and no encryption: let only those reach it whom you trust with that.
Credentials of buckets are this process's own, from the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, …); jobs
bring none. See docs/cluster.md.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Take jobs at this address; its port is to be reached by coordinators only whom you trust
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5345")]
    listen: SocketAddr,
    /// How many threads read [default: one for each CPU]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    cache: CacheArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    log::start();
    let hands = Arc::new(args.cache.hands()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("cannot listen at {}", args.listen))?;
        let address = listener.local_addr().context("no address")?;
        writeln!(io::stdout().lock(), "listening at {address}")?;
        cluster::serve(listener, hands, args.threads, async move { stop.asked().await })
            .await
            .context("cannot go on")
    });
    runtime.shutdown_timeout(PATIENCE);
    served.map(|()| Outcome::Done)
}
