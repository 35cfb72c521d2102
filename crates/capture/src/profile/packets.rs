//! Packets of samples that can be read alone: each has the names of all its frames.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use profile::{
    AddError, BuildId, Builder, Frame, FrameId, FrameKind, Line, Mapping, Names, Packet, Process,
    ProcessId, SampleKind, Status, Unnamed, Window,
};
use symbols::Kernel;

use super::sample::StackEnd;
use super::tables::{Code, Identity};
use super::{FilePlace, Sample, UserFrame};
use crate::kernel::clock;

/// Puts samples into packets, one for each window of time.
#[derive(Debug)]
pub struct Packer {
    window_ns: u64,
    period_ns: u64,
    open: Option<Open>,
    /// Read when the first frame of the kernel comes.
    kernel: Option<Kernel>,
    lost: u64,
}

/// The packet of a window that is not over.
#[derive(Debug)]
struct Open {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    end_ns: u64,
    /// From there to the epoch.
    epoch_ns: u64,
    builder: Builder,
    /// What was named in this packet already; saves work only.
    user: HashMap<(usize, u64), FrameId>,
    in_kernel: HashMap<u64, FrameId>,
    processes: HashMap<(i32, u64, usize), ProcessId>,
}

impl Packer {
    /// For samples that stand for a period of a clock.
    #[must_use]
    pub fn new(window: Duration, frequency_hz: u64) -> Self {
        Self {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1),
            period_ns: 1_000_000_000 / frequency_hz.max(1),
            open: None,
            kernel: None,
            lost: 0,
        }
    }

    /// Takes in a sample. Gives the packet before it when that is over.
    pub fn add(&mut self, sample: &Sample) -> Option<Packet> {
        let is_over = self.open.as_ref().is_some_and(|open| sample.time_ns >= open.end_ns);
        let mut done = if is_over { self.take() } else { None };
        match self.put(sample) {
            Ok(()) => {}
            Err(AddError::Full) => {
                done = done.or_else(|| self.take());
                self.lost += u64::from(self.put(sample).is_err());
            }
            Err(_no_place) => self.lost += 1,
        }
        done
    }

    /// The packet of the last window, which ends now.
    #[must_use]
    pub fn finish(mut self) -> Option<Packet> {
        self.take()
    }

    fn take(&mut self) -> Option<Packet> {
        let mut open = self.open.take()?;
        open.builder.lost("no_place_in_packet", std::mem::take(&mut self.lost));
        Some(open.builder.finish())
    }

    fn put(&mut self, sample: &Sample) -> Result<(), AddError> {
        let (window_ns, period_ns) = (self.window_ns, self.period_ns);
        let open = self.open.get_or_insert_with(|| Open::new(sample.time_ns, window_ns, period_ns));
        let process = open.process(sample)?;
        let mut frames = Vec::with_capacity(sample.kernel.len() + sample.user.len());
        for address in &sample.kernel {
            frames.push(open.kernel_frame(*address, &mut self.kernel)?);
        }
        for frame in &sample.user {
            frames.push(open.user_frame(frame)?);
        }
        let thread_name = String::from_utf8_lossy(&sample.name);
        open.builder.add(&profile::Sample {
            process,
            tid: sample.tid.get().cast_unsigned(),
            thread_name: &thread_name,
            cpu: sample.cpu.get(),
            at_unix_ns: open.epoch_ns.wrapping_add(sample.time_ns),
            value: 1,
            link: None,
            frames: &frames,
            status: status(sample.end),
        })
    }
}

impl Open {
    fn new(begin_ns: u64, window_ns: u64, period_ns: u64) -> Self {
        let epoch_ns = clock::monotonic_to_unix_ns();
        let window =
            Window { begin_unix_ns: epoch_ns.wrapping_add(begin_ns), duration_ns: window_ns };
        Self {
            end_ns: begin_ns.saturating_add(window_ns),
            epoch_ns,
            builder: Builder::new(window, SampleKind::OnCpu { period_ns }),
            user: HashMap::new(),
            in_kernel: HashMap::new(),
            processes: HashMap::new(),
        }
    }

    fn process(&mut self, sample: &Sample) -> Result<ProcessId, AddError> {
        let program = sample.executable.as_ref();
        let key = (sample.pid.get(), sample.process_start_ns, program.map_or(0, address_of));
        if let Some(known) = self.processes.get(&key) {
            return Ok(*known);
        }
        let path = program.map(|it| it.path.to_string_lossy()).unwrap_or_default();
        let thread_name = String::from_utf8_lossy(&sample.name);
        let name = path.rsplit('/').next().filter(|name| !name.is_empty());
        let id = self.builder.process(&Process {
            pid: sample.pid.get().cast_unsigned(),
            start_boot_ns: sample.process_start_ns,
            executable_name: name.unwrap_or(&thread_name),
            executable_path: &path,
            attributes: &[],
        })?;
        self.processes.insert(key, id);
        Ok(id)
    }

