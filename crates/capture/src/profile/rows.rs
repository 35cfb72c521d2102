//! Rows where the sampling program reads them, and this program too.
#![expect(unsafe_code, reason = "memory that the kernel lends")]

use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapHandle, libbpf_sys};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use unwind::{Rule, Table};

use super::maps::inner_array;

/// Rows of a block, as in `bpf/sample.h`.
const BLOCK_ROWS: usize = 64;

/// `struct block` of `bpf/sample.h`.
#[repr(C)]
#[derive(Debug, Clone)]
struct Block {
    start: [u32; BLOCK_ROWS],
    rule: [u32; BLOCK_ROWS],
}

/// The rows of a file.
#[derive(Debug)]
pub(super) struct Rows {
    base: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// In a map of the kernel, which is mapped here: they are held once.
    Map(Shared),
    /// Here alone.
    Memory(Vec<Block>),
}

/// Memory of a map of the kernel.
#[derive(Debug)]
struct Shared {
    /// Until the program has it: what holds the map from then on is the program's table of maps, and this memory.
    map: Mutex<Option<MapHandle>>,
    blocks: NonNull<Block>,
    count: usize,
}

// SAFETY: nothing writes to the memory once it is filled.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Rows {
    /// Puts a table's rows where this program alone reads them.
    pub(super) fn in_memory(table: &Table) -> Self {
        let none = Block { start: [0; BLOCK_ROWS], rule: [0; BLOCK_ROWS] };
        let mut blocks = vec![none; table.len().div_ceil(BLOCK_ROWS)];
        fill(&mut blocks, table);
        Self { base: table.base(), place: Place::Memory(blocks) }
    }

    /// Puts a table's rows into a map.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn in_kernel(table: &Table) -> io::Result<Self> {
        let count = table.len().div_ceil(BLOCK_ROWS).max(1);
        let entries = u32::try_from(count).map_err(|_many| io::ErrorKind::OutOfMemory)?;
        let map = blocks(entries).map_err(io::Error::other)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of which nobody else knows.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                count * size_of::<Block>(),
                protection,
                MapFlags::SHARED,
                &map,
                0,
            )?
        };
        let blocks = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let shared = Shared { map: Mutex::new(Some(map)), blocks, count };
        // SAFETY: the mapping has room for so many blocks, which are valid with all bits zero; nobody else has it yet.
        fill(unsafe { std::slice::from_raw_parts_mut(shared.blocks.as_ptr(), count) }, table);
        Ok(Self { base: table.base(), place: Place::Map(shared) })
    }

    /// The map, for the program; once. A file descriptor less is open when it is dropped.
    pub(super) fn take_map(&self) -> Option<MapHandle> {
        match &self.place {
            Place::Map(shared) => shared.map.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Place::Memory(_) => None,
        }
    }

    /// Whether there is a map for the program, which it may have already.
    pub(super) const fn has_map(&self) -> bool {
        matches!(self.place, Place::Map(_))
    }

    /// How many blocks.
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.all().len()).unwrap_or(u32::MAX)
    }

    /// Bytes of memory of all.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.all())
    }

    /// The file's address that rows count from.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// The rule of the instruction at one of the file's addresses.
    pub(super) fn find(&self, address: u64) -> Rule {
        let at = address.checked_sub(self.base).and_then(|at| u32::try_from(at).ok());
        let found = at.and_then(|at| {
            let behind = self.all().partition_point(|block| block.start.first() <= Some(&at));
            let block = self.all().get(behind.checked_sub(1)?)?;
            let row = block.start.partition_point(|start| *start <= at).checked_sub(1)?;
            block.rule.get(row)
        });
        found.map_or(Rule::UNKNOWN, |bits| Rule::from_bits(*bits))
    }

    fn all(&self) -> &[Block] {
        match &self.place {
            // SAFETY: the mapping lives as long as `self`, has so many blocks, and is not written to.
            Place::Map(shared) => unsafe {
                std::slice::from_raw_parts(shared.blocks.as_ptr(), shared.count)
            },
            Place::Memory(blocks) => blocks,
        }
    }
}

/// A map without rows, which takes the place of one that has some.
///
/// # Errors
/// The kernel's.
pub(super) fn no_rows() -> libbpf_rs::Result<MapHandle> {
    blocks(1)
}

/// A map of so many blocks.
fn blocks(count: u32) -> libbpf_rs::Result<MapHandle> {
    let block_bytes = u32::try_from(size_of::<Block>()).unwrap_or(u32::MAX);
    inner_array("unwind_rows", block_bytes, count, libbpf_sys::BPF_F_MMAPABLE)
}

/// Rows behind the last one are as the last one.
fn fill(to: &mut [Block], table: &Table) {
    let mut rows = table.rows().map(|(start, rule)| (start, rule.bits()));
    let mut last = (0, 0);
    for block in to {
        for (start, rule) in block.start.iter_mut().zip(&mut block.rule) {
            last = rows.next().unwrap_or(last);
            (*start, *rule) = last;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing borrows from it.
        let unmapped =
            unsafe { munmap(self.blocks.as_ptr().cast(), self.count * size_of::<Block>()) };
        debug_assert!(unmapped.is_ok(), "{self:?}");
    }
}
