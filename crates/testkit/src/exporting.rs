//! A store of profiles that exports to a real Prometheus, through a proxy that fails and lies, while both are killed again and again.
//!
//! ```text
//! client ─ push, until it is acknowledged ─▶ store ─ remote write ─▶ faulty proxy ─▶ Prometheus
//!                                            kill -9                                 kill -9
//!                                              ▲ merges
//!                                            workers
//!                                            kill -9
//! ```
//! At the end three must say the same of each function: the client, the store's querier, and Prometheus. Meanwhile rules are made, changed in
//! place and deleted: each of their generations must have the cells that the catalogue says, and in each what functions of that cell add up to.

mod cells;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use serde_json::{Value, json};

use self::cells::Compared;
use self::rules::{RULE, Rules, Version};
use crate::Running;
use crate::http::exchange_with;
use crate::prometheus::Prometheus;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const DELTA: &str =
    "pyroscope_exported_metrics_functions_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
/// The rule of the store: each function whose name begins so.
const RULES: &str = "[[rule]]\nprofile_type = \"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"\nfunctions = { prefix = \"f\" }\n";
/// Nanoseconds of one sample of folded stacks: 100 Hz.
const SAMPLE_NS: u64 = 10_000_000;
/// As a receiver of 2.0 says it; to one who speaks 1.0 the field says nothing.
const NONE_WRITTEN: &str = "400 Bad Request\r\nX-Prometheus-Remote-Write-Samples-Written: 0";
/// How long a cell is.
const CELL_MS: i64 = 1_000;
/// Versions of rules that ended so long ago are forgotten, so that their cells cannot be told from wrong ones.
const MOST_TIME: Duration = Duration::from_secs(3_600);
/// A request that is longer has more than one series.
const SEVERAL_SERIES_BYTES: usize = 1_000;

/// What is tried.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The program whose `store` it is.
    pub program: PathBuf,
    /// Another catalogue of the store than the file in its folder, as a URL.
    pub catalogue: Option<String>,
    /// What the catalogue at a URL, of blocks in a folder, has as rules, as JSON. No store has it meanwhile.
    pub rules: fn(&str, &Path) -> Value,
    /// How many workers merge blocks.
    pub workers: usize,
    /// Whether it is by remote write 2.0, to a Prometheus that takes it.
    pub is_newest: bool,
    /// How often anything is killed.
    pub kills: u64,
    /// Decides about everything but time.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How often the store was killed, Prometheus, and a worker.
    pub kills: [u64; 3],
    /// Merges that workers did for the last store.
    pub by_workers: u64,
    /// Pushes that were acknowledged, and how often one was sent.
    pub pushes: [u64; 2],
    /// Requests that the proxy had, those that it did not treat as a receiver should, and those by remote write 2.0.
    pub requests: [u64; 3],
    /// Rules that were made meanwhile, their generations after the first, and the cells of all these, of one series each, that were compared.
    pub rules: [u64; 3],
    /// Cells of these that are not what they should be.
    pub wrong: Vec<String>,
    /// What the client pushed of each function, in nanoseconds.
    pub pushed: BTreeMap<String, u64>,
    /// What the store says of each.
    pub stored: BTreeMap<String, u64>,
    /// What Prometheus has of each.
    pub exported: BTreeMap<String, u64>,
}

impl Outcome {
    /// Whether all three say the same, and each rule has its cells. Where none was compared it does not hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        let [_, _, cells] = self.rules;
        let is_same = self.pushed == self.stored && self.stored == self.exported;
        is_same && self.wrong.is_empty() && cells > 0
    }
}

