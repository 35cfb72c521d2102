//! A session of a kernel tracer in as many sealed chunks as a test wants.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::writer::{
    Appended, EventClass, Field, FieldClass, IntClass, OpenPacket, Record, Schema, TraceClass,
    WriteError,
};
use ctf::{ClockClass, ClockOrigin, EnvValue, Uuid};
use tracedir::manifest::{Contents, MANIFEST, MANIFEST_FORMAT, Manifest, Origin, SealedBy};

/// CPUs, each a stream.
const CPUS: u32 = 2;
/// Threads that run on them, from this number on.
const FIRST_TID: u64 = 100;
const THREADS: u64 = 12;
/// 2026-11-20T16:00:00Z.
const BEGIN_S: u64 = 1_795_190_400;
const SECOND: u64 = 1_000_000_000;
/// Room for the longest packet.
const PACKET_BYTES: usize = 64 << 10;

/// What is to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Chunked {
    /// Chunks, a second each; at most 3,600.
    pub chunks: u64,
    /// Event records of each CPU in each chunk.
    pub events: u64,
    /// Decides which.
    pub seed: u64,
}

struct Cpu<'s> {
    number: u32,
    dice: u64,
    thread: u64,
    in_call: Vec<bool>,
    packet: OpenPacket<'s>,
    discarded: u64,
    /// Whether records say which thread they are of.
    says: bool,
}

impl Chunked {
    /// Writes the session below `root` as a relay does, `host/session-…/archives/CHUNK/kernel`, each chunk with its manifest.
    /// Calls and waits reach over chunks, each CPU ends a chunk at a time of its own, and records do not say which thread
    /// they are of: only the first chunk knows the processes. Gives the chunks' folders.
    ///
    /// # Panics
    /// When the disk refuses.
    #[must_use]
    pub fn write(&self, root: &Path) -> Vec<PathBuf> {
        self.record(root, false)
    }

    /// The same, but for records that say which thread and process they are of, as LTTng's do with the contexts `tid` and `pid`.
    ///
    /// # Panics
    /// When the disk refuses.
    #[must_use]
    pub fn write_with_threads(&self, root: &Path) -> Vec<PathBuf> {
        self.record(root, true)
    }

    fn record(&self, root: &Path, says: bool) -> Vec<PathBuf> {
        let schema = schema(says);
        let mut cpus: Vec<Cpu<'_>> = (0..CPUS).map(|cpu| self.cpu(&schema, cpu, says)).collect();
        (0..self.chunks).map(|chunk| self.chunk(root, &schema, &mut cpus, chunk)).collect()
    }

    fn cpu<'s>(&self, schema: &'s Schema, number: u32, says: bool) -> Cpu<'s> {
        let packet = schema.open_cpu(number, BEGIN_S * SECOND, PACKET_BYTES);
        Cpu {
            number,
            dice: self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(number) + 1),
            thread: FIRST_TID + u64::from(number),
            in_call: vec![false; 1 + usize::try_from(FIRST_TID + THREADS).unwrap_or(0)],
            packet: packet.expect("a packet of a CPU"),
            discarded: 0,
            says,
        }
    }

    fn chunk(&self, root: &Path, schema: &Schema, cpus: &mut [Cpu<'_>], chunk: u64) -> PathBuf {
        let time = |s: u64| format!("20261120T16{:02}{:02}+0000", s / 60, s % 60);
        let inner = format!(
            "host/session-20261120-160000/archives/{}-{}-{chunk}",
            time(chunk),
            time(chunk + 1)
        );
        let folder = root.join(&inner);
        fs::create_dir_all(folder.join("kernel")).expect("a folder");
        fs::write(folder.join("kernel/metadata"), schema.metadata()).expect("metadata");
        for cpu in cpus {
            let bytes = self.stream(cpu, chunk);
            fs::write(folder.join(format!("kernel/ch_{}", cpu.number)), bytes).expect("a stream");
        }
        let origin = Origin {
            host: "host".to_owned(),
            session: "session".to_owned(),
            chunk,
            folder: inner,
            begin_s: Some(BEGIN_S + chunk),
            end_s: Some(BEGIN_S + chunk + 1),
            sealed_by: SealedBy::Closed,
        };
        let contents = Contents::of(&folder, None).expect("what was written");
        let format = MANIFEST_FORMAT.to_owned();
        let manifest = Manifest { format, origin, contents, losses: Vec::new() };
        fs::write(folder.join(MANIFEST), manifest.to_json()).expect("a manifest");
        folder
    }

    /// The packets of a CPU in a chunk: one for each hundred records.
    fn stream(&self, cpu: &mut Cpu<'_>, chunk: u64) -> Vec<u8> {
        let begin = (BEGIN_S + chunk) * SECOND;
        // The chunk's end of this CPU.
        let late = u64::from(cpu.number) * SECOND / 40;
        let mut bytes = Vec::new();
        let mut now = begin + late;
        if chunk == 0 && cpu.number == 0 {
            for tid in FIRST_TID..FIRST_TID + THREADS {
                cpu.dump(now, tid);
            }
        }
        for n in 0..self.events {
            now = begin + late + SECOND / (self.events + 1) * (n + 1);
            if n % 100 == 99 {
                cpu.lose_some();
                bytes.extend(cpu.packet.roll(now, cpu.discarded).bytes);
            }
            cpu.event(now);
        }
        bytes.extend(cpu.packet.roll(now, cpu.discarded).bytes);
        bytes
    }
}

