//! What the next start makes of a folder a killed relay left. The image of the crash is a copy of the folder taken
//! while the relay was writing: exactly what `kill -9` leaves, since nothing is held back in the process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use relay::{Interrupted, Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::{ChunkId, CloseAction};

use crate::disk::{files, wait_until};
use crate::producer::{Producer, packets, session, start};

/// Copies a folder of files and folders.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

struct Crash {
    runtime: Runtime,
    image: tempfile::TempDir,
}

impl Crash {
    /// Chunk 0 sealed if `rotated`, one packet and metadata in the chunk that was open.
    fn new(rotated: bool) -> Self {
        let runtime = Runtime::new().unwrap();
        let root = tempfile::tempdir().unwrap();
        let relay = start(&runtime, root.path(), Limits::default());
        let mut producer = Producer::new(&relay, session("s"));
        producer.chunk(0);
        let (stream, metadata) = (producer.stream("ch_0", 0), producer.stream("metadata", 0));
        producer.metadata(metadata, b"/* CTF 1.8 */");
        producer.packet(stream, 0);
        producer.index(stream, 0);
        wait_until("a packet", || relay.totals().packets == 1);
        if rotated {
            producer.chunk(1);
            producer.rotate(Some(1), &[(stream, 1), (metadata, 0)]);
            producer.close_chunk(0, Some(CloseAction::MoveToArchives));
            producer.packet(stream, 1);
            wait_until("a packet", || relay.totals().packets == 2);
            wait_until("chunk 0", || !producer.exists(0));
        }
        let image = tempfile::tempdir().unwrap();
        copy(root.path(), image.path());
        runtime.block_on(relay.shutdown());
        Self { runtime, image }
    }

    fn session_folder(&self) -> PathBuf {
        self.image.path().canonicalize().unwrap().join("host/s-20261120-162218")
    }

    fn restart(&self) -> Relay {
        start(&self.runtime, self.image.path(), Limits::default())
    }

    fn journal(&self) -> PathBuf {
        let own = fs::read_dir(self.image.path().join(".relay")).unwrap();
        let mut files = own.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let journal = files.next().unwrap();
        assert_eq!(files.next(), None);
        journal
    }
}

#[test]
fn an_open_chunk_is_named_and_a_sealed_one_is_untouched() {
    let crash = Crash::new(true);
    let before = files(crash.image.path());
    let relay = crash.restart();
    let folder = crash.session_folder().join("20261120T162219+0000-1");
    assert_eq!(
        relay.recovered().interrupted,
        [Interrupted {
            host: "host".into(),
            session: "s".into(),
            chunk: ChunkId::new(1),
            folder: folder.clone(),
            streams: 1,
            bytes: 128,
            without_metadata: vec![folder.join("ust/uid/0/64-bit")],
            losses: BTreeMap::new(),
        }]
    );
    assert_eq!(files(crash.image.path()), before);
    assert_eq!(
        fs::read(
            crash
                .session_folder()
                .join("archives/20261120T162218+0000-20261120T162219+0000-0/ust/uid/0/64-bit/ch_0")
        )
        .unwrap(),
        packets([0])
    );
    crash.runtime.block_on(relay.shutdown());
    assert_eq!(crash.restart().recovered().interrupted.len(), 1, "named until it is deleted");
}

#[test]
fn a_new_session_of_the_same_name_does_not_mix_with_what_was_cut_off() {
    let crash = Crash::new(false);
    let before = files(crash.image.path());
    let relay = crash.restart();
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    assert_eq!((cut.streams, cut.bytes, cut.without_metadata.len()), (1, 128, 0));
    let mut producer = Producer::new(&relay, session("s"));
    assert_eq!(producer.folder.as_str(), "host/s-20261120-162218-1");
    producer.chunk(0);
    producer.stream("ch_0", 0);
    let mut after = files(crash.image.path());
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    crash.runtime.block_on(relay.shutdown());
}

#[test]
fn a_move_that_had_begun_is_finished() {
    let crash = Crash::new(false);
    let to = "host/s-20261120-162218/archives/20261120T162218+0000-20261120T162219+0000-0";
    let journal = fs::read_to_string(crash.journal()).unwrap();
    fs::write(crash.journal(), format!("{journal}to {to}\nsealed\n")).unwrap();
    fs::create_dir_all(crash.image.path().join(to)).unwrap();

    let relay = crash.restart();
    let target = crash.image.path().canonicalize().unwrap().join(to);
    assert_eq!(relay.recovered().finished, std::slice::from_ref(&target));
    assert!(relay.recovered().interrupted.is_empty());
    assert_eq!(fs::read(target.join("ust/uid/0/64-bit/ch_0")).unwrap(), packets([0]));
    assert!(!crash.session_folder().join("ust").exists());
    crash.runtime.block_on(relay.shutdown());
    assert!(crash.restart().recovered().finished.is_empty());
}

#[test]
fn a_folder_deleted_by_its_owner_is_forgotten() {
    let crash = Crash::new(false);
    fs::remove_dir_all(crash.session_folder()).unwrap();
    let relay = crash.restart();
    assert!(relay.recovered().interrupted.is_empty());
    crash.runtime.block_on(relay.shutdown());
}

#[test]
fn a_damaged_note_is_reported_and_stops_nothing() {
    let crash = Crash::new(false);
    fs::write(crash.journal(), "relay-chunk 1\nhost h\nsession s\nfolder ../../etc\n").unwrap();
    let relay = crash.restart();
    let [relay::Error::Journal { line: 4, .. }] = relay.recovered().unreadable.as_slice() else {
        panic!("{:?}", relay.recovered());
    };
    crash.runtime.block_on(relay.shutdown());
}
