//! Frames of CPython in samples.
//!
//! ```text
//! interpreter of a file (`cpython`) ─▶ told to the program, by process [told]
//! what the program read of frames ─▶ runs of frames, with names and lines [record] ─▶ among the native ones [merge]
//! ```
//! The program reads names at the moment of the sample. Nothing of a code object is kept from one sample to the next: as soon as it is
//! gone, another one is made at its address.
//!
//! Other interpreters fit in the same way: which one is of a file is found where its table is made; the program is told
//! of a process's interpreter, and appends its frames behind the native walk; frames are put where the function
//! that runs them stands. V8 and HotSpot differ in that their frames are in the native stack, in memory without a file: their
//! unwinder would be one kind of mapping (`struct mapping` says which rows it has), which reads the frame's function and goes to the
//! caller by what the virtual machine keeps there, in place of a row.

mod merge;
mod record;
mod told;

use std::sync::Arc;

pub(super) use merge::merge;
pub(super) use record::runs;
pub(super) use told::{Told, is_expected};

/// How the walk over a thread's frames of CPython ended, numbered as in `bpf/sample.h` up to `NoRoom`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PythonEnd {
    /// The thread does not run CPython.
    None,
    /// The thread's first function.
    Root,
    /// The interpreter has no frames of the thread.
    NoFrames,
    /// The process has more threads than are looked at.
    ManyThreads,
    /// Memory that the walk asked for was not there.
    NoMemory,
    /// More frames than are walked.
    TooDeep,
    /// More names than there is room for.
    NoRoom,
    /// Nothing was known of the interpreter yet, or its version is none that is supported.
    Unknown,
}

impl PythonEnd {
    pub(super) const ALL: [Self; 7] = [
        Self::None,
        Self::Root,
        Self::NoFrames,
        Self::ManyThreads,
        Self::NoMemory,
        Self::TooDeep,
        Self::NoRoom,
    ];
}

/// A function of Python, as its code object tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonCode {
    /// Its qualified name (from 3.11 on), or its name. `None` when it could not be read. A name that was cut ends with `…`.
    pub function: Option<String>,
    /// The file; empty when it could not be read.
    pub file: String,
    /// The line where it begins.
    pub first_line: u32,
}

/// A frame of CPython.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonFrame {
    /// The function.
    pub code: Arc<PythonCode>,
    /// The line; 0 when it is not known.
    pub line: u32,
}

/// Samples of threads that run CPython, by what became of their frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PythonCounts {
    /// With all frames.
    pub whole: u64,
    /// With none, because nothing was known of the interpreter yet or its version is not supported.
    pub unknown: u64,
    /// With none, because the interpreter had none.
    pub no_frames: u64,
    /// With none, because the process has too many threads.
    pub many_threads: u64,
    /// Without outer frames, because memory could not be read.
    pub no_memory: u64,
    /// Without outer frames, because there are too many.
    pub too_deep: u64,
    /// Without outer frames, because of the room for their names.
    pub no_room: u64,
    /// Of all these, where there are more calls of the evaluation function than runs of frames, or fewer: frames may stand at another
    /// one's place.
    pub uneven: u64,
    /// Frames whose function could not be read.
    pub unnamed: u64,
    /// Processes of which the program was not told, because there were too many.
    pub processes_left_out: u64,
}

impl PythonCounts {
    /// Counts a sample.
    pub(super) fn count(&mut self, end: PythonEnd) {
        match end {
            PythonEnd::None => {}
            PythonEnd::Root => self.whole += 1,
            PythonEnd::NoFrames => self.no_frames += 1,
            PythonEnd::ManyThreads => self.many_threads += 1,
            PythonEnd::NoMemory => self.no_memory += 1,
            PythonEnd::TooDeep => self.too_deep += 1,
            PythonEnd::NoRoom => self.no_room += 1,
            PythonEnd::Unknown => self.unknown += 1,
        }
    }
}
