//! Which folders below a path are traces.
//!
//! A folder with a file `metadata` is one *physical trace*; every other regular file in it whose name does not
//! begin with `.` is a stream file; one that is compressed is listed by its plain name, with the length of its packets. A folder named `index` holds LTTng's packet indexes. Folders nest as LTTng
//! lays them out (`kernel/`, `ust/uid/…`, `archives/<chunk>/…`) or in any other way, and a trace may lie
//! inside of another. Folders whose names begin with `.` are passed over, but for the one in which LTTng keeps a chunk
//! while it is archived.
//!
//! Symbolic links below the given paths are not followed: a recording never leads out of its folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::chunk::{ARCHIVES, ChunkName};
use crate::error::{Action, Error};
use crate::finding::Findings;
use crate::source::{self, FileId};

/// Deepest nesting below a given path. LTTng's deepest layout needs 9.
pub const MAX_DEPTH: usize = 32;
/// Most stream files one discovery returns; the list of them is the only thing that grows.
pub const MAX_STREAM_FILES: usize = 1 << 20;

/// Name of the metadata file.
pub(crate) const METADATA: &str = "metadata";
/// Where the session daemon of LTTng keeps the chunk before while a rotation goes on: its last packets are written there.
pub(crate) const OLD_CHUNK: &str = ".tmp_old_chunk";
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
    /// The file; of one that is compressed, its name without the ending (see [`PacketSource`](crate::PacketSource)).
    pub path: PathBuf,
    /// Its length in bytes, decompressed.
    pub len: u64,
    /// Which file that was; `None` when it was not listed.
    pub(crate) id: Option<FileId>,
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
    let Found { folders, unlisted } = discover_listable(paths)?;
    unlisted.into_iter().next().map_or(Ok(folders), Err)
}

/// What is below some paths.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) folders: Vec<TraceFolder>,
    /// Folders below the paths that cannot be listed, the first [`Findings::KEPT`].
    pub(crate) unlisted: Vec<Error>,
}

/// As [`discover`], where a folder below a path that cannot be listed is no error.
pub(crate) fn discover_listable<P: AsRef<Path>>(paths: &[P]) -> Result<Found, Error> {
    Discovery::default().all(paths)
}

/// Looks at the same paths again and again.
///
/// A chunk in `archives` is not written any more, but it may have been copied there and still be growing: each is
/// listed again a few times after it was found and after it changed, and then once in a while.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    looks: u64,
    chunks: HashMap<PathBuf, SealedChunk>,
}

/// What was found in a chunk's folder.
#[derive(Debug)]
struct SealedChunk {
    traces: BTreeMap<PathBuf, TraceFolder>,
    /// The look that found a change.
    changed: u64,
    /// The look that met it last.
    met: u64,
    /// In which looks it is listed again, of every [`Watch::ONCE_IN`].
    turn: u64,
}

impl Watch {
    /// How many looks in a row list a chunk that changed.
    const SETTLING: u64 = 4;
    /// Once in so many looks a settled chunk is listed again.
    const ONCE_IN: u64 = 32;

    /// As [`discover_listable`].
    pub(crate) fn look<P: AsRef<Path>>(&mut self, paths: &[P]) -> Result<Found, Error> {
        self.looks += 1;
        let looks = self.looks;
        let found = Discovery { watch: Some(self), ..Discovery::default() }.all(paths)?;
        self.chunks.retain(|_, chunk| chunk.met == looks);
        Ok(found)
    }

    /// The traces of a sealed chunk, when it need not be listed.
    fn settled(&mut self, folder: &Path) -> Option<&BTreeMap<PathBuf, TraceFolder>> {
        let chunk = self.chunks.get_mut(folder)?;
        chunk.met = self.looks;
        let settled = self.looks - chunk.changed >= Self::SETTLING;
        (settled && self.looks % Self::ONCE_IN != chunk.turn).then_some(&chunk.traces)
    }

