//! `cargo xtask bench live`: how long an event takes from the traced program to the output of a viewer, `throughline live`
//! and babeltrace2 at the same session of our relay at the same time.
//!
//! An event record's time is that of the machine's clock when it was recorded; each line is compared with that clock when it
//! arrives. With a live timer, an event waits for its period at most before it is sent at all.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;

use crate::relays::{Running, Which};

/// How long a session or a viewer may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events of the traced program
    #[arg(long, default_value_t = 20_000)]
    events: u64,
    /// Pause before each of them, microseconds
    #[arg(long, default_value_t = 500)]
    pause_us: u64,
    /// Period of the session's live timer, milliseconds
    #[arg(long, default_value_t = 100)]
    timer_ms: u64,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let relay = Running::start(Which::Ours(&args.binary))?;
    let daemon = SessionDaemon::start()?;
    let program = daemon.compile_ticks()?;
    let live = format!("--live={}", args.timer_ms * 1000);
    let url = format!("--set-url={}", relay.url());
    daemon.lttng(["create", "bench", &live, &url])?;
    daemon.lttng(["enable-event", "--userspace", "testkit:tick"])?;
    daemon.lttng(["start"])?;

    let list = || -> anyhow::Result<String> {
        let mut list = Command::new(&args.binary);
        list.arg("live").arg(relay.viewers().to_string());
        let output = list.output().context("throughline live")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let path = wait_for("the session", || {
        let list = list()?;
        let line =
            list.lines().find_map(|line| line.split_whitespace().next()?.strip_suffix("/bench"));
        Ok(line.map(|host| (host.to_owned(), "bench")))
    })?;
    let (host, name) = path;
    let mut ours = Command::new(&args.binary);
    ours.args(["live", &format!("{}/{host}/{name}", relay.viewers()), "--clock-seconds"]);
    let mut theirs = Command::new("babeltrace2");
    theirs.args(["--input-format=lttng-live", "--clock-seconds"]);
    theirs.arg(format!("net://{}/host/{host}/{name}", relay.viewers()));
    let viewers = [Viewer::start(ours)?, Viewer::start(theirs)?];
    wait_for("both viewers", || {
        let list = list()?;
        let viewers = list.lines().nth(1).and_then(|line| line.split_whitespace().nth(2));
        Ok((viewers == Some("2")).then_some(()))
    })?;

    let mut traced = daemon.command(program);
    traced.args([args.events.to_string(), args.pause_us.to_string()]);
    let status = traced.env("LTTNG_UST_REGISTER_TIMEOUT", "-1").status().context("ticks")?;
    ensure!(status.success(), "the traced program ended with {status}");
    daemon.lttng(["destroy", "bench"])?;
    for (viewer, name) in viewers.into_iter().zip(["throughline live", "babeltrace2"]) {
        report(name, viewer.delays()?, args)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(name: &str, mut delays: Vec<i64>, args: &Args) -> anyhow::Result<()> {
    ensure!(delays.len() as u64 == args.events, "{name} gave {} events", delays.len());
    delays.sort_unstable();
    let at = |permille: usize| -> anyhow::Result<f64> {
        let nanos = delays.get((delays.len() - 1) * permille / 1000).context("no events")?;
        Ok(*nanos as f64 / 1e6)
    };
    let (half, most, last) = (at(500)?, at(990)?, at(1000)?);
    println!(
        "{name:<18} {:>7} events, live timer {} ms: half within {half:.1} ms, 99 % within {most:.1} ms, all within {last:.1} ms",
        delays.len(),
        args.timer_ms,
    );
    Ok(())
}

fn wait_for<T>(
    what: &str,
    mut condition: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        ensure!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// A viewer whose lines are timed as they come.
struct Viewer {
    child: Child,
    lines: JoinHandle<Vec<i64>>,
}

impl Viewer {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn();
        let mut child = child.with_context(|| format!("{command:?}"))?;
        let output = child.stdout.take().context("no standard output")?;
        let lines = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.filter_map(|line| delay(&line)).collect()
        });
        Ok(Self { child, lines })
    }

    /// From each event to its line, nanoseconds, once the session has ended.
    fn delays(mut self) -> anyhow::Result<Vec<i64>> {
        let status = self.child.wait()?;
        ensure!(status.success(), "a viewer ended with {status}");
        self.lines.join().ok().context("reading the lines failed")
    }
}

/// From the time at the front of a line, `[1795193047.736468450]`, to now.
#[expect(
    clippy::disallowed_methods,
    reason = "the delay is measured by the clock that stamps event records"
)]
fn delay(line: &str) -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let (seconds, rest) = line.strip_prefix('[')?.split_once('.')?;
    let nanos = rest.get(..9)?.parse::<i64>().ok()?;
    let at = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    i64::try_from(now.as_nanos()).ok()?.checked_sub(at)
}
