//! Programs whose C library says nothing of how to unwind it: those of Alpine Linux, and static ones.

use std::collections::BTreeMap;
use std::process::Command;

use capture::profile::{Sample, StackEnd};

use crate::profile::{Running, Sampling, config, is_conserved};
use crate::programs::built;
use crate::stateless::stacks;
use crate::support::{are_installed, can_trace};

/// Is in the library most of the time: below the system call, in what calls back, in formatting; in `main`, a thread and a signal's handler.
const LIBRARY: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static volatile unsigned sink;
static int numbers[2000];
static int zero;
__attribute__((noinline)) static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static void sorts(void) { for (int i = 0; i < 2000; i++) numbers[i] = rand(); qsort(numbers, 2000, sizeof(int), compare); }
__attribute__((noinline)) static void formats(void) { char text[200]; for (int i = 0; i < 300; i++) sink += snprintf(text, sizeof text, "%d %s %f", i, "text", i * 0.1); }
__attribute__((noinline)) static void reads(void) { char bytes[512]; for (int i = 0; i < 200; i++) sink += read(zero, bytes, sizeof bytes); }
__attribute__((noinline)) static void copies(void) { static char a[4096], b[4096]; for (int i = 0; i < 500; i++) { memcpy(a, b, sizeof a); sink += strlen(a) + a[i]; } }
__attribute__((noinline)) static void allocates(void) { void *all[100]; for (int i = 0; i < 100; i++) all[i] = malloc(i * 20 + 1); for (int i = 0; i < 100; i++) free(all[i]); }
static void handles(int number) { for (int i = 0; i < 20; i++) formats(); sink += number; }
static void *of_thread(void *nothing) { for (;;) { formats(); reads(); } return nothing; }
int main(void) {
	pthread_t thread;
	zero = open("/dev/zero", O_RDONLY);
	signal(SIGALRM, handles);
	struct itimerval often = { { 0, 30000 }, { 0, 30000 } };
	setitimer(ITIMER_REAL, &often, 0);
	pthread_create(&thread, 0, of_thread, 0);
	for (;;) { sorts(); formats(); reads(); copies(); allocates(); }
}
"#;

fn reaches_the_root(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("musl-gcc");
    // A function that ends with a call would be on no stack during it.
    compiler.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]);
    compiler.args(arguments);
    let program = built(&mut compiler, folder.path(), ("library.c", LIBRARY));
    let running = Running::start(&program, &[]);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(1_500);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    let own: Vec<&Sample> = samples.iter().filter(|it| it.pid == running.pid()).collect();
    let rest: Vec<&Sample> = own.iter().copied().filter(|it| it.end != StackEnd::Root).collect();
    let said = || stacks(&rest);
    assert!(rest.len() * 1000 <= own.len() * 5, "{} of {}: {:#?}", rest.len(), own.len(), said());
    let mut below: BTreeMap<&str, u64> = BTreeMap::new();
    let stacks = stacks(&own);
    for function in
        ["sorts", "formats", "reads", "copies", "allocates", "handles", "of_thread", "compare"]
    {
        let found = stacks.iter().filter(|it| it.0.split(';').any(|name| name == function));
        below.insert(function, found.map(|it| it.1).sum());
    }
    let all: u64 = stacks.values().sum();
    assert!(below.values().all(|samples| *samples > 0), "{below:?} of {all}");
    // Everything is called by one of these.
    let known: u64 = stacks
        .iter()
        .filter(|it| it.0.split(';').any(|name| ["main", "of_thread"].contains(&name)))
        .map(|it| it.1)
        .sum();
    assert!(known * 1000 >= all * 995, "{known} of {all}: {stacks:#?}");
}

#[test]
fn a_program_with_musl_reaches_the_root_from_inside_of_the_library() {
    if can_trace() && are_installed(&["musl-gcc"]) {
        reaches_the_root(&[]);
    }
}

#[test]
fn so_does_a_static_one() {
    if can_trace() && are_installed(&["musl-gcc"]) {
        reaches_the_root(&["-static"]);
    }
}
