//! Names of code that processes made while they ran, as they say themselves: perf maps and jitdumps.
//!
//! What is read is of the file as it is when a sample is put into its packet, so that the packet has the names. A jitdump tells
//! when each function was made, and so which one had an address when the sample was taken; a perf map does not, and of two at one address the
//! later one counts.
//!
//! The files are written by whom they are about and by nobody else: a perf map is taken when it is a plain file of the process's own
//! user or root's, a jitdump because the process has mapped it. Nothing else in them is trusted.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use model::Pid;
use profile::{FrameKind, Unnamed};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use symbols::jit::{JitCode, JitDump, JitFunction, PerfMap};

use super::Sample;
use super::code::open_mapped;
use super::processes::CodeFile;
use super::scan;

/// Processes whose names are kept; of more, those that were asked for last.
const MAX_PROCESSES: usize = 64;
/// Memory of the names of all processes.
const MAX_BYTES: usize = 128 << 20;
/// What is read of the files of one process in its life.
const MAX_PROCESS_READ_BYTES: u64 = 512 << 20;
/// What is read of all files at once, and in a second.
const MAX_READ_BYTES: u64 = 64 << 20;
const READ_BYTES_PER_SECOND: u64 = 16 << 20;
/// What is read at a time: as much as the longest record that is looked at.
const CHUNK_BYTES: usize = 1 << 20;
/// How long until a file that was not there is looked for again.
const RETRY_NS: u64 = 1_000_000_000;

/// What a process shows of who makes code in it.
#[derive(Debug, Clone)]
pub(super) struct JitMaker {
    /// By the library that it has mapped.
    pub(super) kind: FrameKind,
    /// The jitdump, of which it maps the first page for others to see.
    dump: Option<Arc<MappedDump>>,
}

/// A jitdump, and where it is mapped.
#[derive(Debug)]
struct MappedDump {
    file: Arc<CodeFile>,
    memory: (u64, u64),
}

impl Default for JitMaker {
    fn default() -> Self {
        Self { kind: FrameKind::Native, dump: None }
    }
}

impl JitMaker {
    /// Takes in a file that the process maps; whether it is nothing else than a jitdump.
    pub(super) fn maps(&mut self, file: &Arc<CodeFile>, begin: u64, end: u64) -> bool {
        let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b"jit-") && name.ends_with(b".dump") {
            self.dump = Some(Arc::new(MappedDump { file: Arc::clone(file), memory: (begin, end) }));
            return true;
        }
        self.kind = match name {
            b"libjvm.so" => FrameKind::Jvm,
            b"libcoreclr.so" => FrameKind::DotNet,
            b"node" | b"nodejs" => FrameKind::V8Js,
            _ if name.starts_with(b"libnode.so") => FrameKind::V8Js,
            _ if name.starts_with(b"libluajit") || name.starts_with(b"luajit") => FrameKind::LuaJit,
            _ => self.kind,
        };
        false
    }

    /// What holds of a child until it begins another program: its parent goes on writing the dump.
    pub(super) fn of_child(&self) -> Self {
        Self { kind: self.kind, dump: None }
    }
}

/// The code that processes have made.
#[derive(Debug, Default)]
pub(super) struct Jit {
    /// By process, and when it started.
    processes: HashMap<(Pid, u64), Process>,
    budget: Budget,
    buffer: Vec<u8>,
}

/// What may be read yet.
#[derive(Debug)]
struct Budget {
    bytes: u64,
    at_ns: u64,
}

#[derive(Debug, Default)]
struct Process {
    /// The sample that was asked for last.
    used_ns: Option<u64>,
    map: Followed<PerfMap>,
    dump: Followed<JitDump>,
    read_bytes: u64,
    /// Not all of its files could be read yet.
    is_behind: bool,
}

/// A file that is read as it grows.
#[derive(Debug, Default)]
struct Followed<R> {
    file: Option<File>,
    /// When it is looked for again.
    retry_ns: u64,
    reader: R,
    code: JitCode,
}

/// What makes names of a file's bytes.
trait Reader {
    /// Where in the file they go on.
    fn offset(&self) -> u64;

