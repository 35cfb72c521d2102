//! Samples of real programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request};
use capture::profile::{
    self, Budget, Config, Means, Packer, Report, Sample, Seen, StackEnd, StackFrame, UserFrame,
};
use model::Pid;

use crate::support::{are_installed, can_sample, wait_for};

/// Spends its time below so many calls, in a program without frame pointers.
pub(crate) const DEEP: &str = r"
#include <stdlib.h>
static volatile unsigned sink;
__attribute__((noinline)) static unsigned leaf(unsigned n) { unsigned s = n; for (int i = 0; i < 20000; i++) s = s * 31 + i; return s; }
__attribute__((noinline)) unsigned odd(unsigned n);
__attribute__((noinline)) unsigned even(unsigned n) { volatile char pad[40]; pad[n % 40] = 1; unsigned r = n ? odd(n - 1) : leaf(n); return r + pad[0]; }
__attribute__((noinline)) unsigned odd(unsigned n) { volatile char pad[104]; pad[n % 104] = 1; unsigned r = n ? even(n - 1) : leaf(n); return r + pad[0]; }
int main(int c, char **v) { unsigned depth = atoi(v[1]); for (;;) sink += even(depth); }
";

pub(crate) fn compiled(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (text, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&text, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args([
        "-O2",
        "-D_GNU_SOURCE",
        "-fomit-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-w",
        "-o",
    ]);
    assert!(compiler.arg(&program).arg(&text).status().unwrap().success());
    program
}

/// A program that is ended with the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::new(self.0.id().cast_signed())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A sampling on a thread of its own.
pub(crate) struct Sampling {
    stop: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
    /// How many of the last ones of the program `deep` are whole.
    deep: Arc<AtomicUsize>,
    thread: JoinHandle<(Report, Vec<Sample>)>,
}

impl Sampling {
    pub(crate) fn start(config: Config) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let deep = Arc::new(AtomicUsize::new(0));
        let count_deep = Arc::clone(&deep);
        let (says, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            let copies_only = config.copies_only;
            let started = |means: Means| {
                assert!(copies_only || matches!(means, Means::Program), "{means:?}");
                says.send(()).unwrap();
            };
            let report = profile::sample(&config, &seen, started, |seen| {
                let Seen::Sample(sample) = seen else { return };
                if sample.name == b"deep" {
                    let is_whole = sample.end == StackEnd::Root && sample.user.len() > 20;
                    let before = count_deep.load(Ordering::Relaxed);
                    count_deep.store(if is_whole { before + 1 } else { 0 }, Ordering::Relaxed);
                }
                samples.push(*sample);
                count.store(samples.len(), Ordering::Relaxed);
            });
            (report.unwrap(), samples)
        });
        started.recv().unwrap();
        Self { stop, taken, deep, thread }
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Waits for so many samples.
    pub(crate) fn wait(&self, samples: usize) {
        wait_for("samples", || self.taken.load(Ordering::Relaxed) >= samples);
    }

    pub(crate) fn finish(self) -> (Report, Vec<Sample>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub(crate) fn config(processes: Option<Vec<Pid>>) -> Config {
    Config {
        frequency_hz: 397,
        processes,
        duration: None,
        off_cpu: false,
        budget: Budget::default(),
        copies_only: false,
    }
}

/// What every sampling must come to.
pub(crate) fn is_conserved(report: &Report, samples: &[Sample]) {
    let Report { counts, .. } = report;
    assert_eq!(
        counts.runs,
        counts.idle + counts.unlisted + counts.sent + counts.no_room,
        "{report:?}"
    );
    assert_eq!(
        counts.waits,
        counts.waits_passed
            + counts.waits_sent
            + counts.waits_no_room
            + counts.waits_kept_back
            + counts.waits_missed,
        "{report:?}"
    );
    let given = samples.len() as u64;
    assert_eq!(
        (report.samples, report.samples + report.no_room),
        (given, counts.sent + counts.waits_sent),
        "{report:?}"
    );
    let unread = (report.malformed, report.malformed_samples, report.changes_lost);
    assert_eq!(unread, (0, 0, 0), "{report:?}");
}

fn native(frame: &StackFrame) -> &UserFrame {
    match frame {
        StackFrame::Native(frame) => frame,
        StackFrame::Python(frame) => panic!("{frame:?} in a program of C"),
    }
}

#[test]
fn stacks_without_frame_pointers_are_walked_to_their_root() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    for depth in [10_usize, 300, 900] {
        let running = Running::start(&program, &[&depth.to_string()]);
        let sampling = Sampling::start(config(Some(vec![running.pid()])));
        sampling.wait(200);
        let (report, samples) = sampling.finish();
        is_conserved(&report, &samples);
        let whole = samples.iter().filter(|it| it.end == StackEnd::Root).count();
        assert!(whole * 1000 >= samples.len() * 999, "{depth}: {whole} of {}", samples.len());
        // Nearly all of its time is below all calls.
        let deep = samples.iter().filter(|it| it.user.len() > depth).count();
        assert!(deep * 2 > samples.len(), "{depth}: {deep} of {}", samples.len());
        let own = |it: &&Sample| {
            it.user.iter().any(|it| native(it).file.as_ref().unwrap().path() == program)
        };
        assert_eq!(samples.iter().filter(own).count(), samples.len());
    }
}

#[test]
fn samples_of_short_lives_are_whole_too() {
    if !can_sample() || !are_installed(&["cc", "sh"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let script = format!("while :; do timeout 0.05 {} 20; done", program.display());
    let shell = Running::start(Path::new("sh"), &["-c", &script]);
    let sampling = Sampling::start(config(Some(vec![shell.pid()])));
    sampling.wait(200);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    drop(shell);
    let of_program: Vec<&Sample> =
        samples.iter().filter(|it| it.name == b"deep" && it.user.len() > 20).collect();
    let lives: BTreeSet<_> = of_program.iter().map(|it| (it.pid, it.process_start_ns)).collect();
    assert!(lives.len() > 2, "{} samples, {report:?}", samples.len());
    let whole = of_program.iter().filter(|it| it.end == StackEnd::Root).count();
    assert!(whole * 100 >= of_program.len() * 95, "{whole} of {}", of_program.len());
}

/// Decoded from its bytes alone, a packet has names for all frames and breaks no rule.
#[test]
fn s1_a_packet_tells_all_names_by_itself() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let running = Running::start(&program, &["5"]);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(100);
    let (_, samples) = sampling.finish();
    drop(running);
    fs::remove_file(&program).unwrap();
    let mut packer = Packer::new(Duration::from_millis(100), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    assert!(packets.len() > 1);
    let mut weights = Weights::new();
    for packet in &packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        assert!(weights.add(&request));
        assert!(!weights.add(&request), "the same packet again counts nothing");
    }
    assert_eq!(weights.samples(), samples.len() as u64);
    let folded = folded(&weights);
    let expected = "deep;_start;";
    let whole = ";main;odd;even;odd;even;odd;even";
    assert!(folded.lines().any(|line| line.starts_with(expected)), "{folded}");
    assert!(
        folded
            .lines()
            .any(|line| line.contains(whole) || line.contains(";main;even;odd;even;odd;even;odd")),
        "{folded}"
    );
}

/// Processes that were there before are known as well as those that begin.
#[test]
fn the_whole_machine_is_sampled_to_the_root_after_the_first_moments() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let running = Running::start(&program, &["20"]);
    let sampling = Sampling::start(config(None));
    // How long the first moments last is up to the files of all who run.
    wait_for("whole stacks", || sampling.deep.load(Ordering::Relaxed) >= 300);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    let of_program = samples.iter().rev().filter(|it| it.pid == running.pid());
    let last: Vec<_> = of_program.map(|it| it.end).take(100).collect();
    assert_eq!(last, [StackEnd::Root; 100]);
}
