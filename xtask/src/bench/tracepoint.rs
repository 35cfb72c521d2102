//! `cargo xtask bench tracepoint`: what a record of an application costs it, beside LTTng-UST and a loop that does nothing else.
//!
//! Each way records events with two integers from one thread, with nobody reading meanwhile: ours into its ring, LTTng-UST into the
//! sub-buffers of a snapshot session. The loop writes the same words and the same time into memory. All take turns. `in C`: by the header of
//! crate `tracepoint`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;

use super::lttng;
use super::measure::Rounds;
use super::table::{self, Bar, Row};

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records of each round
    #[arg(long, default_value_t = 400_000)]
    records: u64,
    /// Rounds of each way
    #[arg(long, default_value_t = 7)]
    rounds: u32,
}

const SOURCES: [(&str, &str); 2] = [
    ("pair.h", include_str!("../../assets/pair.h")),
    ("pair.c", include_str!("../../assets/pair.c")),
];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let ours = build()?;
    let daemon = SessionDaemon::start()?;
    let in_c = compile(daemon.folder())?;
    let theirs = lttng::compile(daemon.folder(), "pair", &SOURCES)?;
    daemon.lttng(["create", "bench", "--snapshot"])?;
    let channel = ["--subbuf-size=1M", "--num-subbuf=16", "ticks"];
    daemon.lttng([&["enable-channel", "--userspace"], &channel[..]].concat())?;
    daemon.lttng(["enable-event", "--userspace", "--channel=ticks", "bench:*"])?;
    daemon.lttng(["start"])?;
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..args.rounds {
        for (program, what) in [(&ours, "all"), (&ours, "visit"), (&in_c, "")] {
            let mut command = Command::new(program);
            command.arg(args.records.to_string());
            command.args((!what.is_empty()).then_some(what));
            let output = command.output().context("a program of ours")?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            for line in str::from_utf8(&output.stdout)?.lines() {
                let (way, took) = line.split_once(' ').context("a way and its nanoseconds")?;
                found.entry(way.to_owned()).or_default().push(took.parse()?);
            }
        }
        let output = daemon
            .command(&theirs)
            .arg(args.records.to_string())
            .env("LTTNG_UST_REGISTER_TIMEOUT", "-1")
            .output()
            .context("the traced program")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let took = str::from_utf8(&output.stdout)?.trim().parse()?;
        found.entry("lttng-ust".to_owned()).or_default().push(took);
    }
    daemon.lttng(["destroy", "bench"])?;
    report(&found)
}

fn report(found: &BTreeMap<String, Vec<f64>>) -> anyhow::Result<()> {
    let of = |way: &str| found.get(way).cloned().with_context(|| format!("no figure of {way}"));
    let nanos = |way: &str| anyhow::Ok(format!("{:.2} ns", Rounds::new(of(way)?)?.median()));
    let ratio = |name: &str, above: &str, below: &str, bar: Option<Bar>| {
        let pairs = of(above)?.into_iter().zip(of(below)?);
        anyhow::Ok(Row {
            name: name.to_owned(),
            found: Rounds::new(pairs.map(|(above, below)| above / below).collect())?,
            unit: "x",
            bar,
            ours: nanos(if above == "lttng-ust" { below } else { above })?,
            theirs: nanos(if above == "lttng-ust" { above } else { below })?,
        })
    };
    let rows = [
        ratio("record / bare loop", "record", "bare", Some(Bar::AtMost(1.5)))?,
        ratio("LTTng-UST / record", "lttng-ust", "record", Some(Bar::AtLeast(5.0)))?,
        ratio(
            "an event of crate tracing / bare loop",
            "layer_event",
            "bare",
            Some(Bar::AtMost(2.5)),
        )?,
        ratio("the same, values only looked at / bare loop", "layer_visit", "bare", None)?,
        ratio("record in C / bare loop", "c_record", "bare", Some(Bar::AtMost(1.5)))?,
        ratio("LTTng-UST / record in C", "lttng-ust", "c_record", Some(Bar::AtLeast(5.0)))?,
        ratio("a span, begin and end / bare loop", "span", "bare", None)?,
        ratio("a span in C / bare loop", "c_span", "bare", None)?,
        ratio("a span of crate tracing, entered / bare loop", "layer_span", "bare", None)?,
        ratio("with a text of 64 bytes / bare loop", "text", "bare", None)?,
        ratio("with that text in C / bare loop", "c_text", "bare", None)?,
        ratio("a call site that is off / bare loop", "off", "bare", None)?,
        ratio("read from the ring / bare loop", "read", "bare", None)?,
    ];
    table::print_head(&[table::machine()?]);
    table::print("A record with two integers", "the other", &rows);
    Ok(())
}

/// The program that measures what the header for C costs.
fn compile(folder: &Path) -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("records");
    let output = Command::new("cc")
        .args(["-std=c11", "-O2", "-I"])
        .arg(root.join("../crates/tracepoint/include"))
        .arg(root.join("assets/records.c"))
        .args(["-pthread", "-o"])
        .arg(&program)
        .output()
        .context("cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// The program that measures ours and the loop.
fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let options = ["build", "--release", "--package", "rings", "--example", "records"];
    let status = Command::new(cargo).args(options).status().context("cargo")?;
    ensure!(status.success(), "cargo build: {status}");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(target.join("release/examples/records"))
}
