//! The viewer connection: recorded conversations, cut messages, and properties.

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use wire::live::viewer::{
    AttachReply, AttachSession, Command, Connect, CreateViewerSessionReply, DetachReply, Flags,
    GetPacket, Header, MAX_LISTED, MAX_METADATA_PIECE_LEN, MetadataReply, NewStreamsReply,
    NextIndex, NextIndexReply, PacketEntry, PacketPiece, PacketReply, Request, Seek, SessionEntry,
    SessionListHead, StreamEntry,
};
use wire::live::{
    Decoded, Error, ProtocolMinor, Result, TraceFormat, Version, ViewedSessionId, ViewedStreamId,
    ViewedTraceId, ViewerSessionId,
};

use crate::live::recordings;

/// A recorded reply that is read from its front, each part written back and compared.
struct Replies<'a> {
    rest: &'a [u8],
    minor: ProtocolMinor,
}

impl<'a> Replies<'a> {
    fn take<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Decoded<T>>,
        encode: impl Fn(&T, &mut Vec<u8>),
    ) -> T {
        let Decoded::Complete { value, used } = decode(self.rest).unwrap() else {
            panic!("a whole reply")
        };
        let mut again = Vec::new();
        encode(&value, &mut again);
        assert_eq!(again, self.rest[..used]);
        self.rest = &self.rest[used..];
        value
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        bytes
    }

    fn streams(&mut self, count: u32) -> Vec<StreamEntry> {
        (0..count).map(|_| self.take(StreamEntry::decode, StreamEntry::encode)).collect()
    }
}

/// A request and its reply as `decoded.txt` has them, without the number in front. That file was written by another
/// decoder.
fn line(request: &Request, payload_len: usize, replies: &mut Replies<'_>) -> String {
    let mut line = format!("{}[{payload_len}]", request.command());
    match request {
        Request::Connect(connect) => {
            let reply = replies.take(Connect::decode, Connect::encode);
            replies.minor = connect.version.negotiate(reply.version).unwrap();
            write!(
                line,
                " vsession={:#x} {}.{} type={} => vsession={} {}.{} type={}",
                connect.viewer_session.get(),
                connect.version.major,
                connect.version.minor.0,
                connect.kind,
                reply.viewer_session,
                reply.version.major,
                reply.version.minor.0,
                reply.kind
            )
            .unwrap();
        }
        Request::CreateSession => {
            let reply = replies.take(CreateViewerSessionReply::decode, |it, out| it.encode(out));
            write!(line, " => status={}", reply as u32).unwrap();
        }
        Request::ListSessions => list_line(&mut line, replies),
        Request::AttachSession(AttachSession { session, seek }) => {
            let (offset, seek) = seek.fields();
            let AttachReply::Attached(count) =
                replies.take(AttachReply::decode, AttachReply::encode)
            else {
                panic!("attached")
            };
            write!(line, " id={session} offset={offset} seek={seek} => status=1 streams={count}")
                .unwrap();
            stream_lines(&mut line, &replies.streams(count));
        }
        Request::GetNextIndex(stream) => index_line(&mut line, *stream, replies),
        Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes }) => {
            let reply =
                replies.take(|bytes| PacketReply::decode(bytes, *len_bytes), PacketReply::encode);
            let PacketPiece::Bytes(len) = reply.piece else { panic!("bytes") };
            assert_eq!(replies.bytes(len as usize).len(), len as usize);
            write!(line, " stream={stream} off={offset_bytes} len={len_bytes}").unwrap();
            write!(line, " => status=1 len={len} flags={}", reply.flags.0).unwrap();
        }
        Request::GetMetadata(stream) => {
            let (status, len) = match replies.take(MetadataReply::decode, MetadataReply::encode) {
                MetadataReply::Bytes(len) => (1, len),
                MetadataReply::NoneNew => (2, 0),
                MetadataReply::Failed => (3, 0),
            };
            write!(line, " stream={stream} => status={status} len={len} head=").unwrap();
            for byte in replies.bytes(len as usize).iter().take(37) {
                write!(line, "{byte:02x}").unwrap();
            }
        }
        Request::GetNewStreams(session) => {
            let (status, count) =
                match replies.take(NewStreamsReply::decode, NewStreamsReply::encode) {
                    NewStreamsReply::Streams(count) => (1, count),
                    NewStreamsReply::NoneNew => (2, 0),
                    NewStreamsReply::Failed => (3, 0),
                    NewStreamsReply::HangUp => (4, 0),
                };
            write!(line, " session={session} => status={status} streams={count}").unwrap();
            stream_lines(&mut line, &replies.streams(count));
        }
        Request::DetachSession(session) => {
            let reply = replies.take(DetachReply::decode, |it, out| it.encode(out));
            write!(line, " session={session} => status={}", reply as u32).unwrap();
        }
    }
    line
}

