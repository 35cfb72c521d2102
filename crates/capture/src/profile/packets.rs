//! Packets of samples that can be read alone: each has the names of all its frames.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gopclntab::GoFrame;
use profile::{
    AddError, BuildId, Builder, Control, Frame, FrameId, FrameKind, Line, Mapping, Names, Packet,
    Process, ProcessId, SampleKind, Status, Unnamed, Window,
};
use symbols::jit::V8Name;
use symbols::{KernelFunction, SourceLine};

use super::cache::Cache;
use super::code::{Code, Identity};
use super::control::{Reason, Settings};
use super::epoch::Epoch;
use super::jit::Jit;
use super::kernel_ids::KernelIds;
use super::lines::{LinesLeftOut, SourceLines};
use super::processes::CodeFile;
use super::resource::Resources;
use super::sample::StackEnd;
use super::{
    FilePlace, KernelFrame, Lost, Moment, PythonEnd, PythonFrame, Sample, StackFrame, UserFrame,
};
use crate::kernel::clock;

/// Frames of one packet whose names are kept for its next samples, unless it is said otherwise: seven times as many as five seconds
/// of a busy machine with two CPUs had, in 3 MB.
const CACHE_ENTRIES: usize = 1 << 14;

/// Puts samples into packets: for each window of time one of those on a CPU, and one of those off it.
#[derive(Debug)]
pub struct Packer {
    on_cpu: Half,
    off_cpu: Half,
    common: Common,
}

/// What all packets have alike.
#[derive(Debug)]
struct Common {
    window_ns: u64,
    /// As they were told last.
    settings: Option<Settings>,
    /// Of all processes.
    attributes: Vec<(String, String)>,
    epoch: Epoch,
    resources: Resources,
    jit: Jit,
    lines: SourceLines,
    /// Of each cache.
    cache_entries: usize,
}

/// The packets of one kind of sample.
#[derive(Debug)]
struct Half {
    kind: SampleKind,
    open: Option<Open>,
    /// What was lost since the last packet, by class.
    lost: BTreeMap<String, u64>,
}

/// The packet of a window that is not over.
#[derive(Debug)]
struct Open {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    end_ns: u64,
    /// From there to the epoch.
    epoch_ns: u64,
    builder: Builder,
    /// What was named in this packet already.
    user: Cache<UserKey, (FrameId, FilePlace)>,
    in_kernel: Cache<(usize, u64), (FrameId, Arc<KernelFunction>)>,
    kernel_ids: KernelIds,
    /// Who is in this packet, by number, begin, program and control group; the program is held for its address. No cache: what is said
    /// of a process is what was so at its first sample. The builder, which has all of them, too, bounds it.
    processes: HashMap<ProcessKey, (ProcessId, Option<Arc<CodeFile>>)>,
}

type ProcessKey = (i32, u64, usize, u64);

/// All that the name of a frame is made of: code and path by their addresses in memory, the place in the file, and of the mapping its
/// length and place in the file.
type UserKey = (usize, usize, u64, u64, u64);

