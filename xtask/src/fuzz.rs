//! `cargo xtask fuzz [TARGET]…`: every fuzz target for a while, on a corpus that begins with the conformance cases.
//!
//! Needs cargo-fuzz and a nightly toolchain. The corpus is kept below `fuzz/corpus`; what a target finds lies in
//! `fuzz/artifacts`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use blocks::{BlockId, Node, Piece, Place, Step, Task, Work};
use clap::Args;
use intake::Ingest;
use mapper::SpanRules;
use mapper::job::{Plan, Survey};
use model::Timestamp;
use profile::{
    BuildId, Builder, Frame, FrameKind, Line, Link, Mapping, Names, Packet, Process, Sample,
    SampleKind, Status, Unnamed, Window,
};
use testkit::Chunked;
use tracedir::ClassCache;
use tracedir::seekable::Level;
use wire::remote_write::{self, Labels, Metadata, MetricKind, Series, Version};

/// Larger files teach a fuzzer little and slow it down.
const MAX_SEED_BYTES: usize = 48 << 10;

/// A process may not take more than this in all, and in one allocation.
const RSS_LIMIT_MB: u32 = 2048;
const MALLOC_LIMIT_MB: u32 = 512;

/// One input may not take longer, in seconds.
const TIMEOUT_S: u32 = 10;

/// The magic numbers of packetised metadata.
const METADATA_MAGICS: [[u8; 4]; 2] = [[0x57, 0x1D, 0xD1, 0x75], [0x75, 0xD1, 0x1D, 0x57]];

/// A message in a frame, and a deadline.
const GRPC: [&[u8]; 2] = [b"\0\0\0\0\x02ab", b"10S"];

/// The description of a call site `t` with an unsigned number and a text, and a record of it.
const RINGS: [&[u8]; 1] =
    [b"\x20\0\x03\0\x01\x02\0\0\x09\0\0\0\x01\0t\x01\0m\x01\0f\x01\x01\0a\x05\x01\0b\0\0\0\
\x05\0\x03\0\x07\0\0\0\x01\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0hi\0\0\0\0\0\0"];

/// What servers of NATS say.
const NATS: [&[u8]; 4] = [
    b"INFO {\"max_payload\":1048576,\"headers\":true}\r\nPING\r\n+OK\r\n",
    b"MSG _INBOX.a.1 1 5\r\nhello\r\nPONG\r\n",
    b"HMSG _INBOX.a.1 1 reply 16 21\r\nNATS/1.0 503\r\n\r\nhello\r\n",
    b"-ERR 'Authorization Violation'\r\n",
];

/// Requests of clients of Redis, and a notification of OSProfiler.
const OSPROFILER: [&[u8]; 4] = [
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*3\r\n$5\r\nLPUSH\r\n$16\r\nosprofiler_opt:a\r\n$2\r\n{}\r\n",
    b"*4\r\n$6\r\nLRANGE\r\n$16\r\nosprofiler_opt:a\r\n$1\r\n0\r\n$2\r\n-1\r\n",
    b"SCAN 0 MATCH osprofiler* COUNT 9\r\nSET osprofiler_error:a {}\r\nLINDEX osprofiler_opt:a 1\r\nQUIT\r\n",
    b"{\"name\": \"db-start\", \"base_id\": \"bdb9c1f0-0000-4000-8000-0123456789ab\", \
\"trace_id\": \"00000000-1111-4000-9000-000000000001\", \"parent_id\": \"bdb9c1f0-0000-4000-8000-0123456789ab\", \
\"timestamp\": \"2026-01-02T03:04:05.678901\", \"info\": {\"db\": {\"statement\": \"SELECT 1\", \"params\": [1.5, NaN]}, \
\"etype\": \"E\", \"message\": \"\\ud83d\\ude00\", \"host\": \"h\"}, \"project\": null, \"service\": \"s\"}",
];

