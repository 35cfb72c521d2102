//! `throughline store` beside a `pyroscope` server: the same pushes and the same questions, over HTTP.
//!
//! Both take their pushes from as many clients, have the same time to merge what came, and answer the same questions. CPU time and memory are
//! those of the server's process; bytes are those of its folder at the end. Without `pyroscope` on the PATH our own figures are
//! printed alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;

use super::super::measure::{Rounds, cpu_of_process};
use super::super::table::{self, Row};
use super::made::{EPOCH_NS, Fleet, PUSH_EVERY_NS};

/// A server that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Clients that push at the same time: each waits for its answer, and the store answers twice in a second.
const CLIENTS: usize = 50;
/// Where both have the querier's and the pusher's methods.
const PUSH: &str = "/push.v1.PusherService/Push";
const STACKTRACES: &str = "/querier.v1.QuerierService/SelectMergeStacktraces";

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
    /// The other server: it is given a configuration file by -config.file
    #[arg(long, default_value = "pyroscope")]
    peer: PathBuf,
    /// Minutes of pushes, which came until now: 1 to 50
    #[arg(long, default_value_t = 5)]
    minutes: u32,
    /// Services, each with its own program
    #[arg(long, default_value_t = 20)]
    services: usize,
    /// Pods of each service: each has two series
    #[arg(long, default_value_t = 10)]
    pods: usize,
    /// Seconds in which servers merge what came before they are asked
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Rounds of each question
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// What the made profiles depend on
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!((1..=50).contains(&args.minutes), "--minutes: 1 to 50");
    ensure!(args.rounds > 0 && args.services > 0 && args.pods > 0, "nothing to measure");
    ensure!(args.binary.is_file(), "{} is missing: build it first", args.binary.display());
    let folder = tempfile::tempdir()?;
    let ours = Server::ours(&args.binary, &folder.path().join("ours"))?;
    let theirs = if is_program(&args.peer) {
        Some(Server::peer(&args.peer, &folder.path().join("theirs"))?)
    } else {
        None
    };
    let alone = format!("no {} there: our own figures alone", args.peer.display());
    table::print_head(&[
        table::machine()?,
        if theirs.is_some() { args.peer.display().to_string() } else { alone },
        format!(
            "{} services × {} pods × 2 series, {} minutes",
            args.services, args.pods, args.minutes
        ),
    ]);
    let mut found = vec![Found::new(ours)];
    found.extend(theirs.map(Found::new));
    push(args, &mut found)?;
    park(Duration::from_secs(args.settle));
    ask(args, &mut found)?;
    for it in &mut found {
        it.peak_bytes = it.server.peak_bytes()?;
        it.merging = it.server.cpu()?.saturating_sub(it.pushing).saturating_sub(it.asking);
        it.folder_bytes = bytes_below(&it.server.folder)?;
    }
    print(args, &found)
}

/// What a server costs.
struct Found {
    server: Server,
    pushes: u64,
    pushing: Duration,
    waited: Duration,
    merging: Duration,
    asking: Duration,
    /// Milliseconds of each question, by round.
    answers: Vec<(&'static str, Vec<f64>)>,
    peak_bytes: u64,
    folder_bytes: u64,
}

impl Found {
    const fn new(server: Server) -> Self {
        let zero = Duration::ZERO;
        Self {
            server,
            pushes: 0,
            pushing: zero,
            waited: zero,
            merging: zero,
            asking: zero,
            answers: Vec::new(),
            peak_bytes: 0,
            folder_bytes: 0,
        }
    }
}

/// Sends the pushes of a round to each server, one server after the other in turn.
fn push(args: &Args, found: &mut [Found]) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(args.services, args.pods, args.seed)?;
    let rounds = i64::from(args.minutes) * 60_000_000_000 / PUSH_EVERY_NS;
    let to_now_ns = now_ns()? - rounds * PUSH_EVERY_NS - PUSH_EVERY_NS - EPOCH_NS;
    for round in 0..rounds {
        let bodies: Vec<Vec<u8>> = (0..fleet.pods())
            .map(|pod| {
                let begin_ns = fleet.begin_ns(round, pod) + to_now_ns;
                fleet.push(begin_ns, pod)
            })
            .collect::<anyhow::Result<_>>()?;
        found.rotate_left(usize::from(round > 0 && found.len() > 1));
        for it in &mut *found {
            let cpu = it.server.cpu()?;
            it.waited += post_all(&it.server, &bodies)?;
            it.pushing += it.server.cpu()?.saturating_sub(cpu);
            it.pushes += bodies.len() as u64;
        }
    }
    found.sort_by_key(|it| it.server.is_peer);
    Ok(())
}

