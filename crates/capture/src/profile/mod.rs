//! Samples of who runs, with whole stacks, of programs that keep no frame pointers too.
//!
//! ```text
//! clock of each CPU ─▶ eBPF program walks the stack ─▶ ring ─▶┐ [programs, sample]
//!                       ▲ rows, mappings  [tables]            ├─▶ in order of time ─▶ samples with files  [resolve]
//! side band of each CPU ┴─▶ what processes map [change] ─────▶┘   [processes]
//! ```
//! The program knows of a process only what it was told, and it is told of those that were sampled. Where it knows nothing it hands
//! over registers and a copy of the stack, which is walked here by the same rows: a process's first samples are as good as its
//! later ones. Samples and changes of mappings are put in the order of time before one is read by the other, so that an
//! address is always looked up in what was mapped at that moment.

mod change;
mod epoch;
mod off_cpu;
mod packets;
mod perf;
mod processes;
mod programs;
mod resolve;
mod sample;
mod scan;
mod tables;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{CpuId, Pid, Tid};

use self::change::{Change, Timed, changes};
use self::off_cpu::Pacer;
use self::perf::SideBand;
use self::processes::{CodeFile, Processes};
use self::programs::{Programs, Storage};
use self::sample::RawSample;
use self::tables::{Code, Tables};
use crate::error::{Error, Result};
use crate::kernel::clock;

pub use packets::Packer;
pub use programs::Counts;
pub use sample::StackEnd;
pub use tables::FilesLeftOut;

/// How often the ring and the side bands are read.
const TICK: Duration = Duration::from_millis(100);

/// Stacks that may be copied between two ticks.
const STACKS_PER_TICK: i64 = 64;

/// Samples that wait for their turn; what comes then is dropped and counted.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// What to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How often a second on each CPU.
    pub frequency_hz: u64,
    /// These processes and those they start from now on; `None`: all. This process is listed for those it starts alone.
    pub processes: Option<Vec<Pid>>,
    /// When to stop by itself; `None`: only when told.
    pub duration: Option<Duration>,
    /// Whether to sample who waits, too: times off the CPU, in proportion to their length.
    pub off_cpu: bool,
}

/// What is so at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// What was lost since the moment before.
    pub lost: Lost,
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
    /// Where it ran.
    pub cpu: CpuId,
    /// Number of its control group.
    pub cgroup: u64,
    /// Addresses in the kernel, the innermost first.
    pub kernel: Vec<u64>,
    /// Frames of the process, the innermost first.
    pub user: Vec<UserFrame>,
    /// How the walk over the process's stack ended.
    pub end: StackEnd,
}

/// What sampling tells as it goes on.
#[derive(Debug, Clone)]
pub enum Seen {
    /// One sample. They come in order of time, those of either kind.
    Sample(Box<Sample>),
    /// All samples until a moment were given; comes some ten times a second, also when there are none.
    Until(Moment),
}

/// A frame of a process's stack.
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
    /// Processes of which nothing was kept, because there were too many.
    pub processes_left_out: u64,
}

/// Samples as `config` says until `stop`, and gives what it finds to `each`. Says through `started` when the clocks run.
///
/// # Errors
/// [`Error::Bpf`], [`Error::Os`] when the kernel refuses.
pub fn sample(
    config: &Config,
    stop: &AtomicBool,
    started: impl FnOnce(),
    each: impl FnMut(Seen),
) -> Result<Report> {
    let mut storage = Storage::new();
    let programs = Programs::load(&mut storage, config)?;
    let sampler = Sampler {
        programs,
        side_bands: Vec::new(),
        processes: Processes::default(),
        tables: Tables::default(),
        told: BTreeSet::new(),
        ended: BTreeSet::new(),
        report: Report::default(),
        unreadable: 0,
        lost: Lost::default(),
        end_ns: u64::MAX,
        each,
    };
    sampler.run(config, stop, started)
}

/// Samples as the ring gave them.
#[derive(Debug, Default)]
struct Queue {
    samples: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    no_room: u64,
    malformed: u64,
}