/// Bodies of `/ingest`, behind the number of their format: form, folded, lines, trie, tree, speedscope.
const INGEST: [&[u8]; 6] = [
    b"\x01--x\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n\x0a\x00\r\n--x--\r\n",
    b"\x02main;work 2\nmain 1\n",
    b"\x03main;work\nmain\n",
    b"\x04\x00\x00\x02\x04main\x01\x01\x02;w\x02\x00\x01o\x03\x00",
    b"\x05\x00\x00\x02\x04main\x01\x01\x01w\x02\x00\x01o\x03\x00",
    b"\x06{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{\"frames\":[{\"name\":\"a\"}]},\"profiles\":[\
{\"type\":\"sampled\",\"unit\":\"none\",\"samples\":[[0]],\"weights\":[1]},\
{\"type\":\"evented\",\"unit\":\"seconds\",\"events\":[{\"type\":\"O\",\"frame\":0,\"at\":1},{\"type\":\"C\",\"frame\":0,\"at\":2}]}]}",
];

/// A call tree, a selector, and a request in both encodings.
const FLAME: [&[u8]; 4] = [
    b"\x00\x00\x02\x01b\x05\x00\x01a\x02\x01\x01c\x01\x00",
    b"process_cpu{service_name=~\"a.*|b\", pod!='c\\n', x!~`d`}",
    b"\x0a\x09a:b:c:d:e\x12\x02{}\x18\x05\x28\x07",
    b"{\"profileTypeID\":\"a:b:c:d:e\",\"start\":\"5\",\"end\":7,\"maxNodes\":\"9\",\"spanSelector\":[\"000000000000000f\"]}",
];

/// A program that has functions inlined into each other.
const INLINED: &str = "\
volatile unsigned sink;
static inline __attribute__((always_inline)) unsigned second(unsigned n) { return sink = n * 3; }
static inline __attribute__((always_inline)) unsigned first(unsigned n) { return second(n + 1) + 1; }
unsigned outer(unsigned n) { for (unsigned i = 0; i < n; i++) sink += first(i); return first(n) * 7; }
";

/// A perf map, behind the length of its pieces.
const JIT_MAP: &[u8] =
    b"\x071000 20 one\n0x1020 0x10 JS:*two words file.js:1:2\n1010 8 three\nnonsense\n";

/// Small executables and libraries of Debian.
const EXECUTABLES: [&str; 4] = [
    "/usr/bin/true",
    "/usr/bin/kill",
    "/usr/lib/x86_64-linux-gnu/libdl.so.2",
    "/usr/lib/x86_64-linux-gnu/libutil.so.1",
];

/// How to fuzz.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Targets; all when none is given
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Make the corpus and run nothing
    #[arg(long)]
    seed_only: bool,
}

/// Runs the targets one after the other and says what each has found.
pub(crate) fn run(args: &Fuzz) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").canonicalize()?;
    let all = targets(&folder)?;
    let chosen = if args.targets.is_empty() { &all } else { &args.targets };
    if let Some(unknown) = chosen.iter().find(|target| !all.contains(target)) {
        bail!("no fuzz target is called {unknown}; there are: {}", all.join(", "));
    }
    for target in chosen {
        let seeds = seed(&folder, target).with_context(|| format!("the corpus of {target}"))?;
        say(&format!("{target}: {seeds} seeds"));
    }
    if args.seed_only {
        return Ok(());
    }
    let failed: Vec<&str> = chosen
        .iter()
        .filter_map(|target| match fuzz(&folder, target, args.seconds) {
            Ok(true) => None,
            Ok(false) => Some(Ok(target.as_str())),
            Err(error) => Some(Err(error)),
        })
        .collect::<anyhow::Result<_>>()?;
    ensure!(
        failed.is_empty(),
        "inputs that fail were found by {}: see fuzz/artifacts",
        failed.join(", ")
    );
    Ok(())
}

/// The names of the targets: their source files'.
fn targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(OsStr::to_str);
        all.extend(name.map(str::to_owned));
    }
    all.sort();
    Ok(all)
}

/// `true`: nothing was found.
fn fuzz(folder: &Path, target: &str, seconds: u64) -> anyhow::Result<bool> {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", target, "--"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-rss_limit_mb={RSS_LIMIT_MB}"));
    command.arg(format!("-malloc_limit_mb={MALLOC_LIMIT_MB}"));
    command.arg(format!("-timeout={TIMEOUT_S}"));
    command.arg(format!("-max_len={MAX_SEED_BYTES}"));
    command.arg("-print_final_stats=1");
    if ["ctf_tsdl", "ctf_trace", "ctf_format", "ctf_metadata_stream"].contains(&target) {
        command.arg(format!("-dict={}", folder.join("tsdl.dict").display()));
    }
    // Two copies of a C library are linked (SQLite, libdeflate), which is no fault of a target.
    command.env("ASAN_OPTIONS", "detect_odr_violation=0");
    // The workspace's pinned toolchain would otherwise win over `+nightly` in the build of the target.
    command.env_remove("RUSTUP_TOOLCHAIN").current_dir(folder);
    let status = command.status().context("cargo fuzz (cargo install cargo-fuzz)")?;
    say(&format!("{target}: {}", if status.success() { "nothing found" } else { "FAILED" }));
    Ok(status.success())
}

