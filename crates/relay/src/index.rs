//! Entries of packet index files from what the protocol says of a packet. [`ctf::index`] has the layout.

use ctf::index::{IndexEntry, IndexVersion, StreamPosition};
use wire::live::{PacketIndex, RelativePath};

/// Where the index of a data file is, beside it.
pub(crate) fn path(data_file: &str) -> RelativePath {
    RelativePath::new(&format!("index/{data_file}.idx")).unwrap_or_default()
}

/// The data file that a file in this folder is the index of, if it is one.
pub(crate) fn data_file<'a>(folder: &RelativePath, name: &'a str) -> Option<&'a str> {
    name.strip_suffix(".idx").filter(|_| folder.components().last() == Some("index"))
}

/// The layout version; `full` is what the protocol sends since LTTng 2.8.
pub(crate) const fn version(full: bool) -> IndexVersion {
    if full { IndexVersion::V1_1 } else { IndexVersion::V1_0 }
}

/// The entry of a packet at `offset_bytes` in its file.
pub(crate) fn entry(offset_bytes: u64, index: &PacketIndex) -> IndexEntry {
    IndexEntry {
        offset_bytes,
        total_length_bits: index.packet_size_bits,
        content_length_bits: index.content_size_bits,
        timestamp_begin: index.timestamp_begin,
        timestamp_end: index.timestamp_end,
        events_discarded: index.events_discarded,
        stream_class_id: index.stream_class_id,
        position: index.full.map(|full| StreamPosition {
            stream_instance_id: full.stream_instance_id,
            packet_seq_num: full.packet_seq_num.get(),
        }),
    }
}