    /// Takes in bytes from there on; whether more can follow.
    fn take(&mut self, bytes: &[u8], code: &mut JitCode) -> bool;
}

impl Reader for PerfMap {
    fn offset(&self) -> u64 {
        self.offset()
    }

    fn take(&mut self, bytes: &[u8], code: &mut JitCode) -> bool {
        self.read(bytes, code);
        true
    }
}

impl Reader for JitDump {
    fn offset(&self) -> u64 {
        self.offset()
    }

    fn take(&mut self, bytes: &[u8], _later: &mut JitCode) -> bool {
        self.read(bytes).is_ok() && !self.is_closed()
    }
}

impl Jit {
    /// The function of an address in memory that the process of the sample filled.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn find(
        &mut self,
        sample: &Sample,
        address: u64,
    ) -> Result<JitFunction<'_>, Unnamed> {
        let key = (sample.pid, sample.process_start_ns);
        self.budget.refill(sample.time_ns);
        if !self.processes.contains_key(&key) {
            self.make_room();
        }
        let process = self.processes.entry(key).or_default();
        // The frames of one sample are of one moment.
        if process.used_ns != Some(sample.time_ns) {
            process.used_ns = Some(sample.time_ns);
            process.follow(sample, &mut self.budget, &mut self.buffer);
        }
        let Process { map, dump, is_behind, .. } = process;
        let is_cut = *is_behind || map.code.left_out() + dump.code.left_out() > 0;
        let found = dump.code.find(address).or_else(|| map.code.find(address));
        found.ok_or(if is_cut { Unnamed::Budget } else { Unnamed::Anonymous })
    }

    /// Those that were not asked for longest go.
    fn make_room(&mut self) {
        let bytes = |all: &HashMap<_, Process>| -> usize {
            all.values().map(|it| it.map.code.bytes() + it.dump.code.bytes()).sum()
        };
        while self.processes.len() >= MAX_PROCESSES || bytes(&self.processes) > MAX_BYTES {
            let oldest = self.processes.iter().min_by_key(|(_, it)| it.used_ns);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { return };
            self.processes.remove(&oldest);
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: MAX_READ_BYTES, at_ns: 0 }
    }
}

impl Budget {
    fn refill(&mut self, at_ns: u64) {
        let passed_ms = at_ns.saturating_sub(self.at_ns) / 1_000_000;
        if passed_ms > 0 {
            let bytes = passed_ms.saturating_mul(READ_BYTES_PER_SECOND / 1000);
            self.bytes = self.bytes.saturating_add(bytes).min(MAX_READ_BYTES);
            self.at_ns = at_ns;
        }
    }
}

impl Process {
    /// Reads what the process has written since the last time.
    fn follow(&mut self, sample: &Sample, budget: &mut Budget, buffer: &mut Vec<u8>) {
        let at_ns = sample.time_ns;
        self.map.open(at_ns, || perf_map(sample.pid, sample.process_start_ns));
        if let Some(dump) = &sample.jit.dump {
            self.dump.open(at_ns, || mapped(sample.pid, dump));
        }
        let mut allowed = budget.bytes.min(MAX_PROCESS_READ_BYTES.saturating_sub(self.read_bytes));
        let before = allowed;
        let is_map_behind = self.map.read(buffer, &mut allowed);
        let is_dump_behind = self.dump.read(buffer, &mut allowed);
        self.is_behind = is_map_behind || is_dump_behind;
        self.dump.reader.advance(at_ns, &mut self.dump.code);
        self.read_bytes += before - allowed;
        budget.bytes -= before - allowed;
    }
}

impl<R: Reader> Followed<R> {
    fn open(&mut self, at_ns: u64, open: impl FnOnce() -> io::Result<File>) {
        if self.file.is_none() && at_ns >= self.retry_ns {
            self.file = open().ok();
            self.retry_ns = at_ns.saturating_add(RETRY_NS);
        }
    }

