//! A relay that says what was recorded, as fast as it is asked, to a real babeltrace2.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread::JoinHandle;

use wire::live::viewer::{
    AttachReply, Connect, CreateViewerSessionReply, DetachReply, Flags, GetPacket, Header,
    MetadataReply, NewStreamsReply, NextIndex, NextIndexReply, PacketPiece, PacketReply, Request,
    SessionEntry, SessionListHead, StreamEntry,
};
use wire::live::{Decoded, ProtocolMinor, Result, Version, ViewedStreamId, ViewerSessionId};

/// What a recorded relay said, without the times at which it had nothing to say.
#[derive(Default)]
struct Script {
    sessions: Vec<SessionEntry>,
    streams: Vec<StreamEntry>,
    new_streams: VecDeque<(NewStreamsReply, Vec<StreamEntry>)>,
    metadata: HashMap<ViewedStreamId, VecDeque<(MetadataReply, Vec<u8>)>>,
    packets: HashMap<ViewedStreamId, VecDeque<Packet>>,
}

#[derive(Clone)]
struct Packet {
    reply: NextIndexReply,
    bytes: Vec<u8>,
}

/// Takes one part off the front of a recorded reply.
fn take<T>(rest: &mut &[u8], decode: impl Fn(&[u8]) -> Result<Decoded<T>>) -> T {
    let Decoded::Complete { value, used } = decode(rest).unwrap() else { panic!("a whole reply") };
    *rest = &rest[used..];
    value
}

fn take_bytes(rest: &mut &[u8], len: usize) -> Vec<u8> {
    let (bytes, tail) = rest.split_at(len);
    *rest = tail;
    bytes.to_vec()
}

impl Script {
    fn read(folder: &Path) -> Self {
        let sent = std::fs::read(folder.join("viewer-0.c2s")).unwrap();
        let answered = std::fs::read(folder.join("viewer-0.s2c")).unwrap();
        let (mut sent, mut rest) = (sent.as_slice(), answered.as_slice());
        let mut minor = ProtocolMinor::OURS;
        let mut script = Self::default();
        while let Some((header, tail)) = sent.split_first_chunk::<{ Header::LEN }>() {
            let Header { command, payload_len } = Header::decode(header).unwrap();
            let (payload, tail) = tail.split_at(payload_len as usize);
            sent = tail;
            match Request::decode(command, payload).unwrap() {
                Request::Connect(connect) => {
                    let theirs = take(&mut rest, Connect::decode).version;
                    minor = connect.version.negotiate(theirs).unwrap();
                }
                request => script.take(&request, minor, &mut rest),
            }
        }
        script
    }

    fn take(&mut self, request: &Request, minor: ProtocolMinor, rest: &mut &[u8]) {
        let streams = |count: u32, rest: &mut &[u8]| -> Vec<StreamEntry> {
            (0..count).map(|_| take(rest, StreamEntry::decode)).collect()
        };
        match request {
            Request::Connect(_) => {}
            Request::CreateSession => drop(take(rest, CreateViewerSessionReply::decode)),
            Request::ListSessions => {
                let SessionListHead { count } = take(rest, SessionListHead::decode);
                let entry = |bytes: &[u8]| SessionEntry::decode(bytes, minor);
                self.sessions = (0..count).map(|_| take(rest, entry)).collect();
            }
            Request::AttachSession(_) => {
                let AttachReply::Attached(count) = take(rest, AttachReply::decode) else {
                    panic!("attached")
                };
                self.streams = streams(count, rest);
            }
            Request::GetNextIndex(stream) => {
                let reply = take(rest, NextIndexReply::decode);
                if matches!(reply.index, NextIndex::Packet(_)) {
                    let packet = Packet { reply, bytes: Vec::new() };
                    self.packets.entry(*stream).or_default().push_back(packet);
                }
            }
            Request::GetPacket(GetPacket { stream, len_bytes, .. }) => {
                let reply = take(rest, |bytes| PacketReply::decode(bytes, *len_bytes));
                let PacketPiece::Bytes(len) = reply.piece else { panic!("bytes") };
                let bytes = take_bytes(rest, len as usize);
                self.packets.get_mut(stream).unwrap().back_mut().unwrap().bytes = bytes;
            }
            Request::GetMetadata(stream) => {
                let reply = take(rest, MetadataReply::decode);
                let len = if let MetadataReply::Bytes(len) = reply { len } else { 0 };
                let bytes = take_bytes(rest, len as usize);
                self.metadata.entry(*stream).or_default().push_back((reply, bytes));
            }
            Request::GetNewStreams(_) => {
                let reply = take(rest, NewStreamsReply::decode);
                let count = if let NewStreamsReply::Streams(count) = reply { count } else { 0 };
                self.new_streams.push_back((reply, streams(count, rest)));
            }
            Request::DetachSession(_) => drop(take(rest, DetachReply::decode)),
        }
    }

