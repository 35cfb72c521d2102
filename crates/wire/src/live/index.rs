//! `SEND_INDEX` (13): the index entry of one packet, or a beacon.
//!
//! ```text
//! off size
//!   0    8  stream handle
//!   8    8  net sequence number; pairs with the data header
//!  16    8  packet size, bits; 0 = beacon
//!  24    8  content size, bits
//!  32    8  timestamp of the packet's beginning, clock cycles
//!  40    8  timestamp of its end; of a beacon: no event before it is still to come
//!  48    8  discarded events, total of the stream so far
//!  56    8  CTF stream class id
//!  64    8  stream instance id, from 2.8; all ones = unknown
//!  72    8  packet sequence number, from 2.8; all ones = unknown
//! reply  u32 code; the producer waits for it before it sends the next packet of any stream
//! ```

use super::ProtocolMinor;
use super::error::Result;
use super::id::{NetSeqNum, PacketSeqNum, StreamHandle};
use super::reader::Reader;

/// Request `SEND_INDEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketIndex {
    /// The stream.
    pub handle: StreamHandle,
    /// The packet's number on the data connection; of a beacon: of the packet sent last.
    pub net_seq_num: NetSeqNum,
    /// Total length in bits, 0 for a beacon.
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
    /// `None` before 2.8.
    pub full: Option<FullIndexFields>,
}

/// What index entries carry since 2.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullIndexFields {
    /// CTF stream instance id, usually the CPU; all ones = unknown.
    pub stream_instance_id: u64,
    /// Number of the packet in its stream; all ones = unknown.
    pub packet_seq_num: PacketSeqNum,
}

impl PacketIndex {
    /// Whether it stands for a time without packets instead of a packet.
    #[must_use]
    pub const fn is_beacon(&self) -> bool {
        self.packet_size_bits == 0
    }

    pub(super) fn read(reader: &mut Reader<'_>, minor: ProtocolMinor) -> Result<Self> {
        Ok(Self {
            handle: StreamHandle::new(reader.u64("stream handle")?),
            net_seq_num: NetSeqNum::new(reader.u64("net sequence number")?),
            packet_size_bits: reader.u64("packet size")?,
            content_size_bits: reader.u64("content size")?,
            timestamp_begin: reader.u64("timestamp begin")?,
            timestamp_end: reader.u64("timestamp end")?,
            events_discarded: reader.u64("events discarded")?,
            stream_class_id: reader.u64("stream class id")?,
            full: if minor.has_full_index() {
                Some(FullIndexFields {
                    stream_instance_id: reader.u64("stream instance id")?,
                    packet_seq_num: PacketSeqNum::new(reader.u64("packet sequence number")?),
                })
            } else {
                None
            },
        })
    }

    pub(super) fn write(&self, minor: ProtocolMinor, out: &mut Vec<u8>) {
        let fields = [
            self.handle.get(),
            self.net_seq_num.get(),
            self.packet_size_bits,
            self.content_size_bits,
            self.timestamp_begin,
            self.timestamp_end,
            self.events_discarded,
            self.stream_class_id,
        ];
        out.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
        if minor.has_full_index() {
            let (instance, packet) = self.full.map_or((u64::MAX, u64::MAX), |full| {
                (full.stream_instance_id, full.packet_seq_num.get())
            });
            out.extend_from_slice(&instance.to_be_bytes());
            out.extend_from_slice(&packet.to_be_bytes());
        }
    }
}
