//! Private LTTng daemons, one for sessions and one for the network: nobody else's is used or disturbed, and several
//! may run at once.
//!
//! An unprivileged session daemon keeps its sockets below `LTTNG_HOME`. The daemon of root always uses `/run/lttng`,
//! so it gets a mount namespace in which that folder and `/dev/shm` are its own.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program of [`SessionDaemon::compile_ticks`].
const TICKS: [(&str, &str); 2] = [
    ("ticks.h", include_str!("../assets/ticks.h")),
    ("ticks.c", include_str!("../assets/ticks.c")),
];

/// How long the daemon may take to open its client socket.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Why the tools could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is not there, or a temporary folder could not be made.
    #[error("{what}")]
    Io {
        /// What was being started or made.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The daemon ended or stayed silent before it took connections.
    #[error("{program} does not answer (ended: {ended:?})")]
    NoDaemon {
        /// The daemon.
        program: &'static str,
        /// Its exit, when it ended.
        ended: Option<std::process::ExitStatus>,
    },
    /// An `lttng` command failed.
    #[error("lttng {arguments:?}: {status}: {message}")]
    Refused {
        /// The command's arguments.
        arguments: Vec<String>,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it printed on standard error.
        message: String,
    },
    /// The traced program could not be compiled.
    #[error("cc: {message}")]
    Compiler {
        /// What it printed on standard error.
        message: String,
    },
}

/// A running session daemon. It ends, and its folder goes, with this value.
#[derive(Debug)]
pub struct SessionDaemon {
    home: TempDir,
    daemon: Child,
    own_namespace: bool,
}

impl SessionDaemon {
    /// Starts a daemon without its kernel half and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Io`] when a program is missing, [`Error::NoDaemon`] when it does not come up.
    pub fn start() -> Result<Self, Error> {
        let home = tempfile::tempdir()
            .map_err(|source| Error::Io { what: "a temporary folder", source })?;
        let own_namespace = is_root();
        let mut command =
            if own_namespace { in_new_namespace() } else { Command::new("lttng-sessiond") };
        let daemon = command
            .arg("--no-kernel")
            .env("LTTNG_HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Io { what: "lttng-sessiond", source })?;
        let mut started = Self { home, daemon, own_namespace };
        started.wait_until_it_answers()?;
        Ok(started)
    }

    /// A command that sees this daemon: `lttng`, or a traced application. Give absolute paths: entering the
    /// daemon's namespace makes `/` the working folder.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if self.own_namespace {
            let mut enter = Command::new("nsenter");
            enter.arg("--mount").arg("--target").arg(self.daemon.id().to_string());
            enter.arg("--").arg(program);
            enter
        } else {
            Command::new(program)
        };
        command.env("LTTNG_HOME", self.home.path());
        command
    }

    /// Runs `lttng ARGUMENTS` and expects success.
    ///
    /// # Errors
    /// [`Error::Refused`] with what it printed when it fails.
    pub fn lttng<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Output, Error> {
        let mut command = self.command("lttng");
        command.arg("--no-sessiond").args(arguments).stdin(Stdio::null());
        let output = command.output().map_err(|source| Error::Io { what: "lttng", source })?;
        if output.status.success() {
            return Ok(output);
        }
        Err(Error::Refused {
            arguments: command.get_args().map(|a| a.to_string_lossy().into_owned()).collect(),
            status: output.status,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// Compiles a program to be traced, which lives as long as the daemon: `PROGRAM COUNT [PAUSE_US]` emits so many events
    /// `testkit:tick` and waits so many microseconds before each; their field `seq` is their number from 0 on.
    ///
    /// # Errors
    /// [`Error::Io`] without a compiler, [`Error::Compiler`] without the development files of LTTng-UST.
    pub fn compile_ticks(&self) -> Result<PathBuf, Error> {
        let folder = self.folder();
        for (name, text) in TICKS {
            fs::write(folder.join(name), text)
                .map_err(|source| Error::Io { what: "the source of a traced program", source })?;
        }
        let mut compiler = Command::new("cc");
        compiler.current_dir(folder).args(["-o", "ticks", "ticks.c", "-I.", "-llttng-ust"]);
        let output = compiler.output().map_err(|source| Error::Io { what: "cc", source })?;
        if output.status.success() {
            return Ok(folder.join("ticks"));
        }
        Err(Error::Compiler { message: String::from_utf8_lossy(&output.stderr).into_owned() })
    }

    /// A folder that lives as long as the daemon.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let ended = self
                .daemon
                .try_wait()
                .map_err(|source| Error::Io { what: "lttng-sessiond", source })?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Error::NoDaemon { program: "lttng-sessiond", ended });
            }
            if self.client_socket().exists() && self.lttng(["list"]).is_ok() {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn client_socket(&self) -> PathBuf {
        if self.own_namespace {
            PathBuf::from(format!(
                "/proc/{}/root/run/lttng/client-lttng-sessiond",
                self.daemon.id()
            ))
        } else {
            self.home.path().join(".lttng/client-lttng-sessiond")
        }
    }
}

impl Drop for SessionDaemon {
    /// Asks the daemon to end, so that it takes its consumer daemons along, and waits for it.
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.daemon.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            drop(self.daemon.kill());
        }
        drop(self.daemon.wait());
    }
}

