//! The folder of chunks: which there are, how one comes, and how the oldest go.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{On, Result};

/// Chunks that are kept at most, whatever their size: one each ten seconds for eleven days.
const MAX_CHUNKS: usize = 100_000;
const PREFIX: &str = "chunk-";
/// Before the name of a chunk that is not there yet, or not any more.
const HIDDEN: char = '.';

pub(super) struct Chunks {
    folder: PathBuf,
    /// Tells chunks of this journal from those of others, whose entries have the same numbers.
    journal: String,
    keep_bytes: u64,
    /// All chunks that are kept, the oldest first, and their lengths in bytes.
    kept: VecDeque<(String, u64)>,
    bytes: u64,
    /// Entries before this one are in chunks.
    next: u64,
    newest: Option<PathBuf>,
}

/// A chunk that is being written.
pub(super) struct Part {
    /// Where.
    pub(super) path: PathBuf,
    name: String,
    last: u64,
}

impl Chunks {
    pub(super) fn open(folder: &Path, journal: [u8; 16], keep_bytes: u64) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).on("make the folder", folder)?;
        let [a, b, c, d, ..] = journal;
        let journal = format!("{a:02x}{b:02x}{c:02x}{d:02x}");
        let mut found = Vec::new();
        let mut newest: Option<(u64, PathBuf)> = None;
        for entry in fs::read_dir(folder).on("list", folder)? {
            let path = entry.on("list", folder)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.strip_prefix(HIDDEN).and_then(parse).is_some() {
                fs::remove_dir_all(&path).on("remove", &path)?;
                continue;
            }
            let Some((last, of)) = parse(name) else { continue };
            let modified = fs::metadata(&path).and_then(|it| it.modified()).on("look at", &path)?;
            found.push((modified, name.to_owned(), len(&path)?));
            if of == journal && newest.as_ref().is_none_or(|(before, _)| *before < last) {
                newest = Some((last, path));
            }
        }
        found.sort();
        let kept = found.into_iter().map(|(_, name, len): (SystemTime, _, _)| (name, len));
        let kept: VecDeque<(String, u64)> = kept.collect();
        let bytes = kept.iter().map(|(_, len)| len).sum();
        let next = newest.as_ref().map_or(0, |(last, _)| last + 1);
        let newest = newest.map(|(_, path)| path);
        Ok(Self { folder: folder.to_owned(), journal, keep_bytes, kept, bytes, next, newest })
    }

    /// The first entry that is in no chunk.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The last chunk of this journal.
    pub(super) fn newest(&self) -> Option<PathBuf> {
        self.newest.clone()
    }

    /// Begins a chunk of these entries; what an attempt before left of it is removed.
    pub(super) fn begin(&self, first: u64, last: u64) -> Result<Part> {
        let name = format!("{PREFIX}{first:020}-{last:020}-{}", self.journal);
        let path = self.folder.join(format!("{HIDDEN}{name}"));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).on("remove", &path)?
            }
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&path).on("make the folder", &path)?;
        Ok(Part { path, name, last })
    }

    /// Has a chunk that is whole survive the machine, and gives it its name.
    pub(super) fn seal(&mut self, part: Part) -> Result<()> {
        sync(&part.path)?;
        let len = len(&part.path)?;
        let path = self.folder.join(&part.name);
        fs::rename(&part.path, &path).on("rename", &part.path)?;
        self.next = part.last + 1;
        self.kept.push_back((part.name, len));
        self.bytes += len;
        self.newest = Some(path);
        File::open(&self.folder).and_then(|it| it.sync_all()).on("sync", &self.folder)
    }

    /// Deletes the oldest chunks while all together are too large; never the newest.
    pub(super) fn let_go(&mut self) -> Result<()> {
        while self.bytes > self.keep_bytes || self.kept.len() > MAX_CHUNKS {
            if self.kept.len() < 2 {
                break;
            }
            let Some((name, len)) = self.kept.front() else { break };
            let (path, hidden) = (self.folder.join(name), format!("{HIDDEN}{name}"));
            let hidden = self.folder.join(hidden);
            // In one step, so that no reader finds half of it.
            match fs::rename(&path, &hidden) {
                Ok(()) => fs::remove_dir_all(&hidden).on("remove", &hidden)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).on("remove", &path),
            }
            self.bytes -= len;
            self.kept.pop_front();
        }
        Ok(())
    }
}

