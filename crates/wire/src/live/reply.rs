//! Replies: what they share, and the plain one.
//!
//! A reply has no header. Most are one return code in 4 bytes:
//!
//! ```text
//! 10 done · 11 unknown error · 25 fatal · 26 no memory · 97 invalid · 152 invalid protocol · 153 file creation
//! ```
//! Any other value than 10 makes the producer give the command, and most often the relay, up.

use std::fmt;

use super::error::Result;
use super::name::RelativePath;
use super::reader::Reader;
use super::{
    AddStreamReply, ChunkExistsReply, CloseTraceChunkReply, Command, ConfigurationReply,
    CreateSessionReply, ProtocolMinor, RelaySessionId, StreamHandle, StreamPositionsReply, Version,
};

/// What a decoder made of the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<T> {
    /// Give at least `needed` bytes in all and ask again.
    Incomplete {
        /// Bytes needed from the start of the reply, a lower bound.
        needed: usize,
    },
    /// The reply, and how many bytes it took.
    Complete {
        /// The reply.
        value: T,
        /// Bytes it took.
        used: usize,
    },
}

/// A return code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReturnCode(pub u32);

impl ReturnCode {
    /// Done.
    pub const OK: Self = Self(10);
    /// Failed without saying why.
    pub const UNKNOWN_ERROR: Self = Self(11);
    /// Failed; the relay cannot go on.
    pub const FATAL: Self = Self(25);
    /// A limit of the relay was reached.
    pub const NO_MEMORY: Self = Self(26);
    /// The request asks for something that does not exist or is refused.
    pub const INVALID: Self = Self(97);
    /// The request does not belong here.
    pub const INVALID_PROTOCOL: Self = Self(152);
    /// A file or folder could not be made.
    pub const FILE_CREATION: Self = Self(153);

    /// Whether it is [`ReturnCode::OK`].
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == Self::OK.0
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The plain reply: one return code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnReply(pub ReturnCode);

impl ReturnReply {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads it.
    ///
    /// # Errors
    /// None beyond the shape; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| Ok(Self(ReturnCode(reader.u32("return code")?))))
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.0.to_be_bytes());
    }
}

/// Appends the reply that says `code` to any command, in the layout that command's sender expects.
/// Commands without a reply get none.
pub fn refuse(command: Command, minor: ProtocolMinor, code: ReturnCode, out: &mut Vec<u8>) {
    match command {
        Command::SendMetadata => {}
        Command::Version => Version::OURS.encode(out),
        Command::AddStream => AddStreamReply { handle: StreamHandle::new(0), code }.encode(out),
        Command::CreateSession => CreateSessionReply {
            session: RelaySessionId::new(0),
            code,
            output_path: minor.has_trace_chunks().then(RelativePath::default),
        }
        .encode(out),
        Command::CloseTraceChunk => {
            CloseTraceChunkReply { code, path: RelativePath::default() }.encode(out);
        }
        Command::TraceChunkExists => ChunkExistsReply { code, exists: false }.encode(out),
        Command::GetConfiguration => {
            ConfigurationReply { code, clear_allowed: false, can_resume: false }.encode(out);
        }
        Command::StreamPositions => {
            StreamPositionsReply { code, positions: Vec::new() }.encode(out);
        }
        _ => ReturnReply(code).encode(out),
    }
}

/// Reads a reply of fixed length.
pub(super) fn fixed_reply<T>(
    bytes: &[u8],
    len: usize,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
) -> Result<Decoded<T>> {
    let Some(whole) = bytes.get(..len) else { return Ok(Decoded::Incomplete { needed: len }) };
    Ok(Decoded::Complete { value: read(&mut Reader::new(whole))?, used: len })
}

/// Reads a reply that ends with a path whose length stands in the last field of the fixed part.
pub(super) fn path_reply<T>(
    bytes: &[u8],
    fixed_len: usize,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
) -> Result<Decoded<(T, RelativePath)>> {
    let Some(mut reader) = bytes.get(..fixed_len).map(|_| Reader::new(bytes)) else {
        return Ok(Decoded::Incomplete { needed: fixed_len });
    };
    let head = read(&mut reader)?;
    let path_len = reader.len_u32("path length", super::MAX_PATH_LEN + 1)?;
    let used = fixed_len + path_len;
    if bytes.len() < used {
        return Ok(Decoded::Incomplete { needed: used });
    }
    let path = RelativePath::read_rooted(&mut reader, "path", path_len)?;
    Ok(Decoded::Complete { value: (head, path), used })
}
