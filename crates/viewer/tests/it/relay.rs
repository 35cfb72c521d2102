//! A relay of one session in memory: a socket that answers each request as a script says.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, Schema, SealedPacket, TraceClass,
};
use ctf::{ClockClass, ClockOrigin, Uuid};
use tracedir::Item;
use viewer::{Error, Options, Progress, Relay};
use wire::live::viewer::{
    AttachReply, Connect, CreateViewerSessionReply, DetachReply, Flags, GetPacket, Header,
    MetadataReply, NewStreamsReply, NextIndex, NextIndexReply, PacketEntry, PacketPiece,
    PacketReply, Request, Seek, SessionEntry, SessionListHead, StreamEntry,
};
use wire::live::{
    ProtocolMinor, TraceFormat, Version, ViewedSessionId, ViewedStreamId, ViewedTraceId,
    ViewerSessionId,
};

/// The stream that carries metadata.
const METADATA: u64 = 99;

/// What a stream answers next; when all was answered, that it has ended.
pub(crate) enum Next {
    /// A packet.
    Packet(SealedPacket),
    /// Nothing earlier than this is still to come.
    Inactive(u64),
    /// Not yet, so many times.
    NotYet(u32),
    /// A packet, and the word that there are new streams.
    WithNewStreams(SealedPacket),
}

/// What is done to the bytes that the relay sends.
#[derive(Clone, Copy)]
pub(crate) enum Mischief {
    None,
    /// The connection ends after so many bytes.
    Cut(usize),
    /// Bytes from one on are others.
    Forge {
        at: usize,
        bytes: [u8; 4],
    },
}

pub(crate) struct Script {
    /// Where viewers wanted to begin.
    pub(crate) seeks: Rc<RefCell<Vec<Seek>>>,
    metadata: VecDeque<Vec<u8>>,
    streams: HashMap<u64, VecDeque<Next>>,
    listed: Vec<u64>,
    new: Vec<u64>,
    /// How many new streams a list has at most.
    told_at_once: usize,
    live_timer_us: u32,
    /// The packet that a stream named last, at byte 0.
    current: HashMap<u64, Vec<u8>>,
    received: Vec<u8>,
    answers: VecDeque<u8>,
    sent: usize,
    mischief: Mischief,
}

impl Script {
    /// Streams by their numbers, and those of them that appear later.
    pub(crate) fn new(streams: Vec<(u64, Vec<Next>)>, new: &[u64]) -> Self {
        let numbers = streams.iter().map(|(number, _)| *number);
        let listed = numbers.filter(|number| !new.contains(number)).collect();
        Self {
            seeks: Rc::default(),
            metadata: pieces(),
            streams: streams.into_iter().map(|(number, next)| (number, next.into())).collect(),
            listed,
            new: new.to_vec(),
            told_at_once: usize::MAX,
            live_timer_us: 1_000,
            current: HashMap::new(),
            received: Vec::new(),
            answers: VecDeque::new(),
            sent: 0,
            mischief: Mischief::None,
        }
    }

    pub(crate) fn with(self, mischief: Mischief) -> Self {
        Self { mischief, ..self }
    }

    pub(crate) fn told_of_new(self, at_once: usize) -> Self {
        Self { told_at_once: at_once, ..self }
    }

    /// Of a session without live timer.
    pub(crate) fn untimed(self) -> Self {
        Self { live_timer_us: 0, ..self }
    }

