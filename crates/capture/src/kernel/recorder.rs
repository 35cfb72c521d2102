//! The loop that empties the rings, orders the records, fills packets and cuts chunks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctf::EnvValue;
use ctf::writer::{self, Appended, OpenPacket, TraceClass};
use rustix::event::{Timespec, epoll};

use super::delivery::{Courier, Lost};
use super::dumper::Dumper;
use super::programs::{Programs, Settings};
use super::schema::Schema;
use super::sink::Recording;
use super::{Config, Group, Report, clock, encode};
use crate::error::{Error, Result};
use crate::object::Storage;

/// How long a record waits for earlier ones that come after it. Far longer than an interrupt lasts; only a virtual
/// machine that is stopped in mid-interrupt can exceed it.
const HOLD_NS: u64 = 10_000_000;
/// The rings are looked at this often even if none has filled enough to ask for it.
const PERIOD: Duration = Duration::from_millis(50);
/// A packet is sealed at this age, so that a killed capture leaves all but its last second.
const MAX_PACKET_AGE_NS: u64 = 1_000_000_000;
/// Records read from one ring before the next has its turn.
const RECORDS_PER_TURN: usize = 32_768;

const PAGE_BYTES: u64 = 4096;
const MAX_RING_BYTES: u64 = 1 << 30;
const MIN_PACKET_BYTES: u64 = 64 << 10;

/// Captures as `config` says until `stop`.
pub(super) fn run(config: &Config, stop: &AtomicBool, attached: impl FnOnce()) -> Result<Report> {
    let ring_bytes = config.ring_bytes.clamp(PAGE_BYTES, MAX_RING_BYTES).next_power_of_two();
    let settings = Settings {
        ring_bytes: u32::try_from(ring_bytes).unwrap_or(u32::MAX),
        processes: &config.processes,
        groups: &config.groups,
    };
    let mut storage = Storage::new();
    let mut programs = Programs::load(&mut storage, &settings)?;
    let schema = Schema::new();
    let trace = trace_class(&schema)?;
    let uuid = trace.uuid.map_or([0; 16], |uuid| uuid.0);
    let writer = writer::Schema::new(trace).expect("the classes are constants, and tested");
    let recording = Recording {
        session: config.session.clone(),
        host: host_name(),
        uuid,
        metadata: writer.metadata().to_owned(),
        streams: programs.rings.len(),
        begin_unix_s: clock::unix_seconds(),
        rotates: config.rotate.is_some(),
    };
    let courier = Courier::start(&config.output, recording, config.reconnect)?;
    let dumper = if config.groups.contains(&Group::Scheduling) {
        Some(Dumper::start(programs.state_dump()?)?)
    } else {
        None
    };
    let begin_ns = clock::monotonic_ns();
    programs.attach(&settings)?;
    attached();
    dumper.iter().for_each(Dumper::request);
    let names_disks = config.groups.contains(&Group::Disks);
    if names_disks {
        programs.dump_disks()?;
    }
    let max_packet_bytes =
        usize::try_from(config.packet_bytes.max(MIN_PACKET_BYTES)).unwrap_or(usize::MAX);
    let streams = (0_u32..)
        .take(programs.rings.len())
        .map(|cpu| {
            let opened = writer.open_cpu(cpu, begin_ns, max_packet_bytes);
            opened.expect("a packet has room for its own header")
        })
        .collect();
    let recorder = Recorder {
        programs,
        schema: &schema,
        streams,
        courier,
        dumper,
        names_disks,
        report: Report { chunks: 1, ..Report::default() },
        schedule: Schedule::new(config, begin_ns),
    };
    recorder.record(stop)
}

/// When chunks are cut and when the recording ends, in nanoseconds of the trace clock.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    rotate_ns: Option<u64>,
    next_cut_ns: u64,
    end_ns: u64,
}

impl Schedule {
    fn new(config: &Config, begin_ns: u64) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let rotate_ns = config.rotate.map(nanoseconds);
        Self {
            rotate_ns,
            next_cut_ns: rotate_ns.map_or(u64::MAX, |period| begin_ns.saturating_add(period)),
            end_ns: config
                .duration
                .map_or(u64::MAX, |time| begin_ns.saturating_add(nanoseconds(time))),
        }
    }
}

struct Recorder<'a> {
    programs: Programs<'a>,
    schema: &'a Schema,
    streams: Vec<OpenPacket<'a>>,
    courier: Courier,
    dumper: Option<Dumper>,
    /// Whether each chunk begins with what disks are called.
    names_disks: bool,
    report: Report,
    schedule: Schedule,
}

