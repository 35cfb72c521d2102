//! Starting captures, programs that wait for a word, and reading what was captured.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capture::kernel::{self, Config, Report};
use ctf::{EventRecord, Field, Scope, Shape, Value, Visitor};
use model::TimeRange;
use tracedir::{Item, LossKind, Recording};

/// A ring that holds all that a test produces, however late the reader comes.
pub(crate) const AMPLE: u64 = 64 << 20;

/// A condition that does not come true for so long is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the kernel can be traced here; says why not.
pub(crate) fn can_trace() -> bool {
    is_possible(kernel::preflight())
}

/// Whether programs that sample can be loaded here; says why not.
pub(crate) fn can_sample() -> bool {
    is_possible(capture::preflight())
}

fn is_possible(preflight: Result<(), capture::Unavailable>) -> bool {
    preflight.map_err(|reason| testkit::skip(&reason.to_string())).is_ok()
}

/// Whether the programs are installed; says which is not.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !testkit::is_installed(program));
    if let Some(program) = missing {
        testkit::skip(&format!("{program} is not installed"));
    }
    missing.is_none()
}

/// Waits until the condition holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// A capture that runs on a thread of this process.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<capture::Result<Report>>,
}

impl Capture {
    /// Starts it and waits until it sees everything.
    pub(crate) fn start(config: Config) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let (attached, is_attached) = mpsc::channel();
        let thread =
            thread::spawn(move || kernel::run_with(&config, &seen, || attached.send(()).unwrap()));
        if is_attached.recv().is_err() {
            panic!("{:?}", thread.join().unwrap());
        }
        Self { stop, thread }
    }

    /// Ends it in order.
    pub(crate) fn finish(self) -> capture::Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(self) -> capture::Result<Report> {
        self.thread.join().unwrap()
    }
}

/// A shell that waits for a word and then becomes a program.
pub(crate) struct Waiting {
    child: Child,
}

impl Waiting {
    /// `script` runs in `sh` as the one process; it begins when [`go`](Self::go) is called. What the script
    /// holds open before can be given with `before`.
    pub(crate) fn start(folder: &Path, before: &str, script: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", &format!("{before}\nread word\n{script}")])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let waiting = Self { child };
        let syscall = format!("/proc/{}/syscall", waiting.pid());
        wait_for("the shell to read", || {
            fs::read_to_string(&syscall).is_ok_and(|state| state.starts_with("0 0x0 "))
        });
        waiting
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Lets it run to its end.
    pub(crate) fn go(mut self) -> ExitStatus {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        self.child.wait().unwrap()
    }
}

/// What a reader of a captured trace finds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) events: u64,
    /// Discarded event records that the reader can place: those between packets.
    pub(crate) discarded: u64,
    pub(crate) lost_packets: u64,
    pub(crate) by_name: BTreeMap<String, u64>,
}

/// Reads everything below `folder`; each stream must be in time order and nothing may be unreadable.
pub(crate) fn read(folder: &Path, mut each: impl FnMut(&EventRecord<'_>)) -> Found {
    read_streams(folder, |_, event| each(event))
}

/// As [`read`], with the position of each event record's stream.
pub(crate) fn read_streams(folder: &Path, mut each: impl FnMut(usize, &EventRecord<'_>)) -> Found {
    let recording = Recording::open(&[folder]).unwrap();
    assert!(recording.findings().is_empty(), "{:?}", recording.findings().kept());
    let mut found = Found::default();
    let mut reached = BTreeMap::new();
    let mut merged = recording.merged(TimeRange::ALL);
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => {
                let last = reached.insert(event.stream_index, event.timestamp);
                assert!(last.is_none_or(|last| last <= event.timestamp), "a stream goes backwards");
                found.events += 1;
                *found.by_name.entry(event.record.name().to_owned()).or_default() += 1;
                each(event.stream_index, &event.record);
            }
            Item::Loss(loss) => match loss.kind {
                LossKind::EventRecords => found.discarded += loss.count,
                LossKind::Packets => found.lost_packets += loss.count,
            },
        }
    }
    assert!(merged.findings().is_empty(), "{:?}", merged.findings().kept());
    found
}

/// A payload field that is a number.
pub(crate) fn number(event: &EventRecord<'_>, field: &str) -> i64 {
    match event.field(field) {
        Some(Value::Unsigned(number)) => number.cast_signed(),
        Some(Value::Signed(number)) => number,
        other => panic!("{} {field}: {other:?}", event.name()),
    }
}

/// A payload field that is a text.
pub(crate) fn text(event: &EventRecord<'_>, field: &str) -> String {
    match event.field(field) {
        Some(Value::Str(text)) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{} {field}: {other:?}", event.name()),
    }
}

/// The process of the event's context.
pub(crate) fn process(event: &EventRecord<'_>) -> i64 {
    struct Find(Option<i64>);
    impl<'a> Visitor<'a> for Find {
        fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
            if field.name() == "pid" {
                self.0 = value.as_i64();
            }
        }
        fn enter(&mut self, _: Field<'a>, _: Shape) {}
        fn leave(&mut self, _: Field<'a>, _: Shape) {}
    }
    let mut find = Find(None);
    event.visit(Scope::EventCommonContext, &mut find);
    find.0.unwrap()
}

/// Event records that babeltrace2 prints.
pub(crate) fn babeltrace_count(folder: &Path) -> u64 {
    let output = Command::new("babeltrace2").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64
}