    fn answer(&mut self, request: &Request, out: &mut Vec<u8>) {
        match request {
            Request::Connect(_) => {
                let viewer_session = ViewerSessionId::new(1);
                Connect { viewer_session, version: Version::OURS, kind: 0 }.encode(out);
            }
            Request::ListSessions => {
                SessionListHead { count: 1 }.encode(out);
                entry(self.live_timer_us).encode(ProtocolMinor::OURS, out);
            }
            Request::CreateSession => CreateViewerSessionReply::Made.encode(out),
            Request::AttachSession(request) => {
                self.seeks.borrow_mut().push(request.seek);
                AttachReply::Attached(self.listed.len() as u32 + 1).encode(out);
                stream(METADATA).encode(out);
                self.listed.iter().for_each(|number| stream(*number).encode(out));
            }
            Request::GetMetadata(_) => {
                let piece = self.metadata.pop_front();
                let reply = piece.as_ref().map(|piece| MetadataReply::Bytes(piece.len() as u64));
                reply.unwrap_or(MetadataReply::NoneNew).encode(out);
                out.extend(piece.unwrap_or_default());
            }
            Request::GetNewStreams(_) => {
                let over = self.new.is_empty() && self.streams.values().all(VecDeque::is_empty);
                let told = self.new.len().min(self.told_at_once);
                match self.new.drain(..told).collect::<Vec<u64>>() {
                    new if over && new.is_empty() => NewStreamsReply::HangUp.encode(out),
                    new => {
                        NewStreamsReply::Streams(new.len() as u32).encode(out);
                        new.iter().for_each(|number| stream(*number).encode(out));
                    }
                }
            }
            Request::GetNextIndex(id) => self.next(id.get()).encode(out),
            Request::GetPacket(GetPacket { stream, offset_bytes, len_bytes }) => {
                let Some(packet) = self.current.get(&stream.get()) else {
                    return PacketReply { piece: PacketPiece::Failed, flags: Flags::NONE }
                        .encode(out);
                };
                let begin = *offset_bytes as usize;
                let piece = packet.get(begin..begin + *len_bytes as usize).unwrap_or(&[]);
                let piece_len = PacketPiece::Bytes(piece.len() as u32);
                PacketReply { piece: piece_len, flags: Flags::NONE }.encode(out);
                out.extend_from_slice(piece);
            }
            Request::DetachSession(_) => {
                self.metadata = pieces();
                DetachReply::Detached.encode(out);
            }
        }
    }

    fn next(&mut self, number: u64) -> NextIndexReply {
        let Some(queue) = self.streams.get_mut(&number) else {
            return NextIndexReply { index: NextIndex::Failed, flags: Flags::NONE };
        };
        let (index, flags) = match queue.pop_front() {
            None => (NextIndex::HangUp, Flags::NONE),
            Some(Next::Packet(packet)) => (self.packet(number, packet), Flags::NONE),
            Some(Next::WithNewStreams(packet)) => (self.packet(number, packet), Flags::NEW_STREAMS),
            Some(Next::Inactive(until)) => {
                (NextIndex::Inactive { until, stream_class_id: 0 }, Flags::NONE)
            }
            Some(Next::NotYet(times)) => {
                if times > 1 {
                    queue.push_front(Next::NotYet(times - 1));
                }
                (NextIndex::NotYet, Flags::NONE)
            }
        };
        NextIndexReply { index, flags }
    }

