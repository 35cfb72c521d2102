//! Where the threads of a process tell their spans: OpenTelemetry's thread context (OTEP 4947), told to the program that samples.
//!
//! ```text
//! otel_thread_ctx_v1, a variable of each thread ─▶ trace id [16]  span id [8]  valid u8  flags u8  bytes of what follows u16
//! ```
//! The program reads it with each sample. Where a thread has the variable is up to the file that has it: the program itself, or a
//! library, whose place the dynamic linker has written into the process's memory. What is not read: variables of a file that was
//! loaded later and has its storage apart, reached by descriptors (TLSDESC) only, other attributes than the two ids.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use libbpf_rs::{MapCore, MapFlags};
use model::Pid;
use symbols::TlsVariable;

use super::processes::{Process, Processes};

/// The variable's name.
pub(super) const VARIABLE: &[u8] = b"otel_thread_ctx_v1";
/// How often it is looked whether the dynamic linker has done its work, once a tick.
const ATTEMPTS: u8 = 50;
/// Processes that may wait for that; of more it is not told.
const MAX_UNSETTLED: usize = 1024;

/// What the program was told.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// Processes whose library is not linked yet, and how often they were looked at.
    unsettled: BTreeMap<Pid, u8>,
    /// Processes that found no room.
    pub(super) left_out: u64,
}

impl Spans {
    /// Tells the map where a process, whose files were read, has the variable; that it has none, if so.
    pub(super) fn tell(&mut self, map: &impl MapCore, pid: Pid, process: &Process) {
        let key = pid.get().to_ne_bytes();
        match place(pid, process) {
            Place::Nowhere => {
                self.unsettled.remove(&pid);
                // Mostly it had none before.
                drop(map.delete(&key));
            }
            Place::NotYet => {
                let has_room = self.unsettled.len() < MAX_UNSETTLED;
                if has_room || self.unsettled.contains_key(&pid) {
                    self.unsettled.entry(pid).or_default();
                } else {
                    self.left_out += 1;
                }
            }
            place => {
                self.unsettled.remove(&pid);
                let value = place.value(process.changed_ns);
                // The map takes a fixed number of processes.
                self.left_out += u64::from(map.update(&key, &value, MapFlags::ANY).is_err());
            }
        }
    }

    /// Looks again at processes whose libraries were not linked.
    pub(super) fn tell_again(&mut self, map: &impl MapCore, processes: &Processes) {
        self.unsettled.retain(|_, attempts| {
            *attempts += 1;
            *attempts <= ATTEMPTS
        });
        let waiting: Vec<Pid> = self.unsettled.keys().copied().collect();
        for pid in waiting {
            match processes.get(pid) {
                Some(process) => self.tell(map, pid, process),
                None => drop(self.unsettled.remove(&pid)),
            }
        }
    }
}

/// Where each thread has the variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// No file has it, or only in a way that is not followed.
    Nowhere,
    /// The dynamic linker has not written it yet.
    NotYet,
    /// So far from the thread pointer.
    Distance(i64),
    /// In the storage of a module, so far from its begin; its number stands for that many times so many bytes.
    Module { number: u32, offset: i64, entry_bytes: u32 },
}

impl Place {
    /// `struct span_place` of `bpf/sample.h`.
    fn value(self, known_ns: u64) -> [u8; 24] {
        let (offset, number, entry_bytes) = match self {
            Self::Nowhere | Self::NotYet => (0, 0, 0),
            Self::Distance(offset) => (offset, 0, 0),
            Self::Module { number, offset, entry_bytes } => (offset, number, entry_bytes),
        };
        let module = u64::from(number) | u64::from(entry_bytes) << 32;
        let mut value = [0; 24];
        let words = [known_ns, offset.cast_unsigned(), module];
        for (to, word) in value.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        value
    }
}

