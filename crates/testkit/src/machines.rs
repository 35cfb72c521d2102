//! Machines for tests: network namespaces on a bridge.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{is_installed, skip};

/// The machine of the coordinator.
pub const COORDINATOR: u8 = 2;
/// The machines of workers.
pub const WORKERS: [u8; 3] = [3, 4, 5];
/// A name that stands for all workers, on the machine of the coordinator.
pub const ALL: &str = "workers.test";

/// A network of four machines: one for a coordinator and three for workers. This machine has an address in it, too.
#[derive(Debug)]
pub struct Network {
    name: String,
    subnet: u8,
}

impl Network {
    /// `None`, said, when this process may not make one. Networks of one process have different numbers, below three.
    ///
    /// # Panics
    /// When it may, and it fails.
    #[must_use]
    pub fn start(number: u8) -> Option<Self> {
        let is_root = fs::metadata("/proc/self")
            .is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
        if !is_root || !is_installed("ip") {
            skip("network namespaces need root and ip (apt-get install iproute2)");
            return None;
        }
        let process = std::process::id();
        let subnet = u8::try_from(process % 80 * 3).expect("less than 240") + number;
        let network = Self { name: format!("tl{}", process % 100_000), subnet };
        let bridge = network.bridge();
        if !said(&["link", "add", &bridge, "type", "bridge"]) {
            skip("this machine gives no bridge");
            return None;
        }
        let own = format!("{}/24", network.address(1));
        ip(&["addr", "add", &own, "dev", &bridge]);
        ip(&["link", "set", &bridge, "up"]);
        let machines = [COORDINATOR].into_iter().chain(WORKERS);
        for machine in machines {
            let (space, near) = (network.space(machine), format!("{bridge}v{machine}"));
            let address = format!("{}/24", network.address(machine));
            ip(&["netns", "add", &space]);
            ip(&["link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", &space]);
            ip(&["link", "set", &near, "master", &bridge, "up"]);
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"]);
            ip(&["-n", &space, "link", "set", "eth0", "up"]);
            ip(&["-n", &space, "link", "set", "lo", "up"]);
        }
        let workers = WORKERS.map(|it| format!("{} {ALL}\n", network.address(it)));
        let hosts = Path::new("/etc/netns").join(network.space(COORDINATOR));
        fs::create_dir_all(&hosts).expect("a folder");
        fs::write(hosts.join("hosts"), workers.concat()).expect("a file");
        Some(network)
    }

    fn bridge(&self) -> String {
        format!("{}n{}", self.name, self.subnet)
    }

    fn space(&self, machine: u8) -> String {
        format!("{}-{machine}", self.bridge())
    }

    /// The address of a machine; 1 is this one's.
    #[must_use]
    pub fn address(&self, machine: u8) -> String {
        format!("10.77.{}.{machine}", self.subnet)
    }

    /// A run of a program on a machine.
    #[must_use]
    pub fn command(&self, machine: u8, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(machine)]).arg(program);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in [COORDINATOR].into_iter().chain(WORKERS) {
            said(&["netns", "del", &self.space(machine)]);
        }
        said(&["link", "del", &self.bridge()]);
        drop(fs::remove_dir_all(Path::new("/etc/netns").join(self.space(COORDINATOR))));
    }
}

fn said(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
