//! Samples without a program in the kernel: by copies of stacks.

use std::path::Path;

use capture::profile::{Config, Sample, StackEnd};
use model::Pid;

use crate::profile::{DEEP, Running, Sampling, compiled, config};
use crate::stateless::stacks;
use crate::support::{are_installed, can_sample};

fn copying(processes: Option<Vec<Pid>>) -> Config {
    Config { copies_only: true, ..config(processes) }
}

/// A stack that fits is as whole as one that a program walks; one that does not says so.
#[test]
fn copied_stacks_are_walked_to_their_root_when_they_fit() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    for (depth, fits) in [(20, true), (900, false)] {
        let running = Running::start(&program, &[&depth.to_string()]);
        let sampling = Sampling::start(copying(Some(vec![running.pid()])));
        sampling.wait(200);
        let (report, samples) = sampling.finish();
        let own: Vec<&Sample> = samples.iter().filter(|it| it.pid == running.pid()).collect();
        let counts = report.counts;
        assert_eq!(counts.runs, counts.sent + counts.unlisted + counts.no_room, "{report:?}");
        assert_eq!((report.samples, report.malformed_samples), (counts.sent, 0), "{report:?}");
        let ends = |end| own.iter().filter(|it| it.end == end).count();
        let (whole, cut) = (ends(StackEnd::Root), ends(StackEnd::NoMemory));
        if fits {
            assert!(whole * 1000 >= own.len() * 999, "{whole} of {}", own.len());
        } else {
            assert!(cut * 10 >= own.len() * 9, "{cut} of {}", own.len());
        }
        let named: u64 = stacks(&own)
            .iter()
            .filter(|it| it.0.contains(";odd;even;odd;even"))
            .map(|it| it.1)
            .sum();
        assert!(named * 10 >= 9 * stacks(&own).values().sum::<u64>());
        assert!(own.iter().all(|it| it.name == b"deep" && it.process_start_ns > 0));
    }
}

/// Processes that are started are followed.
#[test]
fn what_a_process_starts_is_sampled_by_copies_too() {
    if !can_sample() || !are_installed(&["cc", "sh", "timeout"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let script = format!("while :; do timeout 0.2 {} 20; done", program.display());
    let shell = Running::start(Path::new("sh"), &["-c", &script]);
    let sampling = Sampling::start(copying(Some(vec![shell.pid()])));
    sampling.wait(300);
    let (_, samples) = sampling.finish();
    let deep: Vec<&Sample> = samples.iter().filter(|it| it.user.len() > 20).collect();
    let named: u64 = stacks(&deep).iter().filter(|it| it.0.contains(";main;")).map(|it| it.1).sum();
    assert!(deep.len() > 150, "{} of {}", deep.len(), samples.len());
    assert!(named * 10 >= 9 * stacks(&deep).values().sum::<u64>());
}
