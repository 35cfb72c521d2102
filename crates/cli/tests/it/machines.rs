//! Machines for tests: network namespaces on a bridge, and workers in them.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Running, THROUGHLINE, wait_for};

/// Where workers listen, each in a namespace of its own.
const PORT: u16 = 5345;
/// The machine of the coordinator; the others are of workers.
pub(crate) const COORDINATOR: u8 = 2;
/// A name that stands for all workers, on the machine of the coordinator.
pub(crate) const ALL: &str = "workers.test";

/// A network of four machines: one for a coordinator and three for workers. This machine has an address in it, too.
pub(crate) struct Network {
    name: String,
    subnet: u8,
}

impl Network {
    /// `None`, said, when this process may not make one. Networks of one process have different numbers, below three.
    pub(crate) fn start(number: u8) -> Option<Self> {
        let is_root = fs::metadata("/proc/self")
            .is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
        if !is_root || !testkit::is_installed("ip") {
            testkit::skip("network namespaces need root and ip (apt-get install iproute2)");
            return None;
        }
        let process = std::process::id();
        let subnet = u8::try_from(process % 80 * 3).unwrap() + number;
        let network = Self { name: format!("tl{}", process % 100_000), subnet };
        let bridge = network.bridge();
        if !said(&["link", "add", &bridge, "type", "bridge"]) {
            testkit::skip("this machine gives no bridge");
            return None;
        }
        let own = format!("{}/24", network.address(1));
        ip(&["addr", "add", &own, "dev", &bridge]);
        ip(&["link", "set", &bridge, "up"]);
        let machines = COORDINATOR..COORDINATOR + 4;
        for machine in machines.clone() {
            let (space, near) = (network.space(machine), format!("{bridge}v{machine}"));
            let address = format!("{}/24", network.address(machine));
            ip(&["netns", "add", &space]);
            ip(&["link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", &space]);
            ip(&["link", "set", &near, "master", &bridge, "up"]);
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"]);
            ip(&["-n", &space, "link", "set", "eth0", "up"]);
            ip(&["-n", &space, "link", "set", "lo", "up"]);
        }
        let workers = machines.skip(1).map(|it| format!("{} {ALL}\n", network.address(it)));
        let hosts = Path::new("/etc/netns").join(network.space(COORDINATOR));
        fs::create_dir_all(&hosts).unwrap();
        fs::write(hosts.join("hosts"), workers.collect::<String>()).unwrap();
        Some(network)
    }

    fn bridge(&self) -> String {
        format!("{}n{}", self.name, self.subnet)
    }

    fn space(&self, machine: u8) -> String {
        format!("{}-{machine}", self.bridge())
    }

    /// The address of a machine; 1 is this one's.
    pub(crate) fn address(&self, machine: u8) -> String {
        format!("10.77.{}.{machine}", self.subnet)
    }

    /// A run of the command under test on a machine.
    pub(crate) fn command(&self, machine: u8) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(machine), THROUGHLINE]);
        command
    }

    /// Workers on all machines but the coordinator's; what each says goes to a file in `logs`.
    pub(crate) fn workers(&self, logs: &Path, environment: &[(&str, &str)]) -> Vec<Worker> {
        let machines = COORDINATOR + 1..COORDINATOR + 4;
        machines.map(|machine| self.worker(machine, logs, environment)).collect()
    }

    /// A worker that is ready.
    pub(crate) fn worker(&self, machine: u8, logs: &Path, environment: &[(&str, &str)]) -> Worker {
        let address = format!("{}:{PORT}", self.address(machine));
        let mut command = self.command(machine);
        command.args(["worker", "--threads", "1", "--listen", &address]);
        command.envs(environment.iter().copied()).env("RUST_LOG", "blocks=debug");
        let log = (0..).map(|n| logs.join(format!("worker-{machine}-{n}"))).find(|it| !it.exists());
        let log = log.unwrap();
        let running = Running::start(command.stdout(Stdio::null()), "worker", &log);
        wait_for("a worker", || TcpStream::connect(&address).ok());
        Worker { running, address, log }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in COORDINATOR..COORDINATOR + 4 {
            said(&["netns", "del", &self.space(machine)]);
        }
        said(&["link", "del", &self.bridge()]);
        drop(fs::remove_dir_all(Path::new("/etc/netns").join(self.space(COORDINATOR))));
    }
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

fn said(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
