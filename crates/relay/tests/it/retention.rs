//! Which sealed chunks are deleted, and which never.

use std::fs;
use std::path::Path;
use std::time::Duration;

use relay::{Keep, Relay, Release, Target};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wire::live::{CloseAction, StreamHandle};

use crate::announce::Peer;
use crate::disk::{manifests, wait_until};
use crate::producer::{Producer, packets, session, start_with};

const SESSION: &str = "host/s-20261120-162218";

/// One session that records into chunk 0.
struct Setup {
    runtime: Runtime,
    relay: Relay,
    producer: Producer,
    stream: StreamHandle,
    root: TempDir,
}

impl Setup {
    fn new(keep: Keep) -> Self {
        Self::configured(|config| config.keep = keep)
    }

    fn configured(set_up: impl FnOnce(&mut relay::Config)) -> Self {
        let runtime = Runtime::new().unwrap();
        let root = tempfile::tempdir().unwrap();
        let relay = start_with(&runtime, root.path(), set_up);
        let mut producer = Producer::new(&relay, session("s"));
        producer.chunk(0);
        let stream = producer.stream("ch_0", 0);
        let mut setup = Self { runtime, relay, producer, stream, root };
        setup.packet(0);
        setup
    }

    /// A packet of 128 bytes, and its entry of 16 + 72.
    fn packet(&mut self, number: u64) {
        self.producer.packet(self.stream, number);
        self.producer.index(self.stream, number);
    }

    /// Ends a chunk with one packet and begins the next with another.
    fn rotate(&mut self, chunk: u64) {
        self.producer.chunk(chunk + 1);
        self.producer.rotate(Some(chunk + 1), &[(self.stream, chunk + 1)]);
        self.producer.close_chunk(chunk, Some(CloseAction::MoveToArchives));
        wait_until("the chunk's last move", || !self.producer.exists(chunk));
        self.packet(chunk + 1);
    }

    /// The producer is gone: the open chunk stays where it is, as it was never rotated or is in a folder of its own.
    fn leave(mut self) -> (Runtime, Relay, TempDir) {
        self.producer.control.end();
        assert!(self.producer.control.is_closed());
        crate::client::end(&self.producer.data);
        (self.runtime, self.relay, self.root)
    }
}

fn age(age: Duration) -> Keep {
    Keep { age: Some(age), bytes: None }
}

fn chunks(root: &Path) -> Vec<u64> {
    let mut chunks: Vec<u64> =
        manifests(&root.canonicalize().unwrap()).values().map(|m| m.origin.chunk).collect();
    chunks.sort_unstable();
    chunks
}

