//! The analysis that goes on while the relay records: a thread that maps what is complete and publishes the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use mapper::{SpanRules, Stitcher};
use relay::{Event, Interrupted, RecordingName, Recovered, Release, Sealed};
use server::Published;
use stitch::Summary;
use tokio::sync::mpsc;

use super::addresses::Addresses;
use super::sessions::{Sessions, interruption};
use crate::outcome::complain;

/// News that may wait for the analysis; then the relay's own bounded backlog grows.
const NEWS_BACKLOG: usize = 256;

/// What the analysis is told.
#[derive(Debug)]
pub(super) enum News {
    /// Something happened in the relay.
    Event(Event),
    /// Events were lost on the way: look at the folders again.
    LookAgain,
}

/// The running analysis.
#[derive(Debug)]
pub(super) struct Analyst {
    news: mpsc::Sender<News>,
    thread: JoinHandle<()>,
}

impl Analyst {
    /// Takes in what the folder of traces holds already and then waits for news.
    pub(super) fn start(
        traces: &Path,
        summaries: &Path,
        recovered: &Recovered,
        addresses: &Addresses,
        release: Release,
        published: Arc<Published>,
    ) -> anyhow::Result<Self> {
        for error in &recovered.unreadable {
            complain(&format!("a record of an earlier run cannot be read: {error}"));
        }
        for chunk in &recovered.interrupted {
            complain(&format!("{}: {}", chunk.folder.display(), interruption(chunk)));
        }
        let mut work = Work {
            traces: traces.to_owned(),
            summaries: summaries.to_owned(),
            interrupted: recovered.interrupted.clone(),
            relay_url: addresses.relay_url(),
            profiles_port: addresses.profiles.map(|address| address.port()),
            sessions: Sessions::after(&recovered.interrupted),
            hosts: BTreeMap::new(),
            shown: None,
            windows_mapped: 0,
            release,
            published,
        };
        work.look_at_folders()?;
        let (news, mut inbox) = mpsc::channel(NEWS_BACKLOG);
        let thread = thread::Builder::new()
            .name("analysis".to_owned())
            .spawn(move || {
                work.advance();
                while let Some(item) = inbox.blocking_recv() {
                    work.take(item);
                    while let Ok(item) = inbox.try_recv() {
                        work.take(item);
                    }
                    work.advance();
                }
            })
            .context("cannot start the analysis")?;
        Ok(Self { news, thread })
    }

    /// Where it takes news.
    pub(super) fn news(&self) -> mpsc::Sender<News> {
        self.news.clone()
    }

    /// Waits until everything it was told is part of the answer. All other senders of news must be gone.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        drop(self.news);
        self.thread.join().map_err(|_panic| anyhow!("the analysis ended early"))
    }
}

/// What the thread owns.
struct Work {
    traces: PathBuf,
    summaries: PathBuf,
    interrupted: Vec<Interrupted>,
    relay_url: String,
    profiles_port: Option<u16>,
    sessions: Sessions,
    /// By host name. Bound: hosts that record here.
    hosts: BTreeMap<String, Stitcher>,
    /// The host on the page: the first that recorded.
    shown: Option<String>,
    windows_mapped: u64,
    /// Where it says which chunks it needs no more.
    release: Release,
    published: Arc<Published>,
}

impl Work {
    fn take(&mut self, news: News) {
        let taken = match news {
            News::Event(event) => self.take_event(&event),
            News::LookAgain => self.look_at_folders(),
        };
        if let Err(error) = taken {
            complain(&format!("{error:#}"));
        }
    }

    fn take_event(&mut self, event: &Event) -> anyhow::Result<()> {
        self.sessions.on(event);
        match event {
            Event::SessionOpened(recording) => {
                self.host(&recording.host)?.session_opened(&recording.folder);
            }
            Event::Sealed(sealed) => self.sealed(sealed)?,
            Event::SessionClosed(recording) if !self.sessions.is_open(&recording.folder) => {
                self.host(&recording.host)?.session_closed(&recording.folder);
            }
            _ => {}
        }
        Ok(())
    }

    fn sealed(&mut self, sealed: &Sealed) -> anyhow::Result<()> {
        let Sealed { recording: RecordingName { host, folder: session, .. }, folder, .. } = sealed;
        self.add(host, session, folder)
    }