/// What a step of the loop ends with: go on, or the output is lost, or an error of ours.
type Step = std::result::Result<(), Stopped>;

enum Stopped {
    Lost,
    Failed(Error),
}

impl From<Lost> for Stopped {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Recorder<'_> {
    /// The whole recording, then its orderly end, also when the output was lost on the way.
    fn record(mut self, stop: &AtomicBool) -> Result<Report> {
        let followed = self.follow(stop);
        let dumped = self.dumper.take().map_or(Ok(()), Dumper::finish);
        self.report.missed = self.programs.missed();
        self.programs.detach();
        match followed.and_then(|()| self.wind_up()) {
            Ok(()) | Err(Stopped::Lost) => {}
            Err(Stopped::Failed(error)) => return Err(error),
        }
        let Self { programs, courier, streams, mut report, .. } = self;
        let next = streams.iter().map(OpenPacket::sequence_number).collect();
        courier.finish(clock::unix_seconds(), next, report.events)?;
        dumped?;
        report.discarded = (0..programs.rings.len()).map(|cpu| programs.discarded(cpu)).collect();
        Ok(report)
    }

    fn follow(&mut self, stop: &AtomicBool) -> Step {
        let alarm = ring_alarm(&self.programs)?;
        while !stop.load(Ordering::Relaxed) {
            let now_ns = clock::monotonic_ns();
            if now_ns >= self.schedule.end_ns {
                break;
            }
            let more = self.turn(now_ns)?;
            if !more {
                wait(&alarm, PERIOD)?;
            }
        }
        Ok(())
    }

    /// One look at all rings; tells whether one of them had more than one turn's worth.
    fn turn(&mut self, now_ns: u64) -> std::result::Result<bool, Stopped> {
        if self.courier.began_chunk() {
            // That chunk has no state dump; the one that is cut now has.
            self.report.chunks += 1;
            self.report.reconnections += 1;
            self.schedule.next_cut_ns = self.schedule.next_cut_ns.min(now_ns);
        }
        let mut more = false;
        let mut safe_ns = Vec::with_capacity(self.streams.len());
        for ring in &self.programs.rings {
            let (records, read_until_ns) = ring.read(RECORDS_PER_TURN, now_ns);
            more |= records == RECORDS_PER_TURN;
            safe_ns.push(read_until_ns.saturating_sub(HOLD_NS));
        }
        let all_safe_ns = safe_ns.iter().copied().min().unwrap_or(0);
        // A chunk that ends before its state dump could not be read alone.
        let dumped_ns = self.dumper.as_ref().map_or(0, |it| it.ended_ns().unwrap_or(now_ns));
        self.schedule.next_cut_ns = self.schedule.next_cut_ns.max(dumped_ns);
        if all_safe_ns >= self.schedule.next_cut_ns {
            self.cut(self.schedule.next_cut_ns, now_ns)?;
        }
        for (cpu, safe_ns) in safe_ns.into_iter().enumerate() {
            self.write_stream(cpu, safe_ns.min(self.schedule.next_cut_ns))?;
        }
        self.seal_old_packets(all_safe_ns)?;
        Ok(more)
    }

    /// Writes all records up to `until_ns` into packets.
    fn write_until(&mut self, until_ns: u64) -> Step {
        (0..self.streams.len()).try_for_each(|cpu| self.write_stream(cpu, until_ns))
    }

    fn write_stream(&mut self, cpu: usize, until_ns: u64) -> Step {
        let (Some(ring), Some(packet)) = (self.programs.rings.get(cpu), self.streams.get_mut(cpu))
        else {
            return Ok(());
        };
        let mut sorter = ring.sorter.borrow_mut();
        let encode_error = |source| Error::Encode { cpu: u32::try_from(cpu).unwrap_or(0), source };
        while let Some((time_ns, record)) = sorter.pop(until_ns) {
            // A record that comes too late may not go backwards in its stream, nor into an earlier chunk.
            let at_ns = time_ns.max(packet.last());
            self.report.late += u64::from(at_ns != time_ns);
            let appended =
                encode::append(self.schema, packet, at_ns, record).map_err(encode_error)?;
            if appended == Appended::Full {
                let discarded = self.programs.discarded(cpu);
                let sealed = packet.roll(packet.last(), discarded);
                self.report.packets += 1;
                self.courier.packet(cpu, sealed)?;
                let again =
                    encode::append(self.schema, packet, at_ns, record).map_err(encode_error)?;
                assert_eq!(again, Appended::Yes, "an empty packet is never full");
            }
            self.report.events += 1;
        }
        Ok(())
    }

