//! Lists of recording sessions and of streams: their heads and entries.
//!
//! ```text
//! LIST_SESSIONS    u32 count
//! ATTACH_SESSION   u32 status (1 attached, 2 somebody else is, 3 unknown, 4 not live, 5 bad seek, 6 no viewer
//!                  session), u32 count
//! GET_NEW_STREAMS  u32 status (1 streams follow, 2 none, 3 error, 4 hang-up), u32 count
//!
//! session entry, before 2.15        session entry, 2.15 on            stream entry
//! off size                          off size                          off  size
//!   0    8  session id                0    8  session id                0     8  stream id
//!   8    4  live timer period, µs     8    4  live timer period, µs     8     8  trace id
//!  12    4  viewers                  12    4  viewers                  16     4  is metadata, 0 or 1
//!  16    4  streams                  16    4  streams                  20  4096  path, NUL filled
//!  20   64  hostname, NUL filled     20    4  hostname length        4116   255  channel, NUL filled
//!  84  255  name, NUL filled         24    4  name length
//! 339                                28    4  trace format, 0 = CTF 1.8, 1 = CTF 2
//!                                    32       hostname, name, without NUL
//! ```
//! Names are for showing and choosing, not for files: control characters become U+FFFD when they are read, and
//! what does not fit an array is cut when they are written.

use super::unknown_status;
use crate::live::error::{Error, Result};
use crate::live::name::{self, MAX_NAME_LEN};
use crate::live::reader::Reader;
use crate::live::reply::{Decoded, fixed_reply};
use crate::live::{ProtocolMinor, TraceFormat, ViewedSessionId, ViewedStreamId, ViewedTraceId};

/// The most entries one list may announce.
pub const MAX_LISTED: usize = 1 << 16;

const FIXED_HOSTNAME_LEN: usize = 64;
const FIXED_NAME_LEN: usize = 255;
const FIXED_PATH_LEN: usize = 4096;
const FIXED_CHANNEL_LEN: usize = 255;

/// Begins the reply to `LIST_SESSIONS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionListHead {
    /// How many [`SessionEntry`]s follow, at most [`MAX_LISTED`].
    pub count: u32,
}

impl SessionListHead {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`]; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| Ok(Self { count: read_count(reader)? }))
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_be_bytes());
    }
}

/// A recording session in the reply to `LIST_SESSIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEntry {
    /// The session.
    pub session: ViewedSessionId,
    /// Period of its live timer in µs; 0 = it has none.
    pub live_timer_us: u32,
    /// Viewers attached to it.
    pub viewers: u32,
    /// Its streams, metadata included.
    pub streams: u32,
    /// The format of its traces; before 2.15 always CTF 1.8: other sessions cannot be shown to such viewers.
    pub format: TraceFormat,
    /// Host of its producer, at most 255 bytes.
    pub hostname: String,
    /// Its name, at most 255 bytes.
    pub name: String,
}

impl SessionEntry {
    /// Reads one. `minor` is the smaller of both sides' minor versions.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`]; [`Error::BadValue`] for a format that means nothing; a short buffer is
    /// [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8], minor: ProtocolMinor) -> Result<Decoded<Self>> {
        if minor.has_trace_format() { Self::decode_sized(bytes) } else { Self::decode_fixed(bytes) }
    }

    fn decode_fixed(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, 20 + FIXED_HOSTNAME_LEN + FIXED_NAME_LEN, |reader| {
            let (session, [live_timer_us, viewers, streams]) = read_numbers(reader)?;
            let hostname = name::text(reader.bytes("hostname", FIXED_HOSTNAME_LEN)?);
            let name = name::text(reader.bytes("name", FIXED_NAME_LEN)?);
            let format = TraceFormat::Ctf1_8;
            Ok(Self { session, live_timer_us, viewers, streams, format, hostname, name })
        })
    }

    fn decode_sized(bytes: &[u8]) -> Result<Decoded<Self>> {
        const HEAD_LEN: usize = 32;
        let Some(mut reader) = bytes.get(..HEAD_LEN).map(|_| Reader::new(bytes)) else {
            return Ok(Decoded::Incomplete { needed: HEAD_LEN });
        };
        let (session, [live_timer_us, viewers, streams]) = read_numbers(&mut reader)?;
        let hostname_len = reader.len_u32("hostname length", MAX_NAME_LEN)?;
        let name_len = reader.len_u32("name length", MAX_NAME_LEN)?;
        let offset = reader.offset();
        let format = match reader.u32("trace format")? {
            0 => TraceFormat::Ctf1_8,
            1 => TraceFormat::Ctf2,
            other => {
                let value = u64::from(other);
                return Err(Error::BadValue { field: "trace format", offset, value });
            }
        };
        let used = HEAD_LEN + hostname_len + name_len;
        if bytes.len() < used {
            return Ok(Decoded::Incomplete { needed: used });
        }
        let hostname = name::text(reader.bytes("hostname", hostname_len)?);
        let name = name::text(reader.bytes("name", name_len)?);
        let value = Self { session, live_timer_us, viewers, streams, format, hostname, name };
        Ok(Decoded::Complete { value, used })
    }

    /// Appends it.
    pub fn encode(&self, minor: ProtocolMinor, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.get().to_be_bytes());
        for number in [self.live_timer_us, self.viewers, self.streams] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        if !minor.has_trace_format() {
            name::put_cut(out, &self.hostname, FIXED_HOSTNAME_LEN);
            name::put_cut(out, &self.name, FIXED_NAME_LEN);
            return;
        }
        let texts = [&self.hostname, &self.name].map(|text| name::cut(text, MAX_NAME_LEN));
        for text in texts {
            // `wire_len` counts a NUL, which is not sent here.
            out.extend_from_slice(&(name::wire_len(text) - 1).to_be_bytes());
        }
        let format: u32 = match self.format {
            TraceFormat::Ctf1_8 => 0,
            TraceFormat::Ctf2 => 1,
        };
        out.extend_from_slice(&format.to_be_bytes());
        texts.iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
    }
}

