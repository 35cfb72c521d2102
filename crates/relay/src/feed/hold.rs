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
        let Some(unread) = unread(&holds, now, patience) else { return true };
        let state = lock(&self.state);
        let Some(chunk) = state.chunks.find(folder) else { return false };
        unread.iter().any(|(handle, number)| {
            state.packets(*handle).is_some_and(|stream| stream.has_from(chunk, *number))
        })
    }
}

/// Of each stream that viewers follow who have moved within `patience`, where the last of them is: what it has still to read is
/// all that any of them has. `None` when one of them may need all. No lock of the feed's is needed for it.
fn unread(
    holds: &[Arc<Hold>],
    now: Instant,
    patience: Duration,
) -> Option<BTreeMap<StreamHandle, u64>> {
    let mut last: BTreeMap<StreamHandle, u64> = BTreeMap::new();
    for hold in holds {
        let places = lock(&hold.0);
        if now.saturating_duration_since(places.moved) >= patience {
            continue;
        }
        for (handle, number) in places.next.as_ref()? {
            let last = last.entry(*handle).or_insert(*number);
            *last = (*last).min(*number);
        }
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(600);

    fn hold(now: Instant, places: &[(u64, u64)]) -> Arc<Hold> {
        let hold = Hold::new(now);
        let places = places.iter().map(|(handle, number)| (StreamHandle::new(*handle), *number));
        hold.follows(places.collect());
        hold
    }

    fn check(holds: &[Arc<Hold>], now: Instant, expected: &[(u64, u64)]) {
        let unread = unread(holds, now, PATIENCE).unwrap();
        let unread: Vec<_> = unread.iter().map(|(handle, it)| (handle.get(), *it)).collect();
        assert_eq!(unread, expected);
    }

    #[test]
    fn each_stream_is_asked_once_however_many_viewers_follow_it() {
        let now = Instant::now();
        let places = |viewer: u64| [(1, 1000 - viewer), (2, 500 + viewer)];
        let holds: Vec<_> = (0..1000).map(|viewer| hold(now, &places(viewer))).collect();
        check(&holds, now, &[(1, 1), (2, 500)]);
    }

    #[test]
    fn who_has_not_moved_for_long_holds_nothing() {
        let then = Instant::now();
        let now = then + PATIENCE;
        let mut holds = vec![hold(then, &[(1, 3)]), hold(now, &[(1, 7)])];
        check(&holds, now, &[(1, 7)]);
        holds.push(Hold::new(then));
        check(&holds, now, &[(1, 7)]);
        holds.push(Hold::new(now));
        assert_eq!(unread(&holds, now, PATIENCE), None, "it may need all");
    }
}
