//! What the side band says: `PERF_RECORD_*` of include/uapi/linux/perf_event.h.
//!
//! The bytes come from the kernel; one that ends inside a field is skipped and counted, as is one of a kind that says nothing here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use model::{Pid, Tid};
use symbols::KernelFunction;

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_MMAP2: u32 = 10;
const PERF_RECORD_KSYMBOL: u32 = 17;

/// `KSYMBOL`: what else than an eBPF program's code it is.
const KSYMBOL_TYPE_OUT_OF_LINE: u16 = 2;
/// `KSYMBOL`: it is gone.
const KSYMBOL_UNREGISTER: u16 = 1;

/// `COMM`: the name came with another program.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// `MMAP2`: there is a build id in place of the inode.
const MISC_BUILD_ID: u16 = 1 << 14;
/// `prot` of a mapping: code.
const PROT_EXEC: u32 = 4;

/// Which file's contents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Contents {
    /// As the linker named them.
    BuildId(Vec<u8>),
    /// The file of a device: major, minor, inode and its generation.
    Inode(u32, u32, u64, u64),
}

/// A process or the kernel's code is another than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A process maps code.
    Map {
        pid: Pid,
        begin: u64,
        len: u64,
        file_offset: u64,
        contents: Contents,
        /// As the process sees it; `//anon`, `[vdso]` and the like for what is no file.
        path: PathBuf,
    },
    /// A process begins another program: what it had mapped is gone.
    Exec { pid: Pid, name: Vec<u8> },
    /// A thread begins. When its process is another one than its parent's, that has the parent's mappings.
    Fork { pid: Pid, parent: Pid },
    /// A thread ends.
    Exit { pid: Pid, tid: Tid },
    /// The kernel has more code than before, or less.
    KernelCode { function: KernelFunction, is_gone: bool },
    /// So many records were lost.
    Lost(u64),
}

/// A change and when it happened: `CLOCK_MONOTONIC`, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) at_ns: u64,
    pub(super) change: Change,
}

/// What happened and is not gone through yet: when the side bands are read they tell also what came after the samples of the turn, and
/// samples of before it may come with the next turn.
#[derive(Debug, Default)]
pub(super) struct Upcoming(Vec<Timed>);

impl Upcoming {
    pub(super) fn extend(&mut self, changes: impl Iterator<Item = Timed>) {
        self.0.extend(changes);
    }

    /// What happened until a moment, in order; what happened at the same time in the order in which it was put in.
    pub(super) fn take(&mut self, until_ns: u64) -> Vec<Timed> {
        self.0.sort_by_key(|it| it.at_ns);
        let later = self.0.partition_point(|it| it.at_ns <= until_ns);
        let later = self.0.split_off(later);
        std::mem::replace(&mut self.0, later)
    }
}

/// The records of a side band, whole; `malformed` counts those that are not.
pub(super) fn changes<'a>(
    bytes: &'a [u8],
    malformed: &'a mut u64,
) -> impl Iterator<Item = Timed> + 'a {
    records(bytes).filter_map(|record| {
        let found = record.and_then(|(kind, misc, body)| timed(kind, misc, body));
        *malformed += u64::from(found.is_none());
        found.flatten()
    })
}

/// What the kernel wrote into a ring: kind, `misc` and body of each record; `None` for one that is cut, which is the last.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Option<(u32, u16, &[u8])>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let mut head = Fields(rest);
        let (kind, misc, size) = (head.u32()?, head.u16()?, head.u16()?);
        let Some((record, behind)) = rest.split_at_checked(usize::from(size).max(8)) else {
            rest = &[];
            return Some(None);
        };
        rest = behind;
        Some(Some((kind, misc, record.get(8..).unwrap_or_default())))
    })
}

/// `None` for a record that ends inside a field; `Some(None)` for one that says nothing here.
fn timed(kind: u32, misc: u16, body: &[u8]) -> Option<Option<Timed>> {
    if kind == PERF_RECORD_KSYMBOL {
        return kernel_code(body);
    }
    // What every other record ends with: `sample_id` of the event, which asks for the time alone.
    let (body, time) = body.split_last_chunk::<8>()?;
    let at_ns = u64::from_ne_bytes(*time);
    let mut from = Fields(body);
    let change = match kind {
        PERF_RECORD_MMAP2 => {
            return mapped(misc, from).map(|it| it.map(|change| Timed { at_ns, change }));
        }
        PERF_RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
            let (pid, _) = (from.pid()?, from.pid()?);
            Change::Exec { pid, name: from.text().to_vec() }
        }
        PERF_RECORD_FORK => {
            let (pid, parent) = (from.pid()?, from.pid()?);
            Change::Fork { pid, parent }
        }
        PERF_RECORD_EXIT => {
            let (pid, _, tid) = (from.pid()?, from.pid()?, from.u32()?);
            Change::Exit { pid, tid: Tid::new(tid.cast_signed()) }
        }
        PERF_RECORD_LOST => {
            let (_, count) = (from.u64()?, from.u64()?);
            Change::Lost(count)
        }
        _ => return Some(None),
    };
    Some(Some(Timed { at_ns, change }))
}