    /// Keeps what was found in a sealed chunk.
    fn keep(&mut self, folder: &Path, traces: &BTreeMap<PathBuf, TraceFolder>) {
        let (looks, turn) = (self.looks, self.chunks.len() as u64 % Self::ONCE_IN);
        match self.chunks.get_mut(folder) {
            Some(known) if known.traces == *traces => {}
            Some(known) => {
                known.traces.clone_from(traces);
                known.changed = looks;
            }
            None => {
                let traces = traces.clone();
                let chunk = SealedChunk { traces, changed: looks, met: looks, turn };
                self.chunks.insert(folder.to_owned(), chunk);
            }
        }
    }
}

/// Whether this is the folder of a sealed chunk.
fn is_sealed_chunk(folder: &Path) -> bool {
    let name = folder.file_name().and_then(OsStr::to_str).and_then(ChunkName::parse);
    name.is_some_and(|name| name.end.is_some())
        && folder.parent().and_then(Path::file_name) == Some(OsStr::new(ARCHIVES))
}

#[derive(Default)]
struct Discovery<'w> {
    /// Keyed by the canonical path, so that overlapping arguments meet.
    traces: BTreeMap<PathBuf, TraceFolder>,
    files: usize,
    unlisted: Vec<Error>,
    watch: Option<&'w mut Watch>,
}

struct Pending {
    shown: PathBuf,
    real: PathBuf,
    depth: usize,
}

impl Discovery<'_> {
    fn all<P: AsRef<Path>>(mut self, paths: &[P]) -> Result<Found, Error> {
        for path in paths {
            let path = path.as_ref();
            let real =
                fs::canonicalize(path).map_err(|source| Error::io(Action::Open, path, source))?;
            if !real.is_dir() {
                return Err(Error::NotAFolder { path: path.to_owned() });
            }
            self.walk(Pending { shown: path.to_owned(), real, depth: 0 })?;
        }
        let mut folders: Vec<TraceFolder> = self.traces.into_values().collect();
        folders.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Found { folders, unlisted: self.unlisted })
    }

    fn walk(&mut self, first: Pending) -> Result<(), Error> {
        let mut pending = vec![first];
        while let Some(folder) = pending.pop() {
            if is_sealed_chunk(&folder.shown)
                && let Some(watch) = self.watch.take()
            {
                let taken = self.chunk(watch, folder);
                self.watch = Some(watch);
                taken?;
                continue;
            }
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
                Err(error) if folder.depth > 0 => {
                    self.leave_out(error);
                    continue;
                }
                listed => listed?,
            };
            // The last one is taken first.
            pending.extend(in_order_of_moves(listed.folders).iter().rev().map(|name| Pending {
                shown: folder.shown.join(name),
                real: folder.real.join(name),
                depth: folder.depth + 1,
            }));
            if let Some(metadata_len) = listed.metadata_len {
                let stream_files = listed.files;
                let trace = TraceFolder { path: folder.shown, metadata_len, stream_files };
                self.add(folder.real, trace)?;
            }
        }
        Ok(())
    }

    /// The traces of a sealed chunk, listed again or not.
    fn chunk(&mut self, watch: &mut Watch, folder: Pending) -> Result<(), Error> {
        let shown = folder.shown.clone();
        let traces = match watch.settled(&shown) {
            Some(settled) => settled.clone(),
            None => {
                let mut listed = Discovery::default();
                listed.walk(folder)?;
                if listed.unlisted.is_empty() {
                    watch.keep(&shown, &listed.traces);
                }
                listed.unlisted.into_iter().for_each(|error| self.leave_out(error));
                listed.traces
            }
        };
        traces.into_iter().try_for_each(|(real, trace)| self.add(real, trace))
    }

    fn leave_out(&mut self, error: Error) {
        if self.unlisted.len() < Findings::KEPT {
            self.unlisted.push(error);
        }
    }

    fn add(&mut self, real: PathBuf, trace: TraceFolder) -> Result<(), Error> {
        self.files = self.files.saturating_add(trace.stream_files.len());
        if self.files > MAX_STREAM_FILES || self.traces.len() >= MAX_STREAM_FILES {
            return Err(Error::TooMany {
                things: "stream files",
                path: trace.path,
                limit: MAX_STREAM_FILES,
            });
        }
        self.traces.entry(real).or_insert(trace);
        Ok(())
    }
}

