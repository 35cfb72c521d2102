//! What it takes until the first sample.

use std::fs;

use model::Pid;

use crate::profile::{Sampling, config, is_conserved};
use crate::support::can_sample;

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
