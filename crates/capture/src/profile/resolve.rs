//! From a sample's addresses to files, and from copied stacks to frames.

use unwind::walk::{Code, End, MAX_FRAMES, walk};
use unwind::{Architecture, Rule};

use super::processes::Process;
use super::python::{self, PythonCounts, PythonEnd};
use super::sample::{RawPython, RawSample, StackEnd};
use super::{FilePlace, KernelFrame, Sample, StackFrame, UserFrame};

/// The instruction set of this program, and so of all 64-bit processes of the machine.
const ARCHITECTURE: Architecture =
    if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

/// A sample with the files of its frames, as its process had them mapped when it was taken.
pub(super) fn resolve(
    raw: &RawSample<'_>,
    kernel: Vec<KernelFrame>,
    process: Option<&Process>,
    counts: &mut PythonCounts,
) -> Sample {
    let (addresses, end) = match process.filter(|_| !raw.stack.is_empty()) {
        _ if process.is_some_and(|process| begins_a_program(raw, process)) => {
            (Vec::new(), StackEnd::None)
        }
        Some(process) => walk_copy(raw, process),
        None => walked_in_the_kernel(raw, process),
    };
    let native = |address| {
        let file = process.and_then(|it| place(it, address));
        StackFrame::Native(UserFrame { address, file })
    };
    let native = addresses.into_iter().map(native).collect();
    let (user, python) = with_python(&raw.python, native, end, counts);
    let executable = process.and_then(|it| it.executable.clone());
    let name = raw.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Sample {
        time_ns: raw.time_ns,
        weight_ns: raw.weight_ns,
        off_cpu: raw.off_cpu,
        pid: raw.pid,
        process_start_ns: raw.process_start_ns,
        tid: raw.tid,
        name: name.to_vec(),
        executable,
        jit: process.map(|it| it.jit.clone()).unwrap_or_default(),
        cpu: raw.cpu,
        cgroup: raw.cgroup,
        span: raw.span,
        kernel,
        user,
        end,
        python,
    }
}

/// Whether a process is on its way into another program, in the kernel: its registers are those that it had in the one before, of which
/// nothing is there any more.
fn begins_a_program(raw: &RawSample<'_>, process: &Process) -> bool {
    /// Longer than that takes on a machine with much to do.
    const BEGIN_NS: u64 = 1_000_000_000;
    let is_in_kernel = raw.kernel_frames().len() > 0;
    let since_ns = raw.time_ns.saturating_sub(process.begun_ns);
    is_in_kernel && since_ns < BEGIN_NS && process.find(raw.registers.pc).is_none()
}

/// Puts the frames of CPython among the native ones. How their walk ended.
fn with_python(
    raw: &RawPython<'_>,
    native: Vec<StackFrame>,
    end: StackEnd,
    counts: &mut PythonCounts,
) -> (Vec<StackFrame>, PythonEnd) {
    let python_end = match raw.end {
        // A thread of native code alone has none.
        PythonEnd::None | PythonEnd::NoFrames | PythonEnd::ManyThreads
            if !native.iter().any(is_evaluation) =>
        {
            PythonEnd::None
        }
        PythonEnd::None => PythonEnd::Unknown,
        other => other,
    };
    counts.count(python_end);
    if raw.records == 0 {
        return (native, python_end);
    }
    let (runs, unnamed) = python::runs(raw);
    counts.unnamed += unnamed;
    let runs = runs.into_iter().map(|run| run.into_iter().map(StackFrame::Python).collect());
    let are_whole = end == StackEnd::Root && python_end == PythonEnd::Root;
    let (merged, is_even) = python::merge(native, is_evaluation, runs.collect(), are_whole);
    counts.uneven += u64::from(!is_even);
    (merged, python_end)
}

/// Whether a frame is of the function that runs frames of CPython.
fn is_evaluation(frame: &StackFrame) -> bool {
    let StackFrame::Native(UserFrame { file: Some(place), .. }) = frame else { return false };
    let Some(code) = &place.code else { return false };
    let Some(Ok(interpreter)) = code.python() else { return false };
    code.address_of(place.offset).is_some_and(|at| interpreter.is_evaluation(at))
}

fn place(process: &Process, address: u64) -> Option<FilePlace> {
    let (begin, mapping) = process.find(address)?;
    let file = mapping.file.clone();
    let code = file.code().cloned();
    let offset = mapping.file_offset.wrapping_add(address - begin);
    let memory = (begin, mapping.end, mapping.file_offset);
    Some(FilePlace { file, code, offset, memory })
}

/// The frames that the program found. What was mapped after the program was told of the process it took for what was there before: how it
/// went on from there is not to be trusted.
fn walked_in_the_kernel(raw: &RawSample<'_>, process: Option<&Process>) -> (Vec<u64>, StackEnd) {
    let is_new = |address: &u64| {
        let mapping = process.and_then(|process| process.find(*address));
        mapping.is_some_and(|(_, mapping)| mapping.since_ns > raw.known_ns)
    };
    let mut addresses: Vec<u64> = raw.user_frames().collect();
    let trusted = addresses.iter().position(is_new).map_or(addresses.len(), |at| at + 1);
    if trusted < addresses.len() {
        addresses.truncate(trusted);
        return (addresses, StackEnd::NoRule);
    }
    (addresses, raw.end)
}

fn walk_copy(raw: &RawSample<'_>, process: &Process) -> (Vec<u64>, StackEnd) {
    let word = |address: u64| {
        let at = usize::try_from(address.checked_sub(raw.registers.sp)?).ok()?;
        raw.stack.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    };
    let mut addresses = Vec::new();
    let visit = |address| addresses.push(address);
    let code = |address| code(process, address);
    let end = walk(ARCHITECTURE, raw.registers, MAX_FRAMES, &word, code, visit);
    (addresses, end.into())
}

fn code(process: &Process, address: u64) -> Code {
    let Some((begin, mapping)) = process.find(address) else { return Code::Unmapped };
    if mapping.file.is_anonymous() {
        return Code::Rule(Rule::frame_pointers(ARCHITECTURE));
    }
    let rule = mapping.file.code().and_then(|code| {
        let rows = code.rows().ok()?;
        let moved_by = code.moved_by(begin, mapping.file_offset)?;
        Some(rows.find(address.wrapping_sub(moved_by)))
    });
    Code::Rule(rule.unwrap_or(Rule::UNKNOWN))
}

impl From<End> for StackEnd {
    fn from(end: End) -> Self {
        match end {
            End::Root => Self::Root,
            End::NoMapping => Self::NoMapping,
            End::NoRule => Self::NoRule,
            End::NoMemory => Self::NoMemory,
            End::Loop => Self::Loop,
            End::TooDeep => Self::TooDeep,
        }
    }
}