fn list_line(line: &mut String, replies: &mut Replies<'_>) {
    let minor = replies.minor;
    let SessionListHead { count } = replies.take(SessionListHead::decode, SessionListHead::encode);
    write!(line, " => count={count}").unwrap();
    for _ in 0..count {
        let entry = replies.take(
            |bytes| SessionEntry::decode(bytes, minor),
            |entry, out| entry.encode(minor, out),
        );
        write!(line, "\nid={} live={}", entry.session, entry.live_timer_us).unwrap();
        write!(line, " clients={} streams={}", entry.viewers, entry.streams).unwrap();
        if minor.has_trace_format() {
            write!(line, " format={}", entry.format as u32 - 1).unwrap();
        }
        write!(line, " host='{}' name='{}'", entry.hostname, entry.name).unwrap();
    }
}

fn stream_lines(line: &mut String, entries: &[StreamEntry]) {
    for StreamEntry { stream, trace, is_metadata, path, channel } in entries {
        let metadata = u32::from(*is_metadata);
        write!(line, "\nstream id={stream} trace={trace} metadata={metadata}").unwrap();
        write!(line, " path='{path}' chan='{channel}'").unwrap();
    }
}

fn index_line(line: &mut String, stream: ViewedStreamId, replies: &mut Replies<'_>) {
    let nothing = PacketEntry {
        offset_bytes: 0,
        packet_size_bits: 0,
        content_size_bits: 0,
        timestamp_begin: 0,
        timestamp_end: 0,
        events_discarded: 0,
        stream_class_id: 0,
    };
    let NextIndexReply { index, flags } =
        replies.take(NextIndexReply::decode, NextIndexReply::encode);
    let (status, entry) = match index {
        NextIndex::Packet(entry) => (1, entry),
        NextIndex::NotYet => (2, nothing),
        NextIndex::HangUp => (3, nothing),
        NextIndex::Failed => (4, nothing),
        NextIndex::Inactive { until, stream_class_id } => {
            (5, PacketEntry { timestamp_end: until, stream_class_id, ..nothing })
        }
        NextIndex::End => (6, nothing),
    };
    write!(line, " stream={stream} => status={status} flags={}", flags.0).unwrap();
    write!(line, " off={} pkt_bits={}", entry.offset_bytes, entry.packet_size_bits).unwrap();
    write!(line, " content_bits={}", entry.content_size_bits).unwrap();
    write!(line, " ts=[{},{}]", entry.timestamp_begin, entry.timestamp_end).unwrap();
    write!(line, " discarded={}", entry.events_discarded).unwrap();
    write!(line, " ctf_stream={}", entry.stream_class_id).unwrap();
}

/// The lines of `decoded.txt` on the viewer connection, without their numbers.
fn expected(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("decoded.txt")).unwrap();
    let lines = text.lines().skip_while(|line| *line != "## viewer-0").skip(1);
    let lines = lines.take_while(|line| !line.starts_with("##") && !line.starts_with("left in"));
    lines
        .map(|line| {
            line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim().to_owned()
        })
        .collect()
}

