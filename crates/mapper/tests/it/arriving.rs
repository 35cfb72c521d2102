//! Chunks that arrive one by one, summary files, and a stitcher that starts again.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use convert::convert_ctf;
use ctf::CtfVersion;
use mapper::{Options, SpanRules, Stitcher, Windows, analyse};
use model::{TimeRange, Timestamp};
use stitch::Summary;
use tracedir::Recording;

use crate::compare::{answers, same, sums_hold};

/// The session of the recorded pair, and its chunks in order.
fn session() -> Option<(PathBuf, Vec<PathBuf>)> {
    let session = testkit::unpacked_trace("pair-ust-chunks-and-kernel")?.join("ust");
    let chunks = tracedir::session_chunks(&session).unwrap().sealed;
    Some((session, chunks.into_iter().map(|chunk| chunk.path).collect()))
}

fn whole(session: &Path) -> Summary {
    let options = Options { windows: Windows::Whole, ..Options::default() };
    analyse(&[session], &options).unwrap().summary
}

fn stitcher(folder: &Path) -> Stitcher {
    let (stitcher, unusable) = Stitcher::open(folder, SpanRules::default()).unwrap();
    assert_eq!(unusable, Vec::<String>::new());
    stitcher
}

fn same_answers(one: &Summary, other: &Summary) {
    let (one, other) = (answers(one), answers(other));
    same(&one.0, &other.0);
    same(&one.1, &other.1);
}

#[test]
fn chunks_that_arrive_one_by_one_give_the_answer_of_the_whole_also_over_a_restart() {
    let Some((session, chunks)) = session() else { return testkit::skip("no recorded pair") };
    let folder = tempfile::tempdir().unwrap();
    let mut events = 0;
    let mut running = stitcher(folder.path());
    running.session_opened(&session);
    let (early, late) = chunks.split_at(chunks.len() / 2);
    for chunk in early {
        running.chunk_sealed(&session, chunk).unwrap();
        events += running.advance().unwrap().events;
    }
    assert!(events > 0, "nothing was mapped before the session ended");
    let mut again = stitcher(folder.path());
    same_answers(running.summary(), again.summary());
    again.session_opened(&session);
    for chunk in early.iter().chain(late) {
        again.chunk_sealed(&session, chunk).unwrap();
    }
    again.session_closed(&session);
    events += again.advance().unwrap().events;
    assert_eq!(events, 76_389);
    same_answers(again.summary(), &whole(&session));
    assert_eq!(again.advance().unwrap().windows, 0);
}