    /// The reply to a request; what was sent is gone.
    fn answer(
        &mut self,
        request: &Request,
        minor: &mut ProtocolMinor,
        current: &mut HashMap<ViewedStreamId, Packet>,
        out: &mut Vec<u8>,
    ) {
        match request {
            Request::Connect(connect) => {
                *minor = Version::OURS.negotiate(connect.version).unwrap();
                let viewer_session = ViewerSessionId::new(1);
                Connect { viewer_session, version: Version::OURS, kind: 0 }.encode(out);
            }
            Request::CreateSession => CreateViewerSessionReply::Made.encode(out),
            Request::ListSessions => {
                SessionListHead { count: self.sessions.len() as u32 }.encode(out);
                self.sessions.iter().for_each(|entry| entry.encode(*minor, out));
            }
            Request::AttachSession(_) => {
                AttachReply::Attached(self.streams.len() as u32).encode(out);
                self.streams.iter().for_each(|entry| entry.encode(out));
            }
            Request::GetNextIndex(stream) => {
                let hang_up = NextIndexReply { index: NextIndex::HangUp, flags: Flags::NONE };
                let next = self.packets.get_mut(stream).and_then(VecDeque::pop_front);
                next.as_ref().map_or(hang_up, |packet| packet.reply).encode(out);
                current.extend(next.map(|packet| (*stream, packet)));
            }
            Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes }) => {
                let Packet { reply, bytes } = &current[stream];
                let NextIndex::Packet(entry) = reply.index else { panic!("a packet") };
                let begin = (offset_bytes - entry.offset_bytes) as usize;
                let piece = &bytes[begin..begin + *len_bytes as usize];
                PacketReply { piece: PacketPiece::Bytes(*len_bytes), flags: Flags::NONE }
                    .encode(out);
                out.extend_from_slice(piece);
            }
            Request::GetMetadata(stream) => {
                let next = self.metadata.get_mut(stream).and_then(VecDeque::pop_front);
                let (reply, bytes) = next.unwrap_or((MetadataReply::NoneNew, Vec::new()));
                reply.encode(out);
                out.extend_from_slice(&bytes);
            }
            Request::GetNewStreams(_) => {
                let next = self.new_streams.pop_front();
                let (reply, entries) = next.unwrap_or((NewStreamsReply::HangUp, Vec::new()));
                reply.encode(out);
                entries.iter().for_each(|entry| entry.encode(out));
            }
            Request::DetachSession(_) => DetachReply::Detached.encode(out),
        }
    }

    /// Serves one viewer until it goes away.
    fn serve(mut self, mut viewer: TcpStream) -> std::io::Result<()> {
        let mut minor = ProtocolMinor::OURS;
        let mut current = HashMap::new();
        loop {
            let mut header = [0; Header::LEN];
            if viewer.read_exact(&mut header).is_err() {
                return Ok(());
            }
            let Header { command, payload_len } = Header::decode(&header).unwrap();
            let mut payload = vec![0; payload_len as usize];
            viewer.read_exact(&mut payload)?;
            let request = Request::decode(command, &payload).unwrap();
            let mut reply = Vec::new();
            self.answer(&request, &mut minor, &mut current, &mut reply);
            viewer.write_all(&reply)?;
        }
    }
}

/// Serves the script to the first viewer that comes.
fn start(script: Script) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (viewer, _) = listener.accept().unwrap();
        script.serve(viewer).unwrap();
    });
    (address, serving)
}

/// Runs babeltrace2 on a relay's address with a path; ends with the test when it hangs.
fn babeltrace2(address: SocketAddr, path: &str) -> Output {
    let (sender, receiver) = mpsc::channel();
    let url = format!("net://{address}{path}");
    std::thread::spawn(move || {
        let mut command = Command::new("babeltrace2");
        command.args(["--input-format=lttng-live", &url]).env("TZ", "UTC");
        sender.send(command.output().unwrap())
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("babeltrace2 ends")
}

/// The version of babeltrace2 on this machine, `2.0.4`.
fn installed() -> Option<String> {
    let output = Command::new("babeltrace2").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

/// A recording and the version of babeltrace2, if both are there.
fn recorded(name: &str) -> Option<(std::path::PathBuf, String)> {
    let folder = testkit::shared_dir().map(|shared| shared.join("captures/lttng").join(name));
    match (folder.filter(|folder| folder.exists()), installed()) {
        (Some(folder), Some(version)) => Some((folder, version)),
        _ => {
            testkit::skip("recorded streams or babeltrace2 are not on this machine");
            None
        }
    }
}

fn check(name: &str, session: &str) {
    let Some((folder, version)) = recorded(name) else { return };
    if name.contains("ctf2") && version.starts_with("2.0.") {
        testkit::skip("babeltrace2 2.0 does not read CTF 2");
        return;
    }
    let (address, serving) = start(Script::read(&folder));
    let output = babeltrace2(address, &format!("/host/vm/{session}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let expected = std::fs::read_to_string(folder.join("viewer-output.txt")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{errors}");
    serving.join().unwrap();
}

#[test]
fn babeltrace2_prints_a_live_session() {
    check("live-2.13", "cap-live");
}

#[test]
fn babeltrace2_prints_a_session_whose_metadata_grow() {
    check("live-metadata-2.13", "cap-livemeta");
}

#[test]
fn babeltrace2_prints_a_session_that_is_cleared_and_gets_new_streams() {
    check("live-clear-2.13", "cap-clear");
}

#[test]
fn babeltrace2_prints_a_session_of_ctf2() {
    check("live-ctf2-2.16", "cap-v216live");
}

#[test]
fn babeltrace2_lists_sessions() {
    let Some((folder, version)) = recorded("live-2.13") else { return };
    let (address, serving) = start(Script::read(&folder));
    let output = babeltrace2(address, "");
    let format = if version.starts_with("2.0.") { "" } else { ", CTF 1.8" };
    let expected = format!(
        "net://{address}/host/vm/cap-live (timer = 1000000, 3 stream(s), 0 client(s) connected{format})\n"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert!(output.status.success());
    serving.join().unwrap();
}
