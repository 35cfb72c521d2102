//! The LTTng relay protocol.

use std::path::PathBuf;

use wire::live::{
    AddStreamReply, COMMAND_HEADER_LEN, ChunkExistsReply, ChunkId, CloseTraceChunkReply, Command,
    CommandHeader, ConfigurationReply, CreateSession, CreateSessionReply, DATA_HEADER_LEN,
    DataHeader, Decoded, Error, ErrorKind, Name, NameProblem, PendingReply, ProtocolMinor,
    RelativePath, Request, ReturnReply, RotateStreams, StreamPosition, Version,
};

/// Recordings of real producers and relays, one folder each.
pub(crate) fn recordings() -> Vec<PathBuf> {
    let Some(shared) = testkit::shared_dir() else {
        testkit::skip("recorded streams are not on this machine");
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(shared.join("captures/lttng"))
        .expect("the captures folder is readable")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// The control connections of a recording: requests and replies.
fn control_streams(folder: &std::path::Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..)
        .map_while(|n| {
            let sent = std::fs::read(folder.join(format!("control-{n}.c2s"))).ok()?;
            let answered = std::fs::read(folder.join(format!("control-{n}.s2c"))).ok()?;
            Some((sent, answered))
        })
        .collect()
}

#[test]
fn every_recorded_request_is_read_and_written_back_as_it_was() {
    for folder in recordings() {
        for (sent, _) in control_streams(&folder) {
            let mut minor = ProtocolMinor::OURS;
            let mut rest = sent.as_slice();
            while let Some((header, tail)) = rest.split_first_chunk::<COMMAND_HEADER_LEN>() {
                let CommandHeader { command, payload_len } = CommandHeader::decode(header).unwrap();
                let (payload, tail) = tail.split_at(payload_len as usize);
                rest = tail;
                let request = Request::decode(command, minor, payload).unwrap();
                if let Request::Version(version) = request {
                    minor = Version::OURS.negotiate(version).unwrap();
                }
                let mut again = Vec::new();
                request.encode(minor, &mut again).unwrap();
                let mut expected = [header.as_slice(), payload].concat();
                if command == Command::RotateStreams {
                    expected[COMMAND_HEADER_LEN + 5..COMMAND_HEADER_LEN + 12].fill(0);
                }
                assert_eq!(again, expected, "{command} in {}", folder.display());
            }
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn every_recorded_reply_is_read_and_written_back_as_it_was() {
    for folder in recordings() {
        for (sent, answered) in control_streams(&folder) {
            let mut minor = ProtocolMinor::OURS;
            let mut rest = sent.as_slice();
            let mut replies = answered.as_slice();
            while let Some((header, tail)) = rest.split_first_chunk::<COMMAND_HEADER_LEN>() {
                let CommandHeader { command, payload_len } = CommandHeader::decode(header).unwrap();
                let (payload, tail) = tail.split_at(payload_len as usize);
                rest = tail;
                if let Ok(Request::Version(version)) = Request::decode(command, minor, payload) {
                    minor = Version::OURS.negotiate(version).unwrap();
                }
                let written = written_back(command, minor, replies);
                assert_eq!(replies[..written.len()], written, "{command} in {}", folder.display());
                replies = &replies[written.len()..];
            }
            assert!(replies.is_empty());
        }
    }
}

/// Reads one reply off the front and encodes it again.
fn written_back(command: Command, minor: ProtocolMinor, bytes: &[u8]) -> Vec<u8> {
    fn complete<T>(decoded: Decoded<T>) -> T {
        match decoded {
            Decoded::Complete { value, .. } => value,
            Decoded::Incomplete { needed } => panic!("{needed} bytes needed"),
        }
    }
    let mut out = Vec::new();
    match command {
        Command::SendMetadata => {}
        Command::Version => complete(Version::decode(bytes).unwrap()).encode(&mut out),
        Command::GetConfiguration => {
            complete(ConfigurationReply::decode(bytes).unwrap()).encode(&mut out);
        }
        Command::CreateSession => {
            complete(CreateSessionReply::decode(bytes, minor).unwrap()).encode(&mut out);
        }
        Command::AddStream => complete(AddStreamReply::decode(bytes).unwrap()).encode(&mut out),
        Command::CloseTraceChunk => {
            complete(CloseTraceChunkReply::decode(bytes).unwrap()).encode(&mut out);
        }
        Command::TraceChunkExists => {
            complete(ChunkExistsReply::decode(bytes).unwrap()).encode(&mut out);
        }
        Command::DataPending | Command::EndDataPending => {
            complete(PendingReply::decode(bytes).unwrap()).encode(&mut out);
        }
        _ => complete(ReturnReply::decode(bytes).unwrap()).encode(&mut out),
    }
    out
}

#[test]
fn every_recorded_data_header_is_read_and_written_back_as_it_was() {
    for folder in recordings() {
        for n in 0.. {
            let Ok(sent) = std::fs::read(folder.join(format!("data-{n}.c2s"))) else { break };
            let mut rest = sent.as_slice();
            while let Some((header, tail)) = rest.split_first_chunk::<DATA_HEADER_LEN>() {
                let decoded = DataHeader::decode(header);
                assert_eq!(decoded.encode(), *header);
                assert_eq!(decoded.packet_len() % 4096, 0);
                rest = &tail[decoded.data_len as usize..];
            }
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn a_request_cut_anywhere_says_where_it_ends() {
    let request = Request::CreateSession(session_2_11());
    for minor in [ProtocolMinor(11), ProtocolMinor(15)] {
        let mut bytes = Vec::new();
        request.encode(minor, &mut bytes).unwrap();
        let payload = &bytes[COMMAND_HEADER_LEN..];
        for end in 0..payload.len() {
            let cut = &payload[..end];
            match Request::decode(Command::CreateSession, minor, cut) {
                Err(Error::Truncated { offset, needed, left, .. }) => {
                    assert_eq!(offset + left, end);
                    assert!(needed > left);
                }
                other => panic!("cut at {end}: {other:?}"),
            }
        }
    }
}

fn session_2_11() -> CreateSession {
    CreateSession {
        session_name: Some(Name::new("s").unwrap()),
        hostname: Some(Name::new("h").unwrap()),
        live_timer_us: 7,
        snapshot: true,
        identity: Some(wire::live::SessionIdentity {
            base_path: RelativePath::new("a/b").unwrap(),
            name_has_creation_time: true,
            sessiond: wire::live::SessiondUuid([3; 16]),
            sessiond_session: wire::live::SessiondSessionId::new(4),
            created: wire::live::UnixSeconds::new(5),
            current_chunk: Some(ChunkId::new(6)),
            trace_format: None,
        }),
    }
}

#[test]
fn the_old_session_layout_has_its_length_and_comes_back() {
    let request = Request::CreateSession(CreateSession { identity: None, ..session_2_11() });
    let minor = ProtocolMinor(4);
    let mut bytes = Vec::new();
    request.encode(minor, &mut bytes).unwrap();
    assert_eq!(bytes.len(), COMMAND_HEADER_LEN + 327);
    let decoded = Request::decode(Command::CreateSession, minor, &bytes[COMMAND_HEADER_LEN..]);
    assert_eq!(decoded.unwrap(), request);
}

#[test]
fn rotation_is_read_with_each_of_the_three_paddings() {
    let expected = RotateStreams {
        new_chunk: Some(ChunkId::new(9)),
        positions: vec![StreamPosition {
            handle: wire::live::StreamHandle::new(1),
            rotate_at: wire::live::PacketSeqNum::new(2),
        }],
    };
    for padding in [0, 3, 7] {
        let mut payload = vec![0, 0, 0, 1, 1];
        payload.resize(5 + padding, 0xaa);
        for field in [9_u64, 1, 2] {
            payload.extend_from_slice(&field.to_be_bytes());
        }
        let decoded = Request::decode(Command::RotateStreams, ProtocolMinor::OURS, &payload);
        assert_eq!(decoded, Ok(Request::RotateStreams(expected.clone())), "padding {padding}");
        payload.push(0);
        let decoded = Request::decode(Command::RotateStreams, ProtocolMinor::OURS, &payload);
        assert!(decoded.is_err(), "padding {}: {decoded:?}", padding + 1);
    }
}

#[test]
fn names_that_leave_their_folder_are_refused_without_closing() {
    let mut payload = Vec::new();
    for len in [13_u32, 4] {
        payload.extend_from_slice(&len.to_be_bytes());
    }
    payload.extend_from_slice(&[0; 24]);
    payload.extend_from_slice(b"../../../x/y\0ust\0");
    let error =
        Request::decode(Command::AddStream, ProtocolMinor::OURS, &payload).expect_err("refused");
    assert_eq!(
        error,
        Error::BadName { field: "channel", offset: 32, problem: NameProblem::LeadingDot }
    );
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn announced_lengths_are_checked_before_anything_is_read() {
    let mut header = Vec::new();
    CommandHeader { command: Command::AddStream, payload_len: 10 << 30 }.encode(&mut header);
    let error = CommandHeader::decode(header.first_chunk().unwrap()).expect_err("too large");
    assert_eq!(
        error,
        Error::PayloadTooLarge { command: Command::AddStream, len: 10 << 30, max: 1 << 20 }
    );
    assert_eq!(error.kind(), ErrorKind::Malformed);

    let data = DataHeader {
        stream: wire::live::StreamHandle::new(1),
        net_seq_num: wire::live::NetSeqNum::new(0),
        data_len: u32::MAX,
        padding_len: u32::MAX,
    };
    assert_eq!(data.packet_len(), 2 * u64::from(u32::MAX));
    assert!(data.check_packet_len(1 << 30).is_err());
}

#[test]
fn unknown_commands_are_named() {
    let mut header = [0; COMMAND_HEADER_LEN];
    header[19] = 99;
    assert_eq!(
        CommandHeader::decode(&header),
        Err(Error::UnknownCommand { number: 99, offset: 16 })
    );
}

#[test]
fn damaged_bytes_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; 160];
    for round in 0..20_000_usize {
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = if round % 3 == 0 { (state >> 33) as u8 } else { (state >> 33) as u8 & 1 };
        }
        bytes[0] = (round % 17) as u8;
        bytes[9..17].copy_from_slice(&100_u64.to_be_bytes());
        bytes[17..21].copy_from_slice(&((round % 24) as u32).to_be_bytes());
        wire::live::decode_any(&bytes[..round % 160]);
    }
}
