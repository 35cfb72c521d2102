//! Every request of a viewer in one enum, and the replies that are one number.
//!
//! ```text
//! CONNECT         u64 viewer session id (all ones), u32 major, u32 minor, u32 type (1 = command)
//!                 reply  the same: the id, the relay's version, type 0; both then speak the smaller minor
//! ATTACH_SESSION  u64 session, u64 offset (unused), u32 seek (1 beginning, 2 last)
//! GET_PACKET      u64 stream, u64 offset in bytes, u32 length in bytes
//! the others      nothing, or one u64
//! CREATE_SESSION  reply  u32 status: 1 made, 2 failed
//! DETACH_SESSION  reply  u32 status: 1 done, 2 not attached to it, 3 failed
//! ```

use super::{
    AttachReply, Command, Header, MetadataReply, NewStreamsReply, NextIndexReply, PacketReply,
    SessionEntry, SessionListHead, StreamEntry, unknown_status,
};
use crate::live::error::{Error, Result};
use crate::live::reader::Reader;
use crate::live::reply::{Decoded, fixed_reply};
use crate::live::{ProtocolMinor, Version, ViewedSessionId, ViewedStreamId, ViewerSessionId};

/// `CONNECT`, both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// The connection's number; [`ViewerSessionId::NONE`] in the request.
    pub viewer_session: ViewerSessionId,
    /// The sender's version.
    pub version: Version,
    /// [`Connect::COMMAND`] in the request, 0 in the reply.
    pub kind: u32,
}

impl Connect {
    /// Length of payload and reply in bytes.
    pub const LEN: usize = 20;
    /// The kind of connection that carries commands.
    pub const COMMAND: u32 = 1;

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let viewer_session = ViewerSessionId::new(reader.u64("viewer session id")?);
        let version = Version::read(reader)?;
        Ok(Self { viewer_session, version, kind: reader.u32("type")? })
    }

    /// Reads the reply.
    ///
    /// # Errors
    /// None beyond the shape; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, Self::read)
    }

    /// Appends the twenty bytes, as payload or as reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.viewer_session.get().to_be_bytes());
        self.version.encode(out);
        out.extend_from_slice(&self.kind.to_be_bytes());
    }
}

/// Where reading of a recording session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// At the first packet that is kept.
    Beginning,
    /// At the first packet of each stream that ends at this clock value, which is not 0, or later. On the wire it is the
    /// beginning with an offset: where LTTng's viewers send 0 and lttng-relayd does not look, and begins at the
    /// beginning.
    Since(u64),
    /// Behind the last packet there is.
    Last,
}

impl Seek {
    /// The fields offset and seek of the request.
    #[must_use]
    pub const fn fields(self) -> (u64, u32) {
        match self {
            Self::Beginning => (0, 1),
            Self::Since(cycles) => (cycles, 1),
            Self::Last => (0, 2),
        }
    }
}

/// Request `ATTACH_SESSION`; reply [`AttachReply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachSession {
    /// The recording session.
    pub session: ViewedSessionId,
    /// Where to begin. Streams that appear later are always read from their beginning.
    pub seek: Seek,
}

/// Request `GET_PACKET`; reply [`PacketReply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetPacket {
    /// The stream.
    pub stream: ViewedStreamId,
    /// Where the bytes begin, counted as [`super::PacketEntry::offset_bytes`] is.
    pub offset_bytes: u64,
    /// How many bytes: the viewer's word, check it against the packet.
    pub len_bytes: u32,
}

