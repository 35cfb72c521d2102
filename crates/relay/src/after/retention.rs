//! Deletes sealed chunks by age and by size.
//!
//! Never one that is being written or sealed (it has no manifest in its last place, or its session's journal names it),
//! one that somebody is still to be told of, one that holds the folder of a session being recorded, or one that is not yet
//! released by the one who reads them ([`Release`]). What a
//! viewer has still to read is not deleted for its age, as long as the viewer moves; it is when all chunks are too large.
//! Oldest first, by when the relay sealed them: times of producers are not trusted with that. What cannot be deleted is tried
//! again; others go in its place meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tracedir::manifest::{self, HIDDEN_MANIFEST, MANIFEST, Manifest, ManifestFile};
use tracedir::seekable::ENDING;
use wire::live::{ChunkId, RelativePath};

use super::rest::Rest;
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

/// What is known between two looks.
#[derive(Debug, Default)]
struct Known {
    /// The sealed chunks by their folders; `None` when they are to be looked for.
    chunks: Option<BTreeMap<RelativePath, Kept>>,
    /// Chunks that are out of sight, of which files could not be deleted, and their bytes.
    trash: BTreeMap<RelativePath, u64>,
}

/// Whether a chunk may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Nobody needs it.
    None,
    /// A viewer has still to read of it.
    Viewed,
    /// It must stay.
    Must,
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
    let env = &registry.env;
    let mut events = registry.subscribe();
    let mut rest = Rest::new(&env.outbox.announce, stop.clone());
    let mut known = Known::default();
    loop {
        let (worker, release) = (Arc::clone(&registry), release.clone());
        let mut swept = std::mem::take(&mut known);
        // Reads manifests and deletes files.
        let sweeping = tokio::task::spawn_blocking(move || {
            let works = swept.sweep(&worker, keep, release.as_ref());
            (swept, works)
        });
        let works = match sweeping.await {
            Ok((swept, works)) => {
                known = swept;
                works
            }
            // All chunks are looked for again.
            Err(error) => {
                env.counters.deletions_failed.add(1);
                tracing::error!(%error, "a task of the relay failed");
                false
            }
        };
        let first = if works {
            rest.worked();
            tokio::select! {
                event = tokio::time::timeout(keep.period(), events.recv()) => event.ok(),
                _ = stop.wait_for(|stop| *stop) => return,
            }
        } else {
            rest.after_failure().await;
            None
        };
        if rest.is_stopping() {
            return;
        }
        known.take_in(&env.root, first, &mut events);
    }
}

impl Known {
    /// Takes in the chunks that were sealed since.
    fn take_in(
        &mut self,
        root: &Root,
        first: Option<std::result::Result<Event, RecvError>>,
        events: &mut Receiver<Event>,
    ) {
        let mut event = first;
        loop {
            match event {
                Some(Ok(
                    Event::Sealed(Sealed { folder, .. }) | Event::Compressed { folder, .. },
                )) => {
                    self.chunks.iter_mut().for_each(|chunks| chunks.extend(look(root, &folder)));
                }
                Some(Err(RecvError::Lagged(_))) => self.chunks = None,
                None | Some(Ok(_) | Err(RecvError::Closed)) => {}
            }
            event = match events.try_recv() {
                Ok(event) => Some(Ok(event)),
                Err(TryRecvError::Lagged(lost)) => Some(Err(RecvError::Lagged(lost))),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            };
        }
    }

