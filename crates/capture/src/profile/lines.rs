//! Source lines of files' code, and the files that tell them.
//!
//! A file's debug information is in itself, or in another one that its linker's name leads to below `/usr/lib/debug`, or that it names
//! (`.gnu_debuglink`). Files are looked for where this program has them, then where the process has them, and are believed when build id or checksum
//! agree. One that is put there later is not looked for again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use symbols::{DebugLinks, Lines, LinesError, SourceLine, link_checksum};

use super::code::{Code, Stamp};
use super::open_files::may_stay;
use super::positioned::{Positioned, reading};

/// Memory for what was read of debug information, of all files together, but for the file that is read.
const ROOM: usize = 24 << 20;

/// Of these, memory for units of one file.
const UNITS_ROOM: usize = 16 << 20;

/// Answers that are kept of all files together, some 200 bytes each: what runs often is asked for in each packet. Ten times as many as five
/// seconds of a busy machine with two CPUs had.
const MAX_ANSWERS: usize = 16 << 10;

/// The longest file whose checksum is worked out.
const MAX_CHECKED_BYTES: u64 = 1 << 30;

/// Where distributions put debug information.
const DEBUG: &str = "/usr/lib/debug";

/// How often debug information was not read, by reason: a file counts once, and a unit for each of its addresses that is met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinesLeftOut {
    /// It is beyond a bound.
    pub too_large: u64,
    /// It is not what it should be.
    pub malformed: u64,
}

/// Source lines of files; what is read of them is dropped when there is no room, and read again.
#[derive(Debug)]
pub(super) struct SourceLines {
    known: HashMap<usize, Known>,
    /// Of all that was read.
    bytes: usize,
    room: usize,
    /// Of all files.
    answers: usize,
    /// Counts what was asked for.
    clock: u64,
    left_out: LinesLeftOut,
}

/// The functions at an address, innermost first; none where nothing tells of it.
pub(super) type Answer = Arc<[SourceLine]>;

#[derive(Debug)]
struct Known {
    /// Holds the place of its key.
    code: Weak<Code>,
    read: Read,
    answers: HashMap<u64, Answer>,
    bytes: usize,
    used: u64,
}

/// What was read of a file.
#[derive(Debug)]
enum Read {
    Nothing,
    /// There is no debug information.
    None,
    Lines(Box<Lines>),
}

impl SourceLines {
    pub(super) fn new() -> Self {
        Self::with_room(ROOM)
    }

    pub(super) fn with_room(room: usize) -> Self {
        let (known, left_out) = (HashMap::new(), LinesLeftOut::default());
        Self { known, bytes: 0, room, answers: 0, clock: 0, left_out }
    }

    /// What debug information says of an address of a file.
    pub(super) fn find(&mut self, code: &Arc<Code>, address: u64) -> Answer {
        self.clock += 1;
        let key = Arc::as_ptr(code).addr();
        if !self.known.contains_key(&key) {
            self.forget_gone();
        }
        let known = self.known.entry(key).or_insert_with(|| Known {
            code: Arc::downgrade(code),
            read: Read::Nothing,
            answers: HashMap::new(),
            bytes: 0,
            used: 0,
        });
        known.used = self.clock;
        if let Some(answer) = known.answers.get(&address) {
            return Arc::clone(answer);
        }
        let found = known.find(code, address);
        let bytes = if let Read::Lines(lines) = &known.read { lines.bytes() } else { 0 };
        self.bytes = self.bytes - known.bytes + bytes;
        known.bytes = bytes;
        let answer: Answer = match found {
            Ok(lines) => lines.into(),
            Err(error) => {
                self.left_out.count(&error);
                Arc::default()
            }
        };
        // Of files without debug information there is nothing to keep.
        if bytes > 0 {
            known.answers.insert(address, Arc::clone(&answer));
            self.answers += 1;
        }
        self.make_room(key);
        answer
    }

    /// Drops all that was read.
    pub(super) fn forget(&mut self) {
        self.known = HashMap::new();
        (self.bytes, self.answers) = (0, 0);
    }

    /// What was not read.
    pub(super) const fn left_out(&self) -> LinesLeftOut {
        self.left_out
    }

    /// Those of files that nobody has.
    fn forget_gone(&mut self) {
        let (bytes, answers) = (&mut self.bytes, &mut self.answers);
        self.known.retain(|_, known| {
            let is_there = known.code.strong_count() > 0;
            if !is_there {
                *bytes -= known.bytes;
                *answers -= known.answers.len();
            }
            is_there
        });
    }

    /// Drops what was read, of those files first that were not asked for the longest, and not of the last one; answers when there are too
    /// many.
    fn make_room(&mut self, last: usize) {
        while self.bytes > self.room {
            let others = self.known.iter_mut().filter(|(key, it)| **key != last && it.bytes > 0);
            let Some((_, oldest)) = others.min_by_key(|(_, known)| known.used) else { break };
            oldest.read = Read::Nothing;
            self.bytes -= std::mem::take(&mut oldest.bytes);
        }
        // Without any room none is kept.
        if self.answers > MAX_ANSWERS.min(self.room) {
            self.known.values_mut().for_each(|known| known.answers = HashMap::new());
            self.answers = 0;
        }
    }
}