/// A stream in the replies to `ATTACH_SESSION` and `GET_NEW_STREAMS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// The stream.
    pub stream: ViewedStreamId,
    /// The trace it belongs to: streams with one number are described by one metadata stream.
    pub trace: ViewedTraceId,
    /// Whether it carries metadata.
    pub is_metadata: bool,
    /// Its folder in the chunk, at most 4095 bytes.
    pub path: String,
    /// Its channel and CPU, at most 254 bytes.
    pub channel: String,
}

impl StreamEntry {
    /// Length in bytes.
    pub const LEN: usize = 20 + FIXED_PATH_LEN + FIXED_CHANNEL_LEN;

    /// Reads one.
    ///
    /// # Errors
    /// [`Error::BadValue`] for a flag that is not 0 or 1; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let stream = ViewedStreamId::new(reader.u64("stream id")?);
            let trace = ViewedTraceId::new(reader.u64("trace id")?);
            let offset = reader.offset();
            let is_metadata = match reader.u32("is metadata")? {
                0 => false,
                1 => true,
                other => {
                    let value = u64::from(other);
                    return Err(Error::BadValue { field: "is metadata", offset, value });
                }
            };
            let path = name::text(reader.bytes("path", FIXED_PATH_LEN)?);
            let channel = name::text(reader.bytes("channel", FIXED_CHANNEL_LEN)?);
            Ok(Self { stream, trace, is_metadata, path, channel })
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.get().to_be_bytes());
        out.extend_from_slice(&self.trace.get().to_be_bytes());
        out.extend_from_slice(&u32::from(self.is_metadata).to_be_bytes());
        name::put_cut(out, &self.path, FIXED_PATH_LEN);
        name::put_cut(out, &self.channel, FIXED_CHANNEL_LEN);
    }
}

/// Begins the reply to `ATTACH_SESSION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachReply {
    /// So many [`StreamEntry`]s follow, at most [`MAX_LISTED`].
    Attached(u32),
    /// The relay serves one viewer for each session, and there is one.
    Taken,
    /// There is no such session, or the viewer's version cannot read it.
    Unknown,
    /// The session cannot be viewed.
    NotLive,
    /// The seek means nothing.
    BadSeek,
    /// The viewer has not created its viewer session.
    NoViewerSession,
}

impl AttachReply {
    /// Length in bytes, without the entries.
    pub const LEN: usize = 8;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`]; [`Error::BadValue`] for a status that means nothing; a short buffer is
    /// [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| match reader.u32("status")? {
            1 => Ok(Self::Attached(read_count(reader)?)),
            2 => Ok(Self::Taken),
            3 => Ok(Self::Unknown),
            4 => Ok(Self::NotLive),
            5 => Ok(Self::BadSeek),
            6 => Ok(Self::NoViewerSession),
            other => Err(unknown_status(0, other)),
        })
    }

    /// Appends it; the caller appends the entries it announces.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let status_and_count = match self {
            Self::Attached(count) => [1, *count],
            Self::Taken => [2, 0],
            Self::Unknown => [3, 0],
            Self::NotLive => [4, 0],
            Self::BadSeek => [5, 0],
            Self::NoViewerSession => [6, 0],
        };
        out.extend(status_and_count.iter().flat_map(|field| field.to_be_bytes()));
    }
}

/// Begins the reply to `GET_NEW_STREAMS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewStreamsReply {
    /// So many [`StreamEntry`]s follow, at most [`MAX_LISTED`].
    Streams(u32),
    /// All were listed. The reference relay says `Streams(0)` instead while the session goes on.
    NoneNew,
    /// The relay cannot say.
    Failed,
    /// The session has ended and all of it was sent.
    HangUp,
}

impl NewStreamsReply {
    /// Length in bytes, without the entries.
    pub const LEN: usize = 8;

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`]; [`Error::BadValue`] for a status that means nothing; a short buffer is
    /// [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| match reader.u32("status")? {
            1 => Ok(Self::Streams(read_count(reader)?)),
            2 => Ok(Self::NoneNew),
            3 => Ok(Self::Failed),
            4 => Ok(Self::HangUp),
            other => Err(unknown_status(0, other)),
        })
    }

    /// Appends it; the caller appends the entries it announces.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let status_and_count = match self {
            Self::Streams(count) => [1, *count],
            Self::NoneNew => [2, 0],
            Self::Failed => [3, 0],
            Self::HangUp => [4, 0],
        };
        out.extend(status_and_count.iter().flat_map(|field| field.to_be_bytes()));
    }
}

fn read_count(reader: &mut Reader<'_>) -> Result<u32> {
    let offset = reader.offset();
    let count = reader.u32("count")?;
    if count as usize > MAX_LISTED {
        let (len, max) = (u64::from(count), MAX_LISTED as u64);
        return Err(Error::LengthTooLarge { field: "count", offset, len, max });
    }
    Ok(count)
}

fn read_numbers(reader: &mut Reader<'_>) -> Result<(ViewedSessionId, [u32; 3])> {
    let session = ViewedSessionId::new(reader.u64("session id")?);
    let numbers = [reader.u32("live timer")?, reader.u32("viewers")?, reader.u32("streams")?];
    Ok((session, numbers))
}