/// A running `lttng-relayd` that listens on ports of this machine alone and writes below a folder of its own. It
/// ends, and its folder goes, with this value.
#[derive(Debug)]
pub struct RelayDaemon {
    folder: TempDir,
    daemon: Child,
    control: SocketAddr,
    data: SocketAddr,
    live: SocketAddr,
}

impl RelayDaemon {
    /// Starts a daemon and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Io`] when the program is missing, [`Error::NoDaemon`] when it does not come up.
    pub fn start() -> Result<Self, Error> {
        let folder = tempfile::tempdir()
            .map_err(|source| Error::Io { what: "a temporary folder", source })?;
        // The daemon cannot be told to pick free ports, so these are free ones of a moment ago.
        let [control, data, live] =
            free_ports().map_err(|source| Error::Io { what: "a free port", source })?;
        let daemon = Command::new("lttng-relayd")
            .arg(format!("--control-port=tcp://{control}"))
            .arg(format!("--data-port=tcp://{data}"))
            .arg(format!("--live-port=tcp://{live}"))
            .arg("--output")
            .arg(folder.path())
            .env("LTTNG_HOME", folder.path())
            .env("LTTNG_RELAYD_HEALTH", folder.path().join("health"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Io { what: "lttng-relayd", source })?;
        let mut started = Self { folder, daemon, control, data, live };
        started.wait_until_it_listens()?;
        Ok(started)
    }

    /// Where control connections are taken.
    #[must_use]
    pub const fn control(&self) -> SocketAddr {
        self.control
    }

    /// Where data connections are taken.
    #[must_use]
    pub const fn data(&self) -> SocketAddr {
        self.data
    }

    /// Where viewers are taken.
    #[must_use]
    pub const fn live(&self) -> SocketAddr {
        self.live
    }

    /// The folder that it writes below.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }

    fn wait_until_it_listens(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if [self.control, self.live].iter().all(|port| TcpStream::connect(port).is_ok()) {
                return Ok(());
            }
            let ended = self
                .daemon
                .try_wait()
                .map_err(|source| Error::Io { what: "lttng-relayd", source })?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Error::NoDaemon { program: "lttng-relayd", ended });
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for RelayDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_ports() -> io::Result<[SocketAddr; 3]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Held together, so that they differ.
    let (first, second, third) = (listen()?, listen()?, listen()?);
    Ok([first.local_addr()?, second.local_addr()?, third.local_addr()?])
}

/// `lttng-sessiond` behind a shell that gives it a `/run/lttng` and a `/dev/shm` of its own. The shell
/// becomes the daemon, so the child's process id is the daemon's.
fn in_new_namespace() -> Command {
    const SCRIPT: &str = "mkdir -p /run/lttng && mount -t tmpfs none /run/lttng \
        && mount -t tmpfs none /dev/shm && exec lttng-sessiond \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "lttng-sessiond"]);
    command
}

/// The effective user id by `/proc/self/status`, line `Uid:`, second number.
fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .and_then(|ids| ids.split_whitespace().nth(1))
            == Some("0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_daemons_do_not_see_each_other() {
        if !crate::is_installed("lttng-sessiond") {
            crate::skip("lttng-sessiond is not installed");
            return;
        }
        let (first, second) = (SessionDaemon::start().unwrap(), SessionDaemon::start().unwrap());
        let output = first.folder().join("out");
        first.lttng(["create", "only-here", "--output", output.to_str().unwrap()]).unwrap();
        let listed = |daemon: &SessionDaemon| {
            String::from_utf8(daemon.lttng(["list"]).unwrap().stdout).unwrap().contains("only-here")
        };
        assert!(listed(&first));
        assert!(!listed(&second));
        first.lttng(["destroy", "only-here"]).unwrap();
    }

    #[test]
    fn a_refused_command_says_what_the_tool_said() {
        if !crate::is_installed("lttng-sessiond") {
            crate::skip("lttng-sessiond is not installed");
            return;
        }
        let daemon = SessionDaemon::start().unwrap();
        let Err(Error::Refused { message, .. }) = daemon.lttng(["start", "no-such-session"]) else {
            panic!("starting an unknown session must fail");
        };
        assert!(message.contains("Session name not found"), "{message}");
    }
}
