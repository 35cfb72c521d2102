//! What processes publish of themselves: OpenTelemetry's process context (OTEP 4719), read from their memory.
//!
//! ```text
//! /proc/PID/maps: … [anon:OTEL_CTX]          header, host byte order
//!                   [anon_shmem:OTEL_CTX]     0  signature "OTEL_CTX"    8  version u32    12  payload bytes u32
//!                   /memfd:OTEL_CTX          16  published_at u64       24  address of the payload u64
//! ```
//! A process may write at any moment: `published_at` is 0 while it does, and another one after that. All of it is the process's
//! word and nothing more: lengths are bounded, and a read beyond its memory fails.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use model::Pid;
use profile::ProcessContext;

use super::lives::Lives;
use super::scan;

/// Bytes of `/proc/PID/maps` that are looked through, some 40,000 mappings.
const MAX_MAPS_BYTES: u64 = 4 << 20;
/// Bytes of a payload; a longer one is not read.
const MAX_PAYLOAD_BYTES: u32 = 64 << 10;
/// How often it is tried while the process writes.
const ATTEMPTS: usize = 3;
/// A process that publishes nothing is looked at again after so long, then after twice as long each time, in nanoseconds.
const FIRST_WAIT_NS: u64 = 5_000_000_000;
const LONGEST_WAIT_NS: u64 = 600_000_000_000;

/// The contexts of the machine's processes.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Where they are; of a process that nothing is known of it is looked for.
    known: Lives<Known>,
}

#[derive(Debug)]
enum Known {
    /// There was none.
    Nothing { again_ns: u64, wait_ns: u64 },
    /// It is there, and says this.
    At { address: u64, published_at: u64, context: Arc<ProcessContext> },
}

impl Contexts {
    /// What a process says of itself at this moment, `CLOCK_MONOTONIC`; of one that is gone, what it last said. For a sample of a time before
    /// which none comes any more.
    pub(super) fn of(
        &mut self,
        pid: Pid,
        start_ns: u64,
        now_ns: u64,
        sampled_ns: u64,
    ) -> Option<Arc<ProcessContext>> {
        let before = self.known.get(pid, start_ns);
        if let Some(Known::Nothing { again_ns, .. }) = before
            && now_ns < *again_ns
        {
            return None;
        }
        let found = read(pid, before);
        // Looked at after it was read: it is of nobody else then.
        if !scan::is_still(pid, start_ns) {
            return match before {
                Some(Known::At { context, .. }) => Some(Arc::clone(context)),
                _ => None,
            };
        }
        let known = found.unwrap_or_else(|_nothing_to_read| {
            let wait_ns = match before {
                Some(Known::Nothing { wait_ns, .. }) => (wait_ns * 2).min(LONGEST_WAIT_NS),
                _ => FIRST_WAIT_NS,
            };
            Known::Nothing { again_ns: now_ns.saturating_add(wait_ns), wait_ns }
        });
        let context = match &known {
            Known::At { context, .. } => Some(Arc::clone(context)),
            Known::Nothing { .. } => None,
        };
        self.known.insert(pid, start_ns, known, sampled_ns);
        context
    }
}

