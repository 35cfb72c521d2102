//! Control groups: from a sample's number, or from a process, to the path.
#![expect(unsafe_code, reason = "a system call without a safe wrapper")]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths that are remembered; when there are more, all are looked up again.
const MAX_KNOWN: usize = 8192;
/// The number of the group that all others are in: include/linux/kernfs.h.
const ROOT: u64 = 1;

/// The groups of the machine.
#[derive(Debug)]
pub(super) struct Cgroups {
    /// The hierarchy that has samples' numbers, version 2, and where it is mounted.
    mount: Option<(File, PathBuf)>,
    /// Whether there are hierarchies of version 1 beside it: then those may say what it does not.
    has_others: bool,
    /// A number is never given to another group.
    known: HashMap<u64, Arc<str>>,
}

impl Cgroups {
    /// Those that are mounted here.
    pub(super) fn new() -> Self {
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let (mount, has_others) = mounted(&mounts);
        let mount = mount.and_then(|path| Some((File::open(&path).ok()?, path)));
        Self { mount, has_others, known: HashMap::new() }
    }

    /// The group of this number as `/proc/PID/cgroup` writes it, `0::/path`; `None` when it is gone, or may not be looked up.
    pub(super) fn of(&mut self, number: u64) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(&number) {
            return Some(Arc::clone(known));
        }
        let (mount, mounted_at) = self.mount.as_ref()?;
        let path = path_of(mount, mounted_at, number).ok()?;
        let line: Arc<str> = format!("0::{path}").into();
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(number, Arc::clone(&line));
        Some(line)
    }

    /// Whether the number of a group tells all there is to know.
    pub(super) const fn is_all(&self, number: u64) -> bool {
        number != ROOT || !self.has_others
    }
}

/// Where the hierarchy of version 2 is mounted as a whole, and whether there are such of version 1, of `/proc/PID/mountinfo`.
fn mounted(mounts: &[u8]) -> (Option<PathBuf>, bool) {
    let (mut path, mut has_others) = (None, false);
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let (root, at) = (words.nth(3), words.next());
        let kind = words.skip_while(|word| *word != b"-").nth(1);
        match (kind, root, at) {
            (Some(b"cgroup2"), Some(b"/"), Some(at)) if path.is_none() => {
                path = Some(Path::new(OsStr::from_bytes(at)).to_owned());
            }
            (Some(b"cgroup"), ..) => has_others = true,
            _ => {}
        }
    }
    (path, has_others)
}

/// `struct file_handle` of a directory of kernfs: its type and content are those of fs/kernfs/mount.c.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    number: u64,
}

fn path_of(mount: &File, mounted_at: &Path, number: u64) -> io::Result<String> {
    const FILEID_KERNFS: i32 = 0xfe;
    let mut handle = Handle { bytes: 8, kind: FILEID_KERNFS, number };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the kernel reads the two numbers and the 8 bytes behind them that the first one tells of; both descriptor and struct
    // live until the call returns.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else has.
    let opened = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    let path = path.strip_prefix(mounted_at).map_err(io::Error::other)?;
    Ok(format!("/{}", path.to_string_lossy()))
}

/// Of a process's groups, as `/proc/PID/cgroup` lists them, the one that says most: that of version 2, else that of systemd, else
/// the longest.
pub(super) fn most_telling(groups: &str) -> Option<&str> {
    let told = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        (path != "/").then_some((controllers, path.len(), line))
    });
    let rank = |(controllers, len, _): &(&str, usize, &str)| match *controllers {
        "" => (2, *len),
        "name=systemd" => (1, *len),
        _ => (0, *len),
    };
    told.max_by_key(rank).map(|(_, _, line)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_hierarchy_of_version_2_is_found_beside_others() {
        let hybrid = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
            42 31 0:38 /docker/x /elsewhere rw - cgroup2 cgroup2 rw\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:7 master:1 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(hybrid), (Some("/sys/fs/cgroup/unified".into()), true));
        let unified =
            b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mounted(unified), (Some("/sys/fs/cgroup".into()), false));
        assert_eq!(mounted(b"23 1 0:20 / /proc rw - proc proc rw\nnonsense\n\n"), (None, false));
    }

    #[test]
    fn of_a_process_s_groups_the_most_telling_one_is_taken() {
        let hybrid = "9:name=systemd:/system.slice/web.service\n4:memory:/docker/0123\n0::/\n";
        assert_eq!(most_telling(hybrid), Some("9:name=systemd:/system.slice/web.service"));
        assert_eq!(
            most_telling("9:name=systemd:/\n8:pids:/a\n4:memory:/a/b\n0::/\n"),
            Some("4:memory:/a/b")
        );
        assert_eq!(most_telling("4:memory:/a/b\n0::/c\n"), Some("0::/c"));
        assert_eq!(most_telling("4:memory:/\n0::/\nnonsense\n"), None);
    }

    #[test]
    fn the_root_is_found_by_its_number() {
        let mut cgroups = Cgroups::new();
        if cgroups.mount.is_none() || path_of_root(&cgroups).is_err() {
            testkit::skip("groups may not be looked up by their number here");
            return;
        }
        assert_eq!(cgroups.of(ROOT).as_deref(), Some("0::/"));
        assert_eq!(cgroups.of(u64::MAX), None);
    }

    fn path_of_root(cgroups: &Cgroups) -> io::Result<String> {
        let (mount, at) = cgroups.mount.as_ref().unwrap();
        path_of(mount, at, ROOT)
    }
}
