//! What is there already when sampling begins: `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use model::Pid;

use super::change::{Change, Contents};

/// A tick of `/proc/PID/stat`: `USER_HZ` is 100 on x86 and Arm.
pub(super) const TICK_NS: u64 = 10_000_000;

/// The code that processes have mapped; of those that may not be read, nothing.
pub(super) fn processes(only: Option<&[Pid]>) -> Vec<Change> {
    let listed = match only {
        Some(listed) => listed.to_vec(),
        None => all(),
    };
    listed.into_iter().flat_map(of_process).collect()
}

fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::new)).collect()
}

fn of_process(pid: Pid) -> Vec<Change> {
    let Ok(maps) = fs::read(format!("/proc/{}/maps", pid.get())) else { return Vec::new() };
    maps.split(|byte| *byte == b'\n').filter_map(|line| mapped(pid, line)).collect()
}

/// A line of `/proc/PID/maps` when it is of code: `begin-end r-xp offset major:minor inode path`.
fn mapped(pid: Pid, line: &[u8]) -> Option<Change> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (begin, end) = word()?.split_once('-')?;
    let is_code = word()?.as_bytes().get(2) == Some(&b'x');
    let (offset, (major, minor)) = (word()?, word()?.split_once(':')?);
    let inode: u64 = word()?.parse().ok()?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (begin, end) = (hex(begin)?, hex(end)?);
    let number = |text| u32::from_str_radix(text, 16).ok();
    let path = words.next().unwrap_or_default();
    let path = path.iter().position(|byte| *byte != b' ').and_then(|at| path.get(at..));
    let path = path.unwrap_or_default();
    let path = if path.is_empty() { b"//anon" } else { path };
    is_code.then(|| Change::Map {
        pid,
        begin,
        len: end.saturating_sub(begin),
        file_offset: hex(offset).unwrap_or(0),
        contents: Contents::Inode(number(major).unwrap_or(0), number(minor).unwrap_or(0), inode, 0),
        path: Path::new(OsStr::from_bytes(path)).to_owned(),
    })
}

/// Bytes of memory that this process shares with nobody: `resident` less `shared` of `/proc/self/statm`.
pub(super) fn own_memory_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split(' ').skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    let page_bytes = rustix::param::page_size() as u64;
    resident.saturating_sub(shared).saturating_mul(page_bytes)
}

/// Whether a process is there.
pub(super) fn is_there(pid: Pid) -> bool {
    Path::new("/proc").join(pid.get().to_string()).exists()
}

/// Whether the process of this number is still the one that began then, in nanoseconds since boot.
pub(super) fn is_still(pid: Pid, start_ns: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.get()));
    let ticks = stat.ok().and_then(|stat| start_ticks(&stat));
    ticks.is_some_and(|ticks| is_start(ticks, start_ns))
}

/// When a process began, of `/proc/PID/stat`.
pub(super) fn start_ticks(stat: &str) -> Option<u64> {
    // The name, in brackets, may have anything in it. What follows begins with the third field; the 22nd is the start.
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// Whether this is the same moment, as exactly as ticks are.
pub(super) const fn is_start(ticks: u64, start_ns: u64) -> bool {
    ticks.abs_diff(start_ns / TICK_NS) <= 1
}

/// The numbers of the CPUs that run.
///
/// # Errors
/// They cannot be read.
pub(super) fn online_cpus() -> io::Result<Vec<i32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<i32>().map_err(io::Error::other);
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_told_and_others_not() {
        let line = b"55776b6c3000-55776b6e7000 r-xp 00004000 fe:00 247264                     /usr/bin/with space";
        let expected = Change::Map {
            pid: Pid::new(7),
            begin: 0x5577_6b6c_3000,
            len: 0x24000,
            file_offset: 0x4000,
            contents: Contents::Inode(0xfe, 0, 247_264, 0),
            path: "/usr/bin/with space".into(),
        };
        assert_eq!(mapped(Pid::new(7), line), Some(expected));
        assert_eq!(mapped(Pid::new(7), b"7f00-7f01 rw-p 00000000 00:00 0 "), None);
        let jit = mapped(Pid::new(7), b"7f00-7f01 rwxp 00000000 00:00 0 ").unwrap();
        assert!(matches!(jit, Change::Map { path, .. } if path == Path::new("//anon")));
        assert_eq!(mapped(Pid::new(7), b""), None);
        assert_eq!(mapped(Pid::new(7), b"nonsense r-xp"), None);
    }
}
