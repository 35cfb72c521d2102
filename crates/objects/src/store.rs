//! A folder or a bucket, by names.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::bucket::{Bucket, Io};
use crate::error::Error;
use crate::faults::Deed;

/// Name of the file in a folder that whoever has the folder holds locked.
const LOCK: &str = ".lock";
/// How often the lock of a folder is tried, and how long between.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// What names of files that are written, and have no name yet, begin and end with, and how long they are.
const PART: (&str, &str, usize) = (".", ".part", ".123456.part".len());
/// How much of a file is given at a time.
const PIECE: usize = 256 << 10;

/// A folder or a bucket, or a part of one below a prefix.
#[derive(Debug, Clone)]
pub struct Store {
    url: String,
    place: Place,
    #[cfg(feature = "faults")]
    faults: Option<std::sync::Arc<dyn crate::faults::Faults>>,
}

#[derive(Debug, Clone)]
enum Place {
    Folder(PathBuf),
    Bucket(Bucket),
}

impl Store {
    /// Opens a folder, which is made, or `file:///folder` or `s3://bucket[/prefix]`.
    ///
    /// # Errors
    ///
    /// [`Error::Url`], [`Error::LeftOut`]; [`Error::Io`] for a folder that cannot be made.
    pub fn open(url: &str, io: &Io) -> Result<Self, Error> {
        let refused = || Error::Url { url: url.to_owned() };
        let place = match url.split_once("://") {
            None => folder(url)?,
            Some(("file", path)) if path.starts_with('/') => folder(path)?,
            Some(("s3", rest)) => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() || rest.contains(['@', '?', '#', ' ']) {
                    return Err(refused());
                }
                Place::Bucket(Bucket::open(url, bucket, prefix, io)?)
            }
            Some(_) => return Err(refused()),
        };
        Ok(Self {
            url: url.to_owned(),
            place,
            #[cfg(feature = "faults")]
            faults: None,
        })
    }

    /// The same, where something goes wrong.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_faults(self, faults: std::sync::Arc<dyn crate::faults::Faults>) -> Self {
        Self { faults: Some(faults), ..self }
    }

    /// Does something with a name, between what goes wrong before it and after.
    #[cfg(feature = "faults")]
    fn deed<T>(
        &self,
        deed: Deed,
        name: &str,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let failed = |source| Error::Io { path: PathBuf::from(name), source };
        let Some(faults) = &self.faults else { return work() };
        faults.before(deed, name).map_err(failed)?;
        let done = work()?;
        faults.after(deed, name).map_err(failed)?;
        Ok(done)
    }

    #[cfg(not(feature = "faults"))]
    #[expect(clippy::unused_self, reason = "a test's store has faults here")]
    fn deed<T>(
        &self,
        _deed: Deed,
        _name: &str,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        work()
    }

    /// The folder; `None` for a bucket.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(folder) => Some(folder),
            Place::Bucket(_) => None,
        }
    }

    /// Takes a folder for this process alone, until what is given is dropped; a bucket is not locked. It waits half a second for one who
    /// is ending: a process that was started and does not run its own program yet has the files of the one that started it. What a process that
    /// was killed did not finish writing there is removed.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`] when another process has it; [`Error::Io`].
    pub fn lock(&self) -> Result<Option<File>, Error> {
        let Place::Folder(folder) = &self.place else { return Ok(None) };
        let path = folder.join(LOCK);
        let failed = |source| Error::Io { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed)?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => {
                    remove_parts(folder)?;
                    return Ok(Some(file));
                }
                Err(TryLockError::WouldBlock) => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "nobody tells that a lock is free"
                    )]
                    thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        Err(Error::Taken { url: self.url.clone() })
    }

    /// The bytes under a name; `None` when there are none.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] for more than `most` bytes; this and all that follow: [`Error::Io`], [`Error::Store`].
    pub fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
        self.deed(Deed::Read, name, || {
            let found = match &self.place {
                Place::Folder(folder) => read(&folder.join(name), most)?,
                Place::Bucket(bucket) => bucket.get(name, most)?,
            };
            self.bounded(name, found, most)
        })
    }

    /// The bytes under each of these names, so many asked for at a time.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn get_all(
        &self,
        names: &[String],
        most: u64,
        at_once: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        match &self.place {
            Place::Folder(_) => names.iter().map(|name| self.get(name, most)).collect(),
            Place::Bucket(bucket) => {
                let found = bucket.get_all(names, most, at_once)?;
                let named = names.iter().zip(found);
                named.map(|(name, found)| self.bounded(name, found, most)).collect()
            }
        }
    }

    fn bounded(
        &self,
        name: &str,
        found: Option<Found>,
        most: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        match found {
            None => Ok(None),
            Some(Found::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Found::TooLong(len)) => {
                let (url, key) = (self.url.clone(), name.to_owned());
                Err(Error::TooLong { url, key, len, most })
            }
        }
    }

    /// Gives the bytes under a name piece by piece.
    ///
    /// # Errors
    ///
    /// As [`Self::get`], and what `take` says.
    pub fn stream<E: From<Error>>(
        &self,
        name: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                let failed = |source| E::from(Error::Io { path: path.clone(), source });
                let mut file = File::open(&path).map_err(failed)?;
                let mut piece = vec![0; PIECE];
                loop {
                    match file.read(&mut piece) {
                        Ok(0) => return Ok(()),
                        Ok(read) => take(piece.get(..read).unwrap_or_default())?,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
            }
            Place::Bucket(bucket) => bucket.stream(name, take),
        }
    }

    /// Puts bytes under a name that has none; says whether it had none.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn create(&self, name: &str, bytes: Vec<u8>, sync: Sync) -> Result<bool, Error> {
        self.deed(Deed::Create, name, || match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                create(&path, &bytes, sync).map_err(|source| Error::Io { path, source })
            }
            Place::Bucket(bucket) => bucket.create(name, bytes),
        })
    }

    /// Removes what is under a name, if anything is.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.deed(Deed::Remove, name, || match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(name);
                match fs::remove_file(&path) {
                    Err(source) if source.kind() != io::ErrorKind::NotFound => {
                        Err(Error::Io { path, source })
                    }
                    _ => Ok(()),
                }
            }
            Place::Bucket(bucket) => bucket.remove(name),
        })
    }

    /// All names below one, from it on; of a folder those that lie in it.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn list(&self, below: &str) -> Result<BTreeSet<String>, Error> {
        match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(below);
                list(&path).map_err(|source| Error::Io { path, source })
            }
            Place::Bucket(bucket) => bucket.list(below),
        }
    }

    /// As it was opened.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// When what is put into a folder is on the disk; in a bucket it is durable when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// When the system writes it: what can be made again.
    Later,
    /// Before [`Store::create`] returns.
    AtOnce,
}

