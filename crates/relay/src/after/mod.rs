//! What happens to a chunk after it was sealed: it may be compressed, those who want to know are told, it is copied, and one day it is deleted.
//!
//! ```text
//! seal.rs ─▶ outbox.rs ─▶ compress.rs ─▶ outbox.rs: one file for each chunk and target ─▶ deliver.rs, a task for each target ─▶ program.rs, webhook.rs, nats.rs
//!                                             │                                                             └─▶ copy.rs ─▶ store.rs
//!                                             └─ what is not told yet is kept by ▶ retention.rs
//! ```

mod compress;
mod copy;
mod deliver;
mod nats;
mod outbox;
mod program;
mod rest;
mod retention;
mod store;
mod webhook;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracedir::manifest::Difference;
use tracedir::seekable::Level;

use crate::error::{Error, Result};
use crate::registry::Registry;
use crate::server::ended;
use nats::NatsFailure;
pub use nats::{NatsSubject, NatsSubjectError};
pub(crate) use outbox::Outbox;
pub(crate) use rest::pause;
pub use retention::{Keep, Release};
use store::PutError;
pub use store::{Store, StoreError};
pub use webhook::{Webhook, WebhookError};

/// Who is told of sealed chunks, and how patiently. Each is told of each chunk at least once.
#[derive(Debug, Clone)]
pub struct Announce {
    /// Who.
    pub targets: Vec<Target>,
    /// PEM file with the CA certificates that those of `https` targets and of encrypted NATS servers must come from; `None`: those of
    /// the system.
    pub ca: Option<PathBuf>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How long a target rests after an attempt that failed; doubled with each further one. Sealing, compressing
    /// and deleting rest as long after what failed.
    pub first_pause: Duration,
    /// The longest rest.
    pub longest_pause: Duration,
    /// Chunks that wait for one target, beside the one that it is being told of. When one more is sealed, the one that waited longest is dropped and counted.
    pub waiting: usize,
    /// The same for chunks that wait to be copied to one place.
    pub waiting_copies: usize,
    /// How long a chunk waits in one run of the relay before it is dropped and counted; copies wait for ever.
    pub give_up: Duration,
    /// How long [`Relay::shutdown`](crate::Relay::shutdown) waits for what can be told at once; the rest is told
    /// after the next start.
    pub at_end: Duration,
}

impl Default for Announce {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            ca: None,
            timeout: Duration::from_secs(30),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            waiting: 1000,
            waiting_copies: 100_000,
            give_up: Duration::from_secs(24 * 3600),
            at_end: Duration::from_secs(5),
        }
    }
}

/// Someone who is told of sealed chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A program: run without a shell, with the chunk's folder as its only argument and the manifest on standard input.
    /// It is told when it ends with 0.
    Program(PathBuf),
    /// A URL that the manifest is posted to. It is told when it answers 2xx.
    Webhook(Webhook),
    /// A subject of NATS that the manifest is published on. It is told when a stream has stored it, or, where no stream
    /// takes the subject, when the server took it and somebody listened.
    Nats(NatsSubject),
    /// A place that the chunk is copied to, its manifest last.
    Copy(Store),
}

impl Target {
    /// What the target is called in the outbox: the same in each run.
    pub(crate) fn name(&self) -> Result<String> {
        match self {
            Self::Program(path) => {
                let text = str::from_utf8(path.as_os_str().as_bytes()).ok();
                let text = text.filter(|text| !text.is_empty() && !text.contains(['\n', '\r']));
                text.map(|text| format!("program {text}")).ok_or(Error::Meaningless {
                    what: "a program whose path is not one line of text",
                })
            }
            Self::Webhook(webhook) => Ok(format!("webhook {webhook}")),
            Self::Nats(subject) => Ok(format!("nats {subject}")),
            Self::Copy(store) => Ok(format!("copy {store}")),
        }
    }
}

/// The tasks that follow sealing.
#[derive(Debug)]
pub(crate) struct After {
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl After {
    pub(crate) fn start(
        registry: &Arc<Registry>,
        compression: Option<Level>,
        keep: Keep,
        release: Option<Release>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let targets = 0..registry.env.outbox.queues().len();
        let deliver =
            |index| tokio::spawn(deliver::deliver(Arc::clone(registry), index, stopped.clone()));
        let mut tasks: Vec<_> = targets.map(deliver).collect();
        let retain = retention::retain(Arc::clone(registry), keep, release, stopped.clone());
        tasks.push(tokio::spawn(retain));
        if let Some(level) = compression {
            let compress = compress::compress(Arc::clone(registry), level, stopped.clone());
            tasks.push(tokio::spawn(compress));
        }
        Self { tasks, stop }
    }

    /// Ends them; nothing is sealed any more.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            ended(task.await);
        }
    }
}

/// Why an attempt to tell someone failed. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot start the program")]
    Start(#[source] io::Error),
    #[error("the program ended with {0}")]
    Ended(std::process::ExitStatus),
    #[error("cannot reach the peer")]
    Connect(#[source] io::Error),
    #[error("TLS")]
    Tls(#[source] io::Error),
    #[error("no CA is trusted")]
    NoTrust,
    #[error("the host is neither a name nor an address")]
    Host,
    #[error("the peer does not speak HTTP")]
    Http(#[from] hyper::Error),
    #[error("the peer answered {0}")]
    Status(u16),
    #[error("it took longer than it may")]
    Timeout,
    #[error("the manifest cannot be read")]
    Manifest(#[source] Error),
    #[error("the subject")]
    Nats(#[source] NatsFailure),
    #[error("the manifest is not understood")]
    Unreadable(#[source] Difference),
    #[error("the manifest is none of this relay's")]
    NotOurs,
    #[error("a file of the chunk cannot be opened")]
    Unopened(#[source] Error),
    #[error("the chunk has {0} files, of which the manifest does not list all")]
    TooManyFiles(u64),
    #[error("the copy")]
    Copy(#[from] PutError),
    #[error("a task of the relay failed: {0}")]
    Task(String),
}