fn place(pid: Pid, process: &Process) -> Place {
    let mut files = process.code.iter().filter_map(|(begin, mapping)| {
        let code = mapping.file.code()?;
        let variable = code.thread_context()?;
        Some((&mapping.file, variable, code.moved_by(*begin, mapping.file_offset)?))
    });
    let Some((file, variable, moved_by)) = files.next() else { return Place::Nowhere };
    if process.executable.as_ref() == Some(file) {
        return Place::Distance(variable.in_program);
    }
    // The vector of modules has a pointer for each with musl, with glibc two.
    // What glibc calls `libc.so` is a text that only linkers read.
    let is_of_musl = |name: &[u8]| {
        name.starts_with(b"ld-musl") || name.starts_with(b"libc.musl") || name == b"libc.so"
    };
    let name = |file: &super::processes::CodeFile| {
        is_of_musl(file.path.file_name().unwrap_or_default().as_encoded_bytes())
    };
    let entry_bytes = if process.code.values().any(|mapping| name(&mapping.file)) { 8 } else { 16 };
    let Ok(memory) = File::open(format!("/proc/{}/mem", pid.get())) else { return Place::Nowhere };
    let word = |address: u64| {
        let mut word = [0; 8];
        let read = memory.read_exact_at(&mut word, address.wrapping_add(moved_by));
        read.is_ok().then(|| u64::from_ne_bytes(word))
    };
    linked(variable, entry_bytes, word)
}

/// Of what the dynamic linker wrote at the file's own addresses.
fn linked(variable: &TlsVariable, entry_bytes: u32, word: impl Fn(u64) -> Option<u64>) -> Place {
    /// Modules of a process: none has more.
    const MAX_MODULES: u64 = 1 << 16;
    let distance = |slot: u64| word(slot).map(u64::cast_signed).filter(|it| is_distance(*it));
    let argument = variable.descriptor_slot.map(|slot| slot.wrapping_add(8));
    if let Some(distance) = variable.distance_slot.or(argument).and_then(distance) {
        return Place::Distance(distance);
    }
    let offset = variable.offset.cast_signed();
    match variable.module_slot.map(|slot| word(slot).unwrap_or(0)) {
        Some(number @ 1..MAX_MODULES) => {
            let number = u32::try_from(number).unwrap_or(0);
            Place::Module { number, offset, entry_bytes }
        }
        Some(0) => Place::NotYet,
        None if argument.or(variable.distance_slot).and_then(&word) == Some(0) => Place::NotYet,
        _ => Place::Nowhere,
    }
}

/// Whether that is a distance from the thread pointer, and not a pointer: storage lies below it on x86-64, on aarch64 above two words,
/// and there is less of it than of addresses that programs are not put at.
const fn is_distance(word: i64) -> bool {
    if cfg!(target_arch = "aarch64") { word >= 16 && word < 1 << 22 } else { word < 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_threads_have_it_is_what_the_dynamic_linker_wrote() {
        let none = TlsVariable {
            offset: 24,
            in_program: -8,
            module_slot: None,
            distance_slot: None,
            descriptor_slot: None,
        };
        let by_number = TlsVariable { module_slot: Some(0x100), ..none };
        let by_distance = TlsVariable { distance_slot: Some(0x100), ..none };
        let by_descriptor = TlsVariable { descriptor_slot: Some(0xf8), ..none };
        let linked = |variable, wrote: i64| {
            linked(variable, 16, |at| (at == 0x100).then_some(wrote.cast_unsigned()))
        };
        let module = Place::Module { number: 3, offset: 24, entry_bytes: 16 };
        assert_eq!(linked(&by_number, 3), module);
        assert_eq!(linked(&by_number, 0), Place::NotYet);
        assert_eq!(linked(&by_number, -1), Place::Nowhere);
        let distance = if cfg!(target_arch = "aarch64") { 64 } else { -64 };
        assert_eq!(linked(&by_distance, distance), Place::Distance(distance));
        assert_eq!(linked(&by_descriptor, distance), Place::Distance(distance));
        assert_eq!(linked(&by_descriptor, 0), Place::NotYet);
        assert_eq!(linked(&by_descriptor, 0x5555_0000), Place::Nowhere);
        assert_eq!(linked(&none, 1), Place::Nowhere);
        let words = [7_i64, 24, 3 | 16 << 32].map(i64::to_ne_bytes).concat();
        assert_eq!(module.value(7).as_slice(), words);
    }
}
