//! Chunks of buckets, copied to a folder of bounded size while they are read.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use objects::{Io, Store};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tracedir::manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestFile, hex};

use crate::chunks::{folder_of, joined};
use crate::error::Error;
use crate::work::{Piece, Place};

/// Files of a chunk that are copied at a time.
const AT_ONCE: usize = 4;
/// How the folders of caches begin.
const PREFIX: &str = "throughline-cache-";
/// The file that a cache's process holds locked.
const LOCK: &str = "lock";

/// Copies of chunks; at most so many bytes of files, of which those that are not being read go first, the longest unused
/// before the others.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Removed with the cache; what a killed process leaves, the next one removes.
    root: TempDir,
    _lock: File,
    limit: u64,
    copies: Mutex<Copies>,
    released: Condvar,
    /// Held while something is copied: what one waits for, another may be bringing.
    copying: Mutex<()>,
}

#[derive(Debug, Default)]
struct Copies {
    by_folder: BTreeMap<PathBuf, Copy>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Copy {
    bytes: u64,
    checksum: [u8; 32],
    readers: usize,
    used: u64,
}

/// The folders of pieces that are being read; they stay until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'c> {
    cache: &'c Cache,
    pub(crate) folders: Vec<PathBuf>,
    held: Vec<PathBuf>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut copies = self.cache.copies();
        for folder in &self.held {
            if let Some(copy) = copies.by_folder.get_mut(folder) {
                copy.readers -= 1;
            }
        }
        drop(copies);
        self.cache.released.notify_all();
    }
}

