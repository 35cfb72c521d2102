//! One handler behind three framings.

use std::io::Read as _;

use axum::http::{Request, Version};
use http_body_util::Full;
use intake::Limits;
use prost::Message;
use wire::pyroscope::SelectMergeStacktracesResponse;
use wire::pyroscope::grpc::{frame, unframe};

use super::store::{PUSH, Reply, STACKS, Store, gzip, pprof, push, question};

const GRPC: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];
const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

fn grpc(store: &Store, path: &str, fields: &[(&str, &str)], message: &[u8]) -> Reply {
    let fields = [&GRPC, fields].concat();
    store.post(Version::HTTP_2, path, &fields, frame(message, false))
}

fn graph(message: &[u8]) -> (i64, Vec<String>) {
    let graph = SelectMergeStacktracesResponse::decode(message).unwrap().flamegraph.unwrap();
    (graph.total, graph.names)
}

#[test]
fn pushes_and_questions_are_the_same_in_every_framing() {
    let store = Store::start(Limits::default());
    let body = |value| push("shop", &pprof(&[("work", value)])).encode_to_vec();
    let proto = [("content-type", "application/proto")];
    for version in [Version::HTTP_11, Version::HTTP_2] {
        assert_eq!(store.post(version, PUSH, &proto, body(1)).status, 200);
    }
    let reply = grpc(&store, PUSH, &[], &body(2));
    assert_eq!((reply.status.as_u16(), reply.trailer("grpc-status")), (200, Some("0")));
    assert_eq!(reply.body, frame(b"", false), "an empty message");
    let fields = [GRPC.as_slice(), &[("grpc-encoding", "gzip")]].concat();
    let reply = store.post(Version::HTTP_2, PUSH, &fields, frame(&gzip(&body(4)), true));
    assert_eq!(reply.trailer("grpc-status"), Some("0"));
    let web = [("content-type", "application/grpc-web+proto")];
    let reply = store.post(Version::HTTP_11, PUSH, &web, frame(&body(8), false));
    assert_eq!(reply.body, b"\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n".as_slice());
    // The first came twice, and the same profile has the same id.
    let expected = (15, ["total", "main", "work"].map(str::to_owned).to_vec());
    assert_eq!(store.graph("shop"), expected);

    let asked = question("shop").encode_to_vec();
    let reply = grpc(&store, STACKS, &[], &asked);
    assert_eq!(reply.field("content-type"), Some("application/grpc"));
    assert_eq!(graph(unframe(&reply.body).unwrap().1), expected);
    let json = serde_json::to_vec(&question("shop")).unwrap();
    let fields = [("content-type", "application/grpc+json"), ("te", "trailers")];
    let reply = store.post(Version::HTTP_2, STACKS, &fields, frame(&json, false));
    let (_, answer) = unframe(&reply.body).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(answer["flamegraph"]["total"], "15");
    let reply = store.post(Version::HTTP_11, STACKS, &web, frame(&asked, false));
    let cut = reply.body.len() - b"\x80\0\0\0\x10grpc-status: 0\r\n".len();
    assert_eq!(graph(unframe(&reply.body[..cut]).unwrap().1), expected);
    // OTLP without a profile.
    let reply = grpc(&store, EXPORT, &[], b"");
    assert_eq!((reply.trailer("grpc-status"), &*reply.body), (Some("0"), &*frame(b"", false)));
}

