//! A coordinator and three workers on machines of their own, of which one is killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::machines::{ALL, COORDINATOR, Network};
use testkit::s3::Server;

use crate::kept::{analyze, done, session, text};
use crate::machines::{Worker, made, start_workers};
use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{stderr, stdout};

const WINDOWS: u64 = 40;
/// Who is who in 40 windows, their summaries, five merges and the merge of those.
const BLOCKS: usize = 40 + 40 + 5 + 1;

fn job(network: &Network, workers: &str, kept: &str, traces: &str) -> Command {
    let mut command = network.command(COORDINATOR, THROUGHLINE);
    command.args(["analyze", "all", "--format", "json", "--workers", workers]);
    command.args(["--blocks", kept, traces]).env("RUST_LOG", "blocks=debug");
    command
}

/// Committed blocks and what tells that they are the same files.
fn committed(kept: &Path) -> BTreeMap<PathBuf, (u64, i64)> {
    let Ok(entries) = fs::read_dir(kept.join("host")) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let blocks = paths.filter(|path| path.extension().is_some_and(|ending| ending == "block"));
    blocks
        .map(|path| {
            let file = fs::metadata(&path).unwrap();
            (path, (file.ino(), file.mtime_nsec()))
        })
        .collect()
}

fn names(workers: &[Worker]) -> String {
    let addresses: Vec<&str> = workers.iter().map(|worker| worker.address.as_str()).collect();
    addresses.join(",")
}

#[test]
fn machines_give_the_answer_of_one_from_a_folder_and_from_a_bucket() {
    let Some(network) = Network::start(0) else { return };
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), WINDOWS, 60);
    let alone = done(analyze(&[text(&traces)]));
    let workers = start_workers(&network, folder.path(), &[]);
    let kept = folder.path().join("kept");
    // All of them by one name.
    let there = done(job(&network, ALL, text(&kept), text(&traces)));
    assert_eq!(stdout(&there), stdout(&alone));
    assert!(
        stderr(&there).contains(&format!("blocks: {BLOCKS} made, 0 used")),
        "{}",
        stderr(&there)
    );
    assert!(workers.iter().all(|worker| worker.made().len() >= 10));
    let again = done(job(&network, &names(&workers), text(&kept), text(&traces)));
    assert!(stderr(&again).contains("blocks: 0 made, 1 used"), "{}", stderr(&again));
    drop(workers);

    let Some(server) = Server::start(&network.address(1)) else { return };
    server.put_folder(&traces, "fleet");
    let workers = start_workers(&network, folder.path(), &server.environment());
    let bucket = || {
        let mut job = job(&network, &names(&workers), "s3://copies/blocks", "s3://copies/fleet");
        job.envs(server.environment());
        job
    };
    let there = done(bucket());
    assert_eq!(stdout(&there), stdout(&alone));
    assert!(
        stderr(&there).contains(&format!("blocks: {BLOCKS} made, 0 used")),
        "{}",
        stderr(&there)
    );
    assert!(workers.iter().all(|worker| worker.made().len() >= 10));
    assert!(stderr(&done(bucket())).contains("blocks: 0 made, 1 used"));
    // Workers have credentials of their own; a job brings none.
    drop(workers);
    let poor = start_workers(&network, folder.path(), &[]);
    let mut job = job(&network, &names(&poor), "s3://copies/other", "s3://copies/fleet");
    let refused = job.envs(server.environment()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(!stderr(&refused).contains("hunter22"), "{}", stderr(&refused));
}

/// When a worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Start,
    Map,
    Merge,
}

impl When {
    /// Whether it is the time.
    fn has_come(self, workers: &[Worker]) -> bool {
        let made = |worker: &Worker| worker.made().len();
        match self {
            Self::Start => true,
            Self::Map => workers.iter().any(|worker| made(worker) >= 2),
            // Of about 13 windows each and a merge of every eight; the first of them is there.
            Self::Merge => workers.iter().any(|worker| made(worker) >= 10),
        }
    }
}

