//! `SEND_METADATA` (6), never answered, and `RESET_METADATA` (17).
//!
//! ```text
//! SEND_METADATA   u64 handle, u32 padding bytes (zeros the relay appends), metadata bytes
//! RESET_METADATA  u64 handle, u64 version                                    reply  u32 code
//! ```

use super::error::Result;
use super::id::StreamHandle;
use super::reader::Reader;

/// Request `SEND_METADATA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendMetadata<'a> {
    /// The metadata stream.
    pub handle: StreamHandle,
    /// Zero bytes to append after the metadata; the sender's word, check it before use.
    pub padding_len: u32,
    /// The metadata, a piece that may end anywhere.
    pub bytes: &'a [u8],
}

impl<'a> SendMetadata<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self> {
        let handle = StreamHandle::new(reader.u64("stream handle")?);
        let padding_len = reader.u32("padding")?;
        Ok(Self { handle, padding_len, bytes: reader.rest() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.get().to_be_bytes());
        out.extend_from_slice(&self.padding_len.to_be_bytes());
        out.extend_from_slice(self.bytes);
    }
}

/// Request `RESET_METADATA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetMetadata {
    /// The metadata stream, which begins again from nothing.
    pub handle: StreamHandle,
    /// Counts how often the metadata was generated.
    pub version: u64,
}

impl ResetMetadata {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let handle = StreamHandle::new(reader.u64("stream handle")?);
        Ok(Self { handle, version: reader.u64("metadata version")? })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.get().to_be_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
    }
}