    fn packet(&mut self, number: u64, packet: SealedPacket) -> NextIndex {
        let entry = packet.index_entry(0);
        self.current.insert(number, packet.bytes);
        NextIndex::Packet(PacketEntry {
            offset_bytes: 0,
            packet_size_bits: entry.total_length_bits,
            content_size_bits: entry.content_length_bits,
            timestamp_begin: entry.timestamp_begin,
            timestamp_end: entry.timestamp_end,
            events_discarded: entry.events_discarded,
            stream_class_id: 0,
        })
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.received.extend_from_slice(bytes);
        while let Some(header) = self.received.first_chunk::<{ Header::LEN }>() {
            let header = Header::decode(header).unwrap();
            let end = Header::LEN + header.payload_len as usize;
            let Some(payload) = self.received.get(Header::LEN..end) else { break };
            let request = Request::decode(header.command, payload).unwrap();
            self.received.drain(..end);
            let mut out = Vec::new();
            self.answer(&request, &mut out);
            self.answers.extend(out);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Script {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.answers.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if matches!(self.mischief, Mischief::None) {
            return self.answers.read(room);
        }
        for (filled, place) in room.iter_mut().enumerate() {
            if matches!(self.mischief, Mischief::Cut(at) if at == self.sent) {
                return Ok(filled);
            }
            let Some(byte) = self.answers.pop_front() else { return Ok(filled) };
            *place = match self.mischief {
                Mischief::Forge { at, bytes } if (at..at + 4).contains(&self.sent) => {
                    bytes[self.sent - at]
                }
                _ => byte,
            };
            self.sent += 1;
        }
        Ok(room.len())
    }
}

/// Metadata in two pieces, of which the first alone says nothing.
fn pieces() -> VecDeque<Vec<u8>> {
    let metadata = schema().metadata().as_bytes().to_vec();
    let (first, second) = metadata.split_at(100);
    [first.to_vec(), second.to_vec()].into()
}

fn entry(live_timer_us: u32) -> SessionEntry {
    SessionEntry {
        session: ViewedSessionId::new(5),
        live_timer_us,
        viewers: 0,
        streams: 2,
        format: TraceFormat::Ctf1_8,
        hostname: "web-1".to_owned(),
        name: "shop".to_owned(),
    }
}

fn stream(number: u64) -> StreamEntry {
    StreamEntry {
        stream: ViewedStreamId::new(number),
        trace: ViewedTraceId::new(1),
        is_metadata: number == METADATA,
        path: "ust/uid/0/64-bit".to_owned(),
        channel: format!("ch_{number}"),
    }
}

fn schema() -> Schema {
    let fields = vec![Field::new("value", FieldClass::Int(IntClass::U64))];
    let events = vec![EventClass::new(0, "tick", fields)];
    let clock = ClockClass { origin: ClockOrigin::UnixEpoch, ..ClockClass::new("monotonic") };
    Schema::new(TraceClass::per_cpu(Uuid([7; 16]), clock, vec![], vec![], events)).unwrap()
}

/// Packets of one stream: the times of their event records, and how many were discarded by their ends.
pub(crate) fn packets(cpu: u32, packets: &[(&[u64], u64)]) -> Vec<SealedPacket> {
    let schema = schema();
    let first = packets.iter().find_map(|(times, _)| times.first());
    let mut open = schema.open_cpu(cpu, *first.unwrap(), 4096).unwrap();
    let sealed = packets.iter().map(|(times, discarded)| {
        for time in *times {
            let appended = open.append(0, *time, |record| record.unsigned(*time));
            assert_eq!(appended, Ok(Appended::Yes));
        }
        open.roll(*times.last().unwrap(), *discarded)
    });
    sealed.collect()
}

/// What a viewing told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Time and stream of each event record.
    pub(crate) events: Vec<(i64, usize)>,
    /// How many event records or packets were lost.
    pub(crate) lost: Vec<u64>,
    pub(crate) late: u64,
    pub(crate) findings: usize,
    pub(crate) streams: usize,
    pub(crate) short: u64,
    pub(crate) error: Option<Error>,
}

/// Views the session for at most so many polls, each 1 ms after the one before.
pub(crate) fn view(script: Script, options: Options, polls: u64) -> Told {
    view_every(Duration::from_millis(1), script, options, polls)
}

/// The same with as much time between polls as is said.
pub(crate) fn view_every(step: Duration, script: Script, options: Options, polls: u64) -> Told {
    let mut told = Told::default();
    let times = (0..polls).scan(Duration::ZERO, |next, _| {
        *next += step;
        Some(*next - step)
    });
    told.error = run(script, options, times, &mut told).err();
    told
}

fn run(
    script: Script,
    options: Options,
    times: impl Iterator<Item = Duration>,
    told: &mut Told,
) -> Result<(), Error> {
    let mut relay = Relay::greet(script, Box::new(|| false))?;
    let sessions = relay.sessions()?;
    let mut viewing = relay.view(&sessions, options)?;
    for now in times {
        let progress = viewing.poll(now);
        while let Some(item) = viewing.next_item() {
            match item {
                Item::Event(event) => {
                    told.events.push((event.timestamp.nanos(), event.stream_index));
                }
                Item::Loss(loss) => told.lost.push(loss.count),
            }
        }
        told.late = viewing.late();
        told.findings = viewing.findings().kept().len();
        told.streams = viewing.streams();
        told.short = viewing.short_of_memory();
        if progress? == Progress::Ended {
            return Ok(());
        }
    }
    Ok(())
}
