//! LTTng packet index files, all big endian.
//!
//! ```text
//! header   u32 magic 0xC1F1DCC1, u32 major 1, u32 minor (1; 0 for producers before 2.8), u32 record length
//! records  u64 packet offset (bytes), packet size (bits), content size (bits), begin, end (clock cycles),
//!          discarded events, stream class id; from minor 1 also stream instance id, packet sequence number
//! ```
//! Source: lttng-tools `src/common/index/ctf-index.h`.

use wire::live::PacketIndex;

/// Length of the header in bytes.
pub(crate) const HEADER_LEN: usize = 16;
/// Offset of the packet sequence number in a record of minor 1.
const PACKET_SEQ_NUM_AT: usize = 64;
const RECORD_LEN_1_0: usize = 56;
const RECORD_LEN_1_1: usize = 72;

/// Length of a record in bytes.
pub(crate) const fn record_len(full: bool) -> usize {
    if full { RECORD_LEN_1_1 } else { RECORD_LEN_1_0 }
}

/// The header of a new file.
pub(crate) fn header(full: bool) -> Vec<u8> {
    let record_len: u32 = if full { 72 } else { 56 };
    [0xC1F1_DCC1, 1, u32::from(full), record_len]
        .iter()
        .flat_map(|field: &u32| field.to_be_bytes())
        .collect()
}

/// The record of a packet at `offset` bytes in its file, appended to `out`.
pub(crate) fn record(offset: u64, index: &PacketIndex, out: &mut Vec<u8>) {
    let fields = [
        offset,
        index.packet_size_bits,
        index.content_size_bits,
        index.timestamp_begin,
        index.timestamp_end,
        index.events_discarded,
        index.stream_class_id,
    ];
    out.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
    if let Some(full) = index.full {
        out.extend_from_slice(&full.stream_instance_id.to_be_bytes());
        out.extend_from_slice(&full.packet_seq_num.get().to_be_bytes());
    }
}

/// The packet's offset and sequence number in a record of minor 1.
pub(crate) fn place_of(record: &[u8]) -> Option<(u64, u64)> {
    Some((
        u64::from_be_bytes(*record.first_chunk()?),
        u64::from_be_bytes(*record.get(PACKET_SEQ_NUM_AT..)?.first_chunk()?),
    ))
}

/// Sets the packet's offset in a record.
pub(crate) fn set_offset(record: &mut [u8], offset: u64) {
    if let Some(field) = record.first_chunk_mut() {
        *field = offset.to_be_bytes();
    }
}
