//! Samples of programs in Python, of every CPython that is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request};
use capture::profile::{Config, Packer, PythonEnd, Report, Sample, StackFrame};
use model::Pid;
use testkit::python::{self, PRELUDE};

use crate::profile::{Running, Sampling, config, is_conserved};
use crate::support::{are_installed, can_sample, wait_for};

/// The installed ones.
fn interpreters() -> Vec<PathBuf> {
    let found = python::interpreters();
    if found.is_empty() {
        testkit::skip("there is no CPython of 3.8 or later");
    }
    found.into_iter().map(|python| python.path).collect()
}

/// A program that waits for a word.
struct Program(python::Program);

impl Program {
    fn start(python: &Path, source: &str) -> Self {
        Self(python::Program::start(python, source).unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::new(self.0.id().cast_signed())
    }

    fn go(&mut self) {
        self.0.tell("go").unwrap();
    }

    /// Samples it until there are so many.
    fn sample(self, samples: usize) -> (Report, Vec<Sample>) {
        let config = config(Some(vec![self.pid()]));
        self.sample_with(config, samples)
    }

    fn sample_with(mut self, config: Config, samples: usize) -> (Report, Vec<Sample>) {
        let sampling = Sampling::start(config);
        self.go();
        sampling.wait(samples);
        let (report, samples) = sampling.finish();
        is_conserved(&report, &samples);
        (report, samples)
    }

    /// Samples it until it wrote its log, and gives that.
    fn sample_until_log(mut self) -> (Report, Vec<Sample>, String) {
        let sampling = Sampling::start(config(Some(vec![self.pid()])));
        self.go();
        let log = self.0.folder().join("log");
        wait_for("the log of the program", || log.exists());
        let (report, samples) = sampling.finish();
        is_conserved(&report, &samples);
        (report, samples, fs::read_to_string(log).unwrap())
    }
}

/// Functions of Python, the outermost first.
fn functions(sample: &Sample) -> Vec<&str> {
    let python = sample.user.iter().rev().filter_map(|frame| match frame {
        StackFrame::Python(frame) => frame.code.function.as_deref(),
        StackFrame::Native(_) => None,
    });
    python.collect()
}

/// The stack in short, the outermost first: a function of Python, or `-` for any number of native ones.
fn outline(sample: &Sample) -> Vec<&str> {
    let mut outline: Vec<&str> = sample
        .user
        .iter()
        .rev()
        .map(|frame| match frame {
            StackFrame::Python(frame) => frame.code.function.as_deref().unwrap_or("?"),
            StackFrame::Native(_) => "-",
        })
        .collect();
    outline.dedup_by(|a, b| *a == "-" && *b == "-");
    outline
}

const CHAIN: &str = r"
def leaf():
    spin(0.02)

def recurse(n):
    if n:
        return recurse(n - 1)
    return leaf()

def key(_):
    return recurse(300)

def inner():
    return sorted([1],
        key=key)

def generate():
    yield inner()

def middle():
    return list(generate())

class Outer:
    def __init__(self):
        self.made = middle()

def outer():
    return Outer()

ready()
while True:
    outer()
";

#[test]
fn chains_of_calls_are_whole_and_in_order() {
    if !can_sample() {
        return;
    }
    for python in interpreters() {
        let (report, samples) = Program::start(&python, CHAIN).sample(500);
        let mut expected =
            vec!["<module>", "outer", "Outer.__init__", "middle", "generate", "inner", "key"];
        expected.extend(["recurse"; 301]);
        expected.extend(["leaf", "spin"]);
        // Qualified names came with 3.11.
        let has_qualified = samples.iter().any(|it| functions(it).contains(&"Outer.__init__"));
        if !has_qualified {
            expected[2] = "__init__";
        }
        let what = format!("{}: {report:?}", python.display());
        // It says that it is ready a moment before it leaves the function that does.
        let has_begun = |it: &&Sample| functions(it).get(1) != Some(&"ready");
        let samples: Vec<&Sample> = samples.iter().filter(has_begun).collect();
        let begins = |it: &&&Sample| expected.starts_with(&functions(it));
        let in_order = samples.iter().filter(begins).count();
        let wrong = samples.iter().find(|it| !begins(it)).map(|it| outline(it));
        assert!(
            in_order * 1000 >= samples.len() * 999,
            "{what}\n{in_order} of {}: {wrong:?}",
            samples.len()
        );
        let whole: Vec<_> = samples.iter().filter(|it| functions(it) == expected).collect();
        assert!(
            whole.len() * 100 >= samples.len() * 95,
            "{what}\n{}: {:?}",
            whole.len(),
            samples.last().map(|it| outline(it))
        );
        for sample in &whole {
            assert_eq!(sample.python, PythonEnd::Root);
            let outline = outline(sample);
            let called = |caller: &str, called: &str| {
                let pair = outline.windows(3).any(|it| it == [caller, "-", called]);
                assert!(pair, "{what}\n{caller} calls {called} from C: {outline:?}");
            };
            assert_eq!(outline[..2], ["-", "<module>"], "{what}");
            called("middle", "generate");
            called("inner", "key");
        }
        for (function, line) in
            [("leaf", "spin(0.02)"), ("inner", "sorted"), ("key", "recurse(300)")]
        {
            let program = format!("{PRELUDE}{CHAIN}");
            let expected = 1 + program.lines().position(|it| it.contains(line)).unwrap();
            for sample in &whole {
                let found = sample.user.iter().find_map(|frame| match frame {
                    StackFrame::Python(frame) => {
                        (frame.code.function.as_deref() == Some(function)).then_some(frame)
                    }
                    StackFrame::Native(_) => None,
                });
                let found = found.unwrap();
                // Up to 3.8 a call of several lines is at its last one.
                let is_line = found.line as usize == expected
                    || (function == "inner" && found.line as usize == expected + 1);
                assert!(is_line, "{what}\n{function} {found:?}, not {expected}");
                assert!(found.code.file.ends_with("program.py"), "{found:?}");
            }
        }
    }
}

const REUSED: &str = r"
lives, places = [], set()
ready()
for n in range(400):
    names = {'spin': spin}
    exec(f'def made_{n}():\n    spin(0.005)\n', names)
    made = names[f'made_{n}']
    places.add(id(made.__code__))
    begin = time.monotonic_ns()
    made()
    lives.append((n, begin, time.monotonic_ns()))
    del made
    names.clear()
with open('log.part', 'w') as log:
    print(len(places), file=log)
    for life in lives:
        print(*life, file=log)
os.rename('log.part', 'log')
sys.stdin.readline()
";

/// A name is that of the function that ran, however often its code object's place was another one's before.
#[test]
fn s6_names_are_those_of_the_moment() {
    if !can_sample() {
        return;
    }
    for python in interpreters() {
        let (report, samples, log) = Program::start(&python, REUSED).sample_until_log();
        let what = format!("{}: {report:?}", python.display());
        let mut lines = log.lines();
        let places: usize = lines.next().unwrap().parse().unwrap();
        let number = |word: &str| word.parse::<u64>().unwrap();
        let lives: BTreeMap<u64, (u64, u64)> = lines
            .map(|line| {
                let words: Vec<_> = line.split(' ').map(number).collect();
                (words[0], (words[1], words[2]))
            })
            .collect();
        assert!(places + 50 < lives.len(), "{what}\nno place is used again: {places}");
        let (mut right, mut wrong) = (0, 0);
        for sample in &samples {
            let functions = functions(sample);
            let made = functions.iter().find_map(|it| it.strip_prefix("made_"));
            let Some((begin, end)) = made.and_then(|made| lives.get(&made.parse().ok()?)) else {
                assert!(!functions.contains(&"spin"), "{what}\n{functions:?}");
                continue;
            };
            let is_alive = (*begin..=*end).contains(&sample.time_ns);
            right += u64::from(is_alive);
            wrong += u64::from(!is_alive);
        }
        assert!(right > 300 && wrong == 0, "{what}\n{right} right, {wrong} wrong");
    }
}

const THREADS: &str = r"
def run(number):
    exec(f'def of_thread_{number}():\n    while True: spin(0.01)', globals())
    globals()[f'of_thread_{number}']()

def wait():
    threading.Event().wait()

ready()
started = []
for number in range(80):
    thread = threading.Thread(target=wait if number % 10 else run, args=() if number % 10 else (number,), daemon=True)
    thread.start()
    if number % 10 == 0:
        started.append((thread.native_id, number))
    if number == 0:
        time.sleep(0.05)
with open('log.part', 'w') as log:
    for pair in started:
        print(*pair, file=log)
time.sleep(2)
os.rename('log.part', 'log')
sys.stdin.readline()
";

#[test]
fn each_thread_has_its_own_frames() {
    if !can_sample() {
        return;
    }
    for python in interpreters() {
        let (report, samples, log) = Program::start(&python, THREADS).sample_until_log();
        let what = format!("{}: {report:?}", python.display());
        let pair = |line: &str| {
            let (tid, number) = line.split_once(' ').unwrap();
            (tid.parse::<i32>().unwrap(), format!("of_thread_{number}"))
        };
        let threads: BTreeMap<i32, String> = log.lines().map(pair).collect();
        assert_eq!(threads.len(), 8);
        let mut seen = BTreeMap::new();
        for sample in &samples {
            for function in functions(sample).iter().filter(|it| it.starts_with("of_thread_")) {
                assert_eq!(
                    threads.get(&sample.tid.get()).map(String::as_str),
                    Some(*function),
                    "{what}"
                );
                *seen.entry(sample.tid).or_insert(0) += 1;
            }
        }
        assert!(seen.len() > 2 && seen.values().sum::<i32>() > 200, "{what}\n{seen:?}");
    }
}

/// Python has an identifier of more than 256 characters, and some of each width.
#[test]
fn names_of_all_characters_reach_the_packet() {
    if !can_sample() {
        return;
    }
    let long = "x".repeat(300);
    let names = ["naïve", "Ωmega", "𠀀name", &long];
    let calls = names.windows(2).map(|it| format!("def {}():\n    {}()\n", it[0], it[1]));
    let calls: String = calls.collect();
    let source =
        format!("{calls}def {long}():\n    spin(0.02)\nready()\nwhile True:\n    naïve()\n");
    for python in interpreters() {
        let (report, samples) = Program::start(&python, &source).sample(100);
        let mut packer = Packer::new(std::time::Duration::from_secs(60), 397);
        let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
        packets.extend(packer.finish());
        let mut weights = Weights::new();
        for packet in &packets {
            let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
            assert_eq!(request.check(), []);
            weights.add(&request);
        }
        let folded = folded(&weights);
        let cut = format!("{}…", "x".repeat(256));
        let expected = ["<module>", "naïve", "Ωmega", "𠀀name", &cut, "spin"];
        let is_whole = |line: &str| {
            let mut frames = line.split(';');
            expected.iter().all(|expected| frames.any(|it| it == *expected))
        };
        let found = folded.lines().any(is_whole);
        assert!(found, "{}: {report:?}\n{folded}", python.display());
    }
}

/// The program is told of an interpreter when it is mapped.
#[test]
fn scripts_that_live_for_a_moment_have_names_too() {
    if !can_sample() || !are_installed(&["sh"]) {
        return;
    }
    for python in interpreters().iter().take(1) {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script.py");
        fs::write(&script, format!("{PRELUDE}\ndef work():\n    spin(0.3)\nwork()\n")).unwrap();
        let command = format!("while :; do {} {}; done", python.display(), script.display());
        let shell = Running::start(Path::new("sh"), &["-c", &command]);
        let sampling = Sampling::start(config(Some(vec![shell.pid()])));
        sampling.wait(1200);
        let (report, samples) = sampling.finish();
        is_conserved(&report, &samples);
        // How many samples come before the program is told of the first one is up to its files.
        let known = samples.iter().filter(|it| it.python == PythonEnd::Root);
        let lives: BTreeSet<_> = known.map(|it| it.process_start_ns).collect();
        assert!(lives.len() >= 2, "{report:?}");
        let named = samples.iter().filter(|it| functions(it) == ["<module>", "work", "spin"]);
        assert!(named.count() > 0, "{report:?}");
    }
}

/// Who waits has given the interpreter's lock away.
#[test]
fn who_waits_has_names_too() {
    const WAITS: &str = r"
def waits():
    time.sleep(0.005)

ready()
while True:
    waits()
";
    if !can_sample() {
        return;
    }
    for python in interpreters() {
        let program = Program::start(&python, WAITS);
        let config = Config { off_cpu: true, ..config(Some(vec![program.pid()])) };
        let (report, samples) = program.sample_with(config, 200);
        let waits: Vec<_> = samples.iter().filter(|it| it.off_cpu).collect();
        let named = waits.iter().filter(|it| functions(it) == ["<module>", "waits"]).count();
        assert!(waits.len() > 50, "{}: {report:?}", python.display());
        // The first one waited for the word to begin.
        assert!(named + 3 >= waits.len(), "{named} of {}: {report:?}", waits.len());
    }
}