#[test]
fn every_recorded_conversation_is_read_as_it_was_meant_and_written_back_as_it_was() {
    let mut conversations = 0;
    for folder in recordings() {
        let Ok(sent) = std::fs::read(folder.join("viewer-0.c2s")) else { continue };
        let answered = std::fs::read(folder.join("viewer-0.s2c")).unwrap();
        let mut replies = Replies { rest: &answered, minor: ProtocolMinor::OURS };
        let mut lines = Vec::new();
        let mut rest = sent.as_slice();
        while let Some((header, tail)) = rest.split_first_chunk::<{ Header::LEN }>() {
            let Header { command, payload_len } = Header::decode(header).unwrap();
            let (payload, tail) = tail.split_at(payload_len as usize);
            rest = tail;
            let request = Request::decode(command, payload).unwrap();
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(again, [header.as_slice(), payload].concat(), "{command}");
            lines.extend(
                line(&request, payload.len(), &mut replies)
                    .lines()
                    .map(|line| line.trim().to_owned()),
            );
        }
        assert!(rest.is_empty() && replies.rest.is_empty());
        assert_eq!(lines, expected(&folder), "{}", folder.display());
        conversations += 1;
    }
    assert!(conversations == 4 || recordings().is_empty(), "{conversations}");
}

#[test]
fn the_fixed_lengths_are_those_of_the_protocol() {
    let mut out = Vec::new();
    stream().encode(&mut out);
    assert_eq!((out.len(), StreamEntry::LEN), (4371, 4371));
    for (minor, len) in [(4, 339), (14, 339), (15, 32 + 1 + 2)] {
        let mut out = Vec::new();
        session().encode(ProtocolMinor(minor), &mut out);
        assert_eq!(out.len(), len);
    }
}

fn stream() -> StreamEntry {
    StreamEntry {
        stream: ViewedStreamId::new(1),
        trace: ViewedTraceId::new(2),
        is_metadata: false,
        path: "ust/uid/0/64-bit".into(),
        channel: "ch_0".into(),
    }
}

fn session() -> SessionEntry {
    SessionEntry {
        session: ViewedSessionId::new(3),
        live_timer_us: 4,
        viewers: 5,
        streams: 6,
        format: TraceFormat::Ctf1_8,
        hostname: "h".into(),
        name: "ss".into(),
    }
}

#[test]
fn names_that_do_not_fit_are_cut_between_characters() {
    let long = SessionEntry { hostname: "é".repeat(127), name: "x".repeat(255), ..session() };
    let mut out = Vec::new();
    long.encode(ProtocolMinor(14), &mut out);
    let Ok(Decoded::Complete { value, .. }) = SessionEntry::decode(&out, ProtocolMinor(14)) else {
        panic!("whole")
    };
    assert_eq!((value.hostname, value.name), ("é".repeat(31), "x".repeat(254)));
}

#[test]
fn a_text_from_the_network_cannot_steer_a_terminal() {
    let mut out = Vec::new();
    StreamEntry { channel: "a\x1b[2Jb".into(), ..stream() }.encode(&mut out);
    let Ok(Decoded::Complete { value, .. }) = StreamEntry::decode(&out) else { panic!("whole") };
    assert_eq!(value.channel, "a\u{fffd}[2Jb");
}

#[test]
fn lengths_and_counts_beyond_their_maximum_are_refused() {
    let too_large = |result: Result<()>| {
        assert!(matches!(result, Err(Error::LengthTooLarge { .. })), "{result:?}");
    };
    let reply = PacketReply { piece: PacketPiece::Bytes(4097), flags: Flags::NONE };
    let mut out = Vec::new();
    reply.encode(&mut out);
    too_large(PacketReply::decode(&out, 4096).map(drop));
    assert!(PacketReply::decode(&out, 4097).is_ok());

    let mut out = Vec::new();
    MetadataReply::Bytes(MAX_METADATA_PIECE_LEN + 1).encode(&mut out);
    too_large(MetadataReply::decode(&out).map(drop));

    let count = MAX_LISTED as u32 + 1;
    let mut out = Vec::new();
    AttachReply::Attached(count).encode(&mut out);
    too_large(AttachReply::decode(&out).map(drop));
    too_large(NewStreamsReply::decode(&out).map(drop));
    too_large(SessionListHead::decode(&count.to_be_bytes()).map(drop));

    let mut header = [0; Header::LEN];
    header[..8].copy_from_slice(&4097_u64.to_be_bytes());
    header[11] = 5;
    too_large(Header::decode(&header).map(drop));
    header[..8].copy_from_slice(&4096_u64.to_be_bytes());
    assert!(Header::decode(&header).is_ok());
}

