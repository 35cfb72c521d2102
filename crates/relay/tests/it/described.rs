//! Packets that were acknowledged have metadata, whatever was still to be sent again when the producer or the relay went.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::CtfVersion;
use ctf::writer::{EventClass, EventHeader, Schema, StreamClass, TraceClass};
use relay::{Limits, Relay};
use tokio::runtime::Runtime;
use wire::live::{CloseAction, Request, ResetMetadata, StreamHandle};

use crate::crash::copy;
use crate::disk::{manifests, wait_until};
use crate::producer::{Producer, packets, session, start};

const FOLDER: &str = "ust/uid/0/64-bit";

/// Metadata with so many event record classes.
fn metadata(events: u64) -> String {
    let events = (0..events).map(|id| EventClass::new(id, format!("event_{id}"), Vec::new()));
    let mut stream = StreamClass::new(0, EventHeader::Large, events.collect());
    stream.clock = Some(0);
    let mut trace = TraceClass::new(CtfVersion::V1_8, vec![stream]);
    trace.clocks = vec![ctf::ClockClass::new("monotonic")];
    trace.uuid = Some(ctf::Uuid([3; 16]));
    Schema::new(trace).unwrap().metadata().to_owned()
}

struct Scene {
    runtime: Runtime,
    root: tempfile::TempDir,
    relay: Relay,
    producer: Producer,
    stream: StreamHandle,
    metadata: StreamHandle,
}

impl Scene {
    /// A chunk with a packet and its metadata.
    fn new() -> Self {
        let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let relay = start(&runtime, root.path(), Limits::default());
        let mut producer = Producer::new(&relay, session("s"));
        producer.chunk(0);
        let (stream, own) = (producer.stream("ch_0", 0), producer.stream("metadata", 0));
        producer.metadata(own, metadata(3).as_bytes());
        let mut scene = Self { runtime, root, relay, producer, stream, metadata: own };
        scene.packet(0);
        scene
    }

    fn packet(&mut self, number: u64) {
        self.producer.packet(self.stream, number);
        self.producer.index(self.stream, number);
        wait_until("a packet", || self.relay.totals().index_entries == number + 1);
    }

    fn reset(&mut self) {
        let (handle, version) = (self.metadata, 1);
        self.producer.ok(&Request::ResetMetadata(ResetMetadata { handle, version }));
    }

    fn send(&mut self, bytes: &str) {
        let before = self.relay.totals().metadata_bytes;
        self.producer.metadata(self.metadata, bytes.as_bytes());
        let all = before + bytes.len() as u64;
        wait_until("metadata", || self.relay.totals().metadata_bytes == all);
    }

    /// What another relay makes of the folder as it is.
    fn killed(&self) -> Vec<(PathBuf, String)> {
        let image = tempfile::tempdir().unwrap();
        copy(self.root.path(), image.path());
        let relay = start(&self.runtime, image.path(), Limits::default());
        for chunk in &relay.recovered().interrupted {
            assert_eq!(chunk.without_metadata, Vec::<PathBuf>::new());
            assert!(chunk.is_sealed);
        }
        self.runtime.block_on(relay.shutdown());
        sealed(image.path())
    }
}

/// The streams and metadata of all sealed chunks, the first chunk first.
fn sealed(root: &Path) -> Vec<(PathBuf, String)> {
    let root = root.canonicalize().unwrap();
    let mut chunks: Vec<_> = manifests(&root)
        .into_iter()
        .map(|(folder, manifest)| (manifest.origin.chunk, folder.join(FOLDER)))
        .collect();
    chunks.sort();
    let read = |folder: PathBuf| {
        assert!(!folder.join(".metadata.old").exists());
        (folder.join("ch_0"), fs::read_to_string(folder.join("metadata")).unwrap())
    };
    chunks.into_iter().map(|(_, folder)| read(folder)).collect()
}

fn declared(chunks: Vec<(PathBuf, String)>) -> Vec<String> {
    chunks.into_iter().map(|(_, metadata)| metadata).collect()
}

#[test]
fn a_rotation_that_was_killed_before_its_metadata_came_again_has_those_from_before() {
    let (whole, more) = (metadata(3), metadata(4));
    let mut scene = Scene::new();
    scene.producer.chunk(1);
    scene.producer.rotate(Some(1), &[(scene.stream, 1)]);
    scene.packet(1);
    // Only the packets have rotated.
    assert_eq!(declared(scene.killed()), [whole.clone(), whole.clone()]);
    scene.producer.rotate(Some(1), &[(scene.metadata, 0)]);
    // The chunk before may be sealed or not.
    assert_eq!(declared(scene.killed()), [whole.clone(), whole.clone()]);
    scene.producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("chunk 0", || !scene.producer.exists(0));
    assert_eq!(declared(scene.killed()), [whole.clone(), whole.clone()]);
    let (half, rest) = more.split_at(whole.len() / 2);
    scene.send(half);
    assert_eq!(declared(scene.killed()), [whole.clone(), whole.clone()]);
    scene.send(rest);
    assert_eq!(declared(scene.killed()), [whole, more]);
}

#[test]
fn metadata_that_a_producer_did_not_send_again_are_those_from_before() {
    let mut scene = Scene::new();
    scene.producer.chunk(1);
    scene.producer.rotate(Some(1), &[(scene.stream, 1), (scene.metadata, 0)]);
    scene.packet(1);
    scene.send(&metadata(3)[..40]);
    scene.producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    let Scene { runtime, root, relay, producer, .. } = scene;
    drop(producer);
    wait_until("both chunks", || relay.totals().chunks_sealed == 2);
    let chunks = sealed(root.path());
    assert_eq!(fs::read(&chunks[1].0).unwrap(), packets([1]));
    assert_eq!(declared(chunks), [metadata(3), metadata(3)]);
    runtime.block_on(relay.shutdown());
}

#[test]
fn metadata_that_are_being_regenerated_are_the_old_ones_until_they_are_whole() {
    let (whole, more) = (metadata(3), metadata(4));
    let mut scene = Scene::new();
    scene.reset();
    assert_eq!(declared(scene.killed()), std::slice::from_ref(&whole));
    let (half, rest) = more.split_at(whole.len() / 2);
    scene.send(half);
    assert_eq!(declared(scene.killed()), std::slice::from_ref(&whole));
    // Once more, before the first was whole.
    scene.reset();
    scene.send(half);
    assert_eq!(declared(scene.killed()), [whole]);
    scene.send(rest);
    assert_eq!(declared(scene.killed()), std::slice::from_ref(&more));
    scene.reset();
    assert_eq!(declared(scene.killed()), std::slice::from_ref(&more));
    scene.send(&more);
    scene.producer.rotate(None, &[(scene.stream, 1), (scene.metadata, 0)]);
    scene.producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("chunk 0", || !scene.producer.exists(0));
    assert_eq!(declared(sealed(scene.root.path())), [more]);
}