    /// Deletes what is to be deleted now; says whether it could.
    fn sweep(&mut self, registry: &Registry, keep: Keep, release: Option<&Release>) -> bool {
        let root = &registry.env.root;
        let chunks = self.chunks.get_or_insert_with(|| find(root));
        let untold = registry.env.outbox.folders();
        let is_read = |folder: &RelativePath| {
            release.is_some_and(|release| !release.has(&root.absolute(folder)))
        };
        let (now, viewers_now) = (now(), Instant::now());
        let mut stuck = BTreeSet::new();
        let in_trash = std::mem::take(&mut self.trash);
        for (trash, bytes) in in_trash {
            self.trash.extend(empty(registry, trash, bytes));
        }
        loop {
            let need = |folder: &RelativePath| match folder {
                _ if stuck.contains(folder) || untold.contains(folder) || is_read(folder) => {
                    Need::Must
                }
                _ if holds_others(chunks.get(folder), folder, registry) => Need::Must,
                _ if registry.is_viewed(folder, viewers_now) => Need::Viewed,
                _ => Need::None,
            };
            let planned = plan(chunks, keep, now, need);
            if planned.is_empty() {
                return stuck.is_empty() && self.trash.is_empty();
            }
            for folder in planned {
                let Some(chunk) = chunks.remove(&folder) else { continue };
                match put_aside(registry, &folder, &chunk) {
                    Ok(trash) => {
                        registry.chunk_is_gone(&folder);
                        release.into_iter().for_each(|it| it.forget(&root.absolute(&folder)));
                        tracing::info!(%folder, bytes = chunk.bytes, "deleted: kept as long as it is to be");
                        self.trash.extend(empty(registry, trash, chunk.bytes));
                        registry.remove_empty_folders(&folder);
                    }
                    Err(error) => {
                        registry.env.counters.deletions_failed.add(1);
                        tracing::error!(
                            %folder,
                            error = &error as &dyn std::error::Error,
                            "cannot delete a chunk; it is tried again"
                        );
                        stuck.insert(folder.clone());
                        chunks.insert(folder, chunk);
                    }
                }
            }
        }
    }
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
    // Every chunk is in a session's folder, HOST/NAME; what is above belongs to all sessions of a host.
    if path.components().count() < 2 {
        tracing::warn!(folder = %path, "not counted and not deleted: no session's folder");
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
    names.find(|name| !root.is_missing(&folder.join_path(name)))
}

/// Whether a session is recorded in what would go with a chunk.
fn holds_others(chunk: Option<&Kept>, folder: &RelativePath, registry: &Registry) -> bool {
    let tops = chunk.into_iter().flat_map(|chunk| &chunk.tops);
    tops.map(|top| folder.join_path(top)).any(|top| registry.holds_recording(&top))
}

/// The chunks to delete, oldest first.
fn plan(
    chunks: &BTreeMap<RelativePath, Kept>,
    keep: Keep,
    now: SystemTime,
    need: impl Fn(&RelativePath) -> Need,
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
        let goes = match (is_old || is_much).then(|| need(folder)) {
            Some(Need::None) => true,
            Some(Need::Viewed) => is_much,
            Some(Need::Must) | None => false,
        };
        if goes {
            total = total.saturating_sub(chunk.bytes);
            planned.push(folder.clone());
        }
    }
    planned
}

/// Takes a chunk out of sight, in one step where it has a folder for itself; gives where it was put. In a session's folder,
/// which may hold more, its manifest goes last: what a kill leaves is found and deleted by the next start. Where the disk
/// has no room for that it is deleted where it is, and so is one that somebody has deleted meanwhile.
fn put_aside(registry: &Registry, folder: &RelativePath, chunk: &Kept) -> Result<RelativePath> {
    let root = &registry.env.root;
    let trash = registry.env.next_trash();
    let manifest = manifest_name(root, folder);
    let is_own = |name: &str| chunk.tops.iter().chain(&manifest).any(|own| own.as_str() == name);
    let is_alone = root.list(folder)?.iter().all(|entry| is_own(&entry.name));
    let parts = || chunk.tops.iter().chain(&manifest).map(|part| (part, folder.join_path(part)));
    let move_parts = || {
        let mut there = parts().filter(|(_, path)| !root.is_missing(path));
        there.try_for_each(|(part, path)| root.rename(&path, &trash.join_path(part)))?;
        root.sync_dir(folder)
    };
    let moved = match is_alone {
        _ if root.is_missing(folder) => Ok(()),
        true => root.rename(folder, &trash),
        false => move_parts(),
    };
    match moved {
        Err(error) if error.is_no_room() => {
            parts().try_for_each(|(_, path)| root.remove_tree(&path))?;
            if is_alone {
                root.remove_dir(folder)?;
            }
        }
        moved => moved?,
    }
    Ok(trash)
}

