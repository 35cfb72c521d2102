//! `DATA_PENDING` (8) and the commands around it.
//!
//! ```text
//! BEGIN_DATA_PENDING (10)  u64 relay session id                        reply  u32 code
//! DATA_PENDING (8)         u64 handle, u64 last net sequence number    reply  u32: 0 all on disk, 1 pending
//! QUIESCENT_CONTROL (9)    u64 handle of a metadata stream             reply  u32 code
//! END_DATA_PENDING (11)    u64 relay session id                        reply  u32: 1 if any stream was not
//!                                                                      asked about and is incomplete
//! ```
//! `lttng stop` and `lttng destroy` repeat the round until every answer is 0.

use super::error::{Error, Result};
use super::id::{NetSeqNum, StreamHandle};
use super::reader::Reader;
use super::reply::{Decoded, ReturnCode, fixed_reply};

/// Request `DATA_PENDING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPending {
    /// The stream.
    pub handle: StreamHandle,
    /// Its last packet sent.
    pub last: NetSeqNum,
}

impl DataPending {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let handle = StreamHandle::new(reader.u64("stream handle")?);
        Ok(Self { handle, last: NetSeqNum::new(reader.u64("last net sequence number")?) })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.get().to_be_bytes());
        out.extend_from_slice(&self.last.get().to_be_bytes());
    }
}

/// Reply to `DATA_PENDING` and `END_DATA_PENDING`; a failure takes the place of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingReply {
    /// Everything is on disk.
    Complete,
    /// Something is still missing.
    Pending,
    /// The question failed.
    Failed(ReturnCode),
}

impl PendingReply {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::BadValue`] for return code 10, which is no answer here.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| match reader.u32("pending")? {
            0 => Ok(Self::Complete),
            1 => Ok(Self::Pending),
            10 => Err(Error::BadValue { field: "pending", offset: 0, value: 10 }),
            code => Ok(Self::Failed(ReturnCode(code))),
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let value = match self {
            Self::Complete => 0,
            Self::Pending => 1,
            Self::Failed(code) => code.0,
        };
        out.extend_from_slice(&u32::to_be_bytes(value));
    }
}
