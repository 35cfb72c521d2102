//! Compresses sealed chunks, one at a time, before anybody is told of them.
//!
//! Which are still to be compressed is in the outbox, so a chunk that a kill interrupted is finished by the next start; at any
//! step it can be read ([`tracedir::compress_chunk`]). One that cannot be compressed stays as it is.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tracedir::Repacked;
use tracedir::seekable::Level;

use super::outbox::Entry;
use super::rest::Rest;
use crate::event::Event;
use crate::registry::Registry;

/// Compresses what waits until the relay ends.
pub(crate) async fn compress(
    registry: Arc<Registry>,
    level: Level,
    mut stop: watch::Receiver<bool>,
) {
    let env = &registry.env;
    let Some(queue) = env.outbox.to_compress() else { return };
    let mut rest = Rest::new(&env.outbox.announce, stop.clone());
    while !rest.is_stopping() {
        let Some(entry) = queue.next() else {
            tokio::select! {
                () = queue.added.notified() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            continue;
        };
        let (worker, folder, stopped) = (Arc::clone(&registry), entry.folder.clone(), stop.clone());
        // Reads and writes all of the chunk; asked between two frames whether it shall go on.
        let compressed = tokio::task::spawn_blocking(move || {
            let folder = worker.env.root.absolute(&folder);
            tracedir::compress_chunk(&folder, level, &|| !*stopped.borrow()).map_err(Box::new)
        });
        match compressed.await {
            Ok(Ok(repacked)) => note(&registry, &entry, repacked),
            Ok(Err(error)) => match *error {
                tracedir::Error::Io { ref source, .. }
                    if source.kind() == io::ErrorKind::Interrupted =>
                {
                    continue;
                }
                // It was deleted: those who are to be told find that themselves.
                tracedir::Error::NoManifest { problem: None, .. } => {}
                error => {
                    env.counters.compressions_failed.add(1);
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(chunk = %entry.folder, error, "not compressed");
                }
            },
            Err(error) => {
                env.counters.compressions_failed.add(1);
                tracing::error!(chunk = %entry.folder, %error, "not compressed: a task of the relay failed");
            }
        }
        // Two steps, for one that was announced is not announced again because the other fails.
        let announced = || env.outbox.announce(&env.root, &entry.folder, &env.counters);
        let is_noted = rest.noted(&env.counters, announced).await
            && rest.noted(&env.counters, || queue.done(&env.root, &entry)).await;
        if !is_noted {
            return;
        }
        rest.worked();
    }
}

fn note(registry: &Registry, entry: &Entry, repacked: Repacked) {
    let counters = &registry.env.counters;
    counters.chunks_compressed.add(1);
    counters.bytes_compressed.add(repacked.content_bytes);
    counters.bytes_compressed_to.add(repacked.compressed_bytes);
    let folder = registry.env.root.absolute(&entry.folder);
    registry.tell(Event::Compressed {
        folder,
        content_bytes: repacked.content_bytes,
        compressed_bytes: repacked.compressed_bytes,
    });
}
