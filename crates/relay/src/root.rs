//! The folder everything is written below.
//!
//! Every path is resolved by the kernel beneath the root's descriptor and through no symbolic link
//! (`openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`), so that nothing a peer names, and nothing
//! another user placed in the folder, leads out of it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tracedir::manifest::{HIDDEN_MANIFEST, MANIFEST};
use wire::live::RelativePath;

use crate::error::{Error, FileContext, Result};

/// The relay's own folder below the root.
const OWN: &str = ".relay";

/// How deep a tree may be that is walked for deleting or syncing; LTTng's are 7 deep.
const MAX_DEPTH: usize = 64;

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_dir: bool,
}

/// An open root folder, held by this relay alone.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// Keeps other relays out for as long as it is open.
    _lock: OwnedFd,
    #[cfg(test)]
    pub(crate) faults: crate::faults::Faults,
}

impl Root {
    /// Opens the folder, making it if needed, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).on("make folder", path)?;
        let path = path.canonicalize().on("resolve", path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = fs::open(&path, flags, Mode::empty()).on("open folder", &path)?;
        let own = make_dir(&dir, OWN).on("make folder", path.join(OWN))?;
        match fs::flock(&own, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                dir,
                path,
                _lock: own,
                #[cfg(test)]
                faults: crate::faults::Faults::default(),
            }),
            Err(Errno::WOULDBLOCK) => Err(Error::RootInUse { root: path }),
            Err(error) => Err(error).on("lock", path.join(OWN)),
        }
    }

    /// The root, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `path` below the root, absolute.
    pub(crate) fn absolute(&self, path: &RelativePath) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(path.as_path()) }
    }

    /// The relay's own folder, or a place in it.
    pub(crate) fn own(name: &str) -> RelativePath {
        RelativePath::new(&format!("{OWN}/{name}")).unwrap_or_default()
    }

    /// Makes a folder and those above it; one that is there is no error.
    pub(crate) fn make_dirs(&self, path: &RelativePath) -> Result<OwnedFd> {
        #[cfg(test)]
        if !self.is_dir(path) {
            self.about_to_change().on("make folder", path.as_path())?;
        }
        let mut dir = self.dir.try_clone().on("open folder", &self.path)?;
        for component in path.components() {
            dir = make_dir(&dir, component).on("make folder", path.as_path())?;
        }
        Ok(dir)
    }

    /// Creates a file that must not be there yet, for reading and writing, and its folders.
    pub(crate) fn create(&self, folder: &RelativePath, name: &str) -> Result<File> {
        let dir = self.make_dirs(folder)?;
        self.about_to_change().on("create", folder.as_path().join(name))?;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&dir, name, flags, Mode::from_raw_mode(0o660))
            .map(File::from)
            .on("create", folder.as_path().join(name))
    }

    /// Creates a file in place of the one that has the name; open readers keep the old one.
    pub(crate) fn replace(&self, folder: &RelativePath, name: &str) -> Result<File> {
        let dir = self.make_dirs(folder)?;
        match fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.create(folder, name),
            Err(error) => Err(error).on("remove", folder.as_path().join(name)),
        }
    }

    /// Writes a whole file in one step: readers see the old content or the new.
    pub(crate) fn write_whole(
        &self,
        folder: &RelativePath,
        name: &str,
        content: &[u8],
    ) -> Result<()> {
        self.write_new(folder, name, content, false)
    }

    /// As [`Self::write_whole`]; afterwards the file is on the disk under its name.
    pub(crate) fn write_whole_synced(
        &self,
        folder: &RelativePath,
        name: &str,
        content: &[u8],
    ) -> Result<()> {
        self.write_new(folder, name, content, true)?;
        self.sync_dir(folder)
    }

    fn write_new(
        &self,
        folder: &RelativePath,
        name: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<()> {
        // Hidden, for a chunk may be read while its manifest is written.
        let new = format!(".{name}.new");
        let written = self.write_renamed(folder, name, &new, content, sync);
        if written.is_err()
            && let Ok(new) = RelativePath::new(&new)
        {
            // What is left of a full disk is not for halves.
            drop(self.remove_file(&folder.join_path(&new)));
        }
        written
    }

    fn write_renamed(
        &self,
        folder: &RelativePath,
        name: &str,
        new: &str,
        content: &[u8],
        sync: bool,
    ) -> Result<()> {
        let file = self.replace(folder, new)?;
        self.write_at(&file, content, 0).on("write", folder.as_path().join(new))?;
        if sync {
            file.sync_data().on("sync", folder.as_path().join(new))?;
        }
        let dir = self.open_dir(folder).on("open folder", folder.as_path())?;
        self.about_to_free().on("move", folder.as_path().join(new))?;
        fs::renameat(&dir, new, &dir, name).on("move", folder.as_path().join(new))
    }

    /// Writes all bytes at an offset of a file of this root.
    pub(crate) fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        if let Err(error) = self.about_to_change() {
            // As much of it as a disk may have room for.
            file.write_all_at(bytes.get(..bytes.len() / 2).unwrap_or(&[]), offset)?;
            return Err(error);
        }
        file.write_all_at(bytes, offset)
    }

    /// Cuts a file, if it is longer.
    pub(crate) fn cut_file(&self, path: &RelativePath, len: u64) -> Result<()> {
        let file = self.read_write(path)?;
        if file.metadata().on("look at", path.as_path())?.len() > len {
            self.about_to_free().on("truncate", path.as_path())?;
            file.set_len(len).on("truncate", path.as_path())?;
        }
        Ok(())
    }

    /// Writes bytes at a file's end, making the file if it is not there.
    pub(crate) fn append(&self, folder: &RelativePath, name: &str, bytes: &[u8]) -> Result<()> {
        let dir = self.open_dir(folder).on("open folder", folder.as_path())?;
        let flags =
            OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&dir, name, flags, Mode::from_raw_mode(0o660)).map(File::from);
        let file = file.on("open", folder.as_path().join(name))?;
        // The offset means nothing to a file that is appended to.
        self.write_at(&file, bytes, 0).on("write", folder.as_path().join(name))
    }

    /// Opens a file for reading.
    pub(crate) fn read(&self, path: &RelativePath) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_beneath(path, flags).map(File::from).on("open", path.as_path())
    }

    /// Opens a file that is there for reading and writing.
    pub(crate) fn read_write(&self, path: &RelativePath) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open_beneath(path, flags).map(File::from).on("open", path.as_path())
    }

    /// Length of a file in bytes.
    pub(crate) fn file_len(&self, path: &RelativePath) -> Result<u64> {
        Ok(self.read(path)?.metadata().on("look at", path.as_path())?.len())
    }

    /// Whether there is anything at the path.
    pub(crate) fn exists(&self, path: &RelativePath) -> bool {
        self.open_beneath(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)
            .is_ok_and(|_| true)
    }

    /// Whether there is nothing at the path; when that cannot be told, there may be.
    pub(crate) fn is_missing(&self, path: &RelativePath) -> bool {
        let looked = self.open_beneath(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC);
        matches!(looked, Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Whether there is a folder at the path.
    pub(crate) fn is_dir(&self, path: &RelativePath) -> bool {
        self.open_dir(path).is_ok_and(|_| true)
    }

    /// Whether a chunk was sealed in the folder itself.
    pub(crate) fn has_manifest(&self, folder: &RelativePath) -> bool {
        [MANIFEST, HIDDEN_MANIFEST].iter().any(|name| {
            RelativePath::new(name).is_ok_and(|name| self.exists(&folder.join_path(&name)))
        })
    }

    /// A folder's entries, sorted; none when it is not there.
    pub(crate) fn list(&self, path: &RelativePath) -> Result<Vec<Entry>> {
        match self.open_dir(path) {
            Ok(dir) => entries(&dir).on("list", path.as_path()),
            Err(Errno::NOENT) => Ok(Vec::new()),
            Err(error) => Err(error).on("open folder", path.as_path()),
        }
    }

    /// Moves a file or folder to a place that must be free, making the folders above it.
    pub(crate) fn rename(&self, from: &RelativePath, to: &RelativePath) -> Result<()> {
        let (from_parent, from_name) = split(from);
        let (to_parent, to_name) = split(to);
        let source = self.open_dir(&from_parent).on("open folder", from_parent.as_path())?;
        let target = self.make_dirs(&to_parent)?;
        self.about_to_free().on("move", from.as_path())?;
        fs::renameat_with(&source, from_name, &target, to_name, fs::RenameFlags::NOREPLACE)
            .on("move", from.as_path())
    }

    /// Removes an empty folder.
    pub(crate) fn remove_dir(&self, path: &RelativePath) -> Result<()> {
        let (parent, name) = split(path);
        self.about_to_free().on("remove folder", path.as_path())?;
        let dir = self.open_dir(&parent).on("open folder", parent.as_path())?;
        fs::unlinkat(&dir, name, AtFlags::REMOVEDIR).on("remove folder", path.as_path())
    }

    /// Removes a file; one that is not there is no error.
    pub(crate) fn remove_file(&self, path: &RelativePath) -> Result<()> {
        let (parent, name) = split(path);
        self.about_to_free().on("remove", path.as_path())?;
        let dir = self.open_dir(&parent).on("open folder", parent.as_path())?;
        match fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).on("remove", path.as_path()),
        }
    }

    /// Removes a file or folder with all that is in it; one that is not there is no error.
    pub(crate) fn remove_tree(&self, path: &RelativePath) -> Result<()> {
        let (parent, name) = split(path);
        match self.open_dir(&parent) {
            Ok(dir) => remove_tree(&dir, name, MAX_DEPTH).on("remove", path.as_path()),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).on("open folder", parent.as_path()),
        }
    }

    /// Brings a folder, all that is in it, and every file's content to the disk.
    pub(crate) fn sync_tree(&self, path: &RelativePath) -> Result<()> {
        let dir = self.open_dir(path).on("open folder", path.as_path())?;
        sync_tree(&dir, MAX_DEPTH).on("sync", path.as_path())
    }

    /// Brings a folder's own entries to the disk.
    pub(crate) fn sync_dir(&self, path: &RelativePath) -> Result<()> {
        let dir = self.open_dir(path).on("open folder", path.as_path())?;
        fs::fsync(&dir).on("sync", path.as_path())
    }

    /// Tests have any change of the disk fail here.
    #[cfg(test)]
    pub(crate) fn about_to_change(&self) -> std::io::Result<()> {
        self.faults.next()
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have it fail")]
    pub(crate) const fn about_to_change(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// As [`Self::about_to_change`], for what a full disk has room for.
    #[cfg(test)]
    fn about_to_free(&self) -> std::io::Result<()> {
        self.faults.next_free()
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have it fail")]
    const fn about_to_free(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn open_dir(&self, path: &RelativePath) -> rustix::io::Result<OwnedFd> {
        self.open_beneath(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC)
    }

    fn open_beneath(&self, path: &RelativePath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path.as_str() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        fs::openat2(&self.dir, path, flags, Mode::empty(), resolve)
    }
}

/// Opens a folder in `parent`, making it if it is not there.
fn make_dir(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    match fs::mkdirat(parent, name, Mode::from_raw_mode(0o770)) {
        Ok(()) | Err(Errno::EXIST) => fs::openat(parent, name, flags, Mode::empty()),
        Err(error) => Err(error),
    }
}

fn entries(dir: &OwnedFd) -> rustix::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            entries.push(Entry { name, is_dir: entry.file_type() == FileType::Directory });
        }
    }
    entries.sort();
    Ok(entries)
}

