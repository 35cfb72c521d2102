//! Loading eBPF objects: where they live, how often it is tried, and what libbpf says meanwhile.
//!
//! The kernel gives up checking a program with `EAGAIN` when a signal is on its way to the thread that asks, also one that only stops it
//! for a debugger or a freezer (kernel/bpf/verifier.c, `do_check`). libbpf asks five times (`PROG_LOAD_ATTEMPTS` of its
//! `libbpf_internal.h`), which such signals can outlast while a large program is checked; so all of it is done again.

use std::mem::MaybeUninit;

use libbpf_rs::{ErrorKind, OpenObject, PrintLevel};

use crate::error::{Error, Result};

/// How often an object is loaded at the most.
const MAX_ATTEMPTS: usize = 5;

/// Where a loaded object lives; it must outlive what is made of it. Each attempt has a place of its own.
#[derive(Debug)]
pub(crate) struct Storage([MaybeUninit<OpenObject>; MAX_ATTEMPTS]);

impl Storage {
    pub(crate) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_ATTEMPTS])
    }

    /// Has `load` open an object in a place and load it, as [`load`] has.
    ///
    /// # Errors
    /// What the last attempt failed with.
    pub(crate) fn load<'obj, T>(
        &'obj mut self,
        mut load: impl FnMut(&'obj mut MaybeUninit<OpenObject>) -> Result<T>,
    ) -> Result<T> {
        let mut places = self.0.iter_mut();
        self::load(|| load(places.next().expect("a place for each attempt")))
    }
}

/// Calls `attempt`, and again while the kernel was interrupted, [`MAX_ATTEMPTS`] times at the most.
///
/// # Errors
/// What the last attempt failed with.
pub(crate) fn load<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    libbpf_rs::set_print(Some((PrintLevel::Info, log)));
    for _ in 1..MAX_ATTEMPTS {
        match attempt() {
            Err(error) if was_interrupted(&error) => {
                tracing::debug!("the kernel was interrupted while it checked an eBPF program");
            }
            done => return done,
        }
    }
    attempt()
}

fn was_interrupted(error: &Error) -> bool {
    let Error::Bpf { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What libbpf has to say goes into the log.
fn log(level: PrintLevel, message: String) {
    let message = message.trim_end();
    match level {
        PrintLevel::Debug => tracing::trace!(target: "libbpf", message),
        PrintLevel::Info => tracing::debug!(target: "libbpf", message),
        PrintLevel::Warn => tracing::warn!(target: "libbpf", message),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// An attempt that the kernel refuses.
    fn refused(errno: Errno) -> Error {
        let source = libbpf_rs::Error::from_raw_os_error(errno.raw_os_error());
        Error::bpf("load it")(source)
    }

    /// Loads what is refused with these, one after the other, and then taken: how many attempts there were, and whether it was taken.
    fn attempts(refusals: &[Errno]) -> (usize, bool) {
        let (mut refusals, mut count) = (refusals.iter(), 0);
        let mut storage = Storage::new();
        let loaded = storage.load(|_| {
            count += 1;
            refusals.next().map_or(Ok(()), |errno| Err(refused(*errno)))
        });
        (count, loaded.is_ok())
    }

    #[test]
    fn what_was_interrupted_is_loaded_again_a_bounded_number_of_times() {
        assert_eq!(attempts(&[]), (1, true));
        assert_eq!(attempts(&[Errno::AGAIN, Errno::INTR, Errno::AGAIN]), (4, true));
        assert_eq!(attempts(&[Errno::AGAIN; MAX_ATTEMPTS]), (MAX_ATTEMPTS, false));
    }

    #[test]
    fn what_is_refused_for_another_reason_is_not_loaded_again() {
        assert_eq!(attempts(&[Errno::PERM]), (1, false));
        assert_eq!(attempts(&[Errno::AGAIN, Errno::INVAL]), (2, false));
    }
}
