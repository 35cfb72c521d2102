//! Deletes sealed chunks by age and by size.
//!
//! Never one that is being written or sealed (it has no manifest in its last place, or its session's journal names it),
//! one that somebody is still to be told of, one of a session that somebody views, or one that is not yet released by the
//! one who reads them ([`Release`]). Oldest first, by when the relay
//! sealed them: times of producers are not trusted with that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tracedir::manifest::{self, HIDDEN_MANIFEST, MANIFEST, Manifest, ManifestFile};
use tracedir::seekable::ENDING;
use wire::live::{ChunkId, RelativePath};

use crate::error::Result;
use crate::event::{Event, Sealed};
use crate::journal;
use crate::registry::Registry;
use crate::root::Root;

/// How long sealed chunks are kept; without bounds, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Those that were sealed longer ago are deleted.
    pub age: Option<Duration>,
    /// The oldest are deleted while all of them together are larger, in bytes.
    pub bytes: Option<u64>,
}

impl Keep {
    /// How often ages are looked at.
    fn period(self) -> Duration {
        let tenth = self.age.map_or(Duration::MAX, |age| age / 10);
        tenth.clamp(Duration::from_millis(10), Duration::from_secs(60))
    }

    const fn is_for_ever(self) -> bool {
        self.age.is_none() && self.bytes.is_none()
    }
}

/// For someone in this process who reads sealed chunks: none is deleted before it was released here. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Release {
    /// Absolute folders. Bound: the sealed chunks that are there; a chunk that is deleted leaves.
    released: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Release {
    /// The chunk in this folder, as [`Sealed::folder`] has it, is needed no more.
    pub fn release(&self, folder: PathBuf) {
        self.lock().insert(folder);
    }

    fn has(&self, folder: &Path) -> bool {
        self.lock().contains(folder)
    }

    fn forget(&self, folder: &Path) {
        self.lock().remove(folder);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sealed chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    sealed: SystemTime,
    bytes: u64,
    chunk: ChunkId,
    /// What is directly in its folder and belongs to it, but for the manifest.
    tops: BTreeSet<RelativePath>,
}

/// Deletes what is not to be kept, until the relay ends.
pub(crate) async fn retain(
    registry: Arc<Registry>,
    keep: Keep,
    release: Option<Release>,
    mut stop: watch::Receiver<bool>,
) {
    if keep.is_for_ever() {
        return;
    }
    let mut events = registry.subscribe();
    let mut chunks = None;
    loop {
        let known = chunks.take();
        let (worker, release) = (Arc::clone(&registry), release.clone());
        // Reads manifests and deletes files.
        let swept = tokio::task::spawn_blocking(move || {
            let mut chunks = known.unwrap_or_else(|| find(&worker.env.root));
            sweep(&worker, &mut chunks, keep, release.as_ref(), now());
            chunks
        });
        let mut found = match swept.await {
            Ok(chunks) => chunks,
            Err(error) => return tracing::error!(%error, "a task of the relay failed"),
        };
        let is_complete = tokio::select! {
            is_complete = wait(&registry.env.root, &mut events, &mut found, keep.period()) => is_complete,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        chunks = is_complete.then_some(found);
    }
}

/// Waits until a chunk was sealed, or for a while; says whether `chunks` has all that were.
async fn wait(
    root: &Root,
    events: &mut Receiver<Event>,
    chunks: &mut BTreeMap<RelativePath, Kept>,
    period: Duration,
) -> bool {
    match tokio::time::timeout(period, events.recv()).await {
        Ok(Ok(Event::Sealed(Sealed { folder, .. }) | Event::Compressed { folder, .. })) => {
            chunks.extend(look(root, &folder));
        }
        Ok(Err(RecvError::Lagged(_))) => return false,
        Err(_) | Ok(Ok(_) | Err(RecvError::Closed)) => {}
    }
    true
}

#[expect(
    clippy::disallowed_methods,
    reason = "ages of files are told by the clock that dates files"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Every sealed chunk below the root.
fn find(root: &Root) -> BTreeMap<RelativePath, Kept> {
    let folders = manifest::find(&[root.path()]);
    // One that is being sealed where it stands has its manifest already; its event follows.
    let journal = journal::read_all(root).unwrap_or_else(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "journal");
        Vec::new()
    });
    let named = |entry: journal::Entry| {
        std::iter::once(entry.at).chain(entry.moving.map(|moving| moving.to))
    };
    let unsealed: BTreeSet<RelativePath> =
        journal.into_iter().filter_map(|(_, entry)| entry.ok()).flat_map(named).collect();
    let sealed = folders.iter().filter_map(|folder| look(root, folder));
    sealed.filter(|(folder, _)| !unsealed.contains(folder)).collect()
}

