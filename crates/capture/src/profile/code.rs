//! A file's code: opened when a process is first seen to have it, read when it is first needed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cpython::{Interpreter, Unsupported};
use gopclntab::GoFrame;
use model::Pid;
use object::ReadRef;
use sha2::{Digest, Sha256};
use symbols::{Functions, Lines, LinesError, SourceLine, TlsVariable};
use unwind::{Image, Segment, Table};

use super::change::Contents;
use super::lines::DebugFiles;
use super::open_files::may_stay;
use super::positioned::reading;
use super::processes::CodeFile;
use super::rows::Rows;
use super::spans::VARIABLE;

/// A file's code. Several threads may ask; what is not read yet is read by the first one that asks, and the others wait.
#[derive(Debug)]
pub(super) struct Code {
    /// Held open: the file may be gone when it is read.
    source: Source,
    /// What the file was when it was opened: what another program writes into it later is not what is mapped.
    stamp: Option<Stamp>,
    mapped: Contents,
    for_whom: ForWhom,
    head: OnceLock<Option<Head>>,
    rows: OnceLock<Result<Rows, WithoutRows>>,
    /// And whether they are those of the file with its debug information.
    functions: OnceLock<Option<(Functions, bool)>>,
    /// Its name, without folders.
    name: String,
    python: OnceLock<Option<Result<Interpreter, Unsupported>>>,
    thread_context: OnceLock<Option<TlsVariable>>,
    /// Its path as a process had it, and the root folder of that process.
    path: (PathBuf, PathBuf),
    debug_files: OnceLock<DebugFiles>,
    go: OnceLock<Option<gopclntab::Table>>,
    /// The number of its table; 0 while the program has none.
    number: AtomicU32,
    /// Whether it is known if the program has a table.
    is_settled: AtomicBool,
    /// Whether someone was asked to read it.
    is_asked_for: AtomicBool,
}

/// What says where in a file its code is, and whose it is.
#[derive(Debug)]
struct Head {
    segments: Vec<Segment>,
    identity: Identity,
    /// What Go's linker calls them.
    go_build_id: Option<String>,
}

/// How others know a file's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// It could not be read.
    Unknown,
    /// The linker's build id, in hexadecimal digits.
    BuildId(String),
    /// Of one without: a hash of its ends and its length, in hexadecimal digits.
    Hash(String),
}

/// Who reads a file's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForWhom {
    /// The sampling program, and this one.
    Program,
    /// This program alone.
    Here,
}

/// A file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Why a file is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenError {
    /// It is not to be had.
    Unreadable,
    /// Too many are open.
    NoRoom,
}

/// Why a file has no rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutRows {
    /// It could not be read, or is another one than what is mapped.
    Unreadable,
    /// Nothing tells how to unwind its code.
    NoneFound,
    /// The kernel has no memory for them.
    NoMemory,
}

/// Which state of which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of its last change.
    changed: (i64, i64),
}

/// Where a file's bytes are.
#[derive(Debug)]
enum Source {
    File(File),
    Bytes(Vec<u8>),
}

impl Code {
    /// Opens what a process has mapped at these addresses, also when it was deleted or lies in another mount namespace; else what has
    /// its name at the moment, when it is the same.
    ///
    /// # Errors
    /// [`OpenError`]
    pub(super) fn open(
        file: &CodeFile,
        pid: Pid,
        range: (u64, u64),
        for_whom: ForWhom,
    ) -> Result<Self, OpenError> {
        let source = open(file, pid, range).map_err(|_absent| OpenError::Unreadable)?;
        if let Source::File(file) = &source
            && !may_stay(file)
        {
            return Err(OpenError::NoRoom);
        }
        let stamp = match &source {
            Source::File(file) => Some(Stamp::of(file).map_err(|_gone| OpenError::Unreadable)?),
            Source::Bytes(_) => None,
        };
        Ok(Self {
            source,
            stamp,
            mapped: file.contents.clone(),
            for_whom,
            head: OnceLock::new(),
            rows: OnceLock::new(),
            functions: OnceLock::new(),
            name: file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            python: OnceLock::new(),
            thread_context: OnceLock::new(),
            path: (file.path.clone(), PathBuf::from(format!("/proc/{}/root", pid.get()))),
            debug_files: OnceLock::new(),
            go: OnceLock::new(),
            number: AtomicU32::new(0),
            is_settled: AtomicBool::new(false),
            is_asked_for: AtomicBool::new(false),
        })
    }

