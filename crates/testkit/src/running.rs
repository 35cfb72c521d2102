//! Child processes of a test: waited for by condition, ended with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take that a test waits for. Only a failing test waits so long.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Polls until the condition gives a value.
///
/// # Panics
/// When it never does.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
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
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts it; `log` gets what it says.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command, name: &str, log: &Path) -> Self {
        let stderr = fs::File::create(log).expect("a log");
        let child = command.stdin(Stdio::null()).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name: name.to_owned(), log: log.to_owned() }
    }

    /// What it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has said a text.
    ///
    /// # Panics
    /// When it ends before, or never says it.
    pub fn wait_until_said(&mut self, text: &str) {
        let deadline = Instant::now() + WATCHDOG;
        while !self.said().contains(text) {
            let ended = self.child.try_wait().expect("a child");
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
    ///
    /// # Panics
    /// When there is none.
    pub fn line_after(&mut self, prefix: &str) -> String {
        let stdout = self.child.stdout.take().expect("standard output is a pipe");
        BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
            .unwrap_or_else(|| panic!("{} never printed {prefix:?}: {}", self.name, self.said()))
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("kill").success(), "kill -{name} {}", self.name);
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Panics
    /// When it never does.
    pub fn end(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let name = self.name.clone();
        let child = &mut self.child;
        wait_for(&format!("the end of {name}"), || child.try_wait().expect("a child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
