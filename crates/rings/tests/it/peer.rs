//! An application that was started, and its rings.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rings::{Connection, Cut, Door, Item, OfSpan, Rings, Value};
use tracepoint::layout::{DROP_PLACES, Severity, SiteKind};

/// No test waits longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct App {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl App {
    pub(crate) fn start(role: &str, socket: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "app::app", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(crate::app::ROLE, role);
        Self::run(command, socket, variables)
    }

    pub(crate) fn run(mut command: Command, socket: &Path, variables: &[(&str, &str)]) -> Self {
        command.env("TRACEPOINTS_SOCKET", socket).envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The next line that begins with `beginning`, without it.
    pub(crate) fn hears(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "no line {beginning}");
            // The harness of tests writes on the line before.
            if let Some(at) = line.find(beginning) {
                return line[at + beginning.len()..].trim().to_owned();
            }
        }
    }

    /// Lets it go on.
    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    pub(crate) fn ends(mut self) {
        self.go_on();
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn ends_by_itself(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What the applications are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    C,
    Cxx,
}

impl Language {
    pub(crate) const ALL: [Self; 3] = [Self::Rust, Self::C, Self::Cxx];

    /// Starts the application that does that; says which, for who reads why a test failed.
    pub(crate) fn start(self, role: &str, socket: &Path, variables: &[(&str, &str)]) -> App {
        println!("{role} in {self:?}");
        match self {
            Self::Rust => App::start(role, socket, variables),
            Self::C | Self::Cxx => {
                let mut command = Command::new(crate::c::built(self));
                command.arg(role);
                App::run(command, socket, variables)
            }
        }
    }
}

/// What `found` finds, which is asked again until it does.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// The next application at the door.
pub(crate) fn comes(door: &Door) -> (Connection, Rings) {
    let connection = wait_for("an application", || door.accept().unwrap());
    let file = wait_for("its file", || connection.memory_file().unwrap());
    (connection, Rings::open(file).unwrap())
}

/// A record, as it can be kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) time: u64,
    pub(crate) kind: SiteKind,
    pub(crate) severity: Severity,
    /// Module and line.
    pub(crate) place: (String, u32),
    pub(crate) span: Option<OfSpan>,
    pub(crate) fields: Vec<String>,
    pub(crate) values: Vec<KeptValue>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeptValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(Vec<u8>, u32),
    Bytes(Vec<u8>, u32),
}

/// What was read of one ring.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) thread: String,
    pub(crate) records: Vec<Kept>,
    pub(crate) dropped: [u64; DROP_PLACES],
    pub(crate) overwritten: u64,
    pub(crate) is_last: bool,
}

/// Reads a ring to its end, and releases it.
pub(crate) fn drain(rings: &Rings, ring: &mut rings::Ring, most: usize) -> Read {
    let mut read = Read { thread: ring.name.clone(), ..Read::default() };
    loop {
        let batch = rings.read(ring, most).unwrap();
        read.overwritten += batch.overwritten;
        read.is_last = batch.is_last;
        let is_empty = batch.is_empty();
        let mut items = batch.items();
        while let Some(item) = items.next_item().unwrap() {
            match item {
                Item::Record(record) => {
                    let name_of = |(field, _): (usize, _)| record.site.fields[field].0.clone();
                    read.records.push(Kept {
                        name: record.site.name.clone(),
                        time: record.time,
                        kind: record.site.kind,
                        severity: record.site.severity,
                        place: (record.site.target.clone(), record.site.line),
                        span: record.span,
                        fields: record.fields().map(name_of).collect(),
                        values: record.values().map(keep).collect(),
                    });
                }
                Item::Dropped { counts, .. } => {
                    let counts = read.dropped.iter_mut().zip(counts);
                    counts.for_each(|(sum, count)| *sum += count);
                }
            }
        }
        let cursor = items.cursor();
        rings.release(ring, cursor);
        if is_empty {
            return read;
        }
    }
}

/// All rings of an application, by their places.
pub(crate) fn drain_all(rings: &Rings) -> Vec<Read> {
    let places = 0..rings.touched();
    let rings_of = places.filter_map(|place| rings.ring(place).unwrap());
    rings_of.map(|mut ring| drain(rings, &mut ring, 1 << 20)).collect()
}

fn keep(value: Value<'_>) -> KeptValue {
    let kept = |cut: Cut<'_>| (cut.bytes.to_vec(), cut.had);
    match value {
        Value::Unsigned(value) => KeptValue::Unsigned(value),
        Value::Signed(value) => KeptValue::Signed(value),
        Value::Float(value) => KeptValue::Float(value),
        Value::Bool(value) => KeptValue::Bool(value),
        Value::Text(cut) => {
            let (bytes, had) = kept(cut);
            KeptValue::Text(bytes, had)
        }
        Value::Bytes(cut) => {
            let (bytes, had) = kept(cut);
            KeptValue::Bytes(bytes, had)
        }
    }
}

impl Kept {
    pub(crate) fn unsigned(&self, at: usize) -> u64 {
        match self.values[at] {
            KeptValue::Unsigned(value) => value,
            ref other => panic!("{other:?}"),
        }
    }

    /// Its number, of an application's `tick`; it is whole.
    pub(crate) fn tick(&self) -> u64 {
        assert_eq!(self.name, "tick");
        let number = self.unsigned(1);
        assert_eq!(self.unsigned(2), crate::app::mixed(number), "a torn record");
        number
    }
}
