//! Which folders below a path are traces.
//!
//! A folder with a file `metadata` is one *physical trace*; every other regular file in it whose name does not
//! begin with `.` is a stream file. A folder named `index` holds LTTng's packet indexes. Folders nest as LTTng
//! lays them out (`kernel/`, `ust/uid/…`, `archives/<chunk>/…`) or in any other way, and a trace may lie
//! inside of another.
//!
//! Symbolic links below the given paths are not followed: a recording never leads out of its folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Action, Error};

/// Deepest nesting below a given path. LTTng's deepest layout needs 9.
pub const MAX_DEPTH: usize = 32;
/// Most stream files one discovery returns; the list of them is the only thing that grows.
pub const MAX_STREAM_FILES: usize = 1 << 20;

/// Name of the metadata file.
pub(crate) const METADATA: &str = "metadata";
/// Name of the folder of packet indexes.
pub(crate) const INDEX: &str = "index";

/// One folder with a metadata file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFolder {
    /// The folder.
    pub path: PathBuf,
    /// Length of its metadata file in bytes.
    pub metadata_len: u64,
    /// Its stream files, sorted by name; files of length 0 included.
    pub stream_files: Vec<StreamFile>,
}

impl TraceFolder {
    /// The metadata file.
    #[must_use]
    pub fn metadata(&self) -> PathBuf {
        self.path.join(METADATA)
    }

    /// Bytes in all stream files.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        self.stream_files.iter().map(|file| file.len).sum()
    }
}

/// One file of packets, as it was when it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFile {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
}

impl StreamFile {
    /// Where LTTng writes the index of this file.
    #[must_use]
    pub fn index_path(&self) -> Option<PathBuf> {
        let mut name = self.path.file_name()?.to_owned();
        name.push(".idx");
        Some(self.path.parent()?.join(INDEX).join(name))
    }
}

/// The trace folders at or below `paths`, sorted by path; a folder reached twice is listed once.
///
/// # Errors
/// [`Error::NotAFolder`] or [`Error::Io`] for the first path or folder that cannot be listed, [`Error::TooDeep`] and
/// [`Error::TooMany`] at the limits. An empty result is not an error.
pub fn discover<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<TraceFolder>, Error> {
    let mut found = Discovery::default();
    for path in paths {
        let path = path.as_ref();
        let real =
            fs::canonicalize(path).map_err(|source| Error::io(Action::Open, path, source))?;
        if !real.is_dir() {
            return Err(Error::NotAFolder { path: path.to_owned() });
        }
        found.walk(path.to_owned(), real)?;
    }
    let mut folders: Vec<TraceFolder> = found.traces.into_values().collect();
    folders.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(folders)
}

#[derive(Default)]
struct Discovery {
    /// Keyed by the canonical path, so that overlapping arguments meet.
    traces: BTreeMap<PathBuf, TraceFolder>,
    files: usize,
}

struct Pending {
    shown: PathBuf,
    real: PathBuf,
    depth: usize,
}

impl Discovery {
    fn walk(&mut self, shown: PathBuf, real: PathBuf) -> Result<(), Error> {
        let mut pending = vec![Pending { shown, real, depth: 0 }];
        while let Some(folder) = pending.pop() {
            if folder.depth > MAX_DEPTH {
                return Err(Error::TooDeep { path: folder.shown, limit: MAX_DEPTH });
            }
            let listed = match list(&folder.shown) {
                // A rotation may move a folder while the ones around it are listed.
                Err(Error::Io { source, .. })
                    if folder.depth > 0 && source.kind() == io::ErrorKind::NotFound =>
                {
                    continue;
                }
                listed => listed?,
            };
            pending.extend(listed.folders.iter().map(|name| Pending {
                shown: folder.shown.join(name),
                real: folder.real.join(name),
                depth: folder.depth + 1,
            }));
            if let Some(metadata_len) = listed.metadata_len {
                self.add(folder, metadata_len, listed.files)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        folder: Pending,
        metadata_len: u64,
        stream_files: Vec<StreamFile>,
    ) -> Result<(), Error> {
        self.files = self.files.saturating_add(stream_files.len());
        if self.files > MAX_STREAM_FILES || self.traces.len() >= MAX_STREAM_FILES {
            return Err(Error::TooMany {
                things: "stream files",
                path: folder.shown,
                limit: MAX_STREAM_FILES,
            });
        }
        let trace = TraceFolder { path: folder.shown, metadata_len, stream_files };
        self.traces.entry(folder.real).or_insert(trace);
        Ok(())
    }
}

#[derive(Default)]
struct Listing {
    metadata_len: Option<u64>,
    /// Regular files but `metadata`, sorted by name.
    files: Vec<StreamFile>,
    /// Names of folders that may hold traces.
    folders: Vec<PathBuf>,
}

fn list(folder: &Path) -> Result<Listing, Error> {
    let failed = |source| Error::io(Action::List, folder, source);
    let mut listing = Listing::default();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.as_encoded_bytes().first() == Some(&b'.') {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            if name != OsStr::new(INDEX) {
                listing.folders.push(PathBuf::from(name));
            }
        } else if kind.is_file() {
            let path = folder.join(&name);
            let attributes = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                attributes => {
                    attributes.map_err(|source| Error::io(Action::Open, &path, source))?
                }
            };
            if name == OsStr::new(METADATA) {
                listing.metadata_len = Some(attributes.len());
            } else {
                listing.files.push(StreamFile { path, len: attributes.len() });
            }
        }
    }
    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}
