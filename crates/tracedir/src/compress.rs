//! Compresses the data streams of chunks where they lie, and decompresses them.
//!
//! Of a stream file `ch_0`, in this order:
//!
//! 1. `.ch_0.zst` is written, brought to the disk, read back and compared, and renamed to `ch_0.zst`;
//! 2. when all streams of the chunk are so, the manifest says what they are compressed to;
//! 3. `ch_0` is removed.
//!
//! Whoever reads sees one of both at any time, and both hold the same: a kill at any moment leaves a chunk that can be
//! read, and doing it again finishes it. Decompressing is the same the other way round. Metadata and indexes stay as they are; so does a
//! stream that would not be smaller.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::discover::{INDEX, StreamFile, discover};
use crate::error::{Action, Error};
use crate::index::Index;
use crate::manifest::{self, CompressedFile, Manifest, checksum, inner_path};
use crate::seekable::{self, FrameEnds, Level, Source, Written};
use crate::source::{PacketSource, compressed_path};

/// How much is copied at a time when content is decompressed.
const PIECE: usize = seekable::MAX_FRAME_BYTES;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repacked {
    /// Files compressed or decompressed.
    pub files: u64,
    /// Bytes of their packets.
    pub content_bytes: u64,
    /// Bytes of them compressed.
    pub compressed_bytes: u64,
    /// Files left as they are: compressed they would not be smaller, or their bytes are not those of the manifest.
    pub left: u64,
}

/// Compresses the data streams of the sealed chunk in `folder`, those of a manifest that is there. `go_on` is asked all along.
///
/// # Errors
/// [`Error::NoManifest`]; [`Error::Io`], of the kind [`io::ErrorKind::Interrupted`] when `go_on` says no. The chunk can be
/// read all the same, and it can be done again.
pub fn compress_chunk(
    folder: &Path,
    level: Level,
    go_on: &dyn Fn() -> bool,
) -> Result<Repacked, Error> {
    let mut repacked = Repacked::default();
    let mut manifest = read_manifest(folder)?;
    let streams = streams_of(&manifest);
    let mut replaced = Vec::new();
    let files = manifest.contents.files.iter_mut().filter(|file| streams.contains(&file.path));
    for file in files {
        let Some(path) = inner_path(&file.path).map(|path| folder.join(path)) else { continue };
        if !is_file(&path) {
            continue;
        }
        let known = Some((file.bytes, &*file.sha256));
        match compress_file(&path, level, known, go_on)? {
            Some(Written { bytes, sha256, content_bytes, .. }) => {
                file.compressed = Some(CompressedFile { bytes, sha256 });
                repacked.add(content_bytes, bytes);
                replaced.push(path);
            }
            None => {
                file.compressed = None;
                repacked.left += 1;
            }
        }
    }
    if repacked != Repacked::default() {
        sync_folders(&replaced)?;
        manifest.replace(folder)?;
        remove(&replaced)?;
    }
    Ok(repacked)
}

/// Decompresses the data streams of the sealed chunk in `folder`. `go_on` is asked all along.
///
/// # Errors
/// As [`compress_chunk`]; also for a file that is damaged.
pub fn decompress_chunk(folder: &Path, go_on: &dyn Fn() -> bool) -> Result<Repacked, Error> {
    let mut repacked = Repacked::default();
    let mut manifest = read_manifest(folder)?;
    let mut replaced = Vec::new();
    for file in &mut manifest.contents.files {
        let Some(path) = inner_path(&file.path).map(|path| folder.join(path)) else { continue };
        let compressed = compressed_path(&path);
        if !is_file(&compressed) || source_of(&compressed).is_none() {
            continue;
        }
        if !is_file(&path) {
            match decompress_file(&path, Some(&file.sha256), go_on)? {
                Some((content, bytes)) => repacked.add(content, bytes),
                None => {
                    repacked.left += 1;
                    continue;
                }
            }
        }
        file.compressed = None;
        replaced.push(compressed);
    }
    if !replaced.is_empty() {
        sync_folders(&replaced)?;
        manifest.replace(folder)?;
        remove(&replaced)?;
    }
    Ok(repacked)
}

