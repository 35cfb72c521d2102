//! Pyroscope's `push.v1`. No server is to be had here; what is sent is read by the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::{Agent, Sending, Settings};
use profile::{Limits, ungzip};
use prost::Message;
use testkit::wait_for;

use crate::collector::{Collector, answer};
use crate::packets::packet;

#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// What Pyroscope looks at in a pprof profile.
#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(message, repeated, tag = "1")]
    sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<ValueType>,
}

#[test]
fn processes_of_one_service_are_one_series_and_others_are_others() {
    let folder = tempfile::tempdir().unwrap();
    let unavailable = answer(503, &[], br#"{"code":"unavailable","message":"x"}"#);
    let server = Collector::start("127.0.0.1:0", vec![unavailable]);
    let url = format!("pyroscope+{}/base", server.url());
    let agent = Agent::start(Settings {
        spool: folder.path().join("spool"),
        bounds: agent::Bounds::default(),
        targets: vec![(url.parse().unwrap(), Sending::default())],
        sealed: std::sync::Arc::default(),
    })
    .unwrap();
    let sent = packet(1, &["a", "b", "a"]);
    agent.offer(sent.clone());
    wait_for("a delivery", || (agent.status().targets[0].1.delivered == 1).then_some(()));
    assert_eq!(agent.stop(Duration::from_secs(30)).targets[0].1.failed_attempts, 1);
    let seen = server.requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body);
    assert_eq!(seen[0].path, "/base/push.v1.PusherService/Push");
    assert_eq!(seen[0].headers["content-type"], "application/proto");

    let series = PushRequest::decode(seen[0].body.clone()).unwrap().series;
    let found: Vec<(BTreeMap<String, String>, Pprof, String)> = series
        .into_iter()
        .map(|series| {
            let labels = series.labels.into_iter().map(|label| (label.name, label.value));
            let [sample] = &series.samples[..] else { panic!("{} samples", series.samples.len()) };
            let pprof = ungzip(&sample.raw_profile, Limits::default()).unwrap();
            (labels.collect(), Pprof::decode(&*pprof).unwrap(), sample.id.clone())
        })
        .collect();
    let services: Vec<_> =
        found.iter().map(|(labels, ..)| labels["service_name"].as_str()).collect();
    assert_eq!(services, ["a", "b"]);
    for ((labels, pprof, id), count) in found.iter().zip([2, 1]) {
        assert_eq!(labels["__name__"], "process_cpu");
        assert_eq!((labels["host.name"].as_str(), labels["env"].as_str()), ("h1", "test"));
        assert!(!labels.contains_key("process.pid") && labels.len() == 5, "{labels:?}");
        let text = |at: i64| pprof.strings[usize::try_from(at).unwrap()].as_str();
        let types: Vec<_> =
            pprof.sample_types.iter().map(|it| (text(it.kind), text(it.unit))).collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
        // Labels of samples would make series of their own.
        assert!(pprof.samples.iter().all(|sample| sample.labels.is_empty()));
        let sums = pprof
            .samples
            .iter()
            .fold([0, 0], |sums, sample| [sums[0] + sample.values[0], sums[1] + sample.values[1]]);
        assert_eq!(sums, [count, count * 10_000_000]);
        assert_eq!(u64::try_from(pprof.time_nanos).unwrap(), sent.begin_unix_ns);
        assert_eq!(pprof.period, 10_000_000);
        let function = format!("work_of_{}", labels["service_name"]);
        assert!(pprof.strings.contains(&function), "{:?}", pprof.strings);
        assert!(id.replace('-', "").starts_with(&sent.id.to_string()) && id.len() == 36, "{id}");
    }
}
