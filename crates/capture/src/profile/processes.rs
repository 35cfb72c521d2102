//! Which code processes have mapped, as the side band tells it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use model::Pid;

use super::change::{Change, Contents};
use super::code::{Code, hex};
use super::jit::JitMaker;

/// Stretches of code of one process; later ones are counted and left out.
pub(super) const MAX_MAPPINGS: usize = 4095;
/// Processes that are known at the same time; later ones are counted and left out.
pub(super) const MAX_PROCESSES: usize = 32_768;

/// A file that code is of.
#[derive(Debug)]
pub(super) struct CodeFile {
    pub(super) contents: Contents,
    /// As the processes that mapped it see it.
    pub(super) path: PathBuf,
    /// Known when it was opened.
    code: OnceLock<Arc<Code>>,
}

/// Two are the same when what was mapped is.
impl Ord for CodeFile {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.contents, &self.path).cmp(&(&other.contents, &other.path))
    }
}

impl PartialOrd for CodeFile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for CodeFile {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CodeFile {}

impl CodeFile {
    pub(super) fn new(contents: Contents, path: PathBuf) -> Self {
        Self { contents, path, code: OnceLock::new() }
    }

    /// What is in it, when it was opened.
    pub(super) fn code(&self) -> Option<&Arc<Code>> {
        self.code.get()
    }

    /// It was opened; the first one stays.
    pub(super) fn set_code(&self, code: Arc<Code>) {
        self.code.get_or_init(|| code);
    }

    /// The linker's build id, in hexadecimal digits, where the kernel told it.
    pub(super) fn build_id(&self) -> Option<String> {
        match &self.contents {
            Contents::BuildId(id) if !id.is_empty() => Some(hex(id)),
            _ => None,
        }
    }

    /// Whether it is memory that a process filled itself.
    pub(super) fn is_anonymous(&self) -> bool {
        let path = self.path.as_os_str().as_encoded_bytes();
        // .NET maps what it fills twice, to write and to run it.
        let is_filled = path.starts_with(b"/memfd:doublemapper");
        path.is_empty() || path.starts_with(b"//anon") || path.starts_with(b"[anon") || is_filled
    }
}

/// A stretch of a process's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) end: u64,
    /// When it came to be known.
    pub(super) since_ns: u64,
    /// Where in the file its begin lies.
    pub(super) file_offset: u64,
    pub(super) file: Arc<CodeFile>,
}

/// A process.
#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    /// Stretches by where they begin; none overlaps another.
    pub(super) code: BTreeMap<u64, Mapping>,
    /// The program: what was mapped first.
    pub(super) executable: Option<Arc<CodeFile>>,
    /// Who makes code in it.
    pub(super) jit: JitMaker,
    /// Until when this holds: the last change, or a later moment until which there was no other.
    pub(super) changed_ns: u64,
    /// When it began the program; 0: before it was followed.
    pub(super) begun_ns: u64,
    /// Stretches that found no room.
    pub(super) left_out: u64,
    /// Whether it was sampled since it last changed.
    sampled: OnceLock<()>,
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Samples that are still to be looked at keep what was so at their time.
    all: BTreeMap<Pid, Arc<Process>>,
    /// Those that changed since they were last taken.
    changed: BTreeSet<Pid>,
    /// Those that ended since they were last taken.
    ended: BTreeSet<Pid>,
    files: BTreeSet<Arc<CodeFile>>,
    left_out: u64,
}