    /// Which file it is; none when it is no file.
    pub(super) const fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Its name, without folders.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How long the file is.
    pub(super) fn bytes(&self) -> u64 {
        self.stamp.map_or(0, |stamp| stamp.bytes)
    }

    /// From addresses in a mapping to those of the file.
    pub(super) fn moved_by(&self, begin: u64, file_offset: u64) -> Option<u64> {
        Some(begin.wrapping_sub(self.address_of(file_offset)?))
    }

    /// The file's own address of a byte of it.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        unwind::code_address(&self.head()?.segments, file_offset)
    }

    /// How others know its contents.
    pub(super) fn identity(&self) -> &Identity {
        self.head().map_or(&Identity::Unknown, |head| &head.identity)
    }

    /// What Go's linker calls its contents.
    pub(super) fn go_build_id(&self) -> Option<&str> {
        self.head()?.go_build_id.as_deref()
    }

    /// The functions of an address when Go has compiled it, the innermost first: those that were inlined, then the one whose code it is.
    pub(super) fn go_frames(&self, address: u64) -> Vec<GoFrame> {
        let read = || {
            self.head()?;
            let table = match &self.source {
                Source::File(file) => go_table(&reading(file)),
                Source::Bytes(bytes) => go_table(&**bytes),
            };
            table.filter(|_| self.is_unchanged())
        };
        let Some(table) = self.go.get_or_init(read) else { return Vec::new() };
        let frames = match &self.source {
            Source::File(file) => table.frames(&reading(file), address),
            Source::Bytes(bytes) => table.frames(&**bytes, address),
        };
        if self.is_unchanged() { frames } else { Vec::new() }
    }

    /// The name of the function at one of the file's addresses, as the linker knows it. Functions of a file with its debug information
    /// alone are more, if it has been stripped of its own.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn function(&self, address: u64) -> Result<Option<String>, Unreadable> {
        let read = || {
            self.head()?;
            let own = match &self.source {
                Source::File(file) => Functions::of(&reading(file)).ok(),
                Source::Bytes(bytes) => Functions::of(&**bytes).ok(),
            };
            let separate = self.debug_files().separate.as_ref();
            let separate = separate.and_then(|file| Functions::of(&reading(file)).ok());
            let functions = match (own, separate) {
                (Some(own), Some(separate)) if own.len() < separate.len() => (separate, true),
                (own, separate) => match own {
                    Some(own) => (own, false),
                    None => (separate?, true),
                },
            };
            Some(functions).filter(|_| self.is_unchanged_with_debug_files())
        };
        let (functions, is_separate) =
            self.functions.get_or_init(read).as_ref().ok_or(Unreadable)?;
        let separate = self.debug_files().separate.as_ref().filter(|_| *is_separate);
        let found = match (&self.source, separate) {
            (_, Some(file)) | (Source::File(file), None) => {
                let bytes = reading(file);
                functions.find(&bytes, address).map(|it| it.name.into_owned())
            }
            (Source::Bytes(bytes), None) => {
                functions.find(&**bytes, address).map(|it| it.name.into_owned())
            }
        };
        if self.is_unchanged_with_debug_files() { Ok(found) } else { Err(Unreadable) }
    }

    /// CPython, if it is one; else nothing, or why its frames cannot be walked.
    pub(super) fn python(&self) -> Option<Result<&Interpreter, Unsupported>> {
        let read = || {
            self.head()?;
            let interpreter = match &self.source {
                Source::File(file) => python(&reading(file), &self.name),
                Source::Bytes(bytes) => python(&**bytes, &self.name),
            };
            interpreter.filter(|_| self.is_unchanged())
        };
        self.python.get_or_init(read).as_ref().map(|it| it.as_ref().map_err(|why| *why))
    }

    /// [`python`](Self::python), if it was looked for already.
    pub(super) fn known_python(&self) -> Option<Result<&Interpreter, Unsupported>> {
        self.python.get()?.as_ref().map(|it| it.as_ref().map_err(|why| *why))
    }

    /// Where it has the variable by which threads tell their spans.
    pub(super) fn thread_context(&self) -> Option<&TlsVariable> {
        let read = || {
            self.head()?;
            let variable = match &self.source {
                Source::File(file) => TlsVariable::of(&reading(file), VARIABLE),
                Source::Bytes(bytes) => TlsVariable::of(&**bytes, VARIABLE),
            };
            variable.filter(|_| self.is_unchanged())
        };
        self.thread_context.get_or_init(read).as_ref()
    }

    /// The files that its debug information is in. To be found they are looked for while a process has it.
    pub(super) fn debug_files(&self) -> &DebugFiles {
        let find = || match (&self.source, self.head()) {
            (Source::File(file), Some(_)) => DebugFiles::of(file, &self.path.0, &self.path.1),
            _ => DebugFiles::default(),
        };
        self.debug_files.get_or_init(find)
    }

    /// Its debug information, with so many bytes of memory for units that are read.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn lines(&self, units_room: usize) -> Result<Lines, LinesError> {
        let Source::File(own) = &self.source else { return Err(LinesError::None) };
        let DebugFiles { separate, shared, .. } = self.debug_files();
        let file = reading(separate.as_ref().unwrap_or(own));
        let shared = shared.as_ref().map(reading);
        let lines = Lines::with_room(&file, shared.as_ref(), units_room);
        if self.is_unchanged_with_debug_files() { lines } else { Err(LinesError::None) }
    }

    /// What its debug information, from [`lines`](Self::lines), says of an address.
    ///
    /// # Errors
    /// Why it says nothing.
    pub(super) fn find_lines(
        &self,
        lines: &mut Lines,
        address: u64,
    ) -> Result<Vec<SourceLine>, LinesError> {
        let Source::File(own) = &self.source else { return Err(LinesError::None) };
        let DebugFiles { separate, shared, .. } = self.debug_files();
        let file = reading(separate.as_ref().unwrap_or(own));
        let shared = shared.as_ref().map(reading);
        let found = lines.find(&file, shared.as_ref(), address);
        if self.is_unchanged_with_debug_files() { found } else { Err(LinesError::None) }
    }

    /// How to unwind its code.
    ///
    /// # Errors
    /// Why there is nothing.
    pub(super) fn rows(&self) -> Result<&Rows, WithoutRows> {
        let read = || {
            self.head().ok_or(WithoutRows::Unreadable)?;
            let table = match &self.source {
                Source::File(file) => table(&reading(file)),
                Source::Bytes(bytes) => table(&**bytes),
            };
            if !self.is_unchanged() {
                return Err(WithoutRows::Unreadable);
            }
            let table = table.ok_or(WithoutRows::NoneFound)?;
            match self.for_whom {
                ForWhom::Program => {
                    Rows::in_kernel(&table).map_err(|_kernel| WithoutRows::NoMemory)
                }
                ForWhom::Here => Ok(Rows::in_memory(&table)),
            }
        };
        self.rows.get_or_init(read).as_ref().map_err(|why| *why)
    }

    /// Bytes of memory of what was read of it and is kept.
    pub(super) fn held_bytes(&self) -> usize {
        let rows = self.rows.get().and_then(|rows| rows.as_ref().ok()).map_or(0, Rows::bytes);
        let functions = self.functions.get().and_then(Option::as_ref);
        rows + functions.map_or(0, |(functions, _)| functions.bytes())
    }

    /// Whether it is known if the program has a table.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// The program has this table; 0: none.
    pub(super) fn settle(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Whether it is what was mapped as this.
    pub(super) fn is_of(&self, mapped: &Contents) -> bool {
        match mapped {
            Contents::BuildId(id) => match &self.source {
                Source::File(file) => has_build_id(file, id),
                Source::Bytes(bytes) => unwind::build_id(&**bytes) == Some(id),
            },
            Contents::Inode(..) => true,
        }
    }

    /// Whether this is the first time that someone asks for it to be read.
    pub(super) fn ask(&self) -> bool {
        !self.is_asked_for.swap(true, Ordering::Relaxed)
    }

    /// The number of its table; 0 while the program has none.
    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    fn head(&self) -> Option<&Head> {
        let read = || match &self.source {
            Source::File(file) => head(&reading(file), &self.mapped),
            Source::Bytes(bytes) => head(&**bytes, &self.mapped),
        };
        self.head.get_or_init(read).as_ref()
    }

    fn is_unchanged_with_debug_files(&self) -> bool {
        self.is_unchanged() && self.debug_files().are_unchanged()
    }

    fn is_unchanged(&self) -> bool {
        match &self.source {
            Source::File(file) => Stamp::of(file).ok() == self.stamp,
            Source::Bytes(_) => true,
        }
    }
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let file = file.metadata()?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            changed: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// `None` when it is no executable, or another one than what is mapped.
fn head<'a, R: ReadRef<'a>>(bytes: R, mapped: &Contents) -> Option<Head> {
    let image = Image::parse(bytes).ok()?;
    if let (Contents::BuildId(mapped), Some(found)) = (mapped, image.build_id())
        && mapped != found
    {
        return None;
    }
    let identity = match image.build_id() {
        Some(id) => Identity::BuildId(hex(id)),
        None => content_hash(bytes).map_or(Identity::Unknown, Identity::Hash),
    };
    let go_build_id = image.go_build_id().map(str::to_owned);
    Some(Head { segments: image.segments().to_vec(), identity, go_build_id })
}

fn go_table<'a, R: ReadRef<'a>>(bytes: R) -> Option<gopclntab::Table> {
    gopclntab::Table::of(&gopclntab::Module::find(bytes)?).ok()
}

fn table<'a, R: ReadRef<'a>>(bytes: R) -> Option<Table> {
    let image = Image::parse(bytes).ok()?;
    Table::with_instructions(&image, bytes).ok().map(|(table, _)| table)
}

fn python<'a, R: ReadRef<'a>>(bytes: R, name: &str) -> Option<Result<Interpreter, Unsupported>> {
    let image = Image::parse(bytes).ok()?;
    Interpreter::of(bytes, &image, name)
}

/// `htlhash` of OpenTelemetry's profiles: the first 16 bytes of SHA-256 over the first and the last 4,096 bytes of a file and its length.
fn content_hash<'a, R: ReadRef<'a>>(file: R) -> Option<String> {
    const END_BYTES: u64 = 4096;
    let len = file.len().ok()?;
    let ends = END_BYTES.min(len);
    let mut hash = Sha256::new();
    hash.update(file.read_bytes_at(0, ends).ok()?);
    hash.update(file.read_bytes_at(len - ends, ends).ok()?);
    hash.update(len.to_be_bytes());
    hash.finalize().get(..16).map(hex)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn open(file: &CodeFile, pid: Pid, range: (u64, u64)) -> io::Result<Source> {
    if file.path.as_os_str() == "[vdso]" {
        return own_vdso().map(Source::Bytes);
    }
    open_mapped(file, pid, range).map(Source::File)
}

/// Opens what a process has mapped at these addresses; else what has its name at the moment, when it is the same.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when it is not to be had.
pub(super) fn open_mapped(file: &CodeFile, pid: Pid, (begin, end): (u64, u64)) -> io::Result<File> {
    let process = PathBuf::from(format!("/proc/{}", pid.get()));
    let at_its_place = process.join(format!("map_files/{begin:x}-{end:x}"));
    let inside = file.path.strip_prefix("/").unwrap_or(&file.path);
    // Something else may be mapped there, or have its name, by the time that it is opened.
    let mapped = open_plain(&at_its_place).ok().filter(|opened| match &file.contents {
        Contents::BuildId(id) => has_build_id(opened, id),
        Contents::Inode(..) => fs::read_link(&at_its_place).is_ok_and(|path| path == file.path),
    });
    let named = || {
        let paths = [process.join("root").join(inside), file.path.clone()];
        paths.into_iter().filter_map(|path| open_plain(&path).ok()).find(|opened| {
            match &file.contents {
                Contents::BuildId(id) => has_build_id(opened, id),
                Contents::Inode(_, _, inode, _) => {
                    opened.metadata().is_ok_and(|found| found.ino() == *inode)
                }
            }
        })
    };
    mapped.or_else(named).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Opens a file, and nothing that would keep one waiting, such as a pipe that a process put in its place.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn has_build_id(file: &File, id: &[u8]) -> bool {
    let bytes = reading(file);
    unwind::build_id(&bytes) == Some(id)
}

/// The kernel maps the same one into all processes of 64 bits.
fn own_vdso() -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;

    const MAX_BYTES: u64 = 1 << 20;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split_whitespace().next()?.split_once('-'));
    let number = |text| u64::from_str_radix(text, 16).ok();
    let bounds = range.and_then(|(begin, end)| Some((number(begin)?, number(end)?)));
    let Some((begin, end)) = bounds else { return Err(io::ErrorKind::NotFound.into()) };
    let len = end.saturating_sub(begin).min(MAX_BYTES);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}