/// A request of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `CONNECT`; reply [`Connect`].
    Connect(Connect),
    /// `LIST_SESSIONS`; reply [`SessionListHead`] and [`SessionEntry`]s.
    ListSessions,
    /// `ATTACH_SESSION`; reply [`AttachReply`] and [`StreamEntry`]s.
    AttachSession(AttachSession),
    /// `GET_NEXT_INDEX`; reply [`NextIndexReply`].
    GetNextIndex(ViewedStreamId),
    /// `GET_PACKET`; reply [`PacketReply`] and bytes.
    GetPacket(GetPacket),
    /// `GET_METADATA`; reply [`MetadataReply`] and bytes.
    GetMetadata(ViewedStreamId),
    /// `GET_NEW_STREAMS`; reply [`NewStreamsReply`] and [`StreamEntry`]s.
    GetNewStreams(ViewedSessionId),
    /// `CREATE_SESSION`; reply [`CreateViewerSessionReply`].
    CreateSession,
    /// `DETACH_SESSION`; reply [`DetachReply`].
    DetachSession(ViewedSessionId),
}

impl Request {
    /// Reads a command's payload. Bytes after the known fields are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`]; [`Error::BadValue`] for a seek that means nothing.
    pub fn decode(command: Command, payload: &[u8]) -> Result<Self> {
        let reader = &mut Reader::new(payload);
        Ok(match command {
            Command::Connect => Self::Connect(Connect::read(reader)?),
            Command::ListSessions => Self::ListSessions,
            Command::AttachSession => Self::AttachSession(read_attach(reader)?),
            Command::GetNextIndex => Self::GetNextIndex(read_stream(reader)?),
            Command::GetPacket => Self::GetPacket(GetPacket {
                stream: read_stream(reader)?,
                offset_bytes: reader.u64("offset")?,
                len_bytes: reader.u32("length")?,
            }),
            Command::GetMetadata => Self::GetMetadata(read_stream(reader)?),
            Command::GetNewStreams => Self::GetNewStreams(read_session(reader)?),
            Command::CreateSession => Self::CreateSession,
            Command::DetachSession => Self::DetachSession(read_session(reader)?),
        })
    }

    /// Appends header and payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Header { command: self.command(), payload_len: self.payload_len() }.encode(out);
        match self {
            Self::Connect(request) => request.encode(out),
            Self::ListSessions | Self::CreateSession => {}
            Self::AttachSession(AttachSession { session, seek }) => {
                out.extend_from_slice(&session.get().to_be_bytes());
                let (offset, seek) = seek.fields();
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&seek.to_be_bytes());
            }
            Self::GetPacket(GetPacket { stream, offset_bytes, len_bytes }) => {
                out.extend_from_slice(&stream.get().to_be_bytes());
                out.extend_from_slice(&offset_bytes.to_be_bytes());
                out.extend_from_slice(&len_bytes.to_be_bytes());
            }
            Self::GetNextIndex(stream) | Self::GetMetadata(stream) => {
                out.extend_from_slice(&stream.get().to_be_bytes());
            }
            Self::GetNewStreams(session) | Self::DetachSession(session) => {
                out.extend_from_slice(&session.get().to_be_bytes());
            }
        }
    }

    /// The request's command.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::Connect(_) => Command::Connect,
            Self::ListSessions => Command::ListSessions,
            Self::AttachSession(_) => Command::AttachSession,
            Self::GetNextIndex(_) => Command::GetNextIndex,
            Self::GetPacket(_) => Command::GetPacket,
            Self::GetMetadata(_) => Command::GetMetadata,
            Self::GetNewStreams(_) => Command::GetNewStreams,
            Self::CreateSession => Command::CreateSession,
            Self::DetachSession(_) => Command::DetachSession,
        }
    }

    const fn payload_len(&self) -> u32 {
        match self {
            Self::ListSessions | Self::CreateSession => 0,
            Self::Connect(_) | Self::AttachSession(_) | Self::GetPacket(_) => 20,
            _ => 8,
        }
    }
}

fn read_stream(reader: &mut Reader<'_>) -> Result<ViewedStreamId> {
    reader.u64("stream id").map(ViewedStreamId::new)
}

fn read_session(reader: &mut Reader<'_>) -> Result<ViewedSessionId> {
    reader.u64("session id").map(ViewedSessionId::new)
}

