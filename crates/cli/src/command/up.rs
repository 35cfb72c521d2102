//! `throughline up`: relay, stitching, profile store and web page in one process on one data folder.
//!
//! ```text
//! DATA/traces/     what tracers sent, as the relay lays it out
//! DATA/summaries/  one summary for each window that was analysed
//! DATA/profiles/   what profilers pushed, as `throughline store` keeps it
//! DATA/up.json     where this run listens
//! ```

mod addresses;
mod analysis;
mod live;
mod sessions;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use relay::{Event, Relay};
use server::Published;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinHandle;

use crate::command::relay::{PeerArgs, RelayArgs};
use crate::command::store::{MetricsArgs, Service, SymbolsArgs};
use crate::command::tls;
use crate::outcome::{Outcome, complain};
use crate::stop::Stop;
use addresses::Addresses;
use analysis::{Analyst, News};
use live::Live;

/// How long open replies of the page may take once the end was asked for.
const PAGE_GRACE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of everything that is kept; made when it is not there
    #[arg(long, value_name = "DIR", default_value = "throughline-data", env = "THROUGHLINE_DATA")]
    data: PathBuf,
    /// Where tracers send event streams
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5343")]
    stream: SocketAddr,
    /// Where the web page is; who may connect to it can read every session being recorded
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    http: SocketAddr,
    /// Where profilers push profiles and are asked for them, and the page of profiles is; `off` for no store
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4040")]
    profiles: ProfilesAt,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    symbols: SymbolsArgs,
    #[command(flatten)]
    relay: RelayArgs,
}

/// Where the store listens, if there is one.
#[derive(Debug, Clone, Copy)]
enum ProfilesAt {
    Off,
    Address(SocketAddr),
}

impl FromStr for ProfilesAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::Address).map_err(|_invalid| {
                "neither `off` nor an address such as 127.0.0.1:4040".to_owned()
            }),
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<Outcome> {
    let mut stop = Stop::listen()?;
    let mut hangup = args.relay.tls.hangup()?;
    let page_peers = args.relay.peers.of_page(args.http)?;
    let (traces, summaries) = (args.data.join("traces"), args.data.join("summaries"));
    for folder in [&traces, &summaries] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut config = args.relay.settings(&traces, args.stream)?;
    // A chunk is deleted after its summary was made.
    let release = relay::Release::default();
    config.release = Some(release.clone());
    let relay =
        Relay::start(config).map_err(PeerArgs::explained).context("cannot start the relay")?;
    let events = relay.subscribe();
    let listener = TcpListener::bind(args.http)
        .await
        .with_context(|| format!("cannot listen on {} for the page", args.http))?;
    let store = Store::start(&args).await?;
    let addresses = Addresses {
        control: relay.control_addr(),
        stream: relay.data_addr(),
        live: relay.viewers_addr(),
        http: listener.local_addr()?,
        profiles: store.as_ref().map(|store| store.address),
        tls: relay.tls_addr(),
    };

    let published = Arc::new(Published::new());
    let analyst = Analyst::start(
        relay.root(),
        &summaries,
        relay.recovered(),
        &addresses,
        release,
        Arc::clone(&published),
    )?;
    let (live, lister) = Live::start(relay.viewers_addr(), relay.network_losses())?;
    let (page_stop, page_stopped) = oneshot::channel::<()>();
    let admits = move |from, to| page_peers.allow(from, to);
    let page =
        tokio::spawn(server::serve(listener, published, Some(Arc::new(live)), admits, async {
            drop(page_stopped.await);
        }));
    let (relay_ended, until_relay_ended) = watch::channel(false);
    let news = analyst.news();
    let courier = tokio::spawn(carry(events, news, until_relay_ended));

    addresses.write(&args.data)?;
    complain(&format!("tracers: {}", addresses.relay_url()));
    if let Some(address) = addresses.tls {
        complain(&format!("encrypted: tls://{address}"));
    }
    if let Some(address) = addresses.profiles {
        complain(&format!("profiles: http://{address}/"));
    }
    complain(&format!("page: http://{}/", addresses.http));

    loop {
        tokio::select! {
            () = hangup.asked() => tls::reload(&relay),
            () = stop.asked() => break,
        }
    }
    complain("ending: sealing what is open (a second signal ends at once)");
    tokio::task::spawn_blocking(|| lister.finish()).await.context("the live sessions")??;
    tokio::select! {
        () = relay.shutdown() => {}
        () = stop.asked() => return Ok(Outcome::No),
    }
    relay_ended.send_replace(true);
    courier.await.context("the relay's events")?;
    drop(page_stop);
    if let Some(store) = store {
        store.finish().await?;
    }
    let page = tokio::time::timeout(PAGE_GRACE, page).await;
    tokio::task::spawn_blocking(|| analyst.finish()).await.context("the analysis")??;
    match page {
        Ok(ended) => ended.context("the page")?.context("the page")?,
        Err(_elapsed) => complain("the page's last replies were cut off"),
    }
    Ok(Outcome::Done)
}

/// The store of profiles and its port.
struct Store {
    address: SocketAddr,
    service: Service,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), server::Error>>,
}

impl Store {
    /// Opens it, if there is to be one.
    async fn start(args: &Args) -> anyhow::Result<Option<Self>> {
        let ProfilesAt::Address(address) = args.profiles else { return Ok(None) };
        let peers = args.relay.peers.of_page(address)?;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} for profiles (--profiles names another, or is off)")
        })?;
        let address = listener.local_addr()?;
        let (wanted, data) = (args.symbols.clone(), args.data.clone());
        let symbols = tokio::task::spawn_blocking(move || wanted.open_in(&data)).await;
        let symbols = symbols.context("the store of profiles")??;
        let place = args.data.join("profiles").display().to_string();
        let options = args.metrics.options(place, symbols)?;
        // It has threads and a runtime of its own.
        let service = tokio::task::spawn_blocking(|| Service::start(options));
        let service = service.await.context("the store of profiles")??;
        let (stop, stopped) = oneshot::channel::<()>();
        let admits = move |from, to| peers.allow(from, to);
        let served = server::profiles::serve(listener, service.profiles(), admits, async {
            drop(stopped.await);
        });
        Ok(Some(Self { address, service, stop, served: tokio::spawn(served) }))
    }

    /// Answers what is asked already, and writes what waits.
    async fn finish(self) -> anyhow::Result<()> {
        let Self { service, stop, served, .. } = self;
        drop(stop);
        let served = served.await;
        tokio::task::spawn_blocking(|| service.finish()).await.context("the store of profiles")?;
        served.context("the store of profiles")?.context("the store of profiles")
    }
}

/// Carries the relay's events to the analysis, which works on a thread of its own. A full channel makes this wait and
/// the relay's bounded backlog grow; when that overflows, the analysis looks at the folders again.
async fn carry(
    mut events: broadcast::Receiver<Event>,
    news: tokio::sync::mpsc::Sender<News>,
    mut until_relay_ended: watch::Receiver<bool>,
) {
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            _ = until_relay_ended.wait_for(|ended| *ended) => return,
        };
        let item = match event {
            Ok(event) => News::Event(event),
            Err(RecvError::Lagged(_)) => News::LookAgain,
            Err(RecvError::Closed) => return,
        };
        if news.send(item).await.is_err() {
            return;
        }
    }
}
