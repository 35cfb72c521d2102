//! Programs as they are in the world: what they spend their time in has its share, by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use capture::profile::{Sample, StackEnd};
use model::Pid;

use crate::profile::{Running, Sampling, compiled, config, is_conserved};
use crate::stateless::stacks;
use crate::support::{are_installed, can_sample};

/// Three quarters of its time in `hot`, the rest in `warm`.
const BUSY: &str = r#"
static volatile unsigned sink;
__attribute__((noinline)) void hot(void) { for (unsigned i = 0; i < 300000; i++) sink = sink * 31 + i; __asm__ volatile(""); }
__attribute__((noinline)) void warm(void) { for (unsigned i = 0; i < 100000; i++) sink = sink * 31 + i; __asm__ volatile(""); }
int main(void) { for (;;) { hot(); warm(); } }
"#;

/// The same, and what it does ends by exceptions that go through several frames; `warm` is a template that is put into its caller.
const EXCEPTIONS: &str = r#"
#include <stdexcept>
#include <string>
static volatile unsigned sink;
struct Held { std::string text; ~Held() { sink = sink + text.size(); } };
__attribute__((noinline)) void hot(unsigned n) { Held held{std::string(40, 'x')}; for (unsigned i = 0; i < n; i++) sink = sink * 31 + i; throw std::runtime_error(held.text); }
template <unsigned N> static inline unsigned warm() { for (unsigned i = 0; i < N; i++) sink = sink * 31 + i; return sink; }
__attribute__((noinline)) void between(unsigned n) { Held held{std::string(50, 'y')}; hot(n); sink = held.text.size(); }
__attribute__((noinline)) void caught() { try { between(300000); } catch (const std::exception &e) { sink = sink + e.what()[0]; } }
__attribute__((noinline)) void outer() { sink = warm<100000>(); __asm__ volatile(""); }
int main() { for (;;) { caught(); outer(); } }
"#;

const RUST: &str = r"
use std::hint::black_box;
mod inner {
    #[inline(never)]
    pub fn hot(seed: u64) -> u64 { (0..300_000).fold(seed, |sum, i| std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i))) }
    pub struct Worker;
    impl Worker {
        #[inline(never)]
        pub fn warm(&self, seed: u64) -> u64 { (0..100_000).fold(seed, |sum, i| std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i))) }
    }
}
fn main() { let worker = inner::Worker; let mut seed = 1; loop { seed = worker.warm(inner::hot(black_box(seed))); } }
";

pub(crate) fn built(compiler: &mut Command, folder: &Path, source: (&str, &str)) -> PathBuf {
    let (name, text) = source;
    let from = folder.join(name);
    fs::write(&from, text).unwrap();
    let program = from.with_extension("");
    assert!(compiler.arg("-o").arg(&program).arg(&from).status().unwrap().success());
    program
}

/// Samples of a program that spends three quarters of its time below one of these names and the rest below the other.
fn has_shares(pid: Pid, hot: &str, warm: &str) {
    let sampling = Sampling::start(config(Some(vec![pid])));
    sampling.wait(300);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    let own: Vec<&Sample> = samples.iter().filter(|it| it.pid == pid).collect();
    let whole = own.iter().filter(|it| it.end == StackEnd::Root).count();
    assert!(whole * 100 >= own.len() * 99, "{whole} of {}", own.len());
    let found = stacks(&own);
    let all: u64 = found.values().sum();
    let below = |name: &str| {
        let frames = |stack: &str| stack.split(';').any(|frame| frame == name);
        found.iter().filter(|it| frames(it.0)).map(|it| it.1).sum::<u64>() * 100 / all
    };
    let (hot, warm) = (below(hot), below(warm));
    assert!((60..=88).contains(&hot) && (12..=40).contains(&warm), "{hot} {warm}: {found:#?}");
    assert!(hot + warm >= 97, "{hot} {warm}: {found:#?}");
}

#[test]
fn a_program_of_cpp_with_exceptions_and_inlining() {
    if !can_sample() || !are_installed(&["c++"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-g", "-fomit-frame-pointer"]);
    let program = built(&mut compiler, folder.path(), ("thrower.cpp", EXCEPTIONS));
    let running = Running::start(&program, &[]);
    has_shares(running.pid(), "caught", "outer");
}

#[test]
fn a_program_of_rust() {
    if !can_sample() || !are_installed(&["rustc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("rustc");
    compiler.args(["-O", "-C", "force-frame-pointers=no"]);
    let program = built(&mut compiler, folder.path(), ("worker.rs", RUST));
    let running = Running::start(&program, &[]);
    has_shares(running.pid(), "worker::inner::hot", "worker::inner::Worker::warm");
}

#[test]
fn a_static_program() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    // The C library that static programs are mostly linked with, where it is there.
    for compiler in ["cc", "musl-gcc"] {
        if !are_installed(&[compiler]) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut compiler = Command::new(compiler);
        compiler.args(["-O2", "-static", "-fomit-frame-pointer"]);
        let program = built(&mut compiler, folder.path(), ("busy.c", BUSY));
        let running = Running::start(&program, &[]);
        has_shares(running.pid(), "hot", "warm");
    }
}

/// As in a container: the program's file is where nobody outside sees it.
#[test]
fn a_program_in_a_mount_namespace() {
    if !can_sample() || !are_installed(&["cc", "sh", "unshare"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "busy", BUSY);
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/hidden && exec {0}/hidden",
        inside.display(),
        program.display()
    );
    let running = Running::start(Path::new("unshare"), &["--mount", "sh", "-c", &script]);
    let exe = format!("/proc/{}/exe", running.pid().get());
    let is_there =
        || fs::read_link(&exe).is_ok_and(|path| path.to_string_lossy().ends_with("/hidden"));
    crate::support::wait_for("the program in its namespace", is_there);
    assert!(!inside.join("hidden").exists());
    has_shares(running.pid(), "hot", "warm");
}

#[test]
fn a_program_whose_file_is_deleted() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "busy", BUSY);
    let running = Running::start(&program, &[]);
    let exe = format!("/proc/{}/exe", running.pid().get());
    let is_there = || fs::read_link(&exe).is_ok_and(|path| path == program);
    crate::support::wait_for("the program", is_there);
    fs::remove_file(&program).unwrap();
    has_shares(running.pid(), "hot", "warm");
}

/// Frames of hundreds of kilobytes, as compilers have.
const LARGE_FRAMES: &str = r#"
static volatile unsigned sink;
__attribute__((noinline)) void hot(void) { for (unsigned i = 0; i < 300000; i++) sink = sink * 31 + i; __asm__ volatile(""); }
__attribute__((noinline)) void warm(void) { volatile char pad[300 << 10]; pad[5] = 1; for (unsigned i = 0; i < 100000; i++) sink = sink * 31 + i + pad[5]; }
__attribute__((noinline)) void large(void) { volatile char pad[530 << 10]; pad[7] = 1; for (int i = 0; i < 10; i++) { hot(); warm(); } sink += pad[7]; }
int main(void) { for (;;) large(); }
"#;

#[test]
fn a_program_with_large_frames() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "large", LARGE_FRAMES);
    let running = Running::start(&program, &[]);
    has_shares(running.pid(), "hot", "warm");
}