#[test]
fn answers_are_compressed_for_those_who_take_it() {
    let store = Store::start(Limits::default());
    let names: Vec<String> = (0..200).map(|n| format!("function_{n}")).collect();
    let functions: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let body = push("shop", &pprof(&functions)).encode_to_vec();
    assert_eq!(grpc(&store, PUSH, &[], &body).trailer("grpc-status"), Some("0"));
    let asked = question("shop").encode_to_vec();

    let reply = grpc(&store, STACKS, &[("grpc-accept-encoding", "identity, gzip")], &asked);
    assert_eq!(reply.field("grpc-encoding"), Some("gzip"));
    let (is_compressed, message) = unframe(&reply.body).unwrap();
    let plain = wire::proto::ungzip(message, 1 << 20).unwrap();
    assert!(is_compressed && graph(&plain).1.len() == 202);

    let fields = [("content-type", "application/proto"), ("accept-encoding", "br;q=1, gzip;q=0.5")];
    let reply = store.post(Version::HTTP_11, STACKS, &fields, asked.clone());
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*reply.body).read_to_end(&mut plain).unwrap();
    assert_eq!(graph(&plain).0, 200);
    let fields = [("content-type", "application/proto"), ("accept-encoding", "gzip;q=0")];
    let reply = store.post(Version::HTTP_11, STACKS, &fields, asked);
    assert_eq!((reply.field("content-encoding"), graph(&reply.body).0), (None, 200));
}

/// Code and words of a call that failed: of gRPC in the head, as there is no message.
fn failure(reply: &Reply) -> (u16, &str, &str) {
    let said = |name| reply.field(name).unwrap_or_default();
    (reply.status.as_u16(), said("grpc-status"), said("grpc-message"))
}

#[test]
fn failures_have_a_code_and_words_in_every_framing() {
    let limits = Limits { body_bytes: 4_096, ..Limits::default() };
    let store = Store::start(limits);
    let check = |path: &str, fields: &[(&str, &str)], body: Vec<u8>, expected: (&str, &str)| {
        let fields = [&GRPC, fields].concat();
        let reply = store.post(Version::HTTP_2, path, &fields, body);
        let (status, code, words) = failure(&reply);
        assert_eq!((status, code), (200, expected.0), "{path}: {words}");
        assert!(words.contains(expected.1), "{path}: {words}");
    };
    let nothing = || frame(b"", false);
    check("/querier.v1.QuerierService/Nothing", &[], nothing(), ("12", "there is no Nothing"));
    check(STACKS, &[], nothing(), ("3", "profile type"));
    check(PUSH, &[], frame(b"\xff", false), ("3", "push_request"));
    check(PUSH, &[], b"\0\0\0\0\x09abc".to_vec(), ("13", "ends within a message"));
    check(PUSH, &[("grpc-encoding", "zstd")], nothing(), ("12", "plain or in gzip"));
    check(PUSH, &[], frame(&gzip(b"abc"), true), ("13", "no grpc-encoding"));
    let gzipped = [("grpc-encoding", "gzip")];
    check(PUSH, &gzipped, frame(b"\x1f\x8b\x08 no gzip", true), ("3", "gzip"));
    // Both what comes and what that stands for are bounded.
    check(PUSH, &[], frame(&[0; 4_097], false), ("3", "more than 4101 bytes"));
    check(PUSH, &gzipped, frame(&gzip(&[0; 4_097]), true), ("3", "more than 4096 bytes"));

    let reply = store.post(Version::HTTP_11, PUSH, &GRPC, nothing());
    assert_eq!(reply.status, 505, "there are no trailers without HTTP/2");
    let reply = store.post(Version::HTTP_2, PUSH, &[("content-type", "text/plain")], nothing());
    assert_eq!(reply.status, 415);
    let web = [("content-type", "application/grpc-web")];
    let reply = store.post(Version::HTTP_11, PUSH, &web, frame(b"\xff", false));
    assert!(
        reply.text().contains("grpc-status: 3\r\ngrpc-message: 2 bytes are needed"),
        "{reply:?}"
    );
}

#[test]
fn a_request_that_gives_a_time_is_answered_in_it() {
    let store = Store::start(Limits::default());
    store.hold();
    let body = push("shop", &pprof(&[("work", 1)])).encode_to_vec();
    let reply = grpc(&store, PUSH, &[("grpc-timeout", "20m")], &body);
    let (_, code, words) = failure(&reply);
    assert_eq!((code, words), ("4", "not done within the 20ms that the request gives"));
    let fields = [("content-type", "application/proto"), ("connect-timeout-ms", "20")];
    let reply = store.post(Version::HTTP_11, PUSH, &fields, body);
    assert!(reply.status == 504 && reply.text().contains("\"deadline_exceeded\""), "{reply:?}");
}