impl Processes {
    /// Takes in a change.
    pub(super) fn apply(&mut self, at_ns: u64, change: Change) {
        match change {
            Change::Map { pid, begin, len, file_offset, contents, path } => {
                let file = self.file(CodeFile::new(contents, path));
                let Some(process) = self.process(pid, at_ns) else { return };
                if process.executable.is_none() && !file.is_anonymous() {
                    process.executable = Some(Arc::clone(&file));
                }
                let end = begin.saturating_add(len);
                if !process.jit.maps(&file, begin, end) {
                    process.map(begin, Mapping { end, since_ns: at_ns, file_offset, file });
                }
            }
            Change::Exec { pid, .. } => {
                let Some(process) = self.process(pid, at_ns) else { return };
                process.code.clear();
                process.executable = None;
                process.jit = JitMaker::default();
                (process.left_out, process.begun_ns) = (0, at_ns);
            }
            Change::Fork { pid, parent } if pid != parent => {
                let parent = self.all.get(&parent).cloned().unwrap_or_default();
                let Some(process) = self.process(pid, at_ns) else { return };
                process.code.clone_from(&parent.code);
                process.executable.clone_from(&parent.executable);
                process.jit = parent.jit.of_child();
            }
            // A thread; the process goes on when its first one ends.
            Change::Fork { .. } | Change::Exit { .. } => {}
            Change::KernelCode { .. } | Change::Lost(_) => {}
        }
    }

    /// A process is gone.
    pub(super) fn forget(&mut self, pid: Pid) {
        if self.all.remove(&pid).is_some() {
            self.changed.remove(&pid);
            self.ended.insert(pid);
        }
    }

    /// A process, if anything is known of it.
    pub(super) fn get(&self, pid: Pid) -> Option<&Arc<Process>> {
        self.all.get(&pid)
    }

    /// What is known of a process holds until this moment.
    pub(super) fn hold_until(&mut self, pid: Pid, at_ns: u64) {
        if let Some(process) = self.all.get_mut(&pid).filter(|it| it.changed_ns < at_ns) {
            Arc::make_mut(process).changed_ns = at_ns;
        }
    }

    /// Those that changed since the last time.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Pid> {
        std::mem::take(&mut self.changed)
    }

    /// Those that were forgotten since the last time.
    pub(super) fn take_ended(&mut self) -> BTreeSet<Pid> {
        std::mem::take(&mut self.ended)
    }

    /// Processes that found no room.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    fn process(&mut self, pid: Pid, at_ns: u64) -> Option<&mut Process> {
        if !self.all.contains_key(&pid) && self.all.len() >= MAX_PROCESSES {
            self.left_out += 1;
            return None;
        }
        self.changed.insert(pid);
        self.ended.remove(&pid);
        let process = Arc::make_mut(self.all.entry(pid).or_default());
        process.changed_ns = process.changed_ns.max(at_ns);
        process.sampled.take();
        Some(process)
    }

    /// Drops files that nobody has mapped.
    pub(super) fn forget_unused_files(&mut self) {
        self.files.retain(|file| Arc::strong_count(file) > 1);
    }

    /// One and the same for equal files.
    fn file(&mut self, file: CodeFile) -> Arc<CodeFile> {
        if let Some(known) = self.files.get(&file) {
            return Arc::clone(known);
        }
        let new = Arc::new(file);
        self.files.insert(Arc::clone(&new));
        new
    }
}

impl Process {
    /// The mapping of an address, and where it begins.
    pub(super) fn find(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (begin, mapping) = self.code.range(..=address).next_back()?;
        (address < mapping.end).then_some((*begin, mapping))
    }

    /// Whether this is the first time that someone asks since it last changed.
    pub(super) fn is_first_sampled(&self) -> bool {
        self.sampled.set(()).is_ok()
    }

