//! Samples of who runs, with whole stacks, of programs that keep no frame pointers too.
//!
//! ```text
//! clock of each CPU ─▶ eBPF program walks the stack ─▶ ring ─▶┐ [programs, queue]
//!                       ▲ rows, mappings  [tables, code]      ├─▶ in order of time ─▶ samples with files  [resolve]
//! side band of each CPU ┴─▶ what processes map [change] ─────▶┘   [sampler, processes]
//! ```
//! The program knows of a process only what it was told, and it is told of those that were sampled. Where it knows nothing it hands
//! over registers and a copy of the stack, which is walked here by the same rows: a process's first samples are as good as its
//! later ones. Samples and changes of mappings are put in the order of time before one is read by the other, so that an
//! address is always looked up in what was mapped at that moment.
//!
//! Three threads: one follows the kernel and waits for nothing else, one reads files, and whoever called finds names.

mod backend;
mod cache;
mod cgroup;
mod cgroup_path;
mod change;
mod code;
mod context;
mod control;
mod copies;
mod epoch;
mod jit;
mod kernel_code;
mod kernel_ids;
mod lines;
mod lives;
mod maps;
mod memory;
mod off_cpu;
mod open_files;
mod open_packet;
mod packets;
mod perf;
mod positioned;
mod processes;
mod programs;
mod python;
mod queue;
mod resolve;
mod resource;
mod rows;
mod sample;
mod sampler;
mod scan;
mod spans;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use ::profile::{Link, Unnamed};
use model::{CpuId, Pid, Tid};
use symbols::KernelFunction;

use self::code::Code;
use self::jit::JitMaker;
use self::processes::CodeFile;
use self::queue::{InFlight, Message};
use self::resolve::resolve;
use self::sample::RawSample;
use self::sampler::Sampler;
use crate::error::{Error, Result};

pub use control::{Budget, Reason, Settings};
pub use lines::LinesLeftOut;
pub use memory::keep_little_memory;
pub use packets::Packer;
pub use programs::Counts;
pub use python::{PythonCode, PythonCounts, PythonEnd, PythonFrame};
pub use sample::StackEnd;
pub use tables::FilesLeftOut;

/// What to sample.
#[derive(Debug, Clone)]
pub struct Config {
    /// How often a second on each CPU.
    pub frequency_hz: u64,
    /// These processes and those they start from now on; `None`: all. This process is listed for those it starts alone.
    pub processes: Option<Vec<Pid>>,
    /// When to stop by itself; `None`: only when told.
    pub duration: Option<Duration>,
    /// Whether to sample who waits, too: times off the CPU, in proportion to their length.
    pub off_cpu: bool,
    /// What it may cost; beyond it fewer and shorter samples are taken.
    pub budget: Budget,
    /// Whether to sample by copies of stacks although a program in the kernel might be allowed.
    pub copies_only: bool,
}

/// What takes the samples.
#[derive(Debug, Clone)]
pub enum Means {
    /// A program in the kernel, which walks stacks.
    Program,
    /// The kernel's events with copies of stacks, because there is no program: no times off the CPU, and stacks of some KiB.
    Copies {
        /// Why there is no program, if one was asked for: mostly [`Error::Unavailable`].
        refused: Option<Arc<Error>>,
        /// Whether samples have the kernel's frames, which takes more rights.
        with_kernel: bool,
    },
}

/// What is so at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// What was lost since the moment before.
    pub lost: Lost,
    /// How samples are taken from now on.
    pub settings: Settings,
    /// Whether there is more memory than the budget allows, so that caches are to be emptied.
    pub forget: bool,
}

/// Samples that were lost, by what made them so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// The ring between the kernel and here was full.
    pub ring_full: u64,
    /// Too many waited for their turn here.
    pub queue_full: u64,
    /// A sample could not be read.
    pub malformed: u64,
    /// Of times off the CPU: the ring was full.
    pub off_cpu_ring_full: u64,
    /// Of times off the CPU: there were too many at once.
    pub off_cpu_kept_back: u64,
    /// Of times off the CPU: the thread went on before its stack could be read.
    pub off_cpu_missed: u64,
}

impl Lost {
    fn since(self, before: Self) -> Self {
        Self {
            ring_full: self.ring_full - before.ring_full,
            queue_full: self.queue_full - before.queue_full,
            malformed: self.malformed - before.malformed,
            off_cpu_ring_full: self.off_cpu_ring_full - before.off_cpu_ring_full,
            off_cpu_kept_back: self.off_cpu_kept_back - before.off_cpu_kept_back,
            off_cpu_missed: self.off_cpu_missed - before.off_cpu_missed,
        }
    }
}