/// Copies of the session's chunks that may be deleted.
fn copies(session: &Path, chunks: &[PathBuf], into: &Path) -> Vec<PathBuf> {
    let copy = |chunk: &PathBuf| {
        let to = into.join(chunk.strip_prefix(session).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-r").arg(chunk).arg(&to).status().unwrap();
        assert!(copied.success());
        to
    };
    chunks.iter().map(copy).collect()
}

#[test]
fn spent_chunks_can_be_deleted_and_the_answer_is_that_of_the_whole_also_over_a_restart() {
    let Some((session, chunks)) = session() else { return testkit::skip("no recorded pair") };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("session");
    let chunks = copies(&session, &chunks, &copy);
    let summaries = folder.path().join("summaries");
    let mut running = stitcher(&summaries);
    running.session_opened(&copy);
    let mut deleted = Vec::new();
    for (n, chunk) in chunks.iter().enumerate() {
        if n == chunks.len() / 2 {
            running = stitcher(&summaries);
            running.session_opened(&copy);
            for chunk in chunks[..n].iter().filter(|chunk| chunk.exists()) {
                running.chunk_sealed(&copy, chunk).unwrap();
            }
        }
        running.chunk_sealed(&copy, chunk).unwrap();
        running.advance().unwrap();
        for spent in running.spent() {
            fs::remove_dir_all(&spent).unwrap();
            deleted.push(spent);
        }
        // Two that the next may reach into, and the newest.
        let left = chunks[..=n].iter().filter(|chunk| chunk.exists()).count();
        assert!(left <= 4, "{left} chunks are held after {n}");
    }
    running.session_closed(&copy);
    assert_eq!(running.advance().unwrap().findings, Vec::<String>::new());
    deleted.extend(running.spent());
    assert_eq!(deleted, chunks);
    assert_eq!(running.spent(), Vec::<PathBuf>::new());
    same_answers(running.summary(), &whole(&session));
}

#[test]
fn a_missing_chunk_is_a_gap_that_nothing_is_stitched_across() {
    let Some((session, chunks)) = session() else { return testkit::skip("no recorded pair") };
    let folder = tempfile::tempdir().unwrap();
    let mut stitcher = stitcher(folder.path());
    stitcher.session_opened(&session);
    for chunk in chunks.iter().enumerate().filter(|(n, _)| *n != 3).map(|(_, chunk)| chunk) {
        stitcher.chunk_sealed(&session, chunk).unwrap();
    }
    stitcher.session_closed(&session);
    assert_eq!(stitcher.advance().unwrap().gaps, 1);
    let (full, cut) = (stitch::phases(&whole(&session)), stitch::phases(stitcher.summary()));
    assert_eq!(cut.loss.gaps, 1);
    assert!(cut.requests.complete < full.requests.complete);
    assert!(cut.requests.partial > full.requests.partial);
    assert_eq!((full.begin_ns, full.end_ns), (cut.begin_ns, cut.end_ns));
    sums_hold(&cut);
}

#[test]
fn a_damaged_summary_file_is_named_and_mapped_again() {
    let Some((session, chunks)) = session() else { return testkit::skip("no recorded pair") };
    let folder = tempfile::tempdir().unwrap();
    let mut running = stitcher(folder.path());
    running.session_opened(&session);
    for chunk in &chunks {
        running.chunk_sealed(&session, chunk).unwrap();
        running.advance().unwrap();
    }
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    assert!(files.len() > 3, "{files:?}");
    fs::write(&files[1], b"TLSUMRY\n torn").unwrap();
    let (mut again, unusable) = Stitcher::open(folder.path(), SpanRules::default()).unwrap();
    assert!(unusable[0].contains(files[1].to_str().unwrap()), "{unusable:?}");
    for chunk in &chunks {
        again.chunk_sealed(&session, chunk).unwrap();
    }
    again.session_closed(&session);
    again.advance().unwrap();
    same_answers(again.summary(), &whole(&session));
}

/// A session whose chunks are this trace, cut at equal distances.
fn cut(trace: &Path, parts: i64, session: &Path) -> Vec<PathBuf> {
    let covers = Recording::open(&[trace]).unwrap().covers();
    let begin = covers.iter().filter_map(|cover| cover.begin).min().unwrap().nanos();
    let end = covers.iter().filter_map(|cover| cover.end).max().unwrap().nanos() + 1;
    let at = |part: i64| Timestamp::from_nanos(begin + (end - begin) / parts * part);
    let chunk = |part: i64| {
        let range = TimeRange {
            begin: if part == 0 { Timestamp::MIN } else { at(part) },
            end: if part + 1 == parts { Timestamp::MAX } else { at(part + 1) },
        };
        let name = format!("20261120T16440{part}+0000-20261120T16440{}+0000-{part}", part + 1);
        let folder = session.join("archives").join(name);
        let options = convert::Options { version: CtfVersion::V1_8, range };
        fs::create_dir_all(folder.parent().unwrap()).unwrap();
        let into = folder.join("kernel");
        fs::create_dir(&folder).unwrap();
        convert_ctf(&[trace], &into, &options, &mut |_, _| ControlFlow::Continue(())).unwrap();
        folder
    };
    (0..parts).map(chunk).collect()
}

/// A trace whose records do not say whose they are: only the first chunk's state dump knows.
fn one_by_one_as_at_once(name: &str) {
    let Some(trace) = testkit::unpacked_trace(name) else {
        return testkit::skip(&format!("no recording {name}"));
    };
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    let chunks = cut(&trace, 4, &session);
    let whole = whole(&session);
    let at_once = analyse(&[&session], &Options::default()).unwrap();
    assert!(at_once.windows >= 4, "{} windows", at_once.windows);
    same_answers(&whole, &at_once.summary);
    let summaries = folder.path().join("summaries");
    let mut running = stitcher(&summaries);
    running.session_opened(&session);
    for (n, chunk) in chunks.iter().enumerate() {
        if n == 2 {
            running = stitcher(&summaries);
            running.session_opened(&session);
            running.chunk_sealed(&session, chunks.get(1).unwrap()).unwrap();
        }
        running.chunk_sealed(&session, chunk).unwrap();
        let advance = running.advance().unwrap();
        assert_eq!(advance.windows, usize::from(n > 0), "after chunk {n}");
    }
    running.session_closed(&session);
    running.advance().unwrap();
    same_answers(&whole, running.summary());
}

#[test]
fn chunks_of_a_desktop_trace_one_by_one_give_the_answer_of_all_at_once() {
    one_by_one_as_at_once("kernel-basic-lttng210");
}

#[test]
fn chunks_of_a_thread_storm_one_by_one_give_the_answer_of_all_at_once() {
    one_by_one_as_at_once("kernel-many-threads");
}
