//! Viewers at their own places, while chunks move, go, or are overwritten.

use std::io::Write;

use wire::live::viewer::{DetachReply, GetPacket, NextIndex, PacketPiece, Request, Seek};
use wire::live::{
    CloseAction, DataHeader, NetSeqNum, PacketIndex, Request as Order, TracefileLimit,
};

use crate::producer::{STREAM_PATH, add_stream, index};
use crate::viewer::{Setup, whole};
use crate::viewer_replay::{Reply, Source};

#[test]
fn each_viewer_reads_at_its_own_place() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut early = setup.attach(Seek::Beginning);
    let mut late = setup.attach(Seek::Last);
    assert_eq!(early.sessions().first().unwrap().viewers, 2);
    assert_eq!(early.read_on(stream), [0, 1, 2]);
    assert_eq!(late.read_on(stream), [0; 0]);
    setup.send(3..5);
    assert_eq!(late.read_on(stream), [3, 4]);
    assert_eq!(early.read_on(stream), [3, 4]);
    assert_eq!(late.next(stream).index, NextIndex::NotYet);
    setup.beacon(4, 90);
    let inactive = NextIndex::Inactive { until: 90, stream_class_id: 0 };
    assert_eq!(late.next(stream).index, inactive);
    let session = late.session.unwrap();
    assert_eq!(late.ask(&Request::DetachSession(session)), Reply::Detached(DetachReply::Detached));
    assert_eq!(late.ask(&Request::DetachSession(session)), Reply::Detached(DetachReply::Unknown));
    assert_eq!(early.sessions().first().unwrap().viewers, 1);
    setup.end();
}

#[test]
fn a_viewer_reads_on_through_chunks_that_are_moved() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 3, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0), "announced, then moved");
    setup.send(3..5);
    setup.rotate(1, 5, CloseAction::MoveToArchives);
    setup.send(5..6);
    assert_eq!(viewer.read_on(stream), [1, 2, 3, 4, 5]);
    assert_eq!(viewer.metadata(setup.metadata), b"", "the same metadata again are not sent again");
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [0, 1, 2, 3, 4, 5]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

#[test]
fn packets_that_ran_ahead_of_a_rotation_are_read_where_they_go() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..4);
    let mut viewer = setup.attach(Seek::Beginning);
    for number in 0..3 {
        assert_eq!(viewer.next_entry(stream).timestamp_begin, number);
    }
    // Packet 2 was announced in the file it now leaves.
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    assert_eq!(viewer.bytes(stream, 256, 128), whole(2));
    assert_eq!(viewer.read_on(stream), [3]);
    setup.end();
}

#[test]
fn a_packet_that_moves_while_it_is_sent_is_sent_to_its_end() {
    const LEN: u32 = 32 << 20;
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..1);
    let bytes: Vec<u8> = (0..LEN / 4).flat_map(u32::to_le_bytes).collect();
    let net_seq_num = NetSeqNum::new(1);
    let header = DataHeader { stream: setup.stream, net_seq_num, data_len: LEN, padding_len: 0 };
    setup.producer.data.write_all(&header.encode()).unwrap();
    setup.producer.data.write_all(&bytes).unwrap();
    let packet_size_bits = u64::from(LEN) * 8;
    let entry = PacketIndex { packet_size_bits, ..index(setup.stream, 1) };
    setup.producer.ok(&Order::SendIndex(entry));
    let mut viewer = setup.attach(Seek::Beginning);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 0);
    let offset_bytes = viewer.next_entry(stream).offset_bytes;
    let request = Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes: LEN });
    let mut asked = Vec::new();
    request.encode(&mut asked);
    viewer.socket.write_all(&asked).unwrap();
    // Much of it is not sent while nobody reads.
    viewer.socket.peek(&mut [0]).unwrap();
    setup.rotate(0, 1, CloseAction::MoveToArchives);
    let Reply::Packet(reply, got) = viewer.socket.reply(&request, viewer.minor) else {
        panic!("a packet")
    };
    assert_eq!(reply.piece, PacketPiece::Bytes(LEN));
    assert!(got == bytes, "other bytes");
    setup.end();
}

#[test]
fn what_was_cleared_is_missed_but_what_was_announced_is_not() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.rotate(0, 3, CloseAction::Delete);
    setup.send(3..5);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0));
    assert_eq!(viewer.read_on(stream), [3, 4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 2);
    setup.end();
}

#[test]
fn a_viewer_that_a_ring_of_trace_files_overtook_goes_on_at_its_oldest() {
    let mut setup = Setup::new();
    let mut request = add_stream("ring_0", STREAM_PATH, 0);
    // One packet a file, three files.
    request.tracefile = Some(TracefileLimit { size_bytes: 128, count: Some(3) });
    let crate::client::Reply::Stream(reply) =
        setup.producer.control.ask(&Order::AddStream(request))
    else {
        panic!("a stream")
    };
    setup.producer.ok(&Order::StreamsSent);
    setup.stream = reply.handle;
    let stream = setup.viewed();
    setup.send(0..2);
    let mut viewer = setup.attach(Seek::Beginning);
    let first = viewer.next_entry(stream);
    setup.send(2..7);
    assert_eq!(viewer.bytes(stream, first.offset_bytes, 128), whole(0), "announced before");
    assert_eq!(viewer.read_on(stream), [4, 5, 6]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 3);
    setup.end();
}