    fn user_frame(&mut self, frame: &UserFrame) -> Result<FrameId, AddError> {
        let Some(place) = &frame.file else {
            return self.builder.frame(&unnamed(frame.address, Unnamed::NoMapping));
        };
        let Some(code) = place.code.as_ref().filter(|_| !place.file.is_anonymous()) else {
            let why = if place.file.is_anonymous() { Unnamed::Anonymous } else { Unnamed::NoFile };
            return self.builder.frame(&unnamed(frame.address, why));
        };
        let key = (address_of(code), place.offset);
        if let Some(known) = self.user.get(&key) {
            return Ok(*known);
        }
        let id = self.name(place, code, frame.address)?;
        self.user.insert(key, id);
        Ok(id)
    }

    fn name(&mut self, place: &FilePlace, code: &Code, at: u64) -> Result<FrameId, AddError> {
        let path = place.path().to_string_lossy();
        let build_id = match code.identity() {
            Identity::BuildId(id) => Some(BuildId::Gnu(id)),
            Identity::Hash(hash) => Some(BuildId::HtlHash(hash)),
            Identity::Unknown => None,
        };
        // By the file's own addresses, so that a file is one mapping wherever the loader puts it.
        let (begin, end, file_offset) = place.memory;
        let memory_start = code.address_of(file_offset).unwrap_or(0);
        let mapping = Mapping {
            memory_start,
            memory_limit: memory_start.saturating_add(end.saturating_sub(begin)),
            file_offset,
            path: &path,
            build_ids: build_id.as_slice(),
        };
        let address = code.address_of(place.offset);
        let functions = code.functions();
        let found = functions.zip(address).and_then(|(all, address)| all.find(address));
        let readable = found.map(|found| symbols::readable(found.name));
        let line = found.zip(readable.as_deref()).map(|(found, readable)| Line {
            function: readable,
            system_name: if readable == found.name { "" } else { found.name },
            ..Line::default()
        });
        let names = match &line {
            Some(line) => Names::Known(std::slice::from_ref(line)),
            None if functions.is_none() => Names::Unnamed(Unnamed::NoFile),
            None => Names::Unnamed(Unnamed::NoSymbol),
        };
        self.builder.frame(&Frame {
            kind: FrameKind::Native,
            mapping: Some(&mapping),
            address: address.unwrap_or(at),
            names,
        })
    }

    fn kernel_frame(&mut self, at: u64, kernel: &mut Option<Kernel>) -> Result<FrameId, AddError> {
        if let Some(known) = self.in_kernel.get(&at) {
            return Ok(*known);
        }
        let read = || Kernel::of(&fs::read("/proc/kallsyms").unwrap_or_default());
        let kernel = kernel.get_or_insert_with(read);
        let found = kernel.find(at);
        let line = found.map(|found| Line { function: found.name, ..Line::default() });
        let names = match &line {
            Some(line) => Names::Known(std::slice::from_ref(line)),
            None if kernel.is_empty() => Names::Unnamed(Unnamed::Hidden),
            None => Names::Unnamed(Unnamed::NoSymbol),
        };
        let module = found.and_then(|found| found.module).unwrap_or("kernel");
        let mapping = Mapping {
            memory_start: 0,
            memory_limit: 0,
            file_offset: 0,
            path: &format!("[{module}]"),
            build_ids: &[],
        };
        let frame = Frame { kind: FrameKind::Kernel, mapping: Some(&mapping), address: at, names };
        let id = self.builder.frame(&frame)?;
        self.in_kernel.insert(at, id);
        Ok(id)
    }
}

fn address_of<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

const fn unnamed(address: u64, why: Unnamed) -> Frame<'static> {
    Frame { kind: FrameKind::Native, mapping: None, address, names: Names::Unnamed(why) }
}

const fn status(end: StackEnd) -> Status {
    match end {
        // The kernel's own stack is given whole.
        StackEnd::None | StackEnd::Root => Status::Root,
        StackEnd::NoProcess | StackEnd::NoMapping => Status::NoMapping,
        StackEnd::NoRule | StackEnd::Not64Bit | StackEnd::Loop => Status::NoRow,
        StackEnd::NoMemory => Status::Fault,
        StackEnd::TooDeep => Status::Truncated,
    }
}
