//! Where answers come from: a recording that goes on, or files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use axum::body::Bytes;

use crate::{Error, Status};

/// An answer at one moment. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The JSON document.
    pub bytes: Bytes,
    /// Differs from the version of every other document that the same source gave for the same answer.
    pub version: u64,
}

/// Gives the newest answers. Every call returns what is ready: it neither computes nor waits, because it is called on
/// the thread that serves all connections.
pub trait AnswerSource: Send + Sync + 'static {
    /// The answer of `analyze phases`.
    fn phases_json(&self) -> Snapshot;
    /// The answer of `analyze syscalls`.
    fn syscalls_json(&self) -> Snapshot;
    /// The state of the recording ([`Status::to_json`]).
    fn status_json(&self) -> Snapshot;
}

/// The answers of a recording that goes on: whoever computes them puts each new one here, readers get the last.
///
/// Holds one document of each kind, so its memory is bounded by the largest answers.
#[derive(Debug)]
pub struct Published {
    phases: RwLock<Snapshot>,
    syscalls: RwLock<Snapshot>,
    status: RwLock<Snapshot>,
}

impl Published {
    /// Answers about nothing yet: no request, no process, no session.
    #[must_use]
    pub fn new() -> Self {
        let first = |json: &str| {
            RwLock::new(Snapshot { bytes: Bytes::copy_from_slice(json.as_bytes()), version: 0 })
        };
        Self {
            phases: first(NO_PHASES),
            syscalls: first(NO_SYSCALLS),
            status: first(&Status::default().to_json()),
        }
    }

    /// Replaces the answer of `analyze phases`. The same bytes again keep their version.
    pub fn set_phases(&self, json: impl Into<Bytes>) {
        replace(&self.phases, json.into());
    }

    /// Replaces the answer of `analyze syscalls`. The same bytes again keep their version.
    pub fn set_syscalls(&self, json: impl Into<Bytes>) {
        replace(&self.syscalls, json.into());
    }

    /// Replaces the state of the recording. The same state again keeps its version.
    pub fn set_status(&self, status: &Status) {
        replace(&self.status, status.to_json().into());
    }
}

impl Default for Published {
    fn default() -> Self {
        Self::new()
    }
}

impl AnswerSource for Published {
    fn phases_json(&self) -> Snapshot {
        newest(&self.phases)
    }

    fn syscalls_json(&self) -> Snapshot {
        newest(&self.syscalls)
    }

    fn status_json(&self) -> Snapshot {
        newest(&self.status)
    }
}

/// A poisoned lock still holds a whole snapshot: nothing can fail between reading and writing its two fields.
fn newest(slot: &RwLock<Snapshot>) -> Snapshot {
    slot.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn replace(slot: &RwLock<Snapshot>, bytes: Bytes) {
    let mut snapshot = slot.write().unwrap_or_else(PoisonError::into_inner);
    if snapshot.bytes != bytes {
        *snapshot = Snapshot { bytes, version: snapshot.version.wrapping_add(1) };
    }
}

/// Answers read once from the files `phases.json`, `syscalls.json` and `status.json` of a folder.
#[derive(Debug)]
pub struct AnswerFolder {
    phases: Snapshot,
    syscalls: Snapshot,
    status: Snapshot,
}

impl AnswerFolder {
    /// No file of an answer folder may be larger.
    pub const MAX_FILE_BYTES: u64 = 256 << 20;

    /// Reads the folder. A file that is absent stands for an answer about nothing; `phases.json` must be there.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::TooLarge`] and [`Error::NotJson`], each with the file.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let whole = |bytes: Bytes| Snapshot { bytes, version: 0 };
        let or_empty = |read: Option<Bytes>, empty: &str| {
            read.unwrap_or_else(|| Bytes::from(empty.to_owned()))
        };
        let phases = folder.join("phases.json");
        Ok(Self {
            phases: whole(read_json(&phases)?.ok_or_else(|| Error::Read {
                path: phases,
                source: std::io::ErrorKind::NotFound.into(),
            })?),
            syscalls: whole(or_empty(read_json(&folder.join("syscalls.json"))?, NO_SYSCALLS)),
            status: whole(or_empty(
                read_json(&folder.join("status.json"))?,
                &Status::default().to_json(),
            )),
        })
    }
}

impl AnswerSource for AnswerFolder {
    fn phases_json(&self) -> Snapshot {
        self.phases.clone()
    }

    fn syscalls_json(&self) -> Snapshot {
        self.syscalls.clone()
    }

    fn status_json(&self) -> Snapshot {
        self.status.clone()
    }
}

/// The file's bytes when they are JSON, `None` when there is no such file.
fn read_json(path: &Path) -> Result<Option<Bytes>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(AnswerFolder::MAX_FILE_BYTES.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let len_bytes = bytes.len() as u64;
    if len_bytes > AnswerFolder::MAX_FILE_BYTES {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            len_bytes,
            max_bytes: AnswerFolder::MAX_FILE_BYTES,
        });
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
        .map_err(|source| Error::NotJson { path: path.to_owned(), source })?;
    Ok(Some(bytes.into()))
}

const NO_PHASES: &str = r#"{"format":"throughline-phases/1","host":"","begin_ns":0,"end_ns":0,
"requests":{"complete":0,"partial":0,"wall_ns":0,"listed":0,"unlisted":0},"durations":{"percentiles":[],"buckets":[]},"timeline":{"slot_ns":1000000,"slots":[]},"phases":[],"request_list":[],"files":[],
"loss":{"events_discarded":0,"packets_lost":0,"gaps":0,"unmatched_span_ends":0,"abandoned_phases":0,
"phases_outside_requests":0,"calls_without_begin":0,"bytes_without_begin":0,"uncertain_calls":0,"ring_operations":0,
"without_thread":0,"backward_times":0}}"#;

const NO_SYSCALLS: &str = r#"{"format":"throughline-syscalls/1","host":"","begin_ns":0,"end_ns":0,"processes":[],
"loss":{"events_discarded":0,"packets_lost":0,"gaps":0,"unmatched_span_ends":0,"abandoned_phases":0,
"phases_outside_requests":0,"calls_without_begin":0,"bytes_without_begin":0,"uncertain_calls":0,"ring_operations":0,
"without_thread":0,"backward_times":0}}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_changes_exactly_when_the_answer_does() {
        let answers = Published::new();
        let empty = answers.phases_json();
        answers.set_phases("{}");
        let first = answers.phases_json();
        answers.set_phases("{}");
        assert_eq!(answers.phases_json(), first);
        assert_ne!(first.version, empty.version);
        assert_eq!(first.bytes, "{}");
    }

    #[test]
    fn the_answers_about_nothing_are_json() {
        for json in [NO_PHASES, NO_SYSCALLS] {
            serde_json::from_str::<serde::de::IgnoredAny>(json).expect("JSON");
        }
    }
}
