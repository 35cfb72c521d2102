use std::fs;
use std::path::Path;

use ctf::index::{IndexEntry, IndexVersion, PacketIndex};
use tracedir::{Missing, has_chunks, session_chunks};

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn sealed_chunks_are_listed_by_id_and_interrupted_ones_say_what_they_lack() {
    let session = tempfile::tempdir().unwrap();
    let at = |path: &str| session.path().join(path);
    for sealed in [
        "20261120T164408+0000-20261120T164409+0000-10",
        "20261120T164407+0000-20261120T164408+0000-9",
        "no-chunk",
    ] {
        fs::create_dir_all(at("archives").join(sealed)).unwrap();
    }
    write(&at("20261120T164409+0000-11/kernel/metadata"), b"");
    write(&at("20261120T164409+0000-11/kernel/ch_0"), &[0; 4096]);
    write(&at("20261120T164409+0000-11/ust/uid/0/64-bit/metadata"), b"/* CTF 1.8 */");
    write(&at("20261120T164409+0000-11/ust/uid/0/64-bit/ch_0"), &[0; 8192]);
    let entry = IndexEntry {
        offset_bytes: 0,
        total_length_bits: 4096 * 8,
        content_length_bits: 672,
        timestamp_begin: 1,
        timestamp_end: 2,
        events_discarded: 0,
        stream_class_id: 0,
        position: None,
    };
    let index = PacketIndex { version: IndexVersion::V1_0, entries: vec![entry] };
    write(&at("20261120T164409+0000-11/ust/uid/0/64-bit/index/ch_0.idx"), &index.encode());
    fs::create_dir_all(at("20261120T164410+0000-12")).unwrap();

    let chunks = session_chunks(session.path()).unwrap();
    assert_eq!(chunks.sealed.iter().map(|chunk| chunk.name.id).collect::<Vec<_>>(), [9, 10]);
    let unsealed: Vec<_> = chunks.unsealed.into_iter().map(|c| (c.name.id, c.missing)).collect();
    let lacking = vec![
        Missing::Metadata { folder: at("20261120T164409+0000-11/kernel"), stream_bytes: 4096 },
        Missing::IndexEntries {
            file: at("20261120T164409+0000-11/ust/uid/0/64-bit/ch_0"),
            indexed_bytes: 4096,
            file_bytes: 8192,
        },
    ];
    let nothing = vec![Missing::Everything { folder: at("20261120T164410+0000-12") }];
    assert_eq!(unsealed, [(11, lacking), (12, nothing)]);
}

#[test]
fn a_session_that_was_never_rotated_has_no_chunks() {
    let session = tempfile::tempdir().unwrap();
    write(&session.path().join("kernel/metadata"), b"/* CTF 1.8 */");
    assert!(!has_chunks(session.path()).unwrap());
    assert_eq!(session_chunks(session.path()).unwrap(), tracedir::SessionChunks::default());
}
