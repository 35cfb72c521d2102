//! Names are those of the moment of the sample, whatever happens to processes and files before and after it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request};
use capture::profile::{Packer, Sample, StackEnd};
use model::Pid;

use crate::profile::{Running, Sampling, compiled, config, is_conserved};
use crate::support::{are_installed, can_sample, wait_for};

/// Folded stacks of samples by number, as one packet tells them.
pub(crate) fn stacks(samples: &[&Sample]) -> BTreeMap<String, u64> {
    let mut packer = Packer::new(Duration::from_secs(3600), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    let mut weights = Weights::new();
    for packet in packets {
        weights.add(&Request::decode(&packet.bytes, Limits::default()).unwrap());
    }
    let folded = folded(&weights);
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), value.parse().unwrap())
    };
    folded.lines().map(line).collect()
}

/// The one stack of a sample.
fn stack(sample: &Sample) -> String {
    stacks(&[sample]).into_keys().next().unwrap()
}

/// Runs programs in turn under one process number: `clone3` with a number that it wants.
const SAME_PID: &str = r"
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <stdint.h>
int main(int c, char **v) {
	pid_t first = fork(), wanted;
	if (!first) _exit(0);
	waitpid(first, 0, 0);
	for (int i = 0;; i++) {
		wanted = first;
		struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1 };
		long pid = syscall(SYS_clone3, &args, sizeof args);
		if (pid < 0) continue;
		if (!pid) { execl(v[1 + i % 2], v[1 + i % 2], (char *)0); _exit(1); }
		waitpid(pid, 0, 0);
	}
}
";

/// Burns for some milliseconds below a function of this name, and ends.
fn burns(name: &str, milliseconds: u32) -> String {
    format!(
        r"
#include <time.h>
static volatile unsigned sink;
static long now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }}
__attribute__((noinline)) void {name}(void) {{ volatile char pad[72]; pad[3] = 1; for (int i = 0; i < 20000; i++) sink = sink * 31 + i + pad[3]; }}
int main(void) {{ long end = now() + {milliseconds}000000L; while (now() < end) {name}(); return 0; }}
"
    )
}

/// Whoever has a number after another one has nothing of it.
#[test]
fn s7_a_reused_pid_is_another_process() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let programs = ["alpha", "omega"].map(|it| compiled(folder.path(), it, &burns(it, 12)));
    let starter = compiled(folder.path(), "starter", SAME_PID);
    let arguments = programs.each_ref().map(|program| program.to_str().unwrap());
    let running = Running::start(&starter, &arguments);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(600);
    let (report, samples) = sampling.finish();
    drop(running);
    is_conserved(&report, &samples);
    let mut numbers: BTreeMap<Pid, BTreeMap<String, u64>> = BTreeMap::new();
    for name in ["alpha", "omega"] {
        let other = if name == "alpha" { "omega" } else { "alpha" };
        // The kernel says whose it is.
        let own: Vec<_> = samples.iter().filter(|it| it.name == name.as_bytes()).collect();
        assert!(own.len() > 100, "{name}: {} of {}", own.len(), samples.len());
        for sample in &own {
            *numbers.entry(sample.pid).or_default().entry(name.to_owned()).or_default() += 1;
        }
        let stacks = stacks(&own);
        let of_other: Vec<_> = stacks.keys().filter(|stack| stack.contains(other)).collect();
        assert!(of_other.is_empty(), "{of_other:#?}");
        let named: u64 =
            stacks.iter().filter(|it| it.0.contains(&format!(";main;{name}"))).map(|it| it.1).sum();
        let all: u64 = stacks.values().sum();
        // The rest begins and ends programs.
        assert!(named * 2 > all, "{name}: {named} of {all}: {stacks:#?}");
    }
    assert!(numbers.values().any(|names| names.len() == 2), "no number was used twice");
}

