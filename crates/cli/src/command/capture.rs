//! `throughline capture kernel`: traces this machine's kernel into a folder or to a relay.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use capture::kernel::{self, Config, Group, Output, Processes, RelayAddress, Report};
use clap::Subcommand;
use door::Settings;
use model::Pid;

use crate::command::tls::ShownArgs;
use crate::outcome::{Outcome, complain};
use crate::stop::Stop;
use crate::units::{parse_duration, parse_size};

const DEFAULT_CONTROL_PORT: u16 = 5342;
const DEFAULT_DATA_PORT: u16 = 5343;

const EXAMPLES: &str = "\
Examples:
  throughline capture kernel --output trace --for 10s
  throughline capture kernel --to net://127.0.0.1 --rotate 2s
  throughline capture kernel --to tls://relay-1 --tls-ca ca.pem --token-file token
  throughline capture kernel --output trace --pid 1234
  throughline capture kernel --output trace --events sched,disk";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// System calls, scheduling, process life, interrupts, disks and network of the whole machine (needs root)
    #[command(before_help = EXAMPLES)]
    Kernel(KernelArgs),
}

#[derive(clap::Args)]
#[group(skip)]
struct KernelArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    shown: ShownArgs,
    /// Begin a new trace chunk this often
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rotate: Option<Duration>,
    /// Name of the recording session
    #[arg(long, value_name = "NAME", default_value = "kernel")]
    session: String,
    /// Stop after this time; else with Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// What to capture, separated by commas
    #[arg(
        long,
        value_name = "GROUPS",
        value_delimiter = ',',
        default_value = "calls,sched,irq,disk,net"
    )]
    events: Vec<EventGroup>,
    /// Trace the system calls of this process and of those it starts, not of all; may be repeated
    #[arg(long, value_name = "PID", conflicts_with = "exclude_pid")]
    pid: Vec<i32>,
    /// Leave out the system calls of this process; may be repeated
    #[arg(long, value_name = "PID")]
    exclude_pid: Vec<i32>,
    /// Size of each CPU's buffer in the kernel; what does not fit is counted as discarded
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8MiB")]
    buffer: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum EventGroup {
    /// System calls
    Calls,
    /// Scheduling and process life, and who is who at the head of each chunk
    Sched,
    /// Interrupts of devices, and soft interrupts
    Irq,
    /// Requests to block devices
    Disk,
    /// Packets that are sent and received
    Net,
    /// Pages of memory that are allocated and freed: many
    Memory,
}

impl From<EventGroup> for Group {
    fn from(group: EventGroup) -> Self {
        match group {
            EventGroup::Calls => Self::Calls,
            EventGroup::Sched => Self::Scheduling,
            EventGroup::Irq => Self::Interrupts,
            EventGroup::Disk => Self::Disks,
            EventGroup::Net => Self::Network,
            EventGroup::Memory => Self::Memory,
        }
    }
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Stream to a relay: net://HOST[:CONTROL_PORT[:DATA_PORT]], or tls://HOST[:PORT] for the port with TLS of one of ours
    #[arg(long, value_name = "URL", value_parser = parse_relay)]
    to: Option<RelayAddress>,
    /// Write to this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let What::Kernel(args) = args.what;
    let config = args.into_config()?;
    kernel::preflight().context("no kernel trace")?;
    let report = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(capture(config))?;
    complain(&summary(&report));
    Ok(Outcome::Done)
}

/// Captures until the first SIGINT or SIGTERM; a second one does not wait for the orderly end.
async fn capture(config: Config) -> anyhow::Result<Report> {
    let mut told = Stop::listen()?;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let mut capture = tokio::task::spawn_blocking(move || {
        kernel::run_with(&config, &seen, || complain("capturing the kernel; Ctrl-C ends"))
    });
    loop {
        tokio::select! {
            ended = &mut capture => return Ok(ended.context("the capture")??),
            () = told.asked() => {}
        }
        if stop.swap(true, Ordering::Relaxed) {
            complain("left at once; the last chunk may be incomplete");
            std::process::exit(1);
        }
    }
}

