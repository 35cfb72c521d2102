//! Analyses that keep their summaries, killed and started again, and of chunks in a bucket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::Chunked;
use testkit::s3::Server;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{stderr, stdout};

pub(crate) fn analyze(what: &[&str]) -> Command {
    let mut command = Command::new(THROUGHLINE);
    command.args(["analyze", "all", "--format", "json", "--threads", "2"]).args(what);
    command
}

pub(crate) fn done(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

pub(crate) fn session(folder: &Path, chunks: u64, events: u64) -> PathBuf {
    let traces = folder.join("traces");
    assert_eq!(Chunked { chunks, events, seed: 3 }.write(&traces).len() as u64, chunks);
    traces
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// How many blocks are committed.
fn committed(kept: &Path) -> usize {
    let Ok(of_host) = fs::read_dir(kept.join("host")) else { return 0 };
    let is_block = |path: PathBuf| path.extension().is_some_and(|ending| ending == "block");
    of_host.filter(|entry| is_block(entry.as_ref().unwrap().path())).count()
}

/// Each of 1,000 windows has a block of who is who and one of its summary; 125, 16, 2 and 1 are merges.
#[test]
fn a_job_of_a_thousand_chunks_that_is_killed_makes_no_committed_block_again() {
    const ALL: usize = 1_000 + 1_000 + 125 + 16 + 2 + 1;
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), 1_000, 20);
    let kept = folder.path().join("kept");
    let job = || analyze(&["--blocks", text(&kept), text(&traces)]);
    for enough in [150, 1_300] {
        let log = folder.path().join("log");
        let mut command = job();
        let mut running = Running::start(command.stdout(Stdio::null()), "throughline", &log);
        wait_for("blocks", || (committed(&kept) >= enough).then_some(()));
        running.end("KILL");
    }
    let before = committed(&kept);
    assert!((1_300..ALL).contains(&before), "{before} blocks when it was killed");
    let last = done(job());
    let made = format!("blocks: {} made,", ALL - before);
    assert!(stderr(&last).contains(&made), "{before} before: {}", stderr(&last));
    assert_eq!(committed(&kept), ALL);
    let whole = done(analyze(&["--whole", text(&traces)]));
    assert_eq!(stdout(&last), stdout(&whole));
    let again = done(job());
    assert!(stderr(&again).contains("blocks: 0 made, 1 used"), "{}", stderr(&again));
    assert_eq!(stdout(&again), stdout(&whole));
}

#[test]
fn chunks_and_blocks_in_a_bucket_give_the_answer_of_those_in_a_folder() {
    let Some(server) = Server::start("127.0.0.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), 12, 300);
    let bytes = server.put_folder(&traces, "fleet");
    // Half a copy: what has no manifest is not read.
    server.put("fleet/host/other/archives/half/kernel/metadata", b"/* CTF 1.8 */");
    let local = done(analyze(&[text(&traces)]));
    let cache = folder.path().join("cache");
    let job = |size: &str| {
        let mut command = analyze(&["--blocks", "s3://copies/blocks", "s3://copies/fleet"]);
        command.args(["--cache", text(&cache), "--cache-size", size]).envs(server.environment());
        command
    };
    // Room for half of the chunks.
    let there = done(job(&format!("{}B", bytes / 2)));
    assert_eq!(stdout(&there), stdout(&local));
    assert!(stderr(&there).contains("blocks: 27 made, 0 used"), "{}", stderr(&there));
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "the cache stays");
    let again = done(job("4GiB"));
    assert_eq!(stdout(&again), stdout(&local));
    assert!(stderr(&again).contains("blocks: 0 made, 1 used"), "{}", stderr(&again));
    // Chunks in a bucket and blocks of them in a folder, and the other way round, have the same names.
    let kept = folder.path().join("kept");
    let mut command = analyze(&["--blocks", text(&kept), "s3://copies/fleet"]);
    command.envs(server.environment());
    assert!(stderr(&done(command)).contains("blocks: 27 made"));
    let found = done(analyze(&["--blocks", text(&kept), text(&traces)]));
    assert!(stderr(&found).contains("blocks: 0 made, 1 used"), "{}", stderr(&found));

    let refused = |what: &[&str], why: &str| {
        let refused = analyze(what).envs(server.environment()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    };
    refused(&["s3://copies/nothing"], "no sealed chunk at or below it");
    refused(&["--cache-size", "10KiB", "s3://copies/fleet"], "(--cache-size)");
}