/// Requests of real clients of profile stores, unpacked where they came in gzip, each behind the number of its format
/// and with others where a target wants that.
fn bodies(corpus: &Path, target: &str) -> anyhow::Result<usize> {
    let mut count = 0;
    let has_format = target == "intake_ingest";
    for (number, body) in INGEST.iter().enumerate().filter(|_| has_format) {
        fs::write(corpus.join(format!("text-{number}")), body)?;
        count += 1;
    }
    // The format's number, or the length of labels.
    let (before, ending): (&[u8], &str) = match target {
        "intake_ingest" => (&[0], "body"),
        "intake_jfr" => (&[0], "jfr"),
        _ => (&[], "body"),
    };
    let Some(folder) = testkit::shared_dir().map(|dir| dir.join("captures/pyroscope-clients"))
    else {
        return Ok(count);
    };
    for path in files(&folder)?.into_iter().filter(|path| path.extension() == Some(ending.as_ref()))
    {
        let bytes = profile::ungzip(&fs::read(&path)?, profile::Limits::default())?;
        if bytes.len() <= MAX_SEED_BYTES {
            fs::write(corpus.join(count.to_string()), [before, &bytes].concat())?;
            count += 1;
        }
    }
    Ok(count)
}

/// Writes [`INLINED`] with debug information of several forms; gives how many.
fn debugged(corpus: &Path) -> anyhow::Result<usize> {
    let source = corpus.join("inlined.c");
    fs::write(&source, INLINED)?;
    let forms: [&[&str]; 4] = [
        &["-O2", "-gdwarf-5"],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-gdwarf-5", "-gz=zlib"],
        &["-O0", "-gdwarf-5", "-ffunction-sections"],
    ];
    for (number, options) in forms.iter().enumerate() {
        let mut compiler = Command::new("cc");
        let compiler = compiler.args(*options).args(["-shared", "-nostdlib", "-fPIC", "-o"]);
        let status = compiler.arg(corpus.join(number.to_string())).arg(&source).status();
        ensure!(status.context("cc")?.success(), "cc {options:?}");
    }
    fs::remove_file(source)?;
    Ok(forms.len())
}

/// Seeds of a target that stand in this file.
fn written(target: &str) -> Option<&'static [&'static [u8]]> {
    match target {
        "flame" => Some(&FLAME),
        "grpc" => Some(&GRPC),
        "nats" => Some(&NATS),
        "osprofiler" => Some(&OSPROFILER),
        "rings" => Some(&RINGS),
        _ => None,
    }
}

fn keep_all(corpus: &Path, seeds: &[&[u8]]) -> anyhow::Result<usize> {
    for (number, bytes) in seeds.iter().enumerate() {
        fs::write(corpus.join(number.to_string()), bytes)?;
    }
    Ok(seeds.len())
}

