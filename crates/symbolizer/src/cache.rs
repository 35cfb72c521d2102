//! Files that servers gave, in a folder with a bound.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::build_id::BuildId;
use crate::fetch::SettingsError;
use crate::file::build_id_of;

/// The ends of names: of files that are whole, and of those that come.
const WHOLE: &str = "debug";
const PART: &str = "part";

/// A file that comes is given up, or its process is dead, after so long.
const PARTS_STAY: Duration = Duration::from_secs(3_600);

/// Several processes may have one folder.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Of all files; those that were not used the longest go first.
    most_bytes: u64,
}

/// A file on its way. Dropped before [`Cache::keep`] it is gone.
#[derive(Debug)]
pub(crate) struct Coming {
    path: PathBuf,
    file: File,
    left: u64,
}

impl Cache {
    /// A folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path, most_bytes: u64) -> Result<Self, SettingsError> {
        let no_folder = |source| SettingsError::Cache { folder: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(no_folder)?;
        let cache = Self { folder: folder.to_owned(), most_bytes };
        cache.make_room(None).map_err(no_folder)?;
        Ok(cache)
    }

    /// A file that is there; it counts as used.
    pub(crate) fn get(&self, build_id: &BuildId) -> Option<File> {
        let file = File::open(self.path(build_id)).ok()?;
        // Where that is not allowed the file only looks older than it is.
        drop(file.set_modified(now()));
        Some(file)
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, build_id: &BuildId) -> bool {
        self.path(build_id).is_file()
    }

    /// Begins one.
    pub(crate) fn begin(&self, build_id: &BuildId) -> io::Result<Coming> {
        let name = format!("{build_id}.{:016x}.{PART}", fastrand::u64(..));
        let path = self.folder.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Coming { path, file, left: self.most_bytes })
    }

    /// One that has come whole.
    ///
    /// # Errors
    ///
    /// When it is another one than was asked for, or cannot be kept.
    pub(crate) fn keep(&self, coming: Coming, build_id: &BuildId) -> Result<(), String> {
        if build_id_of(&coming.file).as_ref() != Some(build_id) {
            return Err("what came is no ELF file with that build id".to_owned());
        }
        let path = self.path(build_id);
        fs::rename(&coming.path, &path).map_err(|error| error.to_string())?;
        self.make_room(Some(&path)).map_err(|error| error.to_string())
    }

    fn path(&self, build_id: &BuildId) -> PathBuf {
        self.folder.join(format!("{build_id}.{WHOLE}"))
    }

    /// Removes what does not fit, but for the file that came last, and what is left of files that did not come whole. Other files in the
    /// folder are left alone.
    fn make_room(&self, last: Option<&Path>) -> io::Result<()> {
        let mut whole = Vec::new();
        let mut bytes = 0_u64;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let end = path.extension().and_then(|end| end.to_str());
            // Another process may have removed it.
            let Ok(about) = path.symlink_metadata() else { continue };
            let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match end {
                Some(WHOLE) => {
                    bytes = bytes.saturating_add(about.len());
                    whole.push((changed, about.len(), path));
                }
                Some(PART) if now().duration_since(changed).is_ok_and(|it| it > PARTS_STAY) => {
                    drop(fs::remove_file(path));
                }
                _ => {}
            }
        }
        whole.sort();
        for (_, len, path) in whole {
            if bytes <= self.most_bytes {
                break;
            }
            if Some(path.as_path()) != last {
                fs::remove_file(&path)?;
                bytes -= len;
            }
        }
        Ok(())
    }
}

impl Coming {
    /// The next piece.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or("it is larger than the cache")?;
        self.file.write_all(bytes).map_err(|error| error.to_string())
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        // Under its own name it is not there any more.
        drop(fs::remove_file(&self.path));
    }
}

#[expect(clippy::disallowed_methods, reason = "files have times of the system's clock")]
fn now() -> SystemTime {
    SystemTime::now()
}
