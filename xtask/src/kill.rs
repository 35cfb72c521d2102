//! `cargo xtask kill`: the relay is killed at random moments while real producers write, and what it had acknowledged is
//! looked for.
//!
//! Each round: three producers write to one relay: one that notes which packets were acknowledged, `throughline capture
//! kernel` (where the kernel can be traced), and lttng-consumerd with a live session of a UST program (where it is
//! installed). The relay is killed with SIGKILL, started again on the same folder and ports, the capture goes on and
//! ends in order, and so does the relay. Then:
//!
//! - every acknowledged packet is in the index once, and the packet it points at says that it is the one;
//! - the capture's event records are there, as many as it counted;
//! - `throughline ctf check` finds nothing wrong but what a tracer says it discarded;
//! - babeltrace2 reads all of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ctf::CtfVersion;
use ctf::index::PacketIndex;
use ctf::packet::{Outcome, decode_packet_header};
use ctf::writer::{EventHeader, PacketStart, Schema, StreamClass, TraceClass};
use testkit::lttng::SessionDaemon;

use crate::producer::Producer;
use crate::relays::{OwnRelay, signal};

/// What a tracer says of itself is no fault of the relay.
const TRACER_REMARKS: [&str; 1] = ["discarded-event-records"];

/// How the relay is killed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Where the random moments begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let binary = args.binary.canonicalize()?;
    let tracer = if testkit::is_installed("lttng-sessiond") {
        let daemon = SessionDaemon::start()?;
        let program = daemon.compile_ticks()?;
        Some((daemon, program))
    } else {
        say("lttng-sessiond is not installed: without it");
        None
    };
    let mut moments = args.seed;
    let mut sums = Sums::default();
    for round in 0..args.rounds {
        // A linear congruential generator: any spread of moments does.
        moments =
            moments.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_millis(150 + (moments >> 33) % 1500);
        let folder = tempfile::tempdir()?;
        let outcome = {
            let round = Round { binary: &binary, root: folder.path(), number: round };
            round.run(after, tracer.as_ref())
        };
        let found = outcome.map_err(|error| {
            let kept = folder.keep();
            error.context(format!(
                "round {round}, killed after {} ms, folder {}",
                after.as_millis(),
                kept.display()
            ))
        })?;
        say(&format!(
            "round {:>3}: killed after {:>4} ms; acknowledged {:>6} packets, captured {:>8} event records, all found",
            round,
            after.as_millis(),
            found.acknowledged,
            found.captured
        ));
        sums.acknowledged += found.acknowledged;
        sums.captured += found.captured;
    }
    say(&format!(
        "{} rounds: {} acknowledged packets and {} captured event records, each found once",
        args.rounds, sums.acknowledged, sums.captured
    ));
    Ok(())
}

#[derive(Default)]
struct Sums {
    acknowledged: u64,
    captured: u64,
}

struct Round<'a> {
    binary: &'a Path,
    root: &'a Path,
    number: u64,
}