/// What a process was is known after it ended, also when the packet is made long after.
#[test]
fn s8_a_process_that_ended_at_once_has_all_its_names() {
    if !can_sample() || !are_installed(&["cc", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "brief", &burns("brief_work", 30));
    let script = format!("while :; do {}; done", program.display());
    let shell = Running::start(Path::new("sh"), &["-c", &script]);
    let sampling = Sampling::start(config(Some(vec![shell.pid()])));
    sampling.wait(400);
    let (report, samples) = sampling.finish();
    drop(shell);
    fs::remove_file(&program).unwrap();
    is_conserved(&report, &samples);
    let own: Vec<_> = samples.iter().filter(|it| it.name == b"brief").collect();
    let stacks = stacks(&own);
    // Frames of no known file.
    let unnamed: u64 = stacks.iter().filter(|it| it.0.contains("?+0x")).map(|it| it.1).sum();
    let all: u64 = stacks.values().sum();
    assert!(own.len() > 200 && unnamed * 100 <= all, "{unnamed} of {all}: {stacks:#?}");
    // The binary was never seen before; its first samples are walked from copies.
    let whole = own.iter().filter(|it| it.end == StackEnd::Root).count();
    assert!(whole * 100 >= own.len() * 95, "{whole} of {}", own.len());
}

/// Calls what it loads from each of two files in turn, and says when: both lie at the same address.
const LOADS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
int main(int c, char **v) {
	FILE *log = fopen(v[3], "w");
	for (int i = 0;; i++) {
		void *library = dlopen(v[1 + i % 2], RTLD_NOW);
		if (!library) { fprintf(log, "%s\n", dlerror()); fflush(log); return 1; }
		void (*work)(long) = dlsym(library, "work");
		Dl_info info;
		dladdr(work, &info);
		long begin = now();
		work(begin + 40000000L);
		fprintf(log, "%d %ld %ld %p\n", i % 2, begin, now(), info.dli_fbase);
		fflush(log);
		dlclose(library);
	}
}
"#;

fn library(folder: &Path, name: &str, pad: u32) -> String {
    let source = folder.join(format!("{name}.c"));
    let text = format!(
        r"
#include <time.h>
static volatile unsigned sink;
static long now(void) {{ struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }}
__attribute__((noinline)) static void {name}_inner(void) {{ volatile char pad[{pad}]; pad[3] = 1; for (int i = 0; i < 20000; i++) sink = sink * 31 + i + pad[3]; }}
void work(long end) {{ volatile char pad[{pad}]; pad[2] = 1; while (now() < end) {name}_inner(); sink += pad[2]; }}
"
    );
    fs::write(&source, text).unwrap();
    let path = folder.join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o"])
        .arg(&path)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    path.to_str().unwrap().to_owned()
}

/// Two libraries that lie at the same address in turn are told apart by time.
#[test]
fn s10_libraries_at_one_address_in_turn_have_their_own_names() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "loads", LOADS);
    let libraries = [library(folder.path(), "first", 40), library(folder.path(), "second", 400)];
    let log = folder.path().join("log");
    let log_text = log.to_str().unwrap();
    let running = Running::start(&program, &[&libraries[0], &libraries[1], log_text]);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(800);
    let (report, samples) = sampling.finish();
    drop(running);
    is_conserved(&report, &samples);
    let turns: Vec<(usize, u64, u64, String)> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words.get(at)?.parse::<u64>().ok();
            let which = usize::try_from(number(0)?).ok()?;
            Some((which, number(1)?, number(2)?, (*words.get(3)?).to_owned()))
        })
        .collect();
    let bases: std::collections::BTreeSet<_> = turns.iter().map(|it| &it.3).collect();
    assert!(bases.len() < turns.len() / 4, "{bases:?} in {} turns", turns.len());
    let (mut right, mut whole) = ([0; 2], 0);
    for sample in &samples {
        let turn = turns.iter().find(|it| (it.1..it.2).contains(&sample.time_ns));
        let Some((which, ..)) = turn else { continue };
        let stack = stack(sample);
        let names = ["first_inner", "second_inner"];
        assert!(!stack.contains(names[1 - which]), "{stack}");
        right[*which] += usize::from(stack.contains(names[*which]));
        whole += usize::from(sample.end == StackEnd::Root);
    }
    let sum: usize = right.iter().sum();
    let in_turns =
        samples.iter().filter(|it| turns.iter().any(|turn| (turn.1..turn.2).contains(&it.time_ns)));
    let in_turns = in_turns.count();
    assert!(sum * 10 >= in_turns * 9, "{right:?} of {in_turns}");
    assert!(right.iter().all(|it| *it > 100), "{right:?} of {}", samples.len());
    // Until the program is told of a library its stacks end there.
    assert!(whole * 4 >= sum, "{whole} of {sum}");
}

/// A file that takes the place of another one, by its name or byte for byte, gives no names to what runs of the one before.
#[test]
fn s9_names_are_those_of_the_file_that_is_mapped() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "served", &burns("of_before", 600_000));
    let other = compiled(folder.path(), "other", &burns("of_later", 600_000));
    let running = Running::start(&program, &[]);
    fs::rename(&other, &program).unwrap();
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(100);
    let (_, samples) = sampling.finish();
    let found = stacks(&samples.iter().collect::<Vec<_>>());
    assert!(found.keys().all(|stack| !stack.contains("of_later")), "{found:#?}");
    let named: u64 =
        found.iter().filter(|it| it.0.contains(";main;of_before")).map(|it| it.1).sum();
    assert!(named * 10 > found.values().sum::<u64>() * 8, "{found:#?}");
}

/// A library is written over with another one's bytes while a process has it.
#[test]
fn s9_a_file_that_was_written_over_gives_no_names() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "loads", LOADS);
    // The same code, so that the process lives on when it is exchanged under it, with other names.
    let before = library(folder.path(), "before", 40);
    let later = library(folder.path(), "beyond", 40);
    let log = folder.path().join("log");
    let arguments = [before.as_str(), before.as_str(), log.to_str().unwrap()];
    let mut running = Command::new(&program).args(arguments).stdout(Stdio::null()).spawn().unwrap();
    let has_begun = || fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    wait_for("the first turn", has_begun);
    let pid = Pid::new(running.id().cast_signed());
    let sampling = Sampling::start(config(Some(vec![pid])));
    sampling.wait(50);
    // Without ever being shorter.
    let file = fs::File::options().write(true).open(&before).unwrap();
    file.write_all_at(&fs::read(&later).unwrap(), 0).unwrap();
    let written_ns = now_ns();
    sampling.wait(150);
    let (_, samples) = sampling.finish();
    drop(running.kill());
    drop(running.wait());
    // What is mapped again after that is the later one; what was mapped before is not.
    let before: Vec<_> = samples.iter().filter(|it| it.time_ns < written_ns).collect();
    assert!(before.len() >= 20, "{}", before.len());
    let found = stacks(&before);
    assert!(found.keys().all(|stack| !stack.contains("beyond_inner")), "{found:#?}");
}

/// `CLOCK_MONOTONIC`, nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}
