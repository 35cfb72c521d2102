//! `ADD_STREAM` (1), `CLOSE_STREAM` (7); `STREAMS_SENT` (16) has no payload.
//!
//! ```text
//! ADD_STREAM, before 2.11             ADD_STREAM, 2.11 on
//! off  size                           off size
//!    0  264  channel, NUL filled        0    4  channel length, with NUL
//!  264 4096  path, NUL filled           4    4  path length, with NUL
//! 4360    8  file size    (from 2.2)    8    8  trace file size, bytes; 0 = no limit
//! 4368    8  file count   (from 2.2)   16    8  trace file count; 0 = no limit
//!                                      24    8  chunk id
//!                                      32       channel, path
//! reply  u64 handle, u32 code
//!
//! CLOSE_STREAM  u64 handle, u64 last net sequence number (all ones: none)     reply  u32 code
//! ```
//! The channel is `NAME_CPU`, or exactly `metadata`. Before 2.11 the path begins with a slash and contains host
//! and session; from 2.11 it is relative to the chunk: `ust/uid/0/64-bit`, `kernel`.

use super::error::{Error, Result};
use super::id::{ChunkId, NetSeqNum, StreamHandle};
use super::name::{self, MAX_NAME_LEN, MAX_PATH_LEN, Name, RelativePath};
use super::reader::Reader;
use super::reply::{Decoded, ReturnCode, fixed_reply};
use super::{Command, ProtocolMinor};

const FIXED_CHANNEL_LEN: usize = 264;
const FIXED_PATH_LEN: usize = 4096;

/// How a stream's file is split (`lttng enable-channel --tracefile-size --tracefile-count`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracefileLimit {
    /// A packet whose data would bring a file above this size, in bytes, begins a new file.
    pub size_bytes: u64,
    /// Files kept, the oldest is overwritten; `None` keeps all.
    pub count: Option<u64>,
}

/// Request `ADD_STREAM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddStream {
    /// File name of the stream.
    pub channel: Name,
    /// Folder of the file, relative to the chunk; before 2.11 relative to the relay's root.
    pub path: RelativePath,
    /// `None` writes one file.
    pub tracefile: Option<TracefileLimit>,
    /// The chunk it begins in; `None` before 2.11.
    pub chunk: Option<ChunkId>,
}

impl AddStream {
    /// Whether the stream carries metadata.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.channel.as_str() == "metadata"
    }

    pub(super) fn read(reader: &mut Reader<'_>, minor: ProtocolMinor) -> Result<Self> {
        if minor.has_trace_chunks() {
            let channel_len = reader.len_u32("channel length", MAX_NAME_LEN + 1)?;
            let path_len = reader.len_u32("path length", MAX_PATH_LEN + 1)?;
            let tracefile = read_limit(reader)?;
            let chunk = Some(ChunkId::new(reader.u64("chunk id")?));
            let channel = Name::read(reader, "channel", channel_len)?;
            let path = RelativePath::read(reader, "path", path_len)?;
            return Ok(Self { channel, path, tracefile, chunk });
        }
        let channel = Name::read(reader, "channel", FIXED_CHANNEL_LEN)?;
        let path = RelativePath::read_rooted(reader, "path", FIXED_PATH_LEN)?;
        let tracefile = if minor.has_tracefile_limit() { read_limit(reader)? } else { None };
        Ok(Self { channel, path, tracefile, chunk: None })
    }

    pub(super) fn write(&self, minor: ProtocolMinor, out: &mut Vec<u8>) -> Result<()> {
        if !minor.has_trace_chunks() {
            name::put_fixed(out, "channel", self.channel.as_str(), FIXED_CHANNEL_LEN)?;
            name::put_fixed(out, "path", &format!("/{}", self.path), FIXED_PATH_LEN)?;
            if minor.has_tracefile_limit() {
                self.write_limit(out);
            }
            return Ok(());
        }
        let chunk = self
            .chunk
            .ok_or(Error::NotInVersion { command: Command::AddStream, minor: minor.0 })?;
        out.extend_from_slice(&name::wire_len(self.channel.as_str()).to_be_bytes());
        out.extend_from_slice(&name::wire_len(self.path.as_str()).to_be_bytes());
        self.write_limit(out);
        out.extend_from_slice(&chunk.get().to_be_bytes());
        name::put_text(out, self.channel.as_str());
        name::put_text(out, self.path.as_str());
        Ok(())
    }

    fn write_limit(&self, out: &mut Vec<u8>) {
        let size = self.tracefile.map_or(0, |limit| limit.size_bytes);
        let count = self.tracefile.and_then(|limit| limit.count).unwrap_or(0);
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
    }
}

fn read_limit(reader: &mut Reader<'_>) -> Result<Option<TracefileLimit>> {
    let size_bytes = reader.u64("trace file size")?;
    let count = reader.u64("trace file count")?;
    Ok((size_bytes > 0)
        .then_some(TracefileLimit { size_bytes, count: (count > 0).then_some(count) }))
}

/// Reply to `ADD_STREAM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddStreamReply {
    /// The stream's handle, unique in the relay.
    pub handle: StreamHandle,
    /// Whether it worked.
    pub code: ReturnCode,
}

impl AddStreamReply {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Reads it.
    ///
    /// # Errors
    /// None beyond the shape; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let handle = StreamHandle::new(reader.u64("stream handle")?);
            Ok(Self { handle, code: ReturnCode(reader.u32("return code")?) })
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.get().to_be_bytes());
        out.extend_from_slice(&self.code.0.to_be_bytes());
    }
}

/// Request `CLOSE_STREAM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseStream {
    /// The stream.
    pub handle: StreamHandle,
    /// Its last packet, which may still be on its way on the data connection.
    pub last: NetSeqNum,
}

impl CloseStream {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let handle = StreamHandle::new(reader.u64("stream handle")?);
        Ok(Self { handle, last: NetSeqNum::new(reader.u64("last net sequence number")?) })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.get().to_be_bytes());
        out.extend_from_slice(&self.last.get().to_be_bytes());
    }
}
