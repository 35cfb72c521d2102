//! Chunks that cannot be sealed: they are given up until the next start, and hold nobody up.

use std::fs;
use std::path::Path;

use relay::{Event, Relay};
use tokio::sync::broadcast::Receiver;
use wire::live::{CloseAction, NetSeqNum, ReturnCode, StreamHandle};

use crate::announce::{Setup, hurry};
use crate::disk::wait_until;
use crate::producer::{Producer, STREAM_PATH, close_chunk, packets, session};

const FIRST: &str = "archives/20261120T162218+0000-20261120T162219+0000-0";
const SECOND: &str = "archives/20261120T162219+0000-20261120T162220+0000-1";

/// A session with a chunk, and a stream with a packet in it.
fn begin(relay: &Relay) -> (Producer, StreamHandle) {
    let mut producer = Producer::new(relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    add(&mut producer, stream, 0);
    (producer, stream)
}

fn add(producer: &mut Producer, stream: StreamHandle, number: u64) {
    producer.packet(stream, number);
    producer.index(stream, number);
}

/// Ends the last of `chunks`, each with a packet, and the session: nobody waits for ever.
fn finish(mut producer: Producer, stream: StreamHandle, chunks: u64, events: &mut Receiver<Event>) {
    producer.rotate(None, &[(stream, chunks)]);
    producer.close_chunk(chunks - 1, Some(CloseAction::MoveToArchives));
    producer.close_stream(stream, NetSeqNum::new(chunks - 1));
    wait_until("the last move", || (0..chunks).all(|chunk| !producer.exists(chunk)));
    drop(producer);
    wait_until("the end", || matches!(events.try_recv(), Ok(Event::SessionClosed(_))));
}

fn data(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(STREAM_PATH).join("ch_0")).unwrap()
}

#[test]
fn chunks_whose_names_are_taken_hold_nobody_up_and_are_sealed_at_a_later_start() {
    let setup = Setup::new();
    let relay = setup.start(hurry);
    let (mut events, mut failures) = (relay.subscribe(), relay.subscribe());
    let (mut producer, stream) = begin(&relay);
    let root = setup.root.path().canonicalize().unwrap();
    let folder = root.join(producer.folder.as_path());
    fs::create_dir_all(folder.join(SECOND)).unwrap();
    fs::write(folder.join(FIRST), "something else").unwrap();
    fs::write(folder.join(SECOND).join("file"), "something else").unwrap();
    for chunk in 1..3 {
        producer.chunk(chunk);
        producer.rotate(Some(chunk), &[(stream, chunk)]);
        producer.close_chunk(chunk - 1, Some(CloseAction::MoveToArchives));
        add(&mut producer, stream, chunk);
    }
    finish(producer, stream, 3, &mut events);
    let totals = relay.totals();
    assert_eq!((totals.chunks_sealed, totals.seals_given_up), (1, 2));
    assert_eq!(totals.seals_failed, 2 * u64::from(relay::Limits::default().seal_attempts));
    let mut left = Vec::new();
    while let Ok(event) = failures.try_recv() {
        if let Event::SealFailed { chunk, folder, .. } = event {
            assert_eq!(data(&folder), packets([chunk.get()]));
            left.push(folder);
        }
    }
    left.sort();
    assert_eq!(left, [folder.clone(), folder.join("20261120T162219+0000-1")]);
    setup.runtime.block_on(relay.shutdown());

    // Still in the way.
    let relay = setup.start(hurry);
    assert_eq!(relay.recovered().unreadable.len(), 2);
    setup.runtime.block_on(relay.shutdown());

    fs::remove_file(folder.join(FIRST)).unwrap();
    fs::remove_dir_all(folder.join(SECOND)).unwrap();
    let relay = setup.start(hurry);
    assert_eq!(relay.recovered().finished, [folder.join(FIRST), folder.join(SECOND)]);
    let sealed: Vec<_> = setup.manifests().into_iter().map(|(folder, _)| data(&folder)).collect();
    assert_eq!(sealed, [0, 1, 2].map(|number| packets([number])));
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn a_chunk_whose_streams_were_deleted_holds_nobody_up() {
    let setup = Setup::new();
    let relay = setup.start(hurry);
    let mut events = relay.subscribe();
    let (mut producer, stream) = begin(&relay);
    let folder = setup.root.path().join(producer.folder.as_path());
    producer.chunk(1);
    producer.rotate(Some(1), &[(stream, 1)]);
    fs::remove_dir_all(folder.join("ust")).unwrap();
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    add(&mut producer, stream, 1);
    finish(producer, stream, 2, &mut events);
    let totals = relay.totals();
    assert_eq!((totals.chunks_sealed, totals.seals_given_up), (1, 1));
    assert_eq!(data(&folder.join(SECOND)), packets([1]));
    setup.runtime.block_on(relay.shutdown());
    let relay = setup.start(hurry);
    assert!(relay.recovered().unreadable.is_empty() && relay.recovered().interrupted.is_empty());
    setup.runtime.block_on(relay.shutdown());
}

#[test]
fn a_cleared_chunk_that_cannot_be_put_aside_holds_nobody_up_and_goes_at_the_next_start() {
    let setup = Setup::new();
    let relay = setup.start(|config| config.limits.seal_attempts = 2);
    let mut events = relay.subscribe();
    let (mut producer, stream) = begin(&relay);
    let folder = setup.root.path().join(producer.folder.as_path());
    let trash = setup.root.path().join(".relay/trash");
    fs::remove_dir(&trash).unwrap();
    fs::write(&trash, "something else").unwrap();
    producer.chunk(1);
    producer.rotate(Some(1), &[(stream, 1)]);
    let clear = close_chunk(0, Some(CloseAction::Delete));
    assert_eq!(producer.code(&clear), ReturnCode::FILE_CREATION);
    add(&mut producer, stream, 1);
    finish(producer, stream, 2, &mut events);
    let totals = relay.totals();
    assert_eq!((totals.chunks_sealed, totals.seals_given_up), (1, 1));
    assert_eq!(data(&folder), packets([0]));
    setup.runtime.block_on(relay.shutdown());
    fs::remove_file(&trash).unwrap();
    let relay = setup.start(hurry);
    assert!(relay.recovered().unreadable.is_empty() && relay.recovered().interrupted.is_empty());
    assert!(!folder.join("ust").exists());
    assert_eq!(data(&folder.join(SECOND)), packets([1]));
    setup.runtime.block_on(relay.shutdown());
}
