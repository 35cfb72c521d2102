//! Where chunks are copied to: a folder, or a bucket of an object store that speaks S3.

#[cfg(feature = "object-store")]
mod bucket;
#[cfg(not(feature = "object-store"))]
#[path = "store/no_bucket.rs"]
mod bucket;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest, Sha256};
use tracedir::manifest::hex;

use self::bucket::Bucket;

/// How much is copied at a time into a folder.
const PIECE: usize = 256 << 10;

/// A place for copies, by its URL: `file:///FOLDER` or `s3://BUCKET[/PREFIX]`.
#[derive(Debug, Clone)]
pub struct Store {
    url: String,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Folder(PathBuf),
    Bucket(Bucket),
}

/// Why a text is no place for copies.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not a URL of a kind that is known.
    #[error("not a URL such as file:///folder or s3://bucket/prefix")]
    Url,
    /// A name or password in the URL.
    #[error(
        "credentials in the URL: they are taken from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
    )]
    Credentials,
    /// The environment's settings do not make a client.
    #[cfg(feature = "object-store")]
    #[error("the settings of the environment (AWS_…) are not usable")]
    Settings(#[source] object_store::Error),
    /// The client of object stores was left out.
    #[error(
        "this build of throughline cannot copy to s3://: build it with --features object-store"
    )]
    LeftOut,
}

/// Why something could not be copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    #[error("cannot read what is to be copied")]
    Read(#[source] io::Error),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[cfg(feature = "object-store")]
    #[error("the store refuses {key}")]
    Store { key: String, source: object_store::Error },
}

/// What is to be copied to one name.
#[derive(Debug)]
pub(super) struct Item {
    /// Below the place, with `/`.
    pub(super) name: String,
    pub(super) file: File,
    pub(super) len: u64,
    /// SHA-256 that it should have, hexadecimal.
    pub(super) sha256: String,
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It was there already.
    Was,
    /// It was copied; whether its bytes are those that were expected.
    Copied { as_expected: bool },
}

