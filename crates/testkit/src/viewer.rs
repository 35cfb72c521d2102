//! babeltrace2 as a viewer of a live session: what it prints, as it prints it.

use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running babeltrace2. It is killed with this value.
#[derive(Debug)]
pub struct Babeltrace2 {
    child: Child,
    lines: Receiver<(Instant, String)>,
    seen: Vec<(Instant, String)>,
    errors: Option<JoinHandle<String>>,
}

/// What a babeltrace2 that ended has printed.
#[derive(Debug)]
pub struct Printed {
    /// How it ended.
    pub status: ExitStatus,
    /// When each line of standard output came, and the line.
    pub lines: Vec<(Instant, String)>,
    /// Standard error.
    pub errors: String,
}

impl Printed {
    /// Standard output as it would be in a file.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|(_, line)| [line.as_str(), "\n"]).collect()
    }
}

impl Babeltrace2 {
    /// Follows what is at `path` (`/host/HOST/SESSION`, or nothing to list sessions) on a relay's port for viewers.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(relay: SocketAddr, path: &str) -> io::Result<Self> {
        let mut child = Command::new("babeltrace2")
            .args(["--clock-cycles", "--input-format=lttng-live", &format!("net://{relay}{path}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, lines) = channel();
        let output = child.stdout.take().map(BufReader::new);
        std::thread::spawn(move || {
            for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut text = String::new();
                drop(errors.read_to_string(&mut text));
                text
            })
        });
        Ok(Self { child, lines, seen: Vec::new(), errors })
    }

    /// Waits until so many lines were printed; says whether they were before the patience ended.
    pub fn wait_for(&mut self, count: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.seen.len() < count {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// Waits until it ends; `None` when it does not within the patience, and then it is killed.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Option<Printed> {
        self.wait_for(usize::MAX, patience);
        let deadline = Instant::now() + patience;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                Ok(None) | Err(_) => return None,
            }
        };
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        Some(Printed { status, lines: std::mem::take(&mut self.seen), errors })
    }

    /// What it has printed so far.
    #[must_use]
    pub fn lines(&self) -> &[(Instant, String)] {
        &self.seen
    }
}

impl Drop for Babeltrace2 {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
