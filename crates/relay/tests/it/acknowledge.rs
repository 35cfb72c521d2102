//! What an acknowledgement promises: the packet and its entry are written, whatever happens to the relay next.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use ctf::CtfVersion;
use ctf::writer::{EventHeader, PacketStart, Schema, StreamClass, TraceClass};
use relay::{Limits, Loss, LossCause, Losses};
use testkit::TestProcess;
use tokio::runtime::Runtime;
use wire::live::{DataHeader, NetSeqNum, PacketIndex, ProtocolMinor, Request};

use crate::client::Reply;
use crate::disk::wait_until;
use crate::producer::{Producer, index, packets, records, session, start};

const FOLDER: &str = "host/s-20261120-162218/ust/uid/0/64-bit";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
/// With a value, [`relay_of_a_child_process`] is a relay that writes there.
const CHILD_ROOT: &str = "RELAY_TEST_CHILD_ROOT";

#[test]
fn an_entry_is_acknowledged_when_its_packet_is_written() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { ack_patience: LONG, ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    let bytes = Producer::packet_bytes(stream, 0);
    let (most, last) = bytes.split_at(bytes.len() - 1);
    let request = Request::SendIndex(index(stream, 0));
    let mut encoded = Vec::new();
    request.encode(ProtocolMinor::OURS, &mut encoded).unwrap();

    producer.control.socket.write_all(&encoded).unwrap();
    producer.data.write_all(most).unwrap();
    producer.control.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let silence = producer.control.socket.peek(&mut [0]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");

    producer.control.socket.set_read_timeout(Some(LONG)).unwrap();
    producer.data.write_all(last).unwrap();
    assert!(
        matches!(producer.control.reply(request.command()), Reply::Plain(reply) if reply.0.is_ok())
    );
    let folder = root.path().join(FOLDER);
    assert_eq!(std::fs::read(folder.join("ch_0")).unwrap(), packets([0]));
    assert_eq!(records(&folder.join("index/ch_0.idx")), [(0, 0)]);
    assert_eq!(relay.totals().acknowledged_early, 0);
    runtime.block_on(relay.shutdown());
}

#[test]
fn packets_without_entries_are_taken_from_a_producer_that_sent_many_with_them() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    let mut next = 0;
    // The control connection reads the packets meanwhile, again and again.
    for _ in 0..4 {
        for number in next..next + 50 {
            producer.packet(stream, number);
            producer.index(stream, number);
        }
        next += 50;
        producer.packet(stream, next);
        wait_until("the packet", || relay.totals().packets == next + 1);
        producer.index(stream, next);
        next += 1;
    }
    assert_eq!(relay.totals().acknowledged_early, 0);
    assert_eq!(relay.totals().index_entries, next);
    for number in next..next + 40 {
        producer.packet(stream, number);
        producer.index(stream, number);
    }
    let half = Producer::packet_bytes(stream, 250);
    producer.data.write_all(&half[..half.len() - 1]).unwrap();
    crate::client::end(&producer.data);
    wait_until("the end", || relay.totals().packets_cut_short == 1);
    let file = root.path().join(FOLDER).join("ch_0");
    assert_eq!(std::fs::metadata(file).unwrap().len(), (next + 40) * 128);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_producer_that_sends_entries_first_is_not_held_for_ever() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { ack_patience: Duration::from_millis(5), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.index(stream, 0);
    assert_eq!(relay.totals().acknowledged_early, 1);
    producer.packet(stream, 0);
    wait_until("the packet", || relay.totals().index_entries == 1);
    runtime.block_on(relay.shutdown());
}

#[test]
fn what_network_and_tracer_lost_is_told_with_the_chunk() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { ack_patience: Duration::from_millis(5), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    let mut events = relay.subscribe();
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    let mut send = |net: u64, packet: u64, discarded: u64, with_packet: bool| {
        if with_packet {
            producer.packet(stream, net);
        }
        let mut index = index(stream, net);
        index.events_discarded = discarded;
        index.full.as_mut().unwrap().packet_seq_num = wire::live::PacketSeqNum::new(packet);
        producer.ok(&Request::SendIndex(index));
    };
    send(0, 0, 0, true);
    // 1 and 2 are lost on both connections, the packet of 4 on one, and the tracer loses two packets and 7 records.
    send(3, 3, 0, true);
    send(4, 4, 0, false);
    send(5, 7, 7, true);
    wait_until("the last packet", || relay.totals().index_entries == 3);
    let totals = relay.totals();
    assert_eq!((totals.packets_never_came, totals.indexes_without_packet), (2, 1));
    assert_eq!((totals.tracer_packets_lost, totals.tracer_events_discarded), (2, 7));
    let by_network = [(std::path::PathBuf::from("ust/uid/0/64-bit/ch_0"), 3)].into();
    assert_eq!(relay.network_losses().of("host", "s"), by_network);
    assert!(relay.network_losses().of("host", "other").is_empty());
    let crashed = crash_image(root.path());
    producer.control.end();
    crate::client::end(&producer.data);

    let loss = |cause, first, last, count| Loss { cause, first, last, count };
    let expected = Losses {
        network_packets: 3,
        tracer_packets: 2,
        tracer_events: 7,
        places: vec![
            loss(LossCause::Network, 1, 2, 2),
            loss(LossCause::PacketNeverCame, 4, 4, 1),
            loss(LossCause::TracerPackets, 4, 7, 2),
            loss(LossCause::TracerEvents, 4, 7, 7),
        ],
        without_place: 0,
    };
    let expected = BTreeMap::from([("ust/uid/0/64-bit/ch_0".into(), expected)]);
    let sealed = runtime.block_on(async {
        loop {
            if let relay::Event::Sealed(sealed) = events.recv().await.unwrap() {
                return sealed;
            }
        }
    });
    assert_eq!(sealed.losses, expected);
    runtime.block_on(relay.shutdown());

    let relay = start(&runtime, crashed.path(), Limits::default());
    assert_eq!(relay.recovered().interrupted.first().unwrap().losses, expected);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_packet_whose_entry_never_came_has_one_in_the_sealed_chunk() {
    let runtime = Runtime::new().unwrap();
    let root = tempfile::tempdir().unwrap();
    let relay = start(&runtime, root.path(), Limits::default());
    let mut events = relay.subscribe();
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let metadata = producer.stream("metadata", 0);
    let stream = producer.stream("ch_0", 0);
    let mut class = StreamClass::new(0, EventHeader::Large, Vec::new());
    class.clock = Some(0);
    let mut trace = TraceClass::new(CtfVersion::V1_8, vec![class]);
    trace.clocks = vec![ctf::ClockClass::new("monotonic")];
    let schema = Schema::new(trace).unwrap();
    producer.metadata(metadata, schema.metadata().as_bytes());
    let mut len = 0;
    for number in 0..3 {
        let start = PacketStart {
            stream_class: 0,
            instance: 0,
            sequence_number: number,
            begin: number,
            max_bytes: 4096,
        };
        let packet = schema.open(start, |_| Ok(())).unwrap().seal(number, 0).bytes;
        len = packet.len();
        let header = DataHeader {
            stream,
            net_seq_num: NetSeqNum::new(number),
            data_len: u32::try_from(len).unwrap(),
            padding_len: 0,
        };
        producer.data.write_all(&header.encode()).unwrap();
        producer.data.write_all(&packet).unwrap();
        if number != 1 {
            let bits = len as u64 * 8;
            let entry = PacketIndex {
                packet_size_bits: bits,
                content_size_bits: bits,
                ..index(stream, number)
            };
            producer.ok(&Request::SendIndex(entry));
        }
    }
    producer.control.end();
    crate::client::end(&producer.data);
    let sealed = runtime.block_on(async {
        loop {
            if let relay::Event::Sealed(sealed) = events.recv().await.unwrap() {
                return sealed;
            }
        }
    });
    assert_eq!(sealed.losses[Path::new("ust/uid/0/64-bit/ch_0")].network_packets, 1);
    let len = len as u64;
    let found = records(&root.path().join(FOLDER).join("index/ch_0.idx"));
    assert_eq!(found, [(0, 0), (len, 1), (2 * len, 2)]);
    runtime.block_on(relay.shutdown());
}

/// What `kill -9` would leave now.
fn crash_image(root: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    crate::crash::copy(root, image.path());
    image
}

/// Not a test: the relay that another test kills.
#[test]
fn relay_of_a_child_process() {
    let Some(root) = std::env::var_os(CHILD_ROOT) else { return };
    let runtime = Runtime::new().unwrap();
    let relay = start(&runtime, Path::new(&root), Limits::default());
    println!("\nlistens {} {}", relay.control_addr(), relay.data_addr());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn what_was_acknowledged_is_there_once_after_the_relay_was_killed() {
    for round in 0..5 {
        let root = tempfile::tempdir().unwrap();
        let name = "acknowledge::relay_of_a_child_process";
        let mut relay = TestProcess::start(name, CHILD_ROOT, root.path()).unwrap();
        let &[control, data] = relay.addresses() else { panic!("two addresses") };
        let mut producer = Producer::at(control, data, session("s"));
        producer.chunk(0);
        let stream = producer.stream("ch_0", 0);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let killer = std::thread::spawn(move || {
            has_begun.recv().unwrap();
            std::thread::park_timeout(Duration::from_millis(20 + 13 * round));
            relay.kill();
        });
        let mut acknowledged = Vec::new();
        // Packets repeat after 200, as their first byte must tell their number.
        for number in 0.. {
            if !producer.try_packet(stream, NetSeqNum::new(number), number % 200) {
                break;
            }
            if acknowledged.is_empty() {
                begun.send(()).unwrap();
            }
            acknowledged.push(number);
        }
        killer.join().unwrap();
        let folder = root.path().join(FOLDER);
        let data = std::fs::read(folder.join("ch_0")).unwrap();
        let found = records(&folder.join("index/ch_0.idx"));
        for number in &acknowledged {
            let mut places = found.iter().filter(|(_, packet)| packet == number);
            let (offset, _) = places.next().unwrap_or_else(|| panic!("{number} has no entry"));
            assert_eq!(places.next(), None, "{number} is there twice");
            let offset = usize::try_from(*offset).unwrap();
            assert_eq!(
                data.get(offset..offset + 128).unwrap(),
                packets([number % 200]),
                "packet {number}"
            );
        }
    }
}
