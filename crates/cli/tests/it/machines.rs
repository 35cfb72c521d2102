//! Workers on machines of their own.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::machines::{Network, WORKERS};

use crate::process::{Running, THROUGHLINE, wait_for};

/// Where workers listen.
const PORT: u16 = 5345;

/// Workers on all machines but the coordinator's; what each says goes to a file in `logs`.
pub(crate) fn start_workers(
    network: &Network,
    logs: &Path,
    environment: &[(&str, &str)],
) -> Vec<Worker> {
    WORKERS.into_iter().map(|machine| worker(network, machine, logs, environment)).collect()
}

/// A worker that is ready.
fn worker(network: &Network, machine: u8, logs: &Path, environment: &[(&str, &str)]) -> Worker {
    let address = format!("{}:{PORT}", network.address(machine));
    let mut command = network.command(machine, THROUGHLINE);
    command.args(["worker", "--threads", "1", "--listen", &address]);
    command.envs(environment.iter().copied()).env("RUST_LOG", "blocks=debug");
    let log = (0..).map(|n| logs.join(format!("worker-{machine}-{n}"))).find(|it| !it.exists());
    let log = log.unwrap();
    let running = Running::start(command.stdout(Stdio::null()), "worker", &log);
    wait_for("a worker", || TcpStream::connect(&address).ok());
    Worker { running, address, log }
}

pub(crate) struct Worker {
    pub(crate) running: Running,
    pub(crate) address: String,
    log: PathBuf,
}

impl Worker {
    /// The blocks that it made, by name, as often as it did.
    pub(crate) fn made(&self) -> Vec<String> {
        made(&fs::read_to_string(&self.log).unwrap())
    }
}

/// The blocks that a log says were made.
pub(crate) fn made(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("made"));
    let name = |line: &str| {
        let (_, rest) = line.split_once("block=")?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    lines.filter_map(name).collect()
}