fn schema(says: bool) -> Schema {
    let int = |name: &str| Field::new(name, FieldClass::Int(IntClass::I64));
    let text = |name: &str| Field::new(name, FieldClass::STRING);
    let events = vec![
        EventClass::new(
            0,
            "sched_switch",
            vec![
                text("prev_comm"),
                int("prev_tid"),
                int("prev_state"),
                text("next_comm"),
                int("next_tid"),
            ],
        ),
        EventClass::new(1, "sched_wakeup", vec![text("comm"), int("tid")]),
        EventClass::new(2, "syscall_entry_read", vec![int("fd"), int("count")]),
        EventClass::new(3, "syscall_exit_read", vec![int("ret")]),
        EventClass::new(
            4,
            "lttng_statedump_process_state",
            vec![int("tid"), int("pid"), text("name")],
        ),
    ];
    let context = if says { vec![int("tid"), int("pid")] } else { vec![] };
    let clock = ClockClass {
        uuid: Some(Uuid([9; 16])),
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    };
    let text = |text: &str| EnvValue::Text(text.to_owned());
    let env = vec![
        ("hostname".to_owned(), text("host")),
        ("domain".to_owned(), text("kernel")),
        ("tracer_name".to_owned(), text("lttng-modules")),
    ];
    let class = TraceClass::per_cpu(Uuid([6; 16]), clock, env, context, events);
    Schema::new(class).expect("a schema")
}

/// The process of a thread: three neighbours have one.
const fn process(tid: u64) -> u64 {
    tid - tid % 3
}

/// A record's context.
fn say(record: &mut Record<'_>, tid: u64) -> Result<(), WriteError> {
    record.signed(tid.cast_signed())?;
    record.signed(process(tid).cast_signed())
}

impl Cpu<'_> {
    fn roll(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % below
    }

    /// Now and then the tracer has no room.
    fn lose_some(&mut self) {
        if self.roll(40) == 0 {
            self.discarded += 1 + self.roll(5);
        }
    }

    fn dump(&mut self, now: u64, tid: u64) {
        self.append(4, now, &[tid, process(tid)], Some("worker"));
    }

    fn event(&mut self, now: u64) {
        let thread = self.thread;
        let at = usize::try_from(thread).unwrap_or(0);
        match self.roll(4) {
            0 | 1 => {
                let is_in = self.in_call.get(at).copied().unwrap_or(false);
                match is_in {
                    false => {
                        let fd = self.roll(5);
                        self.append(2, now, &[fd, 4096], None);
                    }
                    true => {
                        let ret = self.roll(4096);
                        self.append(3, now, &[ret], None);
                    }
                }
                if let Some(call) = self.in_call.get_mut(at) {
                    *call = !is_in;
                }
            }
            2 => {
                let tid = FIRST_TID + self.roll(THREADS);
                self.append(1, now, &[tid], Some("worker"));
            }
            _ => {
                // Each CPU has threads of its own.
                let cpus = u64::from(CPUS);
                let next = FIRST_TID + self.roll(THREADS / cpus) * cpus + u64::from(self.number);
                let state = self.roll(3);
                let says = self.says;
                let appended = self.packet.append(0, now, |record| {
                    if says {
                        say(record, thread)?;
                    }
                    record.string(b"worker")?;
                    record.signed(thread.cast_signed())?;
                    record.signed(state.cast_signed())?;
                    record.string(b"worker")?;
                    record.signed(next.cast_signed())
                });
                assert_eq!(appended, Ok(Appended::Yes));
                self.thread = next;
            }
        }
    }

    fn append(&mut self, class: u64, now: u64, numbers: &[u64], text: Option<&str>) {
        let text_first = class == 1;
        let (says, thread) = (self.says, self.thread);
        let appended = self.packet.append(class, now, |record| {
            if says {
                say(record, thread)?;
            }
            if let Some(text) = text.filter(|_| text_first) {
                record.string(text.as_bytes())?;
            }
            for number in numbers {
                record.signed(number.cast_signed())?;
            }
            if let Some(text) = text.filter(|_| !text_first) {
                record.string(text.as_bytes())?;
            }
            Ok(())
        });
        assert_eq!(appended, Ok(Appended::Yes));
    }
}
