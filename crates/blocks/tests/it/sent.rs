//! Steps that are sent as bytes to other hands, cut in every way.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blocks::{
    CacheOptions, Engine, EngineError, Error, Hands, Kept, Outcome, Report, Step, Stop, Task, Work,
    analyse,
};
use testkit::Chunked;

use crate::jobs::same_answers;
use crate::recipe::{committed, hands, options, run, session};

/// Hands for each task, which know only the bytes that they are sent; what the first of them report may not arrive.
struct Sent<'h> {
    here: &'h Hands,
    tasks: usize,
    /// How many reports still get lost.
    lost: AtomicUsize,
    change: fn(Kept) -> Kept,
}

impl Engine for Sent<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let mut is_lost = false;
        for share in steps.chunks(steps.len().div_ceil(self.tasks)) {
            let bytes = Task::new(work, share.to_vec()).encode()?;
            let mut reports = Vec::new();
            let there = Hands::new(&CacheOptions::default())?;
            let task = Task::decode(&bytes)?;
            there.work(task, NonZeroUsize::new(2), &Stop::default(), &mut |report| {
                reports.push(report.encode().unwrap());
                ControlFlow::Continue(())
            })?;
            for report in reports {
                let taken = |left: usize| left.checked_sub(1);
                if self.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok() {
                    is_lost = true;
                    continue;
                }
                let report = match Report::decode(&report)? {
                    Report::Kept(kept) => Report::Kept((self.change)(kept)),
                    other => other,
                };
                if take(self.here.outcome(work, report)?).is_break() {
                    return Ok(());
                }
            }
        }
        if is_lost { Err(EngineError::Lost { what: "reports".to_owned() }) } else { Ok(()) }
    }

    fn cancel(&self) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

#[test]
fn every_cut_gives_the_same_blocks_and_the_same_answer() {
    const WINDOWS: usize = 10;
    for says in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let traces = folder.path().join("traces");
        let chunked = Chunked { chunks: WINDOWS as u64, events: 50, seed: 8 };
        let chunks =
            if says { chunked.write_with_threads(&traces) } else { chunked.write(&traces) };
        assert_eq!(chunks.len(), WINDOWS);
        let alone = folder.path().join("alone");
        let truth = run(&traces, &options(Some(&alone)));
        for tasks in 1..=WINDOWS {
            for lost in [0, 2] {
                let kept = folder.path().join(format!("kept-{tasks}-{lost}"));
                let here = hands();
                let lost = AtomicUsize::new(lost);
                let engine = Sent { here: &here, tasks, lost, change: |kept| kept };
                let places = [traces.clone()];
                let answer = analyse(&places, &options(Some(&kept)), &here, &engine).unwrap();
                same_answers(&truth.analysis, &answer.analysis);
                assert!(committed(&kept).keys().eq(committed(&alone).keys()), "{says} {tasks}");
            }
        }
    }
}

#[test]
fn a_block_that_is_not_what_a_worker_says_is_not_taken() {
    let (folder, _) = session(9, 20);
    let refused = |name: &str, change: fn(Kept) -> Kept| {
        let here = hands();
        let engine = Sent { here: &here, tasks: 1, lost: AtomicUsize::new(0), change };
        let kept = folder.path().join(name);
        let places = [folder.path().join("traces")];
        let refused = analyse(&places, &options(Some(&kept)), &here, &engine).unwrap_err();
        assert!(matches!(refused, Error::Step { .. }), "{refused}");
        refused.to_string()
    };
    let other = |kept: Kept| Kept { checksum: kept.checksum ^ 1, ..kept };
    assert!(refused("other", other).contains("not the one that a worker says it kept"));
    let nowhere = |kept: Kept| Kept { id: blocks::BlockId::of_nothing().unwrap(), ..kept };
    assert!(refused("nowhere", nowhere).contains("workers must have the same folder"));
}

#[test]
fn a_task_that_is_stopped_says_so() {
    let (folder, _) = session(2, 20);
    struct Never;
    impl Engine for Never {
        fn run(
            &self,
            work: &Arc<Work>,
            steps: Vec<Step>,
            _: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
        ) -> Result<(), EngineError> {
            let stop = Stop::default();
            stop.set();
            let task = Task::new(work, steps);
            hands().work(task, None, &stop, &mut |report| panic!("{report:?}"))
        }

        fn cancel(&self) {}

        fn is_cancelled(&self) -> bool {
            false
        }
    }
    let places = [folder.path().join("traces")];
    let kept = folder.path().join("kept");
    let stopped = analyse(&places, &options(Some(&kept)), &hands(), &Never);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}