fn mapped(misc: u16, mut from: Fields<'_>) -> Option<Option<Change>> {
    let (pid, _) = (from.pid()?, from.pid()?);
    let (begin, len, file_offset) = (from.u64()?, from.u64()?, from.u64()?);
    let contents = if misc & MISC_BUILD_ID != 0 {
        let (bytes, _, _) = (from.u8()?, from.u8()?, from.u16()?);
        let id = from.bytes(20)?;
        Contents::BuildId(id.get(..usize::from(bytes)).unwrap_or(id).to_vec())
    } else {
        let (major, minor) = (from.u32()?, from.u32()?);
        Contents::Inode(major, minor, from.u64()?, from.u64()?)
    };
    let (protection, _) = (from.u32()?, from.u32()?);
    let path = PathBuf::from(OsString::from_vec(from.text().to_vec()));
    let is_code = protection & PROT_EXEC != 0 && len > 0;
    Some(is_code.then_some(Change::Map { pid, begin, len, file_offset, contents, path }))
}

/// Code of eBPF, or such that parts of the kernel write; each is one function.
///
/// The time stands behind the name, which is filled up to 8 bytes. The record may be longer: where several programs listen, the kernel
/// counts the time once more for each of them (`perf_event_ksymbol_output` of kernel/events/core.c, up to 6.18 at least).
fn kernel_code(body: &[u8]) -> Option<Option<Timed>> {
    let mut from = Fields(body);
    let (begin, len) = (from.u64()?, from.u32()?);
    let (kind, flags) = (from.u16()?, from.u16()?);
    let name = from.text();
    from.bytes((name.len() + 1).next_multiple_of(8))?;
    let at_ns = from.u64()?;
    // As `/proc/kallsyms` says what they are of: include/linux/{ftrace,kprobes}.h.
    let module = match kind {
        KSYMBOL_TYPE_OUT_OF_LINE if name.starts_with(b"ftrace") => "__builtin__ftrace",
        KSYMBOL_TYPE_OUT_OF_LINE => "__builtin__kprobes",
        _ => "bpf",
    };
    let function = KernelFunction {
        name: String::from_utf8_lossy(name).into(),
        module: Some(module.into()),
        begin,
        end: begin.saturating_add(len.into()),
    };
    let is_gone = flags & KSYMBOL_UNREGISTER != 0;
    let change = Change::KernelCode { function, is_gone };
    Some((!name.is_empty()).then_some(Timed { at_ns, change }))
}

