//! Real peers: OSProfiler writes and reads through clients of Redis, and a server of Redis is asked the same.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use osprofiler::{Keys, Limits, MemoryTraces, Notification, Point, Span, Spans, Traces, Value};

use crate::server::{exchange, redis, request, serve};

/// As many traces are compared by each version, unless `OSPROFILER_TRACES` says how many.
const TRACES: &str = "60";

fn new() -> Arc<Mutex<MemoryTraces>> {
    Arc::new(Mutex::new(MemoryTraces::new(Limits::default())))
}

/// Interpreters with OSProfiler.
fn pythons() -> Vec<PathBuf> {
    let pythons = std::env::var_os("THROUGHLINE_OSPROFILER_PYTHONS").unwrap_or_default();
    std::env::split_paths(&pythons).filter(|path| path.exists()).collect()
}

#[test]
fn osprofiler_shows_and_lists_the_same_as_from_redis() {
    let pythons = pythons();
    if pythons.is_empty() {
        return testkit::skip("OSProfiler is not installed");
    }
    for (seed, python) in pythons.iter().enumerate() {
        // One of them with a password.
        let password = (seed % 2 == 1).then_some("pass");
        let folder = tempfile::tempdir().unwrap();
        let Some((_server, real)) = redis(folder.path(), password) else { return };
        let traces = new();
        let ours = serve(&traces, password);
        let secret = password.map_or(String::new(), |password| format!(":{password}@"));
        let urls = [ours, real].map(|address| format!("redis://{secret}{address}/0"));
        let said = run(python, &urls, seed);
        check(&said, &traces.lock().unwrap());
        let [traces, notifications, shown] =
            ["traces", "notifications", "shown"].map(|name| &said[name]);
        println!("{traces} traces of {notifications} notifications, shown {shown} times");
    }
}