/// The sealed chunk in a folder, given as absolute path.
fn look(root: &Root, folder: &Path) -> Option<(RelativePath, Kept)> {
    let path = folder.strip_prefix(root.path()).ok()?;
    let path = RelativePath::new(path.to_str()?).ok()?;
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => manifest?,
        Err(error) => {
            tracing::warn!(folder = %path, %error, "not counted and not deleted");
            return None;
        }
    };
    // One that was copied here from elsewhere is not the relay's to delete.
    if manifest.origin.folder != path.to_string() {
        return None;
    }
    let name = manifest_name(root, &path)?;
    let sealed = root.read(&path.join_path(&name)).ok()?.metadata().ok()?.modified().ok()?;
    let first = |file: &str| RelativePath::new(file.split('/').next()?).ok();
    // While one is compressed, both may be there.
    let names = |file: &ManifestFile| [file.path.clone(), format!("{}{ENDING}", file.path)];
    let names = manifest.contents.files.iter().flat_map(names);
    let tops = names.filter_map(|name| first(&name)).collect();
    let chunk = ChunkId::new(manifest.origin.chunk);
    let bytes = manifest.contents.stored_bytes();
    Some((path, Kept { sealed, bytes, chunk, tops }))
}

fn manifest_name(root: &Root, folder: &RelativePath) -> Option<RelativePath> {
    let names = [MANIFEST, HIDDEN_MANIFEST].into_iter();
    let mut names = names.filter_map(|name| RelativePath::new(name).ok());
    names.find(|name| root.exists(&folder.join_path(name)))
}

fn sweep(
    registry: &Registry,
    chunks: &mut BTreeMap<RelativePath, Kept>,
    keep: Keep,
    release: Option<&Release>,
    now: SystemTime,
) {
    let untold = registry.env.outbox.folders();
    let absolute = |folder: &RelativePath| registry.env.root.path().join(folder.as_path());
    let is_read =
        |folder: &RelativePath| release.is_some_and(|release| !release.has(&absolute(folder)));
    let is_held = |folder: &RelativePath| {
        untold.contains(folder) || registry.is_viewed(folder) || is_read(folder)
    };
    for folder in plan(chunks, keep, now, is_held) {
        let Some(chunk) = chunks.remove(&folder) else { continue };
        registry.chunk_is_gone(&folder);
        release.into_iter().for_each(|release| release.forget(&absolute(&folder)));
        match delete(registry, &folder, &chunk) {
            Ok(()) => {
                registry.env.counters.chunks_expired.add(1);
                registry.env.counters.bytes_expired.add(chunk.bytes);
                tracing::info!(%folder, bytes = chunk.bytes, "deleted: kept as long as it is to be");
            }
            Err(error) => tracing::error!(
                %folder,
                error = &error as &dyn std::error::Error,
                "cannot delete a chunk"
            ),
        }
    }
}

/// The chunks to delete, oldest first.
fn plan(
    chunks: &BTreeMap<RelativePath, Kept>,
    keep: Keep,
    now: SystemTime,
    is_held: impl Fn(&RelativePath) -> bool,
) -> Vec<RelativePath> {
    let sizes = chunks.values().map(|chunk| chunk.bytes);
    let mut total = sizes.fold(0, u64::saturating_add);
    let mut oldest: Vec<_> = chunks.iter().collect();
    oldest.sort_by_key(|(folder, chunk)| (chunk.sealed, *folder));
    let mut planned = Vec::new();
    for (folder, chunk) in oldest {
        // A clock that was set back makes everything young.
        let age = now.duration_since(chunk.sealed).unwrap_or_default();
        let is_old = keep.age.is_some_and(|most| age > most);
        let is_much = keep.bytes.is_some_and(|most| total > most);
        if (is_old || is_much) && !is_held(folder) {
            total = total.saturating_sub(chunk.bytes);
            planned.push(folder.clone());
        }
    }
    planned
}