/// A cursor over a record.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn pid(&mut self) -> Option<Pid> {
        self.u32().map(|pid| Pid::new(pid.cast_signed()))
    }

    /// The rest up to its first NUL.
    fn text(&self) -> &'a [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8], at_ns: u64) -> Vec<u8> {
        let size = u16::try_from(8 + body.len() + 8).unwrap();
        [
            &kind.to_ne_bytes()[..],
            &misc.to_ne_bytes(),
            &size.to_ne_bytes(),
            body,
            &at_ns.to_ne_bytes(),
        ]
        .concat()
    }

    fn map(pid: u32, protection: u32, build_id: Option<&[u8]>) -> Vec<u8> {
        let mut body = [pid, pid].map(u32::to_ne_bytes).concat();
        body.extend([0x1000_u64, 0x2000, 0x3000].map(u64::to_ne_bytes).concat());
        match build_id {
            Some(id) => {
                body.extend([u8::try_from(id.len()).unwrap(), 0, 0, 0]);
                body.extend(id);
                body.resize(body.len() + 20 - id.len(), 0);
            }
            None => {
                body.extend([8_u32, 1].map(u32::to_ne_bytes).concat());
                body.extend([42_u64, 7].map(u64::to_ne_bytes).concat());
            }
        }
        body.extend([protection, 2].map(u32::to_ne_bytes).concat());
        body.extend(b"/bin/x\0\0");
        body
    }

    #[test]
    fn records_are_told_in_order_and_those_that_say_nothing_are_passed() {
        let inode = record(PERF_RECORD_MMAP2, 2, &map(5, 5, None), 10);
        let named = record(PERF_RECORD_MMAP2, 2 | MISC_BUILD_ID, &map(5, 5, Some(&[9; 16])), 11);
        let data = record(PERF_RECORD_MMAP2, 2, &map(5, 3, None), 12);
        let thread_named =
            record(PERF_RECORD_COMM, 0, &[5, 0, 0, 0, 5, 0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0], 13);
        let exec = record(
            PERF_RECORD_COMM,
            MISC_COMM_EXEC,
            &[5, 0, 0, 0, 5, 0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0],
            14,
        );
        let all = [inode, named, data, thread_named, exec].concat();
        let mut malformed = 0;
        let found: Vec<Timed> = changes(&all, &mut malformed).collect();
        assert_eq!(found.iter().map(|it| it.at_ns).collect::<Vec<_>>(), [10, 11, 14]);
        let expected = |contents| Change::Map {
            pid: Pid::new(5),
            begin: 0x1000,
            len: 0x2000,
            file_offset: 0x3000,
            contents,
            path: "/bin/x".into(),
        };
        assert_eq!(found[0].change, expected(Contents::Inode(8, 1, 42, 7)));
        assert_eq!(found[1].change, expected(Contents::BuildId(vec![9; 16])));
        assert_eq!(found[2].change, Change::Exec { pid: Pid::new(5), name: b"a".to_vec() });
        assert_eq!(malformed, 0);
    }

    #[test]
    fn what_comes_after_a_moment_waits_for_the_next() {
        let lost = |at_ns| Timed { at_ns, change: Change::Lost(at_ns) };
        let mut upcoming = Upcoming::default();
        // Two side bands, each in order.
        upcoming.extend([10, 30, 40, 20, 35].map(lost).into_iter());
        assert_eq!(upcoming.take(30), [10, 20, 30].map(lost));
        assert_eq!(upcoming.take(34), []);
        upcoming.extend([lost(38)].into_iter());
        assert_eq!(upcoming.take(u64::MAX), [35, 38, 40].map(lost));
    }

    #[test]
    fn code_of_the_kernel_comes_and_goes_with_its_name() {
        let body = |kind: u16, flags: u16, name: &[u8]| {
            let mut body = 0xffff_ffff_c000_1000_u64.to_ne_bytes().to_vec();
            body.extend(0x40_u32.to_ne_bytes());
            body.extend([kind, flags].map(u16::to_ne_bytes).concat());
            body.extend(name);
            body.resize((body.len() + 1).next_multiple_of(8), 0);
            body
        };
        let longer = {
            let mut body = body(1, 1, b"bpf_prog_0a_x12");
            body.extend(11_u64.to_ne_bytes());
            record(PERF_RECORD_KSYMBOL, 0, &body, 0)
        };
        let all = [
            record(PERF_RECORD_KSYMBOL, 0, &body(1, 0, b"bpf_prog_0a_x"), 10),
            longer,
            record(PERF_RECORD_KSYMBOL, 0, &body(2, 0, b"ftrace_trampoline"), 12),
            record(PERF_RECORD_KSYMBOL, 0, &body(2, 0, b"kprobe_insn_page"), 13),
            record(PERF_RECORD_KSYMBOL, 0, &body(1, 0, b""), 14),
        ]
        .concat();
        let mut malformed = 0;
        let found: Vec<_> = changes(&all, &mut malformed).map(|it| (it.at_ns, it.change)).collect();
        let change = |name: &str, module: &str, is_gone| Change::KernelCode {
            function: KernelFunction {
                name: name.into(),
                module: Some(module.into()),
                begin: 0xffff_ffff_c000_1000,
                end: 0xffff_ffff_c000_1040,
            },
            is_gone,
        };
        let expected = [
            (10, change("bpf_prog_0a_x", "bpf", false)),
            (11, change("bpf_prog_0a_x12", "bpf", true)),
            (12, change("ftrace_trampoline", "__builtin__ftrace", false)),
            (13, change("kprobe_insn_page", "__builtin__kprobes", false)),
        ];
        assert_eq!((found.as_slice(), malformed), (&expected[..], 0));
    }

    #[test]
    fn a_record_cut_anywhere_is_counted_and_nothing_else() {
        let whole = record(PERF_RECORD_MMAP2, 2, &map(5, 5, None), 10);
        for cut in 8..whole.len() {
            let mut malformed = 0;
            assert_eq!(changes(&whole[..cut], &mut malformed).count(), 0, "{cut}");
            assert_eq!(malformed, 1, "{cut}");
        }
        let short = record(PERF_RECORD_FORK, 0, &[1, 0, 0, 0], 10);
        let mut malformed = 0;
        assert_eq!(changes(&short, &mut malformed).count(), 0);
        assert_eq!(malformed, 1);
    }
}
