//! A connection without a socket.

use std::sync::Arc;

use osprofiler::{
    Key, Limits, MAX_KEY_LEN, MAX_REPLIES_LEN, MemoryTraces, Next, Page, Password, Session,
    StoreError, TextKey, Traces,
};

use crate::server::request;

fn new() -> MemoryTraces {
    MemoryTraces::new(Limits::default())
}

/// What requests of words are answered on one connection.
fn answers(traces: &mut dyn Traces, requests: &[&str]) -> String {
    let mut session = Session::new(7, None);
    let mut out = Vec::new();
    for words in requests {
        let next = session.feed(&request(&words.split(' ').collect::<Vec<_>>()), traces, &mut out);
        assert_eq!(next, Next::Read);
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_client_of_version_8_says_who_it_is_in_resp3() {
    let said = answers(
        &mut new(),
        &[
            "HELLO 3",
            "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip",
            "CLIENT SETINFO LIB-NAME redis-py",
            "CLIENT ID",
            "GET osprofiler:x",
            "COMMAND DOCS",
        ],
    );
    let map = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:7\r\n\
               $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    let refused = "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n";
    assert_eq!(said, format!("{map}{refused}+OK\r\n:7\r\n_\r\n%0\r\n"));
}

#[test]
fn other_keys_and_what_is_not_done_here_are_refused() {
    let traces = &mut new();
    let refused = |request: &str| answers(&mut new(), &[request]);
    let long = format!("LPUSH osprofiler_opt:{} x", "a".repeat(MAX_KEY_LEN));
    for request in [
        "GET a",
        "SET a b",
        "LPUSH a b",
        "LRANGE osprofiler_opt 0 -1",
        "LLEN osprofiler_opt:",
        &long,
    ] {
        assert!(refused(request).starts_with("-ERR only keys of OSProfiler"), "{request}");
    }
    assert!(answers(traces, &["DEL osprofiler_opt:a"]).starts_with("-ERR traces are not deleted"));
    assert_eq!(refused("SET osprofiler:a b EX 10"), "-ERR syntax error\r\n");
    assert_eq!(refused("SET osprofiler_opt:a b").split(' ').next(), Some("-WRONGTYPE"));
    for pattern in ["a?", "*a*", "[a]*", "a\\**"] {
        let said = refused(&format!("SCAN 0 MATCH {pattern}"));
        assert_eq!(said, "-ERR only a prefix and '*' can be matched\r\n");
    }
    assert!(refused("INFO").contains("redis_version:7.0.0\r\n"));
}

/// A store that takes nothing.
struct Full;

impl Traces for Full {
    fn push(&mut self, _: &str, _: &[u8]) -> Result<usize, StoreError> {
        Err(StoreError::Full)
    }

    fn set(&mut self, _: TextKey<'_>, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::Unavailable("no disk".into()))
    }

    fn get(&self, _: TextKey<'_>) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(None)
    }

    fn len(&self, _: &str) -> Result<usize, StoreError> {
        Ok(0)
    }

    fn range(&self, _: &str, _: std::ops::Range<usize>) -> Result<Vec<Arc<[u8]>>, StoreError> {
        Ok(Vec::new())
    }

    fn keys(&self, _: &str, _: u64, _: usize) -> Result<Page, StoreError> {
        Ok(Page::default())
    }
}

#[test]
fn a_full_store_is_told_as_redis_does_and_the_connection_goes_on() {
    let said = answers(&mut Full, &["LPUSH osprofiler_opt:a x", "SET osprofiler:a x", "PING"]);
    let full = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(said, format!("{full}-ERR the store does not answer: no disk\r\n+PONG\r\n"));
}

#[test]
fn a_scan_over_changing_keys_gives_each_that_stays_once() {
    let mut traces = new();
    for number in 0..2000 {
        traces.push(&format!("{number:04}"), b"{}").unwrap();
        traces.set(TextKey::Notification(&format!("{number:04}")), b"{}").unwrap();
    }
    let (mut cursor, mut found, mut calls) = (0, Vec::new(), 0);
    loop {
        let request = format!("SCAN {cursor} MATCH osprofiler_opt:*");
        let said = answers(&mut traces, &[&request]);
        let mut lines = said.split("\r\n").filter(|line| !line.starts_with(['*', '$']));
        cursor = lines.next().unwrap().parse::<u64>().unwrap();
        found.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        traces.push(&format!("more-{calls}"), b"{}").unwrap();
        calls += 1;
        if cursor == 0 {
            break;
        }
    }
    let staying = found.iter().filter(|key| !key.contains("more"));
    let expected = (0..2000).map(|number| format!("osprofiler_opt:{number:04}"));
    assert!(staying.eq(&expected.collect::<Vec<_>>()), "{} keys", found.len());
    assert!((10..30).contains(&calls), "{calls} calls");
    let page = traces.keys("", u64::MAX, 9).unwrap();
    assert_eq!(page, Page::default());
    assert!(answers(&mut traces, &["SCAN 0 COUNT 100000"]).lines().count() < 2 * 1024 + 8);
}

#[test]
fn replies_wait_until_they_are_written() {
    let mut traces = new();
    traces.push("a", &vec![b'x'; 1 << 20]).unwrap();
    let asked = request(&["LRANGE", "osprofiler_opt:a", "0", "-1"]).repeat(20);
    let (mut session, mut out) = (Session::new(1, None), Vec::new());
    let (mut next, mut rounds, mut len) = (session.feed(&asked, &mut traces, &mut out), 0, 0);
    while next == Next::Write {
        assert!(out.len() < MAX_REPLIES_LEN + (2 << 20));
        (rounds, len) = (rounds + 1, len + out.len());
        out.clear();
        next = session.feed(&[], &mut traces, &mut out);
    }
    assert_eq!((next, rounds, (len + out.len()) >> 20), (Next::Read, 5, 20));
}

#[test]
fn strangers_are_told_nothing_and_passwords_are_not_shown() {
    let password = Arc::new(Password::new("pass"));
    let (mut session, mut out) = (Session::new(1, Some(password)), Vec::new());
    assert!(!format!("{session:?}").contains("pass\""));
    let mut say = |words: &[&str]| {
        out.clear();
        assert_eq!(session.feed(&request(words), &mut new(), &mut out), Next::Read);
        String::from_utf8(out.clone()).unwrap()
    };
    assert_eq!(say(&["LLEN", "osprofiler_opt:a"]), "-NOAUTH Authentication required.\r\n");
    for wrong in ["", "pas", "pass ", "PASS"] {
        assert!(say(&["AUTH", wrong]).starts_with("-WRONGPASS"), "{wrong}");
    }
    assert_eq!(say(&["AUTH", "default", "pass"]), "+OK\r\n");
    assert_eq!(say(&["LLEN", "osprofiler_opt:a"]), ":0\r\n");
    assert_eq!(say(&["ECHO", &"x".repeat(20_000)]).len(), 20_010);
    assert_eq!(say(&["RESET"]), "+RESET\r\n");
    assert_eq!(say(&["PING"]), "-NOAUTH Authentication required.\r\n");
}

#[test]
fn nothing_is_acted_on_behind_the_end() {
    for end in [&b"QUIT\r\n"[..], b"*x\r\n", b"POST / HTTP/1.1\r\n"] {
        let (mut traces, mut out, mut session) = (new(), Vec::new(), Session::new(1, None));
        let bytes = [end, b"LPUSH osprofiler_opt:a x\r\n"].concat();
        assert_eq!(session.feed(&bytes, &mut traces, &mut out), Next::Close);
        assert_eq!(
            session.feed(b"LPUSH osprofiler_opt:a x\r\n", &mut traces, &mut out),
            Next::Close
        );
        assert_eq!(traces.len("a").unwrap(), 0);
        assert!(out.iter().filter(|byte| **byte == b'\n').count() < 2);
    }
}

#[test]
fn mutated_conversations_never_panic() {
    let whole: Vec<u8> = [
        "HELLO 3 AUTH default a SETNAME b",
        "LPUSH osprofiler_opt:a x y",
        "SCAN 0 MATCH osprofiler* COUNT 7",
        "LRANGE osprofiler_opt:a -9 9",
        "LINDEX osprofiler_opt:a 1",
        "SET osprofiler_error:a x",
        "EXISTS osprofiler_opt:a a",
        "CLIENT SETNAME x",
    ]
    .iter()
    .flat_map(|words| request(&words.split(' ').collect::<Vec<_>>()))
    .collect();
    let mut random = fastrand::Rng::with_seed(3);
    let mut traces = new();
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        let (mut session, mut out) = (Session::new(1, None), Vec::new());
        let _next = session.feed(&bytes, &mut traces, &mut out);
        assert!(out.is_empty() || out.ends_with(b"\r\n"));
    }
}

#[test]
fn keys_are_those_of_osprofiler() {
    for (text, key) in [
        ("osprofiler_opt:a", Some(Key::Trace("a"))),
        ("osprofiler_error:a:b", Some(Key::Text(TextKey::Error("a:b")))),
        ("osprofiler:a", Some(Key::Text(TextKey::Notification("a")))),
        ("osprofiler:", None),
        ("osprofiler", None),
        ("osprofiler_optx:a", None),
        ("Osprofiler:a", None),
    ] {
        assert_eq!(Key::parse(text.as_bytes()), key, "{text}");
        assert!(key.is_none_or(|key| key.to_string() == text));
    }
    assert_eq!(Key::parse(b"osprofiler:\xff"), None);
}
