//! A collector that takes OTLP over HTTP, and one that does not.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prost::Message;
use recorder::Recorder;
use wire::otlp::{KeyValue, LogsRequest, Span, TracesRequest, Value};

use crate::process::Process;
use crate::settings;

/// What came: the path, and the body unpacked.
type Came = (String, Vec<u8>);

/// A collector that answers with these statuses, and with 200 afterwards.
fn collector(statuses: &[u16]) -> (SocketAddr, Receiver<Came>) {
    let (came, receiver) = mpsc::channel();
    let (told, address) = mpsc::channel();
    let statuses = Arc::new(Mutex::new(statuses.iter().rev().copied().collect::<Vec<_>>()));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (came, statuses) = (came.clone(), Arc::clone(&statuses));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (came, statuses) = (came.clone(), Arc::clone(&statuses));
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let mut unpacked = Vec::new();
                        GzDecoder::new(&body[..]).read_to_end(&mut unpacked).unwrap();
                        let status = statuses.lock().unwrap().pop().unwrap_or(200);
                        if status == 200 {
                            // Nobody listens when the test has seen enough.
                            drop(came.send((path, unpacked)));
                        }
                        let mut response = Response::new(Full::new(Bytes::new()));
                        *response.status_mut() = StatusCode::from_u16(status).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
    });
    (address.recv().unwrap(), receiver)
}

fn spans(receiver: &Receiver<Came>, count: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    while spans.len() < count {
        let (path, body) = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        if path == "/base/v1/traces" {
            let request = TracesRequest::decode(&body[..]).unwrap();
            let resource = request.resource_spans[0].resource.as_ref().unwrap();
            assert_eq!(text(&resource.attributes, "host.name"), "here");
            let scopes = request.resource_spans.into_iter().flat_map(|it| it.scope_spans);
            spans.extend(scopes.flat_map(|it| it.spans));
        }
    }
    spans
}

/// A request as OpenTelemetry's own messages read it; `None`, said, when these are not installed.
fn as_others_read(kind: &str, body: &[u8]) -> Option<serde_json::Value> {
    let Ok(python) = std::env::var("THROUGHLINE_OTLP_PYTHON") else {
        testkit::skip("OpenTelemetry's messages for Python are not installed");
        return None;
    };
    let mut reader = Command::new(python);
    reader.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/python/otlp.py")).arg(kind);
    let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    reader.stdin.take().unwrap().write_all(body).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success());
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["unknown"], 0);
    Some(read["request"].clone())
}

#[test]
fn requests_are_what_opentelemetry_s_own_messages_say() {
    let folder = tempfile::tempdir().unwrap();
    let (address, came) = collector(&[]);
    let settings = settings(folder.path(), &[&format!("http://{address}/base")]);
    let recorder = Recorder::start(settings).unwrap();
    Process::start("spans", folder.path()).ends();
    let mut names = Vec::new();
    let mut has_log = false;
    while names.len() < 3 || !has_log {
        let (path, body) = came.recv_timeout(Duration::from_secs(60)).unwrap();
        let kind = if path.ends_with("traces") { "traces" } else { "logs" };
        let Some(request) = as_others_read(kind, &body) else { return };
        if kind == "logs" {
            let record = &request["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
            assert_eq!(record["eventName"], "alone");
            has_log = true;
            continue;
        }
        let resource = &request["resourceSpans"][0];
        let attributes = resource["resource"]["attributes"].as_array().unwrap();
        assert!(attributes.iter().any(|it| it["key"] == "process.pid"));
        for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
            assert_eq!(span["kind"], "SPAN_KIND_INTERNAL");
            let [begin, end] = ["startTimeUnixNano", "endTimeUnixNano"]
                .map(|key| span[key].as_str().unwrap().parse::<u64>().unwrap());
            assert!(begin > 1_700_000_000_000_000_000 && begin <= end);
            if span["name"] == "decode" {
                assert_eq!(span["status"]["code"], "STATUS_CODE_ERROR");
                assert_eq!(span["events"][0]["name"], "inside");
            }
            names.push(span["name"].as_str().unwrap().to_owned());
        }
    }
    names.sort();
    assert_eq!(names, ["decode", "request", "send"]);
    recorder.stop(Duration::from_secs(30)).unwrap();
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::Text(text)) => text,
        other => panic!("{key}: {other:?}"),
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|it| it.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

#[test]
fn spans_are_whole_whatever_thread_wrote_them_and_sent_until_they_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (address, came) = collector(&[503, 429]);
    let settings = settings(folder.path(), &[&format!("http://{address}/base")]);
    let recorder = Recorder::start(settings).unwrap();
    Process::start("spans", folder.path()).ends();
    let mut spans = spans(&came, 3);
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let [request, decode, send] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!([&request.name, &decode.name, &send.name], ["request", "decode", "send"]);
    assert_eq!(decode.parent_span_id, request.span_id);
    assert_eq!(send.parent_span_id, decode.span_id);
    assert!(request.parent_span_id.is_empty() && request.trace_id == send.trace_id);
    assert!(request.end_time_unix_nano >= decode.end_time_unix_nano);
    assert_eq!(text(&request.attributes, "path"), "/a");
    assert_eq!(text(&request.attributes, "bytes"), "18446744073709551615");
    assert_eq!(value(&decode.attributes, "frame"), Some(&Value::Int(-7)));
    assert_eq!(
        (decode.status.as_ref().map(|it| it.code), request.status.is_none()),
        (Some(2), true)
    );
    let [inside] = &decode.events[..] else { panic!() };
    assert_eq!((&*inside.name, inside.attributes.len()), ("inside", 2));
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up());
    assert!(
        ledger.drivers.values().all(|it| it.delivered == 8 && it.dropped.is_empty()),
        "{ledger:?}"
    );
    let (_, body) = came.try_iter().find(|(path, _)| path == "/base/v1/logs").unwrap();
    let logs = LogsRequest::decode(&body[..]).unwrap();
    let record = &logs.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!((&*record.event_name, text(&record.attributes, "note")), ("alone", "in no span"));
}

