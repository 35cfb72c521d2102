//! Perfetto's trace format: protobuf messages, written as they come.
//!
//! ```text
//! Trace              1 packet (TracePacket), repeated
//! TracePacket        8 timestamp (ns), 10 trusted_packet_sequence_id, 1 ftrace_events, 11 track_event,
//!                    60 track_descriptor
//! TrackDescriptor    1 uuid, 2 name, 3 process {1 pid, 6 process_name}, 4 thread {1 pid, 2 tid, 5 thread_name},
//!                    5 parent_uuid
//! TrackEvent         9 type (1 begin, 2 end, 3 instant), 11 track_uuid, 22 categories, 23 name,
//!                    4 debug_annotations {10 name, 2 bool, 3 uint, 4 int, 5 double, 6 string}
//! FtraceEventBundle  1 cpu, 2 event {1 timestamp, 2 pid, 4 sched_switch {1 prev_comm, 2 prev_pid, 3 prev_prio,
//!                    4 prev_state, 5 next_comm, 6 next_pid, 7 next_prio}}
//! ```
//! Source: `protos/perfetto/trace/perfetto_trace.proto` of google/perfetto. Times are nanoseconds since the epoch.

use std::io::{self, Write};
use std::ops::ControlFlow;

use model::Timestamp;

use crate::scene::{Argument, Arguments, Canvas, Lane, LaneKey, Mark, Scene, Switch};
use crate::viewer::{self, Summary, ViewerError, ViewerOptions};

/// Writes all event records at or below `inputs` as one Perfetto trace.
///
/// # Errors
/// [`ViewerError`]: inputs that cannot be read at all, an output that cannot be written, or a `progress`, which is told
/// the event records so far, that says to stop.
pub fn write<P: AsRef<std::path::Path>>(
    inputs: &[P],
    options: &ViewerOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Summary, ViewerError> {
    let mut writer = Writer { out, message: Vec::new() };
    viewer::run(inputs, options, &mut writer, progress)
}

/// All packets are of one sequence.
const SEQUENCE: u64 = 1;

struct Writer<'o> {
    out: &'o mut dyn Write,
    message: Vec<u8>,
}

/// A message that is being written: fields one after the other.
struct Message<'m>(&'m mut Vec<u8>);

impl Message<'_> {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7F).unwrap_or(0);
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// An int32 or int64.
    fn signed(&mut self, field: u64, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(u64::try_from(value.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(value);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message<'_>)) {
        let mut inner = Vec::new();
        write(&mut Message(&mut inner));
        self.bytes(field, &inner);
    }
}

impl Writer<'_> {
    fn packet(
        &mut self,
        at: Option<Timestamp>,
        write: impl FnOnce(&mut Message<'_>),
    ) -> io::Result<()> {
        self.message.clear();
        Message(&mut self.message).message(1, |packet| {
            if let Some(at) = at {
                packet.number(8, nanos(at));
            }
            packet.number(10, SEQUENCE);
            write(packet);
        });
        self.out.write_all(&self.message)
    }

    fn lane(&mut self, lane: &Lane, id: usize) -> io::Result<()> {
        self.packet(None, |packet| {
            packet.message(60, |track| {
                track.number(1, uuid(id));
                match &lane.key {
                    LaneKey::Thread { tid, .. } => track.message(4, |thread| {
                        thread.signed(1, lane.pid);
                        thread.signed(2, *tid);
                        thread.bytes(5, lane.name.as_bytes());
                    }),
                    LaneKey::Process { .. } if lane.pid != 0 => track.message(3, |process| {
                        process.signed(1, lane.pid);
                        process.bytes(6, lane.name.as_bytes());
                    }),
                    LaneKey::Cpu { .. } | LaneKey::Process { .. } => {
                        track.bytes(2, lane.name.as_bytes());
                    }
                }
            });
        })
    }

    fn event(
        &mut self,
        at: Timestamp,
        lane: usize,
        kind: u64,
        name: Option<&str>,
        arguments: &Arguments,
    ) -> io::Result<()> {
        self.packet(Some(at), |packet| {
            packet.message(11, |event| {
                for (name, value) in arguments {
                    event.message(4, |annotation| {
                        match value {
                            Argument::Bool(truth) => annotation.number(2, (*truth).into()),
                            Argument::Unsigned(number) => annotation.number(3, *number),
                            Argument::Signed(number) => annotation.signed(4, *number),
                            Argument::Float(number) => annotation.double(5, *number),
                            Argument::Text(text) => annotation.bytes(6, text.as_bytes()),
                        }
                        annotation.bytes(10, name.as_bytes());
                    });
                }
                event.number(9, kind);
                event.number(11, uuid(lane));
                if let Some(name) = name {
                    event.bytes(22, b"ctf");
                    event.bytes(23, name.as_bytes());
                }
            });
        })
    }

    fn switch(&mut self, at: Timestamp, cpu: u64, switch: &Switch) -> io::Result<()> {
        self.packet(None, |packet| {
            packet.message(1, |bundle| {
                bundle.number(1, cpu);
                bundle.message(2, |event| {
                    event.number(1, nanos(at));
                    event.signed(2, switch.prev_tid);
                    event.message(4, |fields| {
                        fields.bytes(1, switch.prev_comm.as_bytes());
                        fields.signed(2, switch.prev_tid);
                        fields.signed(3, switch.prev_prio);
                        fields.signed(4, switch.prev_state);
                        fields.bytes(5, switch.next_comm.as_bytes());
                        fields.signed(6, switch.next_tid);
                        fields.signed(7, switch.next_prio);
                    });
                });
            });
        })
    }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.nanos()).unwrap_or(0)
}

/// Track 0 is Perfetto's own.
fn uuid(lane: usize) -> u64 {
    u64::try_from(lane).unwrap_or(u64::MAX - 1) + 1
}

impl Canvas for Writer<'_> {
    type Error = io::Error;

    fn mark(&mut self, at: Timestamp, mark: Mark<'_>, lanes: &[Lane]) -> io::Result<()> {
        match mark {
            Mark::Lane(id) => lanes.get(id).map_or(Ok(()), |lane| self.lane(lane, id)),
            Mark::Begin { lane, name, arguments } => self.event(at, lane, 1, Some(name), arguments),
            Mark::End { lane, arguments } => self.event(at, lane, 2, None, arguments),
            Mark::Instant { lane, name, arguments } => {
                self.event(at, lane, 3, Some(name), arguments)
            }
            Mark::Switch { cpu, switch } => self.switch(at, cpu, switch),
        }
    }
}

impl viewer::Viewer for Writer<'_> {
    fn finish(&mut self, _scene: &Scene) -> io::Result<u64> {
        self.out.flush()?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_protobuf_has_it() {
        let mut bytes = Vec::new();
        let mut message = Message(&mut bytes);
        message.number(1, 300);
        message.signed(2, -1);
        message.bytes(16, b"ab");
        message.message(3, |inner| inner.number(1, 1));
        message.double(5, 1.0);
        let minus_one = [0x10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let mut expected = vec![0x08, 0xAC, 0x02];
        expected.extend(minus_one);
        expected.extend([0x82, 0x01, 2, b'a', b'b', 0x1A, 2, 0x08, 1, 0x29]);
        expected.extend(1.0_f64.to_le_bytes());
        assert_eq!(bytes, expected);
    }
}
