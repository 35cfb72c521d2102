//! Options of an agent that keeps what applications of the machine record.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::Headers;
use anyhow::{Context, bail};
use journal::Bounds;
use recorder::{Ledger, Recorder, Redis, Settings, Target};

use crate::command::ledger;
use crate::outcome::complain;
use crate::stop;
use crate::units::{parse_duration, parse_size};

/// Headers of OTLP (OpenTelemetry specification, "OTLP Exporter Configuration").
const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The folder of a journal unless it is said otherwise.
pub(crate) const JOURNAL: &str = "throughline-journal";

#[derive(clap::Args)]
pub(crate) struct RecordingArgs {
    /// Who gets what applications record by tracepoints: json:FOLDER for lines of JSON, ctf:FOLDER for chunks of the
    /// Common Trace Format, http://HOST:PORT or https://HOST for spans and events by
    /// OTLP over HTTP; may be repeated
    #[arg(long, value_name = "URL")]
    record: Vec<Target>,
    /// Where applications hand over the memory of their tracepoints
    #[arg(long, value_name = "SOCKET", default_value = tracepoint::DEFAULT_SOCKET)]
    rings: PathBuf,
    /// Take the records of applications of all users, and not only of this one's
    #[arg(long)]
    all_users: bool,
    /// A port that speaks enough of Redis's protocol for OSProfiler: services with connection_string = redis://ADDR write notifications to it, and osprofiler trace show
    /// and list ask it; such as 127.0.0.1:6379. Any other than a loopback address needs a password
    #[arg(long, value_name = "ADDR")]
    redis: Option<SocketAddr>,
    /// A file with the password that clients of --redis must know; others must not be able to read it
    #[arg(long, value_name = "FILE", requires = "redis")]
    redis_password_file: Option<PathBuf>,
    /// How long notifications of OSProfiler can be asked for, after all targets have them
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    redis_keep: Duration,
    /// Folder of records that wait and of the ledger; only one agent can have it
    #[arg(long, value_name = "DIR", default_value = JOURNAL)]
    journal: PathBuf,
    /// The oldest records are dropped while the journal is larger
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    journal_size: u64,
    /// Records are dropped when they wait for so long
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    journal_age: Duration,
    /// The oldest files of a json: target, and chunks of a ctf: target, are deleted while all together are larger
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    record_keep_size: u64,
    /// A file with headers for requests of http: and https: targets, one a line; others must not be able to read it
    #[arg(long, value_name = "FILE")]
    record_header_file: Option<PathBuf>,
}

impl RecordingArgs {
    /// Whether anybody is to get records.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.record.is_empty() || self.redis.is_some()
    }

    /// Begins; `machine` are attributes of all processes. Nothing when nobody is to get records.
    pub(crate) fn start(&self, machine: &[(String, String)]) -> anyhow::Result<Option<Recording>> {
        if !self.is_wanted() {
            return Ok(None);
        }
        if let Some(folder) = self.rings.parent().filter(|it| !it.as_os_str().is_empty()) {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o755).create(folder);
            made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let settings = Settings {
            folder: self.journal.clone(),
            bounds: Bounds {
                bytes: self.journal_size,
                age: self.journal_age,
                read: Duration::ZERO,
            },
            socket: self.rings.clone(),
            is_open_to_all: self.all_users,
            targets: self.targets()?,
            machine: machine.to_vec(),
            redis: self.redis()?,
        };
        let recorder = Recorder::start(settings).context("cannot record")?;
        let names: Vec<String> = self.record.iter().map(Target::to_string).collect();
        let rings = self.rings.display();
        let names = if names.is_empty() { "the journal only".to_owned() } else { names.join(", ") };
        complain(&format!("agent: recording from {rings} to {names}"));
        if let Some(address) = recorder.redis_address() {
            complain(&format!("agent: notifications of OSProfiler at redis://{address}/0"));
        }
        Ok(Some(Recording { recorder }))
    }

    fn redis(&self) -> anyhow::Result<Option<Redis>> {
        let Some(address) = self.redis else { return Ok(None) };
        let password = match &self.redis_password_file {
            Some(path) => {
                Some(door::secret(path).with_context(|| cannot_use(path))?.trim().to_owned())
            }
            None if address.ip().is_loopback() => None,
            None => bail!(
                "--redis {address}: who may come from other machines needs a password (--redis-password-file)"
            ),
        };
        Ok(Some(Redis { address, password }))
    }

    fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let mut headers = match std::env::var(OTLP_HEADERS) {
            Ok(list) => Headers::of_list(&list).context(OTLP_HEADERS)?,
            Err(_) => Headers::default(),
        };
        if let Some(path) = &self.record_header_file {
            let read = Headers::read(path).with_context(|| cannot_use(path))?;
            headers = read.or(&headers);
        }
        let targets = self.record.iter().cloned().map(|mut target| {
            target.headers.clone_from(&headers);
            target.keep_bytes = self.record_keep_size;
            target
        });
        Ok(targets.collect())
    }
}

fn cannot_use(path: &Path) -> String {
    format!("cannot use {}", path.display())
}

/// A recorder that runs.
pub(crate) struct Recording {
    recorder: Recorder,
}

impl Recording {
    /// Has SIGUSR1 read flight recorders, for as long as the process lives.
    pub(crate) fn heed_signals(&self) -> anyhow::Result<()> {
        let keep = self.recorder.flight_recorders();
        stop::on_user_signal(move || keep.ask())
    }

    /// Ends, and says what became of all records.
    pub(crate) fn stop(self, patience: Duration) -> anyhow::Result<()> {
        let ledger: Ledger = self.recorder.stop(patience)?;
        for line in ledger::lines(&ledger) {
            complain(&format!("agent: {line}"));
        }
        Ok(())
    }
}
