//! Command numbers of the viewer connection, and the header of its requests.
//!
//! ```text
//! off size
//!   0    8  payload bytes
//!   8    4  command
//!  12    4  command version, 0
//! ```

use std::fmt;

use crate::live::command::commands;
use crate::live::error::{Error, Result};
use crate::live::reader::Reader;

/// The largest payload accepted, in bytes: more than any command has, so that fields may be added.
const MAX_PAYLOAD_LEN: u64 = 4096;

commands! {
    /// A command of the viewer connection.
    at 8;
    /// Versions are exchanged and the connection gets its number; comes first.
    Connect = 1, "CONNECT";
    /// Which recording sessions there are.
    ListSessions = 2, "LIST_SESSIONS";
    /// Reading of a recording session begins.
    AttachSession = 3, "ATTACH_SESSION";
    /// Which packet of a stream comes next.
    GetNextIndex = 4, "GET_NEXT_INDEX";
    /// Bytes of the packet named last.
    GetPacket = 5, "GET_PACKET";
    /// Metadata that were not sent yet.
    GetMetadata = 6, "GET_METADATA";
    /// Streams that were not listed yet.
    GetNewStreams = 7, "GET_NEW_STREAMS";
    /// A viewer session begins, which recording sessions can be attached to.
    CreateSession = 8, "CREATE_SESSION";
    /// Reading of a recording session ends.
    DetachSession = 9, "DETACH_SESSION";
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Precedes every request of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The command.
    pub command: Command,
    /// Payload bytes that follow, at most 4096.
    pub payload_len: u32,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Reads the header and checks the announced length.
    ///
    /// # Errors
    /// [`Error::UnknownCommand`], [`Error::LengthTooLarge`].
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let len = reader.u64("payload length")?;
        let command = Command::from_number(reader.u32("command")?)?;
        match u32::try_from(len) {
            Ok(payload_len) if len <= MAX_PAYLOAD_LEN => Ok(Self { command, payload_len }),
            _ => Err(Error::LengthTooLarge {
                field: "payload length",
                offset: 0,
                len,
                max: MAX_PAYLOAD_LEN,
            }),
        }
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u64::from(self.payload_len).to_be_bytes());
        out.extend_from_slice(&self.command.number().to_be_bytes());
        out.extend_from_slice(&0_u32.to_be_bytes());
    }
}
