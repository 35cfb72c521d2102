//! What the next start makes of a folder a killed relay left. The image of the crash is a copy of the folder taken
//! while the relay was writing: exactly what `kill -9` leaves, since nothing is held back in the process.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ctf::CtfVersion;
use ctf::writer::{EventHeader, PacketStart, Schema, StreamClass, TraceClass};
use relay::{Interrupted, Limits, Relay};
use tokio::runtime::Runtime;
use tracedir::manifest::{Contents, MANIFEST_FORMAT, Manifest, Origin, SealedBy};
use wire::live::{ChunkId, CloseAction, DataHeader, NetSeqNum, Request};

use crate::announce::{Peer, tell};
use crate::disk::{files, manifests, wait_until};
use crate::producer::{CREATED, Producer, index, packets, session, start, start_with};

type Files = BTreeMap<String, (u64, String)>;

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
        let mut files = own
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "chunk"));
        let journal = files.next().unwrap();
        assert_eq!(files.next(), None);
        journal
    }
}

#[test]
fn an_open_chunk_is_sealed_as_it_is_and_a_sealed_one_is_untouched() {
    let crash = Crash::new(true);
    let before = files(crash.image.path());
    let relay = crash.restart();
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    // No clock says when it ended, so the name has the time of the last write; nothing says where its packets end.
    let archives = crash.session_folder().join("archives");
    assert_eq!(cut.folder.parent().unwrap(), archives);
    let name = cut.folder.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("20261120T162219+0000-20") && name.ends_with("-1"), "{name}");
    assert_eq!(
        *cut,
        Interrupted {
            host: "host".into(),
            session: "s".into(),
            chunk: ChunkId::new(1),
            folder: cut.folder.clone(),
            is_sealed: true,
            streams: 1,
            bytes: 128,
            bytes_cut: 0,
            packets_indexed: 0,
            without_metadata: Vec::new(),
            losses: BTreeMap::new(),
        }
    );
    let metadata = fs::read(cut.folder.join("ust/uid/0/64-bit/metadata")).unwrap();
    assert_eq!(
        metadata, b"/* CTF 1.8 */",
        "those of the chunk before, which come again after a rotation"
    );
    let sealed = |path: &String| path.contains("/archives/") && !path.contains(name);
    let sealed = |mut files: Files| {
        files.retain(|path, _| sealed(path));
        files
    };
    assert_eq!(sealed(files(crash.image.path())), sealed(before));
    assert_eq!(fs::read(archives.join(FIRST).join("ust/uid/0/64-bit/ch_0")).unwrap(), packets([0]));
    crash.runtime.block_on(relay.shutdown());
    assert!(crash.restart().recovered().interrupted.is_empty(), "told once");
}

/// The first chunk after its rotation.
const FIRST: &str = "20261120T162218+0000-20261120T162219+0000-0";

