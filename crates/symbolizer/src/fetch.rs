//! Files are asked for beside all else, of debuginfod servers.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use http::{StatusCode, Uri};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use webclient::Client;

use crate::build_id::BuildId;
use crate::cache::Cache;
use crate::lock;

/// Files that are asked for and not begun; of more is heard when they are asked for again.
const WAITING: usize = 256;
/// Files that come at once.
const AT_ONCE: usize = 4;
/// A file that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(600);
/// What no server has is asked for again after so long.
const ABSENT_STAYS: Duration = Duration::from_secs(3_600);
/// What could not be had is tried again after so long, twice as long each time up to [`ABSENT_STAYS`].
const FAILED_STAYS: Duration = Duration::from_secs(60);
/// Build ids of which it is remembered that they could not be had: of more all are asked for anew.
const MAX_REMEMBERED: usize = 65_536;

/// Why files cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The folder for files of servers cannot be used.
    #[error("cannot keep debug information in {}", folder.display())]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A server's URL is none.
    #[error("not as http://HOST:PORT: {uri}")]
    Server {
        /// The URL.
        uri: Uri,
    },
    /// Connections cannot be made.
    #[error("cannot reach servers of debug information: {why}")]
    Client {
        /// Why.
        why: String,
    },
}

/// What was asked of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetches {
    /// Files that came.
    pub found: u64,
    /// Files that no server has.
    pub absent: u64,
    /// Files that could not be had, each time that they were tried.
    pub failed: u64,
}

/// What is known of a build id that was asked for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// It is on its way.
    Coming { failures: u32 },
    /// It is not asked for until then.
    Not { until: Instant, failures: u32 },
}

/// Asks servers for files, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Fetcher {
    queue: Sender<BuildId>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: Mutex<HashMap<BuildId, Asked>>,
    fetches: Mutex<Fetches>,
}

impl Fetcher {
    pub(crate) fn start(servers: &[Uri], cache: Cache) -> Result<Self, SettingsError> {
        for uri in servers {
            let is_url = matches!(uri.scheme_str(), Some("http" | "https"));
            if !is_url || uri.authority().is_none() || uri.query().is_some() {
                return Err(SettingsError::Server { uri: uri.clone() });
            }
        }
        let is_encrypted = servers.iter().any(|uri| uri.scheme_str() == Some("https"));
        let failed = |why: String| SettingsError::Client { why };
        let client = webclient::new(is_encrypted, webclient::Version::Http1, None, None)
            .map_err(|error| failed(model::with_causes(&error)))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let (queue, waiting) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared::default());
        let bases = servers.iter().map(|uri| uri.to_string().trim_end_matches('/').to_owned());
        let source = Source { client, bases: bases.collect(), cache, shared: Arc::clone(&shared) };
        // It ends when nobody can ask any more; what comes then is dropped.
        thread::Builder::new()
            .name("debuginfod".to_owned())
            .spawn(move || runtime.block_on(serve(Arc::new(source), waiting)))
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { queue, shared })
    }

    /// Asks for a file, unless that was done a moment ago.
    pub(crate) fn ask(&self, build_id: BuildId) {
        let mut asked = lock(&self.shared.asked);
        let failures = match asked.get(&build_id) {
            None => 0,
            Some(Asked::Not { until, failures }) if *until <= Instant::now() => *failures,
            Some(Asked::Not { .. } | Asked::Coming { .. }) => return,
        };
        if asked.len() >= MAX_REMEMBERED {
            asked.retain(|_, it| matches!(it, Asked::Coming { .. }));
        }
        if self.queue.try_send(build_id.clone()).is_ok() {
            asked.insert(build_id, Asked::Coming { failures });
        }
    }

    pub(crate) fn fetches(&self) -> Fetches {
        *lock(&self.shared.fetches)
    }
}

async fn serve(source: Arc<Source>, mut waiting: Receiver<BuildId>) {
    let mut coming = JoinSet::new();
    while let Some(build_id) = waiting.recv().await {
        while coming.len() >= AT_ONCE {
            coming.join_next().await;
        }
        let source = Arc::clone(&source);
        coming.spawn(async move { source.fetch(build_id).await });
        while coming.try_join_next().is_some() {}
    }
}

#[derive(Debug)]
struct Source {
    client: Client,
    bases: Vec<String>,
    cache: Cache,
    shared: Arc<Shared>,
}

impl Source {
    async fn fetch(&self, build_id: BuildId) {
        let mut failed = None;
        for base in &self.bases {
            let file = self.fetch_of(base, &build_id);
            let file = tokio::time::timeout(PATIENCE, file).await;
            let file =
                file.unwrap_or_else(|_elapsed| Err(format!("not within {} s", PATIENCE.as_secs())));
            match file {
                Ok(true) => {
                    lock(&self.shared.fetches).found += 1;
                    lock(&self.shared.asked).remove(&build_id);
                    return;
                }
                Ok(false) => {}
                Err(why) => failed = Some((base, why)),
            }
        }
        let mut asked = lock(&self.shared.asked);
        let before = match asked.get(&build_id) {
            Some(Asked::Coming { failures } | Asked::Not { failures, .. }) => *failures,
            None => 0,
        };
        let (stays, failures) = match failed {
            Some((base, why)) => {
                lock(&self.shared.fetches).failed += 1;
                tracing::warn!("no debug information of {build_id} from {base}: {why}");
                let stays = FAILED_STAYS.saturating_mul(1 << before.min(16));
                (stays.min(ABSENT_STAYS), before.saturating_add(1))
            }
            None => {
                lock(&self.shared.fetches).absent += 1;
                (ABSENT_STAYS, 0)
            }
        };
        asked.insert(build_id, Asked::Not { until: Instant::now() + stays, failures });
    }

    /// Whether a server has it; it is in the cache then.
    async fn fetch_of(&self, base: &str, build_id: &BuildId) -> Result<bool, String> {
        let uri = format!("{base}/buildid/{build_id}/debuginfo");
        let uri: Uri = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
        let mut coming = self.cache.begin(build_id).map_err(|error| error.to_string())?;
        match webclient::download(&self.client, uri, |piece| coming.push(piece)).await? {
            StatusCode::OK => self.cache.keep(coming, build_id).map(|()| true),
            StatusCode::NOT_FOUND => Ok(false),
            other => Err(format!("the server answers {other}")),
        }
    }
}
