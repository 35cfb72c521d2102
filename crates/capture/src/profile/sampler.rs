//! The thread that follows the kernel: it reads the ring and the side bands, and tells the program of processes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use model::{Pid, Tid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::backend::Backend;
use super::change::{Change, Timed, Upcoming, changes};
use super::control::{Controller, Settings, Used};
use super::kernel_code::KernelCode;
use super::memory::GivingBack;
use super::off_cpu::Pacer;
use super::perf::SideBand;
use super::processes::{Process, Processes};
use super::programs::ring_bytes;
use super::queue::{InFlight, Message, Queue};
use super::sample::{RawSample, StackEnd};
use super::tables::Tables;
use super::{Config, Lost, Moment, Report, python, scan};
use crate::error::{Error, Result};
use crate::kernel::clock;
use crate::object::Storage;

/// How often the ring and the side bands are read.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct Sampler<'obj> {
    backend: Backend<'obj>,
    side_bands: Vec<SideBand>,
    upcoming: Upcoming,
    processes: Processes,
    tables: Tables,
    kernel: KernelCode,
    /// Whom the program was told of.
    told: BTreeSet<Pid>,
    /// Of whom it is to be told when their files were read.
    waiting: BTreeSet<Pid>,
    /// Processes of which a thread ended.
    ended: BTreeMap<Pid, Ended>,
    report: Report,
    /// Samples whose head could not be read.
    unreadable: u64,
    /// What was told of losses.
    lost: Lost,
    /// What happened until this moment was taken in: `CLOCK_MONOTONIC`.
    taken_in_ns: u64,
    /// When the clocks stop: `CLOCK_MONOTONIC`.
    end_ns: u64,
    to: Sender<Message>,
    in_flight: &'obj InFlight,
}