    /// Whether more is there than could be read.
    fn read(&mut self, buffer: &mut Vec<u8>, allowed: &mut u64) -> bool {
        buffer.resize(CHUNK_BYTES, 0);
        while let Some(file) = &self.file {
            let offset = self.reader.offset();
            let len = usize::try_from(*allowed).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let chunk = buffer.get_mut(..len).unwrap_or_default();
            let Ok(bytes) = file.read_at(chunk, offset) else { return true };
            *allowed = allowed.saturating_sub(bytes as u64);
            if !self.reader.take(chunk.get(..bytes).unwrap_or_default(), &mut self.code) {
                (self.file, self.retry_ns) = (None, u64::MAX);
            } else if self.reader.offset() == offset {
                return bytes == len && len < CHUNK_BYTES;
            }
        }
        false
    }
}

/// Opens the perf map of a process, where the process sees it.
fn perf_map(pid: Pid, start_ns: u64) -> io::Result<File> {
    let folder = format!("/proc/{}", pid.get());
    // Paths in the process's root shall not lead out of it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("{folder}/root"), flags, Mode::empty())?;
    let who = Who::of(
        &fs::read_to_string(format!("{folder}/status"))?,
        &fs::read_to_string(format!("{folder}/stat"))?,
    );
    let who = who.filter(|who| who.started_at(start_ns)).ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = format!("tmp/perf-{}.map", who.inner_pid);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
    let about = file.metadata()?;
    if !about.is_file() || ![0, who.user].contains(&about.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

/// Opens the jitdump that a process has mapped.
fn mapped(pid: Pid, dump: &MappedDump) -> io::Result<File> {
    let file = open_mapped(&dump.file, pid, dump.memory)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// What `/proc` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Who {
    /// Its number where it is.
    inner_pid: u32,
    /// As who it acts.
    user: u32,
    start_ticks: u64,
}

impl Who {
    /// Of its files `status` and `stat`.
    fn of(status: &str, stat: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let inner_pid = field("NSpid:")?.split_whitespace().next_back()?.parse().ok()?;
        let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
        Some(Self { inner_pid, user, start_ticks: scan::start_ticks(stat)? })
    }

    const fn started_at(&self, start_ns: u64) -> bool {
        scan::is_start(self.start_ticks, start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::change::Contents;

    #[test]
    fn who_a_process_is_comes_from_proc() {
        let status = "Name:\tx\nNSpid:\t4711\t17\nUid:\t1\t2\t3\t4\n";
        let stat = "4711 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20 21";
        let who = Who::of(status, stat).unwrap();
        assert_eq!(who, Who { inner_pid: 17, user: 2, start_ticks: 1234 });
        assert!(who.started_at(12_345_678_901));
        assert!(!who.started_at(12_365_678_901));
        assert_eq!(Who::of("", stat), None);
        assert_eq!(Who::of(status, "4711 (a"), None);
    }

    #[test]
    fn a_mapped_dump_is_no_code_and_libraries_tell_who_makes_it() {
        let file = |path: &str| {
            let contents = Contents::Inode(0, 0, 0, 0);
            Arc::new(CodeFile::new(contents, path.into()))
        };
        let mut maker = JitMaker::default();
        assert!(!maker.maps(&file("/usr/lib/jvm/lib/server/libjvm.so"), 1, 2));
        assert!(!maker.maps(&file("/usr/lib/libc.so.6"), 1, 2));
        assert_eq!(maker.kind, FrameKind::Jvm);
        assert!(maker.maps(&file("/home/me/jit-17.dump"), 3, 4));
        assert!(maker.dump.is_some());
        let child = maker.of_child();
        assert_eq!((child.kind, child.dump.is_none()), (FrameKind::Jvm, true));
    }

    #[test]
    fn what_is_read_is_bounded_by_time() {
        let mut budget = Budget { bytes: 0, at_ns: 0 };
        budget.refill(1_000_000_000);
        budget.bytes = 0;
        budget.refill(1_000_000_500);
        assert_eq!(budget.bytes, 0);
        budget.refill(1_100_000_000);
        assert_eq!(budget.bytes, 100 * (READ_BYTES_PER_SECOND / 1000));
        budget.refill(u64::MAX);
        assert_eq!(budget.bytes, MAX_READ_BYTES);
    }
}
