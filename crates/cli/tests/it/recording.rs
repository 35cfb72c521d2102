//! `throughline agent --record` and `throughline ledger`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use testkit::wait_for;
use tracepoint::{Options, tracepoint};

use crate::process::{Running, THROUGHLINE};
use crate::read::{stderr, stdout};

const RECORDS: u64 = 1_000;

fn throughline(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(THROUGHLINE).args(arguments).current_dir(folder).output().unwrap()
}

/// How many records the ledger of a folder knows of.
fn stored(folder: &Path) -> u64 {
    let output = throughline(folder, &["ledger", "--format", "json"]);
    let ledger = serde_json::from_slice::<serde_json::Value>(&output.stdout);
    ledger.map_or(0, |ledger| ledger["stored"].as_u64().unwrap())
}

#[test]
fn an_agent_keeps_what_an_application_records_and_the_ledger_says_yes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(
        path.join("agent.toml"),
        "[agent]\nrecord = ['json:lines']\nrings = 'sock/rings.sock'\n",
    )
    .unwrap();
    let mut command = Command::new(THROUGHLINE);
    command.args(["agent", "--config", "agent.toml", "--redis", "127.0.0.1:0"]).current_dir(path);
    let mut agent = Running::start(&mut command, "agent", &path.join("agent.log"));
    agent.wait_until_said("agent: notifications of OSProfiler at redis://127.0.0.1:");
    // This process is the application.
    let socket = path.join("sock/rings.sock");
    assert!(tracepoint::start(Options {
        socket,
        service: "shop".to_owned(),
        ..Options::default()
    }));
    for number in 0..RECORDS {
        tracepoint!("order", number: u64 = number);
    }
    wait_for("all records", || (stored(path) == RECORDS).then_some(()));
    assert!(agent.end("TERM").success(), "{}", agent.said());
    assert!(agent.said().contains("agent: shop: 1000 records stored of 1000"), "{}", agent.said());
    let lines = fs::read_dir(path.join("lines")).unwrap().map(|it| it.unwrap().path());
    let text: String = lines.map(|it| fs::read_to_string(it).unwrap()).collect();
    assert_eq!(text.lines().count() as u64, RECORDS);
    assert!(text.contains(r#""name":"order""#) && text.contains(r#""fields":{"number":999}"#));
    let ledger = throughline(path, &["ledger"]);
    assert_eq!(ledger.status.code(), Some(0), "{}", stderr(&ledger));
    let said = stdout(&ledger);
    assert!(said.contains("every record is accounted for: yes"), "{said}");
    assert!(
        said.lines().any(|line| line.starts_with("shop ") && line.contains(" 1000 ")),
        "{said}"
    );
}

#[test]
fn what_cannot_be_recorded_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let output = throughline(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&["ledger", "--journal", "nowhere"], "no ledger in nowhere");
    refused(&["agent"], "--send");
    refused(&["agent", "--record", "ftp://host"], "json:FOLDER");
    refused(&["agent", "--record", "http://a:b@host"], "can be read by others");
    let rings = ["--rings", "rings.sock"];
    refused(&[&["agent", "--redis", "0.0.0.0:0"][..], &rings].concat(), "needs a password");
    fs::write(folder.path().join("open"), "secret").unwrap();
    let open = ["agent", "--redis", "127.0.0.1:0", "--redis-password-file", "open"];
    refused(&[&open[..], &rings].concat(), "cannot use open");
    fs::write(folder.path().join("file"), "").unwrap();
    let record = ["agent", "--record", "json:file", "--journal", "j"];
    refused(&[&record[..], &rings].concat(), "cannot make the folder file");
}
