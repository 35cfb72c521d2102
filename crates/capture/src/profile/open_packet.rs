//! A packet whose window is not over: who is in it, and what its frames are called.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use gopclntab::GoFrame;
use profile::{
    AddError, BuildId, Builder, Control, Frame, FrameId, FrameKind, Line, Mapping, Names, Packet,
    Process, ProcessId, SampleKind, Status, Unnamed, Window,
};
use symbols::jit::V8Name;
use symbols::{KernelFunction, SourceLine};

use super::cache::Cache;
use super::code::{Code, Identity};
use super::jit::Jit;
use super::kernel_ids::KernelIds;
use super::lines::SourceLines;
use super::processes::CodeFile;
use super::resource::Resources;
use super::sample::StackEnd;
use super::{FilePlace, KernelFrame, PythonEnd, PythonFrame, Sample, StackFrame, UserFrame};

/// The packet of a window that is not over.
#[derive(Debug)]
pub(super) struct OpenPacket {
    window: MonotonicWindow,
    builder: Builder,
    /// What was named in this packet already. Of code and path their places are held, and not what was there.
    user: Cache<UserKey, (FrameId, Weak<Code>, Weak<CodeFile>)>,
    in_kernel: Cache<(usize, u64), (FrameId, Arc<KernelFunction>)>,
    kernel_ids: KernelIds,
    /// Who is in this packet, by number, begin, program and control group; the program's place is held. No cache: what is said
    /// of a process is what was so at its first sample. The builder, which has all of them, too, bounds it.
    processes: HashMap<ProcessKey, (ProcessId, Option<Weak<CodeFile>>)>,
}

type ProcessKey = (i32, u64, usize, u64);

/// All that the name of a frame is made of: code and path by their addresses in memory, the place in the file, and of the mapping its
/// length and place in the file.
type UserKey = (usize, usize, u64, u64, u64);

/// A stretch of `CLOCK_MONOTONIC`, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct MonotonicWindow {
    pub(super) begin_ns: u64,
    pub(super) length_ns: u64,
    /// From there to the epoch.
    pub(super) epoch_ns: u64,
}

/// What finds what is said in packets beside the frames of samples; all of them have it in common.
#[derive(Debug)]
pub(super) struct Namers {
    /// Of all processes.
    pub(super) attributes: Vec<(String, String)>,
    pub(super) resources: Resources,
    pub(super) jit: Jit,
    pub(super) lines: SourceLines,
}

impl Default for Namers {
    fn default() -> Self {
        Self {
            attributes: Vec::new(),
            resources: Resources::new(),
            jit: Jit::default(),
            lines: SourceLines::new(),
        }
    }
}

impl OpenPacket {
    /// An empty one. Each of its caches of frames has so many entries at most.
    pub(super) fn new(
        window: MonotonicWindow,
        kind: SampleKind,
        control: Option<&Control<'_>>,
        cache_entries: usize,
    ) -> Self {
        let begin_unix_ns = window.epoch_ns.wrapping_add(window.begin_ns);
        let mut builder =
            Builder::new(Window { begin_unix_ns, duration_ns: window.length_ns }, kind);
        if let Some(control) = control {
            builder.control(control);
        }
        Self {
            window,
            builder,
            user: Cache::new(cache_entries),
            in_kernel: Cache::new(cache_entries),
            kernel_ids: KernelIds::default(),
            processes: HashMap::new(),
        }
    }

    /// Whether no sample of this moment belongs into it any more.
    pub(super) const fn is_over(&self, time_ns: u64) -> bool {
        time_ns >= self.window.begin_ns.saturating_add(self.window.length_ns)
    }

    /// Empties the caches of frames.
    pub(super) fn forget(&mut self) {
        self.user.forget();
        self.in_kernel.forget();
    }

    /// Takes in a sample.
    ///
    /// # Errors
    /// [`AddError`] when the packet has no place for it.
    pub(super) fn add(&mut self, sample: &Sample, namers: &mut Namers) -> Result<(), AddError> {
        let process = self.process(sample, &namers.attributes, &mut namers.resources)?;
        let mut frames = Vec::with_capacity(sample.kernel.len() + sample.user.len());
        for frame in &sample.kernel {
            frames.push(self.kernel_frame(frame)?);
        }
        for frame in &sample.user {
            frames.push(match frame {
                StackFrame::Native(frame) => self.user_frame(frame, sample, namers)?,
                StackFrame::Python(frame) => self.python_frame(frame)?,
            });
        }
        let thread_name = String::from_utf8_lossy(&sample.name);
        self.builder.add(&profile::Sample {
            process,
            tid: sample.tid.get().cast_unsigned(),
            thread_name: &thread_name,
            cpu: sample.cpu.get(),
            at_unix_ns: self.window.epoch_ns.wrapping_add(sample.time_ns),
            value: if sample.off_cpu { sample.weight_ns } else { 1 },
            link: sample.span,
            frames: &frames,
            status: status(sample.end, sample.python),
        })
    }

    /// The packet of a window of which all samples were lost, by class: it tells that of the machine.
    pub(super) fn finish_without_samples(
        mut self,
        lost: BTreeMap<String, u64>,
        namers: &Namers,
    ) -> Packet {
        let attributes: Vec<(&str, &str)> =
            namers.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        self.builder.machine(&attributes);
        self.finish(lost)
    }

    /// The packet, with what was lost, by class.
    pub(super) fn finish(mut self, lost: BTreeMap<String, u64>) -> Packet {
        for (class, samples) in lost {
            self.builder.lost(&class, samples);
        }
        self.builder.finish()
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
        self.processes.insert(key, (id, program.map(Arc::downgrade)));
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
        Namers { jit, lines, .. }: &mut Namers,
    ) -> Result<FrameId, AddError> {
        let Some(place) = &frame.file else {
            return self.builder.frame(&unnamed(frame.address, Unnamed::NoMapping));
        };
        if place.file.is_anonymous() {
            return self.made_frame(frame.address, sample, jit);
        }
        let Some(code) = &place.code else {
            // All that is known of it is what the kernel told when it was mapped.
            let build_id = place.file.build_id();
            let build_id = build_id.as_deref().map(BuildId::Gnu);
            let mapping = Mapping {
                memory_start: 0,
                memory_limit: 0,
                file_offset: 0,
                path: &place.path().to_string_lossy(),
                build_ids: build_id.as_slice(),
            };
            let unread = unnamed(place.offset, Unnamed::NoFile);
            return self.builder.frame(&Frame { mapping: Some(&mapping), ..unread });
        };
        let (begin, end, file_offset) = place.memory;
        let memory_bytes = end.saturating_sub(begin);
        let key: UserKey =
            (address_of(code), address_of(&place.file), place.offset, memory_bytes, file_offset);
        if let Some((known, ..)) = self.user.get(&key) {
            return Ok(*known);
        }
        let id = self.name(place, code, lines)?;
        self.user.insert(key, (id, Arc::downgrade(code), Arc::downgrade(&place.file)));
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