impl Packer {
    /// For samples that stand for a period of a clock.
    #[must_use]
    pub fn new(window: Duration, frequency_hz: u64) -> Self {
        Self {
            on_cpu: Half::new(SampleKind::OnCpu { period_ns: 1_000_000_000 / frequency_hz.max(1) }),
            off_cpu: Half::new(SampleKind::OffCpu),
            common: Common {
                window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1),
                settings: None,
                attributes: Vec::new(),
                epoch: Epoch::new(clock::monotonic_to_unix_ns),
                resources: Resources::new(),
                jit: Jit::default(),
                lines: SourceLines::new(),
                cache_entries: CACHE_ENTRIES,
            },
        }
    }

    /// With so many bytes of memory for what was read of files' debug information, in place of 64 MiB. No byte of a packet depends on it.
    #[must_use]
    pub fn with_room_for_lines(mut self, bytes: usize) -> Self {
        self.common.lines = SourceLines::with_room(bytes);
        self
    }

    /// How often debug information was left out.
    #[must_use]
    pub const fn lines_left_out(&self) -> LinesLeftOut {
        self.common.lines.left_out()
    }

    /// Has all processes carry these attributes, key and value, under the names of [`profile::keys`] or others.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Vec<(String, String)>) -> Self {
        self.common.attributes = attributes;
        self
    }

    /// Has each cache hold so many values at most. No byte of a packet depends on it.
    #[must_use]
    pub const fn with_cache_entries(mut self, entries: usize) -> Self {
        self.common.cache_entries = entries;
        self
    }

    /// For samples that were taken when the clock of samples was so many nanoseconds behind the epoch, and are not put into packets
    /// at once.
    #[must_use]
    pub fn with_epoch(mut self, offset_ns: u64) -> Self {
        self.common.epoch = Epoch::fixed(offset_ns);
        self
    }

    /// Empties all caches of frames. No byte of a packet depends on it.
    pub fn forget(&mut self) {
        for open in
            [&mut self.on_cpu, &mut self.off_cpu].into_iter().filter_map(|it| it.open.as_mut())
        {
            open.user.forget();
            open.in_kernel.forget();
        }
    }

    /// Gives the packets that are over because no sample before this moment comes any more. What was lost is told in the
    /// packets that are open, or come next.
    pub fn until(&mut self, moment: &Moment) -> Vec<Packet> {
        let Lost { ring_full, queue_full, malformed, .. } = moment.lost;
        self.lost("ring_full", ring_full);
        self.lost("queue_full", queue_full);
        self.lost("malformed", malformed);
        self.off_cpu.lost("ring_full", moment.lost.off_cpu_ring_full);
        self.off_cpu.lost("kept_back", moment.lost.off_cpu_kept_back);
        self.off_cpu.lost("missed", moment.lost.off_cpu_missed);
        self.common.settings = Some(moment.settings);
        let halves = [&mut self.on_cpu, &mut self.off_cpu];
        halves.into_iter().filter_map(|half| half.take_over(moment.time_ns)).collect()
    }

    /// Has the packet of samples on a CPU that is open, or comes next, tell of samples that were lost, by a class such as `ring_full`.
    pub fn lost(&mut self, class: &str, samples: u64) {
        self.on_cpu.lost(class, samples);
    }

    /// As [`lost`](Self::lost), of samples of who waits.
    pub fn lost_off_cpu(&mut self, class: &str, samples: u64) {
        self.off_cpu.lost(class, samples);
    }

    /// The packets of the last window, which ends here.
    #[must_use]
    pub fn finish(mut self) -> Vec<Packet> {
        [&mut self.on_cpu, &mut self.off_cpu].into_iter().filter_map(Half::take).collect()
    }

    /// Takes in a sample. Gives the packet before it when that is over.
    pub fn add(&mut self, sample: &Sample) -> Option<Packet> {
        let half = if sample.off_cpu { &mut self.off_cpu } else { &mut self.on_cpu };
        let common = &mut self.common;
        let mut done = half.take_over(sample.time_ns).or_else(|| half.take_of_other_kind(sample));
        match half.put(sample, common) {
            Ok(()) => {}
            Err(AddError::Full) => {
                done = done.or_else(|| half.take());
                if half.put(sample, common).is_err() {
                    half.lost("no_place_in_packet", 1);
                }
            }
            Err(_no_place) => half.lost("no_place_in_packet", 1),
        }
        done
    }
}

impl Half {
    const fn new(kind: SampleKind) -> Self {
        Self { kind, open: None, lost: BTreeMap::new() }
    }

    fn lost(&mut self, class: &str, samples: u64) {
        if samples > 0 {
            *self.lost.entry(class.to_owned()).or_default() += samples;
        }
    }