impl KernelArgs {
    fn into_config(self) -> anyhow::Result<Config> {
        let is_tls = self.target.to.as_ref().is_some_and(|address| address.tls.is_some());
        let settings = self.shown.settings(is_tls)?;
        let output = match (self.target.to, self.target.output) {
            (Some(address), _) => {
                Output::Relay(RelayAddress { tls: is_tls.then_some(settings), ..address })
            }
            (None, Some(folder)) => Output::Folder(folder),
            (None, None) => anyhow::bail!("one of --to and --output is needed"),
        };
        let listed = |pids: Vec<i32>| pids.into_iter().map(Pid::new).collect();
        let processes = if self.pid.is_empty() {
            Processes::AllBut(listed(self.exclude_pid))
        } else {
            Processes::Only(listed(self.pid))
        };
        Ok(Config {
            session: self.session,
            rotate: self.rotate,
            duration: self.duration,
            ring_bytes: self.buffer,
            groups: self.events.into_iter().map(Group::from).collect(),
            processes,
            ..Config::new(output)
        })
    }
}

fn parse_relay(url: &str) -> Result<RelayAddress, RelayUrlError> {
    let (is_tls, rest) = match (url.strip_prefix("net://"), url.strip_prefix("tls://")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err(RelayUrlError::Scheme),
    };
    let (host, ports) = match rest.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ports))) => (host, ports.strip_prefix(':')),
        Some(None) => return Err(RelayUrlError::Host),
        None => rest.split_once(':').map_or((rest, None), |(host, ports)| (host, Some(ports))),
    };
    if host.is_empty() || host.contains('/') {
        return Err(RelayUrlError::Host);
    }
    let mut ports = ports.into_iter().flat_map(|ports| ports.split(':'));
    let mut port = |default| match ports.next() {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_not_a_number| RelayUrlError::Port),
    };
    let (control_port, data_port, tls) = if is_tls {
        let port = port(door::DEFAULT_PORT)?;
        (port, port, Some(Settings::default()))
    } else {
        (port(DEFAULT_CONTROL_PORT)?, port(DEFAULT_DATA_PORT)?, None)
    };
    match ports.next() {
        None => Ok(RelayAddress { host: host.to_owned(), control_port, data_port, tls }),
        Some(_) => Err(RelayUrlError::Port),
    }
}

/// Why a URL names no relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum RelayUrlError {
    #[error("a relay is net://HOST[:CONTROL_PORT[:DATA_PORT]] or tls://HOST[:PORT]")]
    Scheme,
    #[error("no host")]
    Host,
    #[error("not a port")]
    Port,
}

fn summary(report: &Report) -> String {
    let Report { events, packets, chunks, late, missed, reconnections, .. } = report;
    let discarded = report.discarded_total();
    let mut line =
        format!("{events} events, {discarded} discarded, in {packets} packets and {chunks} chunks");
    if *reconnections > 0 {
        line.push_str(&format!("; the relay was lost and found again {reconnections} times"));
    }
    if *missed > 0 {
        line.push_str(&format!("; {missed} not seen"));
    }
    if *late > 0 {
        line.push_str(&format!("; {late} with a later time than their own"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: Result<(&str, u16, u16), RelayUrlError>) {
        let expected = expected.map(|(host, control_port, data_port)| RelayAddress {
            host: host.to_owned(),
            control_port,
            data_port,
            tls: url.starts_with("tls").then(Settings::default),
        });
        assert_eq!(parse_relay(url), expected, "{url}");
    }

    #[test]
    fn relays_are_named_as_in_lttng() {
        check("net://relay", Ok(("relay", 5342, 5343)));
        check("net://127.0.0.1:6000", Ok(("127.0.0.1", 6000, 5343)));
        check("net://h:1:2", Ok(("h", 1, 2)));
        check("net://[::1]:1:2", Ok(("::1", 1, 2)));
        check("net://[::1]", Ok(("::1", 5342, 5343)));
        check("tls://relay", Ok(("relay", 5346, 5346)));
        check("tls://[::1]:7", Ok(("::1", 7, 7)));
        check("tls://h:1:2", Err(RelayUrlError::Port));
        check("tcp://h", Err(RelayUrlError::Scheme));
        check("net://:1:2", Err(RelayUrlError::Host));
        check("net://h:1:2:3", Err(RelayUrlError::Port));
        check("net://h:70000", Err(RelayUrlError::Port));
    }
}