#[test]
fn what_has_no_meaning_is_named_with_its_place() {
    let mut header = [0; Header::LEN];
    header[11] = 10;
    assert_eq!(Header::decode(&header), Err(Error::UnknownCommand { number: 10, offset: 8 }));
    let mut attach = vec![0; 20];
    attach[19] = 3;
    let seek = Error::BadValue { field: "seek", offset: 16, value: 3 };
    assert_eq!(Request::decode(Command::AttachSession, &attach), Err(seek));
    let mut index = [0; NextIndexReply::LEN];
    index[59] = 7;
    let status = Error::BadValue { field: "status", offset: 56, value: 7 };
    assert_eq!(NextIndexReply::decode(&index), Err(status));
    for request in [Command::GetNextIndex, Command::GetPacket, Command::Connect] {
        let short = Request::decode(request, &[0; 7]);
        assert!(matches!(short, Err(Error::Truncated { offset: 0, left: 7, .. })), "{short:?}");
    }
}

/// Of a reply cut anywhere the decoder asks for more, and never for more than there is.
fn check_cuts<T: PartialEq + std::fmt::Debug>(
    whole: &[u8],
    value: &T,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>>,
) {
    for cut in 0..whole.len() {
        match decode(&whole[..cut]) {
            Ok(Decoded::Incomplete { needed }) => assert!(needed > cut && needed <= whole.len()),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    let longer = [whole, &[0xAA]].concat();
    match decode(&longer) {
        Ok(Decoded::Complete { value: read, used }) => {
            assert_eq!((&read, used), (value, whole.len()));
        }
        other => panic!("{other:?}"),
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    let connect = (any::<u64>(), any::<[u32; 3]>()).prop_map(|(id, [major, minor, kind])| {
        let version = Version { major, minor: ProtocolMinor(minor) };
        Request::Connect(Connect { viewer_session: ViewerSessionId::new(id), version, kind })
    });
    let attach = (any::<u64>(), any::<Option<u64>>()).prop_map(|(id, begin)| {
        let seek = match begin {
            None => Seek::Last,
            Some(0) => Seek::Beginning,
            Some(cycles) => Seek::Since(cycles),
        };
        Request::AttachSession(AttachSession { session: ViewedSessionId::new(id), seek })
    });
    let packet = any::<(u64, u64, u32)>().prop_map(|(stream, offset_bytes, len_bytes)| {
        Request::GetPacket(GetPacket {
            stream: ViewedStreamId::new(stream),
            offset_bytes,
            len_bytes,
        })
    });
    prop_oneof![
        connect,
        attach,
        packet,
        Just(Request::ListSessions),
        Just(Request::CreateSession),
        any::<u64>().prop_map(|id| Request::GetNextIndex(ViewedStreamId::new(id))),
        any::<u64>().prop_map(|id| Request::GetMetadata(ViewedStreamId::new(id))),
        any::<u64>().prop_map(|id| Request::GetNewStreams(ViewedSessionId::new(id))),
        any::<u64>().prop_map(|id| Request::DetachSession(ViewedSessionId::new(id))),
    ]
}

fn any_index() -> impl Strategy<Value = NextIndexReply> {
    let packet = any::<[u64; 7]>().prop_map(|[a, b, c, d, e, f, g]| {
        NextIndex::Packet(PacketEntry {
            offset_bytes: a,
            packet_size_bits: b,
            content_size_bits: c,
            timestamp_begin: d,
            timestamp_end: e,
            events_discarded: f,
            stream_class_id: g,
        })
    });
    let inactive = any::<(u64, u64)>()
        .prop_map(|(until, stream_class_id)| NextIndex::Inactive { until, stream_class_id });
    let index = prop_oneof![
        packet,
        inactive,
        Just(NextIndex::NotYet),
        Just(NextIndex::HangUp),
        Just(NextIndex::Failed),
        Just(NextIndex::End),
    ];
    (index, any::<u32>()).prop_map(|(index, flags)| NextIndexReply { index, flags: Flags(flags) })
}

/// Texts that need no replacing: what is sent of names.
fn any_text(max_chars: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![Just('é'), proptest::char::range(' ', '~')],
        0..=max_chars,
    )
    .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #[test]
    fn a_request_comes_back(request in any_request()) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let (header, payload) = bytes.split_first_chunk().unwrap();
        let Header { command, payload_len } = Header::decode(header).unwrap();
        prop_assert_eq!(payload.len(), payload_len as usize);
        prop_assert_eq!(Request::decode(command, payload), Ok(request));
        for cut in 0..payload.len() {
            let is_truncated = matches!(
                Request::decode(command, &payload[..cut]),
                Err(Error::Truncated { .. })
            );
            prop_assert!(is_truncated);
        }
    }

    #[test]
    fn an_index_comes_back(reply in any_index()) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, NextIndexReply::decode);
    }

    #[test]
    fn a_session_comes_back(
        numbers in any::<(u64, u32, u32, u32)>(),
        is_new in any::<bool>(),
        is_ctf2 in any::<bool>(),
        hostname in any_text(31),
        name in any_text(127),
    ) {
        let (session, live_timer_us, viewers, streams) = numbers;
        let format = if is_new && is_ctf2 { TraceFormat::Ctf2 } else { TraceFormat::Ctf1_8 };
        let session = ViewedSessionId::new(session);
        let entry = SessionEntry { session, live_timer_us, viewers, streams, format, hostname, name };
        let minor = ProtocolMinor(if is_new { 15 } else { 4 });
        let mut bytes = Vec::new();
        entry.encode(minor, &mut bytes);
        check_cuts(&bytes, &entry, |bytes| SessionEntry::decode(bytes, minor));
    }

    #[test]
    fn a_stream_comes_back(
        ids in any::<(u64, u64)>(),
        is_metadata in any::<bool>(),
        path in any_text(300),
        channel in any_text(127),
    ) {
        let (stream, trace) = (ViewedStreamId::new(ids.0), ViewedTraceId::new(ids.1));
        let entry = StreamEntry { stream, trace, is_metadata, path, channel };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        check_cuts(&bytes, &entry, StreamEntry::decode);
    }

    #[test]
    fn damaged_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        wire::live::viewer::decode_any(&bytes);
    }

    /// Mostly zeros, so that statuses and lengths often mean something.
    #[test]
    fn sparse_bytes_never_panic(
        minor in 0_u8..20,
        ones in proptest::collection::vec((0_usize..4500, any::<u8>()), 0..12),
    ) {
        let mut bytes = vec![0; 4500];
        bytes[0] = minor;
        for (at, byte) in ones {
            bytes[at] = byte;
        }
        wire::live::viewer::decode_any(&bytes);
    }
}