#[test]
fn a_span_whose_process_was_killed_ends_when_something_was_last_seen_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (address, came) = collector(&[]);
    let settings = settings(folder.path(), &[&format!("http://{address}/base/")]);
    let recorder = Recorder::start(settings.clone()).unwrap();
    let app = Process::start("unfinished", folder.path());
    while recorder.ledger().stored < 2 {
        std::thread::yield_now();
    }
    // What is open is remembered over a restart.
    recorder.stop(Duration::from_secs(30)).unwrap();
    let recorder = Recorder::start(settings).unwrap();
    app.kill();
    let [open] = &spans(&came, 1)[..] else { panic!() };
    assert_eq!((&*open.name, text(&open.attributes, "throughline.span.end")), ("open", "soft"));
    assert_eq!(open.end_time_unix_nano, open.events[0].time_unix_nano);
    assert!(recorder.stop(Duration::from_secs(30)).unwrap().adds_up());
}

#[test]
fn what_a_collector_refuses_is_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _came) = collector(&[400, 400]);
    let target = format!("http://{address}/base");
    let recorder = Recorder::start(settings(folder.path(), &[&target])).unwrap();
    Process::start("spans", folder.path()).ends();
    let refused = || {
        let drivers = recorder.ledger().drivers;
        let refused = drivers.values().filter_map(|it| it.dropped.get("refused").copied());
        refused.sum::<u64>()
    };
    while refused() < 8 {
        std::thread::yield_now();
    }
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up());
    let dropped = ledger.dropped();
    let [((driver, "refused"), 8)] = dropped.into_iter().collect::<Vec<_>>()[..] else { panic!() };
    assert!(driver.starts_with("http"), "{driver}");
}

#[test]
fn points_of_osprofiler_are_spans_and_what_is_none_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (address, came) = collector(&[]);
    let mut settings = settings(folder.path(), &[&format!("http://{address}/base")]);
    let redis = "127.0.0.1:0".parse().unwrap();
    settings.redis = Some(recorder::Redis { address: redis, password: None });
    let start = || {
        let recorder = Recorder::start(settings.clone()).unwrap();
        let address = recorder.redis_address().unwrap();
        (recorder, address)
    };
    let base = "bdb9c1f0-0000-4000-8000-0123456789ab";
    let begin = std::fs::metadata(folder.path()).unwrap().modified().unwrap();
    let begin = jiff::Timestamp::try_from(begin).unwrap();
    let notification = |name: &str, second: i64| {
        let at = (begin + jiff::SignedDuration::from_secs(second)).strftime("%Y-%m-%dT%H:%M:%S");
        format!(
            r#"{{"name": "{name}", "base_id": "{base}", "trace_id": "{base}", "parent_id": "{base}", "timestamp": "{at}.000001", "info": {{"host": "h"}}, "project": "shop", "service": "api"}}"#
        )
    };
    let push = |address, json: &str| {
        crate::osprofiler::talk(address, &[&["LPUSH", &format!("osprofiler_opt:{base}"), json]])
    };
    let (recorder, address) = start();
    push(address, &notification("db-start", 5));
    push(address, "{}");
    recorder.stop(Duration::from_secs(30)).unwrap();
    // What is open is remembered over a restart.
    let (recorder, address) = start();
    push(address, &notification("db-stop", 7));
    push(address, &notification("db-stop", 8));
    let (_, body) = came.recv_timeout(Duration::from_secs(60)).unwrap();
    let request = TracesRequest::decode(&body[..]).unwrap();
    let [of_api] = &request.resource_spans[..] else { panic!() };
    assert_eq!(text(&of_api.resource.as_ref().unwrap().attributes, "service.name"), "shop-api");
    let [span] = &of_api.scope_spans[0].spans[..] else { panic!() };
    assert_eq!((&*span.name, span.kind, span.parent_span_id.len()), ("db", 3, 0));
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 2_000_000_000);
    assert_eq!(span.trace_id, 0xbdb9_c1f0_0000_4000_8000_0123_4567_89ab_u128.to_be_bytes());
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up());
    let driver = ledger.drivers.iter().find(|(name, _)| name.starts_with("http")).unwrap().1;
    assert_eq!((driver.seen, driver.delivered, driver.dropped["refused"]), (4, 2, 2));
}

#[test]
fn a_target_that_would_show_a_secret_or_means_nothing_is_refused() {
    for text in ["http://me:secret@host/", "ftp://host", "json:", "http://", "http://host/?a=b", ""]
    {
        assert!(text.parse::<recorder::Target>().is_err(), "{text}");
    }
}
