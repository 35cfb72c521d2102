//! Samples of programs that make their code while they run.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request};
use capture::profile::{Packer, Sample, StackEnd};

use crate::profile::{Running, Sampling, compiled, config, is_conserved};
use crate::support::{are_installed, can_sample, wait_for};

/// Spends its time in one function, which is called by another.
const HOT: &str = "
function hotFunction(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }
function caller(n) { return hotFunction(n) + 1; }
setTimeout(() => { for (;;) caller(300000000); }, 1);
require('fs').writeFileSync(process.argv[2], '');
";

/// Makes a function and runs it until a file is there, and then another one at the same address; says so in a jitdump.
const MAKER: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* push rbp; mov rbp, rsp; mov ecx, 100000; 1: dec ecx; jnz 1b; pop rbp; ret */
static const unsigned char code[] = "\x55\x48\x89\xe5\xb9\xa0\x86\x01\x00\xff\xc9\x75\xfc\x5d\xc3";
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void made(FILE *to, void *at, const char *name) {
	uint32_t head[] = { 0, 16 + 40 + strlen(name) + 1 + sizeof(code) };
	uint64_t body[] = { now(), (uint64_t)getpid() << 32 | getpid(), (uint64_t)at, (uint64_t)at, sizeof(code), 1 };
	memcpy(at, code, sizeof(code));
	fwrite(head, 1, sizeof(head), to); fwrite(body, 1, sizeof(body), to);
	fwrite(name, 1, strlen(name) + 1, to); fwrite(code, 1, sizeof(code), to);
	fflush(to);
}
int main(int c, char **v) {
	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *to = fopen(v[1], "w+");
	uint32_t head[] = { 0x4a695444, 1, 40, 62, 0, getpid(), 0, 0, 0, 0 };
	fwrite(head, 1, sizeof(head), to);
	made(to, at, "one");
	mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(to), 0);
	while (access(v[2], F_OK)) ((void (*)(void))at)();
	made(to, at, "two");
	for (;;) ((void (*)(void))at)();
}
"#;

/// Stacks of packets, and their CPU time in nanoseconds; the packets are read from their bytes alone.
pub(crate) fn stacks(samples: &[Sample]) -> Vec<(String, usize)> {
    let mut packer = Packer::new(Duration::from_millis(200), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    let mut weights = Weights::new();
    for packet in &packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        assert!(weights.add(&request));
    }
    let lines = folded(&weights);
    let counted = lines.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), count.parse().unwrap())
    });
    counted.collect()
}

/// Of all the time, the share in percent of stacks that hold these words.
pub(crate) fn share(stacks: &[(String, usize)], words: &str) -> usize {
    let sum = |part: &str| -> usize {
        stacks.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, time)| time).sum()
    };
    sum(words) * 100 / sum("").max(1)
}

fn ends_at_the_root(samples: &[Sample]) {
    let others: Vec<&Sample> = samples.iter().filter(|it| it.end != StackEnd::Root).collect();
    assert!(others.len() * 100 <= samples.len(), "of {}: {others:?}", samples.len());
}

/// From the function through Node.js to the program's begin, also through code that is interpreted, of which V8 makes copies of its
/// interpreter's entry.
#[test]
fn functions_of_javascript_are_named_by_a_perf_map_below_whole_stacks() {
    if !can_sample() || !are_installed(&["node", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (program, begun) = (folder.path().join("hot.js"), folder.path().join("begun"));
    fs::write(&program, HOT).unwrap();
    let options = "--perf-basic-prof --interpreted-frames-native-stack";
    let inside = folder.path().display();
    let script = format!("cd {inside} && exec node {options} hot.js begun");
    let node = Running::start(Path::new("sh"), &["-c", &script]);
    wait_for("the program", || begun.exists());
    let sampling = Sampling::start(config(Some(vec![node.pid()])));
    sampling.wait(400);
    let (report, samples) = sampling.finish();
    // Names are read when samples are put into packets.
    let stacks = stacks(&samples);
    fs::remove_file(format!("/tmp/perf-{}.map", node.pid().get())).unwrap();
    is_conserved(&report, &samples);
    ends_at_the_root(&samples);
    for words in ["node;_start;", "Builtins_JSEntry;", ";caller;hotFunction"] {
        assert!(share(&stacks, words) >= 80, "{words}: {stacks:?}");
    }
}

/// Of two functions that lay at one address one after the other, each sample has the one that was there.
#[test]
fn a_jitdump_names_functions_by_the_time_at_which_they_were_made() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "maker", MAKER);
    let dump = folder.path().join("jit-1.dump");
    let second = folder.path().join("second");
    let maker = Running::start(&program, &[dump.to_str().unwrap(), second.to_str().unwrap()]);
    wait_for("the jitdump", || dump.exists());
    let sampling = Sampling::start(config(Some(vec![maker.pid()])));
    sampling.wait(200);
    fs::write(second, "").unwrap();
    sampling.wait(600);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    ends_at_the_root(&samples);
    // A packet for each sample.
    let mut packer = Packer::new(Duration::from_nanos(1), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    // The system call of the first one's loop is in neither.
    let is_first = packets.iter().filter_map(|packet| {
        let mut weights = Weights::new();
        weights.add(&Request::decode(&packet.bytes, Limits::default()).unwrap());
        let stack = folded(&weights);
        let name = ["one", "two"].into_iter().find(|it| stack.contains(&format!(";main;{it}")));
        name.map(|name| name == "one")
    });
    let is_first: Vec<bool> = is_first.collect();
    assert!(is_first.is_sorted_by(|before, behind| before >= behind), "{is_first:?}");
    let first = is_first.iter().filter(|it| **it).count();
    assert!(first > 100 && is_first.len() > first + 300, "{first} of {}", is_first.len());
}
