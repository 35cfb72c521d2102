//! Resuming a session: an extension of the protocol that only Throughline speaks.
//!
//! ```text
//! producer                                   relay
//!   GET_CONFIGURATION, bit 63            ─▶
//!                                        ◀─   flags with bit 63: sessions can be resumed
//!   CREATE_SESSION with the identity of before
//!   STREAM_POSITIONS                     ─▶
//!                                        ◀─   the last packet it has of each stream
//! ```
//! Reply to `STREAM_POSITIONS` (1001), all big-endian:
//!
//! ```text
//! 0   u32  return code
//! 4   u32  number of streams n
//! then n times:
//!     u32  length of the path with its NUL
//!     ...  path of the stream in its chunk, channel included
//!     u64  packet sequence number of its last packet
//! ```

use super::error::{Error, Result};
use super::id::PacketSeqNum;
use super::name::{self, MAX_PATH_LEN, RelativePath};
use super::reader::Reader;
use super::reply::{Decoded, ReturnCode};

/// The most streams in a reply.
pub const MAX_STREAM_POSITIONS: usize = 16_384;

/// Reply to `STREAM_POSITIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPositionsReply {
    /// Whether it worked.
    pub code: ReturnCode,
    /// The last packet the relay has of each stream, by its path in the chunk; at most [`MAX_STREAM_POSITIONS`].
    pub positions: Vec<(RelativePath, PacketSeqNum)>,
}

impl StreamPositionsReply {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`], [`Error::BadName`]; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        let reader = &mut Reader::new(bytes);
        let read = Self::read(reader);
        match read {
            Ok(value) => Ok(Decoded::Complete { value, used: reader.offset() }),
            Err(Error::Truncated { offset, needed, .. }) => {
                Ok(Decoded::Incomplete { needed: offset.saturating_add(needed) })
            }
            Err(error) => Err(error),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let code = ReturnCode(reader.u32("return code")?);
        let count = reader.len_u32("number of streams", MAX_STREAM_POSITIONS)?;
        let mut positions = Vec::new();
        for _ in 0..count {
            let len = reader.len_u32("path length", MAX_PATH_LEN + 1)?;
            let path = RelativePath::read(reader, "path", len)?;
            positions.push((path, PacketSeqNum::new(reader.u64("packet sequence number")?)));
        }
        Ok(Self { code, positions })
    }

    /// Appends it; streams beyond [`MAX_STREAM_POSITIONS`] are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = self.positions.len().min(MAX_STREAM_POSITIONS);
        out.extend_from_slice(&self.code.0.to_be_bytes());
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        for (path, number) in self.positions.iter().take(count) {
            out.extend_from_slice(&name::wire_len(path.as_str()).to_be_bytes());
            name::put_text(out, path.as_str());
            out.extend_from_slice(&number.get().to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_a_cut_asks_for_more() {
        let path = |text| RelativePath::new(text).unwrap();
        for positions in [
            Vec::new(),
            vec![(path("kernel/channel0_0"), PacketSeqNum::new(7))],
            vec![(path("a/b"), PacketSeqNum::new(0)), (path("c"), PacketSeqNum::new(u64::MAX))],
        ] {
            let reply = StreamPositionsReply { code: ReturnCode::OK, positions };
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            let used = bytes.len();
            bytes.push(0xff);
            for len in 0..used {
                match StreamPositionsReply::decode(&bytes[..len]) {
                    Ok(Decoded::Incomplete { needed }) => assert!(needed > len && needed <= used),
                    other => panic!("{len}: {other:?}"),
                }
            }
            let decoded = StreamPositionsReply::decode(&bytes);
            assert_eq!(decoded, Ok(Decoded::Complete { value: reply, used }));
        }
    }

    #[test]
    fn a_number_of_streams_beyond_the_bound_is_refused() {
        let bytes = [0, 0, 0, 10, 0xff, 0xff, 0xff, 0xff];
        assert!(matches!(
            StreamPositionsReply::decode(&bytes),
            Err(Error::LengthTooLarge { field: "number of streams", .. })
        ));
    }
}