impl Queue {
    fn push(&mut self, sample: &[u8]) {
        match sample.first_chunk().map(|time| u64::from_ne_bytes(*time)) {
            Some(_) if self.bytes.saturating_add(sample.len()) > MAX_WAITING_BYTES => {
                self.no_room += 1
            }
            Some(at_ns) => {
                self.bytes += sample.len();
                self.samples.push((at_ns, sample.to_vec()));
            }
            None => self.malformed += 1,
        }
    }

    /// Those until a moment, by time.
    fn take(&mut self, until_ns: u64) -> Vec<(u64, Vec<u8>)> {
        self.samples.sort_by_key(|(at_ns, _)| *at_ns);
        let later = self.samples.partition_point(|(at_ns, _)| *at_ns <= until_ns);
        let later = self.samples.split_off(later);
        self.bytes = later.iter().map(|(_, sample)| sample.len()).sum();
        std::mem::replace(&mut self.samples, later)
    }
}

struct Sampler<'obj, F> {
    programs: Programs<'obj>,
    side_bands: Vec<SideBand>,
    processes: Processes,
    tables: Tables,
    /// Whom the program was told of.
    told: BTreeSet<Pid>,
    /// Processes of which a thread ended.
    ended: BTreeSet<Pid>,
    report: Report,
    /// Samples whose head could not be read.
    unreadable: u64,
    /// What was told of losses.
    lost: Lost,
    /// When the clocks stop: `CLOCK_MONOTONIC`.
    end_ns: u64,
    each: F,
}

