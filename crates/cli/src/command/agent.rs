//! `throughline agent`: samples the whole machine, always, keeps what applications record, and delivers both.

use std::fs;
use std::io::{self, IsTerminal};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use agent::{Agent, Bounds, Keep, Kind, Settings, Status, Target};
use anyhow::Context;
use capture::profile::{Budget, Config, Packer, Report, Seen, keep_little_memory, sample};
use indicatif::{ProgressBar, ProgressStyle};

use crate::command::profile::{NAMELESS, allow_files, say_means};
use crate::command::recording::RecordingArgs;
use crate::command::sending::SendingArgs;
use crate::log;
use crate::outcome::{Outcome, complain};
use crate::stop;
use crate::units::{parse_duration, parse_size, size};

const EXAMPLES: &str = "\
Examples:
  throughline agent --send http://collector:4318                 OTLP over HTTP
  throughline agent --send https://otlp.example --header-file /etc/throughline/headers --label deployment.environment.name=prod
  throughline agent --send grpcs://otlp.example --send pyroscope+http://127.0.0.1:4040
  throughline agent --send file:/var/lib/profiles --keep-size 2GiB
  throughline profile send /var/lib/profiles/*.otlp.gz --to http://collector:4318
                                                                 send again what lies in a folder
  throughline agent --record json:/var/lib/records               what applications record by tracepoints, as lines of JSON
  throughline agent --redis 127.0.0.1:6379 --record json:/var/lib/records
                                                                 OSProfiler's notifications, and what its commands ask for
  throughline agent --record http://collector:4318               the same as spans and events of OpenTelemetry
  throughline agent --config /etc/throughline.toml

Every packet holds the names of all its frames, and is kept on the disk until each target has taken it: for a day and up to 1 GiB
unless told otherwise. What has to be dropped is counted, and told in a later packet. See docs/agent.md, and
docs/recording.md for records.

SIGINT or SIGTERM end it: the last packet is sent, for up to --drain, and what could not be sent waits for the next start.
A second one ends it at once.";

/// How often the line of a terminal is written anew.
const LINE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// File with options: keys below [agent] are the options' long names, such as send = ["http://collector:4318"], and those
    /// below [agent.label] attributes; what the command line gives leaves its key aside. See docs/agent.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who takes the packets: http://HOST:PORT or https://HOST for OTLP over HTTP, grpc://HOST or grpcs://HOST for OTLP over gRPC,
    /// pyroscope+http://HOST:PORT, file:FOLDER; may be repeated. Nothing is sampled when nobody is named
    #[arg(long, value_name = "URL", required_unless_present_any = ["record", "redis"])]
    send: Vec<Target>,
    #[command(flatten)]
    sending: SendingArgs,
    /// An attribute that every process gets, as resource attribute of OTLP; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    label: Vec<(String, String)>,
    /// How often a second to look at each CPU
    #[arg(long, value_name = "HZ", default_value_t = 19, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
    /// Sample who waits, too, in packets of their own: times off the CPU
    #[arg(long)]
    off_cpu: bool,
    /// How much time is in one packet
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    window: Duration,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    spool: SpoolArgs,
    #[command(flatten)]
    recording: RecordingArgs,
    /// The oldest files of a file: target are deleted while all together are larger
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    keep_size: u64,
    /// Files of a file: target are deleted when they are older by so much than the one that came last
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    keep_for: Option<Duration>,
    /// How long sending may go on at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    drain: Duration,
}

/// What sampling may cost.
#[derive(clap::Args)]
struct BudgetArgs {
    /// CPU time that may be taken each second, for each CPU, such as 10ms; beyond it windows get longer, then the frequency and the depth
    /// of stacks lower, and each packet says so
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    budget_cpu: Option<Duration>,
    /// Bytes of packets each second, in gzip, such as 20kB; beyond it as above
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget_bytes: Option<u64>,
    /// Memory of the process, such as 100MiB; beyond it as above
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget_memory: Option<u64>,
}

impl BudgetArgs {
    fn budget(&self, sent: Arc<AtomicU64>) -> Budget {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Budget {
            cpu_ns: self.budget_cpu.map(nanoseconds).and_then(NonZeroU64::new),
            bytes: self.budget_bytes.and_then(NonZeroU64::new),
            memory_bytes: self.budget_memory.and_then(NonZeroU64::new),
            interval: Duration::ZERO,
            sent,
        }
    }
}

/// What waits.
#[derive(clap::Args)]
struct SpoolArgs {
    /// Folder of packets that wait; only one agent can have it
    #[arg(long, value_name = "DIR", default_value = "throughline-spool")]
    spool: PathBuf,
    /// The oldest packets are dropped while all that wait are larger
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    spool_size: u64,
    /// Packets are dropped when they are older by so much than the one that came last
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    spool_age: Duration,
    /// Memory for packets while the disk cannot be written
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    spool_memory: u64,
}

impl SpoolArgs {
    const fn bounds(&self) -> Bounds {
        let Self { spool_size, spool_age, spool_memory, .. } = self;
        Bounds { bytes: *spool_size, age: *spool_age, memory: *spool_memory }
    }
}

fn parse_label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE"),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    log::start();
    let stopped = Arc::new(AtomicBool::new(false));
    let signals = stop::on_signal_set(Arc::clone(&stopped))?;
    let mut machine = of_machine();
    machine.extend(args.label.iter().cloned());
    let recording = args.recording.start(&machine)?;
    if let Some(recording) = &recording {
        recording.heed_signals()?;
    }
    let sampled = if args.send.is_empty() {
        // Until the first signal.
        signals.recv().context("nobody can end this")
    } else {
        sample_machine(&args, machine, &stopped)
    };
    // Also what was recorded before a failure.
    let recorded = recording.map_or(Ok(()), |recording| recording.stop(args.drain));
    sampled.and(recorded)?;
    Ok(Outcome::Done)
}

/// Samples until it is stopped, and sends what it finds.
fn sample_machine(
    args: &Args,
    attributes: Vec<(String, String)>,
    stopped: &AtomicBool,
) -> anyhow::Result<()> {
    keep_little_memory();
    let keep = Keep { bytes: args.keep_size, age: args.keep_for };
    let sendings = args.sending.of(&args.send, keep)?;
    let sealed = Arc::default();
    let settings = Settings {
        spool: args.spool.spool.clone(),
        bounds: args.spool.bounds(),
        targets: args.send.iter().cloned().zip(sendings).collect(),
        sealed: Arc::clone(&sealed),
    };
    let agent = Agent::start(settings).context("cannot start the agent")?;
    let names: Vec<_> = args.send.iter().map(Target::url).collect();
    complain(&format!("agent: sending to {}", names.join(", ")));
    let config = Config {
        frequency_hz: args.frequency.into(),
        processes: None,
        duration: None,
        off_cpu: args.off_cpu,
        budget: args.budget.budget(sealed),
        copies_only: false,
    };
    let sampled = watch(args, &config, attributes, stopped, &agent);
    // Also what was sampled before a failure.
    let status = agent.stop(args.drain);
    for line in lines(&status) {
        complain(&line);
    }
    let report = sampled?;
    let lost = report.counts.no_room + report.no_room;
    for (count, what) in [(lost, "samples"), (report.files.no_room, "times a file")] {
        if count > 0 {
            complain(&format!("agent: {count} {what} found no room"));
        }
    }
    Ok(())
}

/// Samples until the end, and gives each packet to the agent.
fn watch(
    args: &Args,
    config: &Config,
    attributes: Vec<(String, String)>,
    stopped: &AtomicBool,
    agent: &Agent,
) -> anyhow::Result<Report> {
    let mut packer = Packer::new(args.window, config.frequency_hz).with_attributes(attributes);
    let mut line = Line::new();
    allow_files(NAMELESS);
    let mut offer = |packet| agent.offer(packet);
    let report = sample(
        config,
        stopped,
        |means| {
            complain("agent: sampling");
            say_means(means, config.off_cpu);
        },
        |seen| match seen {
            Seen::Sample(sample) => packer.add(&sample).into_iter().for_each(&mut offer),
            Seen::Until(moment) => {
                line.tell(agent);
                agent.tell(|loss, samples| match loss.kind {
                    Kind::OffCpu => packer.lost_off_cpu(&loss.class, samples),
                    Kind::Cpu | Kind::Other => packer.lost(&loss.class, samples),
                });
                packer.until(&moment).into_iter().for_each(&mut offer);
            }
        },
    );
    line.finish();
    packer.finish().into_iter().for_each(offer);
    Ok(report?)
}

/// What every process of this machine has: names of OpenTelemetry's semantic conventions.
fn of_machine() -> Vec<(String, String)> {
    let uname = rustix::system::uname();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut attributes = vec![
        (profile::keys::HOST_NAME.to_owned(), uname.nodename().to_string_lossy().into_owned()),
        ("host.arch".to_owned(), arch.to_owned()),
        ("os.type".to_owned(), std::env::consts::OS.to_owned()),
    ];
    // A machine may have none.
    if let Ok(id) = fs::read_to_string("/etc/machine-id")
        && !id.trim().is_empty()
    {
        attributes.push(("host.id".to_owned(), id.trim().to_owned()));
    }
    attributes
}

/// How it goes, on a terminal.
struct Line {
    bar: Option<ProgressBar>,
    last: Instant,
}

impl Line {
    fn new() -> Self {
        let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let Some((bar, style)) = bar.as_ref().zip(ProgressStyle::with_template("{msg}").ok()) {
            bar.set_style(style);
        }
        Self { bar, last: Instant::now() }
    }

    fn tell(&mut self, agent: &Agent) {
        if let Some(bar) = self.bar.as_ref().filter(|_| self.last.elapsed() >= LINE) {
            self.last = Instant::now();
            bar.set_message(lines(&agent.status()).join("; "));
            bar.tick();
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A line for each target, and one for what waits.
fn lines(status: &Status) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (label, counts) in &status.targets {
        let mut line = format!(
            "{label}: {} packets delivered of {}",
            counts.delivered,
            counts.sealed + counts.found
        );
        for (reason, packets) in &counts.dropped {
            line.push_str(&format!(", {packets} dropped ({})", reason.as_str()));
        }
        if counts.rejected_profiles > 0 {
            line.push_str(&format!(", {} profiles rejected", counts.rejected_profiles));
        }
        if counts.waiting > 0 {
            line.push_str(&format!(", {} wait", counts.waiting));
        }
        lines.push(line);
    }
    if status.waiting > 0 {
        lines.push(format!("spool: {}", size(status.bytes + status.memory)));
    }
    lines
}