/// Compresses all stream files at or below `paths` that no manifest describes. Nobody may be writing to them; one that changes
/// meanwhile is left.
///
/// # Errors
/// As [`discover`] and [`compress_chunk`].
pub fn compress_loose<P: AsRef<Path>>(
    paths: &[P],
    level: Level,
    go_on: &dyn Fn() -> bool,
) -> Result<Repacked, Error> {
    let mut repacked = Repacked::default();
    for path in loose_files(paths)?.into_iter().filter(|path| is_file(path)) {
        match compress_file(&path, level, None, go_on)? {
            Some(written) => {
                repacked.add(written.content_bytes, written.bytes);
                sync_folders(std::slice::from_ref(&path))?;
                remove(std::slice::from_ref(&path))?;
            }
            None => repacked.left += 1,
        }
    }
    Ok(repacked)
}

/// Decompresses all stream files at or below `paths` that no manifest describes.
///
/// # Errors
/// As [`discover`] and [`decompress_chunk`].
pub fn decompress_loose<P: AsRef<Path>>(
    paths: &[P],
    go_on: &dyn Fn() -> bool,
) -> Result<Repacked, Error> {
    let mut repacked = Repacked::default();
    for path in loose_files(paths)? {
        let compressed = compressed_path(&path);
        if source_of(&compressed).is_none() {
            continue;
        }
        if !is_file(&path) {
            let done = decompress_file(&path, None, go_on)?;
            repacked
                .add(done.map_or(0, |(content, _)| content), done.map_or(0, |(_, bytes)| bytes));
        }
        sync_folders(std::slice::from_ref(&path))?;
        remove(&[compressed])?;
    }
    Ok(repacked)
}

impl Repacked {
    const fn add(&mut self, content_bytes: u64, compressed_bytes: u64) {
        self.files += 1;
        self.content_bytes += content_bytes;
        self.compressed_bytes += compressed_bytes;
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            content_bytes: self.content_bytes + other.content_bytes,
            compressed_bytes: self.compressed_bytes + other.compressed_bytes,
            left: self.left + other.left,
        }
    }
}

/// Stream files, by their plain names, of which no manifest speaks.
fn loose_files<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>, Error> {
    let mut described = BTreeSet::new();
    for folder in manifest::find(paths) {
        // One that cannot be read may describe anything below it.
        let manifest = Manifest::read(&folder).map_err(|problem| Error::NoManifest {
            path: folder.clone(),
            problem: Some(Box::new(problem)),
        })?;
        let files = manifest.map(|manifest| manifest.contents.files).unwrap_or_default();
        described.extend(files.iter().map(|file| folder.join(&file.path)));
    }
    let folders = discover(paths)?.into_iter();
    let files = folders.flat_map(|folder| folder.stream_files).map(|file| file.path);
    Ok(files.filter(|path| !described.contains(path)).collect())
}

/// The files of a manifest that hold packets: those of its streams, and where metadata never came, those that have an index.
fn streams_of(manifest: &Manifest) -> BTreeSet<String> {
    let contents = &manifest.contents;
    let streams = contents.streams.iter().flat_map(|stream| &stream.files).cloned();
    let indexed = contents.files.iter().filter_map(|file| {
        let (folder, name) = file.path.strip_suffix(".idx")?.rsplit_once('/')?;
        let folder = folder.strip_suffix(INDEX)?;
        Some(format!("{folder}{name}"))
    });
    streams.chain(indexed).collect()
}

fn read_manifest(folder: &Path) -> Result<Manifest, Error> {
    let missing = |problem| Error::NoManifest { path: folder.to_owned(), problem };
    Manifest::read(folder)
        .map_err(|problem| missing(Some(Box::new(problem))))?
        .ok_or_else(|| missing(None))
}

