//! From a sample's addresses to files, and from copied stacks to frames.

use libbpf_rs::MapCore;
use model::Pid;
use unwind::walk::{Code, End, MAX_FRAMES, walk};
use unwind::{Architecture, Rule};

use super::processes::{Process, Processes};
use super::sample::{RawSample, StackEnd};
use super::tables::Tables;
use super::{FilePlace, Sample, UserFrame};
use crate::error::Result;

/// The instruction set of this program, and so of all 64-bit processes of the machine.
const ARCHITECTURE: Architecture =
    if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

/// A sample with the files of its frames, as they were mapped when it was taken.
///
/// # Errors
/// The kernel's, when a file's table is new.
pub(super) fn resolve(
    raw: &RawSample<'_>,
    processes: &Processes,
    tables: &mut Tables,
    outer: &impl MapCore,
) -> Result<Sample> {
    let process = processes.get(raw.pid);
    let (addresses, end) = match process.filter(|_| !raw.stack.is_empty()) {
        Some(process) => walk_copy(raw, process, tables, outer)?,
        None => (raw.user_frames().collect(), raw.end),
    };
    let frame =
        |address| UserFrame { address, file: process.and_then(|it| place(it, address, tables)) };
    let executable = process.and_then(|it| it.executable.clone());
    let name = raw.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Sample {
        time_ns: raw.time_ns,
        weight_ns: raw.weight_ns,
        off_cpu: raw.off_cpu,
        pid: raw.pid,
        process_start_ns: raw.process_start_ns,
        tid: raw.tid,
        name: name.to_vec(),
        executable,
        cpu: raw.cpu,
        cgroup: raw.cgroup,
        kernel: raw.kernel_frames().collect(),
        user: addresses.into_iter().map(frame).collect(),
        end,
    })
}

fn place(process: &Process, address: u64, tables: &Tables) -> Option<FilePlace> {
    let (begin, mapping) = process.find(address)?;
    let file = mapping.file.clone();
    let code = tables.known(&file);
    let offset = mapping.file_offset.wrapping_add(address - begin);
    let memory = (begin, mapping.end, mapping.file_offset);
    Some(FilePlace { file, code, offset, memory })
}

fn walk_copy(
    raw: &RawSample<'_>,
    process: &Process,
    tables: &mut Tables,
    outer: &impl MapCore,
) -> Result<(Vec<u64>, StackEnd)> {
    let word = |address: u64| {
        let at = usize::try_from(address.checked_sub(raw.registers.sp)?).ok()?;
        raw.stack.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    };
    let mut failed = None;
    let code = |address| match rule(raw.pid, process, address, tables, outer) {
        Ok(code) => code,
        Err(error) => {
            failed = Some(error);
            Code::Unmapped
        }
    };
    let mut addresses = Vec::new();
    let visit = |address| addresses.push(address);
    let end = walk(ARCHITECTURE, raw.registers, MAX_FRAMES, &word, code, visit);
    match failed {
        Some(error) => Err(error),
        None => Ok((addresses, end.into())),
    }
}

fn rule(
    pid: Pid,
    process: &Process,
    address: u64,
    tables: &mut Tables,
    outer: &impl MapCore,
) -> Result<Code> {
    let Some((begin, mapping)) = process.find(address) else { return Ok(Code::Unmapped) };
    if mapping.file.is_anonymous() {
        return Ok(Code::Rule(Rule::frame_pointers(ARCHITECTURE)));
    }
    let code = tables.get(outer, &mapping.file, pid, (begin, mapping.end))?;
    let rule = match code.moved_by(begin, mapping.file_offset) {
        Some(moved_by) => code.table.find(address.wrapping_sub(moved_by)),
        None => Rule::UNKNOWN,
    };
    Ok(Code::Rule(rule))
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
