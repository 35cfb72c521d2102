//! Child processes of a test: waited for by condition, ended with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that a test waits for. Only a failing test waits so long.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The command under test.
pub(crate) const THROUGHLINE: &str = env!("CARGO_BIN_EXE_throughline");

/// Polls until the condition gives a value.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A child that is killed when the test ends before it does. Its standard error goes to a file.
pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
    log: std::path::PathBuf,
}

impl Running {
    /// Starts it; `log` gets what it says.
    pub(crate) fn start(command: &mut Command, name: &str, log: &Path) -> Self {
        let stderr = fs::File::create(log).unwrap();
        let child = command.stdin(Stdio::null()).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name: name.to_owned(), log: log.to_owned() }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has said a text.
    pub(crate) fn wait_until_said(&mut self, text: &str) {
        let deadline = Instant::now() + WATCHDOG;
        while !self.said().contains(text) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended: {ended:?}: {}", self.name, self.said());
            assert!(
                Instant::now() < deadline,
                "{} never said {text:?}: {}",
                self.name,
                self.said()
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The first line of a piped standard output that begins with `prefix`; the rest of the line.
    pub(crate) fn line_after(&mut self, prefix: &str) -> String {
        let stdout = self.child.stdout.take().expect("standard output is a pipe");
        BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
            .unwrap_or_else(|| panic!("{} never printed {prefix:?}: {}", self.name, self.said()))
    }

    /// Sends a signal by name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success(), "kill -{name} {}", self.name);
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn end(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let name = self.name.clone();
        let child = &mut self.child;
        wait_for(&format!("the end of {name}"), || child.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
