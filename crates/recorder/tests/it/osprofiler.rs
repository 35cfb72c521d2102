//! Notifications of OSProfiler, over a connection and through rings.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use recorder::{Recorder, Redis};
use testkit::osprofiler::{driver_python, succeeds};

use crate::{lines, settings};

const DRIVER: &str = "throughline://?socket=";

fn start(folder: &Path, password: Option<&str>) -> (Recorder, SocketAddr) {
    let mut settings = settings(folder, &[]);
    let address = "127.0.0.1:0".parse().unwrap();
    settings.redis = Some(Redis { address, password: password.map(str::to_owned) });
    let recorder = Recorder::start(settings).unwrap();
    let address = recorder.redis_address().unwrap();
    (recorder, address)
}

/// What a client of Redis sends for a command.
fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>()).into_bytes()
}

/// Sends commands, and gives what is answered until the other side hangs up.
pub(crate) fn talk(address: SocketAddr, commands: &[&[&str]]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    for words in commands {
        stream.write_all(&command(words)).unwrap();
    }
    stream.write_all(&command(&["QUIT"])).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_was_answered_is_there_after_a_restart_and_a_line_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, address) = start(folder.path(), None);
    let key = "osprofiler_opt:a";
    let pushed = talk(address, &[&["LPUSH", key, "{\"n\": 1}"], &["LPUSH", key, "{\"n\": NaN}"]]);
    assert_eq!(pushed, ":1\r\n:2\r\n+OK\r\n");
    assert_eq!(talk(address, &[&["SET", "osprofiler_error:a", "{}"]]), "+OK\r\n+OK\r\n");
    recorder.stop(Duration::from_secs(30)).unwrap();
    let (recorder, address) = start(folder.path(), None);
    let answer = talk(address, &[&["LRANGE", key, "0", "-1"], &["GET", "osprofiler_error:a"]]);
    assert_eq!(answer, "*2\r\n$10\r\n{\"n\": NaN}\r\n$8\r\n{\"n\": 1}\r\n$2\r\n{}\r\n+OK\r\n");
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up(), "{ledger:?}");
    assert_eq!(ledger.services["(redis)"].stored, 3);
    let lines = lines(folder.path());
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["notification"]["n"]),
        (&"notification".into(), &1.into())
    );
    assert_eq!(lines[1]["text"], "{\"n\": NaN}");
    assert_eq!(
        (&lines[2]["kind"], &lines[2]["key"]),
        (&"text".into(), &"osprofiler_error:a".into())
    );
}

#[test]
fn who_does_not_know_the_password_is_answered_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, address) = start(folder.path(), Some("secret"));
    let push: &[&str] = &["LPUSH", "osprofiler_opt:a", "{}"];
    assert!(talk(address, &[push]).starts_with("-NOAUTH"));
    assert!(talk(address, &[&["AUTH", "wrong"], push]).starts_with("-WRONGPASS"));
    assert_eq!(talk(address, &[&["AUTH", "secret"], push]), "+OK\r\n:1\r\n+OK\r\n");
    assert_eq!(recorder.stop(Duration::from_secs(30)).unwrap().stored, 1);
}

/// Runs the service; gives its traces with what it notified of each, in order.
fn serve(python: &Path, folder: &Path, connection: &str) -> BTreeMap<String, Vec<String>> {
    let told = folder.join("told");
    let mut service = Command::new(python);
    service.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/python/service.py"));
    service.arg(connection).arg(&told).arg("20");
    service.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut service = service.spawn().unwrap();
    let mut traces = BTreeMap::new();
    for line in BufReader::new(service.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("trace ") {
            Some(base_id) => drop(traces.insert(base_id.to_owned(), Vec::new())),
            None => break,
        }
    }
    drop(service.stdin.take());
    assert!(service.wait().unwrap().success());
    for line in std::fs::read_to_string(&told).unwrap().lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        traces.get_mut(json["base_id"].as_str().unwrap()).unwrap().push(line.to_owned());
    }
    traces
}

/// What a list has, the oldest first.
fn list(address: SocketAddr, base_id: &str) -> Vec<String> {
    let key = format!("osprofiler_opt:{base_id}");
    let answer = talk(address, &[&["LRANGE", &key, "0", "-1"]]);
    let mut list: Vec<String> =
        answer.split("\r\n").filter(|it| it.starts_with('{')).map(str::to_owned).collect();
    list.reverse();
    list
}

#[test]
fn traces_of_a_service_are_shown_by_osprofiler_whichever_way_they_came() {
    let Some(python) = driver_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (recorder, address) = start(folder.path(), None);
    let redis = format!("redis://{address}/0");
    let rings = format!("{DRIVER}{}", folder.path().join("rings.sock").display());
    let mut all = serve(python, folder.path(), &redis);
    all.extend(serve(python, folder.path(), &rings));
    let total: usize = all.values().map(Vec::len).sum();
    while recorder.ledger().services.values().map(|it| it.ended).sum::<u64>() == 0 {
        std::thread::yield_now();
    }
    // Over a restart, too.
    recorder.stop(Duration::from_secs(30)).unwrap();
    let (recorder, address) = start(folder.path(), None);
    for (base_id, expected) in &all {
        assert_eq!(list(address, base_id), *expected, "{base_id}");
    }
    let first = all.keys().next().unwrap();
    let shown = |connection: &str| {
        let mut command = Command::new(python);
        command.args(["-m", "osprofiler.cmd.shell", "trace", "show", "--json", first]);
        succeeds(command.args(["--connection-string", connection]))
    };
    let report: serde_json::Value =
        serde_json::from_str(&shown(&format!("redis://{address}/0"))).unwrap();
    assert_eq!(report["children"][0]["info"]["name"], "wsgi");
    assert_eq!(report["stats"]["wsgi"]["count"], 1);
    let notified = lines(folder.path()).into_iter().map(|line| match &line["kind"] {
        kind if kind == "notification" => line["notification"].clone(),
        _ => serde_json::from_str(line["fields"]["json"].as_str().unwrap()).unwrap(),
    });
    let all: Vec<serde_json::Value> = notified.collect();
    assert!(all.len() == total && all.iter().all(|it| it["project"] == "shop"));
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up() && ledger.stored == total as u64, "{total} {ledger:?}");
}