/// The last entry that a chunk's name says, and its journal.
fn parse(name: &str) -> Option<(u64, &str)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let [first, last, journal] = [parts.next()?, parts.next()?, parts.next()?];
    let is_number = |it: &str| it.len() == 20 && it.bytes().all(|it| it.is_ascii_digit());
    let is_name = is_number(first) && journal.len() == 8 && parts.next().is_none();
    (is_name && is_number(last)).then(|| last.parse().ok()).flatten().map(|last| (last, journal))
}

/// Bytes of all files below a folder.
fn len(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    walk(folder, &mut |_, len| {
        bytes += len;
        Ok(())
    })?;
    Ok(bytes)
}

/// Has a folder and all that is below it survive the machine.
fn sync(folder: &Path) -> Result<()> {
    let sync = |path: &Path| File::open(path).and_then(|it| it.sync_all()).on("sync", path);
    walk(folder, &mut |path, _| sync(path))?;
    sync(folder)
}

/// Shows what is below a folder, with the lengths of files.
fn walk(folder: &Path, visit: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder).on("list", folder)? {
        let path = entry.on("list", folder)?.path();
        let about = fs::symlink_metadata(&path).on("look at", &path)?;
        if about.is_dir() {
            walk(&path, visit)?;
        }
        visit(&path, if about.is_file() { about.len() } else { 0 })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: [u8; 16] = [0xab; 16];

    fn add(chunks: &mut Chunks, first: u64, last: u64) {
        let part = chunks.begin(first, last).unwrap();
        fs::create_dir(part.path.join("trace")).unwrap();
        fs::write(part.path.join("trace/stream"), [0; 100]).unwrap();
        chunks.seal(part).unwrap();
        chunks.let_go().unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn name(first: u64, last: u64) -> String {
        format!("chunk-{first:020}-{last:020}-abababab")
    }

    #[test]
    fn names_say_where_to_go_on_and_half_a_chunk_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let open = |journal| Chunks::open(folder.path(), journal, u64::MAX).unwrap();
        let mut chunks = open(JOURNAL);
        assert_eq!((chunks.next(), chunks.newest()), (0, None));
        add(&mut chunks, 0, 9);
        add(&mut chunks, 12, 12);
        fs::write(chunks.begin(13, 40).unwrap().path.join("metadata"), "half").unwrap();
        let chunks = open(JOURNAL);
        assert_eq!(chunks.next(), 13);
        assert_eq!(chunks.newest(), Some(folder.path().join(name(12, 12))));
        assert_eq!(names(folder.path()), [name(0, 9), name(12, 12)]);
        // Entries of another journal have the same numbers, and are others.
        assert_eq!((open([7; 16]).next(), open([7; 16]).newest()), (0, None));
    }

    #[test]
    fn the_oldest_chunks_go_and_the_newest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut chunks = Chunks::open(folder.path(), JOURNAL, 250).unwrap();
        (0..4).for_each(|at| add(&mut chunks, at, at));
        assert_eq!(names(folder.path()), [name(2, 2), name(3, 3)]);
        fs::remove_dir_all(folder.path().join(name(2, 2))).unwrap();
        let mut chunks = Chunks::open(folder.path(), JOURNAL, 50).unwrap();
        assert_eq!(chunks.bytes, 100);
        add(&mut chunks, 4, 4);
        assert_eq!(names(folder.path()), [name(4, 4)]);
        assert_eq!(chunks.next(), 5);
    }

    #[test]
    fn what_is_called_otherwise_is_left_alone() {
        for name in ["chunk-1-2-abababab", "chunk-", "records-0", ".chunk", "chunk-x-y-z"] {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse(&name(3, 8)), Some((8, "abababab")));
    }
}