impl FromStr for Store {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let is_line = !text.contains(|c: char| c.is_control() || c == ' ');
        let (scheme, rest) = text.split_once("://").filter(|_| is_line).ok_or(StoreError::Url)?;
        let place = match scheme {
            "file" if rest.starts_with('/') => Place::Folder(PathBuf::from(rest)),
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.contains('@') {
                    return Err(StoreError::Credentials);
                }
                if bucket.is_empty() || prefix.contains(['?', '#']) {
                    return Err(StoreError::Url);
                }
                Place::Bucket(Bucket::open(bucket, prefix)?)
            }
            _ => return Err(StoreError::Url),
        };
        Ok(Self { url: text.to_owned(), place })
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl PartialEq for Store {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for Store {}

impl Store {
    /// Brings an item to its name, unless it is there already.
    pub(super) async fn put(&self, item: Item) -> Result<Put, PutError> {
        match &self.place {
            Place::Folder(folder) => {
                let folder = folder.clone();
                let put = tokio::task::spawn_blocking(move || put_file(&folder, &item));
                put.await.map_err(|error| PutError::Read(io::Error::other(error)))?
            }
            Place::Bucket(bucket) => bucket.put(item).await,
        }
    }

    /// Removes what is there under a name, if something else than these bytes is; says whether these are there.
    pub(super) async fn is_there(&self, name: &str, bytes: &[u8]) -> Result<bool, PutError> {
        match &self.place {
            Place::Folder(folder) => {
                let (path, bytes) = (folder.join(name), bytes.to_owned());
                let look = tokio::task::spawn_blocking(move || is_file_of(&path, &bytes));
                look.await.map_err(|error| PutError::Read(io::Error::other(error)))?
            }
            Place::Bucket(bucket) => bucket.is_there(name, bytes).await,
        }
    }

    /// Brings the names of what was copied below `name` to the disk, where it is a disk.
    pub(super) async fn sync(&self, names: Vec<String>) -> Result<(), PutError> {
        let Place::Folder(folder) = &self.place else { return Ok(()) };
        let folder = folder.clone();
        let sync = tokio::task::spawn_blocking(move || {
            let folders: std::collections::BTreeSet<PathBuf> = names
                .iter()
                .flat_map(|name| Path::new(name).ancestors().skip(1))
                .map(|inner| folder.join(inner))
                .collect();
            for path in folders {
                let sync = || File::open(&path)?.sync_all();
                sync().map_err(|source| PutError::Write { path: path.clone(), source })?;
            }
            Ok(())
        });
        sync.await.map_err(|error| PutError::Read(io::Error::other(error)))?
    }
}

/// Whether a file has these bytes; it is removed when it has others.
fn is_file_of(path: &Path, bytes: &[u8]) -> Result<bool, PutError> {
    let failed = |source| PutError::Write { path: path.to_owned(), source };
    match fs::read(path) {
        Ok(found) if found == bytes => Ok(true),
        Ok(_) => fs::remove_file(path).map(|()| false).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Copies into a folder: beside its name, synced, and renamed when it is whole.
fn put_file(folder: &Path, item: &Item) -> Result<Put, PutError> {
    let path = folder.join(&item.name);
    let failed = |source| PutError::Write { path: path.clone(), source };
    if let Ok(mut there) = File::open(&path)
        && there.metadata().is_ok_and(|found| found.is_file() && found.len() == item.len)
    {
        let (_, sha256) = pour(&mut there, &mut io::sink(), item.len).map_err(failed)?;
        if sha256 == item.sha256 {
            return Ok(Put::Was);
        }
    }
    fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(failed)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    let part = path.with_file_name(name);
    let mut output =
        OpenOptions::new().write(true).create(true).truncate(true).open(&part).map_err(failed)?;
    let copied = pour(&mut &item.file, &mut output, item.len);
    let (len, sha256) = copied.map_err(failed)?;
    output.sync_all().map_err(failed)?;
    fs::rename(&part, &path).map_err(failed)?;
    Ok(Put::Copied { as_expected: len == item.len && sha256 == item.sha256 })
}

/// Copies at most `len` bytes; gives how many there were, and their SHA-256.
fn pour(from: &mut dyn Read, to: &mut dyn Write, len: u64) -> io::Result<(u64, String)> {
    let mut from = from.take(len);
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut copied = 0;
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = piece.get(..read).unwrap_or_default();
        digest.update(piece);
        to.write_all(piece)?;
        copied += read as u64;
    }
    Ok((copied, hex(&digest.finalize())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_folder_or_a_bucket() {
        for url in ["file:///var/copies", "s3://bucket", "s3://bucket/a/b"] {
            match url.parse::<Store>() {
                Ok(store) => assert_eq!(store.to_string(), url),
                Err(error @ StoreError::LeftOut) if !cfg!(feature = "object-store") => {
                    assert!(url.starts_with("s3:") && error.to_string().contains("--features"));
                }
                Err(error) => panic!("{url}: {error}"),
            }
        }
        for url in [
            "",
            "/var",
            "file://host/x",
            "s3://",
            "gs://b",
            "s3://b/a?c",
            "s3://b/a\nb",
            "http://b",
        ] {
            assert!(matches!(url.parse::<Store>(), Err(StoreError::Url)), "{url}");
        }
        assert!(matches!("s3://key:secret@bucket/".parse::<Store>(), Err(StoreError::Credentials)));
    }

    #[test]
    fn a_file_is_copied_once_and_again_when_it_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        let to = folder.path().join("to");
        let put = |bytes: &[u8], sha256: &str| {
            fs::write(&from, bytes).unwrap();
            let file = File::open(&from).unwrap();
            let (name, sha256) = ("h/s/ch_0".to_owned(), sha256.to_owned());
            put_file(&to, &Item { name, file, len: bytes.len() as u64, sha256 }).unwrap()
        };
        let sum = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        assert_eq!(put(b"one", &sum(b"one")), Put::Copied { as_expected: true });
        assert_eq!(put(b"one", &sum(b"one")), Put::Was);
        // Half of it, as a disk may lose what was not synced.
        fs::write(to.join("h/s/ch_0"), b"on\0").unwrap();
        assert_eq!(put(b"one", &sum(b"one")), Put::Copied { as_expected: true });
        assert_eq!(put(b"three", &sum(b"one")), Put::Copied { as_expected: false });
        assert_eq!(fs::read(to.join("h/s/ch_0")).unwrap(), b"three");
        assert_eq!(fs::read_dir(to.join("h/s")).unwrap().count(), 1);
    }
}