/// Tries it in a folder; `None`, said, when there is no such Prometheus.
///
/// # Panics
/// When the store does not come up again, or Prometheus does not.
#[must_use]
pub fn run(trial: &Trial, folder: &Path, mut progress: impl FnMut(u64)) -> Option<Outcome> {
    let mut prometheus = match trial.is_newest {
        true => Prometheus::start_newest()?,
        false => Prometheus::start()?,
    };
    let begin = Instant::now();
    let mut dice = Rng::with_seed(trial.seed);
    let proxy = Proxy::start(&prometheus, dice.fork());
    fs::write(folder.join("rules.toml"), RULES).expect("a file");
    let url = format!("http://127.0.0.1:{}/api/v1/write", proxy.port);
    // The one that Debian 12 has does not take the second, which is found out.
    let text = format!("[[receiver]]\nurl = \"{url}\"\ntimeout = \"2s\"\nversion = \"2.0\"\n");
    fs::write(folder.join("receivers.toml"), text).expect("a file");
    let mut store =
        Store { trial, folder, port: free_port(), workers_port: free_port(), running: None };
    store.start();
    let mut workers: Vec<Running> = (0..trial.workers).map(|at| store.worker(at)).collect();
    let (mut outcome, mut rules) = (Outcome::default(), Rules::default());
    // A rule that is there before the tenant has pushed anything.
    rules.change(store.port, &mut dice);
    let client = Client::start(store.port, dice.fork());
    for kill in 0..trial.kills {
        thread::park_timeout(Duration::from_millis(dice.u64(100..1_500)));
        rules.change(store.port, &mut dice);
        let at = dice.usize(..trial.workers.max(1));
        let is_a_worker = dice.u8(..3) == 0;
        if let Some(worker) = workers.get_mut(at).filter(|_| is_a_worker) {
            worker.end("KILL");
            outcome.kills[2] += 1;
            *worker = store.worker(at);
            progress(kill + 1);
            continue;
        }
        let which = dice.u8(..4);
        if which != 0 {
            store.kill();
            outcome.kills[0] += 1;
        }
        if which <= 1 {
            prometheus.kill();
            outcome.kills[1] += 1;
        }
        if which != 0 {
            store.start();
        }
        if which <= 1 {
            prometheus.resume();
        }
        progress(kill + 1);
    }
    let (pushes, pushed) = client.stop();
    outcome.pushes = pushes;
    outcome.pushed = pushed;
    proxy.is_honest.store(true, Ordering::Relaxed);
    outcome.stored = store.sums();
    wait_until(Duration::from_secs(90), || exported(&prometheus) == outcome.stored);
    outcome.by_workers = store.by_workers();
    // Whoever reads the catalogue takes it over.
    store.kill();
    let versions = Version::all(&(trial.rules)(&store.catalogue(), &store.data()));
    store.start();
    let mut compared = Compared::default();
    wait_until(Duration::from_secs(90), || {
        compared = compare(&prometheus, &versions, &rules);
        compared.wrong.is_empty()
    });
    // What was taken twice would show by now.
    thread::park_timeout(Duration::from_secs(3));
    outcome.exported = exported(&prometheus);
    let Compared { cells, wrong } = compare(&prometheus, &versions, &rules);
    outcome.wrong = wrong;
    if begin.elapsed() >= MOST_TIME {
        outcome.wrong.push("it took more than an hour, after which rules are forgotten".to_owned());
    }
    let made: BTreeSet<&str> = versions.iter().map(|version| version.id.as_str()).collect();
    let changed = versions.iter().filter(|version| version.generation > 1).count();
    outcome.rules = [made.len() as u64, changed as u64, cells];
    outcome.requests = proxy.stop();
    Some(outcome)
}

/// Asks until it is so, or for so long: what is not so then is told by whoever asked.
fn wait_until(most: Duration, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < most {
        thread::park_timeout(Duration::from_millis(250));
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    free.local_addr().expect("a port").port()
}

#[expect(clippy::disallowed_methods, reason = "the other side has the same clock")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    u64::try_from(since.as_millis()).expect("a time")
}

fn exported(prometheus: &Prometheus) -> BTreeMap<String, u64> {
    let at_s = i64::try_from(now_ms() / 1_000 + 60).expect("a time");
    let query = format!("sum by (function) (sum_over_time({DELTA}[2h]))");
    let series = prometheus.query(&query, at_s);
    let one = |series: &Value| {
        let function = series.pointer("/metric/function")?.as_str()?.to_owned();
        let value: f64 = series.pointer("/value/1")?.as_str()?.parse().ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number"
        )]
        Some((function, value as u64))
    };
    series.iter().filter_map(one).collect()
}

/// Compares each cell of rules that Prometheus has, or should have.
fn compare(prometheus: &Prometheus, versions: &[Version], rules: &Rules) -> Compared {
    let at_s = i64::try_from(now_ms() / 1_000 + 60).expect("a time");
    let cells = |query: &str| cells::cells(&prometheus.query(query, at_s), CELL_MS);
    let functions = cells(&format!("{DELTA}[2h]")).remove("").unwrap_or_default();
    let of_rules = cells(&format!("{{__name__=~\"{RULE}[0-9]+\"}}[2h]"));
    cells::compare(&functions, &of_rules, versions, &rules.asked)
}

/// A store that is killed and started again.
struct Store<'a> {
    trial: &'a Trial,
    folder: &'a Path,
    port: u16,
    workers_port: u16,
    running: Option<Running>,
}