    fn seal_old_packets(&mut self, now_ns: u64) -> Step {
        for cpu in 0..self.streams.len() {
            let is_old = self.streams.get(cpu).is_some_and(|packet| {
                packet.records() > 0 && now_ns.saturating_sub(packet.begin()) > MAX_PACKET_AGE_NS
            });
            if is_old {
                self.seal(cpu, now_ns)?;
            }
        }
        Ok(())
    }

    fn seal(&mut self, cpu: usize, end_ns: u64) -> Step {
        let discarded = self.programs.discarded(cpu);
        if let Some(packet) = self.streams.get_mut(cpu) {
            let sealed = packet.roll(end_ns, discarded);
            self.report.packets += 1;
            self.courier.packet(cpu, sealed)?;
        }
        Ok(())
    }

    /// Ends the chunk at `cut_ns` on all CPUs and begins the next one with a state dump.
    fn cut(&mut self, cut_ns: u64, now_ns: u64) -> Step {
        self.write_until(cut_ns)?;
        for cpu in 0..self.streams.len() {
            self.seal(cpu, cut_ns)?;
        }
        let next = self.streams.iter().map(OpenPacket::sequence_number).collect();
        self.courier.rotate(clock::unix_seconds(), next)?;
        self.report.chunks += 1;
        self.dumper.iter().for_each(Dumper::request);
        if self.names_disks {
            self.programs.dump_disks()?;
        }
        // Cuts that were missed because the output was slow are not made up for.
        let period_ns = self.schedule.rotate_ns.unwrap_or(u64::MAX).max(1);
        let missed_periods = now_ns.saturating_sub(cut_ns) / period_ns;
        self.schedule.next_cut_ns =
            cut_ns.saturating_add(period_ns.saturating_mul(missed_periods.saturating_add(1)));
        Ok(())
    }

    /// Writes what is left after the last link has gone.
    fn wind_up(&mut self) -> Step {
        let alarm = ring_alarm(&self.programs)?;
        // A program may still be on its way: look until a pause brings nothing more.
        loop {
            wait(&alarm, Duration::from_nanos(HOLD_NS))?;
            let now_ns = clock::monotonic_ns();
            let rings = &self.programs.rings;
            let read: usize = rings.iter().map(|ring| ring.read(RECORDS_PER_TURN, now_ns).0).sum();
            if read == 0 {
                break;
            }
            self.write_until(now_ns.saturating_sub(HOLD_NS).min(self.schedule.next_cut_ns))?;
        }
        self.write_until(u64::MAX)?;
        let end_ns = clock::monotonic_ns();
        (0..self.streams.len()).try_for_each(|cpu| self.seal(cpu, end_ns))
    }
}

/// Rings that announce themselves, each time they have filled enough since they last did.
fn ring_alarm(programs: &Programs<'_>) -> Result<rustix::fd::OwnedFd> {
    let step = "watch the ring buffers";
    let alarm = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::os(step))?;
    for (number, ring) in (0_u64..).zip(programs.ring_fds()) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&alarm, ring, epoll::EventData::new_u64(number), flags)
            .map_err(Error::os(step))?;
    }
    Ok(alarm)
}

/// Waits for an announcement, a signal or the end of `time`.
fn wait(alarm: &rustix::fd::OwnedFd, time: Duration) -> Result<()> {
    let mut events = Vec::with_capacity(16);
    let timeout = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    match epoll::wait(alarm, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::os("watch the ring buffers")(error)),
    }
}

fn trace_class(schema: &Schema) -> Result<TraceClass> {
    let system = rustix::system::uname();
    let text = |value: &std::ffi::CStr| EnvValue::Text(value.to_string_lossy().into_owned());
    let env = [
        ("hostname", text(system.nodename())),
        ("domain", EnvValue::Text("kernel".to_owned())),
        ("sysname", text(system.sysname())),
        ("kernel_release", text(system.release())),
        ("kernel_version", text(system.version())),
        ("tracer_name", EnvValue::Text("throughline".to_owned())),
        ("tracer_major", EnvValue::Integer(version_part(env!("CARGO_PKG_VERSION_MAJOR")))),
        ("tracer_minor", EnvValue::Integer(version_part(env!("CARGO_PKG_VERSION_MINOR")))),
        ("tracer_patchlevel", EnvValue::Integer(version_part(env!("CARGO_PKG_VERSION_PATCH")))),
    ];
    Ok(TraceClass::per_cpu(
        clock::new_uuid()?,
        clock::clock_class()?,
        env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        schema.context.clone(),
        schema.events.clone(),
    ))
}

fn version_part(part: &str) -> i128 {
    part.parse().unwrap_or(0)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
