//! Streams of packets over one or more files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ctf::index::{IndexVersion, PacketIndex};
use ctf::packet::{Outcome, PacketInfo, decode_packet_header};
use ctf::{ClockClass, EnvValue, StreamClass, TraceClass, Uuid};
use model::Timestamp;

use crate::discover::StreamFile;
use crate::finding::Cause;
use crate::window::{FIRST_LOOK, Handles, Window};

/// Longest index file that is read: entries of 72 bytes for some four million packets.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// What a stream is, whichever files hold it.
///
/// The order of keys is the order of event records of equal times. Babeltrace orders them by trace name, which it makes
/// of host and folder; host and process give the same order and do not depend on where the folder lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// Host that recorded it.
    pub host: Option<String>,
    /// Name of the process that it is about, for traces of one process.
    pub process: Option<String>,
    /// Id of that process.
    pub process_id: Option<i128>,
    /// UUID of its trace.
    pub trace: Option<Uuid>,
    /// Data stream class id.
    pub class_id: u64,
    /// Data stream instance id.
    pub instance_id: Option<u64>,
    /// Its only file, when it has no UUID or no instance id: nothing then tells it from streams in other files.
    pub file: Option<PathBuf>,
}

/// One data stream.
#[derive(Debug)]
pub struct Stream {
    key: StreamKey,
    /// In order of their first packets' begin.
    pub(crate) files: Vec<PacketFile>,
}

impl Stream {
    pub(crate) fn new(key: StreamKey, mut files: Vec<PacketFile>) -> Self {
        files.sort_by(|a, b| (a.first.begin, &a.file.path).cmp(&(b.first.begin, &b.file.path)));
        Self { key, files }
    }

    /// What identifies it.
    #[must_use]
    pub const fn key(&self) -> &StreamKey {
        &self.key
    }

    /// Its files, in order of time.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &StreamFile> {
        self.files.iter().map(|file| &file.file)
    }

    pub(crate) fn cover(&self) -> Option<StreamCover> {
        let (first, last) = (self.files.first()?, self.files.last()?);
        let begin = first.first;
        let end = last.heads().last().unwrap_or(last.first);
        Some(StreamCover {
            stream: self.key.clone(),
            begin: first.time(begin.begin),
            end: last.time(end.end.filter(|end| *end != 0)).max(last.time(end.begin)),
            first_sequence: begin.sequence,
            last_sequence: end.sequence,
            first_discarded: begin.discarded,
            last_discarded: end.discarded,
            discarded_bits: first.stream_class().and_then(StreamClass::discarded_counter_bits),
        })
    }
}

/// What the packets at both ends of a stream say: where it may be cut, and what was lost around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamCover {
    /// The stream.
    pub stream: StreamKey,
    /// Begin of the first packet; `None` without a clock.
    pub begin: Option<Timestamp>,
    /// End of the last packet, its begin when it was never closed; `None` without a clock.
    pub end: Option<Timestamp>,
    /// Sequence number of the first packet.
    pub first_sequence: Option<u64>,
    /// Sequence number of the last packet.
    pub last_sequence: Option<u64>,
    /// Counter of discarded event records at the end of the first packet.
    pub first_discarded: Option<u64>,
    /// Counter of discarded event records at the end of the last packet.
    pub last_discarded: Option<u64>,
    /// Width of that counter in bits: differences are taken modulo 2 to this power.
    pub discarded_bits: Option<u8>,
}

/// What a reader needs of a packet before it reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    /// Length in bytes; `None` for the rest of the file.
    pub(crate) len: Option<u64>,
    /// Cycles.
    pub(crate) begin: Option<u64>,
    /// Cycles.
    pub(crate) end: Option<u64>,
    pub(crate) discarded: Option<u64>,
    pub(crate) sequence: Option<u64>,
}

impl Head {
    pub(crate) fn of(info: &PacketInfo, offset: u64) -> Self {
        Self {
            offset,
            len: info.total_bytes(),
            begin: info.begin,
            end: info.end,
            discarded: info.events_discarded,
            sequence: info.sequence_number,
        }
    }

    /// Where the next packet begins.
    pub(crate) fn next_offset(&self) -> Option<u64> {
        self.offset.checked_add(self.len.filter(|len| *len > 0)?)
    }
}

/// One file of a stream, and what its first packet says.
#[derive(Debug)]
pub(crate) struct PacketFile {
    pub(crate) file: StreamFile,
    pub(crate) class: Arc<TraceClass>,
    pub(crate) first: Head,
    stream_class_id: u64,
    instance_id: Option<u64>,
}

