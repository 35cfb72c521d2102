//! S12: a collector that is away, and comes back.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::profile::{Limits, Request, ungzip};
use anyhow::ensure;
use testkit::{Running, agent};

use super::{Progress, Tried, mib};
use crate::memory::private_bytes;

/// How often memory and disk are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long what waited may take to come.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of the agent with a small spool.
const SMALL_SPOOL_BYTES: u64 = 200_000;
/// What memory may grow by while nobody takes packets, from the second quarter of the time to the last: what is sampled changes.
const FLAT_BYTES: u64 = 4 << 20;

/// An agent whose collector is away.
struct Sender {
    agent: Running,
    address: SocketAddr,
    spool: std::path::PathBuf,
    /// The most private memory in each quarter of the time.
    peaks: [u64; 4],
    spool_peak: u64,
    largest: u64,
}

/// What came when the collector was back.
#[derive(Debug, Default)]
struct Taken {
    ids: BTreeSet<String>,
    twice: usize,
    /// Samples that packets say were dropped with the packets that they were in.
    told: u64,
}

pub(super) fn try_it(binary: &Path, away: Duration, progress: &Progress) -> anyhow::Result<Tried> {
    let folder = tempfile::tempdir()?;
    let small = format!("{SMALL_SPOOL_BYTES}B");
    let mut ample = Sender::start(binary, folder.path(), "ample", "1GiB")?;
    let mut small = Sender::start(binary, folder.path(), "small", &small)?;
    let begin = Instant::now();
    while begin.elapsed() < away {
        let quarter = (begin.elapsed().as_millis() * 4 / away.as_millis().max(1)).min(3) as usize;
        for sender in [&mut ample, &mut small] {
            sender.look(quarter)?;
        }
        progress.tell(format!(
            "away for {} of {} s, {:.1} MiB private, {:.1} MiB wait",
            begin.elapsed().as_secs(),
            away.as_secs(),
            mib(ample.peaks.into_iter().max().unwrap_or(0)),
            mib(ample.spool_peak)
        ));
        thread::park_timeout(LOOK);
    }
    let mut tried = Tried::new(String::new());
    let mut figures = Vec::new();
    for (name, mut sender) in [("ample", ample), ("small", small)] {
        progress.tell(format!("{name}: back"));
        let taken = sender.deliver()?;
        let said = sender.agent.said();
        let [delivered, sealed] = delivered(&said);
        let dropped = dropped(&said);
        figures.push(format!(
            "{name} spool: {delivered} packets delivered of {sealed}, {dropped} dropped, {} came twice, {:.2} MiB on the disk at most, {:.1} MiB private at most",
            taken.twice,
            mib(sender.spool_peak),
            mib(sender.peaks.into_iter().max().unwrap_or(0))
        ));
        tried.expect(taken.ids.len() as u64 == delivered, || {
            format!("{name}: {} packets came: {said}", taken.ids.len())
        });
        tried.expect(delivered + dropped == sealed && delivered > 0, || {
            format!("{name}: packets are neither delivered nor dropped: {said}")
        });
        let [_, before, _, last] = sender.peaks;
        tried.expect(last <= before + FLAT_BYTES, || {
            format!("{name}: memory grew from {:.1} to {:.1} MiB", mib(before), mib(last))
        });
        if name == "small" {
            // The one that was just written, and one that is being sent.
            let most = SMALL_SPOOL_BYTES + 2 * sender.largest;
            tried.expect(sender.spool_peak <= most, || {
                format!("{} bytes on the disk, {most} are allowed", sender.spool_peak)
            });
            tried.expect((dropped > 0) == (taken.told > 0), || {
                format!("{dropped} packets dropped, {} samples told", taken.told)
            });
        } else {
            tried.expect(dropped == 0, || format!("{dropped} packets dropped that had room"));
        }
    }
    tried.figures = figures.join("; ");
    Ok(tried)
}

impl Sender {
    fn start(binary: &Path, folder: &Path, name: &str, size: &str) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let url = format!("http://{address}");
        let options = ["--send", &url, "--window", "1s", "--spool", name, "--spool-size", size];
        let agent = agent::start(binary, folder, &format!("{name}-agent"), &options);
        let spool = folder.join(name);
        Ok(Self { agent, address, spool, peaks: [0; 4], spool_peak: 0, largest: 0 })
    }

    fn look(&mut self, quarter: usize) -> anyhow::Result<()> {
        let bytes = private_bytes(self.agent.child.id())?;
        if let Some(peak) = self.peaks.get_mut(quarter) {
            *peak = bytes.max(*peak);
        }
        let waiting = self.waiting()?;
        self.spool_peak = self.spool_peak.max(waiting.iter().sum());
        self.largest = self.largest.max(waiting.into_iter().max().unwrap_or(0));
        Ok(())
    }

    /// Lengths of the packets that wait.
    fn waiting(&self) -> io::Result<Vec<u64>> {
        let mut lengths = Vec::new();
        for queue in fs::read_dir(self.spool.join("queues"))? {
            for file in fs::read_dir(queue?.path())? {
                // One that was delivered or dropped meanwhile has none.
                lengths.push(file?.metadata().map_or(0, |it| it.len()));
            }
        }
        Ok(lengths)
    }

    /// Has the collector be back until nothing of what waited then is left, and ends the agent.
    fn deliver(&mut self) -> anyhow::Result<Taken> {
        let taken = Arc::new(Mutex::new(Taken::default()));
        let takes = Arc::clone(&taken);
        agent::collect(self.address, move |body| {
            takes.lock().unwrap_or_else(PoisonError::into_inner).take(&body);
        })?;
        let begin = Instant::now();
        // The newest may always wait.
        while self.waiting()?.len() > 1 {
            ensure!(begin.elapsed() < PATIENCE, "packets still wait: {}", self.agent.said());
            thread::park_timeout(LOOK);
        }
        let status = self.agent.end("TERM");
        ensure!(status.success(), "the agent ended with {status}: {}", self.agent.said());
        Ok(std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Taken {
    /// A packet that cannot be read counts as none that came.
    fn take(&mut self, body: &[u8]) {
        let Ok(bytes) = ungzip(body, Limits::default()) else { return };
        let Ok(request) = Request::decode(&bytes, Limits::default()) else { return };
        let Some(id) = request.packet_id() else { return };
        if !self.ids.insert(id.to_string()) {
            self.twice += 1;
            return;
        }
        let losses = request.losses().into_iter();
        let told = losses.filter(|(class, _)| class.starts_with("undelivered."));
        self.told += told.map(|(_, samples)| samples).sum::<u64>();
    }
}

/// Of `…: 5 packets delivered of 7, 2 dropped (size)` the first two numbers.
fn delivered(said: &str) -> [u64; 2] {
    let found = said.lines().find_map(|line| {
        let (before, behind) = line.split_once(" packets delivered of ")?;
        let delivered = before.rsplit(' ').next()?.parse().ok()?;
        let sealed = behind.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()?;
        Some([delivered, sealed])
    });
    found.unwrap_or_default()
}

/// Of the same the sum of the others.
fn dropped(said: &str) -> u64 {
    let words: Vec<&str> = said.split_whitespace().collect();
    let counts = words.windows(2).filter_map(|pair| match pair {
        [count, what] if what.starts_with("dropped") => count.parse::<u64>().ok(),
        _ => None,
    });
    counts.sum()
}