/// All of it, [`CLIENTS`] at a time; the sum of the times that clients waited.
fn post_all(server: &Server, bodies: &[Vec<u8>]) -> anyhow::Result<Duration> {
    let post = |share: &[Vec<u8>]| {
        let begin = Instant::now();
        for body in share {
            server.post(PUSH, "application/proto", body)?;
        }
        anyhow::Ok(begin.elapsed())
    };
    let shares = bodies.chunks(bodies.len().div_ceil(CLIENTS).max(1));
    thread::scope(|scope| {
        let clients: Vec<_> = shares.map(|share| scope.spawn(move || post(share))).collect();
        let waited = clients.into_iter().map(|client| match client.join() {
            Ok(waited) => waited,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        waited.sum()
    })
}

/// Asks each server each question, in turn.
fn ask(args: &Args, found: &mut [Found]) -> anyhow::Result<()> {
    let end_ms = now_ns()? / 1_000_000;
    let begin_ms = end_ms - i64::from(args.minutes + 5) * 60_000;
    let tenth_ms = i64::from(args.minutes) * 6_000;
    let middle_ms = end_ms - i64::from(args.minutes) * 30_000;
    let questions = [
        ("everything", "{}", begin_ms, end_ms),
        ("a tenth of the time", "{}", middle_ms, middle_ms + tenth_ms),
        ("one service", "{service_name=\"svc7\"}", begin_ms, end_ms),
    ];
    for (name, selector, start, end) in questions {
        let question = json!({
            "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
            "labelSelector": selector, "start": start.to_string(), "end": end.to_string(), "maxNodes": "8192",
        });
        let question = question.to_string();
        found.iter_mut().for_each(|it| it.answers.push((name, Vec::new())));
        for _ in 0..args.rounds {
            let mut totals = Vec::new();
            for it in &mut *found {
                let (cpu, begin) = (it.server.cpu()?, Instant::now());
                let answer =
                    it.server.post(STACKTRACES, "application/json", question.as_bytes())?;
                if let Some((_, times)) = it.answers.last_mut() {
                    times.push(begin.elapsed().as_secs_f64() * 1e3);
                }
                it.asking += it.server.cpu()?.saturating_sub(cpu);
                totals.push(total(&answer));
            }
            let is_same = totals.windows(2).all(|pair| pair.first() == pair.last());
            ensure!(is_same, "{name}: the answers are not the same: {totals:?} ns");
        }
    }
    Ok(())
}

/// The sum that a flame graph says; an empty one says none.
fn total(answer: &str) -> Option<i64> {
    let said = answer.split("\"total\":").nth(1)?.trim_start_matches('"');
    let digits: String = said.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn print(args: &Args, found: &[Found]) -> anyhow::Result<()> {
    let Some(ours) = found.first() else { bail!("no server") };
    let theirs = found.get(1);
    let per_push = |it: &Found, time: Duration| time.as_secs_f64() * 1e6 / it.pushes.max(1) as f64;
    let mut rows = Vec::new();
    let mut row = |name: String, unit: &str, of: &dyn Fn(&Found) -> f64| -> anyhow::Result<()> {
        let text = |it: &Found| format!("{:.1} {unit}", of(it));
        // How often ours fits into theirs.
        let ratio = theirs.map_or(1.0, |theirs| of(theirs) / of(ours).max(f64::MIN_POSITIVE));
        rows.push(Row {
            name,
            found: Rounds::new(vec![ratio])?,
            unit: "x",
            bar: None,
            ours: text(ours),
            theirs: theirs.map(text).unwrap_or_default(),
        });
        Ok(())
    };
    row("CPU time of a push".to_owned(), "µs", &|it| per_push(it, it.pushing))?;
    row("time to its answer".to_owned(), "µs", &|it| per_push(it, it.waited))?;
    row("CPU time of the rest, by push".to_owned(), "µs", &|it| per_push(it, it.merging))?;
    for (at, (name, _)) in ours.answers.iter().enumerate() {
        row(format!("flame graph of {name}"), "ms", &|it| {
            let times = it.answers.get(at).map(|(_, times)| times.clone()).unwrap_or_default();
            Rounds::new(times).map_or(f64::NAN, |rounds| rounds.median())
        })?;
    }
    row("peak memory".to_owned(), "MB", &|it| it.peak_bytes as f64 / 1e6)?;
    row("bytes of the folder".to_owned(), "MB", &|it| it.folder_bytes as f64 / 1e6)?;
    let title = format!("{} pushes, {} s to merge them; theirs by ours", ours.pushes, args.settle);
    table::print(&title, &args.peer.display().to_string(), &rows);
    Ok(())
}

struct Server {
    child: Child,
    is_peer: bool,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    fn ours(binary: &Path, folder: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(binary);
        command.args(["store", "--rate", "10GiB", "--listen", &address.to_string(), "--data"]);
        Self::start(command.arg(folder), address, folder)
    }

    fn peer(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let (address, grpc, gossip) = (free_address()?, free_address()?, free_address()?);
        let config = folder.join("pyroscope.json");
        // YAML takes JSON.
        let content = json!({
            "server": {
                "http_listen_address": "127.0.0.1", "http_listen_port": address.port(),
                "grpc_listen_address": "127.0.0.1", "grpc_listen_port": grpc.port(), "log_level": "warn",
            },
            "memberlist": { "bind_addr": ["127.0.0.1"], "bind_port": gossip.port() },
            "pyroscopedb": { "data_path": folder.join("head") },
            "storage": { "backend": "filesystem", "filesystem": { "dir": folder.join("blocks") } },
            "limits": { "ingestion_rate_mb": 10_000, "ingestion_burst_size_mb": 10_000 },
            "self_profiling": { "disable_push": true },
            "analytics": { "reporting_enabled": false },
        });
        fs::write(&config, content.to_string())?;
        let mut command = Command::new(program);
        command.arg(format!("-config.file={}", config.display())).current_dir(folder);
        let mut server = Self::start(&mut command, address, folder)?;
        server.is_peer = true;
        server.wait_for("/ready")?;
        Ok(server)
    }

    fn start(command: &mut Command, address: SocketAddr, folder: &Path) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start a server")?;
        let server = Self { child, is_peer: false, address, folder: folder.to_owned() };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(begin.elapsed() < PATIENCE, "nobody listens at {address}");
            park(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn wait_for(&self, path: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        while self.exchange("GET", path, "text/plain", &[]).is_err() {
            ensure!(begin.elapsed() < PATIENCE, "{} is not ready", self.address);
            park(Duration::from_millis(500));
        }
        Ok(())
    }

    fn post(&self, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<String> {
        self.exchange("POST", path, kind, body)
    }

    /// The body of an answer.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        ensure!(status == "200", "{path}: {status}: {body}");
        Ok(body.to_owned())
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of_process(self.child.id())
    }

    fn peak_bytes(&self) -> anyhow::Result<u64> {
        super::peak_bytes_of(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn is_program(name: &Path) -> bool {
    if name.components().count() > 1 {
        return name.is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // What is being merged may go meanwhile.
        let Ok(about) = entry.metadata() else { continue };
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

#[expect(clippy::disallowed_methods, reason = "servers take profiles of now")]
fn now_ns() -> anyhow::Result<i64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_nanos())?)
}

fn park(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
