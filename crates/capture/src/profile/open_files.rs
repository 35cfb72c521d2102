//! How many files may stay open: each file that is sampled does, and all else needs descriptors, too.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, getrlimit};

/// Of the descriptors that this process may have, so many are left to all else, or a quarter where that is less: rings and maps of the
/// kernel, tables on their way to it, files of `/proc`, packets and connections.
const OTHERS: u64 = 4096;

/// Whether a file that was opened may stay so. The kernel gives the lowest descriptor that is free, so a high one says that few are left.
pub(super) fn may_stay(file: &impl AsRawFd) -> bool {
    let bound = getrlimit(Resource::Nofile).current;
    bound.is_none_or(|bound| is_below(file.as_raw_fd(), bound))
}

fn is_below(descriptor: i32, bound: u64) -> bool {
    u64::try_from(descriptor).is_ok_and(|it| it < bound - OTHERS.min(bound / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_or_four_thousand_are_left_to_all_else() {
        for (bound, most) in [(0, 0), (8, 6), (1024, 768), (20_000, 15_904), (1 << 20, 1_044_480)] {
            assert!(!is_below(most, bound), "{bound}");
            assert!(most == 0 || is_below(most - 1, bound), "{bound}");
        }
    }
}