impl Round<'_> {
    fn run(
        &self,
        after: Duration,
        tracer: Option<&(SessionDaemon, PathBuf)>,
    ) -> anyhow::Result<Sums> {
        let any = "127.0.0.1:0".parse()?;
        let relay = OwnRelay::start(self.binary, self.root, any, any)?;
        let (control, data) = (relay.control, relay.data);
        let capture = self.capture(&relay)?;
        let traced = tracer.map(|tracer| self.trace(tracer, &relay)).transpose()?;
        let noting = std::thread::spawn(move || note_acknowledged(control, data));
        std::thread::park_timeout(after);
        drop(relay);
        let acknowledged = match noting.join() {
            Ok(acknowledged) => acknowledged?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let relay = OwnRelay::start(self.binary, self.root, control, data)?;
        if let (Some((daemon, _)), Some(mut program)) = (tracer, traced) {
            drop(program.kill());
            drop(program.wait());
            // The daemon has lost its relay, which makes it complain.
            drop(daemon.lttng(["destroy", "--no-wait", &self.session()]));
        }
        std::thread::park_timeout(Duration::from_millis(700));
        let captured = capture.map(stop_capture).transpose()?;
        relay.stop()?;
        self.look_for(&acknowledged)?;
        if let Some(captured) = captured {
            let found = self.count_captured()?;
            ensure!(found == captured, "captured {captured} event records, found {found}");
        }
        self.check()?;
        let acknowledged = acknowledged.values().map(|numbers| numbers.len() as u64).sum();
        Ok(Sums { acknowledged, captured: captured.unwrap_or(0) })
    }

    fn session(&self) -> String {
        format!("killed-{}", self.number)
    }

    /// Our capture; `None` where the kernel cannot be traced.
    fn capture(&self, relay: &OwnRelay) -> anyhow::Result<Option<Child>> {
        let url = format!("net://127.0.0.1:{}:{}", relay.control.port(), relay.data.port());
        let mut child = Command::new(self.binary)
            .args(["capture", "kernel", "--rotate", "600ms", "--session", "captured", "--to", &url])
            .args(["--buffer", "64MiB"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // Who never came is not looked for: the relay dies at the earliest while the capture opens its session.
        let is_known = || Ok::<_, anyhow::Error>(!self.sessions_of_capture()?.is_empty());
        while !is_known()? && child.try_wait()?.is_none() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        if child.try_wait()?.is_some() {
            let mut why = String::new();
            child.stderr.take().context("no standard error")?.read_to_string(&mut why)?;
            if self.number == 0 {
                say(&format!("without a capture: {}", why.trim()));
            }
            return Ok(None);
        }
        Ok(Some(child))
    }

    /// A live session of lttng-sessiond and a program that emits events.
    fn trace(
        &self,
        (daemon, program): &(SessionDaemon, PathBuf),
        relay: &OwnRelay,
    ) -> anyhow::Result<Child> {
        let session = self.session();
        let url = format!("net://127.0.0.1:{}:{}", relay.control.port(), relay.data.port());
        daemon.lttng(["create", &session, "--live=100000", "--set-url", &url])?;
        daemon.lttng(["enable-event", "-u", "testkit:tick"])?;
        daemon.lttng(["start"])?;
        let mut command = daemon.command(program);
        command.args(["1000000", "50"]).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        Ok(command.stdout(Stdio::null()).spawn()?)
    }

    /// Every acknowledged packet is in an index once, and is the packet it should be.
    fn look_for(&self, acknowledged: &BTreeMap<usize, Vec<u64>>) -> anyhow::Result<()> {
        let schema = schema()?;
        let class = ctf::TraceClass::parse(schema.metadata().as_bytes())?;
        let mut found: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for index_file in files_below(&self.root.join("host"), "idx")? {
            let name = index_file.file_stem().and_then(|stem| stem.to_str()).context("a name")?;
            let Some(stream) = name.strip_prefix("ch_").and_then(|cpu| cpu.parse().ok()) else {
                continue;
            };
            let folder = index_file.parent().and_then(Path::parent).context("a folder")?;
            let file = fs::File::open(folder.join(name))?;
            for entry in PacketIndex::decode(&fs::read(&index_file)?)?.entries {
                let number = entry.position.context("a packet number")?.packet_seq_num;
                let mut bytes = vec![0; usize::try_from(entry.total_length_bits / 8)?];
                file.read_exact_at(&mut bytes, entry.offset_bytes)?;
                match decode_packet_header(&class, &bytes)? {
                    Outcome::Ready(info) if info.sequence_number == Some(number) => {}
                    other => bail!("{}: packet {number} is {other:?}", index_file.display()),
                }
                *found.entry((stream, number)).or_default() += 1;
            }
        }
        for (stream, numbers) in acknowledged {
            for number in numbers {
                let times = found.get(&(*stream, *number)).copied().unwrap_or(0);
                ensure!(times == 1, "packet {number} of stream {stream} is there {times} times");
            }
        }
        Ok(())
    }

    /// Folders of recording sessions.
    fn sessions(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for host in fs::read_dir(self.root)? {
            let host = host?;
            if host.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            for session in fs::read_dir(host.path())? {
                folders.push(session?.path());
            }
        }
        Ok(folders)
    }

    fn sessions_of_capture(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut folders = self.sessions()?;
        folders.retain(|folder| {
            folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("captured"))
        });
        Ok(folders)
    }

    fn count_captured(&self) -> anyhow::Result<u64> {
        let folders = self.sessions_of_capture()?;
        ensure!(folders.len() == 1, "the capture has {} folders", folders.len());
        let output = Command::new(self.binary).args(["read", "--count"]).args(&folders).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "read: {}", String::from_utf8_lossy(&output.stderr));
        let number: String = said.trim().chars().take_while(char::is_ascii_digit).collect();
        number.parse().with_context(|| said)
    }

    fn check(&self) -> anyhow::Result<()> {
        let output = Command::new(self.binary)
            .args(["ctf", "check", "--format", "json"])
            .arg(self.root)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_tracers = |line: &&str| {
            TRACER_REMARKS.iter().any(|code| line.contains(&format!("\"code\":\"{code}\"")))
        };
        let wrong: Vec<&str> = said.lines().filter(|line| !is_tracers(line)).take(5).collect();
        ensure!(wrong.is_empty(), "ctf check: {}", wrong.join("\n"));
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "ctf check: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        if testkit::is_installed("babeltrace2") {
            // Each session by itself: their clocks cannot be compared. One that was killed before it had a stream is no trace.
            for session in self.sessions()? {
                if !has_metadata(&session)? {
                    continue;
                }
                let mut read = Command::new("babeltrace2");
                let read = read.arg("--output-format=dummy").arg(&session).output()?;
                let said = String::from_utf8_lossy(&read.stderr).into_owned();
                ensure!(read.status.success(), "babeltrace2 {}: {said}", session.display());
            }
        }
        Ok(())
    }
}

