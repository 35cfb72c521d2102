//! Numbers and names of x86-64's system calls, as `asm/unistd_64.h` of Linux 6.18 has them, and names of those that 32-bit
//! programs make there (`asm/unistd_32.h`).

use std::collections::HashMap;
use std::sync::LazyLock;

type Names = Vec<Option<&'static str>>;

static NAMES: LazyLock<Names> = LazyLock::new(|| names(include_str!("syscalls.txt")));
static COMPAT_NAMES: LazyLock<Names> = LazyLock::new(|| names(include_str!("syscalls_i386.txt")));

/// Names by number; the numbers have gaps.
fn names(list: &'static str) -> Names {
    let mut names = Vec::new();
    for line in list.lines() {
        let Some((number, name)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u16>() else { continue };
        let place = usize::from(number);
        names.resize(names.len().max(place + 1), None);
        if let Some(slot) = names.get_mut(place) {
            *slot = Some(name);
        }
    }
    names
}

/// Numbers by name.
static NUMBERS: LazyLock<HashMap<&'static str, u16>> = LazyLock::new(|| {
    let named = (0_u16..).zip(NAMES.iter());
    named.filter_map(|(number, name)| Some(((*name)?, number))).collect()
});

/// The kernel's name of a system call, without `sys_`. `None` for a number that no call has.
#[must_use]
pub fn syscall_name(number: u64) -> Option<&'static str> {
    NAMES.get(usize::try_from(number).ok()?).copied().flatten()
}

/// The name of a system call that a 32-bit program makes. `None` for a number that no call has.
#[must_use]
pub fn compat_syscall_name(number: u64) -> Option<&'static str> {
    COMPAT_NAMES.get(usize::try_from(number).ok()?).copied().flatten()
}

/// The number of a system call of this name.
#[must_use]
pub fn syscall_number(name: &str) -> Option<u16> {
    NUMBERS.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_call_with_a_name_of_its_own() {
        let lines = include_str!("syscalls.txt").lines().count();
        let known: Vec<_> =
            (0..1_000).filter_map(|number| Some((number, syscall_name(number)?))).collect();
        assert_eq!(known.len(), lines);
        for (number, name) in known {
            assert_eq!(syscall_number(name).map(u64::from), Some(number), "{name}");
        }
    }

    #[test]
    fn known_calls_have_their_numbers() {
        assert_eq!((syscall_name(0), syscall_name(257)), (Some("read"), Some("openat")));
        assert_eq!((syscall_name(400), syscall_name(u64::MAX)), (None, None));
        assert_eq!(
            (compat_syscall_name(5), compat_syscall_name(331)),
            (Some("open"), Some("pipe2"))
        );
        assert_eq!(compat_syscall_name(1_000), None);
        assert_eq!((syscall_number("openat2"), syscall_number("no_such_call")), (Some(437), None));
    }
}