/// Folders of one folder, sorted so that what a rotation moves from one to another while they are listed is met at least
/// once: it is moved from the front to the back.
fn in_order_of_moves(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort_by_cached_key(|name| match name.to_str() {
        Some(ARCHIVES) => 2,
        Some(OLD_CHUNK) => 1,
        _ => 0,
    });
    folders
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
        if name.as_encoded_bytes().first() == Some(&b'.') && name != OsStr::new(OLD_CHUNK) {
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
                let id = Some(FileId::of(&attributes, false));
                listing.files.push(StreamFile { path, len: attributes.len(), id });
            }
        }
    }
    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
    take_compressed(&mut listing);
    Ok(listing)
}

/// Lists compressed files by the names of what is in them; not where the plain file is there as well.
fn take_compressed(listing: &mut Listing) {
    let is_named_so = |file: &StreamFile| file.path.file_name().and_then(source::plain_name);
    if !listing.files.iter().any(|file| is_named_so(file).is_some()) {
        return;
    }
    let plain: BTreeSet<PathBuf> = listing.files.iter().map(|file| file.path.clone()).collect();
    for mut file in std::mem::take(&mut listing.files) {
        let name = is_named_so(&file).filter(|name| name != METADATA);
        if let Some(name) = name
            && let Some((len, id)) = source::compressed(&file.path)
        {
            file = StreamFile { path: file.path.with_file_name(name), len, id };
            if plain.contains(&file.path) {
                continue;
            }
        }
        listing.files.push(file);
    }
    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, len: usize) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path.parent().unwrap().join(METADATA), "x").unwrap();
        fs::write(path, vec![0; len]).unwrap();
    }

    #[test]
    fn a_chunk_is_looked_for_where_it_is_moved_to_after_where_it_was() {
        let folders = [ARCHIVES, "ust", OLD_CHUNK, "20261120T164407+0000-1", "kernel"];
        let sorted = in_order_of_moves(folders.map(PathBuf::from).to_vec());
        let (rest, last) = sorted.split_at(3);
        assert_eq!(last, [OLD_CHUNK, ARCHIVES].map(PathBuf::from));
        assert_eq!(rest, ["ust", "20261120T164407+0000-1", "kernel"].map(PathBuf::from));
    }

    #[test]
    fn a_settled_chunk_is_listed_once_in_a_while_and_all_else_each_time() {
        let session = tempfile::tempdir().unwrap();
        let chunk = |id: u64| {
            let name = format!("archives/20261120T164407+0000-20261120T164408+0000-{id}");
            session.path().join(name)
        };
        let file = |id: u64| chunk(id).join("ust/ch");
        (0..40).for_each(|id| write(&file(id), 1));
        let open = session.path().join("20261120T164408+0000-40/ust/ch");
        let mut watch = Watch::default();
        let paths = [session.path()];
        let mut look = || watch.look(&paths).unwrap().folders;
        for len in 1..20 {
            write(&open, len);
            assert_eq!(look(), discover(&paths).unwrap(), "{len}");
        }
        // What grows though it should not is found at last, and then listed for some time.
        write(&file(7), 2);
        let looks = (1..=Watch::ONCE_IN).find(|_| look() == discover(&paths).unwrap());
        assert!(looks.is_some_and(|looks| looks > 1), "{looks:?}");
        write(&file(7), 3);
        assert_eq!(look(), discover(&paths).unwrap());
        // A chunk that is deleted or arrives is seen at once.
        fs::remove_dir_all(chunk(3)).unwrap();
        write(&file(41), 1);
        assert_eq!(look(), discover(&paths).unwrap());
        assert_eq!(watch.chunks.len(), 40);
        let own = Watch::default().look(&[chunk(7)]).unwrap().folders;
        assert_eq!(own, discover(&[chunk(7)]).unwrap());
    }
}
