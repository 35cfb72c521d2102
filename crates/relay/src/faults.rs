//! Failures of the disk that tests ask for.

use std::io;
use std::sync::Mutex;

use rustix::io::Errno;

/// Which changes of the disk fail.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    /// Changes made since the plan began.
    made: u64,
    fails: Option<Fails>,
    failed: u64,
}

#[derive(Debug, Clone, Copy)]
struct Fails {
    errno: Errno,
    /// The first change that fails, from 0, and how many do from there on.
    from: u64,
    count: u64,
}

impl Faults {
    /// The disk has no room for anything from now on.
    pub(crate) fn no_room(&self) {
        self.plan(Errno::NOSPC, 0, u64::MAX);
    }

    /// After so many changes so many fail.
    pub(crate) fn plan(&self, errno: Errno, from: u64, count: u64) {
        let fails = Some(Fails { errno, from, count });
        *self.0.lock().unwrap() = Plan { made: 0, fails, failed: 0 };
    }

    /// No more fail; gives how many did.
    pub(crate) fn end(&self) -> u64 {
        std::mem::take(&mut *self.0.lock().unwrap()).failed
    }

    /// A change that needs room.
    pub(super) fn next(&self) -> io::Result<()> {
        self.0.lock().unwrap().next(true)
    }

    /// One that needs none.
    pub(super) fn next_free(&self) -> io::Result<()> {
        self.0.lock().unwrap().next(false)
    }
}

impl Plan {
    fn next(&mut self, needs_room: bool) -> io::Result<()> {
        let Some(Fails { errno, from, count }) = self.fails else { return Ok(()) };
        if !needs_room && errno == Errno::NOSPC {
            return Ok(());
        }
        let number = self.made;
        self.made += 1;
        if number >= from && number - from < count {
            self.failed += 1;
            return Err(errno.into());
        }
        Ok(())
    }
}
