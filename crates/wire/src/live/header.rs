//! The two headers.
//!
//! ```text
//! control, 24 bytes            data, 32 bytes
//! off size                     off size
//!   0    8  circuit id, 0        0    8  circuit id, 0
//!   8    8  payload bytes        8    8  stream handle
//!  16    4  command             16    8  net sequence number
//!  20    4  command version, 0  24    4  data bytes that follow
//!                               28    4  padding bytes, not sent: the relay writes zeros
//! ```

use super::Command;
use super::error::{Error, Result};
use super::id::{NetSeqNum, StreamHandle};
use super::reader::Reader;

/// Length of [`CommandHeader`] in bytes.
pub const COMMAND_HEADER_LEN: usize = 24;
/// Length of [`DataHeader`] in bytes.
pub const DATA_HEADER_LEN: usize = 32;

/// Precedes every request on the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandHeader {
    /// The command.
    pub command: Command,
    /// Payload bytes that follow; at most [`Command::max_payload_len`].
    pub payload_len: u64,
}

impl CommandHeader {
    /// Reads the header and checks the announced length.
    ///
    /// # Errors
    /// [`Error::UnknownCommand`], [`Error::PayloadTooLarge`].
    pub fn decode(bytes: &[u8; COMMAND_HEADER_LEN]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        reader.u64("circuit id")?;
        let payload_len = reader.u64("payload length")?;
        let command = Command::from_number(reader.u32("command")?)?;
        let max = command.max_payload_len();
        if payload_len > max {
            return Err(Error::PayloadTooLarge { command, len: payload_len, max });
        }
        Ok(Self { command, payload_len })
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&0_u64.to_be_bytes());
        out.extend_from_slice(&self.payload_len.to_be_bytes());
        out.extend_from_slice(&self.command.number().to_be_bytes());
        out.extend_from_slice(&0_u32.to_be_bytes());
    }
}

/// Precedes every packet on the data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// The stream, as the relay numbered it.
    pub stream: StreamHandle,
    /// The packet's number; pairs with [`super::PacketIndex::net_seq_num`].
    pub net_seq_num: NetSeqNum,
    /// Bytes that follow on the connection.
    pub data_len: u32,
    /// Zero bytes the relay appends after them.
    pub padding_len: u32,
}

impl DataHeader {
    /// Reads the header. Its lengths are the sender's word: see [`DataHeader::packet_len`].
    #[must_use]
    pub fn decode(bytes: &[u8; DATA_HEADER_LEN]) -> Self {
        let mut words = [0_u64; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        }
        let [_circuit, stream, net_seq_num, lengths] = words;
        let [d0, d1, d2, d3, p0, p1, p2, p3] = lengths.to_be_bytes();
        Self {
            stream: StreamHandle::new(stream),
            net_seq_num: NetSeqNum::new(net_seq_num),
            data_len: u32::from_be_bytes([d0, d1, d2, d3]),
            padding_len: u32::from_be_bytes([p0, p1, p2, p3]),
        }
    }

    /// The 32 bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; DATA_HEADER_LEN] {
        let mut bytes = [0; DATA_HEADER_LEN];
        let fields = [
            0_u64.to_be_bytes(),
            self.stream.get().to_be_bytes(),
            self.net_seq_num.get().to_be_bytes(),
            ((u64::from(self.data_len) << 32) | u64::from(self.padding_len)).to_be_bytes(),
        ];
        for (to, from) in bytes.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&from);
        }
        bytes
    }

    /// Bytes of the packet in its file: data and padding, which may pass 32 bits.
    #[must_use]
    pub const fn packet_len(&self) -> u64 {
        self.data_len as u64 + self.padding_len as u64
    }

    /// Checks the packet's length against a maximum in bytes.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`].
    pub const fn check_packet_len(&self, max: u64) -> Result<u64> {
        let len = self.packet_len();
        if len > max {
            return Err(Error::LengthTooLarge { field: "data and padding", offset: 24, len, max });
        }
        Ok(len)
    }
}