/// One sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The time that it stands for, in nanoseconds.
    pub weight_ns: u64,
    /// Whether the thread was off the CPU, until `time_ns`; else it ran.
    pub off_cpu: bool,
    /// The process.
    pub pid: Pid,
    /// When the process started, in nanoseconds since boot: with `pid`, who it is.
    pub process_start_ns: u64,
    /// The thread.
    pub tid: Tid,
    /// The thread's name.
    pub name: Vec<u8>,
    /// The program of the process.
    executable: Option<Arc<CodeFile>>,
    /// Who makes code in the process.
    jit: JitMaker,
    /// Where it ran.
    pub cpu: CpuId,
    /// Number of its control group.
    pub cgroup: u64,
    /// The span that the thread was in, as it tells.
    pub span: Option<Link>,
    /// Frames of the kernel's stack, the innermost first.
    pub kernel: Vec<KernelFrame>,
    /// Frames of the process, the innermost first.
    pub user: Vec<StackFrame>,
    /// How the walk over the process's stack ended.
    pub end: StackEnd,
    /// How the walk over the frames of CPython ended.
    pub python: PythonEnd,
}

/// What sampling tells as it goes on.
#[derive(Debug, Clone)]
pub enum Seen {
    /// One sample. They come in order of time, those of either kind.
    Sample(Box<Sample>),
    /// All samples until a moment were given; comes some ten times a second, also when there are none.
    Until(Moment),
}

/// A frame of the kernel's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFrame {
    /// The instruction, or of a caller one inside the call.
    pub address: u64,
    /// The function that was there when the sample was taken, or why it is not known.
    pub function: std::result::Result<Arc<KernelFunction>, Unnamed>,
}

/// A frame of a process's stack.
#[derive(Debug, Clone)]
pub enum StackFrame {
    /// Of native code.
    Native(UserFrame),
    /// Of CPython: it stands in place of the evaluation function that runs it.
    Python(PythonFrame),
}

/// A frame of native code.
#[derive(Debug, Clone)]
pub struct UserFrame {
    /// The instruction, or of a caller one inside the call.
    pub address: u64,
    /// The file whose code it is.
    pub file: Option<FilePlace>,
}

/// A place in a file.
#[derive(Debug, Clone)]
pub struct FilePlace {
    file: Arc<CodeFile>,
    code: Option<Arc<Code>>,
    /// Bytes from the file's begin.
    offset: u64,
    /// Begin and end of its mapping, and where in the file that begins.
    memory: (u64, u64, u64),
}

impl FilePlace {
    /// The file's name, as a process sees it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

/// What a sampling came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// What the program counted.
    pub counts: Counts,
    /// Samples given.
    pub samples: u64,
    /// Samples that found no room while they waited.
    pub no_room: u64,
    /// Records of the side bands that could not be read.
    pub malformed: u64,
    /// Samples that could not be read.
    pub malformed_samples: u64,
    /// Changes of mappings that the kernel lost.
    pub changes_lost: u64,
    /// Files without rows.
    pub files: FilesLeftOut,
    /// Samples of threads that run CPython.
    pub python: PythonCounts,
    /// Processes of which nothing was kept, because there were too many.
    pub processes_left_out: u64,
    /// Functions of the kernel that were not kept, because there were too many.
    pub kernel_functions_left_out: u64,
    /// Processes whose spans were not read, because there were too many.
    pub spans_left_out: u64,
}

/// Samples as `config` says until `stop`, and gives what it finds to `each`. Says through `started` when the clocks run.
///
/// # Errors
/// [`Error::Bpf`], [`Error::Os`] when the kernel refuses.
pub fn sample(
    config: &Config,
    stop: &AtomicBool,
    started: impl FnOnce(Means),
    mut each: impl FnMut(Seen),
) -> Result<Report> {
    let (to_here, messages) = channel();
    let in_flight = InFlight::default();
    let caller = Tid::new(rustix::thread::gettid().as_raw_nonzero().get());
    thread::scope(|scope| {
        let sampler = scope.spawn(|| Sampler::run(config, stop, to_here, &in_flight, caller));
        let mut started = Some(started);
        let (mut samples, mut python) = (0, PythonCounts::default());
        for message in messages {
            match message {
                Message::Started(means) => {
                    if let Some(started) = started.take() {
                        started(means);
                    }
                }
                Message::Sample { bytes, process, kernel } => {
                    if let Some(raw) = RawSample::read(&bytes) {
                        samples += 1;
                        let sample = resolve(&raw, kernel, process.as_deref(), &mut python);
                        each(Seen::Sample(Box::new(sample)));
                    }
                    in_flight.take(bytes.len());
                }
                Message::Until(moment) => each(Seen::Until(moment)),
            }
        }
        match sampler.join() {
            Ok(report) => report.map(|report| {
                let processes_left_out = report.python.processes_left_out;
                let python = PythonCounts { processes_left_out, ..python };
                Report { samples, python, ..report }
            }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