/// Reads a process's context where it was before, else where it is.
fn read(pid: Pid, before: Option<&Known>) -> io::Result<Known> {
    let memory = File::open(format!("/proc/{}/mem", pid.get()))?;
    let memory = |at: u64, buffer: &mut [u8]| memory.read_exact_at(buffer, at);
    if let Some(Known::At { address, published_at, context }) = before {
        let header = Header::read(memory, *address);
        if header.is_ok_and(|header| header.published_at == *published_at) {
            let (address, published_at) = (*address, *published_at);
            return Ok(Known::At { address, published_at, context: Arc::clone(context) });
        }
    }
    let mut maps = Vec::new();
    File::open(format!("/proc/{}/maps", pid.get()))?.take(MAX_MAPS_BYTES).read_to_end(&mut maps)?;
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for address in places(&maps) {
        match published(memory, address) {
            Ok((published_at, payload)) => {
                let context = ProcessContext::decode(&payload).map_err(io::Error::other)?;
                return Ok(Known::At { address, published_at, context: Arc::new(context) });
            }
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Where mappings begin that have the name of a context.
fn places(maps: &[u8]) -> impl Iterator<Item = u64> {
    const NAMES: [&[u8]; 3] = [b"[anon:OTEL_CTX]", b"[anon_shmem:OTEL_CTX]", b"/memfd:OTEL_CTX"];
    maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let name = line.splitn(6, |byte| *byte == b' ').nth(5)?.trim_ascii_start();
        let is_one = NAMES.iter().any(|of_context| name.starts_with(of_context));
        let begin = line.split(|byte| *byte == b'-').next().filter(|_| is_one)?;
        u64::from_str_radix(std::str::from_utf8(begin).ok()?, 16).ok()
    })
}

struct Header {
    payload_bytes: u32,
    published_at: u64,
    payload: u64,
}

impl Header {
    fn read(memory: impl Fn(u64, &mut [u8]) -> io::Result<()>, at: u64) -> io::Result<Self> {
        const VERSION: u32 = 2;
        let (mut signature, mut version, mut payload_bytes) = ([0; 8], [0; 4], [0; 4]);
        let (mut published_at, mut payload) = ([0; 8], [0; 8]);
        let mut bytes = [0; 32];
        memory(at, &mut bytes)?;
        let mut rest = bytes.as_slice();
        let fields =
            [&mut signature[..], &mut version, &mut payload_bytes, &mut published_at, &mut payload];
        for field in fields {
            rest.read_exact(field)?;
        }
        if signature != *b"OTEL_CTX" || u32::from_ne_bytes(version) != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self {
            payload_bytes: u32::from_ne_bytes(payload_bytes),
            published_at: u64::from_ne_bytes(published_at),
            payload: u64::from_ne_bytes(payload),
        })
    }
}

/// When it was published, and the payload, as they were at one moment.
fn published(
    memory: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    at: u64,
) -> io::Result<(u64, Vec<u8>)> {
    for _ in 0..ATTEMPTS {
        let header = Header::read(&memory, at)?;
        if header.published_at == 0 {
            continue;
        }
        if header.payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; usize::try_from(header.payload_bytes).unwrap_or(0)];
        let read = memory(header.payload, &mut payload);
        if Header::read(&memory, at)?.published_at == header.published_at {
            return read.map(|()| (header.published_at, payload));
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn mappings_are_found_by_their_names() {
        let maps = b"7f00-7f01 r--p 00000000 00:00 0    [anon:OTEL_CTX]\n\
            8000-8001 rw-s 00000000 00:01 9            /memfd:OTEL_CTX (deleted)\n\
            9000-9001 rw-s 00000000 00:01 9            [anon_shmem:OTEL_CTX]\n\
            a000-a001 rw-p 00000000 fe:00 9            /usr/lib/OTEL_CTX\n\
            b000-b001 rw-p 00000000 00:00 0 \nnonsense\n";
        assert_eq!(places(maps).collect::<Vec<_>>(), [0x7f00, 0x8000, 0x9000]);
    }

    /// A header at 100, and what is at 200.
    fn memory(
        published_at: &RefCell<Vec<u64>>,
        payload_bytes: u32,
    ) -> impl Fn(u64, &mut [u8]) -> io::Result<()> {
        move |at, buffer| {
            let header = || {
                let mut times = published_at.borrow_mut();
                let time = if times.len() > 1 { times.remove(0) } else { times[0] };
                let mut header = b"OTEL_CTX".to_vec();
                header.extend([2_u32, payload_bytes].map(u32::to_ne_bytes).concat());
                header.extend([time, 200].map(u64::to_ne_bytes).concat());
                header
            };
            let bytes = match at {
                100 => header(),
                200 => b"payload".to_vec(),
                _ => Vec::new(),
            };
            let part = bytes.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(part);
            Ok(())
        }
    }

    #[test]
    fn a_payload_is_taken_when_nothing_was_written_meanwhile() {
        let read = |times: &[u64], bytes| {
            published(memory(&RefCell::new(times.to_vec()), bytes), 100)
                .map_err(|error| error.kind())
        };
        let payload = |time| Ok((time, b"payload".to_vec()));
        assert_eq!(read(&[5], 7), payload(5));
        assert_eq!(read(&[0, 5], 7), payload(5));
        assert_eq!(read(&[4, 5, 5, 5], 7), payload(5));
        assert_eq!(read(&[1, 2, 3, 4, 5, 6], 7), Err(io::ErrorKind::ResourceBusy));
        assert_eq!(read(&[0], 7), Err(io::ErrorKind::ResourceBusy));
        assert_eq!(read(&[5], 8), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(&[5], MAX_PAYLOAD_BYTES + 1), Err(io::ErrorKind::InvalidData));
        let elsewhere = published(memory(&RefCell::new(vec![5]), 7), 200);
        assert_eq!(elsewhere.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
    }
}
