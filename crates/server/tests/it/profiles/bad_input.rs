//! What nobody should send: each has a status and words, nothing of it is stored, and others do not wait for it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use axum::http::Version;
use intake::Limits;
use prost::Message;
use wire::pyroscope::pprof::{Label, Profile};
use wire::pyroscope::{LabelPair, PushRequest};

use super::store::{NOW, PUSH, Reply, Store, gzip, pprof, push};

const PROTO: &str = "application/proto";
const INGEST: &str = "/ingest?name=shop.cpu&format=pprof";
const OTLP: &str = "/v1development/profiles";

/// A good profile, made wrong.
fn wrong(change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = pprof(&[("work", 1)]);
    change(&mut profile);
    profile
}

/// A store that has taken nothing in the end.
struct Clean(Store);

impl Clean {
    fn start() -> Self {
        // As many bytes as there are: bodies here are large.
        Self(Store::start(Limits { burst_bytes: 1 << 40, ..Limits::default() }))
    }

    fn post(&self, path: &str, kind: &str, body: impl Into<Vec<u8>>) -> Reply {
        let fields = [("content-type", kind), ("accept", "*/*")];
        self.0.post(Version::HTTP_11, path, &fields, body.into())
    }

    /// Fails unless a body is refused so, with these words in JSON.
    fn check(
        &self,
        (path, kind): (&str, &str),
        body: impl Into<Vec<u8>>,
        status: u16,
        words: &str,
    ) {
        let reply = self.post(path, kind, body);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        let said = said["message"].as_str().unwrap();
        assert!(said.contains(words), "{path}: {said}");
    }

    /// As a push of one profile and by `/ingest`.
    fn check_pprof(&self, profile: &Profile, words: &str) {
        self.check((PUSH, PROTO), push("shop", profile).encode_to_vec(), 400, words);
        self.check((INGEST, ""), profile.encode_to_vec(), 422, words);
    }

    fn finish(self) {
        let path = "/querier.v1.QuerierService/Series";
        let reply = self.post(path, "application/json", "{}");
        assert_eq!(
            (reply.status.as_u16(), reply.text().as_str()),
            (200, "{}"),
            "nothing is stored"
        );
    }
}

#[test]
fn gzip_that_is_cut_or_stands_for_too_much_is_refused() {
    let store = Clean::start();
    let profile = pprof(&[("work", 1)]).encode_to_vec();
    let cut = &gzip(&profile)[..profile.len() / 2];
    let damaged = "the compressed bytes are damaged";
    let mut request = push("shop", &Profile::default());
    request.series[0].samples[0].raw_profile = cut.to_vec();
    store.check((PUSH, PROTO), request.encode_to_vec(), 400, damaged);
    store.check((PUSH, PROTO), cut, 400, damaged);
    store.check((INGEST, ""), cut, 422, damaged);
    store.check((OTLP, "application/x-protobuf"), cut, 400, damaged);
    // 10 GiB of zeros in 10 MiB: members of gzip one behind the other are one stream.
    let bomb = gzip(&vec![0; 64 << 20]).repeat(160);
    request.series[0].samples[0].raw_profile = bomb.clone();
    store.check((PUSH, PROTO), request.encode_to_vec(), 400, "more than 4194304 bytes");
    store.check((PUSH, PROTO), bomb.clone(), 400, "more than 268435456 bytes");
    store.check((INGEST, ""), bomb.clone(), 413, "more than 4194304 bytes");
    store.check(("/ingest?name=shop.cpu", ""), bomb.clone(), 413, "more than 33554432 bytes");
    store.check((OTLP, "application/x-protobuf"), bomb, 413, "more than 268435456 bytes");
    store.finish();
    if std::env::var_os(TELLS_PEAK).is_some() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        println!("{}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
    }
}

/// Has the test of bombs say how much memory its process had at most.
const TELLS_PEAK: &str = "THROUGHLINE_TELLS_PEAK";

/// Client, server and bombs in a process of their own.
#[test]
fn bombs_take_little_more_memory_than_a_body_may() {
    let alone = "profiles::bad_input::gzip_that_is_cut_or_stands_for_too_much_is_refused";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([alone, "--exact", "--nocapture"]).env(TELLS_PEAK, "1");
    let ran = command.output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{said}");
    let peak = said.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // Where the same is unpacked whole it is 10 GiB.
    assert!(peak_kib < 2 * (256 << 10), "{peak_kib} KiB");
}

#[test]
fn lengths_that_are_announced_and_do_not_come_are_refused() {
    let store = Clean::start();
    // Field 6, a string of 10 GiB.
    let announced = [0x32, 0x80, 0x80, 0x80, 0x80, 0x28];
    let words = "10737418240 bytes are needed";
    let mut request = push("shop", &Profile::default());
    request.series[0].samples[0].raw_profile = announced.to_vec();
    store.check((PUSH, PROTO), request.encode_to_vec(), 400, words);
    store.check((INGEST, ""), announced, 422, words);
    // A body of more than may be: it is not waited for.
    let mut stream = TcpStream::connect(store.0.address).unwrap();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nhost: {}\r\ncontent-length: 10737418240\r\n\r\n",
        store.0.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = vec![0; 1 << 20];
    let sent = (0..10_240).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!((200..400).contains(&sent), "{sent} MiB were taken");
    store.finish();
}