impl PacketFile {
    /// Reads the first packet header; when that one is damaged and there is an index, the first readable one.
    pub(crate) fn open(
        file: StreamFile,
        class: &Arc<TraceClass>,
    ) -> Result<Self, (StreamFile, Cause)> {
        let mut window = Window::new(Handles::Keep);
        let info = match read_head(&mut window, &file, class, 0) {
            Ok(info) => info,
            Err(cause) => {
                let entries = index_of(&file).into_iter().flat_map(|index| index.entries);
                let mut offsets = entries.skip(1).map(|entry| entry.offset_bytes);
                match offsets.find_map(|at| read_head(&mut window, &file, class, at).ok()) {
                    Some(info) => info,
                    None => return Err((file, cause)),
                }
            }
        };
        let (stream_class_id, instance_id) = (info.stream_class_id, info.stream_instance_id);
        // A first packet that cannot be read is met and reported again when the file is.
        let first = Head::of(&info, 0);
        Ok(Self { file, class: Arc::clone(class), first, stream_class_id, instance_id })
    }

    pub(crate) fn key(&self) -> StreamKey {
        let env = |name| self.class.env(name);
        let text = |name| env(name).and_then(EnvValue::as_str).map(str::to_owned);
        let joined = self.class.uuid().is_some() && self.instance_id.is_some();
        StreamKey {
            host: text("hostname"),
            process: text("procname"),
            process_id: env("vpid").and_then(EnvValue::as_integer),
            trace: self.class.uuid(),
            class_id: self.stream_class_id,
            instance_id: self.instance_id,
            file: (!joined).then(|| self.file.path.clone()),
        }
    }

    pub(crate) fn stream_class(&self) -> Option<&StreamClass> {
        self.class.stream_class(self.stream_class_id)
    }

    pub(crate) fn clock(&self) -> Option<&ClockClass> {
        self.class.clock_of(self.stream_class()?)
    }

    /// A clock value as a time; `None` also when it has none in 64 bits.
    pub(crate) fn time(&self, cycles: Option<u64>) -> Option<Timestamp> {
        self.clock()?.to_ns(cycles?).ok().map(Timestamp::from_nanos)
    }

    /// The packets' heads in order: from the index when it describes the file, else from the packets up to the first
    /// that cannot be read.
    pub(crate) fn heads(&self) -> Box<dyn Iterator<Item = Head> + '_> {
        match index_of(&self.file) {
            Some(index) => Box::new(index.entries.into_iter().map(|entry| Head {
                offset: entry.offset_bytes,
                len: Some(entry.total_length_bits / 8),
                begin: Some(entry.timestamp_begin),
                end: Some(entry.timestamp_end),
                discarded: Some(entry.events_discarded),
                sequence: entry.position.map(|position| position.packet_seq_num),
            })),
            None => Box::new(self.scanned_heads()),
        }
    }

    fn scanned_heads(&self) -> impl Iterator<Item = Head> {
        let mut window = Window::new(Handles::Keep);
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let offset = next.take().filter(|offset| *offset < self.file.len)?;
            let info = read_head(&mut window, &self.file, &self.class, offset).ok()?;
            let head = Head::of(&info, offset);
            next = head.next_offset();
            Some(head)
        })
    }

    /// Where the first packet after `offset` begins, if the index knows.
    pub(crate) fn indexed_after(&self, offset: u64) -> Option<u64> {
        let index = index_of(&self.file)?;
        index.entries.iter().map(|entry| entry.offset_bytes).find(|begin| *begin > offset)
    }
}

/// The index beside a stream file, when it is of a version that knows sequence numbers and describes the file.
fn index_of(file: &StreamFile) -> Option<PacketIndex> {
    let path = file.index_path()?;
    // An index is a short cut: whatever is wrong with it, the packets themselves say the same.
    if fs::metadata(&path).ok()?.len() > MAX_INDEX_BYTES {
        return None;
    }
    let index = PacketIndex::decode(&fs::read(path).ok()?).ok()?;
    let usable = index.version == IndexVersion::V1_1 && index.check_against(file.len).is_ok();
    usable.then_some(index)
}

/// Header and context of the packet at `offset`.
fn read_head(
    window: &mut Window,
    file: &StreamFile,
    class: &TraceClass,
    offset: u64,
) -> Result<PacketInfo, Cause> {
    let mut least = FIRST_LOOK;
    loop {
        let bytes = window.get(&file.path, offset, least).map_err(Cause::Io)?;
        match decode_packet_header(class, bytes.as_ref())
            .map_err(|error| Cause::Damaged(Box::new(error)))?
        {
            Outcome::Ready(info) => return Ok(info),
            Outcome::NeedMore { at_least_bytes } if bytes.len() >= least => {
                least = at_least_bytes.max(least + 1);
            }
            Outcome::NeedMore { .. } => {
                return Err(Cause::CutHeader { available: bytes.len() as u64 });
            }
        }
    }
}