    /// The packet whose window is over at a moment.
    fn take_over(&mut self, time_ns: u64) -> Option<Packet> {
        let is_over = self.open.as_ref().is_some_and(|open| time_ns >= open.end_ns);
        if is_over { self.take() } else { None }
    }

    /// The packet of samples that stand for another time than this one of the clock.
    fn take_of_other_kind(&mut self, sample: &Sample) -> Option<Packet> {
        let kind = SampleKind::OnCpu { period_ns: sample.weight_ns };
        if sample.off_cpu || kind == self.kind {
            return None;
        }
        self.kind = kind;
        self.take()
    }

    fn take(&mut self) -> Option<Packet> {
        let mut open = self.open.take()?;
        for (class, samples) in std::mem::take(&mut self.lost) {
            open.builder.lost(&class, samples);
        }
        Some(open.builder.finish())
    }

    fn put(&mut self, sample: &Sample, common: &mut Common) -> Result<(), AddError> {
        let kind = self.kind;
        let open = self.open.get_or_insert_with(|| {
            let windows = common.settings.map_or(1, |settings| settings.windows);
            let window_ns = common.window_ns.saturating_mul(windows.into());
            let epoch_ns = common.epoch.of_window();
            let entries = common.cache_entries;
            let mut open = Open::new(sample.time_ns, epoch_ns, window_ns, kind, entries);
            if let Some(settings) = common.settings {
                open.builder.control(&Control {
                    frequency_hz: u32::try_from(settings.frequency_hz).unwrap_or(u32::MAX),
                    window_ns,
                    max_frames: settings.max_frames,
                    reason: settings.reason.map_or("", Reason::as_str),
                });
            }
            open
        });
        let process = open.process(sample, &common.attributes, &mut common.resources)?;
        let mut frames = Vec::with_capacity(sample.kernel.len() + sample.user.len());
        for frame in &sample.kernel {
            frames.push(open.kernel_frame(frame)?);
        }
        for frame in &sample.user {
            frames.push(match frame {
                StackFrame::Native(frame) => open.user_frame(frame, sample, common)?,
                StackFrame::Python(frame) => open.python_frame(frame)?,
            });
        }
        let thread_name = String::from_utf8_lossy(&sample.name);
        open.builder.add(&profile::Sample {
            process,
            tid: sample.tid.get().cast_unsigned(),
            thread_name: &thread_name,
            cpu: sample.cpu.get(),
            at_unix_ns: open.epoch_ns.wrapping_add(sample.time_ns),
            value: if sample.off_cpu { sample.weight_ns } else { 1 },
            link: sample.span,
            frames: &frames,
            status: status(sample.end, sample.python),
        })
    }
}

impl Open {
    fn new(
        begin_ns: u64,
        epoch_ns: u64,
        window_ns: u64,
        kind: SampleKind,
        cache_entries: usize,
    ) -> Self {
        let window =
            Window { begin_unix_ns: epoch_ns.wrapping_add(begin_ns), duration_ns: window_ns };
        Self {
            end_ns: begin_ns.saturating_add(window_ns),
            epoch_ns,
            builder: Builder::new(window, kind),
            user: Cache::new(cache_entries),
            in_kernel: Cache::new(cache_entries),
            kernel_ids: KernelIds::default(),
            processes: HashMap::new(),
        }
    }

    fn process(
        &mut self,
        sample: &Sample,
        attributes: &[(String, String)],
        resources: &mut Resources,
    ) -> Result<ProcessId, AddError> {
        let program = sample.executable.as_ref();
        let place = program.map_or(0, address_of);
        let key = (sample.pid.get(), sample.process_start_ns, place, sample.cgroup);
        if let Some((known, _)) = self.processes.get(&key) {
            return Ok(*known);
        }
        let path = program.map(|it| it.path.to_string_lossy()).unwrap_or_default();
        let thread_name = String::from_utf8_lossy(&sample.name);
        let name = path.rsplit('/').next().filter(|name| !name.is_empty());
        let own = resources.attributes(sample);
        // Of two with one key the last stays: what was configured.
        let all = own.iter().chain(attributes);
        let attributes: Vec<(&str, &str)> =
            all.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let id = self.builder.process(&Process {
            pid: sample.pid.get().cast_unsigned(),
            start_boot_ns: sample.process_start_ns,
            executable_name: name.unwrap_or(&thread_name),
            executable_path: &path,
            attributes: &attributes,
        })?;
        self.processes.insert(key, (id, sample.executable.clone()));
        Ok(id)
    }

