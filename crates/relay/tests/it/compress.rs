//! Sealed chunks that are compressed before anybody is told of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay::Keep;
use tracedir::manifest::Manifest;
use tracedir::{PacketSource, compressed_path};

use crate::announce::{Peer, Setup, record, tell};
use crate::disk::wait_until;
use crate::producer::{STREAM_PATH, packet};

fn stream(chunk: &Path) -> PathBuf {
    chunk.join(STREAM_PATH).join("ch_0")
}

/// What the stream of a chunk holds, and whether it is compressed.
fn content(chunk: &Path) -> (Vec<u8>, bool) {
    let source = PacketSource::open(&stream(chunk)).unwrap();
    let mut bytes = vec![0; usize::try_from(source.content_len().unwrap()).unwrap()];
    source.read_exact_at(&mut bytes, 0).unwrap();
    (bytes, source.is_compressed())
}

#[test]
fn chunks_are_compressed_and_then_announced_with_what_they_are() {
    let setup = Setup::new();
    let peer = Peer::new([]);
    let relay = setup.start(|config| {
        config.compress = Some("zstd".parse().unwrap());
        tell(config, &peer);
    });
    record(&relay, "s", 3);
    wait_until("three announcements", || relay.totals().announcements == 3);
    let totals = relay.totals();
    assert_eq!((totals.chunks_compressed, totals.bytes_compressed), (3, 3 * 128));
    assert!(totals.bytes_compressed_to < totals.bytes_compressed);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 0);
    for ((folder, manifest), told) in setup.manifests().into_iter().zip(peer.told()) {
        assert_eq!(manifest, told, "nobody is told of what is still going to change");
        assert_eq!(content(&folder), (packet(manifest.origin.chunk).to_vec(), true));
        assert!(!stream(&folder).exists());
        let file = manifest.contents.files.iter().find(|file| file.path.ends_with("ch_0")).unwrap();
        let stored = fs::metadata(compressed_path(&stream(&folder))).unwrap().len();
        assert_eq!((file.bytes, file.stored_bytes()), (128, stored));
    }
}

#[test]
fn what_a_kill_left_is_compressed_and_announced_by_the_next_start() {
    let setup = Setup::new();
    let relay = setup.start(|_| {});
    record(&relay, "s", 1);
    setup.runtime.block_on(relay.shutdown());
    let (folder, sealed) = setup.manifests().pop().unwrap();
    // In the middle of the first file: what is to be done is noted, and half of a file is there.
    let outbox = setup.root.path().join(".relay/outbox");
    fs::create_dir_all(&outbox).unwrap();
    let note = format!("relay-announcement 1\nto compress\nfolder {}\n", sealed.origin.folder);
    fs::write(outbox.join("7"), note).unwrap();
    fs::write(stream(&folder).with_file_name(".ch_0.zst"), b"half").unwrap();
    let peer = Peer::new([]);
    let relay = setup.start(|config| {
        config.compress = Some("zstd:19".parse().unwrap());
        tell(config, &peer);
    });
    wait_until("the announcement", || relay.totals().announcements == 1);
    assert_eq!(relay.totals().chunks_compressed, 1);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(setup.outbox_len(), 0);
    assert_eq!(content(&folder), (packet(0).to_vec(), true));
    let names = fs::read_dir(folder.join(STREAM_PATH)).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "ch_0" || name == ".ch_0.zst"), "{names:?}");
    assert_eq!(peer.told(), [Manifest::read(&folder).unwrap().unwrap()]);
}

