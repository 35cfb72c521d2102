//! Sessions that end, and viewers that ask what makes no sense, do nothing, or are too many.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use relay::Limits;
use wire::live::viewer::{
    AttachReply, AttachSession, Connect, GetPacket, Header, MetadataReply, NewStreamsReply,
    NextIndex, PacketPiece, Request, Seek,
};
use wire::live::{
    CreateSession, NetSeqNum, ProtocolMinor, TraceFormat, Version, ViewedSessionId, ViewedStreamId,
};

use crate::client::shown;
use crate::disk::wait_until;
use crate::producer::{Producer, session};
use crate::viewer::{Setup, Viewer, connect, live, whole};
use crate::viewer_replay::{Reply, Source};

#[test]
fn a_session_that_ended_is_read_to_its_end() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..3);
    let mut viewer = setup.attach(Seek::Beginning);
    viewer.new_streams();
    setup.producer.rotate(None, &[(setup.stream, 3)]);
    setup.producer.rotate(None, &[(setup.metadata, 0)]);
    setup.producer.close_chunk(0, None);
    setup.producer.close_stream(setup.stream, NetSeqNum::new(2));
    setup.producer.close_stream(setup.metadata, NetSeqNum::NONE);
    setup.producer.control.end();
    setup.producer.data.shutdown(Shutdown::Write).unwrap();
    let mut lister = Viewer::connect(&setup.relay, 15);
    wait_until("the session's end", || lister.sessions().is_empty());
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::Streams(0), Vec::new()));
    assert_eq!(viewer.read_on(stream), [0, 1, 2]);
    assert_eq!(viewer.next(stream).index, NextIndex::HangUp);
    assert_eq!(viewer.new_streams(), Reply::Streams(NewStreamsReply::HangUp, Vec::new()));
    let session = viewer.session.unwrap();
    let attach = Request::AttachSession(AttachSession { session, seek: Seek::Last });
    assert_eq!(lister.ask(&attach), Reply::Attached(AttachReply::Unknown, Vec::new()));
    setup.end();
}

#[test]
fn what_makes_no_sense_is_answered_with_an_error() {
    let mut setup = Setup::new();
    setup.send(0..2);
    let stream = setup.viewed();
    let mut viewer = Viewer::open(&setup.relay);
    let version = Version { major: 2, minor: ProtocolMinor(15) };
    viewer.ask(&connect(version));
    let session = viewer.sessions().first().unwrap().session;
    let attach = |session| Request::AttachSession(AttachSession { session, seek: Seek::Beginning });
    let refused = |reply| Reply::Attached(reply, Vec::new());
    assert_eq!(viewer.ask(&attach(session)), refused(AttachReply::NoViewerSession));
    viewer.ask(&Request::CreateSession);
    let nowhere = ViewedSessionId::new(u64::MAX);
    assert_eq!(viewer.ask(&attach(nowhere)), refused(AttachReply::Unknown));
    assert_eq!(viewer.next(stream).index, NextIndex::Failed, "not attached");
    assert_eq!(viewer.bytes(stream, 0, 128).0, PacketPiece::Failed);
    let metadata = Request::GetMetadata(shown(setup.metadata));
    assert_eq!(viewer.ask(&metadata), Reply::Metadata(MetadataReply::Failed, Vec::new()));
    let streams = Request::GetNewStreams(session);
    assert_eq!(viewer.ask(&streams), Reply::Streams(NewStreamsReply::Failed, Vec::new()));

    let mut bad_seek = Vec::new();
    attach(session).encode(&mut bad_seek);
    *bad_seek.last_mut().unwrap() = 9;
    viewer.socket.write_all(&bad_seek).unwrap();
    let minor = viewer.minor;
    assert_eq!(viewer.socket.reply(&attach(session), minor), refused(AttachReply::BadSeek));

    viewer.attach(session, Seek::Beginning);
    assert_eq!(viewer.ask(&attach(session)), refused(AttachReply::Taken));
    assert_eq!(viewer.bytes(stream, 0, 128).0, PacketPiece::Failed, "nothing was announced");
    assert_eq!(viewer.next_entry(stream).offset_bytes, 0);
    for (offset, len) in [(0, 129), (128, 1), (1, 128), (0, 0), (u64::MAX, 1), (64, u32::MAX)] {
        assert_eq!(viewer.bytes(stream, offset, len).0, PacketPiece::Failed, "{offset} {len}");
    }
    assert_eq!(viewer.bytes(stream, 0, 128), whole(0));
    let (_, tail) = viewer.bytes(stream, 100, 28);
    assert_eq!(tail, [0; 28]);
    assert_eq!(viewer.next(ViewedStreamId::new(u64::MAX)).index, NextIndex::Failed);
    let data_stream = Request::GetMetadata(stream);
    assert_eq!(viewer.ask(&data_stream), Reply::Metadata(MetadataReply::Failed, Vec::new()));
    let metadata = shown(setup.metadata);
    assert_eq!(viewer.next(metadata).index, NextIndex::HangUp);
    setup.end();
}

