//! `cargo xtask bench chunks`: what sealing, compressing, copying and reading of chunks costs.
//!
//! The input is a folder with traces. It is copied, sealed there with a manifest, compressed and copied by a relay to another folder, as
//! many rounds as are asked for; `zstd -T1` and `cp` do the same to the same files in each round. Nothing is read from the disk: all of it
//! was just written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tracedir::manifest::{Contents, MANIFEST_FORMAT, Manifest, Origin, SealedBy};
use tracedir::seekable::Level;

use super::measure::{Cost, Rounds, Run, cpu_of_process, cpu_of_this_thread};

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder with traces, such as a session; it is not changed
    #[arg(required = true, value_name = "DIR")]
    input: Vec<PathBuf>,
    /// How it is compressed
    #[arg(long, default_value = "zstd")]
    method: Level,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

/// Where the chunk is below the relay's folder.
const CHUNK: &str = "host/s-20260101-000000/archives/20260101T000000+0000-20260101T000001+0000-0";
/// How long a copy may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    for input in &args.input {
        let mut table = Table::default();
        for _ in 0..args.rounds.max(1) {
            round(args, input, &mut table).with_context(|| input.display().to_string())?;
        }
        say(&format!("{}: {:.0} MB of packets", input.display(), table.bytes as f64 / 1e6));
        table.print()?;
    }
    Ok(())
}

/// Figures of all rounds, by what was done.
#[derive(Default)]
struct Table {
    /// Bytes of the data streams.
    bytes: u64,
    rows: Vec<Row>,
}

/// One thing that was measured.
struct Row {
    what: &'static str,
    unit: Unit,
    figures: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// CPU seconds for each GiB of packets.
    CpuPerGib,
    /// Seconds for each GiB of packets.
    WallPerGib,
    Ratio,
    Milliseconds,
}

impl Table {
    fn add(&mut self, what: &'static str, unit: Unit, figure: f64) {
        match self.rows.iter_mut().find(|row| (row.what, row.unit) == (what, unit)) {
            Some(row) => row.figures.push(figure),
            None => self.rows.push(Row { what, unit, figures: vec![figure] }),
        }
    }

    fn cost(&mut self, what: &'static str, cost: Cost) {
        let gib = self.bytes as f64 / f64::from(1 << 30);
        self.add(what, Unit::CpuPerGib, cost.cpu.as_secs_f64() / gib);
        self.add(what, Unit::WallPerGib, cost.wall.as_secs_f64() / gib);
    }

    fn print(&self) -> anyhow::Result<()> {
        for Row { what, unit, figures } in &self.rows {
            let rounds = Rounds::new(figures.clone())?;
            let (low, high) = rounds.spread();
            let unit = match unit {
                Unit::CpuPerGib => "CPU s/GiB",
                Unit::WallPerGib => "s/GiB",
                Unit::Ratio => "x",
                Unit::Milliseconds => "ms",
            };
            let median = rounds.median();
            say(&format!("  {what:<44} {median:>8.3} {unit:<10} ({low:.3} to {high:.3})"));
        }
        Ok(())
    }
}

fn round(args: &Args, input: &Path, table: &mut Table) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().join("traces");
    let folder = root.join(CHUNK);
    fs::create_dir_all(&folder)?;
    copy_with_cp(input, &folder)?;
    let manifest = seal(&folder, table)?;
    read(args, &folder, table, "plain")?;
    peer_zstd(args, &folder, &manifest, scratch.path(), table)?;

    let to = scratch.path().join("copies");
    copy_with_relay(args, &root, &to, table, "copy to a folder, synced")?;
    fs::remove_dir_all(&to)?;
    // Both reach the disk.
    let script = "cp -rT \"$0\" \"$1\" && sync -f \"$1\"";
    let peer = Run::new(["sh", "-c", script]).arg(&folder).arg(scratch.path().join("cp"));
    table.cost("cp -r and sync -f of the same", peer.measure()?.cost);

    let (done, cost) = timed(|| Ok(tracedir::compress_chunk(&folder, args.method, &|| true)?))?;
    ensure!(done.files > 0, "nothing was compressed");
    table.cost("compress, sync, read back, compare", cost);
    let ratio = done.content_bytes as f64 / done.compressed_bytes as f64;
    table.add("ratio", Unit::Ratio, ratio);
    read(args, &folder, table, "compressed")?;
    copy_with_relay(args, &root, &to, table, "copy of the compressed chunk, synced")
}

/// What something costs this thread.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Cost)> {
    let (cpu, wall) = (cpu_of_this_thread()?, Instant::now());
    let done = work()?;
    let cost = Cost { cpu: cpu_of_this_thread()?.saturating_sub(cpu), wall: wall.elapsed() };
    Ok((done, cost))
}

