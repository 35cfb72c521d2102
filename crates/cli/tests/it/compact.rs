//! Merges that are done beside a store, by workers that live, die and dawdle.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::wait_for;

use crate::process::{Running, THROUGHLINE};
use crate::read::stderr;
use crate::store::{Door, Store};

/// A store that gives out its merges.
pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) port: u16,
}

impl Shop {
    pub(crate) fn start(data: &Path) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let workers = format!("127.0.0.1:{port}");
        let store = Store::start(data, &["--cell", "1s", "--workers", &workers]);
        Self { store, port }
    }

    fn worker(&self, data: &Path, log: &Path) -> Running {
        let mut command = Command::new(THROUGHLINE);
        command.args(["compact", "--store", &format!("http://127.0.0.1:{}", self.port), "--data"]);
        Running::start(command.arg(data).stdout(Stdio::null()), "worker", log)
    }

    /// What a worker says, and what it is answered.
    fn ask(&self, path: &str, body: &Value) -> (u16, Value) {
        let door = Door { url: format!("http://127.0.0.1:{}", self.port) };
        let (path, field) = (format!("/compaction/v1/{path}"), "Content-Type: application/json");
        let (status, text) = door.post(&path, &[field], body.to_string().as_bytes());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// As it was a moment ago.
    fn metric(&self, sample: &str) -> u64 {
        // Nothing is told before the first look at all blocks.
        let value = wait_for("metrics", || {
            let text = self.store.get("/metrics");
            text.lines().find_map(|line| line.strip_prefix(sample)).map(str::to_owned)
        });
        value.trim().parse().unwrap()
    }

    fn done_by(&self, who: &str) -> u64 {
        self.metric(&format!("throughline_compaction_done_jobs_total{{by=\"{who}\"}}"))
    }

    pub(crate) fn push(&self, count: u64) {
        let (status, said) = self.store.push("shop", &[], &format!("main;serve {count}\n"));
        assert_eq!(status, 200, "{said}");
    }

    pub(crate) fn wait_for_merges_by(&self, who: &str, least: u64) {
        wait_for("merges", || (self.done_by(who) >= least).then_some(()));
    }
}

#[test]
fn workers_merge_what_came_and_whoever_is_killed_it_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let shop = Shop::start(&data);
    let log = |name: &str| folder.path().join(name);
    let mut first = shop.worker(&data, &log("first"));
    shop.push(10);
    shop.wait_for_merges_by("worker", 1);
    let mut second = shop.worker(&data, &log("second"));
    first.end("KILL");
    for count in 1..=20 {
        shop.push(count);
    }
    shop.wait_for_merges_by("worker", 2);
    assert_eq!(shop.store.total("shop"), 2_200_000_000);
    assert_eq!(second.end("TERM").code(), Some(0), "{}", second.said());
    // Without any of them all goes on.
    shop.push(1);
    shop.wait_for_merges_by("store", 1);
    assert_eq!(shop.store.total("shop"), 2_210_000_000);
}

#[test]
fn a_worker_that_takes_a_job_and_is_silent_holds_up_nothing_and_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let shop = Shop::start(&data);
    // It is there before anything is to be done, so that it gets the job.
    assert_eq!(shop.ask("take", &json!(null)).0, 204);
    shop.push(30);
    let given = wait_for("a job", || {
        let (status, given) = shop.ask("take", &json!(null));
        (status == 200).then_some(given)
    });
    let begin = Instant::now();
    let lease = &given["lease"];
    assert_eq!(given["job"]["level"], 1);
    assert_eq!(shop.ask("renew", &json!({ "lease": lease })).0, 200);
    assert_eq!(shop.store.total("shop"), 300_000_000, "it is there while it is merged");
    shop.wait_for_merges_by("store", 1);
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    assert_eq!(shop.metric("throughline_compaction_undone_jobs_total{reason=\"ended\"}"), 1);
    assert_eq!(shop.ask("renew", &json!({ "lease": lease })).0, 409);
    // What it made at last is the same block, and is told too late.
    let source = given["job"]["sources"][0].as_str().unwrap();
    let done = json!({ "block": source.replacen("-0-", "-1-", 1), "sums": null });
    let (status, said) = shop.ask("finish", &json!({ "lease": lease, "done": done }));
    assert_eq!((status, said), (409, json!("the lease on the job has ended\n")));
    assert_eq!(shop.store.total("shop"), 300_000_000);
    shop.push(1);
    shop.wait_for_merges_by("store", 2);
    assert_eq!(shop.store.total("shop"), 310_000_000);
}

#[test]
fn a_result_that_is_of_something_else_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let shop = Shop::start(&data);
    assert_eq!(shop.ask("take", &json!(null)).0, 204);
    shop.push(30);
    let given = wait_for("a job", || {
        let (status, given) = shop.ask("take", &json!(null));
        (status == 200).then_some(given)
    });
    // The block itself says that it stands for none.
    let source = &given["job"]["sources"][0];
    let done = json!({ "block": source, "sums": null });
    let (status, said) = shop.ask("finish", &json!({ "lease": given["lease"], "done": done }));
    assert_eq!(status, 409);
    assert!(said.as_str().unwrap().ends_with("is of another job\n"), "{said}");
    shop.wait_for_merges_by("store", 1);
    assert_eq!(shop.store.total("shop"), 300_000_000);
    for (path, body, expected) in [
        ("renew", json!({ "lease": "none" }), 400),
        ("renew", json!({ "lease": 7 }), 422),
        ("finish", json!({ "lease": "1-1", "done": { "block": "../x", "sums": null } }), 422),
        ("other", json!(null), 404),
    ] {
        let (status, said) = shop.ask(path, &body);
        assert_eq!(status, expected, "{path} {body}: {said}");
    }
}

#[test]
fn a_worker_with_another_place_says_so_and_the_store_merges_itself() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let shop = Shop::start(&data);
    let mut worker = shop.worker(&folder.path().join("other"), &folder.path().join("log"));
    shop.push(30);
    wait_for("what the worker says", || {
        worker.said().contains("a merge could not be done: block ").then_some(())
    });
    assert!(worker.said().contains(" is not there"), "{}", worker.said());
    shop.wait_for_merges_by("store", 1);
    assert_eq!(shop.store.total("shop"), 300_000_000);
    assert_eq!(worker.end("TERM").code(), Some(0));
}

#[test]
fn arguments_that_make_no_sense_are_named() {
    for (arguments, expected) in [
        (["--store", "shop", "--data", "x"].as_slice(), "--store: not as http://HOST:PORT: shop"),
        (&["--store", "http://127.0.0.1:1", "--data", "x", "--jobs", "1000"], "--jobs: 64 at most"),
    ] {
        let output = Command::new(THROUGHLINE).arg("compact").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
