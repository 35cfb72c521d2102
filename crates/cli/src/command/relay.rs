//! `throughline relay`: takes recording sessions of LTTng until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use relay::{
    Config, Event, Keep, NatsSubject, Network, Peers, Recovered, Relay, Store, Target, Webhook,
};
use tokio::sync::broadcast::error::RecvError;
use tracedir::seekable::Level;

use crate::command::tls::{self, PortArgs};
use crate::log;
use crate::outcome::{Outcome, complain};
use crate::stop::Stop;
use crate::units::{parse_duration, parse_size};

const EXAMPLES: &str = "\
Examples:
  throughline relay --output traces
  lttng create --set-url=net://127.0.0.1            record to it, from the same machine
  babeltrace2 -i lttng-live net://localhost         list what is being recorded
  babeltrace2 -i lttng-live net://localhost/host/HOST/SESSION
                                                    follow a session, best one made with lttng create --live

  throughline relay --tls 0.0.0.0:5346 --tls-cert relay.pem --tls-key relay.key --tokens tokens
                                                    also take recordings and viewers of other machines, encrypted

  throughline relay --config /etc/throughline.toml

  throughline relay --keep-for 72h --keep-size 20GiB
  throughline relay --announce-program /usr/local/bin/keep --announce-url https://ci.example/chunks
  throughline relay --compress zstd --copy-to s3://traces/fleet --keep-for 24h

Whoever is to be told of sealed chunks is told at least once, with the chunk's manifest: after a failure again, and after
a restart. A program is run without a shell, with the chunk's folder as argument and the manifest on standard input. See
docs/formats/chunk.md.

The folder of each chunk is printed when it is complete and on the disk. SIGINT or SIGTERM end the relay: what is
open is sealed where it stands; a second one ends it at once. With --tls, SIGHUP has certificates and tokens read again.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder the traces are written below
    #[arg(long, value_name = "DIR", default_value = "traces")]
    output: PathBuf,
    /// Address of the data port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5343")]
    data: SocketAddr,
    #[command(flatten)]
    relay: RelayArgs,
}

/// What a relay takes wherever it runs.
#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    /// File with options: keys below a table with the command's name, such as [relay], are the options' long names, such as
    /// keep-for = "72h"; what the command line gives leaves its key aside. See docs/relay.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the control port; who may connect to it can write below the folder
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5342")]
    control: SocketAddr,
    /// Address of the port for viewers; who may connect to it can read every session being recorded
    #[arg(short = 'L', long, value_name = "ADDR", default_value = "127.0.0.1:5344")]
    live: SocketAddr,
    #[command(flatten)]
    pub(crate) tls: PortArgs,
    #[command(flatten)]
    sealed: SealedArgs,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
}

impl RelayArgs {
    /// The settings of a relay that writes below `root` and takes packets at `data`.
    pub(crate) fn settings(&self, root: &Path, data: SocketAddr) -> anyhow::Result<Config> {
        let mut config = Config::new(root);
        (config.control, config.data, config.viewers) = (self.control, data, self.live);
        self.sealed.apply(&mut config);
        config.peers = self.peers.peers();
        config.tls = self.tls.port()?;
        Ok(config)
    }
}

/// What becomes of sealed chunks.
#[derive(clap::Args)]
struct SealedArgs {
    /// A program that is run for each sealed chunk; may be repeated
    #[arg(long, value_name = "PROGRAM")]
    announce_program: Vec<PathBuf>,
    /// A URL (http:// or https://) that the manifest of each sealed chunk is posted to; may be repeated
    #[arg(long, value_name = "URL")]
    announce_url: Vec<Webhook>,
    /// CA that the certificates of https:// URLs and of encrypted NATS servers must come from, in place of those of the system
    #[arg(long, value_name = "PEM")]
    announce_ca: Option<PathBuf>,
    /// A subject of a NATS server (nats://HOST[:PORT]/SUBJECT, or tls:// for one that must be encrypted) that the manifest of each sealed chunk is published on; may be
    /// repeated
    #[arg(long, value_name = "URL")]
    announce_nats: Vec<NatsSubject>,
    /// A file with what the NATS servers want to know: one line is a token, two are a name and a password
    #[arg(long, value_name = "FILE", requires = "announce_nats")]
    announce_nats_credentials: Option<PathBuf>,
    /// How long a program may run or a URL may take to answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    announce_timeout: Duration,
    /// A place that each sealed chunk is copied to, its manifest last: file:///FOLDER or s3://BUCKET[/PREFIX] with the settings
    /// and credentials of the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, …); may be
    /// repeated
    #[arg(long, value_name = "URL")]
    copy_to: Vec<Store>,
    /// Compress the data streams of sealed chunks: zstd, or zstd:LEVEL from 1 (fast) to 19 (small). All commands read them as
    /// before; babeltrace2 needs `throughline ctf decompress` first
    #[arg(long, value_name = "METHOD")]
    compress: Option<Level>,
    /// Sealed chunks that are older are deleted, such as 72h; see docs/formats/chunk.md for what is never deleted
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep_for: Option<Duration>,
    /// The oldest sealed chunks are deleted while all together are larger, such as 20GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_size: Option<u64>,
}