fn read_attach(reader: &mut Reader<'_>) -> Result<AttachSession> {
    let session = read_session(reader)?;
    let cycles = reader.u64("offset")?;
    let offset = reader.offset();
    let seek = match reader.u32("seek")? {
        1 if cycles == 0 => Seek::Beginning,
        1 => Seek::Since(cycles),
        2 => Seek::Last,
        other => {
            return Err(Error::BadValue { field: "seek", offset, value: u64::from(other) });
        }
    };
    Ok(AttachSession { session, seek })
}

macro_rules! status_reply {
    ($(#[$doc:meta])* $name:ident; $($(#[$value_doc:meta])* $variant:ident = $number:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$value_doc])* $variant = $number,)*
        }

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = 4;

            /// Reads it.
            ///
            /// # Errors
            /// [`Error::BadValue`] for a status that means nothing; a short buffer is [`Decoded::Incomplete`].
            pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
                fixed_reply(bytes, Self::LEN, |reader| match reader.u32("status")? {
                    $($number => Ok(Self::$variant),)*
                    other => Err(unknown_status(0, other)),
                })
            }

            /// Appends it.
            pub fn encode(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self as u32).to_be_bytes());
            }
        }
    };
}

status_reply! {
    /// Reply to `CREATE_SESSION`.
    CreateViewerSessionReply;
    /// The viewer session is there.
    Made = 1;
    /// It is not.
    Failed = 2;
}

status_reply! {
    /// Reply to `DETACH_SESSION`.
    DetachReply;
    /// Reading has ended.
    Detached = 1;
    /// The viewer was not attached to it.
    Unknown = 2;
    /// It failed.
    Failed = 3;
}

/// Reads bytes as every message of the viewer connection in turn and discards what comes out: the entry point for
/// fuzzing. The first byte is the minor version.
pub fn decode_any(bytes: &[u8]) {
    let Some((minor, rest)) = bytes.split_first() else { return };
    let minor = ProtocolMinor(u32::from(*minor));
    if let Some((header, payload)) = rest.split_first_chunk::<{ Header::LEN }>()
        && let Ok(header) = Header::decode(header)
        && let Ok(request) = Request::decode(header.command, payload)
    {
        let mut again = Vec::new();
        request.encode(&mut again);
        let payload = again.get(Header::LEN..).unwrap_or(&[]);
        debug_assert_eq!(Request::decode(header.command, payload), Ok(request));
    }
    same(rest, Connect::decode, Connect::encode);
    same(rest, NextIndexReply::decode, NextIndexReply::encode);
    same(rest, |bytes| PacketReply::decode(bytes, u32::MAX), PacketReply::encode);
    same(rest, MetadataReply::decode, MetadataReply::encode);
    same(rest, AttachReply::decode, AttachReply::encode);
    same(rest, NewStreamsReply::decode, NewStreamsReply::encode);
    same(rest, SessionListHead::decode, SessionListHead::encode);
    same(rest, DetachReply::decode, |reply, out| reply.encode(out));
    same(rest, CreateViewerSessionReply::decode, |reply, out| reply.encode(out));
    same(rest, StreamEntry::decode, StreamEntry::encode);
    same(rest, |bytes| SessionEntry::decode(bytes, minor), |entry, out| entry.encode(minor, out));
}

/// What was read and written must be read and written as the same again. The first reading may change texts: it replaces
/// what cannot be shown, which may no longer fit.
fn same<T>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<Decoded<T>>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    if let Ok(Decoded::Complete { value, used }) = decode(bytes) {
        debug_assert!(used <= bytes.len());
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        encode(&value, &mut once);
        if let Ok(Decoded::Complete { value, used }) = decode(&once) {
            debug_assert_eq!(used, once.len());
            encode(&value, &mut twice);
        }
        debug_assert_eq!(once, twice);
    }
}