    /// A chunk that cannot be read is nobody's to wait for.
    fn add(&mut self, host: &str, session: &Path, folder: &Path) -> anyhow::Result<()> {
        self.host(host)?
            .chunk_sealed(session, folder)
            .inspect_err(|_unreadable| self.release.release(folder.to_owned()))
            .with_context(|| format!("{} is not part of the answer", folder.display()))
    }

    /// Everything on the disk that is not being written: chunks of earlier runs, and of this one when news were lost.
    fn look_at_folders(&mut self) -> anyhow::Result<()> {
        for (host, session) in recorded_sessions(&self.traces)? {
            let is_open = self.sessions.is_open(&session);
            let sealed =
                tracedir::session_chunks(&session)?.sealed.into_iter().map(|chunk| chunk.path);
            let interrupted = self.interrupted.iter().map(|chunk| chunk.folder.clone());
            let interrupted = interrupted.filter(|folder| folder.starts_with(&session));
            let mut chunks: BTreeSet<_> = sealed.chain(interrupted).collect();
            if chunks.is_empty() && !is_open {
                chunks.insert(session.clone());
            }
            self.host(&host)?;
            for folder in chunks {
                // One that cannot be read must not keep the others out.
                if let Err(error) = self.add(&host, &session, &folder) {
                    complain(&format!("{error:#}"));
                }
            }
            if !is_open {
                self.host(&host)?.session_closed(&session);
            }
        }
        Ok(())
    }

    fn host(&mut self, host: &str) -> anyhow::Result<&mut Stitcher> {
        if !self.hosts.contains_key(host) {
            match &self.shown {
                None => self.shown = Some(host.to_owned()),
                Some(shown) => complain(&format!("{host} is recorded too; the page shows {shown}")),
            }
            let (stitcher, unusable) =
                Stitcher::open(&self.summaries.join(host), SpanRules::default())?;
            for line in unusable {
                complain(&line);
            }
            self.hosts.insert(host.to_owned(), stitcher);
        }
        self.hosts.get_mut(host).context("a host that was just put there")
    }

    /// Maps what is complete and publishes.
    fn advance(&mut self) {
        self.publish_status(true);
        for (host, stitcher) in &mut self.hosts {
            match stitcher.advance() {
                Ok(advance) => {
                    self.windows_mapped += advance.windows as u64;
                    for line in advance.findings {
                        complain(&line);
                    }
                }
                Err(error) => complain(&format!("{host}: {error}")),
            }
            stitcher.spent().into_iter().for_each(|folder| self.release.release(folder));
        }
        let shown = self.shown.as_ref().and_then(|host| self.hosts.get(host));
        if let Some(stitcher) = shown
            && let Err(error) = publish_answers(&self.published, stitcher.summary())
        {
            complain(&format!("{error:#}"));
        }
        self.publish_status(false);
    }

    /// While windows are being mapped, more will come even when every session is closed.
    fn publish_status(&self, is_mapping: bool) {
        let recording = is_mapping || self.sessions.any_open();
        self.published.set_status(&self.sessions.status(
            recording,
            &self.relay_url,
            self.profiles_port,
            self.windows_mapped,
        ));
    }
}

fn publish_answers(published: &Published, summary: &Summary) -> anyhow::Result<()> {
    if summary.cover().is_none() {
        return Ok(());
    }
    published.set_phases(serde_json::to_string(&stitch::phases(summary))?);
    published.set_syscalls(serde_json::to_string(&stitch::syscalls(summary))?);
    Ok(())
}

/// The session folders below the relay's root, with their hosts: `ROOT/HOST/…/SESSION`, where a session is a folder that
/// holds chunks or, when it was never rotated, the folders of the tracers' domains.
fn recorded_sessions(traces: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    /// A base path may put some folders between the host's and the session's.
    const MAX_DEPTH: usize = 8;
    let mut found = Vec::new();
    let mut waiting = vec![(traces.to_owned(), None::<String>, 0_usize)];
    while let Some((folder, host, depth)) = waiting.pop() {
        let has_domains = || ["ust", "kernel"].iter().any(|domain| folder.join(domain).is_dir());
        if host.is_some() && (tracedir::has_chunks(&folder)? || has_domains()) {
            found.extend(host.map(|host| (host, folder)));
            continue;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() && !name.starts_with('.') {
                waiting.push((entry.path(), host.clone().or(Some(name)), depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}
