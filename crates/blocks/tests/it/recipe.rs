//! Jobs on sessions of many chunks, and what they keep.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use blocks::{Answer, CacheOptions, Hands, Options, Threads, analyse};
use testkit::Chunked;

/// A session of so many chunks, in `traces` of a folder of its own.
pub(crate) fn session(chunks: u64, events: u64) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let written = Chunked { chunks, events, seed: 5 }.write(&folder.path().join("traces"));
    assert_eq!(written.len() as u64, chunks);
    (folder, written)
}

pub(crate) fn options(blocks: Option<&Path>) -> Options {
    let blocks = blocks.map(|folder| folder.to_str().unwrap().to_owned());
    Options { blocks, ..Options::default() }
}

pub(crate) fn hands() -> Hands {
    Hands::new(&CacheOptions::default()).unwrap()
}

/// What two threads of this process say.
pub(crate) fn run(path: &Path, options: &Options) -> Answer {
    let hands = hands();
    let engine = Threads::new(&hands, NonZeroUsize::new(2));
    analyse(&[path.to_owned()], options, &hands, &engine).unwrap()
}

/// Where the blocks of a session's host are.
pub(crate) fn home(kept: &Path) -> PathBuf {
    kept.join("host")
}

/// What is committed: bytes by file name.
pub(crate) fn committed(kept: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(home(kept)) else { return BTreeMap::new() };
    let block = |path: PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())
    };
    entries.map(|entry| block(entry.unwrap().path())).collect()
}
