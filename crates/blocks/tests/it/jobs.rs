//! The same answer whoever makes it, and no work twice.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blocks::{Engine, EngineError, Error, Options, Outcome, Step, Threads, Work, analyse};
use mapper::{Analysis, SpanRules, Windows};

use crate::compare::{answers, same};
use crate::recipe::{hands, options, run, session};

pub(crate) fn whole(path: &Path) -> Analysis {
    let options = mapper::Options { windows: Windows::Whole, ..mapper::Options::default() };
    mapper::analyse(&[path], &options).unwrap()
}

pub(crate) fn same_answers(one: &Analysis, other: &Analysis) {
    assert_eq!(one.events, other.events);
    assert_eq!(one.findings, other.findings);
    let (one, other) = (answers(&one.summary), answers(&other.summary));
    same(&one.0, &other.0);
    same(&one.1, &other.1);
}

#[test]
fn windows_of_chunks_give_the_answer_of_the_whole() {
    let (folder, _) = session(20, 400);
    let traces = folder.path().join("traces");
    let whole = whole(&traces);
    assert!(whole.events >= 16_000, "{}", whole.events);
    let kept = folder.path().join("kept");
    let first = run(&traces, &options(Some(&kept)));
    assert_eq!(first.analysis.windows, 20);
    same_answers(&whole, &first.analysis);
    // Who is who in 20 windows and their summaries, merges of 8, 8, 4 and 3.
    assert_eq!((first.blocks_made, first.blocks_used), (20 + 20 + 3 + 1, 0));
    let again = run(&traces, &options(Some(&kept)));
    assert_eq!((again.blocks_made, again.blocks_used), (0, 1));
    same_answers(&whole, &again.analysis);
    let without = run(&traces, &options(None));
    assert_eq!((without.blocks_made, without.blocks_used), (0, 0));
    same_answers(&whole, &without.analysis);
}

#[test]
fn recorded_sessions_give_the_answer_of_the_whole() {
    for name in ["pair-ust-chunks-and-kernel", "kernel-basic-lttng210", "ust-60-processes"] {
        let Some(path) = testkit::unpacked_trace(name) else {
            return testkit::skip(&format!("no recording {name}"));
        };
        same_answers(&whole(&path), &run(&path, &options(None)).analysis);
    }
}

#[test]
fn a_chunk_that_is_missing_is_the_same_gap() {
    let (folder, chunks) = session(9, 100);
    std::fs::remove_dir_all(&chunks[4]).unwrap();
    let traces = folder.path().join("traces");
    let answer = run(&traces, &options(None));
    assert_eq!(stitch::loss(&answer.analysis.summary).gaps, 1);
    same_answers(
        &mapper::analyse(&[&traces], &mapper::Options::default()).unwrap(),
        &answer.analysis,
    );
}

#[test]
fn a_session_that_grew_costs_what_is_new() {
    let (folder, chunks) = session(40, 60);
    let traces = folder.path().join("traces");
    let hidden = folder.path().join("later");
    let late = chunks.split_at(33).1;
    std::fs::create_dir(&hidden).unwrap();
    let aside = |chunk: &PathBuf| hidden.join(chunk.file_name().unwrap());
    late.iter().for_each(|chunk| std::fs::rename(chunk, aside(chunk)).unwrap());
    let kept = folder.path().join("kept");
    let before = run(&traces, &options(Some(&kept)));
    assert_eq!(before.analysis.windows, 33);
    late.iter().for_each(|chunk| std::fs::rename(aside(chunk), chunk).unwrap());
    let after = run(&traces, &options(Some(&kept)));
    same_answers(&whole(&traces), &after.analysis);
    // Seven windows and the one before, which looks into the first of them; the run that they are in, and all.
    assert_eq!((after.blocks_made, after.blocks_used), (2 * 8 + 2, 4));
}