    fn python_frame(&mut self, frame: &PythonFrame) -> Result<FrameId, AddError> {
        let code = &frame.code;
        let line = code.function.as_deref().map(|function| Line {
            function,
            file: &code.file,
            line: frame.line,
            start_line: code.first_line,
            ..Line::default()
        });
        let names = match &line {
            Some(line) => Names::Known(std::slice::from_ref(line)),
            None => Names::Unnamed(Unnamed::NoSymbol),
        };
        self.builder.frame(&Frame { kind: FrameKind::CPython, mapping: None, address: 0, names })
    }

    fn user_frame(
        &mut self,
        frame: &UserFrame,
        sample: &Sample,
        Common { jit, lines, .. }: &mut Common,
    ) -> Result<FrameId, AddError> {
        let Some(place) = &frame.file else {
            return self.builder.frame(&unnamed(frame.address, Unnamed::NoMapping));
        };
        if place.file.is_anonymous() {
            return self.made_frame(frame.address, sample, jit);
        }
        let Some(code) = &place.code else {
            // All that is known of it is its path.
            let mapping = Mapping {
                memory_start: 0,
                memory_limit: 0,
                file_offset: 0,
                path: &place.path().to_string_lossy(),
                build_ids: &[],
            };
            let unread = unnamed(place.offset, Unnamed::NoFile);
            return self.builder.frame(&Frame { mapping: Some(&mapping), ..unread });
        };
        let (begin, end, file_offset) = place.memory;
        let memory_bytes = end.saturating_sub(begin);
        let key: UserKey =
            (address_of(code), address_of(&place.file), place.offset, memory_bytes, file_offset);
        if let Some((known, _)) = self.user.get(&key) {
            return Ok(*known);
        }
        let id = self.name(place, code, lines)?;
        self.user.insert(key, (id, place.clone()));
        Ok(id)
    }

    fn name(
        &mut self,
        place: &FilePlace,
        code: &Arc<Code>,
        lines: &mut SourceLines,
    ) -> Result<FrameId, AddError> {
        let path = place.path().to_string_lossy();
        let build_id = match code.identity() {
            Identity::BuildId(id) => Some(BuildId::Gnu(id)),
            Identity::Hash(hash) => Some(BuildId::HtlHash(hash)),
            Identity::Unknown => None,
        };
        let build_ids: Vec<BuildId<'_>> =
            build_id.into_iter().chain(code.go_build_id().map(BuildId::Go)).collect();
        // By the file's own addresses, so that a file is one mapping wherever the loader puts it.
        let (begin, end, file_offset) = place.memory;
        let memory_start = code.address_of(file_offset).unwrap_or(0);
        let mapping = Mapping {
            memory_start,
            memory_limit: memory_start.saturating_add(end.saturating_sub(begin)),
            file_offset,
            path: &path,
            build_ids: &build_ids,
        };
        let address = code.address_of(place.offset);
        let of_go = address.map(|address| code.go_frames(address)).unwrap_or_default();
        if !of_go.is_empty() {
            let lines: Vec<Line<'_>> = of_go.iter().map(go_line).collect();
            return self.builder.frame(&Frame {
                kind: FrameKind::Go,
                mapping: Some(&mapping),
                address: address.unwrap_or(place.offset),
                names: Names::Known(&lines),
            });
        }
        let found = address.map_or(Ok(None), |address| code.function(address));
        let readable = found.as_ref().ok().and_then(Option::as_deref).map(symbols::readable);
        let source = address.map(|address| lines.find(code, address)).unwrap_or_default();
        let lines = named(&source, readable.as_deref());
        let names = match lines.as_slice() {
            [] if found.is_err() => Names::Unnamed(Unnamed::NoFile),
            [] => Names::Unnamed(Unnamed::NoSymbol),
            known => Names::Known(known),
        };
        self.builder.frame(&Frame {
            kind: FrameKind::Native,
            mapping: Some(&mapping),
            address: address.unwrap_or(place.offset),
            names,
        })
    }