#[test]
fn a_chunk_in_which_nothing_was_written_yet_leaves_no_trace_that_cannot_be_read() {
    let runtime = Runtime::new().unwrap();
    let (root, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.stream("metadata", 0);
    copy(root.path(), image.path());
    producer.packet(stream, 0);
    wait_until("a packet", || relay.totals().packets == 1);
    let with_a_packet = tempfile::tempdir().unwrap();
    copy(root.path(), with_a_packet.path());
    runtime.block_on(relay.shutdown());
    for (image, left) in [(image.path(), 0), (with_a_packet.path(), 2)] {
        let relay = start(&runtime, image, Limits::default());
        assert_eq!(relay.recovered().interrupted.len(), usize::from(left > 0));
        assert!(relay.recovered().unreadable.is_empty(), "{:?}", relay.recovered().unreadable);
        runtime.block_on(relay.shutdown());
        let there = files(&image.join("host"));
        let traced = there.keys().filter(|name| !name.ends_with("manifest.json"));
        assert_eq!(traced.count(), left, "{there:?}");
    }
}

#[test]
fn another_session_of_the_same_name_does_not_mix_with_what_was_cut_off() {
    let crash = Crash::new(false);
    let relay = crash.restart();
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    assert_eq!((cut.streams, cut.bytes, cut.without_metadata.len()), (1, 128, 0));
    let before = files(crash.image.path());
    let mut another = session("s");
    another.identity.as_mut().unwrap().sessiond.0 = [8; 16];
    let mut producer = Producer::new(&relay, another);
    assert_eq!(producer.folder.as_str(), "host/s-20261120-162218-1");
    producer.chunk(0);
    producer.stream("ch_0", 0);
    let mut after = files(crash.image.path());
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    crash.runtime.block_on(relay.shutdown());
}

#[test]
fn a_session_that_comes_back_goes_on_in_its_folder_with_the_next_chunk() {
    let crash = Crash::new(false);
    let relay = crash.restart();
    let cut = relay.recovered().interrupted.first().unwrap().folder.clone();
    let mut producer = Producer::new(&relay, session("s"));
    assert_eq!(producer.folder.as_str(), "host/s-20261120-162218");
    producer.chunk(1);
    let (stream, metadata) = (producer.stream("ch_0", 1), producer.stream("metadata", 1));
    producer.metadata(metadata, b"/* CTF 1.8 */");
    producer.packet(stream, 1);
    producer.index(stream, 1);
    let open = crash.session_folder().join("20261120T162219+0000-1/ust/uid/0/64-bit");
    assert_eq!(fs::read(open.join("ch_0")).unwrap(), packets([1]));
    assert_eq!(fs::read(cut.join("ust/uid/0/64-bit/ch_0")).unwrap(), packets([0]));

    // It is killed and comes back once more, and then ends.
    let image = tempfile::tempdir().unwrap();
    copy(crash.image.path(), image.path());
    crash.runtime.block_on(relay.shutdown());
    let relay = start(&crash.runtime, image.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    assert_eq!(producer.folder.as_str(), "host/s-20261120-162218");
    producer.chunk(2);
    let stream = producer.stream("ch_0", 2);
    producer.rotate(None, &[(stream, 0)]);
    producer.close_chunk(2, Some(CloseAction::MoveToArchives));
    wait_until("the last chunk", || !producer.exists(2));
    let archives = image.path().join("host/s-20261120-162218/archives");
    assert_eq!(fs::read_dir(archives).unwrap().count(), 3);
    producer.control.end();
    assert!(producer.control.is_closed());
    crash.runtime.block_on(relay.shutdown());
    let own = fs::read_dir(image.path().join(".relay")).unwrap();
    let own: Vec<_> = own.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(own, ["trash"], "nothing is left to remember");
}

#[test]
fn packets_without_entry_are_indexed_and_half_a_packet_is_cut_off() {
    let schema = schema();
    let packet = |number: u64| {
        let start = PacketStart {
            stream_class: 0,
            instance: 0,
            sequence_number: number,
            begin: 10 * number,
            max_bytes: 4096,
        };
        schema.open(start, |_context| Ok(())).unwrap().seal(10 * number + 5, 0).bytes
    };
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let (stream, metadata) = (producer.stream("ch_0", 0), producer.stream("metadata", 0));
    producer.metadata(metadata, schema.metadata().as_bytes());
    for number in 0..4 {
        let bytes = packet(number);
        let header = DataHeader {
            stream,
            net_seq_num: NetSeqNum::new(number),
            data_len: u32::try_from(bytes.len()).unwrap(),
            padding_len: 0,
        };
        let sent = if number == 3 { bytes.len() / 2 } else { bytes.len() };
        producer.data.write_all(&header.encode()).unwrap();
        producer.data.write_all(bytes.get(..sent).unwrap()).unwrap();
        if number == 0 {
            let mut index = index(stream, 0);
            index.packet_size_bits = bytes.len() as u64 * 8;
            index.content_size_bits = index.packet_size_bits;
            (index.timestamp_begin, index.timestamp_end) = (0, 5);
            producer.ok(&Request::SendIndex(index));
        }
    }
    let whole: Vec<u8> = (0..3).flat_map(packet).collect();
    let file = root.path().join("host/s-20261120-162218/ust/uid/0/64-bit/ch_0");
    let len = whole.len() + packet(3).len() / 2;
    wait_until("half a packet", || fs::metadata(&file).unwrap().len() == len as u64);
    let image = tempfile::tempdir().unwrap();
    copy(root.path(), image.path());
    runtime.block_on(relay.shutdown());

    let relay = start(&runtime, image.path(), Limits::default());
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    assert_eq!(cut.packets_indexed, 2);
    assert_eq!((cut.bytes, cut.bytes_cut), (whole.len() as u64, (len - whole.len()) as u64));
    // The clock's zero is long before the chunk began, which a name cannot say.
    assert!(cut.folder.ends_with("archives/20261120T162218+0000-20261120T162218+0000-0"));
    let folder = cut.folder.join("ust/uid/0/64-bit");
    assert_eq!(fs::read(folder.join("ch_0")).unwrap(), whole);
    let index = fs::read(folder.join("index/ch_0.idx")).unwrap();
    let index = ctf::index::PacketIndex::decode(&index).unwrap();
    index.check_against(whole.len() as u64).unwrap();
    let read = |entry: &ctf::index::IndexEntry| {
        (entry.timestamp_begin, entry.timestamp_end, entry.position.unwrap().packet_seq_num)
    };
    let read: Vec<_> = index.entries.iter().map(read).collect();
    assert_eq!(read, [(0, 5, 0), (10, 15, 1), (20, 25, 2)]);
    let manifests = manifests(&image.path().canonicalize().unwrap());
    let manifest = manifests.get(&cut.folder).unwrap();
    assert_eq!(manifest.origin.sealed_by, SealedBy::Interrupted);
    assert_eq!(manifest.contents.totals.packets, 3);
    runtime.block_on(relay.shutdown());
}

/// One stream with packet numbers.
fn schema() -> Schema {
    let mut stream = StreamClass::new(0, EventHeader::Large, Vec::new());
    stream.clock = Some(0);
    let mut trace = TraceClass::new(CtfVersion::V1_8, vec![stream]);
    trace.clocks = vec![ctf::ClockClass::new("monotonic")];
    Schema::new(trace).unwrap()
}

#[test]
fn an_interrupted_chunk_that_cannot_be_sealed_at_the_start_is_as_soon_as_it_can() {
    let crash = Crash::new(false);
    // Nothing can be written there.
    let obstacle = crash.session_folder().join(".manifest.json.new");
    fs::create_dir(&obstacle).unwrap();
    let relay = crash.restart();
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    assert!(!cut.is_sealed);
    assert!(relay.totals().seals_failed > 0);
    fs::remove_dir(&obstacle).unwrap();
    wait_until("the seal", || relay.totals().chunks_sealed == 1);
    let manifests = manifests(&crash.image.path().canonicalize().unwrap());
    let manifest = manifests.into_values().next().unwrap();
    assert_eq!(manifest.origin.sealed_by, SealedBy::Interrupted);
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

/// Sealing is: manifest, note of the move, everything into a hidden folder, that folder to its last place, outbox, note away.
/// The relay may be killed after any of them.
#[test]
fn a_seal_that_was_cut_off_anywhere_is_finished_with_its_manifest() {
    let session = "host/s-20261120-162218";
    let archive = "20261120T162218+0000-20261120T162219+0000-0";
    for step in 0..6 {
        let crash = Crash::new(false);
        let folder = crash.image.path().join(session);
        let archives = folder.join("archives");
        let (hidden, last) = (archives.join(format!(".{archive}")), archives.join(archive));
        let to = format!("{session}/archives/{archive}");
        write_manifest(&folder, &to);
        let journal = fs::read_to_string(crash.journal()).unwrap();
        fs::write(crash.journal(), format!("{journal}to {to}\nsealed\n")).unwrap();
        if step >= 1 {
            fs::create_dir_all(&hidden).unwrap();
        }
        if step >= 2 {
            fs::rename(folder.join("manifest.json"), hidden.join("manifest.json")).unwrap();
        }
        if step >= 3 {
            fs::rename(folder.join("ust"), hidden.join("ust")).unwrap();
        }
        if step >= 4 {
            fs::rename(&hidden, &last).unwrap();
        }
        let peer = Peer::new([]);
        if step >= 5 {
            let outbox = crash.image.path().join(".relay/outbox");
            fs::create_dir(&outbox).unwrap();
            let url = peer.url();
            let entry = format!("relay-announcement 1\nto webhook {url}\nfolder {to}\n");
            fs::write(outbox.join("0"), entry).unwrap();
        }
        let relay = start_with(&crash.runtime, crash.image.path(), |config| tell(config, &peer));
        let root = crash.image.path().canonicalize().unwrap();
        assert_eq!(relay.recovered().finished, [root.join(&to)], "step {step}");
        assert!(relay.recovered().unreadable.is_empty(), "step {step}");
        let manifests = manifests(&root);
        assert_eq!(manifests.keys().collect::<Vec<_>>(), [&root.join(&to)], "step {step}");
        assert!(!hidden.exists() && !folder.join("ust").exists(), "step {step}");
        wait_until("the announcement", || relay.totals().announcements == 1);
        crash.runtime.block_on(relay.shutdown());
        assert_eq!(peer.told(), [manifests.into_values().next().unwrap()], "step {step}");
    }
}

/// Describes the chunk in `folder` as the relay does before it moves it.
fn write_manifest(folder: &Path, to: &str) {
    let tops = std::collections::BTreeSet::from([PathBuf::from("ust")]);
    let manifest = Manifest {
        format: MANIFEST_FORMAT.to_owned(),
        origin: Origin {
            host: "host".to_owned(),
            session: "s".to_owned(),
            chunk: 0,
            folder: to.to_owned(),
            begin_s: Some(CREATED),
            end_s: Some(CREATED + 1),
            sealed_by: SealedBy::Closed,
        },
        contents: Contents::of(folder, Some(&tops)).unwrap(),
        losses: vec![],
    };
    fs::write(folder.join("manifest.json"), manifest.to_json()).unwrap();
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

#[test]
fn an_interrupted_chunk_that_cannot_be_sealed_is_said_to_be_so_and_is_by_the_next_start() {
    let runtime = Runtime::new().unwrap();
    let (root, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    copy(root.path(), image.path());
    runtime.block_on(relay.shutdown());
    // Something is where its manifest is written.
    let folder = image.path().join("host/s-20261120-162218");
    let in_the_way = [".manifest.json.new", "..manifest.json.new"].map(|name| folder.join(name));
    in_the_way.iter().for_each(|path| fs::create_dir(path).unwrap());
    for is_sealed in [false, true] {
        let relay = start(&runtime, image.path(), Limits::default());
        let interrupted = &relay.recovered().interrupted;
        assert_eq!(
            interrupted.iter().map(|chunk| chunk.is_sealed).collect::<Vec<_>>(),
            [is_sealed]
        );
        runtime.block_on(relay.shutdown());
        in_the_way.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// A session's chunk lies in its folder beside what is another's: nothing says so but the journal.
#[test]
fn what_the_journal_does_not_name_is_left_as_it_is() {
    let crash = Crash::new(false);
    let folder = crash.session_folder();
    let ours = folder.join("ust/uid/0/64-bit");
    let others = [
        folder.join("b/ust/uid/0/64-bit/ch_0"),
        folder.join("b/ust/uid/0/64-bit/ch_0.zst"),
        folder.join("ust/uid/0/32-bit/ch_0"),
        ours.join("ch_0.zst"),
        ours.join("notes"),
    ];
    for file in &others {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, [0xa5; 185]).unwrap();
        fs::write(file.with_file_name("metadata"), schema().metadata()).unwrap();
    }
    let relay = crash.restart();
    let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
    assert_eq!((cut.streams, cut.bytes, cut.bytes_cut), (1, 128, 0));
    for file in &others {
        let now = match file.strip_prefix(folder.join("ust")) {
            Ok(rest) => cut.folder.join("ust").join(rest),
            Err(_) => file.clone(),
        };
        assert_eq!(fs::read(now).unwrap(), [0xa5; 185], "{file:?}");
    }
    crash.runtime.block_on(relay.shutdown());
}

#[test]
fn an_open_session_before_2_11_is_mended_without_its_neighbours() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut sealed = Producer::new(&relay, session("sealed"));
    sealed.chunk(0);
    let stream = sealed.stream("ch_0", 0);
    sealed.packet(stream, 0);
    sealed.index(stream, 0);
    sealed.chunk(1);
    sealed.rotate(Some(1), &[(stream, 1)]);
    sealed.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("chunk 0", || !sealed.exists(0));
    let mut old = Producer::old(&relay, "host", "old");
    let metadata = old.old_stream("metadata", "host/old-1/kernel");
    old.metadata(metadata, schema().metadata().as_bytes());
    old.old_stream("ch_0", "host/old-1/kernel");
    let image = tempfile::tempdir().unwrap();
    copy(root.path(), image.path());
    runtime.block_on(relay.shutdown());
    let is_sealed = |path: &String| path.ends_with("ch_0") && path.contains("/archives/");
    let found = files(image.path()).into_keys().find(is_sealed).unwrap();
    // As when it is compressed.
    let found = image.path().join(found);
    fs::write(found.with_file_name("ch_1.zst"), [0xa5; 185]).unwrap();
    fs::write(found.with_file_name("metadata"), schema().metadata()).unwrap();
    let mut before = files(image.path());
    before.retain(|path, _| path.contains("/archives/"));
    assert_eq!(before.len(), 4, "{before:?}");
    let relay = start(&runtime, image.path(), Limits::default());
    let mended: Vec<&str> =
        relay.recovered().interrupted.iter().map(|cut| cut.session.as_str()).collect();
    assert_eq!(mended, ["sealed", "old"]);
    let mut after = files(image.path());
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before);
    // It is in no manifest.
    fs::remove_file(found.with_file_name("ch_1.zst")).unwrap();
    fs::remove_file(found.with_file_name("metadata")).unwrap();
    let root = image.path().canonicalize().unwrap();
    let manifests = manifests(&root);
    let manifest = manifests.get(&root.join("host/old-1")).unwrap();
    assert_eq!(manifest.contents.files.len(), 2);
    assert!(!root.join("manifest.json").exists());
    runtime.block_on(relay.shutdown());
}

/// The first chunk was cleared, and the second takes its place.
#[test]
fn a_move_into_the_sessions_folder_that_was_cut_off_anywhere_is_finished() {
    for step in 0..3 {
        let crash = Crash::new(false);
        let folder = crash.session_folder();
        let own = "host/s-20261120-162218";
        let from = folder.join("20261120T162219+0000-1");
        let journal = fs::read_to_string(crash.journal()).unwrap();
        let at = format!("at {own}/20261120T162219+0000-1\n");
        let moving = journal.replace(&format!("at {own}\n"), &at);
        assert_ne!(moving, journal);
        fs::write(crash.journal(), format!("{moving}to {own}\n")).unwrap();
        if step < 2 {
            fs::create_dir(&from).unwrap();
        }
        if step == 0 {
            fs::rename(folder.join("ust"), from.join("ust")).unwrap();
        }
        let relay = crash.restart();
        assert!(relay.recovered().unreadable.is_empty(), "step {step}: {:?}", relay.recovered());
        let [cut] = relay.recovered().interrupted.as_slice() else { panic!("one chunk") };
        assert_eq!((cut.streams, cut.bytes), (1, 128), "step {step}");
        assert!(cut.folder.starts_with(folder.join("archives")) && !from.exists(), "step {step}");
        crash.runtime.block_on(relay.shutdown());
    }
}
