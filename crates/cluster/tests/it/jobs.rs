//! Jobs done by others.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blocks::{Answer, Engine, EngineError, Error, Outcome, Step, Work, analyse};
use cluster::Cluster;

use crate::crew::{Worker, addresses, crew};
use crate::recipe::{committed, hands, home, options, run, session};

pub(crate) fn same(one: &Answer, other: &Answer) {
    assert_eq!(
        one.analysis.summary.to_bytes().unwrap(),
        other.analysis.summary.to_bytes().unwrap()
    );
    assert_eq!(one.analysis.findings, other.analysis.findings);
    assert_eq!(one.analysis.events, other.analysis.events);
}

/// Every number of tasks that has a window each, and two more, on three workers and on one; and blocks of some windows there before.
#[test]
fn every_legal_split_gives_the_bytes_of_one_process() {
    const WINDOWS: usize = 9;
    let (folder, _) = session(WINDOWS as u64, 60);
    let traces = folder.path().join("traces");
    let alone = folder.path().join("alone");
    let truth = run(&traces, &options(Some(&alone)));
    let made = truth.blocks_made;
    let truth_blocks = committed(&alone);
    assert_eq!(truth_blocks.len() as u64, made);
    for count in [3, 1] {
        for tasks in 1..=WINDOWS + 2 {
            for before in [0, 5] {
                // Of their own: one worker may have as many tasks as it takes, and those of the job before go when they notice.
                let crew = crew(count);
                let kept = folder.path().join(format!("kept-{count}-{tasks}-{before}"));
                let part = truth_blocks.iter().take(before);
                fs::create_dir_all(home(&kept)).unwrap();
                part.for_each(|(name, bytes)| fs::write(home(&kept).join(name), bytes).unwrap());
                let hands = hands();
                let engine = Cluster::new(&hands, addresses(&crew)).unwrap();
                let engine = engine.with_tasks(NonZeroUsize::new(tasks).unwrap());
                let answer =
                    analyse(std::slice::from_ref(&traces), &options(Some(&kept)), &hands, &engine)
                        .unwrap();
                same(&truth, &answer);
                assert_eq!(answer.lost, [""; 0]);
                let there = committed(&kept);
                // A merge that was there before spares what is below it.
                let is_true = |(name, bytes)| truth_blocks.get(name) == Some(bytes);
                assert!(there.iter().all(is_true), "{count} {tasks} {before}");
                assert!(before > 0 || there.len() == truth_blocks.len(), "{count} {tasks}");
                let new = (there.len() - before) as u64;
                assert_eq!(answer.blocks_made, new, "{count} {tasks} {before}");
            }
        }
    }
}

#[test]
fn a_window_that_does_not_know_enough_is_mapped_again_with_more() {
    for name in ["pair-ust-chunks-and-kernel", "kernel-basic-lttng210", "ust-60-processes"] {
        let Some(path) = testkit::unpacked_trace(name) else {
            return testkit::skip(&format!("no recording {name}"));
        };
        let folder = tempfile::tempdir().unwrap();
        let truth = run(&path, &options(Some(&folder.path().join("alone"))));
        let crew = crew(2);
        let hands = hands();
        let engine = Cluster::new(&hands, addresses(&crew)).unwrap();
        let kept = folder.path().join("kept");
        same(&truth, &analyse(&[path], &options(Some(&kept)), &hands, &engine).unwrap());
    }
}

/// The workers, of whom one leaves after so many outcomes.
struct Leaving<'h> {
    inner: Cluster<'h>,
    worker: std::sync::Mutex<Option<Worker>>,
    after: AtomicUsize,
}

impl Engine for Leaving<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        if self.after.load(Ordering::Relaxed) == 0 {
            drop(self.worker.lock().unwrap().take());
        }
        self.inner.run(work, steps, &mut |outcome| {
            if self.after.fetch_sub(1, Ordering::Relaxed) == 1 {
                drop(self.worker.lock().unwrap().take());
            }
            take(outcome)
        })
    }

    fn cancel(&self) {
        self.inner.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

#[test]
fn who_is_left_does_the_work_of_who_leaves() {
    let (folder, _) = session(30, 40);
    let traces = folder.path().join("traces");
    let alone = folder.path().join("alone");
    let truth = run(&traces, &options(Some(&alone)));
    for after in [0, 1, 2] {
        let mut crew = crew(2);
        let hands = hands();
        let all = addresses(&crew);
        let engine = Leaving {
            inner: Cluster::new(&hands, all).unwrap(),
            worker: std::sync::Mutex::new(crew.pop()),
            after: AtomicUsize::new(after),
        };
        let kept = folder.path().join(format!("kept-{after}"));
        let answer =
            analyse(std::slice::from_ref(&traces), &options(Some(&kept)), &hands, &engine).unwrap();
        same(&truth, &answer);
        assert!(answer.blocks_made <= truth.blocks_made, "{}", answer.blocks_made);
        assert!(committed(&kept).keys().eq(committed(&alone).keys()), "{after}");
        if after == 0 {
            assert_eq!(engine.inner.absent().len(), 1, "{:?}", engine.inner.absent());
        }
    }
}

#[test]
fn a_job_that_is_told_to_stop_says_so_and_goes_on_later() {
    let (folder, _) = session(6, 20);
    let traces = folder.path().join("traces");
    let kept = folder.path().join("kept");
    let crew = crew(1);
    let hands = hands();
    let engine = Cluster::new(&hands, addresses(&crew)).unwrap();
    engine.cancel();
    let stopped = analyse(std::slice::from_ref(&traces), &options(Some(&kept)), &hands, &engine);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    let engine = Cluster::new(&hands, addresses(&crew)).unwrap();
    let answer =
        analyse(std::slice::from_ref(&traces), &options(Some(&kept)), &hands, &engine).unwrap();
    same(&run(&traces, &options(Some(&folder.path().join("alone")))), &answer);
}