/// Deletes what was put aside; gives back what could not be deleted.
fn empty(registry: &Registry, trash: RelativePath, bytes: u64) -> Option<(RelativePath, u64)> {
    let counters = &registry.env.counters;
    match registry.env.root.remove_tree(&trash) {
        Ok(()) => {
            counters.chunks_expired.add(1);
            counters.bytes_expired.add(bytes);
            None
        }
        Err(error) => {
            counters.deletions_failed.add(1);
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "cannot delete the files of a chunk; it is tried again");
            Some((trash, bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use tracedir::manifest::{Origin, SealedBy};

    use super::*;
    use crate::after::{Announce, Outbox};
    use crate::config::{Limits, TimeZone};
    use crate::counters::Counters;
    use crate::env::Env;
    use crate::names::Names;
    use crate::seal::write_manifest;

    fn registry(folder: &Path) -> Registry {
        let root = Root::open(folder).unwrap();
        let counters = Counters::default();
        let outbox = Outbox::open(&root, Announce::default(), false, &counters).unwrap();
        let limits = Limits::default();
        Registry::new(
            Env::new(root, Names::new(TimeZone::Utc), limits, counters, outbox, 0),
            Vec::new(),
        )
    }

    /// A sealed chunk in a folder of its own, or beside something else.
    fn seal(registry: &Registry, folder: &str) {
        let root = &registry.env.root;
        let place = path(folder);
        std::io::Write::write_all(&mut root.create(&place, "ch_0").unwrap(), b"packets").unwrap();
        let origin = Origin {
            host: "host".to_owned(),
            session: "s".to_owned(),
            chunk: 0,
            folder: folder.to_owned(),
            begin_s: None,
            end_s: None,
            sealed_by: SealedBy::Closed,
        };
        write_manifest(root, &place, None, origin, &BTreeMap::new()).unwrap();
    }

    #[test]
    fn a_full_disk_does_not_keep_chunks_from_being_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        seal(&registry, "host/alone");
        seal(&registry, "host/shared");
        std::fs::write(folder.path().join("host/shared/notes"), "mine").unwrap();
        registry.env.root.faults.no_room();
        let mut known = Known::default();
        assert!(known.sweep(&registry, bytes(0), None));
        let totals = registry.env.counters.totals();
        assert_eq!((totals.chunks_expired, totals.deletions_failed), (2, 0));
        let left = |name: &str| registry.env.root.list(&path(name)).unwrap().len();
        assert_eq!((left("host/alone"), left("host/shared")), (0, 1));
    }

    #[test]
    fn a_chunk_that_somebody_deletes_meanwhile_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        seal(&registry, "host/alone");
        let mut known = Known::default();
        assert!(known.sweep(&registry, age(1_000_000), None));
        std::fs::remove_dir_all(folder.path().join("host/alone")).unwrap();
        assert!(known.sweep(&registry, bytes(0), None));
        assert_eq!(known.chunks, Some(BTreeMap::new()));
    }

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
        let need = |folder: &RelativePath| match folder.as_str() {
            "viewed" => Need::Viewed,
            name if held.contains(&name) => Need::Must,
            _ => Need::None,
        };
        plan(&chunks, keep, at(100), need).iter().map(ToString::to_string).collect()
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
    fn what_is_viewed_goes_only_when_all_is_too_large() {
        let chunks = [("viewed", 10, 5), ("b", 50, 5)];
        assert_eq!(planned(&chunks, age(5), &[]), ["b"]);
        assert_eq!(planned(&chunks, bytes(9), &[]), ["viewed"]);
        assert_eq!(planned(&chunks, Keep { age: age(60).age, bytes: Some(10) }, &[]), [""; 0]);
    }

    #[test]
    fn without_bounds_everything_is_kept() {
        assert!(Keep::default().is_for_ever());
        assert_eq!(planned(&ALL, Keep::default(), &[]), [""; 0]);
    }
}