/// Writes a target's seeds into its corpus; gives how many.
fn seed(folder: &Path, target: &str) -> anyhow::Result<usize> {
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    if let Some(written) = written(target) {
        return keep_all(&corpus, written);
    }
    if target == "remote_write" {
        for version in [Version::V1, Version::V2] {
            fs::write(corpus.join(version.header()), remote_write::encode(version, &[series()?])?)?;
        }
        return Ok(2);
    }
    if target == "gopclntab" {
        let both = |go| [(go, true), (go, false)];
        let programs: Vec<_> = testkit::go::Go::ALL.into_iter().flat_map(both).collect();
        for (number, (go, has_sections)) in programs.iter().enumerate() {
            fs::write(corpus.join(number.to_string()), testkit::go::program(*go, *has_sections))?;
        }
        return Ok(programs.len());
    }
    if target == "jit" {
        fs::write(corpus.join("map"), JIT_MAP)?;
        fs::write(corpus.join("dump"), jit_dump())?;
        return Ok(2);
    }
    if matches!(target, "cpython" | "unwind") {
        let mut count = 0;
        for bytes in EXECUTABLES.iter().filter_map(|path| fs::read(path).ok()) {
            if bytes.len() <= MAX_SEED_BYTES {
                fs::write(corpus.join(count.to_string()), bytes)?;
                count += 1;
            }
        }
        return Ok(count);
    }
    if target == "lines" {
        return debugged(&corpus);
    }
    if matches!(target, "block" | "task") {
        fs::write(corpus.join("0"), if target == "task" { task()? } else { block()? })?;
        return Ok(1);
    }
    if matches!(target, "profile" | "intake_otlp") {
        let packet = packet()?;
        fs::write(corpus.join("plain"), &packet.bytes)?;
        fs::write(corpus.join("compressed"), packet.gzip())?;
        return Ok(2);
    }
    if target.starts_with("intake_") {
        return bodies(&corpus, target);
    }
    let Some(root) = testkit::unpacked_trace("conformance") else { return Ok(0) };
    let mut count = 0;
    let mut keep = |path: &Path, bytes: &[u8]| -> anyhow::Result<()> {
        if bytes.len() > MAX_SEED_BYTES {
            return Ok(());
        }
        let name = path.strip_prefix(&root).unwrap_or(path).to_string_lossy().replace('/', "_");
        fs::write(corpus.join(name), bytes)?;
        count += 1;
        Ok(())
    };
    for file in files(&root)? {
        let is_index = file.extension() == Some(OsStr::new("idx"));
        let is_metadata = file.file_name() == Some(OsStr::new("metadata"));
        if is_index && target == "ctf_index" {
            keep(&file, &fs::read(&file)?)?;
        }
        if !is_metadata || !(target.starts_with("ctf_") || target == "seekable") {
            continue;
        }
        let metadata = fs::read(&file)?;
        let streams = streams_beside(&file)?;
        let is_packetised = METADATA_MAGICS.iter().any(|magic| metadata.starts_with(magic));
        let is_json = metadata.first() == Some(&0x1E);
        match target {
            "ctf_metadata_packets" if is_packetised => keep(&file, &metadata)?,
            "ctf_json" if is_json => keep(&file, &metadata)?,
            "ctf_metadata_stream" => keep(&file, &metadata)?,
            "ctf_tsdl" if !is_packetised && !is_json => keep(&file, &metadata)?,
            "seekable" => {
                for stream in &streams {
                    keep(stream, &compressed(&fs::read(stream)?)?)?;
                }
            }
            "ctf_packet" => {
                for stream in &streams {
                    keep(stream, &fs::read(stream)?)?;
                }
            }
            "ctf_trace" | "ctf_format" if !is_packetised => {
                let stream = streams.first().map(fs::read).transpose()?.unwrap_or_default();
                keep(&file, &[&*metadata, b"\0", &stream].concat())?;
            }
            _ => {}
        }
    }
    Ok(count)
}

/// A stream in frames of 1 KiB.
fn compressed(stream: &[u8]) -> anyhow::Result<Vec<u8>> {
    const FRAME: u64 = 1 << 10;
    let len = stream.len() as u64;
    let ends = (1..=len.div_ceil(FRAME)).map(|number| (number * FRAME).min(len));
    let mut file = Vec::new();
    tracedir::seekable::compress(&mut &*stream, ends, Level::default(), &mut file, &|| true)?;
    Ok(file)
}

