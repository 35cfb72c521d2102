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
    loop {
        if *stop.borrow() {
            return;
        }
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
        let result = match compressed.await {
            Ok(result) => result,
            Err(error) => return tracing::error!(%error, "a task of the relay failed"),
        };
        match result {
            Ok(repacked) => note(&registry, &entry, repacked),
            Err(error) => match *error {
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
        }
        if let Err(error) = env.outbox.compressed(&env.root, &entry, &env.counters) {
            return tracing::error!(error = &error as &dyn std::error::Error, "outbox");
        }
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