impl Store<'_> {
    /// A process that merges its blocks.
    fn worker(&self, at: usize) -> Running {
        let mut command = Command::new(&self.trial.program);
        let url = format!("http://127.0.0.1:{}", self.workers_port);
        command.args(["compact", "--store", &url]);
        command.arg("--data").arg(self.data());
        let log = self.folder.join(format!("worker-{at}.log"));
        Running::start(command.stdout(Stdio::null()), "worker", &log)
    }

    /// Where its blocks are.
    fn data(&self) -> PathBuf {
        self.folder.join("profiles")
    }

    /// The URL of its catalogue.
    fn catalogue(&self) -> String {
        let of_folder = || format!("sqlite:{}", self.data().join("catalogue.sqlite").display());
        self.trial.catalogue.clone().unwrap_or_else(of_folder)
    }

    /// Merges that workers did since it started.
    fn by_workers(&self) -> u64 {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a store");
        let (_, text) = exchange_with(socket, "GET", "/metrics", "", b"").expect("an answer");
        let text = String::from_utf8_lossy(&text).into_owned();
        let name = "throughline_compaction_done_jobs_total{by=\"worker\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.trial.program);
        let listen = format!("127.0.0.1:{}", self.port);
        let cell = format!("{CELL_MS}ms");
        command.args(["store", "--cell", &cell, "--flush", "100ms", "--listen", &listen]);
        command.arg("--data").arg(self.data());
        command.arg("--rules").arg(self.folder.join("rules.toml"));
        command.arg("--receivers").arg(self.folder.join("receivers.toml"));
        if self.trial.workers > 0 {
            command.arg("--workers").arg(format!("127.0.0.1:{}", self.workers_port));
        }
        if let Some(url) = &self.trial.catalogue {
            command.args(["--catalogue", url]);
        }
        let log = self.folder.join("store.log");
        let mut running = Running::start(command.stdout(Stdio::piped()), "store", &log);
        drop(running.line_after("listening at "));
        self.running = Some(running);
    }

    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.end("KILL");
        }
    }

    /// What its querier says of each function.
    fn sums(&self) -> BTreeMap<String, u64> {
        let question = json!({
            "profileTypeID": TYPE,
            "labelSelector": "{}",
            "start": now_ms() - 7_200_000,
            "end": now_ms() + 600_000,
        });
        let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
        let answer = post(self.port, path, question.to_string().as_bytes()).expect("an answer");
        assert_eq!(answer.0, 200, "{}", String::from_utf8_lossy(&answer.1));
        let answer: Value = serde_json::from_slice(&answer.1).expect("JSON");
        let graph = answer.get("flamegraph").cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names: Vec<String> =
            graph.get("names").and_then(Value::as_array).into_iter().flatten().map(text).collect();
        let mut sums = BTreeMap::new();
        // Of each node: offset, total, self, name.
        for level in graph.get("levels").and_then(Value::as_array).into_iter().flatten() {
            let values = level.get("values").and_then(Value::as_array).into_iter().flatten();
            let numbers: Vec<u64> = values.filter_map(|it| it.as_str()?.parse().ok()).collect();
            for node in numbers.chunks_exact(4) {
                let &[_, total, _, name] = node else { continue };
                let name = usize::try_from(name).ok().and_then(|name| names.get(name));
                if let Some(name) = name.filter(|name| name.starts_with('f')) {
                    *sums.entry(name.clone()).or_default() += total;
                }
            }
        }
        sums
    }
}

fn post(port: u16, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    exchange_with(socket, "POST", path, "content-type: application/json\r\n", body)
}

/// Pushes profiles, each until it is acknowledged.
struct Client {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<([u64; 2], BTreeMap<String, u64>)>,
}

impl Client {
    fn start(port: u16, mut dice: Rng) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (mut pushes, mut pushed) = ([0; 2], BTreeMap::new());
            while !ends.load(Ordering::Relaxed) {
                let mut stacks = BTreeMap::<String, u64>::new();
                for _ in 0..dice.u8(1..6) {
                    *stacks.entry(format!("f{}", dice.u8(..40))).or_default() += dice.u64(1..1_000);
                }
                let line =
                    |(function, count): (&String, &u64)| format!("main;{function} {count}\n");
                let body: String = stacks.iter().map(line).collect();
                let until = now_ms();
                let pod = dice.u8(..3);
                let path = format!(
                    "/ingest?name=shop.cpu%7Bpod%3D{pod}%7D&from={}&until={until}",
                    until - 1
                );
                // Some answers are not waited for.
                if dice.u8(..10) == 0 {
                    drop(send(port, &path, "", body.as_bytes()));
                    pushes[1] += 1;
                }
                loop {
                    pushes[1] += 1;
                    match post(port, &path, body.as_bytes()) {
                        Ok((200, _)) => break,
                        Ok((429 | 500..=599, _)) | Err(_) => {
                            thread::park_timeout(Duration::from_millis(20));
                        }
                        Ok((0, _)) => {}
                        Ok((status, said)) => {
                            panic!("{status}: {}", String::from_utf8_lossy(&said));
                        }
                    }
                }
                pushes[0] += 1;
                for (function, count) in stacks {
                    *pushed.entry(function).or_default() += count * SAMPLE_NS;
                }
            }
            (pushes, pushed)
        });
        Self { is_over, thread }
    }

    fn stop(self) -> ([u64; 2], BTreeMap<String, u64>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Sends a request, with further lines of its head, and hears no answer.
fn send(port: u16, path: &str, fields: &str, body: &[u8]) -> io::Result<()> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)
}