/// Takes a chunk out of sight in one step where it has a folder for itself, then deletes it. In a session's folder, which may
/// hold more, its manifest goes last: what a kill leaves is found and deleted by the next start.
fn delete(registry: &Registry, folder: &RelativePath, chunk: &Kept) -> Result<()> {
    let root = &registry.env.root;
    let trash = registry.env.next_trash();
    let manifest = manifest_name(root, folder);
    let is_own = |name: &str| chunk.tops.iter().chain(&manifest).any(|own| own.as_str() == name);
    if root.list(folder)?.iter().all(|entry| is_own(&entry.name)) {
        root.rename(folder, &trash)?;
    } else {
        let there = chunk.tops.iter().chain(&manifest);
        for top in there.filter(|top| root.exists(&folder.join_path(top))) {
            root.rename(&folder.join_path(top), &trash.join_path(top))?;
        }
        root.sync_dir(folder)?;
    }
    root.remove_tree(&trash)?;
    registry.remove_empty_folders(folder);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    /// Chunks of (name, sealed at, bytes); gives the names that are deleted at 100 s.
    fn planned(chunks: &[(&str, u64, u64)], keep: Keep, held: &[&str]) -> Vec<String> {
        let kept = |(name, sealed, bytes): &(&str, u64, u64)| {
            let (chunk, tops) = (ChunkId::new(0), BTreeSet::new());
            (path(name), Kept { sealed: at(*sealed), bytes: *bytes, chunk, tops })
        };
        let chunks = chunks.iter().map(kept).collect();
        let is_held = |folder: &RelativePath| held.contains(&folder.as_str());
        plan(&chunks, keep, at(100), is_held).iter().map(ToString::to_string).collect()
    }

    const ALL: [(&str, u64, u64); 4] = [("d", 10, 5), ("c", 50, 5), ("a", 90, 5), ("b", 99, 5)];

    fn age(seconds: u64) -> Keep {
        Keep { age: Some(Duration::from_secs(seconds)), bytes: None }
    }

    fn bytes(bytes: u64) -> Keep {
        Keep { age: None, bytes: Some(bytes) }
    }

    #[test]
    fn what_is_too_old_goes() {
        assert_eq!(planned(&ALL, age(50), &[]), ["d"]);
        assert_eq!(planned(&ALL, age(49), &[]), ["d", "c"]);
        assert_eq!(planned(&ALL, age(90), &[]), [""; 0]);
        assert_eq!(planned(&[("future", 200, 5)], age(0), &[]), [""; 0]);
    }

    #[test]
    fn the_oldest_go_until_the_rest_is_small_enough() {
        assert_eq!(planned(&ALL, bytes(20), &[]), [""; 0]);
        assert_eq!(planned(&ALL, bytes(19), &[]), ["d"]);
        assert_eq!(planned(&ALL, bytes(10), &[]), ["d", "c"]);
        assert_eq!(planned(&ALL, bytes(0), &[]), ["d", "c", "a", "b"]);
    }

    #[test]
    fn what_is_held_stays_and_counts() {
        assert_eq!(planned(&ALL, bytes(10), &["d"]), ["c", "a"]);
        assert_eq!(planned(&ALL, age(5), &["d", "a"]), ["c"]);
        assert_eq!(planned(&ALL, Keep { age: age(5).age, bytes: Some(10) }, &["c"]), ["d", "a"]);
    }

    #[test]
    fn without_bounds_everything_is_kept() {
        assert!(Keep::default().is_for_ever());
        assert_eq!(planned(&ALL, Keep::default(), &[]), [""; 0]);
    }
}
