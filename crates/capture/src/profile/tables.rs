//! The unwind tables of files, where the program finds them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use model::Pid;
use object::{ReadCache, ReadRef};
use sha2::{Digest, Sha256};
use symbols::Functions;
use unwind::{Image, Segment, Table};

use super::change::Contents;
use super::processes::CodeFile;
use crate::error::{Error, Result};

/// Rows of a block, as in `bpf/sample.h`.
const BLOCK_ROWS: usize = 64;
/// Tables at the same time, as the program has room for; the first number stands for none.
const MAX_TABLES: u32 = 16_383;

/// A file's code.
#[derive(Debug)]
pub(super) struct Code {
    /// The number of its table; 0 when it has none.
    pub(super) number: u32,
    pub(super) blocks: u32,
    pub(super) table: Table,
    segments: Vec<Segment>,
    identity: Identity,
    /// What names are read of when they are first asked for: the file may be gone by then.
    source: Option<Source>,
    functions: OnceLock<Option<Functions>>,
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

impl Code {
    /// From addresses in a mapping to those of the file.
    pub(super) fn moved_by(&self, begin: u64, file_offset: u64) -> Option<u64> {
        let address = unwind::code_address(&self.segments, file_offset)?;
        Some(begin.wrapping_sub(address))
    }

    /// The file's own address of a byte of it.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        unwind::code_address(&self.segments, file_offset)
    }

    /// How others know its contents.
    pub(super) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its functions; `None` when it could not be read.
    pub(super) fn functions(&self) -> Option<&Functions> {
        let read = || match self.source.as_ref()? {
            Source::File(file) => Functions::of(&ReadCache::new(file)).ok(),
            Source::Bytes(bytes) => Functions::of(&**bytes).ok(),
        };
        self.functions.get_or_init(read).as_ref()
    }
}

/// How often files could not be used, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesLeftOut {
    /// They could not be opened or read, or were other ones than what is mapped.
    pub unreadable: u64,
    /// They are no executables of this machine, or without call frame information.
    pub without_rows: u64,
    /// There were too many.
    pub no_room: u64,
}

/// Tables by file.
#[derive(Debug, Default)]
pub(super) struct Tables {
    by_file: HashMap<Arc<CodeFile>, Arc<Code>>,
    free: Vec<u32>,
    next: u32,
    pub(super) left_out: FilesLeftOut,
}

impl Tables {
    /// The code of a file, which a process has mapped at these addresses; read at the first time.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel takes no more tables.
    pub(super) fn get(
        &mut self,
        outer: &impl MapCore,
        file: &Arc<CodeFile>,
        pid: Pid,
        range: (u64, u64),
    ) -> Result<Arc<Code>> {
        if let Some(known) = self.by_file.get(file) {
            return Ok(Arc::clone(known));
        }
        let code = self.load(outer, file, pid, range)?;
        let code = Arc::new(code);
        self.by_file.insert(Arc::clone(file), Arc::clone(&code));
        Ok(code)
    }

    /// The code of a file that was read.
    pub(super) fn known(&self, file: &Arc<CodeFile>) -> Option<Arc<Code>> {
        self.by_file.get(file).map(Arc::clone)
    }

    /// Forgets files that no process has mapped.
    pub(super) fn forget_unused(&mut self, outer: &impl MapCore) {
        let free = &mut self.free;
        self.by_file.retain(|file, code| {
            // One here, one in the set of files.
            let is_used = Arc::strong_count(file) > 2;
            if !is_used && code.number != 0 && outer.delete(&code.number.to_ne_bytes()).is_ok() {
                free.push(code.number);
            }
            is_used
        });
    }

