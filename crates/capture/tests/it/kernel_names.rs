//! Names of the kernel's own code in samples: also of such that comes and goes meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request};
use capture::profile::{KernelFrame, Packer, Sample};
use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use model::Pid;
use rustix::time::{ClockId, clock_gettime};

use crate::profile::{Sampling, config};
use crate::support::{are_installed, can_sample};

/// An eBPF program that takes some milliseconds when it is run.
const BURNING: &str = r#"
enum { SPINS = 1 << 20 };
static long (*bpf_loop)(unsigned nr, void *callback, void *context, unsigned long long flags) = (void *)181;
char LICENSE[] __attribute__((section("license"))) = "GPL";
static long spin_NAME(unsigned number, unsigned long long *sum) { *sum = *sum * 31 + number; return 0; }
__attribute__((section("syscall"))) int burn_NAME(void *context)
{
	unsigned long long sum = 0;
	bpf_loop(SPINS, spin_NAME, &sum, 0);
	return sum & 1;
}
"#;

fn compiled(folder: &Path, name: &str) {
    let (text, object) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.o")));
    fs::write(&text, BURNING.replace("NAME", name)).unwrap();
    let mut compiler = Command::new("clang");
    compiler.args(["-target", "bpf", "-O2", "-g", "-c", "-o"]);
    assert!(compiler.arg(&object).arg(&text).status().unwrap().success());
}

fn load(object: &Path) -> Object {
    ObjectBuilder::default().open_file(object).unwrap().load().unwrap()
}

/// Runs it, and says from when to when: `CLOCK_MONOTONIC`, nanoseconds.
fn run(object: &Object) -> (u64, u64) {
    let begin_ns = now_ns();
    for _ in 0..4 {
        object.progs_mut().next().unwrap().test_run(ProgramInput::default()).unwrap();
    }
    (begin_ns, now_ns())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

fn name(frame: &KernelFrame) -> &str {
    frame.function.as_ref().map_or("", |function| &function.name)
}

/// Where [`runs_programs_in_turn`] finds the programs: one that is loaded already when it is asked for them, and others.
const FOLDER: &str = "THROUGHLINE_TEST_PROGRAMS";

#[test]
#[ignore = "what another test samples"]
fn runs_programs_in_turn() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let object = |name: &str| folder.join(format!("{name}.o"));
    let before = load(&object("before"));
    let told = |name: &str, (begin_ns, end_ns)| println!("run {name} {begin_ns} {end_ns}");
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    told("before", run(&before));
    drop(before);
    for _ in 0..30 {
        for name in ["first", "second"] {
            told(name, run(&load(&object(name))));
        }
    }
}

/// When each program ran, as the test above tells.
fn run_of(line: &str) -> Option<(String, Range<u64>)> {
    let mut words = line.strip_prefix("run ")?.split(' ');
    let name = words.next()?.to_owned();
    let mut time = || words.next()?.parse::<u64>().ok();
    Some((name, time()?..time()?))
}

/// Programs that are loaded and unloaded in turn while a process is sampled have the names that they had at that moment, wherever
/// the kernel put them.
#[test]
fn s5_programs_loaded_meanwhile_are_named_by_time() {
    if !can_sample() || !are_installed(&["clang"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["before", "first", "second"] {
        compiled(folder.path(), name);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernel_names::runs_programs_in_turn", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")));
    let sampling = Sampling::start(config(Some(vec![Pid::new(child.id().cast_signed())])));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let runs: Vec<_> = lines.filter_map(|line| run_of(&line)).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(runs.len(), 61);
    let (report, samples) = sampling.finish();
    assert_eq!((report.kernel_functions_left_out, report.changes_lost), (0, 0));
    let mut places = Vec::new();
    for (expected, during) in &runs {
        let during: Vec<_> = samples.iter().filter(|it| during.contains(&it.time_ns)).collect();
        let (loops, entry) = (format!("_spin_{expected}"), format!("_burn_{expected}"));
        let has =
            |it: &&&Sample, end: &str| it.kernel.iter().any(|frame| name(frame).ends_with(end));
        let named: Vec<_> = during.iter().filter(|it| has(it, &loops) || has(it, &entry)).collect();
        assert!(!named.is_empty(), "{expected}: none of {}", during.len());
        let of_programs =
            during.iter().flat_map(|it| &it.kernel).filter_map(|it| it.function.as_ref().ok());
        for function in of_programs.filter(|it| it.module.as_deref() == Some("bpf")) {
            if function.name.contains("_spin_") || function.name.contains("_burn_") {
                assert!(function.name.ends_with(expected.as_str()), "{expected}: {function:?}");
                places.push((function.begin..function.end, expected));
            }
        }
        let unnamed =
            during.iter().flat_map(|it| &it.kernel).filter(|it| it.function.is_err()).count();
        assert_eq!(unnamed, 0, "{expected}");
    }
    let overlap = |(one, of_one): &(Range<u64>, &String),
                   (other, of_other): &(Range<u64>, &String)| {
        of_one != of_other && one.start < other.end && other.start < one.end
    };
    let is_shared = places.iter().any(|one| places.iter().any(|other| overlap(one, other)));
    assert!(is_shared, "no program took another's place: nothing was shown of that");

    let mut packer = Packer::new(Duration::from_millis(100), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    let mut weights = Weights::new();
    for packet in &packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        weights.add(&request);
    }
    let folded = folded(&weights);
    for name in ["_burn_before", "_burn_first", "_burn_second"] {
        assert!(folded.contains(name), "{name}: {folded}");
    }
}