    /// Of code that the process made.
    fn made_frame(
        &mut self,
        address: u64,
        sample: &Sample,
        jit: &mut Jit,
    ) -> Result<FrameId, AddError> {
        let kind = sample.jit.kind;
        let found = match jit.find(sample, address) {
            Ok(found) => found,
            Err(why) => return self.builder.frame(&Frame { kind, ..unnamed(address, why) }),
        };
        let as_written = V8Name::of(found.name).filter(|_| kind == FrameKind::V8Js);
        let (file, line) = found.line.unwrap_or_default();
        let line = match as_written {
            Some(it) => Line {
                function: it.function,
                system_name: found.name,
                file: if file.is_empty() { it.file } else { file },
                line,
                start_line: it.line,
            },
            None => Line { function: found.name, file, line, ..Line::default() },
        };
        let names = Names::Known(std::slice::from_ref(&line));
        self.builder.frame(&Frame { kind, mapping: None, address, names })
    }

    fn kernel_frame(&mut self, frame: &KernelFrame) -> Result<FrameId, AddError> {
        let function = match &frame.function {
            Ok(function) => function,
            Err(why) => return self.kernel_place(frame.address, None, Names::Unnamed(*why)),
        };
        let key = (address_of(function), frame.address);
        if let Some((known, _)) = self.in_kernel.get(&key) {
            return Ok(*known);
        }
        let line = Line { function: &function.name, ..Line::default() };
        let names = Names::Known(std::slice::from_ref(&line));
        let id = self.kernel_place(frame.address, function.module.as_deref(), names)?;
        self.in_kernel.insert(key, (id, Arc::clone(function)));
        Ok(id)
    }

    /// A place in the kernel's own code or in that of a module.
    fn kernel_place(
        &mut self,
        address: u64,
        module: Option<&str>,
        names: Names<'_>,
    ) -> Result<FrameId, AddError> {
        let build_id = self.kernel_ids.of(module);
        let build_ids = build_id.as_deref().map(BuildId::Gnu);
        let mapping = Mapping {
            memory_start: 0,
            memory_limit: 0,
            file_offset: 0,
            path: &format!("[{}]", module.unwrap_or("kernel")),
            build_ids: build_ids.as_slice(),
        };
        let frame = Frame { kind: FrameKind::Kernel, mapping: Some(&mapping), address, names };
        self.builder.frame(&frame)
    }
}

/// The functions at an address, innermost first. The one whose code it is has the name that the symbol table has for it, so that it is
/// the same with and without debug information, and of a function that was split tells its part.
fn named<'a>(source: &'a [SourceLine], symbol: Option<&'a str>) -> Vec<Line<'a>> {
    let outermost = source.len().saturating_sub(1);
    let line = |(at, line): (usize, &'a SourceLine)| {
        let symbol = symbol.filter(|_| at == outermost);
        let function = line.function.as_ref().map(|it| it.readable.as_str());
        Line {
            function: symbol.or(function).unwrap_or_default(),
            system_name: "",
            file: line.file.as_deref().unwrap_or_default(),
            line: line.line,
            start_line: line.start_line,
        }
    };
    if source.is_empty() {
        return symbol.map(|function| Line { function, ..Line::default() }).into_iter().collect();
    }
    source.iter().enumerate().map(line).collect()
}

