//! Folder names, exactly as LTTng makes them.
//!
//! ```text
//! session          HOST/NAME-YYYYMMDD-HHMMSS    HOST/NAME when the name has its time    HOST/BASE/PATH when given
//!                  before LTTng 2.11 the first two components of its first stream's path
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
use crate::root::Root;

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

    /// The folder of a session, relative to the root; the root itself for producers before LTTng 2.11, whose streams name
    /// it ([`session_of`]).
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

/// Whether a chunk that goes there is to be deleted.
pub(crate) fn is_trash(folder: &RelativePath) -> bool {
    folder.as_path().starts_with(Root::own("trash").as_path())
}

/// Whether a path leads to or through something that is named as a chunk's manifest, which only the relay writes.
pub(crate) fn has_manifest(path: &RelativePath) -> bool {
    path.components().any(|component| [MANIFEST, HIDDEN_MANIFEST].contains(&component))
}

/// Components of a session's folder in the paths of producers before LTTng 2.11: host and name.
const SESSION_DEPTH: usize = 2;

/// The session's folder in the path of a stream of a producer before LTTng 2.11. `host` is what the session said, empty
/// before LTTng 2.4; the path has to begin with it.
pub(crate) fn session_of(path: &RelativePath, host: &str) -> Result<RelativePath> {
    let foreign = || Error::ForeignPath { path: path.to_string() };
    let mut components = path.components();
    let (Some(first), Some(name)) = (components.next(), components.next()) else {
        return Err(foreign());
    };
    if !host.is_empty() && first != host {
        return Err(foreign());
    }
    if first.starts_with('.') || is_reserved(name) || has_manifest(path) {
        return Err(Error::ReservedPath { path: path.to_string() });
    }
    first_components(path, SESSION_DEPTH)
}

/// A path relative to the folder it lies in; `None` when it lies elsewhere.
pub(crate) fn below(path: &RelativePath, folder: &RelativePath) -> Option<RelativePath> {
    let rest = path.as_path().strip_prefix(folder.as_path()).ok()?;
    RelativePath::new(rest.to_str()?).ok()
}

/// Whether one of two folders is the other or lies in it.
pub(crate) fn overlap(one: &RelativePath, other: &RelativePath) -> bool {
    one.as_path().starts_with(other.as_path()) || other.as_path().starts_with(one.as_path())
}

/// The first `count` components of a path.
pub(crate) fn first_components(path: &RelativePath, count: usize) -> Result<RelativePath> {
    let components: Vec<&str> = path.components().take(count).collect();
    RelativePath::new(&components.join("/")).map_err(bad_name)
}

/// A path with a number behind its `depth`-th component, counted from 1, where a folder is taken.
pub(crate) fn numbered(path: &RelativePath, depth: usize, number: u32) -> Result<RelativePath> {
    let name = |(at, component): (usize, &str)| match at + 1 == depth {
        true => format!("{component}-{number}"),
        false => component.to_owned(),
    };
    let components: Vec<String> = path.components().enumerate().map(name).collect();
    RelativePath::new(&components.join("/")).map_err(bad_name)
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
