//! Copies a chunk to a [`Store`], its manifest last: what has a manifest there is whole.
//!
//! Files that are there already are not sent again, so a copy that was interrupted goes on. Bounds: [`AT_ONCE`] files at a time, two
//! parts of 8 MiB of each in memory.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracedir::manifest::{Manifest, ManifestFile, hex};
use wire::live::RelativePath;

use super::Failure;
use super::store::{Item, Put, PutError, Store};
use crate::registry::Registry;

/// Files that are sent at a time.
const AT_ONCE: usize = 4;

/// Copies the chunk in `folder`, whose manifest has these bytes and this path.
pub(super) async fn copy(
    registry: &Arc<Registry>,
    store: &Store,
    folder: &RelativePath,
    manifest_path: &RelativePath,
    manifest_bytes: &[u8],
) -> Result<(), Failure> {
    let counters = &registry.env.counters;
    let manifest = Manifest::parse(manifest_bytes).map_err(Failure::Unreadable)?;
    let Some(manifest) = manifest else { return Err(Failure::NotOurs) };
    let contents = manifest.contents;
    if contents.files_unlisted > 0 {
        return Err(Failure::TooManyFiles(contents.totals.files));
    }
    // An older manifest goes first: from here to the end, nobody takes what is there for whole.
    let manifest_name = manifest_path.to_string();
    if store.is_there(&manifest_name, manifest_bytes).await? {
        return Ok(());
    }
    let mut names = vec![manifest_name.clone()];
    let mut sending = JoinSet::new();
    for file in contents.files {
        if sending.len() >= AT_ONCE {
            finished(registry, sending.join_next().await)?;
        }
        let (len, sha256) = stored(&file);
        let path = stored_path(&file, folder).ok_or(Failure::NotOurs)?;
        let name = path.to_string();
        names.push(name.clone());
        let opened = registry.env.root.read(&path).map_err(Failure::Unopened)?;
        let (store, item) = (store.clone(), Item { name, file: opened, len, sha256 });
        sending.spawn(async move { (len, item.name.clone(), store.put(item).await) });
    }
    while let Some(done) = sending.join_next().await {
        finished(registry, Some(done))?;
    }
    store.sync(names.clone()).await?;
    let file = registry.env.root.read(manifest_path).map_err(Failure::Unopened)?;
    let (len, sha256) = (manifest_bytes.len() as u64, hex(&sha256(manifest_bytes)));
    store.put(Item { name: manifest_name.clone(), file, len, sha256 }).await?;
    store.sync(vec![manifest_name]).await?;
    counters.bytes_copied.add(len);
    Ok(())
}

type Sent = Result<(u64, String, Result<Put, PutError>), tokio::task::JoinError>;

fn finished(registry: &Registry, done: Option<Sent>) -> Result<(), Failure> {
    let Some(done) = done else { return Ok(()) };
    let (len, name, put) = done.map_err(|error| Failure::Task(error.to_string()))?;
    if let Put::Copied { as_expected } = put? {
        registry.env.counters.bytes_copied.add(len);
        if !as_expected {
            registry.env.counters.files_copied_changed.add(1);
            tracing::warn!(
                file = name,
                "copied, and not what the manifest says: it was changed after it was sealed"
            );
        }
    }
    Ok(())
}

/// Length and checksum of a file as it is on the disk.
fn stored(file: &ManifestFile) -> (u64, String) {
    match &file.compressed {
        Some(compressed) => (compressed.bytes, compressed.sha256.clone()),
        None => (file.bytes, file.sha256.clone()),
    }
}

fn stored_path(file: &ManifestFile, folder: &RelativePath) -> Option<RelativePath> {
    let inner = RelativePath::new(file.stored_path()?.to_str()?).ok()?;
    Some(folder.join_path(&inner))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}