/// All files below a folder.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// The data streams that a metadata file describes.
fn streams_beside(metadata: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(metadata.parent().unwrap_or(metadata))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && name != "metadata" && !name.starts_with('.') {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[expect(clippy::print_stdout, reason = "this is the command line of a development tool")]
fn say(line: &str) {
    println!("{line}");
}

/// A block of a profile with two stacks.
fn block() -> anyhow::Result<Vec<u8>> {
    let (query, body) = ("name=shop.cpu&from=1795191872", b"main;work 2\nmain 1");
    let request = Ingest { query, content_type: "", body };
    let received = Timestamp::from_nanos(1_795_191_880_000_000_000);
    let taken = intake::ingest(request, &intake::Limits::default(), received)?;
    store::block::encode(&taken.batch)?.context("a block without samples")
}

/// A profile packet of two samples.
fn packet() -> anyhow::Result<Packet> {
    let window = Window { begin_unix_ns: 1, duration_ns: 10 };
    let mut builder = Builder::new(window, SampleKind::OffCpu);
    builder.lost("ring_full", 1);
    let attributes = &[("container.id", "f00d")];
    let process = builder.process(&Process {
        pid: 1,
        start_boot_ns: 2,
        executable_name: "app",
        executable_path: "/bin/app",
        attributes,
    })?;
    let build_ids = &[BuildId::Gnu("abcd")];
    let mapping =
        Mapping { memory_start: 1, memory_limit: 9, file_offset: 0, path: "/bin/app", build_ids };
    let line = |function| Line { function, file: "a.c", line: 1, ..Line::default() };
    let inlined = [line("inner"), line("outer")];
    let mut frames = Vec::new();
    for names in [Names::Known(&inlined), Names::Unnamed(Unnamed::NoSymbol)] {
        frames.push(builder.frame(&Frame {
            kind: FrameKind::Native,
            mapping: Some(&mapping),
            address: 4,
            names,
        })?);
    }
    for at_unix_ns in [3, 5] {
        builder.add(&Sample {
            process,
            tid: 1,
            thread_name: "app",
            cpu: 0,
            at_unix_ns,
            value: 7,
            link: Some(Link { trace_id: [1; 16], span_id: [2; 8] }),
            frames: &frames,
            status: Status::Root,
        })?;
    }
    Ok(builder.finish())
}

/// A time series with two samples.
fn series() -> anyhow::Result<Series> {
    let labels = [(remote_write::NAME, "m_total"), ("function", "main")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let sample = |time_ms| remote_write::Sample { value: 1.5, time_ms, start_ms: 1 };
    let metadata = Metadata { kind: MetricKind::Counter, ..Metadata::default() };
    let samples = vec![sample(15_000), sample(30_000)];
    Ok(Series::new(Labels::new(labels)?, samples, Some(metadata.into())))
}

/// A task's body: two windows to be read and a block to be brought.
fn task() -> anyhow::Result<Vec<u8>> {
    let scratch = tempfile::tempdir()?;
    let chunks = Chunked { chunks: 10, events: 9, seed: 1 }.write(scratch.path());
    let rules = SpanRules::default();
    let mut classes = ClassCache::default();
    let surveys = chunks.iter().map(|chunk| Survey::of_folder(chunk, &rules, &mut classes));
    let plan = Plan::of(&surveys.collect::<Result<Vec<_>, _>>()?, &rules, None)?;
    let id = BlockId::of_nothing()?;
    let piece = |chunk: PathBuf| Piece { place: Place::Folder(chunk), checksum: [1; 32], bytes: 9 };
    let entries = plan.entries(&[]).into_iter().map(Box::new).enumerate();
    let maps = entries.map(|(part, entry)| Step::Map { part, id, entry }).take(2);
    let load = Step::Load { node: Node { first: 8, level: 1 }, id };
    let work = Work {
        common: plan.common.clone(),
        parts: plan.parts.clone(),
        pieces: chunks.into_iter().map(piece).collect(),
        blocks: Some("s3://traces/blocks".to_owned()),
    };
    let bytes = Task::new(&work, maps.chain([load]).collect()).encode()?;
    Ok(bytes.get(Task::header()?.len()..).unwrap_or_default().to_vec())
}

/// A jitdump, behind the length of its pieces: lines, what they are of, a move, the end.
fn jit_dump() -> Vec<u8> {
    let record = |id: u32, words: &[u64], text: &[u8]| {
        let size = u32::try_from(16 + words.len() * 8 + text.len()).unwrap_or(u32::MAX);
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        let head = [id, size].into_iter().flat_map(u32::to_ne_bytes).chain(5_u64.to_ne_bytes());
        head.chain(words).chain(text.iter().copied()).collect::<Vec<u8>>()
    };
    let header = [0x4a69_5444_u32, 1, 40, 62, 0, 7, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
    [
        vec![64],
        header,
        record(2, &[0x1000, 1, 0x1000, 5], b"a.js\0"),
        record(0, &[0, 0x1000, 0x1000, 4, 1], b"one\0\xcc\xcc\xcc\xcc"),
        record(1, &[0, 0x9000, 0x1000, 0x9000, 4, 1], b""),
        record(3, &[], b""),
    ]
    .concat()
}
