//! Open files of streams, and those that viewers read, with a bound on the number of each.
//!
//! Who needs a file keeps it by [`Kept`]: open as long as there is room, opened again when they are needed after others
//! took the room. Those that were opened first are closed first; a file that is being used stays open until then.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wire::live::RelativePath;

use crate::error::Result;
use crate::root::Root;

/// Open files of one kind.
#[derive(Debug)]
pub(crate) struct OpenFiles<F = File> {
    capacity: usize,
    state: Mutex<State<F>>,
}

#[derive(Debug)]
struct State<F> {
    open: HashMap<u64, Arc<F>>,
    /// Keys in the order of opening; some may be closed already, at most as many as are open and [`SLACK`].
    order: VecDeque<u64>,
    last_key: u64,
}

/// Closed keys that may stay in the order of opening.
const SLACK: usize = 64;

/// A file that is open as long as there is room.
#[derive(Debug)]
pub(crate) struct Kept<F = File> {
    files: Arc<OpenFiles<F>>,
    key: u64,
    file: Weak<F>,
}

impl<F> OpenFiles<F> {
    /// At most `capacity` files, and those that are being used.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { open: HashMap::new(), order: VecDeque::new(), last_key: 0 };
        Self { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    /// Keeps a file open as long as there is room.
    pub(crate) fn keep(self: &Arc<Self>, file: Arc<F>) -> Kept<F> {
        let weak = Arc::downgrade(&file);
        let mut closed = Vec::new();
        let mut state = self.lock();
        state.last_key += 1;
        let key = state.last_key;
        state.open.insert(key, file);
        state.order.push_back(key);
        while state.open.len() > self.capacity {
            let Some(first) = state.order.pop_front() else { break };
            closed.extend(state.open.remove(&first));
        }
        drop(state);
        // Closing is a system call; nobody needs to wait for it.
        drop(closed);
        Kept { files: Arc::clone(self), key, file: weak }
    }

    fn close(&self, key: u64) {
        let mut state = self.lock();
        let file = state.open.remove(&key);
        if state.order.len() > state.open.len() * 2 + SLACK {
            let State { open, order, .. } = &mut *state;
            order.retain(|key| open.contains_key(key));
        }
        drop(state);
        drop(file);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().open.len()
    }

    /// The state is whole between any two steps of the above.
    fn lock(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The file; opened again when it was closed.
    pub(crate) fn get(
        &mut self,
        root: &Root,
        path: impl FnOnce() -> RelativePath,
    ) -> Result<Arc<File>> {
        if let Some(file) = self.file.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(root.read_write(&path())?);
        *self = self.files.keep(Arc::clone(&file));
        Ok(file)
    }
}

impl<F> Kept<F> {
    /// The file, if it is open.
    pub(crate) fn open(&self) -> Option<Arc<F>> {
        self.file.upgrade()
    }
}

impl<F> Drop for Kept<F> {
    fn drop(&mut self) {
        self.files.close(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_are_closed_for_others_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let files = Arc::new(OpenFiles::new(3));
        let path = |number: u8| RelativePath::new(&format!("s/{number}")).unwrap();
        let dir = RelativePath::new("s").unwrap();
        let mut kept: Vec<Kept> = (0..10_u8)
            .map(|number: u8| files.keep(Arc::new(root.create(&dir, &number.to_string()).unwrap())))
            .collect();
        assert_eq!(files.len(), 3);
        for round in 0..3 {
            for (number, kept) in (0..).zip(&mut kept) {
                let file = kept.get(&root, || path(number)).unwrap();
                file.write_all_at(&[number], round).unwrap();
                assert!(files.len() <= 3);
            }
        }
        for number in 0..10_u8 {
            let content = std::fs::read(folder.path().join(path(number).as_path())).unwrap();
            assert_eq!(content, [number; 3]);
        }
        drop(kept);
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn the_order_of_opening_does_not_grow_with_files_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let files = Arc::new(OpenFiles::new(1000));
        let file = Arc::new(root.create(&RelativePath::default(), "x").unwrap());
        for _ in 0..10_000 {
            drop(files.keep(Arc::clone(&file)));
        }
        assert!(files.lock().order.len() <= SLACK + 1);
    }
}