#[test]
fn the_oldest_chunks_go_when_all_of_them_are_too_large_and_the_open_one_stays() {
    let mut setup = Setup::new(Keep { age: None, bytes: Some(2 * 216) });
    for chunk in 0..5 {
        setup.rotate(chunk);
    }
    wait_until("three to go", || setup.relay.totals().chunks_expired == 3);
    assert_eq!(setup.relay.totals().bytes_expired, 3 * 216);
    assert_eq!(chunks(setup.root.path()), [3, 4]);
    let open = setup.root.path().join(SESSION).join("20261120T162223+0000-5/ust/uid/0/64-bit/ch_0");
    wait_until("the open chunk's packet", || {
        fs::metadata(&open).is_ok_and(|file| file.len() == 128)
    });
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn old_chunks_go_with_their_empty_folders_once_nobody_records() {
    let mut setup = Setup::new(age(Duration::from_millis(300)));
    setup.rotate(0);
    setup.rotate(1);
    wait_until("both to go", || setup.relay.totals().chunks_expired == 2);
    let session = setup.root.path().join(SESSION);
    assert!(session.join("20261120T162220+0000-2").exists(), "open, however old");
    setup.rotate(2);
    let (runtime, relay, root) = setup.leave();
    wait_until("all to go", || relay.totals().chunks_expired == 4);
    wait_until("the session's folder to go", || !root.path().join(SESSION).exists());
    assert!(root.path().join("host").exists());
    runtime.block_on(relay.shutdown());
    assert_eq!(fs::read_dir(root.path().join(".relay/trash")).unwrap().count(), 0);
}

#[test]
fn a_chunk_in_its_sessions_folder_goes_without_what_lies_beside_it() {
    let setup = Setup::new(age(Duration::from_millis(300)));
    let notes = setup.root.path().join(SESSION).join("notes");
    fs::write(&notes, "mine").unwrap();
    let (runtime, relay, root) = setup.leave();
    wait_until("it to go", || relay.totals().chunks_expired == 1);
    runtime.block_on(relay.shutdown());
    let left: Vec<_> = fs::read_dir(root.path().join(SESSION)).unwrap().collect();
    assert_eq!((left.len(), fs::read_to_string(notes).unwrap()), (1, "mine".to_owned()));
}

#[test]
fn what_cannot_be_deleted_is_tried_again() {
    let mut setup = Setup::configured(|config| {
        config.keep = age(Duration::from_millis(20));
        config.announce.first_pause = Duration::from_millis(1);
        config.announce.longest_pause = Duration::from_millis(20);
    });
    // Something is where chunks are put before they are deleted.
    let trash = setup.root.path().join(".relay/trash");
    fs::remove_dir(&trash).unwrap();
    fs::write(&trash, "").unwrap();
    setup.rotate(0);
    wait_until("three attempts", || setup.relay.totals().deletions_failed >= 3);
    assert_eq!((chunks(setup.root.path()), setup.relay.totals().chunks_expired), (vec![0], 0));
    fs::remove_file(&trash).unwrap();
    wait_until("the chunk to go", || setup.relay.totals().chunks_expired == 1);
    assert!(chunks(setup.root.path()).is_empty());
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn what_is_still_to_be_announced_stays() {
    // A port that nobody listens on.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut setup = Setup::configured(|config| {
        config.keep = age(Duration::from_millis(50));
        let url = format!("http://{address}/");
        config.announce.targets.push(Target::Webhook(url.parse().unwrap()));
        config.announce.first_pause = Duration::from_millis(20);
        config.announce.longest_pause = Duration::from_millis(20);
    });
    setup.rotate(0);
    // Longer than it is to be kept.
    wait_until("ten attempts", || setup.relay.totals().announcements_failed > 10);
    assert_eq!(chunks(setup.root.path()), [0]);
    assert_eq!(setup.relay.totals().chunks_expired, 0);
    let peer = Peer::at(address, []);
    wait_until("it to go", || setup.relay.totals().chunks_expired == 1);
    assert_eq!(peer.told().len(), 1);
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn chunks_of_earlier_runs_go_and_copies_from_elsewhere_stay() {
    let mut setup = Setup::new(Keep::default());
    setup.rotate(0);
    setup.rotate(1);
    let (runtime, relay, root) = setup.leave();
    wait_until("the last", || relay.totals().chunks_sealed == 3);
    runtime.block_on(relay.shutdown());
    let archives = root.path().join(SESSION).join("archives");
    let first = fs::read_dir(&archives).unwrap().next().unwrap().unwrap().path();
    let copy = root.path().join("copy");
    crate::crash::copy(&first, &copy);
    let keep = Keep { bytes: Some(0), age: None };
    let relay = start_with(&runtime, root.path(), |config| config.keep = keep);
    wait_until("all to go", || relay.totals().chunks_expired == 3);
    runtime.block_on(relay.shutdown());
    assert!(copy.join("manifest.json").exists());
    assert!(!archives.exists());
}

#[test]
fn what_somebody_still_reads_stays_until_it_is_released() {
    let release = Release::default();
    let mut setup = Setup::configured(|config| {
        config.keep = Keep { bytes: Some(0), ..age(Duration::from_millis(50)) };
        config.release = Some(release.clone());
    });
    let mut events = setup.relay.subscribe();
    setup.rotate(0);
    setup.rotate(1);
    let mut sealed = || loop {
        if let relay::Event::Sealed(chunk) = setup.runtime.block_on(events.recv()).unwrap() {
            return chunk.folder;
        }
    };
    let (first, second) = (sealed(), sealed());
    release.release(second);
    wait_until("the second to go", || setup.relay.totals().chunks_expired == 1);
    assert_eq!(chunks(setup.root.path()), [0]);
    release.release(first);
    wait_until("the first to go", || setup.relay.totals().chunks_expired == 2);
    setup.runtime.block_on(setup.relay.shutdown());
}

#[test]
fn a_session_before_2_11_goes_without_the_others_of_its_host() {
    let mut setup = Setup::new(age(Duration::from_millis(300)));
    let mut peers = Vec::new();
    // Two consumer daemons of one session.
    for kind in ["ust", "kernel"] {
        let mut old = Producer::old(&setup.relay, "host", "old");
        let stream = old.old_stream("ch_0", &format!("host/old-20261120-162218/{kind}"));
        old.packet(stream, 0);
        old.index(stream, 0);
        peers.push(old);
    }
    for (folder, kind) in [("old-20261120-162218", "ust"), ("old-20261120-162218-1", "kernel")] {
        let file = setup.root.path().join("host").join(folder).join(kind).join("ch_0");
        assert_eq!(fs::read(file).unwrap(), packets([0]));
    }
    for old in peers {
        old.control.end();
        crate::client::end(&old.data);
    }
    wait_until("both to go", || setup.relay.totals().chunks_expired == 2);
    assert_eq!(fs::read_dir(setup.root.path().join("host")).unwrap().count(), 1);
    setup.packet(1);
    let open = setup.root.path().join(SESSION).join("ust/uid/0/64-bit/ch_0");
    assert_eq!(fs::read(open).unwrap(), packets([0, 1]));
    setup.runtime.block_on(setup.relay.shutdown());
}

/// A manifest for what is not a session's folder, or holds one.
#[test]
fn a_hosts_folder_and_one_that_holds_an_open_session_stay() {
    let setup = Setup::new(Keep::default());
    let (runtime, relay, root) = setup.leave();
    wait_until("the chunk", || relay.totals().chunks_sealed == 1);
    runtime.block_on(relay.shutdown());
    let manifest = root.path().join(SESSION).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let above = text.replace(SESSION, "host").replace("\"ust/", "\"s-20261120-162218/ust/");
    assert_ne!(above, text);
    fs::write(root.path().join("host/manifest.json"), above).unwrap();
    fs::remove_file(manifest).unwrap();
    let keep = Keep { bytes: Some(0), age: None };
    let relay = start_with(&runtime, root.path(), |config| config.keep = keep);
    let mut producer = Producer::new(&relay, session("t"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    producer.chunk(1);
    producer.rotate(Some(1), &[(stream, 1)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("the other's chunk to go", || relay.totals().chunks_expired == 1);
    assert!(root.path().join(SESSION).join("ust/uid/0/64-bit/ch_0").exists());
    runtime.block_on(relay.shutdown());
}
