//! `GET_NEXT_INDEX` (4): the next packet of a stream, or why there is none.
//!
//! ```text
//! off size
//!   0    8  offset of the packet, bytes
//!   8    8  packet size, bits
//!  16    8  content size, bits
//!  24    8  timestamp of the packet's beginning, clock cycles
//!  32    8  timestamp of its end; with status 5: no event before it is still to come
//!  40    8  discarded events, total of the stream so far
//!  48    8  CTF stream class id, also with status 5
//!  56    4  status: 1 packet, 2 retry, 3 hang-up, 4 error, 5 inactive, 6 end
//!  60    4  flags
//! ```

use super::{Flags, unknown_status};
use crate::live::error::Result;
use crate::live::reader::Reader;
use crate::live::reply::{Decoded, fixed_reply};

/// What a viewer is told of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketEntry {
    /// Where it begins; what [`super::GetPacket`] asks for. Begins again from 0 with each chunk and trace file.
    pub offset_bytes: u64,
    /// Total length in bits.
    pub packet_size_bits: u64,
    /// Content length in bits.
    pub content_size_bits: u64,
    /// Begin, in cycles of the trace clock.
    pub timestamp_begin: u64,
    /// End, in cycles of the trace clock.
    pub timestamp_end: u64,
    /// Events discarded in this stream so far.
    pub events_discarded: u64,
    /// CTF data stream class id.
    pub stream_class_id: u64,
}

/// What comes next in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextIndex {
    /// A packet.
    Packet(PacketEntry),
    /// Nothing yet and nothing is known of the time since: ask again later.
    NotYet,
    /// The stream has ended and all of it was sent.
    HangUp,
    /// The relay cannot say.
    Failed,
    /// No event of the stream before this time is still to come.
    Inactive {
        /// The time, in cycles of the trace clock.
        until: u64,
        /// CTF data stream class id; babeltrace2 2.0.4 aborts when a stream's changes.
        stream_class_id: u64,
    },
    /// The end of what is kept.
    End,
}

/// Reply to `GET_NEXT_INDEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextIndexReply {
    /// What comes next.
    pub index: NextIndex,
    /// What the viewer should ask for first.
    pub flags: Flags,
}

impl NextIndexReply {
    /// Length in bytes.
    pub const LEN: usize = 64;

    /// Reads it. Fields that mean nothing with the status are ignored.
    ///
    /// # Errors
    /// [`crate::live::Error::BadValue`] for a status that means nothing; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, Self::read)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let entry = PacketEntry {
            offset_bytes: reader.u64("offset")?,
            packet_size_bits: reader.u64("packet size")?,
            content_size_bits: reader.u64("content size")?,
            timestamp_begin: reader.u64("timestamp begin")?,
            timestamp_end: reader.u64("timestamp end")?,
            events_discarded: reader.u64("events discarded")?,
            stream_class_id: reader.u64("stream class id")?,
        };
        let offset = reader.offset();
        let index = match reader.u32("status")? {
            1 => NextIndex::Packet(entry),
            2 => NextIndex::NotYet,
            3 => NextIndex::HangUp,
            4 => NextIndex::Failed,
            5 => NextIndex::Inactive {
                until: entry.timestamp_end,
                stream_class_id: entry.stream_class_id,
            },
            6 => NextIndex::End,
            other => return Err(unknown_status(offset, other)),
        };
        Ok(Self { index, flags: Flags(reader.u32("flags")?) })
    }

    /// Appends it; fields that mean nothing with the status are 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (status, fields): (u32, [u64; 7]) = match self.index {
            NextIndex::Packet(entry) => (
                1,
                [
                    entry.offset_bytes,
                    entry.packet_size_bits,
                    entry.content_size_bits,
                    entry.timestamp_begin,
                    entry.timestamp_end,
                    entry.events_discarded,
                    entry.stream_class_id,
                ],
            ),
            NextIndex::NotYet => (2, [0; 7]),
            NextIndex::HangUp => (3, [0; 7]),
            NextIndex::Failed => (4, [0; 7]),
            NextIndex::Inactive { until, stream_class_id } => {
                (5, [0, 0, 0, 0, until, 0, stream_class_id])
            }
            NextIndex::End => (6, [0; 7]),
        };
        out.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
        out.extend_from_slice(&status.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
    }
}
