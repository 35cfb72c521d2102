//! Small traces, made byte by byte: everything a tracer may say or leave out.

use std::fs;
use std::path::{Path, PathBuf};

use model::{TimeRange, Timestamp};
use tracedir::{Item, LossKind, Merged, Recording};

/// A trace folder.
#[derive(Clone)]
pub(crate) struct Trace {
    pub(crate) uuid: Option<u8>,
    pub(crate) instance: bool,
    pub(crate) sequence: bool,
    /// Width of the counter of discarded event records.
    pub(crate) discarded_bits: u32,
    pub(crate) env: &'static str,
    /// `None`: no clock.
    pub(crate) clock: Option<&'static str>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            uuid: Some(7),
            instance: true,
            sequence: true,
            discarded_bits: 64,
            env: "tracer_name = \"lttng-ust\";",
            clock: Some("name = monotonic;"),
        }
    }
}

/// A packet with event records at `times`, each with its time as its field.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) stream: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) times: Vec<u64>,
    pub(crate) discarded: u64,
    pub(crate) sequence: u64,
    pub(crate) padding: usize,
    /// Id of its event records.
    pub(crate) event: u8,
}

/// The packet of stream 0 with these event records, from the first to the last.
pub(crate) fn packet(sequence: u64, times: &[u64]) -> Packet {
    Packet {
        stream: 0,
        begin: times.first().copied().unwrap_or(0),
        end: times.last().copied().unwrap_or(0),
        times: times.to_vec(),
        discarded: 0,
        sequence,
        padding: 0,
        event: 0,
    }
}

impl Trace {
    pub(crate) fn metadata(&self) -> String {
        let uuid = self.uuid.map_or_else(String::new, |byte| {
            let pair = format!("{byte:02x}");
            let group = |len: usize| pair.repeat(len);
            format!("uuid = \"{}-{}-{}-{}-{}\";", group(4), group(2), group(2), group(2), group(6))
        });
        let uuid_field = if self.uuid.is_some() { "u8 uuid[16];" } else { "" };
        let instance = if self.instance { "u64 stream_instance_id;" } else { "" };
        let sequence = if self.sequence { "u64 packet_seq_num;" } else { "" };
        let bits = self.discarded_bits;
        let (clock, time) = match self.clock {
            Some(clock) => {
                let name = clock.split(['=', ';']).nth(1).unwrap().trim();
                let map = format!("integer {{ size = 64; align = 8; map = clock.{name}.value; }}");
                (format!("clock {{ {clock} }};"), map)
            }
            None => (String::new(), "integer { size = 64; align = 8; }".to_owned()),
        };
        let header = if self.clock.is_some() { "time timestamp;" } else { "" };
        let begin_end =
            if self.clock.is_some() { "time timestamp_begin; time timestamp_end;" } else { "" };
        format!(
            "/* CTF 1.8 */
            typealias integer {{ size = 8; align = 8; }} := u8;
            typealias integer {{ size = 32; align = 8; }} := u32;
            typealias integer {{ size = 64; align = 8; }} := u64;
            trace {{ major = 1; minor = 8; byte_order = le; {uuid}
              packet.header := struct {{ u32 magic; {uuid_field} u32 stream_id; {instance} }}; }};
            env {{ {env} }};
            {clock}
            typealias {time} := time;
            stream {{ id = 0;
              packet.context := struct {{ {begin_end} u64 content_size; u64 packet_size;
                integer {{ size = {bits}; align = 8; }} events_discarded; {sequence} u32 cpu_id; }};
              event.header := struct {{ u8 id; {header} }}; }};
            event {{ name = tick; id = 0; stream_id = 0; fields := struct {{ u64 at; }}; }};",
            env = self.env,
        )
    }

    pub(crate) fn bytes(&self, packet: &Packet) -> Vec<u8> {
        let mut head = 0xC1FC_1FC1_u32.to_le_bytes().to_vec();
        if let Some(byte) = self.uuid {
            head.extend([byte; 16]);
        }
        head.extend(0_u32.to_le_bytes());
        if self.instance {
            head.extend(packet.stream.to_le_bytes());
        }
        if self.clock.is_some() {
            head.extend(packet.begin.to_le_bytes());
            head.extend(packet.end.to_le_bytes());
        }
        let mut tail = packet.discarded.to_le_bytes()[..self.discarded_bits as usize / 8].to_vec();
        if self.sequence {
            tail.extend(packet.sequence.to_le_bytes());
        }
        tail.extend(u32::try_from(packet.stream).unwrap().to_le_bytes());
        for time in &packet.times {
            tail.push(packet.event);
            if self.clock.is_some() {
                tail.extend(time.to_le_bytes());
            }
            tail.extend(time.to_le_bytes());
        }
        let content = head.len() + 16 + tail.len();
        let total = content + packet.padding;
        head.extend((content as u64 * 8).to_le_bytes());
        head.extend((total as u64 * 8).to_le_bytes());
        head.extend(tail);
        head.resize(total, 0);
        head
    }

    pub(crate) fn stream(&self, packets: &[Packet]) -> Vec<u8> {
        packets.iter().flat_map(|packet| self.bytes(packet)).collect()
    }

    /// Writes the metadata and one stream file.
    pub(crate) fn write(&self, folder: &Path, name: &str, packets: &[Packet]) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("metadata"), self.metadata()).unwrap();
        let path = folder.join(name);
        fs::write(&path, self.stream(packets)).unwrap();
        path
    }
}

/// Times of the event records, and losses as (packets?, count, begin, end).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) times: Vec<i64>,
    pub(crate) losses: Vec<(bool, u64, i64, i64)>,
}

pub(crate) fn read(recording: &Recording, range: TimeRange) -> Read {
    let mut merged = recording.merged(range);
    let read = drain(&mut merged);
    assert!(merged.findings().is_empty(), "{:?}", merged.findings());
    read
}

pub(crate) fn drain(merged: &mut Merged<'_>) -> Read {
    let mut read = Read::default();
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => read.times.push(event.timestamp.nanos()),
            Item::Loss(loss) => read.losses.push((
                loss.kind == LossKind::Packets,
                loss.count,
                loss.begin.nanos(),
                loss.end.nanos(),
            )),
        }
    }
    read
}

pub(crate) fn range(begin: i64, end: i64) -> TimeRange {
    TimeRange { begin: Timestamp::from_nanos(begin), end: Timestamp::from_nanos(end) }
}

pub(crate) fn open(path: &Path) -> Recording {
    let recording = Recording::open(&[path]).unwrap();
    assert!(recording.findings().is_empty(), "{:?}", recording.findings());
    recording
}
