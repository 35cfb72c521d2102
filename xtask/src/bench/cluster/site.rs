//! Where the processes of a benchmark run, and where lies what they read and make.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use testkit::Chunked;
use testkit::machines::{COORDINATOR, Network, WORKERS};
use testkit::s3::Server;

use super::workers::Worker;

/// Workers of a site.
pub(super) const COUNT: usize = WORKERS.len();
/// The bucket of a [`Server`].
const BUCKET: &str = "s3://copies";

/// One machine with folders; or a network namespace for each process, with an S3 server.
pub(super) struct Site {
    binary: PathBuf,
    // Workers and servers end before their network, and that before the folder.
    far: Option<Far>,
    scratch: tempfile::TempDir,
}

struct Far {
    server: Server,
    network: Network,
}

/// Sealed chunks of one session.
pub(super) struct Session {
    name: String,
    /// As a command takes it.
    pub(super) place: String,
    pub(super) chunks: u64,
    pub(super) events: u64,
    pub(super) bytes: u64,
}

impl Site {
    pub(super) fn new(binary: &Path, is_far: bool) -> anyhow::Result<Self> {
        let far = || -> anyhow::Result<Far> {
            let network = Network::start(0).context("no network")?;
            let server = Server::start(&network.address(1)).context("no S3 server")?;
            Ok(Far { server, network })
        };
        let far = is_far.then(far).transpose()?;
        Ok(Self { binary: binary.to_owned(), far, scratch: tempfile::tempdir()? })
    }

    /// Where that is, for people.
    pub(super) const fn name(&self) -> &'static str {
        match self.far {
            Some(_) => {
                "each process in a network namespace of its own; chunks and blocks in SeaweedFS, over S3"
            }
            None => "processes on the loopback interface; chunks and blocks in folders",
        }
    }

    /// A folder of this machine for what is written down.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Writes a session of chunks whose records say which thread they are of.
    pub(super) fn session(&self, chunks: u64, events: u64) -> anyhow::Result<Session> {
        let name = format!("session-{chunks}");
        let traces = self.scratch.path().join(&name);
        let written = Chunked { chunks, events, seed: 1 }.write_with_threads(&traces).len();
        ensure!(written as u64 == chunks, "{written} chunks were written");
        let bytes = bytes_below(&traces)?;
        let place = match &self.far {
            Some(far) => {
                far.server.put_folder(&traces, &name);
                fs::remove_dir_all(&traces)?;
                format!("{BUCKET}/{name}")
            }
            None => traces.to_str().context("a name")?.to_owned(),
        };
        Ok(Session { name, place, chunks, events: 2 * chunks * events, bytes })
    }

    /// What is there of a session goes.
    pub(super) fn remove(&self, session: &Session) -> anyhow::Result<()> {
        match &self.far {
            Some(far) => far.server.remove(&session.name),
            None => fs::remove_dir_all(&session.place)?,
        }
        Ok(())
    }

    /// A job on a session, on the coordinator's machine; it keeps blocks under a name.
    pub(super) fn job(&self, session: &Session, kept: &str) -> Command {
        let mut command = self.command(COORDINATOR);
        command.args(["analyze", "all", "--format", "json", &session.place]);
        command.args(["--blocks", &self.place(kept)]).stdin(Stdio::null());
        command
    }

    /// A worker on a machine of its own, one of [`COUNT`], whose log goes to a file.
    pub(super) fn worker(&self, number: usize, log: &Path) -> anyhow::Result<Worker> {
        let machine = *WORKERS.get(number).context("as many machines as workers")?;
        let ip = self.far.as_ref().map(|far| far.network.address(machine));
        let mut command = self.command(machine);
        command.args(["worker", "--threads", "1", "--listen"]);
        command.arg(format!("{}:0", ip.as_deref().unwrap_or("127.0.0.1")));
        command.stderr(File::create(log)?);
        Worker::start(command, log)
    }

    fn command(&self, machine: u8) -> Command {
        match &self.far {
            Some(Far { server, network }) => {
                let mut command = network.command(machine, &self.binary);
                command.envs(server.environment());
                command
            }
            None => Command::new(&self.binary),
        }
    }

    fn place(&self, kept: &str) -> String {
        match &self.far {
            Some(_) => format!("{BUCKET}/{kept}"),
            None => self.scratch.path().join(kept).to_string_lossy().into_owned(),
        }
    }

    /// The blocks that are kept under a name, each with what changes when it is written again.
    pub(super) fn committed(&self, kept: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let mut files = match &self.far {
            Some(far) => far.server.list(&format!("{kept}/host")),
            None => stamps(&self.scratch.path().join(kept).join("host"))?,
        };
        files.retain(|name, _| name.ends_with(".block"));
        Ok(files.into_iter().map(|(name, stamp)| (name.replace(".block", ""), stamp)).collect())
    }

    /// Bytes of what is kept under a name; only of folders.
    pub(super) fn kept_bytes(&self, kept: &str) -> anyhow::Result<Option<u64>> {
        self.far.is_none().then(|| bytes_below(&self.scratch.path().join(kept))).transpose()
    }

    /// What is kept under a name goes.
    pub(super) fn forget(&self, kept: &str) -> anyhow::Result<()> {
        let folder = self.scratch.path().join(kept);
        match &self.far {
            Some(far) => far.server.remove(kept),
            None if folder.exists() => fs::remove_dir_all(folder)?,
            None => {}
        }
        Ok(())
    }
}

fn stamps(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut stamps = BTreeMap::new();
    if !folder.exists() {
        return Ok(stamps);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // One that is being written has another name, under which it is soon gone.
        let Ok(file) = entry.metadata() else { continue };
        let stamp = format!("{} {} {}", file.ino(), file.mtime(), file.mtime_nsec());
        stamps.insert(entry.file_name().to_string_lossy().into_owned(), stamp);
    }
    Ok(stamps)
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
