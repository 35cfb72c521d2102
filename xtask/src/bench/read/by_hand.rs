//! The limit: a loop that knows the layout of the recorded user-space events and nothing else.
//!
//! It reads each packet into one buffer, looks at every field of every event record and adds it to a sum, with one
//! check of the length for each event record. It knows no metadata, merges nothing, and makes no time of day.
//!
//! ```text
//! packet  84 bytes of header and context; content length in bits as u64 at 48, total length at 56
//! event    id u16, time u32; with id 65535 instead of the time: id u32, time u64
//!          vpid i32, vtid i32
//!          seq u64, address u64, code i32, flags u16, share f64, text with NUL
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::super::measure::cpu_of_this_thread;

const PACKET_HEADER_BYTES: usize = 84;
/// vpid to share.
const FIXED_BYTES: usize = 8 + 8 + 8 + 4 + 2 + 8;

/// CPU time for the whole trace.
pub(super) struct ByHand {
    /// Going over event records.
    pub(super) walk: Duration,
    /// With reading the files.
    pub(super) total: Duration,
}

/// Reads the trace somewhere below `path`, which has `events` event records of `bench:tick`.
pub(super) fn read(path: &Path, events: u64) -> anyhow::Result<ByHand> {
    let begin = cpu_of_this_thread()?;
    let mut walk = Duration::ZERO;
    let mut sums = Sums::default();
    let mut packet = Vec::new();
    for file in stream_files(path)? {
        let mut file = File::open(&file).with_context(|| file.display().to_string())?;
        while let Some(content_bytes) = next_packet(&mut file, &mut packet)? {
            let before = cpu_of_this_thread()?;
            let content = packet.get(PACKET_HEADER_BYTES..content_bytes).unwrap_or_default();
            sums.add_all(content).context("an event record is cut")?;
            walk += cpu_of_this_thread()?.saturating_sub(before);
        }
    }
    let total = cpu_of_this_thread()?.saturating_sub(begin);
    sums.check(events)?;
    Ok(ByHand { walk, total })
}

/// The files that are neither metadata nor index.
fn stream_files(path: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != "index" {
            files.extend(stream_files(&entry.path())?);
        } else if entry.file_type()?.is_file() && entry.file_name() != "metadata" {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Reads a whole packet; gives where its content ends, in bytes. `None`: the stream has no more.
fn next_packet(file: &mut File, packet: &mut Vec<u8>) -> anyhow::Result<Option<usize>> {
    packet.clear();
    file.take(PACKET_HEADER_BYTES as u64).read_to_end(packet)?;
    if packet.is_empty() {
        return Ok(None);
    }
    let length = |at: usize| -> anyhow::Result<usize> {
        let bits = packet.get(at..).and_then(<[u8]>::first_chunk).context("a short packet")?;
        Ok(usize::try_from(u64::from_le_bytes(*bits) / 8)?)
    };
    let (content, total) = (length(48)?, length(56)?);
    let rest = total.checked_sub(PACKET_HEADER_BYTES).context("a packet without header")?;
    file.take(rest as u64).read_to_end(packet)?;
    ensure!(packet.len() == total && content <= total, "a packet is cut");
    Ok(Some(content))
}

/// What the fields add up to.
#[derive(Default)]
struct Sums {
    events: u64,
    time: u64,
    ids: u64,
    seq: u64,
    address: u64,
    code: i64,
    flags: u64,
    share: f64,
    text_bytes: u64,
}

impl Sums {
    /// Goes over the event records of a packet; `None` when one is cut.
    fn add_all(&mut self, content: &[u8]) -> Option<()> {
        let mut rest = content;
        while !rest.is_empty() {
            rest = self.add(rest)?;
        }
        Some(())
    }

    #[inline]
    fn add<'a>(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let (id, after_id) = rest.split_first_chunk::<2>()?;
        let (time, after) = if u16::from_le_bytes(*id) == u16::MAX {
            let (time, after) = after_id.get(4..)?.split_first_chunk::<8>()?;
            (u64::from_le_bytes(*time), after)
        } else {
            let (time, after) = after_id.split_first_chunk::<4>()?;
            (u64::from(u32::from_le_bytes(*time)), after)
        };
        let (fixed, text) = after.split_first_chunk::<FIXED_BYTES>()?;
        let (vpid, fixed) = fixed.split_first_chunk::<4>()?;
        let (vtid, fixed) = fixed.split_first_chunk::<4>()?;
        let (seq, fixed) = fixed.split_first_chunk::<8>()?;
        let (address, fixed) = fixed.split_first_chunk::<8>()?;
        let (code, fixed) = fixed.split_first_chunk::<4>()?;
        let (flags, share) = fixed.split_first_chunk::<2>()?;
        let end = text.iter().position(|byte| *byte == 0)?;
        self.events += 1;
        self.time = self.time.wrapping_add(time);
        self.ids += u64::from(u32::from_le_bytes(*vpid) ^ u32::from_le_bytes(*vtid));
        self.seq += u64::from_le_bytes(*seq);
        self.address = self.address.wrapping_add(u64::from_le_bytes(*address));
        self.code += i64::from(i32::from_le_bytes(*code));
        self.flags += u64::from(u16::from_le_bytes(*flags));
        self.share += f64::from_le_bytes(*share.first_chunk()?);
        self.text_bytes += end as u64;
        text.get(end + 1..)
    }

    /// Whether the fields are those that were recorded; also what keeps the loop from being optimised away.
    fn check(&self, events: u64) -> anyhow::Result<()> {
        ensure!(self.events == events, "{} of {events} event records", self.events);
        let all = 0..events;
        let seq: u64 = all.clone().sum();
        ensure!(self.seq == seq, "numbers add up to {}, not {seq}", self.seq);
        let address =
            all.clone().fold(0_u64, |sum, seq| sum.wrapping_add(0x7f00_0000_0000 + seq * 16));
        ensure!(self.address == address, "addresses add up to {}", self.address);
        let code: u64 = all.clone().map(|seq| seq % 100).sum();
        ensure!(self.code == -i64::try_from(code)?, "codes add up to {}", self.code);
        let flags: u64 = all.clone().map(|seq| seq % 1024).sum();
        ensure!(self.flags == flags, "flags add up to {}", self.flags);
        let share = all.map(|seq| (seq % 1000) as f64 / 1000.0).sum::<f64>();
        ensure!(
            (self.share - share).abs() < 1e-3 * share.max(1.0),
            "shares add up to {}",
            self.share
        );
        ensure!(self.text_bytes == 19 * events, "texts have {} bytes", self.text_bytes);
        std::hint::black_box((self.time, self.ids));
        Ok(())
    }
}
