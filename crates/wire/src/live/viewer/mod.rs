//! The viewer connection: lists, attaches to and reads recording sessions while they are written.
//!
//! A viewer (babeltrace2, or our own) opens one TCP connection to a relay's live port and asks; every request has
//! one reply, in order. Requests have a 16-byte [`Header`], replies none. All integers are big endian, all
//! structures packed. Replies that carry a list or bytes are read in parts, so that neither side holds a whole one:
//!
//! ```text
//!  n  request            payload                                  reply
//!  1  CONNECT            u64 all ones, u32 major, minor, type 1   the same 20 bytes: id, the relay's version, type 0
//!  2  LIST_SESSIONS      -                                        u32 count, then SessionEntry × count
//!  3  ATTACH_SESSION     u64 session, u64 offset, u32 seek        u32 status, u32 count, then StreamEntry × count
//!  4  GET_NEXT_INDEX     u64 stream                               64 bytes: NextIndexReply
//!  5  GET_PACKET         u64 stream, u64 offset, u32 length       u32 status, u32 length, u32 flags, then bytes
//!  6  GET_METADATA       u64 stream                               u64 length, u32 status, then bytes
//!  7  GET_NEW_STREAMS    u64 session                              u32 status, u32 count, then StreamEntry × count
//!  8  CREATE_SESSION     -                                        u32 status
//!  9  DETACH_SESSION     u64 session                              u32 status
//! ```
//!
//! A viewer connects, creates a viewer session, lists, attaches, fetches metadata until there is none new, and
//! then asks for the next index of each stream and for the packet it names. Source: lttng-tools 2.10 to 2.16,
//! `src/bin/lttng-relayd/lttng-viewer-abi.h`, checked against recorded byte streams of babeltrace2 2.0.4 (speaks 2.4)
//! and 2.1.2 (speaks 2.15).
//!
//! ```
//! use wire::live::viewer::{Header, NextIndex, NextIndexReply, Request};
//! use wire::live::{Decoded, ViewedStreamId};
//!
//! let mut bytes = Vec::new();
//! Request::GetNextIndex(ViewedStreamId::new(7)).encode(&mut bytes);
//! assert_eq!(bytes.len(), Header::LEN + 8);
//! let mut reply = Vec::new();
//! NextIndexReply { index: NextIndex::NotYet, flags: Default::default() }.encode(&mut reply);
//! let Decoded::Complete { value, used } = NextIndexReply::decode(&reply)? else { panic!("all is there") };
//! assert_eq!((value.index, used), (NextIndex::NotYet, NextIndexReply::LEN));
//! # Ok::<(), wire::live::Error>(())
//! ```

mod command;
mod index;
mod list;
mod packet;
mod request;

pub use command::{Command, Header};
pub use index::{NextIndex, NextIndexReply, PacketEntry};
pub use list::{
    AttachReply, MAX_LISTED, NewStreamsReply, SessionEntry, SessionListHead, StreamEntry,
};
pub use packet::{Flags, MAX_METADATA_PIECE_LEN, MetadataReply, PacketPiece, PacketReply};
pub use request::{
    AttachSession, Connect, CreateViewerSessionReply, DetachReply, GetPacket, Request, Seek,
    decode_any,
};

use super::error::Error;

/// A status that means nothing.
const fn unknown_status(offset: usize, status: u32) -> Error {
    Error::BadValue { field: "status", offset, value: status as u64 }
}