#[test]
fn any_range_of_windows_is_a_few_merges() {
    let (folder, _) = session(200, 8);
    let traces = folder.path().join("traces");
    let kept = folder.path().join("kept");
    run(&traces, &options(Some(&kept)));
    for windows in [(0, 200), (3, 197), (64, 128), (77, 78), (100, 200)] {
        let options = Options { windows: Some(windows), ..options(Some(&kept)) };
        let answer = run(&traces, &options);
        assert_eq!(answer.blocks_made, 0, "{windows:?}");
        assert!(answer.last_merges <= 2 * 7 * 3, "{windows:?}: {}", answer.last_merges);
        let cover = answer.analysis.summary.cover().unwrap().clone();
        let all = whole(&traces).summary.cover().unwrap().clone();
        assert_eq!(windows == (0, 200), cover == all);
        assert!(answer.analysis.events > 0);
    }
}

/// Threads that lose everything after some outcomes, as often as told.
struct Losing<'h> {
    inner: Threads<'h>,
    losses: AtomicUsize,
    keeps: usize,
}

impl Engine for Losing<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let left = self.losses.load(Ordering::Relaxed);
        if left == 0 {
            return self.inner.run(work, steps, take);
        }
        self.losses.store(left - 1, Ordering::Relaxed);
        let mut taken = 0;
        self.inner.run(work, steps, &mut |outcome| {
            taken += 1;
            if taken <= self.keeps { take(outcome) } else { ControlFlow::Continue(()) }
        })?;
        Err(EngineError::Lost { what: format!("loss {left}") })
    }

    fn cancel(&self) {
        self.inner.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

#[test]
fn what_an_engine_loses_is_done_again_and_named() {
    let (folder, _) = session(12, 60);
    let traces = folder.path().join("traces");
    let hands = hands();
    let whole = whole(&traces);
    let all: &[&str] = &["loss 4", "loss 3", "loss 2", "loss 1"];
    // What is lost on the way is committed where blocks are kept, and only brought.
    for (kept, losses) in [(None, all), (Some(folder.path().join("kept")), &all[..1])] {
        let losing = |losses, keeps| Losing {
            inner: Threads::new(&hands, NonZeroUsize::new(2)),
            losses: AtomicUsize::new(losses),
            keeps,
        };
        let places = [traces.clone()];
        let answer = analyse(&places, &options(kept.as_deref()), &hands, &losing(4, 3)).unwrap();
        assert_eq!(answer.lost, losses);
        same_answers(&whole, &answer.analysis);
    }
    let nothing = Losing {
        inner: Threads::new(&hands, None),
        losses: AtomicUsize::new(usize::MAX),
        keeps: 0,
    };
    let refused = analyse(&[traces], &options(None), &hands, &nothing);
    assert!(matches!(refused, Err(Error::Incomplete { missing: 12, .. })), "{refused:?}");
}

/// Threads that bring everything twice.
struct Repeating<'h>(Threads<'h>);

impl Engine for Repeating<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        self.0.run(work, steps, &mut |outcome| {
            take(outcome.clone())?;
            take(outcome)
        })
    }

    fn cancel(&self) {
        self.0.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

#[test]
fn an_engine_that_repeats_itself_is_refused() {
    let (folder, _) = session(3, 20);
    let hands = hands();
    let engine = Repeating(Threads::new(&hands, None));
    let refused = analyse(&[folder.path().join("traces")], &options(None), &hands, &engine);
    assert!(matches!(refused, Err(Error::Twice { .. })), "{refused:?}");
}

#[test]
fn a_job_that_is_told_to_stop_says_so_and_goes_on_later() {
    let (folder, _) = session(30, 20);
    let (traces, kept) = (folder.path().join("traces"), folder.path().join("kept"));
    let hands = hands();
    let engine = Threads::new(&hands, NonZeroUsize::new(1));
    engine.cancel();
    let stopped = analyse(std::slice::from_ref(&traces), &options(Some(&kept)), &hands, &engine);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    same_answers(&whole(&traces), &run(&traces, &options(Some(&kept))).analysis);
}

#[test]
fn other_requests_and_other_rules_are_other_blocks() {
    let (folder, _) = session(4, 20);
    let (traces, kept) = (folder.path().join("traces"), folder.path().join("kept"));
    run(&traces, &options(Some(&kept)));
    let rules = SpanRules { requests: vec!["job".to_owned()], ..SpanRules::default() };
    let other = run(&traces, &Options { rules, ..options(Some(&kept)) });
    assert_eq!(other.blocks_used, 0);
    assert!(other.blocks_made > 0);
}