/// What is under a name.
#[derive(Debug)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    /// More than is read.
    TooLong(u64),
}

fn folder(path: &str) -> Result<Place, Error> {
    let path = PathBuf::from(path);
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(Place::Folder(path)),
        Err(source) => Err(Error::Io { path, source }),
    }
}

fn read(path: &Path, most: u64) -> Result<Option<Found>, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(match read as u64 > most {
        true => Found::TooLong(read as u64),
        false => Found::Bytes(bytes),
    }))
}

/// Writes beside the name, and gives it the name when it is whole and the name is free. What is written beside has a name that
/// no other process has, on this machine or another that shares the folder.
fn create(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    create_folder(folder, sync)?;
    let (begin, end, _) = PART;
    let mut part = tempfile::Builder::new()
        .prefix(begin)
        .suffix(end)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    part.write_all(bytes)?;
    if sync == Sync::AtOnce {
        part.as_file().sync_all()?;
    }
    let is_new = match fs::hard_link(part.path(), path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    part.close()?;
    if sync == Sync::AtOnce {
        // Also of one that somebody else gave the name a moment ago.
        File::open(folder)?.sync_all()?;
    }
    Ok(is_new)
}

/// Makes a folder and those above it; each is in the one above it for good when that is asked for.
fn create_folder(folder: &Path, sync: Sync) -> io::Result<()> {
    if sync == Sync::Later || folder.as_os_str().is_empty() || folder.is_dir() {
        return fs::create_dir_all(folder);
    }
    let above = folder.parent().unwrap_or(Path::new(""));
    create_folder(above, sync)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    File::open(above)?.sync_all()
}

/// Removes what was not finished in a folder that was taken. Somebody who writes to it without that is told that it failed, and has lost nothing: no
/// name was given yet.
fn remove_parts(folder: &Path) -> Result<(), Error> {
    let (begin, end, len) = PART;
    let names = list(folder).map_err(|source| Error::Io { path: folder.to_owned(), source })?;
    let is_part =
        |name: &&String| name.len() == len && name.starts_with(begin) && name.ends_with(end);
    for name in names.iter().filter(is_part) {
        let path = folder.join(name);
        // A folder of that name is somebody's own.
        if path.symlink_metadata().is_ok_and(|it| it.is_file()) {
            fs::remove_file(&path).map_err(|source| Error::Io { path, source })?;
        }
    }
    Ok(())
}

fn list(folder: &Path) -> io::Result<BTreeSet<String>> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let name = |entry: io::Result<fs::DirEntry>| {
                Ok(entry?.file_name().to_string_lossy().into_owned())
            };
            entries.map(name).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_bytes_once() {
        let folder = tempfile::tempdir().unwrap();
        let io = Io::start().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), &io).unwrap();
        assert!(store.create("a/b/c", b"3".to_vec(), Sync::AtOnce).unwrap());
        assert_eq!(store.get("a/b/c", 10).unwrap().unwrap(), b"3"[..]);
        assert!(store.create("h/one", b"1".to_vec(), Sync::Later).unwrap());
        assert!(!store.create("h/one", b"2".to_vec(), Sync::AtOnce).unwrap());
        assert_eq!(store.get("h/one", 10).unwrap().unwrap(), b"1"[..]);
        assert_eq!(store.get("h/two", 10).unwrap(), None);
        assert!(matches!(store.get("h/one", 0), Err(Error::TooLong { len: 1, most: 0, .. })));
        assert_eq!(store.list("h").unwrap(), ["one".to_owned()].into());
        store.remove("h/one").unwrap();
        store.remove("h/one").unwrap();
        assert_eq!(store.list("h").unwrap(), BTreeSet::new());
    }

    #[test]
    fn of_many_that_put_one_name_at_once_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h/one");
        let put = |n: u8| create(&path, &[n; 100], Sync::AtOnce).unwrap();
        let made: Vec<bool> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|n| scope.spawn(move || put(n))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes, [bytes[0]; 100]);
        assert_eq!(list(path.parent().unwrap()).unwrap(), ["one".to_owned()].into());
    }

    /// A process that takes a folder, and is killed in the middle of writing into it.
    #[test]
    fn what_a_killed_process_did_not_finish_is_removed_by_the_next_that_takes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let io = Io::start().unwrap();
        let url = folder.path().to_str().unwrap();
        let store = Store::open(url, &io).unwrap();
        if let Some(place) = std::env::var_os(WRITES_TO) {
            let store = Store::open(place.to_str().unwrap(), &io).unwrap();
            let _lock = store.lock().unwrap();
            let bytes = vec![7; 8 << 20];
            // Some hundred megabytes, should nobody kill it.
            (0..64).for_each(|n| drop(store.create(&n.to_string(), bytes.clone(), Sync::AtOnce)));
            return;
        }
        let names = || store.list("").unwrap();
        let parts = || names().into_iter().filter(|name| name.ends_with(".part")).count();
        for _ in 0..20 {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let this = "store::tests::what_a_killed_process_did_not_finish_is_removed_by_the_next_that_takes_the_folder";
            command.args([this, "--exact"]).env(WRITES_TO, url).stdout(std::process::Stdio::null());
            let mut child = command.spawn().unwrap();
            while parts() == 0 {
                assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
                thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            if parts() > 0 {
                break;
            }
        }
        assert!(parts() > 0, "it was never killed while it wrote");
        // What is not ours stays.
        for name in [".mine.part", "notes.part", ".123456.parts"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let whole = names().into_iter().filter(|name| name.parse::<u64>().is_ok()).count();
        let lock = store.lock().unwrap();
        let left = names();
        assert_eq!(left.iter().filter(|name| name.parse::<u64>().is_ok()).count(), whole);
        let parts: Vec<&String> = left.iter().filter(|name| name.ends_with(".part")).collect();
        assert_eq!(parts, [".mine.part", "notes.part"]);
        drop(lock);
    }

    /// Has the test of a killed process be that process.
    const WRITES_TO: &str = "THROUGHLINE_WRITES_TO";

    #[test]
    fn what_is_no_place_is_refused() {
        let io = Io::start().unwrap();
        for url in ["gs://b", "file://host/x", "s3://", "s3://key@b/x", "s3://b/a?c"] {
            assert!(matches!(Store::open(url, &io), Err(Error::Url { .. })), "{url}");
        }
    }
}
