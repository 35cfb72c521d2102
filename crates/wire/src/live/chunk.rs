//! Trace chunks: `CREATE_TRACE_CHUNK` (19), `ROTATE_STREAMS` (18), `CLOSE_TRACE_CHUNK` (20),
//! `TRACE_CHUNK_EXISTS` (21). All from 2.11.
//!
//! ```text
//! CREATE_TRACE_CHUNK  u64 chunk id, u64 creation time (s), u32 name length (with NUL; 0 = none), name
//!                     reply  u32 code
//! ROTATE_STREAMS      u32 count, u8 new chunk is set, 0 / 3 / 7 bytes of padding, u64 new chunk id,
//!                     count × (u64 handle, u64 packet sequence number of the new chunk's first packet)
//!                     reply  u32 code
//! CLOSE_TRACE_CHUNK   u64 chunk id, u64 close time (s), u8 action is set, u32 action (0 move to archives,
//!                     1 none, 2 delete)
//!                     reply  u32 code, u32 path length (with NUL, never 0), path
//! TRACE_CHUNK_EXISTS  u64 chunk id
//!                     reply  u32 code, u8 exists
//! ```
//! The padding of `ROTATE_STREAMS` is what the sender's compiler put between the two fields: 7 bytes on 64-bit
//! machines, 3 on 32-bit ones, 0 in packed builds. Its bytes may hold anything; the payload's length tells which.

use super::error::{Error, Result};
use super::id::{ChunkId, PacketSeqNum, StreamHandle, UnixSeconds};
use super::name::{self, MAX_NAME_LEN, Name, RelativePath};
use super::reader::Reader;
use super::reply::{Decoded, ReturnCode, fixed_reply, path_reply};

/// The most streams one `ROTATE_STREAMS` may list.
pub const MAX_ROTATED_STREAMS: usize = 65_000;

/// Bytes of one stream's position in `ROTATE_STREAMS`.
const POSITION_LEN: usize = 16;

/// Request `CREATE_TRACE_CHUNK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTraceChunk {
    /// Its number within the recording session.
    pub chunk: ChunkId,
    /// When it begins.
    pub created: UnixSeconds,
    /// Folder name that replaces the one made of times; used by snapshots.
    pub override_name: Option<Name>,
}

impl CreateTraceChunk {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let chunk = ChunkId::new(reader.u64("chunk id")?);
        let created = UnixSeconds::new(reader.u64("creation time")?);
        let override_name = match reader.len_u32("override name length", MAX_NAME_LEN + 1)? {
            0 => None,
            len => Some(Name::read(reader, "override name", len)?),
        };
        Ok(Self { chunk, created, override_name })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk.get().to_be_bytes());
        out.extend_from_slice(&self.created.get().to_be_bytes());
        let text = self.override_name.as_ref().map(Name::as_str);
        out.extend_from_slice(&text.map_or(0, name::wire_len).to_be_bytes());
        if let Some(text) = text {
            name::put_text(out, text);
        }
    }
}

/// Where a stream enters the new chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPosition {
    /// The stream.
    pub handle: StreamHandle,
    /// The first packet of the new chunk, a lower bound when packets can be overwritten; means nothing for metadata.
    pub rotate_at: PacketSeqNum,
}

/// Request `ROTATE_STREAMS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotateStreams {
    /// The chunk the streams enter; `None`: they leave their chunk and enter none.
    pub new_chunk: Option<ChunkId>,
    /// The streams, at most [`MAX_ROTATED_STREAMS`].
    pub positions: Vec<StreamPosition>,
}