/// Has OSProfiler compare; its account of that.
fn run(python: &Path, urls: &[String; 2], seed: usize) -> serde_json::Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/peer.py");
    let traces = std::env::var("OSPROFILER_TRACES").unwrap_or_else(|_unset| TRACES.to_owned());
    let mut command = Command::new(python);
    let output = command.arg(script).args(urls).args([traces, seed.to_string()]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", python.display());
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// All that came is understood, and the signatures fit.
fn check(said: &serde_json::Value, traces: &MemoryTraces) {
    let count = |name: &str| said[name].as_u64().unwrap() as usize;
    let keys = traces.keys("osprofiler_opt:", 0, usize::MAX).unwrap().keys;
    assert_eq!(keys.len(), count("traces") + 1);
    // Three forms of each, and most in the fourth; two lists, and the list of none.
    assert!(count("shown") >= count("traces") * 7 / 2 + 3, "{}", said["shown"]);
    let (mut spans, mut out, mut ends, mut all) = (Spans::default(), Vec::new(), 0, 0);
    for key in &keys {
        let base_id = key.strip_prefix("osprofiler_opt:").unwrap();
        let stored = traces.range(base_id, 0..usize::MAX).unwrap();
        let parsed = stored.iter().rev().map(|bytes| Notification::parse(bytes).unwrap());
        for (notification, bytes) in parsed.zip(stored.iter().rev()) {
            assert_eq!(notification.raw().as_bytes(), &**bytes);
            assert_eq!(format!("{:032x}", notification.base_id), base_id.replace('-', ""));
            all += 1;
            ends += usize::from(notification.point == Point::Stop);
            spans.add(&notification, &mut out);
        }
    }
    // Of the service there are two points more.
    assert_eq!((all, ends), (count("notifications") + 4, count("stops") + 2));
    assert_eq!((out.len(), spans.len()), (ends, count("starts") - count("stops")));
    assert!(out.iter().any(|span| span.is_error) && count("errors") > 0);
    let ids: HashSet<_> = out.iter().map(|span| (span.trace_id, span.span_id)).collect();
    assert_eq!(ids.len(), out.len());
    let by_id: HashMap<_, _> = out.iter().map(|span| (span.span_id, span)).collect();
    let is_as_said = |it: &&serde_json::Value| is_as_said(it, &by_id);
    assert!(said["spans"].as_array().unwrap().iter().filter(is_as_said).count() > ends / 2);
    for header in said["headers"].as_array().unwrap() {
        let [info, hmac, key, base_id, parent_id] =
            [0, 1, 2, 3, 4].map(|at| header[at].as_str().unwrap());
        let info = Keys::parse(&format!("other,{key}")).check(info, hmac).unwrap();
        assert_eq!(info.key, 1);
        let ids = [info.base_id, info.parent_id].map(|id| format!("{id:032x}"));
        assert_eq!(ids, [base_id, parent_id]);
    }
}

/// Compares a span's begin with what the driver for OTLP makes of it; whether it has ended.
fn is_as_said(said: &serde_json::Value, spans: &HashMap<u64, &Span>) -> bool {
    let id = said[0].as_str().unwrap().replace('-', "");
    let id = u128::from_str_radix(&id, 16).unwrap() as u64;
    let Some(span) = spans.get(&id) else { return false };
    assert_eq!(said[1], span.name);
    assert_eq!(said[2], format!("{:?}", span.kind));
    let at_end = ["result", "status_code", "error", "error.kind", "message"];
    let begun = span.attributes.iter().filter(|(name, _)| !at_end.contains(name));
    let begun = begun.map(|(name, value)| ((*name).to_owned(), json(value)));
    assert_eq!(said[3], serde_json::Value::Object(begun.collect()));
    true
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Int(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Bool(is_so) => (*is_so).into(),
        Value::Json(text) => serde_json::from_str(text).unwrap(),
    }
}

/// In this order, each on a connection of its own.
const SAME: &[&str] = &[
    "PING",
    "ping",
    "PING text",
    "PING a b",
    "ECHO text",
    "ECHO",
    "LLEN osprofiler_opt:a",
    "LRANGE osprofiler_opt:a 0 -1",
    "LINDEX osprofiler_opt:a 0",
    "TYPE osprofiler_opt:a",
    "GET osprofiler_opt:a",
    "LPUSH osprofiler_opt:a",
    "LPUSH osprofiler_opt:a one",
    "lpush osprofiler_opt:a two three four",
    "LLEN osprofiler_opt:a",
    "LRANGE osprofiler_opt:a 0 -1",
    "LRANGE osprofiler_opt:a 0 0",
    "LRANGE osprofiler_opt:a 1 2",
    "LRANGE osprofiler_opt:a -2 -1",
    "LRANGE osprofiler_opt:a -100 100",
    "LRANGE osprofiler_opt:a 2 1",
    "LRANGE osprofiler_opt:a 4 9",
    "LRANGE osprofiler_opt:a -9 -5",
    "LRANGE osprofiler_opt:a -9 -4",
    "LRANGE osprofiler_opt:a 0 9223372036854775807",
    "LRANGE osprofiler_opt:a -9223372036854775808 -1",
    "LRANGE osprofiler_opt:a 0 9223372036854775808",
    "LRANGE osprofiler_opt:a 0 x",
    "LRANGE osprofiler_opt:a 00 +1",
    "LRANGE osprofiler_opt:a 0",
    "LINDEX osprofiler_opt:a 0",
    "LINDEX osprofiler_opt:a 1",
    "LINDEX osprofiler_opt:a -1",
    "LINDEX osprofiler_opt:a -4",
    "LINDEX osprofiler_opt:a -5",
    "LINDEX osprofiler_opt:a 4",
    "LINDEX osprofiler_opt:a x",
    "GET osprofiler_opt:a",
    "GET osprofiler_error:a",
    "SET osprofiler_error:a text",
    "SET osprofiler_error:a other",
    "SET osprofiler:a legacy",
    "SET osprofiler_error:a",
    "SET osprofiler_error:a b c",
    "GET osprofiler_error:a",
    "GET osprofiler:a",
    "GET",
    "LPUSH osprofiler_error:a one",
    "LRANGE osprofiler_error:a 0 -1",
    "LINDEX osprofiler_error:a 0",
    "LLEN osprofiler_error:a",
    "TYPE osprofiler_error:a",
    "TYPE osprofiler_opt:a",
    "EXISTS osprofiler_opt:a osprofiler_opt:b osprofiler_opt:a osprofiler:a",
    "SCAN 0 MATCH osprofiler_opt:*",
    "SCAN 0 MATCH osprofiler_opt:a COUNT 100",
    "SCAN 0 MATCH osprofiler:*",
    "SCAN 0 match nothing*",
    "SCAN x",
    "SCAN",
    "SCAN 0 COUNT 0",
    "SCAN 0 COUNT x",
    "SCAN 0 MATCH",
    "SCAN 0 FOO bar",
    "SELECT 3",
    "SELECT 16",
    "SELECT -1",
    "SELECT x",
    "AUTH a",
    "AUTH default a",
    "AUTH other a",
    "AUTH a b c",
    "HELLO 1",
    "HELLO 4",
    "HELLO x",
    "HELLO 2 FOO",
    "HELLO 3 AUTH other a",
    "CLIENT",
    "CLIENT GETNAME",
    "CLIENT GETNAME x",
    "CLIENT SETNAME a",
    "CLIENT SETNAME a\u{1}",
    "CLIENT SETNAME",
    "CLIENT FOO bar",
    "RESET",
    "QUIT",
    "FOO",
    "FOO bar baz",
    "POST x",
    "Host: x",
];

/// Bytes that are not plain requests.
const SAME_BYTES: &[&[u8]] = &[
    b"PING\r\n",
    b"  PING   text \nECHO a\r\n",
    b"\r\n\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*x\r\n",
    b"*\r\n",
    b"*99999999999\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n$9999999999\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nPING\r\n$1\r\na\r\n",
    b"*2\r\n$3\r\nFOO\r\n$3\r\na\rb\r\n",
    b"CLIENT SETNAME a\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\n",
    b"HELLO\r\nX\r\n",
    b"GET osprofiler:b\r\nHELLO 3 SETNAME n\r\nGET osprofiler:b\r\nCLIENT GETNAME\r\nRESET\r\nGET osprofiler:b\r\n",
];

/// Without the map that says which server it is.
fn without_map(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said).into_owned();
    let Some((before, map)) = said.split_once("$6\r\nserver\r\n") else { return said };
    let (_, after) = map.split_once("$7\r\nmodules\r\n*0\r\n").expect("the last of it");
    format!("{before}…{after}")
}