impl Cache {
    /// A cache in a folder of its own inside `parent`, or the system's folder for temporary files.
    pub(crate) fn new(parent: Option<&Path>, limit: u64) -> Result<Self, Error> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = |source| Error::Io { path: parent.clone(), source };
        fs::create_dir_all(&parent).map_err(failed)?;
        remove_left_behind(&parent).map_err(failed)?;
        let root = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).map_err(failed)?;
        let lock = File::create(root.path().join(LOCK)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Self {
            root,
            _lock: lock,
            limit,
            copies: Mutex::default(),
            released: Condvar::new(),
            copying: Mutex::default(),
        })
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of the cache.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Holds these pieces ready, each in a folder, in their order. Waits while others read so much that there is no room.
    pub(crate) fn hold(&self, pieces: &[&Piece], io: &Io) -> Result<Held<'_>, Error> {
        let mut held = Held { cache: self, folders: Vec::new(), held: Vec::new() };
        let mut needed = 0_u64;
        for piece in pieces {
            match &piece.place {
                Place::Folder(folder) => held.folders.push(folder.clone()),
                Place::Bucket { url, folder, .. } => {
                    held.folders.push(folder_of(self.root(), url, folder));
                    needed = needed.saturating_add(piece.bytes);
                }
            }
        }
        if needed == 0 {
            return Ok(held);
        }
        if needed > self.limit {
            return Err(Error::CacheTooSmall { needed, limit: self.limit });
        }
        let one_at_a_time = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing = Vec::new();
        let folders = held.folders.clone();
        for (piece, folder) in pieces.iter().zip(folders) {
            let Place::Bucket { .. } = &piece.place else { continue };
            if self.keep(&folder, &piece.checksum) {
                held.held.push(folder);
            } else {
                missing.push((*piece, folder));
            }
        }
        self.make_room(missing.iter().map(|(piece, _)| piece.bytes).sum());
        for (piece, folder) in missing {
            if let Err(error) = copy(piece, &folder, io) {
                // Half a copy; what cannot be removed is removed with the cache.
                drop(fs::remove_dir_all(&folder));
                return Err(error);
            }
            let mut copies = self.copies();
            copies.clock += 1;
            copies.bytes += piece.bytes;
            let copy = Copy {
                bytes: piece.bytes,
                checksum: piece.checksum,
                readers: 1,
                used: copies.clock,
            };
            // Another chunk was there before under this name.
            if let Some(before) = copies.by_folder.insert(folder.clone(), copy) {
                copies.bytes -= before.bytes;
            }
            held.held.push(folder);
        }
        drop(one_at_a_time);
        Ok(held)
    }

    /// Whether this copy is there; then it has one more reader.
    fn keep(&self, folder: &Path, checksum: &[u8; 32]) -> bool {
        let mut copies = self.copies();
        copies.clock += 1;
        let clock = copies.clock;
        match copies.by_folder.get_mut(folder).filter(|copy| copy.checksum == *checksum) {
            Some(copy) => {
                copy.readers += 1;
                copy.used = clock;
                true
            }
            None => false,
        }
    }

    /// Removes copies until so many bytes fit, waiting for those that are being read.
    fn make_room(&self, bytes: u64) {
        let mut copies = self.copies();
        while copies.bytes.saturating_add(bytes) > self.limit {
            let unread = copies.by_folder.iter().filter(|(_, copy)| copy.readers == 0);
            let oldest = unread.min_by_key(|(_, copy)| copy.used).map(|(folder, _)| folder.clone());
            match oldest.and_then(|folder| Some((copies.by_folder.remove(&folder)?, folder))) {
                Some((copy, folder)) => {
                    copies.bytes -= copy.bytes;
                    // What cannot be removed now is removed with the cache.
                    drop(fs::remove_dir_all(folder));
                }
                None => {
                    copies = self.released.wait(copies).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Removes the caches in a folder whose process is gone.
fn remove_left_behind(parent: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let is_cache = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(PREFIX);
        if !path.file_name().is_some_and(is_cache) {
            continue;
        }
        // One without a lock is being made.
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        match lock.try_lock() {
            // Whoever else removes it meanwhile does the same.
            Ok(()) => drop(fs::remove_dir_all(&path)),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
    Ok(())
}

/// Copies a chunk, if it is still the one that was meant.
fn copy(piece: &Piece, folder: &Path, io: &Io) -> Result<(), Error> {
    let Place::Bucket { url, folder: inner, manifest: manifest_name } = &piece.place else {
        return Ok(());
    };
    let name = joined(inner, manifest_name);
    let changed = |name: &str| Error::Changed { name: format!("{url}/{name}") };
    let store = Store::open(url, io)?;
    let bytes = store.get(&name, MAX_MANIFEST_BYTES)?.ok_or_else(|| changed(&name))?;
    if <[u8; 32]>::from(Sha256::digest(&bytes)) != piece.checksum {
        return Err(changed(&name));
    }
    let problem = |problem| Error::Manifest { name: format!("{url}/{name}"), problem };
    let manifest = Manifest::parse(&bytes).map_err(|error| problem(error.to_string()))?;
    let files = manifest.map(|manifest| manifest.contents.files).unwrap_or_default();
    let next = AtomicUsize::new(0);
    let bring = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = file.stored_path().ok_or_else(|| problem(file.path.clone()))?;
            copy_file(&store, &joined(inner, &path.to_string_lossy()), file, &folder.join(path))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let copying: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(bring)).collect();
        let joined = copying.into_iter().map(|one| match one.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<()>, Error>>()
    })?;
    let failed = |source| Error::Io { path: folder.to_owned(), source };
    fs::write(folder.join(manifest_name), &bytes).map_err(failed)
}

fn copy_file(store: &Store, name: &str, file: &ManifestFile, to: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io { path: to.to_owned(), source };
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    let mut output = File::create(to).map_err(failed)?;
    let mut digest = Sha256::new();
    let mut len = 0_u64;
    let expected = file.stored_bytes();
    let changed = || Error::Changed { name: format!("{}/{name}", store.url()) };
    store.stream(name, |piece| {
        len += piece.len() as u64;
        if len > expected {
            return Err(changed());
        }
        digest.update(piece);
        output.write_all(piece).map_err(failed)
    })?;
    let sha256 = file.compressed.as_ref().map_or(&file.sha256, |compressed| &compressed.sha256);
    if len != expected || hex(&digest.finalize()) != *sha256 {
        return Err(changed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_lives_stays() {
        let parent = tempfile::tempdir().unwrap();
        let living = Cache::new(Some(parent.path()), 1).unwrap();
        let dead = parent.path().join(format!("{PREFIX}dead"));
        fs::create_dir_all(dead.join("chunks")).unwrap();
        fs::write(dead.join(LOCK), b"").unwrap();
        let other = parent.path().join("other");
        fs::create_dir_all(&other).unwrap();
        let next = Cache::new(Some(parent.path()), 1).unwrap();
        assert!(!dead.exists() && other.exists());
        assert!(living.root().exists() && next.root() != living.root());
    }
}