#[test]
fn references_to_nothing_are_refused() {
    let store = Clean::start();
    let nowhere = "refers to location 99, which is not there";
    store.check_pprof(&wrong(|it| it.sample[0].location_id[0] = 99), nowhere);
    let nowhere = "refers to function 99, which is not there";
    store.check_pprof(&wrong(|it| it.location[0].line[0].function_id = 99), nowhere);
    let nowhere = "refers to string 99, which is not there";
    store.check_pprof(&wrong(|it| it.function[0].name = 99), nowhere);
    store.check_pprof(&wrong(|it| it.location[1].id = 1), "two locations have the id 1");
    // OTLP, where a refused profile is a partial success.
    let request = serde_json::json!({
        "dictionary": { "stackTable": [{}, { "locationIndices": [7] }], "stringTable": ["", "samples", "count"] },
        "resourceProfiles": [{ "scopeProfiles": [{ "profiles": [{
            "sampleType": { "typeStrindex": 1, "unitStrindex": 2 },
            "samples": [{ "stackIndex": 1, "values": ["1"] }],
            "timeUnixNano": NOW.nanos().to_string(),
        }] }] }],
    });
    let reply = store.post(OTLP, "application/json", request.to_string());
    let said = reply.text();
    assert!(said.contains("\"rejectedProfiles\":\"1\"") && said.contains("location 7"), "{said}");
    // What is nested without an end.
    let nested = "[".repeat(1 << 20);
    store.check((OTLP, "application/json"), nested.clone(), 400, "JSON");
    store.check((PUSH, "application/json"), nested.clone(), 400, "JSON");
    store.check(("/ingest?name=shop.cpu&format=speedscope", ""), nested, 422, "JSON");
    store.finish();
}

#[test]
fn a_million_labels_are_refused() {
    let store = Clean::start();
    let mut request: PushRequest = push("shop", &pprof(&[("work", 1)]));
    let label = |n: u32| LabelPair { name: format!("l{n}"), value: "x".to_owned() };
    request.series[0].labels.extend((0..1_000_000).map(label));
    store.check((PUSH, PROTO), request.encode_to_vec(), 400, "1000002 labels; 30 are taken");
    // As many as one profile of 4 MiB has room for.
    let label = Label { key: 1, str: 1, ..Label::default() };
    let many = wrong(|it| it.sample[0].label = vec![label; 600_000]);
    store.check((PUSH, PROTO), push("shop", &many).encode_to_vec(), 400, "more than 100 labels");
    let path = format!("/ingest?name=shop.cpu%7B{}%7D", "a%3D1,".repeat(4_000));
    assert_eq!(store.post(&path, "", "main 1").status, 431, "a head has 16 KiB");
    store.finish();
}

#[test]
fn times_that_are_not_now_are_refused() {
    let store = Clean::start();
    const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;
    let next = wrong(|it| it.time_nanos += YEAR_NS);
    store.check_pprof(&next, "after its arrival; 600 s are taken");
    let last = wrong(|it| it.time_nanos -= YEAR_NS);
    store.check_pprof(&last, "before its arrival; 3600 s are taken");
    let year_s = (NOW.nanos() + YEAR_NS) / 1_000_000_000;
    let path = format!("/ingest?name=shop.cpu&from={year_s}&until={year_s}");
    store.check((&path, ""), "main 1", 422, "after its arrival");
    store.check(("/ingest?name=shop.cpu&from=then", ""), "main 1", 400, "\"then\" is no time");
    store.finish();
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let store = Clean::start();
    let words = "text that is not UTF-8 at byte";
    let broken = |mut bytes: Vec<u8>, text: &[u8]| {
        let at = bytes.windows(text.len()).position(|it| it == text).unwrap();
        bytes[at] = 0xff;
        bytes
    };
    let profile = pprof(&[("work", 1)]);
    store.check((INGEST, ""), broken(profile.encode_to_vec(), b"work"), 422, words);
    let request = push("shop", &profile).encode_to_vec();
    store.check((PUSH, PROTO), broken(request.clone(), b"work"), 400, words);
    store.check((PUSH, PROTO), broken(request, b"shop"), 400, words);
    store.check(("/ingest?name=shop.cpu", ""), b"main;\xff 1".as_slice(), 422, "UTF-8");
    store.check(("/ingest?name=%ff", ""), "main 1", 400, "is not UTF-8");
    store.check((OTLP, "application/json"), b"{\"\xff\":1}".as_slice(), 400, "JSON");
    store.finish();
}

/// More bodies that do not come than requests are worked on at once, and than a page has connections.
#[test]
fn slow_senders_do_not_slow_others() {
    const SLOW: usize = 200;
    let limits = Limits { burst_bytes: 1 << 40, ..Limits::default() };
    let store = Store::start_with(limits, true, |_from, _to| true);
    let begin = || {
        let mut stream = TcpStream::connect(store.address).unwrap();
        let head = format!(
            "POST /ingest?name=shop.cpu HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-scope-orgid: slow\r\ncontent-length: 6\r\n\r\nmai",
            store.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let begun: Vec<TcpStream> = (0..SLOW).map(|_| begin()).collect();
    let body = push("shop", &pprof(&[("work", 1)])).encode_to_vec();
    for tenant in ["slow", "other"] {
        let fields = [("content-type", PROTO), ("x-scope-orgid", tenant)];
        assert_eq!(store.post(Version::HTTP_11, PUSH, &fields, body.clone()).status, 200);
    }
    // All of them were there meanwhile.
    let ends = begun.into_iter().map(|mut stream| {
        stream.write_all(b"n 1").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    });
    assert_eq!(ends.filter(|said| said.starts_with("HTTP/1.1 200")).count(), SLOW);
}

#[test]
fn what_a_page_of_another_site_sends_is_refused() {
    let store = Store::start(Limits::default());
    let path = "/ingest?name=shop.cpu";
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200)] {
        let reply = store.post(Version::HTTP_11, path, &[("sec-fetch-site", site)], "main;work 7");
        assert_eq!(reply.status.as_u16(), status, "{site}: {}", reply.text());
    }
}