#[test]
fn a_worker_that_is_killed_costs_what_is_not_committed() {
    let Some(network) = Network::start(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), WINDOWS, 400);
    let alone = done(analyze(&[text(&traces)]));
    let mut lost_on_the_way = 0;
    for when in [When::Start, When::Map, When::Merge] {
        for round in 0..3 {
            let case = folder.path().join(format!("{when:?}-{round}"));
            fs::create_dir(&case).unwrap();
            let kept = case.join("kept");
            let mut workers = start_workers(&network, &case, &[]);
            let names = names(&workers);
            let mut command = job(&network, &names, text(&kept), text(&traces));
            let (answer, log) = (case.join("answer"), case.join("log"));
            command.stdout(fs::File::create(&answer).unwrap());
            let mut running = Running::start(&mut command, "coordinator", &log);
            wait_for("the time to kill", || {
                let is_over = running.child.try_wait().unwrap().is_some();
                (is_over || when.has_come(&workers)).then_some(())
            });
            workers[round].running.end("KILL");
            let before = committed(&kept);
            let status = wait_for("the job", || running.child.try_wait().unwrap());
            let said = running.said();
            lost_on_the_way += u32::from(said.contains("lost, and done again: worker"));
            let mut logs = vec![said.clone()];
            match status.code() {
                Some(0) => {
                    assert_eq!(fs::read_to_string(&answer).unwrap(), stdout(&alone), "{said}")
                }
                code => {
                    assert_eq!(code, Some(3), "{said}");
                    assert!(said.contains(&workers[round].address), "{said}");
                    assert_eq!(fs::read_to_string(&answer).unwrap(), "");
                    let again = done(job(&network, &names, text(&kept), text(&traces)));
                    assert_eq!(stdout(&again), stdout(&alone));
                    logs.push(stderr(&again).to_owned());
                }
            }
            // What was committed when it was killed is the same file, and nobody made it a second time.
            let after = committed(&kept);
            assert_eq!(after.len(), BLOCKS, "{when:?} {round}: {said}");
            assert!(before.iter().all(|(path, file)| after.get(path) == Some(file)));
            let mut all: Vec<String> = logs.iter().flat_map(|log| made(log)).collect();
            workers.iter().for_each(|worker| all.extend(worker.made()));
            for path in before.keys() {
                let name = path.file_stem().unwrap().to_str().unwrap();
                let times = all.iter().filter(|made| *made == name).count();
                // The last line of one that is killed may be missing.
                assert!(times <= 1, "{when:?} {round}: {name} was made {times} times");
            }
        }
    }
    assert!(lost_on_the_way > 0, "every worker was killed too late");
}

#[test]
fn a_job_that_nobody_is_left_for_names_them_and_goes_on_when_there_is_somebody() {
    let Some(network) = Network::start(2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), WINDOWS, 400);
    let kept = folder.path().join("kept");
    let mut workers = start_workers(&network, folder.path(), &[]);
    let mut command = job(&network, &names(&workers), text(&kept), text(&traces));
    let mut running =
        Running::start(command.stdout(Stdio::null()), "coordinator", &folder.path().join("log"));
    wait_for("the time to kill", || When::Map.has_come(&workers).then_some(()));
    for worker in &mut workers {
        worker.running.end("KILL");
    }
    let status = wait_for("the job", || running.child.try_wait().unwrap());
    let said = running.said();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(workers.iter().all(|worker| said.contains(&worker.address)), "{said}");
    let before = committed(&kept).len();
    let names = names(&workers);
    drop(workers);
    let _workers = start_workers(&network, folder.path(), &[]);
    let last = done(job(&network, &names, text(&kept), text(&traces)));
    assert_eq!(stdout(&last), stdout(&done(analyze(&[text(&traces)]))));
    assert!(
        stderr(&last).contains(&format!("blocks: {} made,", BLOCKS - before)),
        "{}",
        stderr(&last)
    );
}

/// On this machine alone: what people see who mistype, or stop.
#[test]
fn what_cannot_be_done_by_workers_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), 3, 20);
    let kept = folder.path().join("kept");
    let run = |args: &[&str]| -> Output {
        let mut command = Command::new(THROUGHLINE);
        command.args(["analyze", "cputop", text(&traces)]).args(args).output().unwrap()
    };
    let refused = run(&["--workers", "w1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--blocks"), "{}", stderr(&refused));
    for address in ["https://w1", "w1:port", "s3://w1", "w1/x"] {
        let refused = run(&["--workers", address, "--blocks", text(&kept)]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("is not where workers are"), "{}", stderr(&refused));
    }
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let refused = run(&["--workers", &free, "--blocks", text(&kept)]);
    assert_eq!(refused.status.code(), Some(2));
    let lines: Vec<&str> = stderr(&refused).lines().collect();
    assert!(lines.iter().all(|line| line.contains(&format!("worker {free}: "))), "{lines:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused =
        Command::new(THROUGHLINE).args(["worker", "--listen", &address]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains(&format!("cannot listen at {address}")));
}

#[test]
fn a_worker_and_a_coordinator_end_when_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let traces = session(folder.path(), 60, 600);
    let kept = folder.path().join("kept");
    let mut command = Command::new(THROUGHLINE);
    command.args(["worker", "--listen", "127.0.0.1:0", "--threads", "1"]).stdout(Stdio::piped());
    command.env("RUST_LOG", "blocks=debug");
    let mut worker = Running::start(&mut command, "worker", &folder.path().join("worker"));
    let address = worker.line_after("listening at ");
    let start = || {
        let mut command = Command::new(THROUGHLINE);
        command.args(["analyze", "cputop", "--workers", &address, "--blocks", text(&kept)]);
        Running::start(
            command.arg(&traces).stdout(Stdio::null()),
            "coordinator",
            &folder.path().join("log"),
        )
    };
    let mut coordinator = start();
    worker.wait_until_said("block=");
    let status = coordinator.end("INT");
    assert_eq!(status.code(), Some(130), "{}", coordinator.said());
    assert!(coordinator.said().contains("stopped"), "{}", coordinator.said());
    let mut coordinator = start();
    let status = worker.end("TERM");
    assert_eq!(status.code(), Some(0), "{}", worker.said());
    let status = wait_for("the job", || coordinator.child.try_wait().unwrap());
    assert_ne!(status.code(), Some(0), "{}", coordinator.said());
    assert!(coordinator.said().contains(&format!("worker {address}: ")), "{}", coordinator.said());
}