impl Sampler<'_> {
    /// Samples as `config` says until `stop`, or until nobody listens. The samples are counted by whoever listens.
    ///
    /// # Errors
    /// As [`sample`](super::sample()).
    pub(super) fn run(
        config: &Config,
        stop: &AtomicBool,
        to: Sender<Message>,
        in_flight: &InFlight,
        caller: Tid,
    ) -> Result<Report> {
        let mut storage = Storage::new();
        let cpus = scan::online_cpus().map_err(Error::os("list the CPUs"))?;
        let (backend, side_bands) = Backend::open(&mut storage, config, &cpus, caller)?;
        let tables = Tables::new(backend.for_whom()).map_err(Error::os("make an event"))?;
        let sampler = Sampler {
            backend,
            side_bands,
            upcoming: Upcoming::default(),
            processes: Processes::default(),
            tables,
            kernel: KernelCode::default(),
            told: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ended: BTreeMap::new(),
            report: Report::default(),
            unreadable: 0,
            lost: Lost::default(),
            taken_in_ns: 0,
            end_ns: u64::MAX,
            to,
            in_flight,
        };
        sampler.go(config, &cpus, stop)
    }

    fn go(mut self, config: &Config, cpus: &[i32], stop: &AtomicBool) -> Result<Report> {
        // What happens while these are read is in the side bands already, and comes after.
        let listed = config.processes.as_deref();
        for pid in listed.unwrap_or_default() {
            self.backend.list(*pid)?;
        }
        let at_ns = clock::monotonic_ns();
        for change in scan::processes(listed) {
            self.processes.apply(at_ns, change);
        }
        self.processes.take_changed();
        self.allow_stacks(cpus.len());
        // Of these the first samples shall be whole, however deep their stacks.
        let own = Pid::new(process::id().cast_signed());
        let mut others: BTreeSet<Pid> = listed.unwrap_or_default().iter().copied().collect();
        if others.remove(&own) {
            self.read_libraries(own);
        }
        self.want(others)?;
        while self.tables.being_read() > 0 && !stop.load(Ordering::Relaxed) {
            self.tell_those_read(TICK)?;
        }
        let queue = Rc::new(RefCell::new(Queue::new(self.in_flight)));
        let into = Rc::clone(&queue);
        let ring = match &self.backend {
            Backend::Programs(programs) => {
                Some(programs.ring(move |bytes| into.borrow_mut().push(bytes))?)
            }
            Backend::Copies { .. } => None,
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let length_ns = config.duration.map_or(u64::MAX, nanoseconds);
        let mut controller =
            Controller::new(config.budget.clone(), config.frequency_hz, cpus.len());
        self.backend.set(&controller.settings())?;
        let mut pacer = Pacer::new(config.frequency_hz, cpus.len());
        let counts = self.backend.counts();
        self.backend.set_pace(pacer.next(clock::monotonic_ns(), &counts));
        self.end_ns = clock::monotonic_ns().saturating_add(length_ns);
        self.backend.start(cpus, config, self.end_ns)?;
        let mut next_tick_ns = 0;
        let mut giving_back = GivingBack::default();
        let mut is_heard = self.to.send(Message::Started(self.backend.means())).is_ok();
        loop {
            let is_over = !is_heard || self.is_over(stop);
            if !is_over {
                self.wait()?;
            }
            // What happened before this moment is in the side bands when they are read after it.
            let now_ns = clock::monotonic_ns();
            let until_ns = if is_over { u64::MAX } else { now_ns };
            match &ring {
                Some(ring) => ring.consume().map_err(Error::bpf("read samples"))?,
                None => self.read_copies(&mut queue.borrow_mut()),
            }
            let samples = queue.borrow_mut().take(until_ns);
            self.turn(samples, now_ns, until_ns)?;
            self.is_over(stop);
            {
                let queue = queue.borrow();
                self.report.no_room = queue.no_room;
                self.report.malformed_samples = queue.malformed + self.unreadable;
            }
            self.report.counts = self.backend.counts();
            let time_ns = if is_over { clock::monotonic_ns() } else { until_ns };
            if controller.is_due(time_ns) {
                let used = self.used(&controller);
                if controller.look(time_ns, used) {
                    self.backend.set(&controller.settings())?;
                }
            }
            let forget = controller.take_forget();
            if forget {
                self.tables.forget_all_unused(self.backend.tables());
            }
            is_heard = self.tell_moment(time_ns, controller.settings(), forget);
            if is_over {
                break;
            }
            // A turn may come before its time.
            if time_ns >= next_tick_ns {
                self.allow_stacks(cpus.len());
                self.backend.set_pace(pacer.next(clock::monotonic_ns(), &self.report.counts));
                giving_back.look(time_ns, scan::own_memory_bytes);
                next_tick_ns = time_ns.saturating_add(nanoseconds(TICK));
            }
        }
        drop(ring);
        self.report.files = self.tables.left_out;
        self.report.python.processes_left_out = self.backend.pythons_left_out();
        self.report.processes_left_out = self.processes.left_out();
        self.report.kernel_functions_left_out = self.kernel.left_out();
        self.report.spans_left_out = self.backend.spans_left_out();
        Ok(self.report)
    }

    /// Copies fill half of the ring until the next tick at most, and half of what may wait behind it: samples have room, whatever their stacks take.
    fn allow_stacks(&mut self, cpus: usize) {
        let ring = ring_bytes(u32::try_from(cpus).unwrap_or(u32::MAX)) as usize;
        let bytes = (ring / 2).min(self.in_flight.room() / 2);
        self.backend.allow_stacks(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Waits until the program or the thread that reads files has something to tell, but no longer than a tick.
    fn wait(&self) -> Result<()> {
        let Some(samples) = self.backend.news() else {
            wait_for_copies();
            return Ok(());
        };
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        let mut news =
            [samples, self.tables.news()].map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
        match poll(&mut news, Some(&tick)) {
            // A debugger, or a machine that was suspended.
            Err(Errno::INTR) => Ok(()),
            polled => polled.map(drop).map_err(Error::os("wait for samples")),
        }
    }

    fn read_copies(&mut self, queue: &mut Queue<'_>) {
        if let Backend::Copies { copies, .. } = &mut self.backend {
            copies.read(|sample| queue.push(sample));
            queue.malformed = copies.malformed();
        }
    }

    /// Goes through the samples until a moment and all that happened until then, in order; it begins at `now_ns` or later.
    fn turn(&mut self, samples: Vec<(u64, Vec<u8>)>, now_ns: u64, until_ns: u64) -> Result<()> {
        self.kernel.look_up(&samples, clock::monotonic_ns);
        for side_band in &mut self.side_bands {
            self.upcoming.extend(changes(side_band.read(), &mut self.report.malformed));
        }
        let happened = self.upcoming.take(until_ns);
        happened.iter().for_each(|change| self.kernel.apply(change));
        let last_ns = samples.last().map(|(at_ns, _)| *at_ns);
        let mut happened = happened.into_iter().peekable();
        let mut wanted = BTreeSet::new();
        let mut messages = Vec::with_capacity(samples.len());
        for (at_ns, bytes) in samples {
            while let Some(change) = happened.next_if(|it| it.at_ns <= at_ns) {
                self.apply(change);
            }
            let Some(raw) = RawSample::read(&bytes) else {
                self.unreadable += 1;
                continue;
            };
            let process = self.processes.get(raw.pid).cloned();
            if matches!(raw.end, StackEnd::NoProcess | StackEnd::NoMapping) {
                wanted.insert(raw.pid);
            }
            // As it is at this moment: it may have other files before the turn is over, or end.
            if let Some(process) = &process
                && process.is_first_sampled()
            {
                self.tables.prepare(raw.pid, process);
            }
            let kernel = self.kernel.frames(&raw);
            messages.push(Message::Sample { bytes, process, kernel });
        }
        for message in messages {
            if let Message::Sample { bytes, .. } = &message {
                self.in_flight.put(bytes.len());
            }
            // When nobody listens any more, the next moment will tell.
            drop(self.to.send(message));
        }
        happened.for_each(|change| self.apply(change));
        self.taken_in_ns = now_ns;
        if let Some(last_ns) = last_ns {
            self.kernel.forget(last_ns);
        }
        let changed = self.processes.take_changed();
        // What CPython runs cannot be learnt from a copy of the stack, so the program is told before the first sample.
        let is_python = |pid| self.processes.get(pid).is_some_and(|it| python::is_expected(it));
        wanted.extend(changed.into_iter().filter(|pid| self.told.contains(pid) || is_python(*pid)));
        self.want(wanted)?;
        self.tell_those_read(Duration::ZERO)?;
        self.backend.tell_spans_again(&self.processes);
        self.forget_ended();
        Ok(())
    }

    /// Has the libraries of this process read, which what it starts mostly has, too. Its program, which is large, is not sampled.
    fn read_libraries(&mut self, own: Pid) {
        let Some(process) = self.processes.get(own) else { return };
        let mut process = Process::clone(process);
        let program = process.executable.take();
        process.code.retain(|_, mapping| Some(&mapping.file) != program.as_ref());
        self.tables.prepare(own, &process);
    }

    /// Tells the program of processes, of each when its files were read.
    fn want(&mut self, pids: BTreeSet<Pid>) -> Result<()> {
        let mut ready = Vec::new();
        for pid in pids {
            self.hold(pid);
            let Some(process) = self.processes.get(pid) else { continue };
            if self.tables.prepare(pid, process) {
                ready.push((pid, Arc::clone(process)));
            } else {
                self.backend.tell_interpreter(pid, process)?;
                self.waiting.insert(pid);
            }
        }
        self.backend.tell(&ready)?;
        self.told.extend(ready.into_iter().map(|(pid, _)| pid));
        Ok(())
    }

    /// When a process begins another program, the moment of that comes after all that the kernel maps for it, and what is known of the
    /// process holds until then. A static program maps nothing more.
    fn hold(&mut self, pid: Pid) {
        let is_new = self.processes.get(pid).is_some_and(|process| process.begun_ns > 0);
        let begun_ns = if is_new { self.backend.begun_ns(pid) } else { None };
        if let Some(begun_ns) = begun_ns.filter(|at_ns| *at_ns <= self.taken_in_ns) {
            self.processes.hold_until(pid, begun_ns);
        }
    }

    /// Tells the program of the processes whose files were read meanwhile.
    fn tell_those_read(&mut self, patience: Duration) -> Result<()> {
        if self.tables.take_read(self.backend.tables(), patience)? {
            let waiting = std::mem::take(&mut self.waiting);
            self.want(waiting)?;
        }
        Ok(())
    }

    /// Says that all until a moment was given, and what was lost of it. Whether someone listens.
    fn tell_moment(&mut self, time_ns: u64, settings: Settings, forget: bool) -> bool {
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
        self.to.send(Message::Until(Moment { time_ns, lost: since, settings, forget })).is_ok()
    }

    /// What was used until now.
    fn used(&self, controller: &Controller) -> Used {
        Used {
            cpu_ns: self.report.counts.spent_ns.saturating_add(clock::own_cpu_ns()),
            bytes: controller.bytes_sent(),
            memory_bytes: scan::own_memory_bytes(),
        }
    }

    /// Whether the time is over, or someone says so. The clocks stand from then on.
    fn is_over(&mut self, stop: &AtomicBool) -> bool {
        let is_over = stop.load(Ordering::Relaxed) || clock::monotonic_ns() >= self.end_ns;
        if is_over {
            self.backend.stop();
        }
        is_over
    }

    fn apply(&mut self, Timed { at_ns, change }: Timed) {
        match &change {
            Change::Exit { pid, tid } if pid.get() == tid.get() => {
                self.ended.insert(*pid, Ended { at_ns, is_gone: false });
            }
            Change::Lost(count) => self.report.changes_lost += count,
            _ => {}
        }
        self.processes.apply(at_ns, change);
    }

    /// Processes whose first thread ended go when they are gone; one may have other threads for long. They go a turn later: until then
    /// samples of their last moments may come. Who has the number after them stays.
    fn forget_ended(&mut self) {
        let mut gone = Vec::new();
        self.ended.retain(|pid, ended| {
            let changed_ns = self.processes.get(*pid).map_or(0, |process| process.changed_ns);
            let is_over = ended.is_gone && changed_ns <= ended.at_ns;
            if is_over {
                gone.push(*pid);
            }
            ended.is_gone = !scan::is_there(*pid);
            !is_over && changed_ns <= ended.at_ns
        });
        for pid in &gone {
            self.processes.forget(*pid);
        }
        gone.retain(|pid| self.told.remove(pid));
        self.backend.forget(&gone);
        if !self.processes.take_ended().is_empty() {
            self.processes.forget_unused_files();
            self.tables.forget_unused(self.backend.tables());
        }
    }
}

/// Rings of copies are read at their time: waiting for their events would end at once when the process that they were opened for has ended.
#[expect(clippy::disallowed_methods, reason = "there is nothing to wait for but the time")]
fn wait_for_copies() {
    thread::sleep(TICK);
}

/// The first thread of a process ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    at_ns: u64,
    /// Whether it was not there any more at the end of the last turn.
    is_gone: bool,
}
