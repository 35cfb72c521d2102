//! Packet index files: what decodes encodes to the same bytes, whatever it describes.
#![no_main]

use ctf::index::PacketIndex;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(index) = PacketIndex::decode(bytes) {
        assert_eq!(index.encode(), bytes);
        let file_len = index.entries.iter().map(|entry| entry.total_length_bits / 8).fold(0, u64::wrapping_add);
        drop(index.check_against(file_len));
    }
});