fn seal(folder: &Path, table: &mut Table) -> anyhow::Result<Manifest> {
    let (contents, cost) = timed(|| Ok(Contents::of(folder, None)?))?;
    table.bytes = contents.streams.iter().map(|stream| stream.bytes).sum();
    ensure!(table.bytes > 0, "no data stream there");
    table.cost("manifest, all of sealing but the sync", cost);
    let origin = Origin {
        host: "host".to_owned(),
        session: "s".to_owned(),
        chunk: 0,
        folder: CHUNK.to_owned(),
        begin_s: None,
        end_s: None,
        sealed_by: SealedBy::Closed,
    };
    let format = MANIFEST_FORMAT.to_owned();
    let manifest = Manifest { format, origin, contents, losses: Vec::new() };
    fs::write(folder.join(Manifest::name_in(folder)), manifest.to_json())?;
    Ok(manifest)
}

/// All of it, and one event record in its middle.
fn read(args: &Args, folder: &Path, table: &mut Table, how: &'static str) -> anyhow::Result<()> {
    let command = || Run::new([args.binary.as_os_str(), "read".as_ref()]);
    let whole = command().args(&["--format", "none"]).arg(folder).measure()?;
    let label = |plain, compressed| if how == "plain" { plain } else { compressed };
    table.cost(label("decode all, plain", "decode all, compressed"), whole.cost);
    let counted = command().args(&["--count"]).arg(folder).measure()?;
    table.cost(label("count, plain", "count, compressed"), counted.cost);
    let recording = tracedir::Recording::open(&[folder])?;
    let covers = recording.covers();
    let ends = |end: fn(&tracedir::StreamCover) -> Option<model::Timestamp>| {
        covers.iter().filter_map(end).map(model::Timestamp::nanos).collect::<Vec<_>>()
    };
    let begin = ends(|cover| cover.begin).into_iter().min().context("no times")?;
    let end = ends(|cover| cover.end).into_iter().max().context("no times")?;
    let middle = begin + (end - begin) / 2;
    let begin = format!("{}.{:09}", middle / 1_000_000_000, middle % 1_000_000_000);
    let seek = command().args(&["--format", "none", "--limit", "1", "--begin", &begin]).arg(folder);
    let seek = seek.measure()?;
    let what =
        label("find one event record in the middle, plain", "find one event record, compressed");
    table.add(what, Unit::Milliseconds, seek.cost.wall.as_secs_f64() * 1e3);
    let what =
        label("peak memory of decoding, plain (MB)", "peak memory of decoding, compressed (MB)");
    table.add(what, Unit::Ratio, whole.peak_bytes as f64 / 1e6);
    Ok(())
}

/// `zstd -T1` on the same files.
fn peer_zstd(
    args: &Args,
    folder: &Path,
    manifest: &Manifest,
    scratch: &Path,
    table: &mut Table,
) -> anyhow::Result<()> {
    let level = args.method.to_string().replace("zstd:", "-");
    let streams = manifest.contents.streams.iter().flat_map(|stream| &stream.files);
    let paths: Vec<PathBuf> = streams.map(|file| folder.join(file)).collect();
    let to = scratch.join("zstd");
    let (mut cpu, mut wall, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    for path in paths {
        let run = Run::new(["zstd", "-q", "-f", "-T1", &level, "-o"]).arg(&to).arg(path);
        let cost = run.measure().context("zstd (apt-get install zstd)")?.cost;
        cpu += cost.cpu;
        wall += cost.wall;
        bytes += fs::metadata(&to)?.len();
    }
    table.cost("zstd -T1 of the same files", Cost { cpu, wall });
    table.add("zstd's ratio", Unit::Ratio, table.bytes as f64 / bytes as f64);
    Ok(())
}

fn copy_with_cp(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    let status = Command::new("cp").arg("-rT").arg(from).arg(to).status()?;
    ensure!(status.success(), "cp ended with {status}");
    Ok(())
}

/// A relay that finds one chunk to copy, from its start to the end of the copy.
fn copy_with_relay(
    args: &Args,
    root: &Path,
    to: &Path,
    table: &mut Table,
    what: &'static str,
) -> anyhow::Result<()> {
    let outbox = root.join(".relay/outbox");
    fs::create_dir_all(&outbox)?;
    let url = format!("file://{}", to.display());
    fs::write(outbox.join("0"), format!("relay-announcement 1\nto copy {url}\nfolder {CHUNK}\n"))?;
    let mut command = Command::new(&args.binary);
    command.arg("relay").arg("--output").arg(root).args(["--copy-to", &url]);
    for port in ["--control", "--data", "--live"] {
        command.args([port, "127.0.0.1:0"]);
    }
    let begin = Instant::now();
    let mut relay = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let copied = loop {
        std::thread::park_timeout(Duration::from_millis(1));
        if fs::read_dir(&outbox)?.next().is_none() {
            break Ok(Cost { cpu: cpu_of_process(relay.id())?, wall: begin.elapsed() });
        }
        if begin.elapsed() > PATIENCE || relay.try_wait()?.is_some() {
            break Err(anyhow::anyhow!("the relay does not copy"));
        }
    };
    relay.kill()?;
    relay.wait()?;
    table.cost(what, copied?);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