#[test]
fn a_chunk_that_cannot_be_compressed_is_announced_as_it_is_and_counted() {
    let setup = Setup::new();
    let relay = setup.start(|_| {});
    record(&relay, "s", 1);
    setup.runtime.block_on(relay.shutdown());
    let (folder, sealed) = setup.manifests().pop().unwrap();
    let outbox = setup.root.path().join(".relay/outbox");
    fs::create_dir_all(&outbox).unwrap();
    let note = format!("relay-announcement 1\nto compress\nfolder {}\n", sealed.origin.folder);
    fs::write(outbox.join("0"), note).unwrap();
    // Something is in the way.
    fs::create_dir(stream(&folder).with_file_name(".ch_0.zst")).unwrap();
    let peer = Peer::new([]);
    let relay = setup.start(|config| {
        config.compress = Some("zstd".parse().unwrap());
        tell(config, &peer);
    });
    wait_until("the announcement", || relay.totals().announcements == 1);
    let totals = relay.totals();
    assert_eq!((totals.chunks_compressed, totals.compressions_failed), (0, 1));
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(content(&folder), (packet(0).to_vec(), false));
    assert_eq!(peer.told(), [sealed]);
}

#[test]
fn chunks_count_with_what_they_take_compressed_and_are_deleted_whole() {
    let setup = Setup::new();
    // Plain, a chunk takes its stream's 128 bytes, its index's 44 + 88 and more; two of them do not fit.
    let relay = setup.start(|config| {
        config.compress = Some("zstd".parse().unwrap());
        config.keep = Keep { age: None, bytes: Some(500) };
    });
    record(&relay, "s", 4);
    wait_until("compression", || relay.totals().chunks_compressed == 4);
    wait_until("deletion", || {
        let kept = tracedir::manifest::find(&[setup.root.path()]);
        let bytes = kept.iter().filter_map(|folder| Manifest::read(folder).unwrap());
        bytes.map(|manifest| manifest.contents.stored_bytes()).sum::<u64>() <= 500
    });
    setup.runtime.block_on(relay.shutdown());
    let kept = setup.manifests();
    let bytes: u64 = kept.iter().map(|(_, manifest)| manifest.contents.totals.bytes).sum();
    assert!(bytes > 500, "{} chunks of {bytes} bytes are kept", kept.len());
    let archives = kept.first().unwrap().0.parent().unwrap();
    assert_eq!(fs::read_dir(archives).unwrap().count(), kept.len(), "nothing is left of others");
}

#[test]
fn what_cannot_be_noted_for_a_while_is_announced_to_each_once() {
    let setup = Setup::new();
    let relay = setup.start(|_| {});
    record(&relay, "s", 2);
    setup.runtime.block_on(relay.shutdown());
    let outbox = setup.root.path().join(".relay/outbox");
    fs::create_dir_all(&outbox).unwrap();
    for (number, (_, sealed)) in setup.manifests().into_iter().enumerate() {
        let note = format!("relay-announcement 1\nto compress\nfolder {}\n", sealed.origin.folder);
        fs::write(outbox.join(number.to_string()), note).unwrap();
    }
    // What is noted for the second target of the two is in the way of folders.
    let in_the_way: Vec<_> = (0..500).map(|n| outbox.join(format!(".{}.new", 3 + 2 * n))).collect();
    in_the_way.iter().for_each(|path| fs::create_dir(path).unwrap());
    let peers = [Peer::new([]), Peer::new([])];
    let relay = setup.start(|config| {
        config.compress = Some("zstd".parse().unwrap());
        config.keep = Keep { age: Some(Duration::from_millis(20)), bytes: None };
        peers.iter().for_each(|peer| tell(config, peer));
    });
    wait_until("failures", || relay.totals().outbox_failures >= 3);
    assert_eq!(relay.totals().announcements, 0, "both or none");
    in_the_way.iter().for_each(|path| fs::remove_dir(path).unwrap());
    wait_until("four announcements", || relay.totals().announcements == 4);
    wait_until("both to go", || relay.totals().chunks_expired == 2);
    setup.runtime.block_on(relay.shutdown());
    assert_eq!(peers.map(|peer| peer.told().len()), [2, 2]);
    assert_eq!(setup.outbox_len(), 0);
}