#[test]
fn a_server_of_redis_answers_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, real)) = redis(folder.path(), None) else { return };
    let ours = serve(&new(), None);
    let words = SAME.iter().map(|words| request(&words.split(' ').collect::<Vec<_>>()));
    let long = ["FOO".to_owned(), "a".repeat(100), "b".repeat(100), "c".to_owned()];
    let long = [request(&long.each_ref().map(String::as_str)), request(&[&"F".repeat(300)])];
    let bytes = SAME_BYTES.iter().map(|bytes| bytes.to_vec());
    for bytes in words.chain(long).chain(bytes) {
        let [ours, real] = [ours, real].map(|address| without_map(&exchange(address, &bytes)));
        assert_eq!(ours, real, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_server_of_redis_with_a_password_answers_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_server, real)) = redis(folder.path(), Some("pass")) else { return };
    let ours = serve(&new(), Some("pass"));
    let many = format!("*11\r\n{}", "$1\r\na\r\n".repeat(11));
    for text in [
        "PING\r\n",
        "FOO\r\n",
        "GET\r\n",
        "AUTH x\r\nPING\r\n",
        "AUTH pass\r\nPING\r\nRESET\r\nPING\r\n",
        "AUTH default pass\r\nPING\r\n",
        "AUTH other pass\r\nPING\r\n",
        "HELLO 3\r\nPING\r\n",
        "HELLO\r\nPING\r\n",
        "HELLO 3 AUTH default x\r\nPING\r\n",
        "HELLO 3 AUTH default pass\r\nGET osprofiler:b\r\n",
        "QUIT\r\n",
        many.as_str(),
        "*1\r\n$16385\r\n",
    ] {
        // Later versions say more.
        let plain = |said: String| said.replace("<proto> ", "");
        let answers = [ours, real].map(|it| plain(without_map(&exchange(it, text.as_bytes()))));
        assert_eq!(answers[0], answers[1], "{text}");
    }
}
