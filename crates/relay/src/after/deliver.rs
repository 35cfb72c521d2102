//! Tells one target of the chunks in its queue, until the relay ends.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracedir::manifest::{HIDDEN_MANIFEST, MANIFEST, MAX_MANIFEST_BYTES, hex};
use wire::live::RelativePath;

use super::outbox::{Dropped, Entry, Queue};
use super::rest::Rest;
use super::{Failure, Target, copy, program};
use crate::env::Env;
use crate::error::{Error, FileContext};
use crate::registry::Registry;
use crate::root::Root;

/// What became of an attempt.
enum Outcome {
    Told,
    /// The chunk was deleted by somebody.
    Gone,
    Failed(Failure),
}

/// What an attempt leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// The chunk leaves the queue.
    Over,
    /// It is tried again after others.
    Later,
}

/// Tells the target with the number `index` of chunks as they are sealed. After `stop` it tells of what waits until
/// [`Announce::at_end`](super::Announce::at_end) is over or an attempt fails.
pub(crate) async fn deliver(
    registry: Arc<Registry>,
    index: usize,
    mut stop: watch::Receiver<bool>,
) {
    let env = &registry.env;
    let Some(queue) = env.outbox.queues().get(index) else { return };
    let mut rest = Rest::new(&env.outbox.announce, stop.clone());
    let end = end_of(stop.clone(), env.outbox.announce.at_end);
    tokio::pin!(end);
    loop {
        let is_stopping = rest.is_stopping();
        let Some(entry) = queue.next() else {
            if is_stopping {
                return;
            }
            tokio::select! {
                () = queue.added.notified() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            continue;
        };
        let attempt = tokio::select! {
            attempt = attempt(&registry, queue, &entry) => attempt,
            () = &mut end => return,
        };
        let works = !matches!(attempt, Outcome::Failed(_));
        match settle(env, queue, &entry, attempt) {
            // Not told again because it cannot be noted.
            Settled::Over => {
                if !rest.noted(&env.counters, || queue.done(&env.root, &entry)).await {
                    return;
                }
            }
            Settled::Later => queue.later(&entry),
        }
        if works {
            rest.worked();
        } else if is_stopping {
            return;
        } else {
            rest.after_failure().await;
        }
    }
}

/// `patience` after the stop.
async fn end_of(mut stop: watch::Receiver<bool>, patience: Duration) {
    // The sender going away means the same.
    drop(stop.wait_for(|stop| *stop).await);
    tokio::time::sleep(patience).await;
}

/// Counts and logs what became of an attempt.
fn settle(env: &Env, queue: &Queue, entry: &Entry, outcome: Outcome) -> Settled {
    let counters = &env.counters;
    match outcome {
        Outcome::Told => {
            if queue.copies() { &counters.chunks_copied } else { &counters.announcements }.add(1);
            Settled::Over
        }
        Outcome::Gone => {
            queue.drops(entry, Dropped::Gone, counters);
            Settled::Over
        }
        Outcome::Failed(failure) => {
            if queue.copies() { &counters.copies_failed } else { &counters.announcements_failed }
                .add(1);
            tracing::warn!(
                to = queue.name(),
                chunk = %entry.folder,
                error = &failure as &dyn std::error::Error,
                "cannot announce or copy a chunk; it is tried again"
            );
            if queue.copies() || entry.since.elapsed() <= env.outbox.announce.give_up {
                return Settled::Later;
            }
            queue.drops(entry, Dropped::TooOld, counters);
            Settled::Over
        }
    }
}

async fn attempt(registry: &Arc<Registry>, queue: &Queue, entry: &Entry) -> Outcome {
    let env = &registry.env;
    let Some(path) = manifest(&env.root, &entry.folder) else { return Outcome::Gone };
    let Some(target) = &queue.target else { return Outcome::Gone };
    let timeout = env.outbox.announce.timeout;
    let manifest = || read(&env.root, &path).map_err(Failure::Manifest);
    let telling = async {
        match target {
            Target::Program(program) => {
                let file = env.root.read(&path).map_err(Failure::Manifest)?;
                program::run(program, &env.root.absolute(&entry.folder), file, timeout).await
            }
            Target::Webhook(webhook) => {
                let posting = webhook.post(manifest()?, env.outbox.trust.as_ref());
                within(timeout, posting).await
            }
            Target::Nats(subject) => {
                let manifest = manifest()?;
                let id = hex(&Sha256::digest(&manifest));
                let ca = env.outbox.announce.ca.as_deref();
                within(timeout, subject.publish(ca, &manifest, &id)).await
            }
            // It takes as long as it takes; requests to a store have limits of their own.
            Target::Copy(store) => {
                copy::copy(registry, store, &entry.folder, &path, &manifest()?).await
            }
        }
    };
    let told = telling.await;
    told.map_or_else(Outcome::Failed, |()| Outcome::Told)
}

async fn within(
    timeout: Duration,
    telling: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::time::timeout(timeout, telling).await.unwrap_or(Err(Failure::Timeout))
}

/// Where a chunk's manifest is.
fn manifest(root: &Root, folder: &RelativePath) -> Option<RelativePath> {
    [MANIFEST, HIDDEN_MANIFEST]
        .into_iter()
        .filter_map(|name| RelativePath::new(name).ok())
        .map(|name| folder.join_path(&name))
        .find(|path| !root.is_missing(path))
}

fn read(root: &Root, path: &RelativePath) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = root.read(path)?;
    file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes).on("read", path.as_path())?;
    Ok(bytes)
}