impl<F: FnMut(Seen)> Sampler<'_, F> {
    fn run(mut self, config: &Config, stop: &AtomicBool, started: impl FnOnce()) -> Result<Report> {
        let cpus = scan::online_cpus().map_err(Error::os("list the CPUs"))?;
        self.programs.follow()?;
        for cpu in &cpus {
            let opened = SideBand::open(*cpu).map_err(Error::os("follow what processes map"))?;
            self.side_bands.push(opened);
        }
        // What happens while these are read is in the side bands already, and comes after.
        let listed = config.processes.as_deref();
        for pid in listed.unwrap_or_default() {
            self.programs.list(*pid)?;
        }
        let at_ns = clock::monotonic_ns();
        for change in scan::processes(listed) {
            self.processes.apply(at_ns, change);
        }
        self.processes.take_changed();
        self.programs.allow_stacks(STACKS_PER_TICK);
        // Of these the first samples shall be whole, however deep their stacks.
        for pid in listed.unwrap_or_default() {
            self.tell(*pid)?;
        }
        let queue = Rc::new(RefCell::new(Queue::default()));
        let into = Rc::clone(&queue);
        let ring = self.programs.ring(move |bytes| into.borrow_mut().push(bytes))?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let length_ns = config.duration.map_or(u64::MAX, nanoseconds);
        let mut pacer = Pacer::new(config.frequency_hz, cpus.len());
        let counts = self.programs.counts();
        self.programs.set_pace(pacer.next(clock::monotonic_ns(), &counts));
        self.end_ns = clock::monotonic_ns().saturating_add(length_ns);
        self.programs.start(&cpus, config.frequency_hz, self.end_ns)?;
        started();
        loop {
            let is_over = self.is_over(stop);
            if !is_over {
                ring.poll(TICK).map_err(Error::bpf("wait for samples"))?;
            }
            // What happened before this moment is in the side bands when they are read after it.
            let until_ns = if is_over { u64::MAX } else { clock::monotonic_ns() };
            ring.consume().map_err(Error::bpf("read samples"))?;
            let samples = queue.borrow_mut().take(until_ns);
            self.turn(samples, stop)?;
            {
                let queue = queue.borrow();
                self.report.no_room = queue.no_room;
                self.report.malformed_samples = queue.malformed + self.unreadable;
            }
            self.report.counts = self.programs.counts();
            self.tell_moment(if is_over { clock::monotonic_ns() } else { until_ns });
            if is_over {
                break;
            }
            self.programs.allow_stacks(STACKS_PER_TICK);
            self.programs.set_pace(pacer.next(clock::monotonic_ns(), &self.report.counts));
        }
        drop(ring);
        self.report.files = self.tables.left_out;
        self.report.processes_left_out = self.processes.left_out();
        Ok(self.report)
    }

    /// Goes through samples and all that happened, in order.
    fn turn(&mut self, samples: Vec<(u64, Vec<u8>)>, stop: &AtomicBool) -> Result<()> {
        let mut happened = Vec::new();
        for side_band in &mut self.side_bands {
            happened.extend(changes(side_band.read(), &mut self.report.malformed));
        }
        happened.sort_by_key(|it| it.at_ns);
        let mut happened = happened.into_iter().peekable();
        let mut wanted = BTreeSet::new();
        for (at_ns, bytes) in samples {
            while let Some(change) = happened.next_if(|it| it.at_ns <= at_ns) {
                self.apply(change);
            }
            let Some(raw) = RawSample::read(&bytes) else {
                self.unreadable += 1;
                continue;
            };
            if matches!(raw.end, StackEnd::NoProcess | StackEnd::NoMapping) {
                wanted.insert(raw.pid);
            }
            let outer = self.programs.tables();
            let sample = resolve::resolve(&raw, &self.processes, &mut self.tables, outer)?;
            self.report.samples += 1;
            (self.each)(Seen::Sample(Box::new(sample)));
            self.is_over(stop);
        }
        happened.for_each(|change| self.apply(change));
        let changed = self.processes.take_changed();
        wanted.extend(changed.into_iter().filter(|pid| self.told.contains(pid)));
        for pid in wanted {
            // Files may take long to read; what is learnt too late is of no use.
            if self.is_over(stop) {
                break;
            }
            self.tell(pid)?;
        }
        self.forget_ended();
        Ok(())
    }

    /// Says that all until a moment was given, and what was lost of it.
    fn tell_moment(&mut self, time_ns: u64) {
        let Report { counts, .. } = self.report;
        let lost = Lost {
            ring_full: counts.no_room,
            queue_full: self.report.no_room,
            malformed: self.report.malformed_samples,
            off_cpu_ring_full: counts.waits_no_room,
            off_cpu_kept_back: counts.waits_kept_back,
            off_cpu_missed: counts.waits_missed,
        };
        let since = lost.since(std::mem::replace(&mut self.lost, lost));
        (self.each)(Seen::Until(Moment { time_ns, lost: since }));
    }

    /// Whether the time is over, or someone says so. The clocks stand from then on.
    fn is_over(&mut self, stop: &AtomicBool) -> bool {
        let is_over = stop.load(Ordering::Relaxed) || clock::monotonic_ns() >= self.end_ns;
        if is_over {
            self.programs.stop();
        }
        is_over
    }

    /// Tells the program what is known of a process.
    fn tell(&mut self, pid: Pid) -> Result<()> {
        if let Some(process) = self.processes.get(pid) {
            self.programs.tell(pid, process, &mut self.tables)?;
            self.told.insert(pid);
        }
        Ok(())
    }

    fn apply(&mut self, Timed { at_ns, change }: Timed) {
        match &change {
            Change::Exit { pid, tid } if pid.get() == tid.get() => {
                self.ended.insert(*pid);
            }
            Change::Lost(count) => self.report.changes_lost += count,
            _ => {}
        }
        self.processes.apply(at_ns, change);
    }

    /// Processes whose first thread ended go when they are gone; one may have other threads for long.
    fn forget_ended(&mut self) {
        let gone: Vec<Pid> =
            self.ended.iter().copied().filter(|pid| !scan::is_there(*pid)).collect();
        for pid in gone {
            self.ended.remove(&pid);
            self.processes.forget(pid);
            if self.told.remove(&pid) {
                self.programs.forget(pid);
            }
        }
        if !self.processes.take_ended().is_empty() {
            self.tables.forget_unused(self.programs.tables());
        }
    }
}
