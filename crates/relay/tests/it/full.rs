//! A disk that is full for a while: producers are held back, and all they sent is there afterwards.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use relay::Limits;
use tokio::runtime::Runtime;
use wire::live::{CloseAction, ProtocolMinor, Request, ReturnCode};

use crate::disk::{manifests, wait_until};
use crate::producer::{Producer, STREAM_PATH, index, packets, session, start};

/// A small disk in memory.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` where this process may not mount any.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "none"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        testkit::skip("no disk can be mounted");
        None
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut file = File::create(self.root().join("ballast")).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.root().join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.root()).output());
    }
}

#[test]
fn a_full_disk_holds_producers_back_until_there_is_room() {
    let Some(disk) = Disk::new() else { return };
    let runtime = Runtime::new().unwrap();
    let relay = start(&runtime, disk.root(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let (stream, metadata) = (producer.stream("ch_0", 0), producer.stream("metadata", 0));
    producer.metadata(metadata, b"/* CTF 1.8 */");
    // A page and a half, so that the next ones need another page.
    for number in 0..32 {
        producer.packet(stream, number);
        producer.index(stream, number);
    }
    disk.fill();
    // The data connection waits with these, and the control connection with an entry or with their packets.
    for number in 32..120 {
        producer.packet(stream, number);
    }
    wait_until("a wait", || relay.totals().waits_for_room > 0);
    let mut request = Vec::new();
    for number in 32..120 {
        Request::SendIndex(index(stream, number))
            .encode(ProtocolMinor::OURS, &mut request)
            .unwrap();
    }
    producer.control.socket.write_all(&request).unwrap();
    std::thread::park_timeout(Duration::from_millis(700));
    assert!(relay.totals().index_entries < 120);
    disk.empty();
    for number in 32..120 {
        let mut reply = [0; 4];
        producer.control.socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply, ReturnCode::OK.0.to_be_bytes(), "{number}");
    }
    let totals = relay.totals();
    assert_eq!((totals.packets, totals.index_entries, totals.room_never_came), (120, 120, 0));
    assert_eq!(totals.acknowledged_early, 0);
    producer.rotate(None, &[(stream, 120), (metadata, 0)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("the chunk", || !producer.exists(0));
    let sealed = manifests(&disk.root().canonicalize().unwrap());
    let (folder, manifest) = sealed.first_key_value().unwrap();
    assert_eq!(manifest.losses, []);
    assert_eq!(fs::read(folder.join(STREAM_PATH).join("ch_0")).unwrap(), packets(0..120));
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_producer_that_is_gone_waits_for_no_room() {
    let Some(disk) = Disk::new() else { return };
    let runtime = Runtime::new().unwrap();
    let relay = start(&runtime, disk.root(), Limits::default());
    let mut events = relay.subscribe();
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    disk.fill();
    let request = Request::AddStream(crate::producer::add_stream("ch_0", STREAM_PATH, 0));
    let mut bytes = Vec::new();
    request.encode(ProtocolMinor::OURS, &mut bytes).unwrap();
    producer.control.socket.write_all(&bytes).unwrap();
    wait_until("a wait", || relay.totals().waits_for_room > 0);
    drop(producer);
    let is_closed = |event| matches!(event, Ok(relay::Event::SessionClosed(_)));
    wait_until("its end", || is_closed(events.try_recv()));
    disk.empty();
    runtime.block_on(relay.shutdown());
}

#[test]
fn metadata_that_never_find_room_end_their_connection() {
    let Some(disk) = Disk::new() else { return };
    let runtime = Runtime::new().unwrap();
    let limits = Limits { room_patience: Duration::from_millis(300), ..Limits::default() };
    let relay = start(&runtime, disk.root(), limits);
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let metadata = producer.stream("metadata", 0);
    disk.fill();
    producer.metadata(metadata, &[b' '; 16 << 10]);
    // It is told, where nothing else is answered.
    let mut told = Vec::new();
    drop(producer.control.socket.read_to_end(&mut told));
    assert_eq!(relay.totals().room_never_came, 1);
    disk.empty();
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_disk_that_stays_full_is_told_after_a_while() {
    let Some(disk) = Disk::new() else { return };
    let runtime = Runtime::new().unwrap();
    let limits = Limits { room_patience: Duration::from_millis(300), ..Limits::default() };
    let relay = start(&runtime, disk.root(), limits);
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    disk.fill();
    let code =
        producer.code(&Request::AddStream(crate::producer::add_stream("ch_0", STREAM_PATH, 0)));
    assert_eq!(code, ReturnCode::FILE_CREATION);
    assert_eq!(relay.totals().room_never_came, 1);
    disk.empty();
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    runtime.block_on(relay.shutdown());
}