impl Known {
    fn find(&mut self, code: &Code, address: u64) -> Result<Vec<SourceLine>, LinesError> {
        if matches!(self.read, Read::Nothing) {
            self.read = Read::None;
            self.read = Read::Lines(Box::new(code.lines(UNITS_ROOM)?));
        }
        match &mut self.read {
            Read::Lines(lines) => code.find_lines(lines, address),
            Read::Nothing | Read::None => Ok(Vec::new()),
        }
    }
}

impl LinesLeftOut {
    fn count(&mut self, error: &LinesError) {
        match error {
            LinesError::TooLarge { .. } => self.too_large += 1,
            LinesError::Malformed { .. } => self.malformed += 1,
            _none => {}
        }
    }
}

/// The files that hold a file's debug information.
#[derive(Debug, Default)]
pub(super) struct DebugFiles {
    /// `None`: the file itself.
    pub(super) separate: Option<File>,
    /// That it shares entries in with others.
    pub(super) shared: Option<File>,
    /// Those that could not stay open, because too many are.
    pub(super) left_out: u64,
    /// What the files were when they were found.
    stamps: [Option<Stamp>; 2],
}

impl DebugFiles {
    /// Of a file that a process has under that path. Empty where nothing is found.
    pub(super) fn of(file: &File, path: &Path, process_root: &Path) -> Self {
        let Some(links) = DebugLinks::of(&reading(file)) else { return Self::default() };
        let roots: Vec<File> = [Path::new("/"), process_root]
            .iter()
            .filter_map(|root| File::open(root).ok())
            .collect();
        let separate = if links.has_own { None } else { separate(&links, path, &roots) };
        let (links, path) = match separate {
            Some((ref file, ref path)) => {
                (DebugLinks::of(&reading(file)).unwrap_or_default(), path.as_path())
            }
            None => (links, path),
        };
        let shared = links.shared.and_then(|(name, id)| shared(&name, &id, path, &roots));
        let (separate, shared, mut left_out) = (separate.map(|(file, _)| file), shared, 0);
        let mut bounded = |file: Option<File>| {
            left_out += u64::from(file.as_ref().is_some_and(|file| !may_stay(file)));
            file.filter(may_stay)
        };
        let (separate, shared) = (bounded(separate), bounded(shared));
        let stamps = stamps(separate.as_ref(), shared.as_ref());
        Self { separate, shared, left_out, stamps }
    }

    /// Whether none was written since it was found: of what was read of it before and what comes later nothing would be right.
    pub(super) fn are_unchanged(&self) -> bool {
        stamps(self.separate.as_ref(), self.shared.as_ref()) == self.stamps
    }
}

fn stamps(separate: Option<&File>, shared: Option<&File>) -> [Option<Stamp>; 2] {
    [separate, shared].map(|file| file.and_then(|file| Stamp::of(file).ok()))
}

/// The file with a file's debug information, and its path.
fn separate(links: &DebugLinks, path: &Path, roots: &[File]) -> Option<(File, PathBuf)> {
    let by_id = links.build_id.as_deref().and_then(id_path);
    let is_of = |file: &File, by_name: Option<u32>| {
        let Some(found) = DebugLinks::of(&reading(file)) else { return false };
        match (&found.build_id, &links.build_id, by_name) {
            (Some(found), Some(wanted), _) => found == wanted,
            (_, _, Some(checksum)) => has_checksum(file, checksum).unwrap_or(false),
            _ => false,
        }
    };
    let found = by_id.and_then(|path| {
        let files = roots.iter().filter_map(|root| open_inside(root, &path).ok());
        files.into_iter().find(|file| is_of(file, None)).map(|file| (file, path.clone()))
    });
    if found.is_some() {
        return found;
    }
    let (name, checksum) = links.separate.as_ref()?;
    let (name, folder) = (OsStr::from_bytes(name), path.parent()?);
    let inside = folder.strip_prefix("/").unwrap_or(folder);
    let paths = [
        folder.join(name),
        folder.join(".debug").join(name),
        Path::new(DEBUG).join(inside).join(name),
    ];
    paths.into_iter().filter(|it| it != path).find_map(|path| {
        let files = roots.iter().filter_map(|root| open_inside(root, &path).ok());
        let file = files.into_iter().find(|file| is_of(file, Some(*checksum)))?;
        Some((file, path))
    })
}

/// The file with entries that several share, named by the one at `path`.
fn shared(name: &[u8], id: &[u8], path: &Path, roots: &[File]) -> Option<File> {
    let named = path.parent().unwrap_or(path).join(OsStr::from_bytes(name));
    let is_it = |file: &File| {
        let links = DebugLinks::of(&reading(file));
        links.and_then(|links| links.build_id).is_some_and(|found| found == id)
    };
    [Some(named), id_path(id)].into_iter().flatten().find_map(|path| {
        let mut files = roots.iter().filter_map(|root| open_inside(root, &path).ok());
        files.find(is_it)
    })
}

/// Where the file with this build id would be.
fn id_path(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG}/.build-id/{first:02x}/{rest}.debug")))
}

fn has_checksum(file: &File, checksum: u32) -> io::Result<bool> {
    if file.metadata()?.len() > MAX_CHECKED_BYTES {
        return Ok(false);
    }
    let whole = Positioned::new(file).take(MAX_CHECKED_BYTES);
    Ok(link_checksum(whole)? == checksum)
}

/// Opens a plain file below a folder, out of which no link leads. A pipe or device there is not touched.
fn open_inside(root: &File, path: &Path) -> io::Result<File> {
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let place = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)?;
    if !File::from(place.try_clone()?).metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}
