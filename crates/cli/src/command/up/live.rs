//! The page's live view: the sessions of the relay, and a thread for each page that follows one.

mod tail;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use ctf::filter::Filter;
use relay::NetworkLosses;
use server::Snapshot;
use server::live::{LiveSession, LiveSessions, LiveSource, Refusal, TailRequest, TailSender};
use viewer::{Address, Memory, Relay, SessionEntry};

use crate::command::live::format_name;
use crate::command::read::today;

/// How often the relay is asked for its sessions.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Follows the sessions of one relay through its port for viewers.
#[derive(Debug)]
pub(super) struct Live {
    relay: Address,
    losses: NetworkLosses,
    listed: Arc<Mutex<Snapshot>>,
    /// Packets of all pages together.
    memory: Memory,
}

/// The thread that keeps the list of sessions.
#[derive(Debug)]
pub(super) struct Lister {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Live {
    /// Begins to list the sessions of the relay whose port for viewers this is.
    pub(super) fn start(
        viewers: SocketAddr,
        losses: NetworkLosses,
    ) -> anyhow::Result<(Self, Lister)> {
        let relay = reachable(viewers);
        let first = Snapshot { bytes: LiveSessions::default().to_json().into(), version: 0 };
        let listed = Arc::new(Mutex::new(first));
        let stop = Arc::<AtomicBool>::default();
        let mut listing = Listing {
            relay: relay.clone(),
            stop: Arc::clone(&stop),
            connection: None,
            first_seen: BTreeMap::new(),
            listed: Arc::clone(&listed),
        };
        let thread = thread::Builder::new()
            .name("live sessions".to_owned())
            .spawn(move || listing.run())
            .context("cannot start the list of live sessions")?;
        Ok((Self { relay, losses, listed, memory: Memory::default() }, Lister { stop, thread }))
    }
}

impl Lister {
    /// Ends it.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread
            .join()
            .map_err(|_panic| anyhow::anyhow!("the list of live sessions ended early"))
    }
}

/// From this machine, a port that listens on all addresses is on the loopback.
fn reachable(viewers: SocketAddr) -> Address {
    let host: IpAddr = match viewers.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Address { is_tls: false, host: host.to_string(), port: viewers.port(), session: None }
}

impl LiveSource for Live {
    fn sessions_json(&self) -> Snapshot {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn follow(&self, request: TailRequest, tail: TailSender) -> Result<(), Refusal> {
        let filter = (!request.condition.is_empty()).then(|| Filter::parse(&request.condition));
        let filter = filter
            .transpose()
            .map_err(|error| Refusal::Condition { message: error.to_string() })?;
        let (relay, losses, memory) =
            (self.relay.clone(), self.losses.clone(), self.memory.clone());
        thread::Builder::new()
            .name("live tail".to_owned())
            .spawn(move || tail::run(&relay, memory, &losses, &request, filter, tail))
            .map(drop)
            .map_err(|_none| Refusal::Threads)
    }
}

/// Asks for the sessions, over and over.
struct Listing {
    relay: Address,
    stop: Arc<AtomicBool>,
    connection: Option<Relay>,
    /// When each session was seen first, by host, name and the relay's number. Bound: the sessions that are there.
    first_seen: BTreeMap<(String, String, u64), i64>,
    listed: Arc<Mutex<Snapshot>>,
}

impl Listing {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let sessions = self.look().unwrap_or_else(|error| {
                self.connection = None;
                let problem = Some(format!("the relay's sessions cannot be listed: {error:#}"));
                LiveSessions { problem, ..LiveSessions::default() }
            });
            self.publish(&sessions);
            thread::park_timeout(LOOK_EVERY);
        }
    }

    fn look(&mut self) -> anyhow::Result<LiveSessions> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let stop = Arc::clone(&self.stop);
                let stop = Box::new(move || stop.load(Ordering::Relaxed));
                none.insert(Relay::connect(&self.relay, stop)?)
            }
        };
        let entries = connection.sessions()?;
        let now = today().map_or(0, |now| now.nanos() / 1_000_000);
        let key = |entry: &SessionEntry| {
            (entry.hostname.clone(), entry.name.clone(), entry.session.get())
        };
        let seen = std::mem::take(&mut self.first_seen);
        self.first_seen = entries
            .iter()
            .map(key)
            .map(|key| {
                let since = seen.get(&key).copied().unwrap_or(now);
                (key, since)
            })
            .collect();
        let since = |entry: &SessionEntry| self.first_seen.get(&key(entry)).copied().unwrap_or(now);
        Ok(LiveSessions { sessions: grouped(&entries, since), problem: None })
    }

    fn publish(&self, sessions: &LiveSessions) {
        let bytes = sessions.to_json().into();
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.bytes != bytes {
            *listed = Snapshot { bytes, version: listed.version.wrapping_add(1) };
        }
    }
}

/// One entry for each session: the relay has one for each daemon that records it.
fn grouped(entries: &[SessionEntry], since: impl Fn(&SessionEntry) -> i64) -> Vec<LiveSession> {
    let mut sessions = BTreeMap::<(&str, &str), LiveSession>::new();
    for entry in entries {
        let session = sessions.entry((&entry.hostname, &entry.name)).or_insert(LiveSession {
            host: entry.hostname.clone(),
            name: entry.name.clone(),
            streams: 0,
            viewers: 0,
            live_timer_us: entry.live_timer_us,
            format: format_name(entry.format),
            since_ms: i64::MAX,
        });
        session.streams = session.streams.saturating_add(entry.streams);
        session.viewers = session.viewers.max(entry.viewers);
        session.live_timer_us = session.live_timer_us.max(entry.live_timer_us);
        session.since_ms = session.since_ms.min(since(entry));
    }
    sessions.into_values().collect()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_port_on_all_addresses_is_reached_on_the_loopback() {
        for (viewers, address) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.0.0.1:7", "10.0.0.1:7")]
        {
            assert_eq!(reachable(viewers.parse().unwrap()).to_string(), address);
        }
    }
}
