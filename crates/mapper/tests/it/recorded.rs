//! Real recordings: the law on them, and their figures against counts of the events themselves.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use mapper::{Analysis, Options, Windows, analyse};
use model::{TimeRange, Timestamp};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tracedir::{Item, Recording};

use crate::compare::{answers, same, sums_hold};

/// The folder of a recording, or a note that it is absent.
fn recorded(name: &str) -> Option<PathBuf> {
    let found = testkit::unpacked_trace(name);
    if found.is_none() {
        testkit::skip(&format!("no recording {name}"));
    }
    found
}

fn with(windows: Windows, paths: &[PathBuf]) -> Analysis {
    let options = Options { windows, threads: NonZeroUsize::new(2), ..Options::default() };
    analyse(paths, &options).unwrap()
}

/// Cuts at random times and at times of events, and compares with the whole.
fn random_cuts_change_nothing(name: &str) {
    let Some(path) = recorded(name) else { return };
    let paths = [path];
    let whole = with(Windows::Whole, &paths);
    let cover = whole.summary.cover().unwrap().clone();
    let expected = answers(&whole.summary);
    let mut runner = TestRunner::deterministic();
    for parts in [1_usize, 3, 17] {
        let cut = (cover.begin.nanos()..cover.end.nanos()).prop_map(Timestamp::from_nanos);
        let cuts = prop::collection::vec(cut, parts).new_tree(&mut runner).unwrap().current();
        let cut = with(Windows::At(cuts), &paths);
        let found = answers(&cut.summary);
        assert_eq!(cut.events, whole.events);
        same(&expected.0, &found.0);
        same(&expected.1, &found.1);
    }
}

#[test]
fn a_desktop_trace_cut_at_random_gives_the_answer_of_the_whole() {
    random_cuts_change_nothing("kernel-basic-lttng210");
}

#[test]
fn a_thread_storm_cut_at_random_gives_the_answer_of_the_whole() {
    random_cuts_change_nothing("kernel-many-threads");
}

/// Every return from a call is a complete call, a return whose entry was not seen, or a birth.
#[test]
fn call_counts_equal_the_number_of_exit_events() {
    for name in ["kernel-basic-lttng210", "kernel-many-threads"] {
        let Some(path) = recorded(name) else { return };
        let mut exits: BTreeMap<String, u64> = BTreeMap::new();
        let recording = Recording::open(&[&path]).unwrap();
        let mut merged = recording.merged(TimeRange::ALL);
        while let Some(item) = merged.next_item() {
            let Item::Event(event) = item else { continue };
            let Some(call) = event.record.name().strip_prefix("syscall_exit_") else { continue };
            let ret = event.record.field("ret").and_then(|value| value.as_i64());
            let id = event.record.field("id").and_then(|id| id.as_i64());
            // A return from no call that has a number, such as rt_sigreturn.
            if id.is_some_and(|id| id < 0) {
                continue;
            }
            let birth = (call == "clone" || id == Some(58)) && ret == Some(0);
            *exits.entry(call.to_owned()).or_default() += u64::from(!birth);
        }
        let answer = stitch::syscalls(&with(Windows::Whole, &[path]).summary);
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for call in answer.processes.iter().flat_map(|process| &process.syscalls) {
            *found.entry(call.name.to_string()).or_default() += call.calls;
        }
        let exits_in_all: u64 = exits.values().sum();
        let found_in_all: u64 = found.values().sum();
        assert_eq!(found_in_all + answer.loss.calls_without_begin, exits_in_all, "{name}");
        for (call, calls) in &found {
            let seen = exits.get(call).copied().unwrap_or(0);
            let unknown = exits.get("unknown").copied().unwrap_or(0);
            assert!(*calls <= seen + unknown, "{name}: {calls} {call}, {seen} exits");
        }
    }
}

