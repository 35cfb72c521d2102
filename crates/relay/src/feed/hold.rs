//! What viewers have still to read: it is not deleted for its age, as long as they move.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wire::live::{RelativePath, StreamHandle};

use super::{Feed, lock};

/// One viewer's places in the streams of a session.
#[derive(Debug)]
pub(crate) struct Hold(Mutex<Places>);

#[derive(Debug)]
struct Places {
    /// When it last came to another packet.
    moved: Instant,
    /// The packet that it reads, or reads next, of each stream that it follows; `None` until it is told of streams: it may
    /// need all.
    next: Option<BTreeMap<StreamHandle, u64>>,
}

impl Hold {
    fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Places { moved: now, next: None })))
    }

    /// The viewer follows these streams and no others.
    pub(crate) fn follows(&self, places: BTreeMap<StreamHandle, u64>) {
        lock(&self.0).next = Some(places);
    }

    /// The viewer is at a packet.
    pub(crate) fn is_at(&self, handle: StreamHandle, number: u64, now: Instant) {
        let mut places = lock(&self.0);
        let before = places.next.get_or_insert_default().insert(handle, number);
        if before != Some(number) {
            places.moved = now;
        }
    }
}

impl Feed {
    /// A viewer comes; what it has still to read is held.
    pub(crate) fn hold(&self, now: Instant) -> Arc<Hold> {
        let hold = Hold::new(now);
        let mut holds = lock(&self.holds);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold));
        hold
    }

    /// Whether the chunk in a folder has packets that a viewer has still to read who has moved within `patience`.
    pub(crate) fn is_held(&self, folder: &RelativePath, now: Instant, patience: Duration) -> bool {
        let holds: Vec<Arc<Hold>> =
            lock(&self.holds).iter().filter_map(std::sync::Weak::upgrade).collect();
        let state = lock(&self.state);
        let chunk = state.chunks.find(folder);
        holds.iter().any(|hold| {
            let places = lock(&hold.0);
            let moves = now.saturating_duration_since(places.moved) < patience;
            moves
                && places.next.as_ref().is_none_or(|next| {
                    next.iter().any(|(handle, number)| {
                        let stream = state.packets(*handle);
                        stream.zip(chunk).is_some_and(|(it, chunk)| it.has_from(chunk, *number))
                    })
                })
        })
    }
}
