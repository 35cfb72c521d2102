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

use super::epoch::Epoch;
use super::sample::StackEnd;
use super::tables::{Code, Identity};
use super::{FilePlace, Sample, UserFrame};
use crate::kernel::clock;

/// Puts samples into packets, one for each window of time.
#[derive(Debug)]
pub struct Packer {
    window_ns: u64,
    period_ns: u64,
    /// What all processes have alike.
    attributes: Vec<(String, String)>,
    epoch: Epoch,
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
            attributes: Vec::new(),
            epoch: Epoch::new(clock::monotonic_to_unix_ns),
            open: None,
            kernel: None,
            lost: 0,
        }
    }

    /// Has all processes carry these attributes, key and value, under the names of [`profile::keys`] or others.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Vec<(String, String)>) -> Self {
        self.attributes = attributes;
        self
    }

    /// Gives the packet that is over because no sample before this time comes any more: `CLOCK_MONOTONIC`, nanoseconds.
    pub fn until(&mut self, time_ns: u64) -> Option<Packet> {
        let is_over = self.open.as_ref().is_some_and(|open| time_ns >= open.end_ns);
        if is_over { self.take() } else { None }
    }

    /// Has the open packet tell of samples that were lost, by a class such as `ring_full`. False, and nothing is told, when none
    /// is open: say it again.
    pub fn lost(&mut self, class: &str, samples: u64) -> bool {
        let open = self.open.as_mut();
        open.map(|open| open.builder.lost(class, samples)).is_some()
    }

    /// Takes in a sample. Gives the packet before it when that is over.
    pub fn add(&mut self, sample: &Sample) -> Option<Packet> {
        let mut done = self.until(sample.time_ns);
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
        let epoch = &mut self.epoch;
        let open = self.open.get_or_insert_with(|| {
            Open::new(sample.time_ns, epoch.of_window(), window_ns, period_ns)
        });
        let process = open.process(sample, &self.attributes)?;
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
    fn new(begin_ns: u64, epoch_ns: u64, window_ns: u64, period_ns: u64) -> Self {
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

    fn process(
        &mut self,
        sample: &Sample,
        attributes: &[(String, String)],
    ) -> Result<ProcessId, AddError> {
        let program = sample.executable.as_ref();
        let key = (sample.pid.get(), sample.process_start_ns, program.map_or(0, address_of));
        if let Some(known) = self.processes.get(&key) {
            return Ok(*known);
        }
        let path = program.map(|it| it.path.to_string_lossy()).unwrap_or_default();
        let thread_name = String::from_utf8_lossy(&sample.name);
        let name = path.rsplit('/').next().filter(|name| !name.is_empty());
        let attributes: Vec<(&str, &str)> =
            attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let id = self.builder.process(&Process {
            pid: sample.pid.get().cast_unsigned(),
            start_boot_ns: sample.process_start_ns,
            executable_name: name.unwrap_or(&thread_name),
            executable_path: &path,
            attributes: &attributes,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use model::{CpuId, Pid, Tid};
    use profile::{Limits, Request};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: u64 = 3_600 * SECOND_NS;

    fn sample(time_ns: u64) -> Sample {
        Sample {
            time_ns,
            weight_ns: SECOND_NS / 99,
            pid: Pid::new(7),
            process_start_ns: 1,
            tid: Tid::new(7),
            name: b"app".to_vec(),
            executable: None,
            cpu: CpuId::new(0),
            cgroup: 0,
            kernel: vec![0xffff_ffff_8100_0000],
            user: Vec::new(),
            end: StackEnd::Root,
        }
    }

    fn times(packet: &Packet) -> (u64, u64, Vec<u64>) {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        let profile = &request.resources[0].profiles[0];
        let times = profile.samples.iter().flat_map(|sample| sample.times_unix_ns.clone());
        (profile.time_unix_ns, profile.time_unix_ns + profile.duration_ns, times.collect())
    }

    #[test]
    fn packets_never_begin_before_an_earlier_one_when_the_clock_is_set() {
        static OFFSET: AtomicU64 = AtomicU64::new(500 * HOUR_NS);
        let mut packer = Packer::new(Duration::from_secs(5), 99);
        packer.epoch = Epoch::new(|| OFFSET.load(Ordering::Relaxed));
        let mut packets = Vec::new();
        for second in 0..60 {
            match second {
                20 => OFFSET.fetch_sub(HOUR_NS, Ordering::Relaxed),
                40 => OFFSET.fetch_add(2 * HOUR_NS, Ordering::Relaxed),
                _ => 0,
            };
            packets.extend(packer.add(&sample(second * SECOND_NS)));
        }
        packets.extend(packer.finish());
        assert_eq!(packets.len(), 12);
        let mut before = 0;
        for packet in &packets {
            let (begin, end, times) = times(packet);
            assert_eq!(packet.begin_unix_ns, begin);
            assert!(begin > before, "{begin} {before}");
            assert!(times.len() == 5 && times.iter().all(|at| (begin..end).contains(at)));
            before = begin;
        }
        // Set forward is followed.
        assert!(before > 501 * HOUR_NS, "{before}");
    }

    #[test]
    fn a_window_is_over_by_time_and_tells_what_was_lost_meanwhile() {
        let mut packer = Packer::new(Duration::from_secs(5), 99)
            .with_attributes(vec![("host.name".to_owned(), "h1".to_owned())]);
        assert!(!packer.lost("undelivered.age", 3));
        assert_eq!(packer.add(&sample(10)), None);
        assert!(packer.lost("undelivered.age", 3));
        assert_eq!(packer.until(10 + 5 * SECOND_NS - 1), None);
        let packet = packer.until(10 + 5 * SECOND_NS).unwrap();
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.losses(), [("undelivered.age".to_owned(), 3)]);
        let host = request.resources[0].find_text(&request.dictionary, "host.name");
        assert_eq!(host, Some("h1"));
        assert_eq!(packer.until(u64::MAX), None);
    }
}
