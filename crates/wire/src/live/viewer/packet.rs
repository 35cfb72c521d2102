//! `GET_PACKET` (5) and `GET_METADATA` (6): the parts in front of the bytes.
//!
//! ```text
//! GET_PACKET    u32 status (1 bytes follow, 2 retry, 3 error, 4 end), u32 length, u32 flags, bytes
//! GET_METADATA  u64 length, u32 status (1 bytes follow, 2 no new ones, 3 error), bytes
//! ```

use std::ops::BitOr;

use super::unknown_status;
use crate::live::error::{Error, Result};
use crate::live::reply::{Decoded, fixed_reply};

/// The most metadata one reply may announce, in bytes. That of a Linux kernel is below a tenth of it.
pub const MAX_METADATA_PIECE_LEN: u64 = 64 << 20;

/// What a viewer should ask for before it goes on. Unknown bits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The packet needs metadata that were not fetched yet.
    pub const NEW_METADATA: Self = Self(1);
    /// There are streams that were not listed yet.
    pub const NEW_STREAMS: Self = Self(2);

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What became of a request for a packet's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketPiece {
    /// So many bytes follow the reply.
    Bytes(u32),
    /// They are not there yet: ask again later.
    NotYet,
    /// They cannot be had, or other things are to be asked for first: see the flags.
    Failed,
    /// The end of what is kept.
    End,
}

/// Reply to `GET_PACKET`, without the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketReply {
    /// What became of the request.
    pub piece: PacketPiece,
    /// What the viewer should ask for first.
    pub flags: Flags,
}

impl PacketReply {
    /// Length in bytes, without the packet's.
    pub const LEN: usize = 12;

    /// Reads it. `asked` is how many bytes the viewer asked for: more are not accepted.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`]; [`Error::BadValue`] for a status that means nothing; a short buffer is
    /// [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8], asked: u32) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let status = reader.u32("status")?;
            let len = reader.u32("length")?;
            let piece = match status {
                1 if len > asked => {
                    let (len, max) = (u64::from(len), u64::from(asked));
                    return Err(Error::LengthTooLarge { field: "length", offset: 4, len, max });
                }
                1 => PacketPiece::Bytes(len),
                2 => PacketPiece::NotYet,
                3 => PacketPiece::Failed,
                4 => PacketPiece::End,
                other => return Err(unknown_status(0, other)),
            };
            Ok(Self { piece, flags: Flags(reader.u32("flags")?) })
        })
    }

    /// Appends it; the caller appends the bytes it announces.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (status, len): (u32, u32) = match self.piece {
            PacketPiece::Bytes(len) => (1, len),
            PacketPiece::NotYet => (2, 0),
            PacketPiece::Failed => (3, 0),
            PacketPiece::End => (4, 0),
        };
        for field in [status, len, self.flags.0] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }
}

/// Reply to `GET_METADATA`, without the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataReply {
    /// So many bytes follow. Never 0 to babeltrace2 2.0.4, which takes that for an error.
    Bytes(u64),
    /// All there is was sent.
    NoneNew,
    /// It cannot be had: the stream is gone.
    Failed,
}

impl MetadataReply {
    /// Length in bytes, without the metadata's.
    pub const LEN: usize = 12;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`] above [`MAX_METADATA_PIECE_LEN`]; [`Error::BadValue`] for a status that means
    /// nothing; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let len = reader.u64("length")?;
            match reader.u32("status")? {
                1 if len > MAX_METADATA_PIECE_LEN => {
                    let max = MAX_METADATA_PIECE_LEN;
                    Err(Error::LengthTooLarge { field: "length", offset: 0, len, max })
                }
                1 => Ok(Self::Bytes(len)),
                2 => Ok(Self::NoneNew),
                3 => Ok(Self::Failed),
                other => Err(unknown_status(8, other)),
            }
        })
    }

    /// Appends it; the caller appends the bytes it announces.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (len, status): (u64, u32) = match self {
            Self::Bytes(len) => (*len, 1),
            Self::NoneNew => (0, 2),
            Self::Failed => (0, 3),
        };
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&status.to_be_bytes());
    }
}
