//! Single failures and long waits: each harms no more than what it meets.

use super::*;
use crate::room::Place;

/// A session with a chunk and a stream in it, and its metadata stream.
fn begun(registry: &Arc<Registry>) -> (Producer, StreamHandle, StreamHandle) {
    let producer = Producer::new(Arc::clone(registry)).unwrap();
    producer.chunk(0).unwrap();
    let stream = producer.stream("ch_0", None).unwrap();
    let metadata = producer.stream("metadata", None).unwrap();
    producer.metadata(metadata, schema().metadata().as_bytes()).unwrap();
    (producer, stream, metadata)
}

fn registry(folder: &Path) -> Arc<Registry> {
    Arc::new(Registry::new(env(folder), Vec::new()))
}

impl Producer {
    fn resume(&self) -> Result<()> {
        let resume = |it: &mut Recording, env: &Env| it.resume(env, self.id, Instant::now());
        self.registry.act(&self.shared, resume).map(drop)
    }

    fn end(&self) -> Result<()> {
        self.act(|it, env| it.control_ended(env, self.id, Instant::now()))
    }
}

#[test]
fn a_connection_that_waits_for_room_does_not_end_the_one_that_came_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let first = Producer::new(Arc::clone(&registry)).unwrap();
    first.resume().unwrap();
    first.chunk(0).unwrap();
    first.stream("ch_0", None).unwrap();
    registry.env.root.faults.no_room();
    let [stale, live] = [(), ()].map(|()| Producer::new(Arc::clone(&registry)).unwrap());
    for producer in [&stale, &stale, &live] {
        assert!(producer.resume().unwrap_err().is_no_room());
    }
    // It has not heard that its peer is gone, and tries again.
    assert!(matches!(stale.resume(), Err(Error::UnknownSession { .. })));
    registry.env.root.faults.end();
    live.resume().unwrap();
    live.chunk(1).unwrap();
    live.stream_in("ch_0", None, 1).unwrap();
}

#[test]
fn an_entry_that_cannot_be_written_is_made_from_its_packet() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let (mut producer, stream, metadata) = begun(&registry);
    producer.data(stream, 0).unwrap();
    producer.index(stream, 0).unwrap();
    producer.data(stream, 1).unwrap();
    registry.env.root.faults.plan(Errno::IO, 0, 1);
    producer.index(stream, 1).unwrap();
    assert_eq!(registry.env.root.faults.end(), 1);
    producer.data(stream, 2).unwrap();
    producer.index(stream, 2).unwrap();
    for (handle, last) in [(stream, NetSeqNum::new(2)), (metadata, NetSeqNum::NONE)] {
        producer
            .act(|it, env| it.close_stream(env, producer.id, CloseStream { handle, last }))
            .unwrap();
    }
    producer.close(0).unwrap();
    producer.seal(1).unwrap();
    assert_eq!(sealed(folder.path()), [0, 1, 2]);
    let totals = registry.env.counters.totals();
    assert_eq!((totals.packets_without_index, totals.tracer_packets_lost), (1, 0));
}

#[test]
fn metadata_that_cannot_be_written_leave_no_half_of_a_declaration() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let (mut producer, stream, metadata) = begun(&registry);
    producer.data(stream, 0).unwrap();
    producer.index(stream, 0).unwrap();
    registry.env.root.faults.plan(Errno::IO, 0, 1);
    producer.metadata(metadata, b"event { name = \"never\"; };").unwrap_err();
    assert_eq!(registry.env.root.faults.end(), 1);
    for (handle, last) in [(stream, NetSeqNum::new(0)), (metadata, NetSeqNum::NONE)] {
        let request = CloseStream { handle, last };
        producer.act(|it, env| it.close_stream(env, producer.id, request)).unwrap();
    }
    producer.close(0).unwrap();
    producer.seal(1).unwrap();
    assert_eq!(sealed(folder.path()), [0]);
}