#[test]
fn files_of_a_desktop_trace_have_their_paths() {
    let Some(path) = recorded("kernel-basic-lttng210") else { return };
    let answer = stitch::syscalls(&with(Windows::Whole, &[path]).summary);
    let reads: Vec<&str> = answer
        .processes
        .iter()
        .flat_map(|process| &process.syscalls)
        .filter(|call| &*call.name == "read")
        .flat_map(|call| call.files.iter().flatten())
        .map(|file| &*file.name)
        .collect();
    assert!(reads.iter().any(|name| name.starts_with('/')), "{reads:?}");
    assert!(answer.processes.iter().any(|process| &*process.comm == "cc1"));
}

#[test]
fn requests_over_rotation_chunks_and_a_kernel_trace_add_up_for_every_cut() {
    let Some(path) = recorded("pair-ust-chunks-and-kernel") else { return };
    let paths = [path];
    let chunks = with(Windows::Chunks, &paths);
    let whole = with(Windows::Whole, &paths);
    assert!(chunks.windows >= 8, "{} windows", chunks.windows);
    assert_eq!(whole.windows, 1);
    let (expected, found) = (answers(&whole.summary), answers(&chunks.summary));
    same(&expected.0, &found.0);
    same(&expected.1, &found.1);
    let answer = stitch::phases(&chunks.summary);
    assert!(answer.requests.complete > 1_000, "{:?}", answer.requests);
    sums_hold(&answer);
    let names: Vec<&str> = answer.phases.iter().map(|phase| &*phase.name).collect();
    for phase in ["open", "seek", "decode", "encode", "send", "(between)"] {
        assert!(names.contains(&phase), "{names:?}");
    }
    let running: u64 = answer.phases.iter().map(|phase| phase.split.running_ns).sum();
    assert!(running > 0 && running < answer.requests.wall_ns);
}

/// The kernel's trace as if its tracer had read the same clock as LTTng did: another distance from the epoch, one UUID.
fn with_one_clock(pair: &Path, into: &Path) {
    let kernel = into.join("kernel");
    fs::create_dir(&kernel).unwrap();
    for name in ["perf_stream_0", "perf_stream_1"] {
        fs::copy(pair.join("kernel-perf").join(name), kernel.join(name)).unwrap();
    }
    let metadata = fs::read_to_string(pair.join("kernel-perf/metadata")).unwrap();
    let own = "d5372609-d4ca-4283-a2b8-1ec22beaca16";
    assert!(metadata.contains(own));
    let metadata = metadata.replace(own, "ac5682e0-7745-44ce-86d7-bfe4f143ace1");
    fs::write(kernel.join("metadata"), metadata).unwrap();
}

#[test]
fn traces_of_one_clock_are_read_by_one_distance_from_the_epoch() {
    let Some(pair) = recorded("pair-ust-chunks-and-kernel") else { return };
    let folder = tempfile::tempdir().unwrap();
    with_one_clock(&pair, folder.path());
    let paths = [pair.join("ust"), folder.path().join("kernel")];
    let (chunks, whole) = (with(Windows::Chunks, &paths), with(Windows::Whole, &paths));
    assert_eq!((chunks.events, whole.events), (164_035, 164_035));
    let (expected, found) = (answers(&whole.summary), answers(&chunks.summary));
    same(&expected.0, &found.0);
    same(&expected.1, &found.1);
    let apart = stitch::phases(&with(Windows::Whole, &[pair]).summary);
    let together = stitch::phases(&whole.summary);
    sums_hold(&together);
    // LTTng's distance is 2,714 ns larger than perf's, so its requests move by that.
    let begins = |answer: &stitch::answer::Phases| {
        let mut begins: Vec<i64> = answer.request_list.iter().map(|r| r.begin_ns).collect();
        begins.sort_unstable();
        begins
    };
    let moved: Vec<i64> = begins(&apart).into_iter().map(|begin| begin - 2_714).collect();
    assert_eq!(begins(&together), moved);
}