    fn load(
        &mut self,
        outer: &impl MapCore,
        file: &CodeFile,
        pid: Pid,
        range: (u64, u64),
    ) -> Result<Code> {
        let mut code = Code {
            number: 0,
            blocks: 0,
            table: Table::default(),
            segments: Vec::new(),
            identity: Identity::Unknown,
            source: None,
            functions: OnceLock::new(),
        };
        let Ok(source) = open(file, pid, range) else {
            self.left_out.unreadable += 1;
            return Ok(code);
        };
        let found = match &source {
            Source::File(opened) => read(&ReadCache::new(opened), file),
            Source::Bytes(bytes) => read(&**bytes, file),
        };
        let Some(found) = found else {
            self.left_out.unreadable += 1;
            return Ok(code);
        };
        (code.segments, code.identity, code.source) =
            (found.segments, found.identity, Some(source));
        let Some(table) = found.table else {
            self.left_out.without_rows += 1;
            return Ok(code);
        };
        code.table = table;
        let Some(number) = self.free.pop().or_else(|| {
            self.next += 1;
            (self.next <= MAX_TABLES).then_some(self.next)
        }) else {
            self.left_out.no_room += 1;
            return Ok(code);
        };
        let (map, blocks) = blocks(&code.table)?;
        let descriptor = map.as_fd().as_raw_fd().to_ne_bytes();
        outer
            .update(&number.to_ne_bytes(), &descriptor, MapFlags::ANY)
            .map_err(Error::bpf("give the program an unwind table"))?;
        (code.number, code.blocks) = (number, blocks);
        Ok(code)
    }
}

/// What is read of a file when it is first met.
struct Found {
    /// `None` when nothing tells how to unwind its code.
    table: Option<Table>,
    segments: Vec<Segment>,
    identity: Identity,
}

/// `None` when it is no executable, or another one than what is mapped.
fn read<'a, R: ReadRef<'a>>(bytes: R, file: &CodeFile) -> Option<Found> {
    let image = Image::parse(bytes).ok()?;
    if let (Contents::BuildId(mapped), Some(found)) = (&file.contents, image.build_id())
        && mapped != found
    {
        return None;
    }
    let identity = match image.build_id() {
        Some(id) => Identity::BuildId(hex(id)),
        None => content_hash(bytes).map_or(Identity::Unknown, Identity::Hash),
    };
    let table = Table::of(&image).ok().map(|(table, _)| table);
    Some(Found { table, segments: image.segments().to_vec(), identity })
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a file's bytes are.
#[derive(Debug)]
enum Source {
    File(File),
    Bytes(Vec<u8>),
}

/// Opens what is mapped there, also when it was deleted or lies in another mount namespace; else what has its name now.
fn open(file: &CodeFile, pid: Pid, (begin, end): (u64, u64)) -> io::Result<Source> {
    if file.path.as_os_str() == "[vdso]" {
        return own_vdso().map(Source::Bytes);
    }
    let process = PathBuf::from(format!("/proc/{}", pid.get()));
    let mapped = File::open(process.join(format!("map_files/{begin:x}-{end:x}")));
    let opened = mapped.or_else(|_other_bounds| {
        let inside = file.path.strip_prefix("/").unwrap_or(&file.path);
        File::open(process.join("root").join(inside)).or_else(|_gone| File::open(&file.path))
    });
    opened.map(Source::File)
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

/// A map of the rows in blocks, and how many.
fn blocks(table: &Table) -> Result<(MapHandle, u32)> {
    let rows: Vec<(u32, u32)> = table.rows().map(|(start, rule)| (start, rule.bits())).collect();
    let blocks = u32::try_from(rows.len().div_ceil(BLOCK_ROWS)).unwrap_or(u32::MAX);
    let value_bytes = u32::try_from(BLOCK_ROWS * 8).unwrap_or(u32::MAX);
    let map = inner_map("unwind_rows", value_bytes, blocks)?;
    let mut value = Vec::with_capacity(BLOCK_ROWS * 8);
    for (number, rows) in (0_u32..).zip(rows.chunks(BLOCK_ROWS)) {
        let last = rows.last().copied().unwrap_or_default();
        let padded = || rows.iter().copied().chain(std::iter::repeat(last)).take(BLOCK_ROWS);
        value.clear();
        value.extend(padded().flat_map(|(start, _)| start.to_ne_bytes()));
        value.extend(padded().flat_map(|(_, rule)| rule.to_ne_bytes()));
        map.update(&number.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::bpf("fill an unwind table"))?;
    }
    Ok((map, blocks))
}

/// An array that a map of maps takes, however long it is.
pub(super) fn inner_map(name: &str, value_bytes: u32, entries: u32) -> Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: libbpf_sys::BPF_F_INNER_MAP,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some(name), 4, value_bytes, entries.max(1), &options)
        .map_err(Error::bpf("make a map"))
}