fn remove_tree(parent: &OwnedFd, name: &str, depth: usize) -> rustix::io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) if depth > 0 => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = fs::openat(parent, name, flags, Mode::empty())?;
    for entry in entries(&dir)? {
        remove_tree(&dir, &entry.name, depth - 1)?;
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn sync_tree(dir: &OwnedFd, depth: usize) -> rustix::io::Result<()> {
    for entry in entries(dir)? {
        let kind = if entry.is_dir { OFlags::DIRECTORY } else { OFlags::empty() };
        let flags = kind | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat(dir, entry.name.as_str(), flags, Mode::empty())?;
        if entry.is_dir && depth > 0 {
            sync_tree(&opened, depth - 1)?;
        } else {
            fs::fdatasync(&opened)?;
        }
    }
    fs::fsync(dir)
}

/// The folder of a path and its last component.
fn split(path: &RelativePath) -> (RelativePath, &str) {
    match path.as_str().rsplit_once('/') {
        Some((parent, name)) => (RelativePath::new(parent).unwrap_or_default(), name),
        None => (RelativePath::default(), path.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn a_symbolic_link_leads_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("host")).unwrap();
        assert!(root.create(&path("host/session"), "x").is_err());
        assert!(root.create(&path("host"), "x").is_err());
        assert!(root.rename(&path("host"), &path("other")).is_ok());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_root_has_one_relay() {
        let folder = tempfile::tempdir().unwrap();
        let first = Root::open(folder.path()).unwrap();
        assert!(matches!(Root::open(folder.path()), Err(Error::RootInUse { .. })));
        drop(first);
        assert!(Root::open(folder.path()).is_ok());
    }

    #[test]
    fn a_move_never_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create(&path("a"), "x").unwrap();
        root.create(&path("b"), "x").unwrap();
        assert!(root.rename(&path("a/x"), &path("b/x")).is_err());
        assert!(root.rename(&path("a/x"), &path("c/d/x")).is_ok());
        root.remove_tree(&path("c")).unwrap();
        assert!(!root.exists(&path("c")));
        assert!(root.exists(&path("b/x")));
    }
}
