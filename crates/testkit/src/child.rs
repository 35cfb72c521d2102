//! A test that runs as a process of its own, so that another test can kill what it runs.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// The process. It is killed with this value.
#[derive(Debug)]
pub struct TestProcess {
    process: Child,
    addresses: Vec<SocketAddr>,
}

impl TestProcess {
    /// Runs the test `name` of the running test program with an environment variable that tells it what it is for, and waits
    /// until it says where it listens: a line of `listens` and addresses. It has a standard input that stays open.
    ///
    /// # Errors
    /// When it cannot be started, or ends without that line.
    pub fn start(name: &str, variable: &str, value: impl AsRef<OsStr>) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--exact", name, "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().map(BufReader::new);
        let mut started = Self { process, addresses: Vec::new() };
        for line in output.into_iter().flat_map(BufRead::lines) {
            if let Some(addresses) = line?.strip_prefix("listens ") {
                let addresses = addresses.split_whitespace().map(str::parse);
                started.addresses =
                    addresses.collect::<Result<_, _>>().map_err(io::Error::other)?;
                return Ok(started);
            }
        }
        Err(io::Error::other(format!("{name} does not say where it listens")))
    }

    /// Where it listens, in the order in which it said so.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
