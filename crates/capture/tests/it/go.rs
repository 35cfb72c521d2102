//! Samples of programs of Go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use capture::profile::StackEnd;

use crate::jit::{share, stacks};
use crate::profile::{Running, Sampling, config, is_conserved};
use crate::support::{are_installed, can_sample};

/// Computes in a function that was inlined, asks for the time, or makes garbage.
const PROGRAM: &str = "package main

import (
	\"os\"
	\"time\"
)

var sink int64

func small(x int64, i int64) int64 { return x*31 + i }

//go:noinline
func hot() {
	for i := int64(0); i < 1000000; i++ {
		sink = small(sink, i)
	}
}

//go:noinline
func clock() {
	for i := 0; i < 10000; i++ {
		sink += time.Now().UnixNano()
	}
}

//go:noinline
func garbage() {
	var all [][]byte
	for i := 0; i < 1000; i++ {
		all = append(all, make([]byte, 4096))
	}
	sink += int64(len(all))
}

func main() {
	for {
		switch os.Args[1] {
		case \"hot\":
			hot()
		case \"clock\":
			clock()
		default:
			garbage()
		}
	}
}
";

/// Calls C, which computes, or calls Go back, which does.
const WITH_C: &str = "package main

/*
static unsigned spin(unsigned n) { volatile unsigned s = 1; for (unsigned i = 0; i < n; i++) s = s * 31 + i; return s; }
extern unsigned goBack(unsigned);
static __attribute__((noinline)) unsigned call_back(unsigned n) { return goBack(n) + 1; }
*/
import \"C\"
import \"os\"

var sink int

//export goBack
func goBack(n C.uint) C.uint { return C.uint(compute(int(n))) }

//go:noinline
func compute(n int) int {
	for i := 0; i < n; i++ {
		sink = sink*31 + i
	}
	return sink
}

//go:noinline
func intoC() { C.spin(100000) }

//go:noinline
func throughC() { C.call_back(1000000) }

func main() {
	for {
		if os.Args[1] == \"into\" {
			intoC()
		} else {
			throughC()
		}
	}
}
";

/// Compiled, without debug information and symbols; `None` where Go is not installed.
fn compiled(folder: &Path, source: &str) -> Option<PathBuf> {
    if !can_sample() || !are_installed(&["go", "cc"]) {
        return None;
    }
    fs::write(folder.join("main.go"), source).unwrap();
    fs::write(folder.join("go.mod"), "module example\n\ngo 1.18\n").unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-ldflags=-s -w", "-o", "program", "."]).current_dir(folder);
    assert!(go.env("GOTOOLCHAIN", "local").status().unwrap().success());
    Some(folder.join("program"))
}

/// Much of the time is in stacks with these words, and nearly all stacks reach the root. The collector of garbage takes the rest.
fn check(program: &Path, argument: &str, words: &str) {
    let running = Running::start(program, &[argument]);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(500);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    let whole = samples.iter().filter(|it| it.end == StackEnd::Root).count();
    // A goroutine that makes room for another one is left without a frame pointer.
    assert!(whole * 100 >= samples.len() * 95, "{argument}: {whole} of {}", samples.len());
    let stacks = stacks(&samples);
    assert!(share(&stacks, words) >= 20, "{argument}: {words} in {stacks:?}");
}

#[test]
fn stacks_of_a_stripped_program_of_go_are_whole_and_have_all_names() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), PROGRAM) else { return };
    let main = "program;runtime.goexit;runtime.main;main.main;";
    check(&program, "hot", &format!("{main}main.hot"));
    check(&program, "hot", "main.hot;main.small_[i]");
    // The kernel's code for it runs on the stack of the thread.
    check(&program, "clock", &format!("{main}main.clock;time.Now"));
    check(&program, "garbage", "runtime.mallocgc");
}

#[test]
fn stacks_lead_from_c_to_the_go_that_called_it_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), WITH_C) else { return };
    let main = "program;runtime.goexit;runtime.main;main.main;";
    check(&program, "into", &format!("{main}main.intoC;"));
    check(&program, "into", "runtime.asmcgocall;");
    check(&program, "through", &format!("{main}main.throughC;"));
    check(&program, "through", "crosscall2;runtime.cgocallback;");
    check(&program, "through", "main.goBack_[i];main.compute");
}
