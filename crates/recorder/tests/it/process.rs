//! The processes: this binary again, with the name of what it does in a variable.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use recorder::Recorder;
use tracepoint::{Options, Status, event, span, tracepoint};

const ROLE: &str = "RECORDER_TEST_ROLE";
const FOLDER: &str = "RECORDER_TEST_FOLDER";
/// A file with a word for each writer: how many records it has written.
pub(crate) const WITNESS: &str = "witness";
pub(crate) const WRITERS: u64 = 3;

/// A process that was started.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one and waits until it has said that it is ready.
    pub(crate) fn start(role: &str, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::process", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env(FOLDER, folder);
        command.env("TRACEPOINTS_SOCKET", folder.join("rings.sock"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self { child, input, output };
        process.hears();
        process
    }

    pub(crate) fn hears(&mut self) {
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended early");
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    pub(crate) fn ends(mut self) {
        self.go_on();
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test: what the tests start.
#[test]
#[ignore = "started by other tests"]
fn process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = std::env::var(FOLDER).unwrap();
    match &*role {
        "recorder" => record(Path::new(&folder)),
        "ticks" => tick(),
        "forever" => tick_forever(Path::new(&folder)),
        "spans" => spans(),
        "unfinished" => unfinished(),
        "flight" => flight(),
        "liar" => lie(),
        role => panic!("{role}"),
    }
}

fn say_ready() {
    println!("ready");
    std::io::stdout().flush().unwrap();
}

fn wait_for_input() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// What another field of a record is, so that one that is torn shows.
pub(crate) const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

fn write_tick(writer: u64, number: u64) {
    tracepoint!("tick", writer: u64 = writer, number: u64 = number, mixed: u64 = mixed(number));
}

fn record(folder: &Path) {
    let target = format!("ctf:{}", folder.join("chunks").display());
    let mut settings = crate::settings(folder, &[&target]);
    // So that it is killed at all steps of a chunk.
    settings.targets[0].chunk_every = Duration::from_millis(10);
    let recorder = Recorder::start(settings).unwrap();
    say_ready();
    wait_for_input();
    recorder.stop(Duration::from_secs(30)).unwrap();
}

/// What a ring holds, by each writer.
pub(crate) const TICKS: u64 = 2_000;

fn tick() {
    let write = |writer| (0..TICKS).for_each(|number| write_tick(writer, number));
    let writers = (0..WRITERS).map(|writer| std::thread::spawn(move || write(writer)));
    writers.collect::<Vec<_>>().into_iter().for_each(|it| it.join().unwrap());
    say_ready();
    wait_for_input();
}

fn tick_forever(folder: &Path) {
    assert!(tracepoint::start(Options { ring_len: 64 << 10, ..Options::default() }));
    let witness = OpenOptions::new().write(true).open(folder.join(WITNESS));
    let witness = Arc::new(witness.unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let witness = Arc::clone(&witness);
        std::thread::spawn(move || {
            for number in 0u64.. {
                write_tick(writer, number);
                // Later than the record: what is told here is published.
                witness.write_all_at(&(number + 1).to_ne_bytes(), writer * 8).unwrap();
                // Some keep up with their reader most of the time, some never.
                for _ in 0..writer * 20_000 {
                    std::hint::spin_loop();
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    say_ready();
    writers.into_iter().for_each(|it| it.join().unwrap());
}

/// A trace of three spans; the inner one ends on another thread.
fn spans() {
    let request = span!("request", path: str = "/a", bytes: u64 = u64::MAX);
    {
        let _entered = request.enter();
        let decode = span!("decode", frame: i32 = -7);
        let send = decode.in_scope(|| {
            event!("inside", ratio: f64 = 0.5, ok: bool = true);
            span!("send")
        });
        std::thread::spawn(move || drop(send)).join().unwrap();
        decode.set_status(Status::Error);
    }
    drop(request);
    tracepoint!("alone", note: str = "in no span");
    say_ready();
    wait_for_input();
}

fn unfinished() {
    let open = span!("open");
    let _entered = open.enter();
    event!("last");
    say_ready();
    wait_for_input();
}

/// Two threads write; then the first one's ring says that more is published than it holds.
fn lie() {
    let options = Options { ring_len: 16 << 10, rings: 4, ..Options::default() };
    assert!(tracepoint::start(options));
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let first = std::thread::spawn(move || {
        write_tick(0, 0);
        say_ready();
        assert!(wait.recv().is_err());
    });
    wait_for_input();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().map(|it| it.unwrap().path());
    let is_ours = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("memfd:"))
    };
    let path = files.into_iter().find(is_ours).unwrap();
    let memory = OpenOptions::new().write(true).open(path).unwrap();
    // The head of the first place (`docs/formats/rings.md`).
    memory.write_all_at(&(1_u64 << 40).to_ne_bytes(), 4096 + 64).unwrap();
    std::thread::spawn(|| (0..TICKS.min(100)).for_each(|number| write_tick(1, number)))
        .join()
        .unwrap();
    say_ready();
    wait_for_input();
    drop(go_on);
    first.join().unwrap();
}

fn flight() {
    let mode = tracepoint::Mode::Overwrite;
    assert!(tracepoint::start(Options { ring_len: 16 << 10, mode, ..Options::default() }));
    (0..TICKS).for_each(|number| write_tick(0, number));
    say_ready();
    wait_for_input();
    (TICKS..TICKS + 10).for_each(|number| write_tick(0, number));
    say_ready();
    wait_for_input();
}
