//! Folder names, exactly as LTTng makes them.
//!
//! ```text
//! session          HOST/NAME-YYYYMMDD-HHMMSS    HOST/NAME when the name has its time    HOST/BASE/PATH when given
//! current chunk    <begin>-<id>                 after the first rotation
//! archived chunk   archives/<begin>-<end>-<id>
//! ```
//! `<begin>` and `<end>` are `YYYYMMDDTHHMMSS+ZZZZ`. All times are the producer's, shown in the relay's time zone.

use jiff::Timestamp;
use jiff::tz;
use tracedir::manifest::{HIDDEN_MANIFEST, MANIFEST};
use wire::live::{ChunkId, CreateSession, Name, RelativePath, UnixSeconds};

use crate::config::TimeZone;
use crate::error::{Error, Result};

/// The folder closed chunks move to.
pub(crate) const ARCHIVES: &str = "archives";

/// Writes times in one time zone.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    zone: tz::TimeZone,
}

impl Names {
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self {
            zone: match zone {
                TimeZone::System => tz::TimeZone::system(),
                TimeZone::Utc => tz::TimeZone::UTC,
            },
        }
    }

    /// The folder of a session, relative to the root; the root itself for producers before LTTng 2.11.
    pub(crate) fn session(&self, create: &CreateSession) -> Result<RelativePath> {
        let (Some(host), Some(name), Some(identity)) =
            (&create.hostname, &create.session_name, &create.identity)
        else {
            return Ok(RelativePath::default());
        };
        let host = RelativePath::from(host.clone());
        if !identity.base_path.is_empty() {
            return Ok(host.join_path(&identity.base_path));
        }
        let folder = if identity.name_has_creation_time {
            name.clone()
        } else {
            checked(format!("{name}-{}", self.format(identity.created, "%Y%m%d-%H%M%S")?))?
        };
        Ok(host.join(&folder))
    }

    /// The folder name of a chunk that is being written.
    pub(crate) fn current_chunk(&self, begin: UnixSeconds, chunk: ChunkId) -> Result<Name> {
        checked(format!("{}-{chunk}", self.chunk_time(begin)?))
    }

    /// The folder of an archived chunk, relative to the session's.
    pub(crate) fn archived_chunk(
        &self,
        begin: UnixSeconds,
        end: UnixSeconds,
        chunk: ChunkId,
    ) -> Result<RelativePath> {
        let name =
            checked(format!("{}-{}-{chunk}", self.chunk_time(begin)?, self.chunk_time(end)?))?;
        Ok(RelativePath::from(checked(ARCHIVES.to_owned())?).join(&name))
    }

    fn chunk_time(&self, time: UnixSeconds) -> Result<String> {
        self.format(time, "%Y%m%dT%H%M%S%z")
    }

    fn format(&self, time: UnixSeconds, pattern: &str) -> Result<String> {
        let timestamp = i64::try_from(time.get())
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or(Error::Meaningless { what: "a time beyond the year 9999" })?;
        Ok(timestamp.to_zoned(self.zone.clone()).strftime(pattern).to_string())
    }
}

/// Whether a component in a session's folder belongs to the relay: the archives, the folders of chunks that follow
/// the first, and hidden ones.
pub(crate) fn is_reserved(component: &str) -> bool {
    let looks_like_time = component.split_at_checked(8).is_some_and(|(date, rest)| {
        date.bytes().all(|byte| byte.is_ascii_digit()) && rest.starts_with('T')
    });
    component == ARCHIVES || component.starts_with('.') || looks_like_time
}

/// Whether a path leads to or through something that is named as a chunk's manifest, which only the relay writes.
pub(crate) fn has_manifest(path: &RelativePath) -> bool {
    path.components().any(|component| [MANIFEST, HIDDEN_MANIFEST].contains(&component))
}

/// `name` with a number, for a folder that is taken.
pub(crate) fn numbered(path: &RelativePath, number: u32) -> Result<RelativePath> {
    RelativePath::new(&format!("{path}-{number}")).map_err(bad_name)
}

fn checked(name: String) -> Result<Name> {
    Name::new(name).map_err(bad_name)
}

fn bad_name(problem: wire::live::NameProblem) -> Error {
    Error::Protocol(wire::live::Error::BadName { field: "folder", offset: 0, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_names_are_those_of_lttng() {
        let names = Names::new(TimeZone::Utc);
        let (begin, end) = (UnixSeconds::new(1_795_191_738), UnixSeconds::new(1_795_191_739));
        assert_eq!(
            names.archived_chunk(begin, end, ChunkId::new(0)).unwrap().as_str(),
            "archives/20261120T162218+0000-20261120T162219+0000-0"
        );
        assert_eq!(
            names.current_chunk(end, ChunkId::new(1)).unwrap().as_str(),
            "20261120T162219+0000-1"
        );
    }

    #[test]
    fn times_that_have_no_name_are_refused() {
        let names = Names::new(TimeZone::Utc);
        assert!(names.current_chunk(UnixSeconds::new(u64::MAX), ChunkId::new(0)).is_err());
    }

    #[test]
    fn folders_of_the_relay_are_recognised() {
        for name in ["archives", ".relay", "20261120T162219+0000-1"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["ust", "kernel", "20261120", "snapshot-1-20261120-162246-0"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