#[test]
fn replies_of_one_number_come_back() {
    for reply in [
        AttachReply::Attached(7),
        AttachReply::Taken,
        AttachReply::Unknown,
        AttachReply::NotLive,
        AttachReply::BadSeek,
        AttachReply::NoViewerSession,
    ] {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, AttachReply::decode);
    }
    for reply in [
        NewStreamsReply::Streams(7),
        NewStreamsReply::NoneNew,
        NewStreamsReply::Failed,
        NewStreamsReply::HangUp,
    ] {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, NewStreamsReply::decode);
    }
    for reply in [MetadataReply::Bytes(7), MetadataReply::NoneNew, MetadataReply::Failed] {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, MetadataReply::decode);
    }
    for piece in [PacketPiece::Bytes(7), PacketPiece::NotYet, PacketPiece::Failed, PacketPiece::End]
    {
        let reply = PacketReply { piece, flags: Flags::NEW_METADATA | Flags::NEW_STREAMS };
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, |bytes| PacketReply::decode(bytes, 7));
        assert!(reply.flags.contains(Flags::NEW_STREAMS));
    }
    for reply in [DetachReply::Detached, DetachReply::Unknown, DetachReply::Failed] {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        check_cuts(&bytes, &reply, DetachReply::decode);
    }
}