    /// What was mapped there before gives way.
    fn map(&mut self, begin: u64, new: Mapping) {
        let end = new.end;
        let before = self.code.range(..begin).next_back();
        let cut = before.filter(|(_, mapping)| mapping.end > begin);
        if let Some((at, mapping)) = cut.map(|(at, mapping)| (*at, mapping.clone())) {
            if let Some(left) = self.code.get_mut(&at) {
                left.end = begin;
            }
            if mapping.end > end {
                let file_offset = mapping.file_offset.wrapping_add(end - at);
                self.code.insert(end, Mapping { file_offset, ..mapping });
            }
        }
        let inside: Vec<u64> = self.code.range(begin..end).map(|(at, _)| *at).collect();
        for at in inside {
            if let Some(mapping) = self.code.remove(&at)
                && mapping.end > end
            {
                let file_offset = mapping.file_offset.wrapping_add(end - at);
                self.code.insert(end, Mapping { file_offset, ..mapping });
            }
        }
        if self.code.len() < MAX_MAPPINGS {
            self.code.insert(begin, new);
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: i32, begin: u64, end: u64, path: &str) -> Change {
        Change::Map {
            pid: Pid::new(pid),
            begin,
            len: end - begin,
            file_offset: begin * 10,
            contents: Contents::BuildId(path.as_bytes().to_vec()),
            path: path.into(),
        }
    }

    fn known(processes: &Processes, pid: i32) -> Vec<(u64, u64, u64, String)> {
        let process = processes.get(Pid::new(pid)).unwrap();
        let row = |(begin, mapping): (&u64, &Mapping)| {
            (*begin, mapping.end, mapping.file_offset, mapping.file.path.display().to_string())
        };
        process.code.iter().map(row).collect()
    }

    fn row(begin: u64, end: u64, file_offset: u64, path: &str) -> (u64, u64, u64, String) {
        (begin, end, file_offset, path.to_owned())
    }

    #[test]
    fn what_is_mapped_over_something_takes_its_place() {
        let mut processes = Processes::default();
        processes.apply(1, map(1, 100, 200, "a"));
        processes.apply(2, map(1, 120, 140, "b"));
        let expected =
            [row(100, 120, 1000, "a"), row(120, 140, 1200, "b"), row(140, 200, 1040, "a")];
        assert_eq!(known(&processes, 1), expected);
        processes.apply(3, map(1, 90, 150, "c"));
        assert_eq!(known(&processes, 1), [row(90, 150, 900, "c"), row(150, 200, 1050, "a")]);
        processes.apply(4, map(1, 90, 300, "d"));
        assert_eq!(known(&processes, 1), [row(90, 300, 900, "d")]);
        let process = processes.get(Pid::new(1)).unwrap();
        assert_eq!(process.find(89), None);
        assert_eq!(process.find(299).map(|(begin, _)| begin), Some(90));
        assert_eq!(process.find(300), None);
        assert_eq!(process.changed_ns, 4);
    }

    #[test]
    fn a_child_has_its_parent_s_code_until_it_begins_another_program() {
        let mut processes = Processes::default();
        processes.apply(1, map(1, 100, 200, "a"));
        processes.apply(2, Change::Fork { pid: Pid::new(2), parent: Pid::new(1) });
        processes.apply(3, map(1, 300, 400, "b"));
        assert_eq!(known(&processes, 2), [row(100, 200, 1000, "a")]);
        assert_eq!(processes.take_changed(), [Pid::new(1), Pid::new(2)].into());
        processes.apply(4, Change::Exec { pid: Pid::new(2), name: b"x".to_vec() });
        assert_eq!(known(&processes, 2), []);
        assert_eq!(processes.take_changed(), [Pid::new(2)].into());
        processes.forget(Pid::new(2));
        assert_eq!(processes.take_ended(), [Pid::new(2)].into());
        assert!(processes.get(Pid::new(2)).is_none());
    }

    #[test]
    fn equal_files_are_one() {
        let mut processes = Processes::default();
        processes.apply(1, map(1, 100, 200, "a"));
        processes.apply(2, map(2, 100, 200, "a"));
        let file = |pid| Arc::clone(&processes.get(Pid::new(pid)).unwrap().code[&100].file);
        assert!(Arc::ptr_eq(&file(1), &file(2)));
    }

    #[test]
    fn stretches_beyond_the_bound_are_counted() {
        let mut processes = Processes::default();
        for n in 0..MAX_MAPPINGS as u64 + 10 {
            processes.apply(n, map(1, n * 10, n * 10 + 5, "a"));
        }
        let process = processes.get(Pid::new(1)).unwrap();
        assert_eq!((process.code.len(), process.left_out), (MAX_MAPPINGS, 10));
    }
}