fn address_of<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

fn go_line(frame: &GoFrame) -> Line<'_> {
    let GoFrame { name, file, line, start_line } = frame;
    Line { function: name, system_name: "", file, line: *line, start_line: *start_line }
}

const fn unnamed(address: u64, why: Unnamed) -> Frame<'static> {
    Frame { kind: FrameKind::Native, mapping: None, address, names: Names::Unnamed(why) }
}

const fn status(end: StackEnd, python: PythonEnd) -> Status {
    match end {
        StackEnd::Root => match python {
            PythonEnd::None | PythonEnd::Root => Status::Root,
            PythonEnd::TooDeep | PythonEnd::NoRoom => Status::Truncated,
            PythonEnd::NoMemory => Status::Fault,
            PythonEnd::NoFrames | PythonEnd::ManyThreads | PythonEnd::Unknown => {
                Status::Interpreter
            }
        },
        // The kernel's own stack is given whole.
        StackEnd::None => Status::Root,
        StackEnd::NoProcess | StackEnd::NoMapping => Status::NoMapping,
        StackEnd::NoRule | StackEnd::Not64Bit | StackEnd::Loop => Status::NoRow,
        StackEnd::NoMemory => Status::Fault,
        StackEnd::TooDeep => Status::Truncated,
        StackEnd::Late => Status::Late,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use model::{CpuId, Pid, Tid};
    use profile::{Limits, Request};

    use super::super::jit::JitMaker;
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: u64 = 3_600 * SECOND_NS;

    fn sample(time_ns: u64) -> Sample {
        Sample {
            time_ns,
            weight_ns: SECOND_NS / 99,
            off_cpu: false,
            pid: Pid::new(7),
            process_start_ns: 1,
            tid: Tid::new(7),
            name: b"app".to_vec(),
            executable: None,
            jit: JitMaker::default(),
            cpu: CpuId::new(0),
            cgroup: 0,
            span: None,
            kernel: vec![KernelFrame {
                address: 0xffff_ffff_8100_0000,
                function: Err(Unnamed::NoSymbol),
            }],
            user: Vec::new(),
            end: StackEnd::Root,
            python: PythonEnd::None,
        }
    }

    fn times(packet: &Packet) -> (u64, u64, Vec<u64>) {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        let profile = &request.resources[0].profiles[0];
        let times = profile.samples.iter().flat_map(|sample| sample.times_unix_ns.clone());
        (profile.time_unix_ns, profile.time_unix_ns + profile.duration_ns, times.collect())
    }

    #[test]
    fn s13_packets_never_begin_before_an_earlier_one_when_the_clock_is_set() {
        static OFFSET: AtomicU64 = AtomicU64::new(500 * HOUR_NS);
        let mut packer = Packer::new(Duration::from_secs(5), 99);
        packer.common.epoch = Epoch::new(|| OFFSET.load(Ordering::Relaxed));
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
        packer.lost("undelivered.age", 3);
        assert_eq!(packer.add(&sample(10)), None);
        packer.lost("undelivered.age", 4);
        let settings = Settings { frequency_hz: 99, windows: 1, max_frames: 1024, reason: None };
        let moment = |time_ns, ring_full| Moment {
            time_ns,
            lost: Lost { ring_full, ..Lost::default() },
            settings,
        };
        assert_eq!(packer.until(&moment(10 + 5 * SECOND_NS - 1, 2)), []);
        let packets = packer.until(&moment(10 + 5 * SECOND_NS, 0));
        let [packet] = packets.as_slice() else { panic!("{packets:?}") };
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        let lost = [("ring_full".to_owned(), 2), ("undelivered.age".to_owned(), 7)];
        assert_eq!(request.losses(), lost);
        let host = request.resources[0].find_text(&request.dictionary, "host.name");
        assert_eq!(host, Some("h1"));
        assert_eq!(packer.until(&moment(u64::MAX, 0)), []);
    }
}