#[test]
fn who_sends_too_much_is_told_when_to_come_again() {
    let limits = Limits { burst_bytes: 1, bytes_per_second: 100, ..Limits::default() };
    let store = Store::start_with(limits, true, |_from, _to| true);
    let body = push("shop", &pprof(&[("work", 1)])).encode_to_vec();
    let (one, two) = (("x-scope-orgid", "one"), ("x-scope-orgid", "two"));
    assert_eq!(grpc(&store, PUSH, &[one], &body).trailer("grpc-status"), Some("0"));
    let reply = grpc(&store, PUSH, &[one], &body);
    let (_, code, words) = failure(&reply);
    assert_eq!(code, "8", "{words}");
    let details = reply.field("grpc-status-details-bin").unwrap();
    assert!(details.contains("dHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mb"), "{details}");
    // As many bytes are owed as the first had, less one.
    let seconds = (body.len() - 1).div_ceil(100).to_string();
    for (path, kind) in [
        (PUSH, "application/proto"),
        ("/v1development/profiles", "application/x-protobuf"),
        ("/ingest?name=shop.cpu", "text/plain"),
    ] {
        let reply = store.post(Version::HTTP_11, path, &[("content-type", kind), one], "main 1");
        let said = (reply.status.as_u16(), reply.field("retry-after"));
        assert_eq!(said, (429, Some(seconds.as_str())), "{path}: {}", reply.text());
    }
    assert_eq!(grpc(&store, PUSH, &[two], &body).trailer("grpc-status"), Some("0"));
    let reply = grpc(&store, PUSH, &[], &body);
    assert_eq!(failure(&reply).1, "16");
}

/// Compressed bytes are not what costs.
#[test]
fn what_is_sent_is_counted_as_it_is_unpacked() {
    let limits = Limits { burst_bytes: 1, bytes_per_second: 1_000, ..Limits::default() };
    let store = Store::start_with(limits, true, |_from, _to| true);
    let functions: Vec<(String, i64)> = (0..500).map(|n| (format!("work_{n:08}"), 1)).collect();
    let functions: Vec<(&str, i64)> =
        functions.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let mut request = push("shop", &pprof(&functions));
    let plain = request.encode_to_vec().len();
    let packed = gzip(&request.series[0].samples[0].raw_profile);
    request.series[0].samples[0].raw_profile = packed;
    let body = request.encode_to_vec();
    assert!(body.len() < plain / 2, "{} and {plain}", body.len());
    for (tenant, path, kind, body) in [
        ("a", PUSH, "application/proto", body.clone()),
        ("b", PUSH, "application/proto", gzip(&body)),
        ("c", "/ingest?name=shop.cpu", "", gzip("main;work 1\n".repeat(2_000).as_bytes())),
    ] {
        let fields = [("content-type", kind), ("x-scope-orgid", tenant)];
        let reply = store.post(Version::HTTP_11, path, &fields, body.clone());
        assert_eq!(reply.status, 200, "{tenant}: {}", reply.text());
        let reply = store.post(Version::HTTP_11, path, &fields, body);
        let seconds: usize = reply.field("retry-after").unwrap().parse().unwrap();
        let expected = if tenant == "c" { 24 } else { plain / 1_000 };
        assert!((expected..expected + 2).contains(&seconds), "{tenant}: {seconds} s, {expected}");
    }
}

#[test]
fn guards_hold_for_http_2() {
    let store = Store::start(Limits::default());
    let asks = |url: String| {
        let request = Request::post(url).version(Version::HTTP_2);
        request.body(Full::default()).unwrap()
    };
    assert_eq!(store.send(asks("http://evil.example/ingest?name=a".to_owned())).status, 421);
    let url = |store: &Store| format!("http://{}/ingest?name=a", store.address);
    assert_eq!(store.send(asks(url(&store))).status, 200);
    let closed = Store::start_with(Limits::default(), false, |_from, _to| false);
    assert!(closed.exchange(asks(url(&closed))).is_err(), "its host is not admitted");
}