#[test]
fn a_disk_that_fails_once_loses_and_doubles_nothing_that_was_acknowledged() {
    for tracefile in limits() {
        for number in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let registry = registry(folder.path());
            registry.env.root.faults.plan(Errno::IO, number, 1);
            let mut acknowledged = BTreeSet::new();
            let recorded = Producer::new(Arc::clone(&registry)).and_then(|mut producer| {
                let recorded = producer.record(tracefile);
                acknowledged = std::mem::take(&mut producer.acknowledged);
                producer.intake.give_up().and(recorded)
            });
            let failed = registry.env.root.faults.end();
            registry.end_all();
            for _ in 0..3 {
                registry.run_jobs();
                registry.expire(Instant::now());
                std::thread::park_timeout(2 * PAUSE);
            }
            let sealed = sealed(folder.path());
            let once: BTreeSet<u64> = sealed.iter().copied().collect();
            assert_eq!(sealed.len(), once.len(), "change {number}: {sealed:?} are not there once");
            let missing: Vec<_> = acknowledged.difference(&once).collect();
            assert!(
                missing.is_empty(),
                "change {number}: {missing:?} of {acknowledged:?} are gone"
            );
            if recorded.is_ok() {
                assert_eq!(sealed, (0..7).collect::<Vec<_>>(), "change {number}");
            }
            if failed == 0 {
                assert!(number > 40, "the conversation changes the disk more often");
                break;
            }
        }
    }
}

#[test]
fn what_waits_behind_a_full_disk_has_not_waited_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let (mut producer, stream, metadata) = begun(&registry);
    for number in 0..4 {
        producer.data(stream, number).unwrap();
    }
    producer.chunk(1).unwrap();
    producer.rotate(&[(stream, 4), (metadata, 0)]).unwrap();
    producer.end().unwrap();
    let mut place = Place::default();
    let no_room = std::io::Error::from(std::io::ErrorKind::StorageFull);
    let no_room = Error::File { action: "write", path: "x".into(), source: no_room };
    place.failed(&registry.env, no_room).unwrap();
    let later = Instant::now() + 2 * registry.env.limits.pair_timeout;
    let left = || {
        registry.expire(later);
        let totals = registry.env.counters.totals();
        let streams = producer.shared.look(|recording| recording.streams.len());
        (streams, totals.rotations_forced, totals.packets_without_index)
    };
    assert_eq!(left(), (2, 0, 0));
    place.leave();
    let (streams, ..) = left();
    assert_eq!(streams, 0);
}

#[test]
fn packets_that_no_one_took_are_told_when_their_connection_ends() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let (mut producer, stream, _) = begun(&registry);
    producer.index(stream, 0).unwrap();
    // There is room for the packet, not for its entry.
    registry.env.root.faults.plan(Errno::NOSPC, 1, u64::MAX);
    let mut arrived = 0;
    for number in 0..2 {
        let bytes = framed(stream, number);
        producer.intake.room()[..bytes.len()].copy_from_slice(&bytes);
        producer.intake.arrived(bytes.len());
        arrived = bytes.len() as u64;
    }
    producer.intake.take().unwrap();
    assert!(producer.intake.waits_for_room());
    let ended = producer.intake.finish();
    assert!(matches!(ended, Err(Error::NotTaken { bytes }) if bytes == arrived), "{ended:?}");
    let connections =
        |it: &Recording| it.sessions.values().map(|it| it.data_connections).sum::<usize>();
    assert_eq!(producer.shared.look(connections), 0);
}

#[test]
fn a_stream_that_tries_again_to_enter_a_chunk_is_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(folder.path());
    let producer = Producer::new(Arc::clone(&registry)).unwrap();
    producer.chunk(0).unwrap();
    registry.env.root.faults.plan(Errno::NOSPC, 3, 5);
    producer.stream("ch_0", None).unwrap();
    assert_eq!(registry.env.root.faults.end(), 5);
    let notes = std::fs::read_dir(folder.path().join(".relay")).unwrap();
    let notes = notes.map(|entry| entry.unwrap().path());
    let notes = notes.filter(|path| path.extension().is_some_and(|it| it == "streams"));
    let noted: Vec<String> = notes.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert_eq!(noted, [format!("\n{FOLDER}/ch_0\n")]);
}