/// Stands before Prometheus, and fails and lies.
struct Proxy {
    port: u16,
    is_honest: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    /// All requests, those that were not treated well, and those by remote write 2.0.
    requests: Arc<[AtomicU64; 3]>,
    thread: JoinHandle<()>,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It goes on, and its answer comes back.
    Passed,
    /// It is answered so, and does not go on.
    Refused(&'static str),
    /// It goes on, and is answered so.
    Lied(&'static str),
    /// It goes on, and is not answered.
    Unheard,
    /// It is not answered for longer than the store waits.
    Late,
}

impl Fate {
    fn of(dice: &mut Rng, bytes: usize) -> Self {
        match dice.u8(..40) {
            0..=1 => Self::Refused("500 Internal Server Error"),
            2 => Self::Refused("503 Service Unavailable"),
            3..=4 => Self::Refused("429 Too Many Requests\r\nRetry-After: 1"),
            5..=7 => Self::Lied("500 Internal Server Error"),
            8..=10 => Self::Unheard,
            11 => Self::Late,
            // Alone, a series would be given up after that.
            12..=13 if bytes > SEVERAL_SERIES_BYTES => Self::Refused(NONE_WRITTEN),
            _ => Self::Passed,
        }
    }
}

impl Proxy {
    fn start(prometheus: &Prometheus, dice: Rng) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let to = prometheus.port();
        let (is_honest, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let requests = Arc::<[AtomicU64; 3]>::default();
        let dice = Arc::new(Mutex::new(dice));
        let shared = (Arc::clone(&is_honest), Arc::clone(&is_over), Arc::clone(&requests));
        let thread = thread::spawn(move || {
            let (is_honest, is_over, requests) = shared;
            for socket in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (is_honest, requests) = (Arc::clone(&is_honest), Arc::clone(&requests));
                let dice = Arc::clone(&dice);
                thread::spawn(move || {
                    // A store that was killed is the end of its connections.
                    drop(answer(socket, to, &is_honest, &requests, &dice));
                });
            }
        });
        Self { port, is_honest, is_over, requests, thread }
    }

    fn stop(self) -> [u64; 3] {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        drop(self.thread.join());
        [0, 1, 2].map(|at: usize| self.requests.get(at).map_or(0, |it| it.load(Ordering::Relaxed)))
    }
}

fn answer(
    mut socket: TcpStream,
    to: u16,
    is_honest: &AtomicBool,
    requests: &[AtomicU64; 3],
    dice: &Mutex<Rng>,
) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = read_message(&mut socket)?;
    let fate = match is_honest.load(Ordering::Relaxed) {
        true => Fate::Passed,
        false => Fate::of(&mut dice.lock().unwrap_or_else(PoisonError::into_inner), request.len()),
    };
    let [all, ill, newer] = requests;
    let head = request.get(..request.len().min(4_096)).unwrap_or_default();
    let is_newer = String::from_utf8_lossy(head).contains("io.prometheus.write.v2.Request");
    newer.fetch_add(is_newer.into(), Ordering::Relaxed);
    all.fetch_add(1, Ordering::Relaxed);
    ill.fetch_add(u64::from(fate != Fate::Passed), Ordering::Relaxed);
    let pass = || {
        let mut further = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
        further.set_read_timeout(Some(Duration::from_secs(10)))?;
        further.write_all(&request)?;
        read_message(&mut further)
    };
    let said = |status: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    };
    match fate {
        Fate::Passed => match pass() {
            Ok(answer) => socket.write_all(&answer),
            Err(_) => socket.write_all(said("502 Bad Gateway").as_bytes()),
        },
        Fate::Refused(status) => socket.write_all(said(status).as_bytes()),
        Fate::Lied(status) => {
            drop(pass());
            socket.write_all(said(status).as_bytes())
        }
        Fate::Unheard => pass().map(drop),
        Fate::Late => {
            drop(pass());
            thread::park_timeout(Duration::from_millis(2_500));
            Ok(())
        }
    }
}

/// A request or an answer as its bytes: a head, and as many bytes as it says.
fn read_message(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(head) = message.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(message.get(..head).unwrap_or_default())
                .to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
            if message.len() >= head + 4 + length {
                return Ok(message);
            }
        }
        let read = socket.read(&mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        message.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
}