/// Sends packets until the relay is gone; gives the numbers of those that were acknowledged, by stream.
fn note_acknowledged(
    control: SocketAddr,
    data: SocketAddr,
) -> anyhow::Result<BTreeMap<usize, Vec<u64>>> {
    let schema = schema()?;
    let mut producer = Producer::connect(control, data)?;
    let streams = producer.open(1)?;
    producer.metadata(schema.metadata().as_bytes())?;
    let mut acknowledged: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for number in 0.. {
        for (place, stream) in streams.iter().enumerate() {
            let start = PacketStart {
                stream_class: 0,
                instance: 0,
                sequence_number: number,
                begin: number,
                max_bytes: 4096,
            };
            let sealed = schema.open(start, |_context| Ok(()))?.seal(number, 0);
            let mut packet = vec![0; wire::live::DATA_HEADER_LEN];
            packet.extend_from_slice(&sealed.bytes);
            if producer.send(*stream, number, &mut packet).is_err() {
                return Ok(acknowledged);
            }
            acknowledged.entry(place).or_default().push(number);
        }
    }
    Ok(acknowledged)
}

/// Packets with numbers and times, and no event records.
fn schema() -> anyhow::Result<Schema> {
    let mut stream = StreamClass::new(0, EventHeader::Large, Vec::new());
    stream.clock = Some(0);
    let mut trace = TraceClass::new(CtfVersion::V1_8, vec![stream]);
    trace.clocks = vec![ctf::ClockClass::new("monotonic")];
    Ok(Schema::new(trace)?)
}

/// Asks the capture to end; gives the number of event records it wrote.
fn stop_capture(mut capture: Child) -> anyhow::Result<u64> {
    signal(&capture, "-INT")?;
    let mut said = String::new();
    capture.stderr.take().context("no standard error")?.read_to_string(&mut said)?;
    let status = capture.wait()?;
    ensure!(status.success(), "capture: {status}: {said}");
    let line =
        said.lines().find(|line| line.contains(" events, ")).with_context(|| said.clone())?;
    let before = line.split(" events, ").next().unwrap_or_default();
    let number = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    number.parse().with_context(|| said.clone())
}

fn has_metadata(folder: &Path) -> anyhow::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.ends_with("metadata") || (path.is_dir() && has_metadata(&path)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All files with an extension in a folder and those below.
fn files_below(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