/// Makes `path.zst` of `path`, whole and on the disk; `None` when the plain one is to stay. `known` is what its length and
/// SHA-256 must be.
fn compress_file(
    path: &Path,
    level: Level,
    known: Option<(u64, &str)>,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Written>, Error> {
    let failed = |action, path: &Path, source| Error::io(action, path, source);
    let open = || -> io::Result<_> {
        let file = File::open(path)?;
        let attributes = file.metadata()?;
        Ok((file, attributes))
    };
    let (file, before) = open().map_err(|error| failed(Action::Open, path, error))?;
    let len = before.len();
    let coming = hidden(&compressed_path(path));
    let write = || {
        let mut output = create(&coming)?;
        output.set_permissions(before.permissions())?;
        let stream = StreamFile { path: path.to_owned(), len, id: None };
        let packets = Index::open(&stream).ok().flatten().into_iter().flatten();
        let ends = FrameEnds::new(packets.map(|entry| entry.offset_bytes), len);
        let written = seekable::compress(&mut &file, ends, level, &mut output, go_on)?;
        output.sync_all()?;
        Ok(written)
    };
    let written = write().map_err(|error| abandon(&coming, error))?;
    let read_back = || -> io::Result<(u64, String)> {
        checksum(&PacketSource::compressed(File::open(&coming)?)?)
    };
    let (bytes, sha256) = read_back().map_err(|error| abandon(&coming, error))?;
    let (_, after) = open().map_err(|error| failed(Action::Open, path, error))?;
    let is_same = bytes == len
        && sha256 == written.content_sha256
        && known.is_none_or(|known| known == (bytes, &*sha256))
        && (after.len(), after.modified().ok()) == (len, before.modified().ok());
    if !is_same || written.bytes >= len {
        fs::remove_file(&coming).map_err(|error| failed(Action::Write, &coming, error))?;
        return Ok(None);
    }
    fs::rename(&coming, compressed_path(path))
        .map_err(|error| failed(Action::Write, &coming, error))?;
    Ok(Some(written))
}

/// Makes `path` of `path.zst`, whole and on the disk; `None` when its content does not have the checksum that is known. Gives the
/// lengths of both.
fn decompress_file(
    path: &Path,
    known: Option<&str>,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<(u64, u64)>, Error> {
    let compressed = compressed_path(path);
    let coming = hidden(path);
    let write = || {
        let source = PacketSource::compressed(File::open(&compressed)?)?;
        let attributes = source.file().metadata()?;
        let mut output = create(&coming)?;
        output.set_permissions(attributes.permissions())?;
        let mut piece = vec![0; PIECE];
        let mut len = 0;
        loop {
            if !go_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let read = source.read_some_at(&mut piece, len)?;
            if read == 0 {
                break;
            }
            output.write_all(piece.get(..read).unwrap_or_default())?;
            len += read as u64;
        }
        output.sync_all()?;
        let (len, sha256) = checksum(&File::open(&coming)?)?;
        Ok((len, sha256, attributes.len()))
    };
    let (len, sha256, compressed_len) = write().map_err(|error| abandon(&coming, error))?;
    if known.is_some_and(|known| known != sha256) {
        fs::remove_file(&coming).map_err(|error| Error::io(Action::Write, &coming, error))?;
        return Ok(None);
    }
    fs::rename(&coming, path).map_err(|error| Error::io(Action::Write, path, error))?;
    Ok(Some((len, compressed_len)))
}

/// Removes what was begun; gives the error of the file.
fn abandon(coming: &Path, error: io::Error) -> Error {
    // What is left is hidden from readers and overwritten by the next attempt.
    drop(fs::remove_file(coming));
    Error::io(Action::Write, coming, error)
}

fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// `a/b` as `a/.b`: readers pass over it.
fn hidden(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// A compressed file, if it begins like one.
fn source_of(path: &Path) -> Option<File> {
    File::open(path).ok().filter(crate::source::is_compressed)
}

fn remove(files: &[PathBuf]) -> Result<(), Error> {
    for path in files {
        fs::remove_file(path).map_err(|error| Error::io(Action::Write, path, error))?;
    }
    sync_folders(files)
}

/// Brings the names in the folders of some files to the disk.
fn sync_folders(files: &[PathBuf]) -> Result<(), Error> {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(|error| Error::io(Action::Write, folder, error))?;
    }
    Ok(())
}