#[test]
fn older_viewers_do_not_see_ctf_2() {
    let mut create = live();
    create.identity.as_mut().unwrap().trace_format = Some(TraceFormat::Ctf2);
    let setup = Setup::with(create, Limits::default());
    let seen = Viewer::connect(&setup.relay, 15).sessions();
    let [entry] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(entry.format, TraceFormat::Ctf2);
    let mut older = Viewer::connect(&setup.relay, 14);
    assert_eq!(older.sessions(), []);
    let request = AttachSession { session: entry.session, seek: Seek::Last };
    let refused = Reply::Attached(AttachReply::Unknown, Vec::new());
    assert_eq!(older.ask(&Request::AttachSession(request)), refused);
    setup.end();
}

#[test]
fn snapshots_are_not_listed() {
    let setup = Setup::new();
    let before = Viewer::connect(&setup.relay, 15).sessions();
    let create = CreateSession { snapshot: true, ..session("t") };
    let snapshot = Producer::new(&setup.relay, create);
    assert_eq!(Viewer::connect(&setup.relay, 15).sessions(), before);
    drop(snapshot);
    setup.end();
}

#[test]
fn viewers_have_a_bound() {
    let setup = Setup::with(live(), Limits { viewers: 2, ..Limits::default() });
    let first = Viewer::connect(&setup.relay, 15);
    let mut second = Viewer::connect(&setup.relay, 15);
    let mut one_too_many = Viewer::open(&setup.relay);
    let mut bytes = Vec::new();
    connect(Version::OURS).encode(&mut bytes);
    one_too_many.socket.write_all(&bytes).unwrap();
    assert!(one_too_many.is_closed());
    assert_eq!(setup.relay.totals().viewers_refused, 1);
    assert_eq!(second.sessions().len(), 1);
    drop(first);
    wait_until("the place of the first viewer", || {
        Viewer::open(&setup.relay).try_connect().is_some()
    });
    setup.end();
}

#[test]
fn a_viewer_that_follows_nothing_and_says_nothing_gives_up_its_place() {
    let viewer_idle = Duration::from_millis(300);
    let setup = Setup::with(live(), Limits { viewer_idle, viewers: 2, ..Limits::default() });
    let begin = Instant::now();
    let mut idle = Viewer::connect(&setup.relay, 15);
    let mut follower = setup.attach(Seek::Last);
    assert!(idle.is_closed());
    assert!(begin.elapsed() >= viewer_idle);
    wait_until("the place", || Viewer::open(&setup.relay).try_connect().is_some());
    // Who follows a session may wait for it.
    assert_eq!(follower.next(setup.viewed()).index, NextIndex::NotYet);
    setup.end();
}

#[test]
fn a_viewer_that_takes_nothing_holds_nobody_up() {
    let mut setup = Setup::new();
    let stream = setup.viewed();
    setup.send(0..1);
    let mut idle = setup.attach(Seek::Beginning);
    idle.next_entry(stream);
    idle.socket.set_nonblocking(true).unwrap();
    let mut request = Vec::new();
    let all = GetPacket { stream, offset_bytes: 0, len_bytes: 128 };
    Request::GetPacket(all).encode(&mut request);
    // Replies are four times as long as requests, so the relay stops reading first.
    while idle.socket.write(&request.repeat(1000)).is_ok() {}
    setup.send(1..100);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), (0..100).collect::<Vec<_>>());
    setup.end();
}

#[test]
fn a_connection_that_is_cut_or_speaks_nonsense_ends_alone() {
    let mut setup = Setup::new();
    setup.send(0..1);
    let mut conversation = Vec::new();
    let session = ViewedSessionId::new(1);
    for request in [
        connect(Version::OURS),
        Request::CreateSession,
        Request::ListSessions,
        Request::AttachSession(AttachSession { session, seek: Seek::Beginning }),
        Request::GetNextIndex(setup.viewed()),
    ] {
        request.encode(&mut conversation);
    }
    let end = |mut viewer: Viewer, bytes: &[u8]| {
        viewer.socket.write_all(bytes).unwrap();
        viewer.socket.shutdown(Shutdown::Write).unwrap();
        // Whatever is answered, then the end.
        let mut replies = Vec::new();
        drop(viewer.socket.read_to_end(&mut replies));
        replies.len()
    };
    let mut lens = Vec::new();
    for cut in 0..=conversation.len() {
        lens.push(end(Viewer::open(&setup.relay), &conversation[..cut]));
    }
    assert!(lens.is_sorted());
    assert_eq!(lens.first(), Some(&0));
    assert_eq!(lens.last(), Some(&(20 + 4 + 4 + 32 + 5 + 8 + 2 * 4371 + 64)));

    // Unknown command, long payload, other major version, asking before connecting.
    let mut unknown = [0; Header::LEN];
    unknown[11] = 99;
    assert_eq!(end(Viewer::open(&setup.relay), &unknown), 0);
    let mut long = [0xFF; Header::LEN];
    long[8..12].copy_from_slice(&[0, 0, 0, 1]);
    assert_eq!(end(Viewer::open(&setup.relay), &long), 0);
    let mut other = Vec::new();
    connect(Version { major: 3, minor: ProtocolMinor(0) }).encode(&mut other);
    assert_eq!(end(Viewer::open(&setup.relay), &other), Connect::LEN, "told, then closed");
    assert_eq!(end(Viewer::open(&setup.relay), &conversation[36..]), 0);

    assert_eq!(setup.attach(Seek::Beginning).read_on(setup.viewed()), [0]);
    setup.end();
}