impl RotateStreams {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let count = reader.len_u32("stream count", MAX_ROTATED_STREAMS)?;
        let is_set = reader.flag("new chunk is set")?;
        let padding_offset = reader.offset();
        let fixed = count.saturating_mul(POSITION_LEN).saturating_add(8);
        match reader.left().checked_sub(fixed) {
            Some(padding @ (0 | 3 | 7)) => {
                reader.bytes("padding", padding)?;
            }
            Some(other) => {
                return Err(Error::LengthTooLarge {
                    field: "padding",
                    offset: padding_offset,
                    len: other as u64,
                    max: 7,
                });
            }
            None => {
                return Err(Error::Truncated {
                    field: "stream positions",
                    offset: padding_offset,
                    needed: fixed,
                    left: reader.left(),
                });
            }
        }
        let chunk = ChunkId::new(reader.u64("new chunk id")?);
        let mut positions = Vec::with_capacity(count);
        for _ in 0..count {
            let handle = StreamHandle::new(reader.u64("stream handle")?);
            let rotate_at = PacketSeqNum::new(reader.u64("rotate at")?);
            positions.push(StreamPosition { handle, rotate_at });
        }
        Ok(Self { new_chunk: is_set.then_some(chunk), positions })
    }

    /// Writes the layout of 64-bit senders, with seven zero bytes of padding.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let count = u32::try_from(self.positions.len())
            .ok()
            .filter(|count| *count as usize <= MAX_ROTATED_STREAMS)
            .ok_or(Error::LengthTooLarge {
                field: "stream count",
                offset: 0,
                len: self.positions.len() as u64,
                max: MAX_ROTATED_STREAMS as u64,
            })?;
        out.extend_from_slice(&count.to_be_bytes());
        out.push(u8::from(self.new_chunk.is_some()));
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(&self.new_chunk.map_or(0, ChunkId::get).to_be_bytes());
        for position in &self.positions {
            out.extend_from_slice(&position.handle.get().to_be_bytes());
            out.extend_from_slice(&position.rotate_at.get().to_be_bytes());
        }
        Ok(())
    }
}

/// What becomes of a chunk once the last stream has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseAction {
    /// It moves to `archives/`.
    MoveToArchives = 0,
    /// It stays where it is.
    None = 1,
    /// It is deleted (`lttng clear`).
    Delete = 2,
}

/// Request `CLOSE_TRACE_CHUNK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseTraceChunk {
    /// The chunk.
    pub chunk: ChunkId,
    /// When it ends.
    pub closed: UnixSeconds,
    /// `None`: it stays where it is.
    pub action: Option<CloseAction>,
}

impl CloseTraceChunk {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let chunk = ChunkId::new(reader.u64("chunk id")?);
        let closed = UnixSeconds::new(reader.u64("close time")?);
        let is_set = reader.flag("action is set")?;
        let offset = reader.offset();
        let action = match (is_set, reader.u32("action")?) {
            (false, _) => None,
            (true, 0) => Some(CloseAction::MoveToArchives),
            (true, 1) => Some(CloseAction::None),
            (true, 2) => Some(CloseAction::Delete),
            (true, other) => {
                return Err(Error::BadValue { field: "action", offset, value: u64::from(other) });
            }
        };
        Ok(Self { chunk, closed, action })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk.get().to_be_bytes());
        out.extend_from_slice(&self.closed.get().to_be_bytes());
        out.push(u8::from(self.action.is_some()));
        out.extend_from_slice(&self.action.map_or(0, |action| action as u32).to_be_bytes());
    }
}

/// Reply to `CLOSE_TRACE_CHUNK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseTraceChunkReply {
    /// Whether it worked.
    pub code: ReturnCode,
    /// Where the chunk is or will be, relative to the relay's root.
    pub path: RelativePath,
}

impl CloseTraceChunkReply {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`], [`Error::BadName`]; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        let head = |reader: &mut Reader<'_>| Ok(ReturnCode(reader.u32("return code")?));
        Ok(match path_reply(bytes, 8, head)? {
            Decoded::Incomplete { needed } => Decoded::Incomplete { needed },
            Decoded::Complete { value: (code, path), used } => {
                Decoded::Complete { value: Self { code, path }, used }
            }
        })
    }

    /// Appends it; an empty path still has its NUL, which the producer waits for.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.code.0.to_be_bytes());
        out.extend_from_slice(&name::wire_len(self.path.as_str()).to_be_bytes());
        name::put_text(out, self.path.as_str());
    }
}

/// Request `TRACE_CHUNK_EXISTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceChunkExists {
    /// The chunk.
    pub chunk: ChunkId,
}

impl TraceChunkExists {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { chunk: ChunkId::new(reader.u64("chunk id")?) })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk.get().to_be_bytes());
    }
}

/// Reply to `TRACE_CHUNK_EXISTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkExistsReply {
    /// Whether it worked.
    pub code: ReturnCode,
    /// Whether the chunk is still in use or has its last move before it.
    pub exists: bool,
}

impl ChunkExistsReply {
    /// Length in bytes.
    pub const LEN: usize = 5;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::BadValue`] for a flag that is not 0 or 1.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let code = ReturnCode(reader.u32("return code")?);
            Ok(Self { code, exists: reader.flag("exists")? })
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.code.0.to_be_bytes());
        out.push(u8::from(self.exists));
    }
}
