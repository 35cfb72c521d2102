//! `cargo xtask bench viewers`: what viewers of a live session cost the relay, and how soon they see something.
//!
//! A real lttng-sessiond records a live session into the relay while viewers of our own and babeltrace2 follow it. Every
//! one of them must see every event once, and the tracer must discard none; then the figures are printed.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::lttng::SessionDaemon;
use testkit::viewer::Babeltrace2;
use tracedir::Item;
use viewer::{Address, Options, Progress, Relay, Seek, Viewing};

use super::measure;
use crate::relays::OwnRelay;

/// Events of the session before the viewers come.
const EARLY: u64 = 100;
/// Threads that the viewers share.
const THREADS: usize = 4;
/// Viewers that come one after the other when all others are there, and leave.
const LATE: usize = 200;
/// How often a viewer asks.
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);

/// How the measurement is made.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Viewers of our own
    #[arg(long, default_value_t = 1000)]
    viewers: usize,
    /// babeltrace2 beside them
    #[arg(long, default_value_t = 3)]
    babeltrace2: usize,
    /// Events traced while they look, one each half millisecond
    #[arg(long, default_value_t = 10_000)]
    events: u64,
    /// The release binary
    #[arg(long, default_value = "target/release/throughline")]
    binary: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.binary.exists(), "{}: build it first", args.binary.display());
    let folder = tempfile::tempdir()?;
    let any = "127.0.0.1:0".parse()?;
    let relay = OwnRelay::start(&args.binary, folder.path(), any, any)?;
    let daemon = SessionDaemon::start()?;
    let program = daemon.compile_ticks()?;
    let lttng = |command: &str| daemon.lttng(command.split_whitespace());
    let emit = |count: u64, pause_us: u64| -> anyhow::Result<()> {
        let mut command = daemon.command(&program);
        command.args([count.to_string(), pause_us.to_string()]);
        let status = command.env("LTTNG_UST_REGISTER_TIMEOUT", "-1").status()?;
        ensure!(status.success(), "the traced program failed");
        Ok(())
    };
    let (control, data) = (relay.control.port(), relay.data.port());
    lttng(&format!("create crowd --live=100000 --set-url=net://127.0.0.1:{control}:{data}"))?;
    lttng("enable-channel -u ch --subbuf-size=65536 --num-subbuf=8")?;
    lttng("enable-event -u testkit:tick -c ch")?;
    lttng("start")?;
    emit(EARLY, 0)?;
    // Until the live timer has brought it.
    std::thread::park_timeout(Duration::from_millis(500));

    let memory_before = relay.resident()?;
    let cpu_before = measure::cpu_of_process(relay.pid())?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let path = format!("/host/{}/crowd", host.trim());
    let real = (0..args.babeltrace2)
        .map(|_| Babeltrace2::start(relay.viewers, &path))
        .collect::<std::io::Result<Vec<_>>>()?;
    let share = args.viewers.div_ceil(THREADS);
    // Nothing is sent: it ends when every thread has let go of its end.
    let (ready, all_ready) = std::sync::mpsc::channel::<()>();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let count = share.min(args.viewers.saturating_sub(number * share));
            let (viewers, ready) = (relay.viewers, ready.clone());
            std::thread::spawn(move || follow(viewers, count, || drop(ready)))
        })
        .collect();
    drop(ready);
    while all_ready.recv().is_ok() {}
    let mut late = Vec::new();
    for _ in 0..LATE {
        late.push(attach(&relay.viewers.to_string().parse()?, Instant::now())?.1.attached);
    }
    emit(args.events, 500)?;
    let memory = relay.resident()?;
    let cpu = measure::cpu_of_process(relay.pid())?.saturating_sub(cpu_before);
    lttng("destroy crowd")?;

    let mut attached = Vec::new();
    for thread in threads {
        for seen in thread.join().ok().context("a viewer's thread failed")?? {
            let expected = EARLY + args.events;
            ensure!(seen.events == expected, "a viewer saw {} of {expected}", seen.events);
            attached.push(seen.attached);
        }
    }
    for viewer in real {
        let printed = viewer.finish(PATIENCE).context("babeltrace2 does not end")?;
        ensure!(printed.status.success(), "babeltrace2: {}", printed.errors);
        let events = printed.lines.len() as u64;
        ensure!(events == args.events, "babeltrace2 saw {events} of {}", args.events);
    }
    report(args, [attached, late], memory.saturating_sub(memory_before), cpu)
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
fn report(
    args: &Args,
    attached: [Vec<Duration>; 2],
    memory: u64,
    cpu: Duration,
) -> anyhow::Result<()> {
    let all = args.viewers + args.babeltrace2;
    println!("{} viewers and {} babeltrace2 saw every event once", args.viewers, args.babeltrace2);
    println!("  from connecting to the first event:");
    for (who, mut times) in
        ["when all come at once", "who comes when all are there"].iter().zip(attached)
    {
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
        let (median, last) = (at(50).context("no viewers")?, at(99).context("no viewers")?);
        println!("    {who:<34} median {median:.1?}, p99 {last:.1?}");
    }
    println!(
        "  resident memory of the relay, more   {memory} KiB, {} a viewer",
        memory / all as u64
    );
    println!("  CPU time of the relay meanwhile      {cpu:?}");
    Ok(())
}

/// What a viewer saw.
struct Seen {
    attached: Duration,
    events: u64,
}

/// Attaches so many viewers to the only session and follows it to its end.
fn follow(relay: SocketAddr, count: usize, ready: impl FnOnce()) -> anyhow::Result<Vec<Seen>> {
    let address: Address = relay.to_string().parse()?;
    let epoch = Instant::now();
    let mut viewers = Vec::new();
    for _ in 0..count {
        let (viewing, seen) = attach(&address, epoch)?;
        viewers.push((viewing, seen, false));
    }
    ready();
    while viewers.iter().any(|(_, _, has_ended)| !has_ended) {
        let begin = Instant::now();
        for (viewing, seen, has_ended) in viewers.iter_mut().filter(|(_, _, ended)| !ended) {
            *has_ended = viewing.poll(epoch.elapsed())? == Progress::Ended;
            count_events(viewing, seen);
        }
        std::thread::park_timeout(POLL.saturating_sub(begin.elapsed()));
    }
    Ok(viewers.into_iter().map(|(_, seen, _)| seen).collect())
}

/// A viewer from the beginning of the only session that has seen an event; its clock began at `epoch`.
fn attach(
    address: &Address,
    epoch: Instant,
) -> anyhow::Result<(Viewing<impl std::io::Read + std::io::Write + use<>>, Seen)> {
    let begin = Instant::now();
    let mut relay = Relay::connect(address, Box::new(|| false))?;
    let sessions = relay.sessions()?;
    let options = Options { seek: Seek::Beginning, ..Options::default() };
    let mut viewing = relay.view(&sessions, options)?;
    let mut seen = Seen { attached: Duration::ZERO, events: 0 };
    while seen.events == 0 {
        viewing.poll(epoch.elapsed())?;
        count_events(&mut viewing, &mut seen);
        ensure!(begin.elapsed() < PATIENCE, "a viewer sees nothing");
    }
    seen.attached = begin.elapsed();
    Ok((viewing, seen))
}

fn count_events<S: std::io::Read + std::io::Write>(viewing: &mut Viewing<S>, seen: &mut Seen) {
    while let Some(item) = viewing.next_item() {
        if matches!(item, Item::Event(_)) {
            seen.events += 1;
        }
    }
}