impl SealedArgs {
    /// As the relay takes it.
    fn apply(&self, config: &mut Config) {
        let programs = self.announce_program.iter().cloned().map(Target::Program);
        let urls = self.announce_url.iter().cloned().map(Target::Webhook);
        let subjects = self.announce_nats.iter().cloned().map(|mut subject| {
            subject.credentials.clone_from(&self.announce_nats_credentials);
            Target::Nats(subject)
        });
        let copies = self.copy_to.iter().cloned().map(Target::Copy);
        config.announce.targets = programs.chain(urls).chain(subjects).chain(copies).collect();
        config.announce.ca = self.announce_ca.clone();
        config.announce.timeout = self.announce_timeout;
        config.compress = self.compress;
        config.keep = Keep { age: self.keep_for, bytes: self.keep_size };
    }
}

/// Which hosts may connect.
#[derive(clap::Args)]
pub(crate) struct PeerArgs {
    /// Hosts that may connect besides this one: an address, a network such as 10.1.0.0/16, or `any`; repeat it for more.
    /// Without it the ports without TLS listen on addresses of this machine only, and the TLS port takes any host
    #[arg(long = "allow", value_name = "NETWORK")]
    networks: Vec<Network>,
}

impl PeerArgs {
    /// As the relay takes them.
    fn peers(&self) -> Option<Vec<Network>> {
        Some(self.networks.clone()).filter(|networks| !networks.is_empty())
    }

    /// Those of the web page's port.
    pub(crate) fn of_page(&self, address: SocketAddr) -> anyhow::Result<Peers> {
        Peers::of_port(address, self.peers().as_deref())
            .map_err(Self::explained)
            .context("cannot serve the page")
    }

    /// The error of a start, with what to do about it.
    pub(crate) fn explained(error: relay::Error) -> anyhow::Error {
        match error {
            relay::Error::OpenAddress { .. } => {
                anyhow::anyhow!("{error}: name them with --allow NETWORK, or all with --allow any")
            }
            relay::Error::Unguarded { .. } => anyhow::anyhow!(
                "{error}: name the CA of your clients with --tls-client-ca PEM, a file of tokens with --tokens FILE, or both"
            ),
            error => error.into(),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    log::start();
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let mut stop = Stop::listen()?;
    let mut hangup = args.relay.tls.hangup()?;
    let config = args.relay.settings(&args.output, args.data)?;
    let relay = Relay::start(config).map_err(PeerArgs::explained).context("starting the relay")?;
    say_recovered(relay.recovered());
    let tls = relay.tls_addr().map(|address| format!("tls {address}, ")).unwrap_or_default();
    complain(&format!(
        "relay: control {}, data {}, viewers {}, {tls}writing below {}",
        relay.control_addr(),
        relay.data_addr(),
        relay.viewers_addr(),
        relay.root().display()
    ));
    let mut events = relay.subscribe();
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Ok(event) => say(&event)?,
                Err(RecvError::Lagged(lost)) => {
                    complain(&format!("relay: {lost} events were not printed"));
                }
                Err(RecvError::Closed) => break,
            },
            () = hangup.asked() => tls::reload(&relay),
            () = stop.asked() => break,
        }
    }
    tokio::select! {
        () = relay.shutdown() => {}
        () = stop.asked() => anyhow::bail!("told twice to stop; open chunks are named at the next start"),
    }
    while let Ok(event) = events.try_recv() {
        say(&event)?;
    }
    Ok(Outcome::Done)
}

fn say(event: &Event) -> anyhow::Result<()> {
    match event {
        Event::Sealed(chunk) => {
            writeln!(io::stdout().lock(), "{}", chunk.folder.display())?;
        }
        Event::SealFailed { folder, .. } => {
            complain(&format!(
                "relay: {}: a chunk could not be sealed and is left there, the next start tries again; the log says why",
                folder.display()
            ));
        }
        _ => {}
    }
    Ok(())
}

fn say_recovered(recovered: &Recovered) {
    for folder in &recovered.finished {
        complain(&format!("relay: {}: its move was finished", folder.display()));
    }
    for chunk in &recovered.interrupted {
        let readable = match chunk.without_metadata.len() {
            0 => "readable".to_owned(),
            n => format!("{n} traces without metadata cannot be read"),
        };
        let sealed = if chunk.is_sealed {
            ""
        } else {
            "; it could not be sealed, the next start tries again"
        };
        complain(&format!(
            "relay: {}: chunk {} of session {} was interrupted by the end of an earlier relay: {} streams, {} bytes; {} bytes that were no whole packet were cut off; {readable}{sealed}",
            chunk.folder.display(),
            chunk.chunk,
            chunk.session,
            chunk.streams,
            chunk.bytes,
            chunk.bytes_cut,
        ));
    }
    for error in &recovered.unreadable {
        complain(&format!("relay: {error}"));
    }
}
