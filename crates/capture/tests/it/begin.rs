//! What it takes until the first sample.

use std::fs;
use std::process::Command;

use capture::profile::StackEnd;
use model::Pid;

use crate::profile::{DEEP, Running, Sampling, config, is_conserved};
use crate::programs::built;
use crate::support::{are_installed, can_sample};

/// `BPF_PROG_TYPE_PERF_EVENT` of include/uapi/linux/bpf.h.
const PERF_EVENT: u64 = 7;

/// Instructions that the kernel's verifier looked at, of each loaded program of this process that a clock runs.
fn verified() -> Vec<u64> {
    let descriptors = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| {
            let number = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                line.trim().parse::<u64>().ok()
            };
            number("verified_insns:").filter(|_| number("prog_type:") == Some(PERF_EVENT))
        })
        .collect()
}

/// Its time is most of what a profile of a short command costs: some 1.5 µs an instruction. It looks at each way through what is not a
/// function of its own.
#[test]
fn the_verifier_takes_few_steps_through_the_sampling_program() {
    if !can_sample() {
        return;
    }
    let own = Pid::new(std::process::id().cast_signed());
    let sampling = Sampling::start(config(Some(vec![own])));
    let verified = verified();
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    assert!(!verified.is_empty());
    assert!(verified.iter().all(|steps| *steps < 30_000), "{verified:?}");
}

/// It maps nothing after the kernel did so for it: what is known of it holds all the same, and copies of its stack end.
#[test]
fn a_static_program_that_begins_is_soon_walked_where_it_is_sampled() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]);
    let program = built(&mut compiler, folder.path(), ("deep.c", DEEP));
    let own = Pid::new(std::process::id().cast_signed());
    let sampling = Sampling::start(config(Some(vec![own])));
    let running = Running::start(&program, &["40"]);
    sampling.wait(1000);
    let (report, samples) = sampling.finish();
    is_conserved(&report, &samples);
    let of_program: Vec<_> = samples.iter().filter(|it| it.pid == running.pid()).collect();
    let whole = of_program.iter().filter(|it| it.end == StackEnd::Root).count();
    assert!(whole * 100 >= of_program.len() * 99, "{whole} of {}", of_program.len());
    let copies = report.counts.stacks;
    assert!(copies > 0 && copies * 2 < of_program.len() as u64, "{copies} copies: {report:?}");
}
