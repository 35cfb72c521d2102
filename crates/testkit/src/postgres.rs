//! A PostgreSQL with its data in a folder of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Running, skip};

/// Who runs it when the tests are root's, as it refuses to: `nobody`.
const NOBODY: u32 = 65_534;
/// The one user of the databases.
const USER: &str = "throughline";

/// The server, reached by a socket in its folder.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Running>,
    programs: PathBuf,
    folder: TempDir,
}

impl Postgres {
    /// Makes a cluster without databases and starts it; `None`, said, when it is not installed.
    ///
    /// # Panics
    /// When it is, and does not come up.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            skip("postgresql is not installed");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        if is_root(&folder) {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("a folder of nobody's");
        }
        let mut server = Self { process: None, programs, folder };
        let mut command = server.command("initdb");
        command.arg("--pgdata").arg(server.folder.path().join("data"));
        command.args([
            "--auth=trust",
            "--no-sync",
            "--locale=C",
            "--encoding=UTF8",
            "--username",
            USER,
        ]);
        run(&mut command);
        server.resume();
        Some(server)
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Its own kill -9: without it, processes of its sessions would be there for a while.
            process.end("QUIT");
        }
    }

    /// Starts it again with the data that it has, and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn resume(&mut self) {
        let folder = self.folder.path();
        let mut command = self.command("postgres");
        command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
        // What is written need not survive the machine.
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let mut process = Running::start(&mut command, "postgres", &folder.join("log"));
        process.wait_until_said("ready to accept connections");
        self.process = Some(process);
    }

    /// Makes a database; its address `postgres://…`.
    ///
    /// # Panics
    /// When there is one of this name.
    #[must_use]
    pub fn database(&self, name: &str) -> String {
        let mut command = self.command("createdb");
        run(command.arg("--host").arg(self.folder.path()).args(["--username", USER, name]));
        format!("postgres://{USER}@localhost/{name}?host={}", self.folder.path().display())
    }

    /// The folder with its socket.
    #[must_use]
    pub fn host(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        let owner = fs::metadata(self.folder.path()).expect("a folder");
        command.uid(owner.uid()).gid(owner.gid());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The folder with the programs of the latest version, where Debian puts them.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let programs = version.path().join("bin");
        programs.join("initdb").exists().then_some((number, programs))
    });
    numbered.max().map(|(_, programs)| programs)
}

fn is_root(folder: &TempDir) -> bool {
    fs::metadata(folder.path()).expect("a folder").uid() == 0
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
}
