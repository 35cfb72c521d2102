//! The recording sessions of a run and what is missing of them, as the page shows it.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use relay::{Event, Interrupted, RecordingName};
use server::{KernelHalf, MissingChunk, SessionStatus, Status};

/// Closed sessions that are still shown; the oldest leave first.
const MAX_CLOSED: usize = 256;
/// Missing chunks that are named; more are counted in the last one's place.
const MAX_MISSING: usize = 1_000;

/// What a run knows of its sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<PathBuf, Known>,
    closed: VecDeque<SessionStatus>,
    missing: Vec<MissingChunk>,
    unnamed: u64,
    kernel: KernelHalf,
}

#[derive(Debug)]
struct Known {
    status: SessionStatus,
    /// Relay sessions of this recording session: one for each consumer daemon.
    producers: u32,
    order: u64,
}

impl Sessions {
    /// Begins with what an earlier run could not complete, and with whether this machine's kernel can be traced.
    pub(super) fn after(interrupted: &[Interrupted]) -> Self {
        let kernel = match capture::kernel::preflight() {
            Ok(()) => KernelHalf::NotStarted,
            Err(reason) => KernelHalf::Missing { reason: format!("no kernel trace: {reason}") },
        };
        let mut sessions = Self { kernel, ..Self::default() };
        for chunk in interrupted {
            sessions.add_missing(chunk.folder.display().to_string(), interruption(chunk));
        }
        sessions
    }

    /// Takes in an event of the relay.
    pub(super) fn on(&mut self, event: &Event) {
        match event {
            Event::SessionOpened(recording) => {
                self.known(recording).producers += 1;
            }
            Event::Sealed(sealed) => {
                if sealed.streams.iter().any(|stream| is_kernel(stream)) {
                    self.kernel = KernelHalf::Recording;
                }
                self.known(&sealed.recording).status.chunks_sealed += 1;
            }
            Event::SealFailed { recording, chunk, folder } => self.add_missing(
                folder.display().to_string(),
                format!(
                    "chunk {chunk} of {} could not be sealed and is left there, the next start tries again; the log says why",
                    recording.session
                ),
            ),
            Event::SessionClosed(recording) => self.close(recording),
            _ => {}
        }
    }

    /// Whether a tracer is connected.
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a tracer of this session is connected.
    pub(super) fn is_open(&self, session: &Path) -> bool {
        self.open.contains_key(session)
    }

    /// The document of `/api/v1/status`. `recording` is true while more may come or is being analysed.
    pub(super) fn status(
        &self,
        recording: bool,
        relay_url: &str,
        profiles_port: Option<u16>,
        windows_mapped: u64,
    ) -> Status {
        let mut open: Vec<&Known> = self.open.values().collect();
        open.sort_by_key(|known| known.order);
        let open = open.into_iter().map(|known| known.status.clone());
        let mut missing = self.missing.clone();
        if self.unnamed > 0 {
            missing.push(MissingChunk {
                name: format!("{} more", self.unnamed),
                reason: "not named here; the log has them".to_owned(),
            });
        }
        Status {
            recording,
            relay_url: Some(relay_url.to_owned()),
            profiles_port,
            sessions: self.closed.iter().cloned().chain(open).collect(),
            windows_mapped,
            missing,
            kernel: self.kernel.clone(),
        }
    }

    fn known(&mut self, recording: &RecordingName) -> &mut Known {
        let order = self.open.values().map(|known| known.order + 1).max().unwrap_or(0);
        self.open.entry(recording.folder.clone()).or_insert_with(|| Known {
            status: SessionStatus {
                name: recording.session.clone(),
                host: recording.host.clone(),
                open: true,
                chunks_sealed: 0,
            },
            producers: 0,
            order,
        })
    }

    fn close(&mut self, recording: &RecordingName) {
        let Some(known) = self.open.get_mut(&recording.folder) else { return };
        known.producers = known.producers.saturating_sub(1);
        if known.producers > 0 {
            return;
        }
        if let Some(known) = self.open.remove(&recording.folder) {
            self.closed.push_back(SessionStatus { open: false, ..known.status });
        }
        if self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
    }

    fn add_missing(&mut self, name: String, reason: String) {
        if self.missing.len() < MAX_MISSING {
            self.missing.push(MissingChunk { name, reason });
        } else {
            self.unnamed += 1;
        }
    }
}

/// One line on a chunk that was being written when the relay ended.
pub(super) fn interruption(chunk: &Interrupted) -> String {
    let readable = if chunk.without_metadata.is_empty() {
        "readable as far as it goes"
    } else {
        "not readable: its description of the events never came"
    };
    let sealed = if chunk.is_sealed { "" } else { "; it could not be sealed, the log says why" };
    format!(
        "interrupted: the relay ended before chunk {} of {} did; {} streams, {} bytes, {readable}{sealed}",
        chunk.chunk, chunk.session, chunk.streams, chunk.bytes
    )
}

/// The kernel's domain has the folder `kernel` in every chunk.
fn is_kernel(stream: &Path) -> bool {
    stream.components().any(|component| component.as_os_str() == "kernel")
}
