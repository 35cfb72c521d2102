//! OTLP: packets of our own agent come through whole, and requests of others as far as they are right.

use std::collections::BTreeMap;

use intake::{Encoding, Error, ErrorKind, Limits, Taken, otlp};
use model::Timestamp;
use profile::{
    BuildId, Builder, Frame, FrameKind, Line, Link, Mapping, Names, Packet, Process, Sample,
    SampleKind, Status, Unnamed, Window, keys,
};
use proptest::prelude::*;
use wire::proto::Writer;

use crate::support::{NOW, any_time, refusal, shown, stack_text, sums};

const BEGIN: u64 = 1_799_999_995_000_000_000;

fn take_within(body: &[u8], limits: &Limits) -> Result<Taken, Error> {
    otlp(body, Encoding::Protobuf, limits, Timestamp::from_nanos(NOW))
}

fn take(body: &[u8]) -> Taken {
    take_within(body, &Limits::default()).unwrap()
}

/// A packet of the agent with samples of two processes: of each a time, a value and the number of a thread.
fn packet(kind: SampleKind, samples: &[(bool, u64, u64, u32)]) -> Packet {
    let window = Window { begin_unix_ns: BEGIN, duration_ns: 5_000_000_000 };
    let mut builder = Builder::new(window, kind);
    let pod = [(keys::POD_NAME, "pod-1"), (keys::SERVICE_NAME, "shop"), (keys::CGROUP, "/a")];
    let mut process = |pid, attributes| {
        let process = Process {
            pid,
            start_boot_ns: u64::from(pid) * 7,
            executable_name: "app",
            executable_path: "/usr/bin/app",
            attributes,
        };
        builder.process(&process).unwrap()
    };
    let processes = [process(1, &pod[..]), process(2, &[])];
    let mapping = Mapping {
        memory_start: 0x1000,
        memory_limit: 0x9000,
        file_offset: 0,
        path: "/usr/bin/app",
        build_ids: &[BuildId::Gnu("f00d")],
    };
    let line =
        |function, line| Line { function, file: "a.c", line, start_line: 1, ..Line::default() };
    let lines = [line("inner", 5), line("work", 9)];
    let mut frame = |address, kind, mapping, names| {
        builder.frame(&Frame { kind, mapping, address, names }).unwrap()
    };
    let work = frame(0x1139, FrameKind::Native, Some(&mapping), Names::Known(&lines));
    let main = frame(0x2000, FrameKind::Native, Some(&mapping), Names::Unnamed(Unnamed::NoSymbol));
    let kernel = frame(
        0x77,
        FrameKind::Kernel,
        None,
        Names::Known(&[Line { function: "read", ..Line::default() }]),
    );
    let stack = [kernel, work, main];
    for &(is_first, after, value, tid) in samples {
        let link = Link { trace_id: [1; 16], span_id: [2; 8] };
        builder
            .add(&Sample {
                process: processes[usize::from(!is_first)],
                tid,
                thread_name: "worker",
                cpu: tid % 3,
                at_unix_ns: BEGIN + after,
                value,
                link: is_first.then_some(link),
                frames: if is_first { &stack } else { &stack[2..] },
                status: Status::Root,
            })
            .unwrap();
    }
    builder.lost("ring_full", 3);
    builder.finish()
}

const ON_CPU: SampleKind = SampleKind::OnCpu { period_ns: 10_000_000 };

#[test]
fn packets_of_the_agent_come_through_whole() {
    let samples = [(true, 0, 1, 11), (true, 1_000_000, 1, 12), (false, 2_000_000, 1, 21)];
    let packet = packet(ON_CPU, &samples);
    let taken = take(&packet.gzip());
    let kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    let own = "__delta__=false,__otel__=true";
    let first = format!(
        "{kind} {{{own},k8s.pod.name=pod-1,process.executable.name=app,service_name=shop}} ;work;inner;read 10000000"
    );
    let second = format!(
        "{kind} {{{own},process.executable.name=app,service_name=unknown_service:app}}  10000000"
    );
    assert_eq!(shown(&taken), [first.clone(), first, second]);
    assert_eq!(taken.lost, [("ring_full".to_owned(), 3)]);

    let sample = taken.batch.samples().iter().find(|sample| sample.span_id != 0).unwrap();
    assert_eq!(
        (sample.span_id, sample.trace_id),
        (0x0202_0202_0202_0202, u128::from_be_bytes([1; 16]))
    );
    assert_eq!(sample.profile.to_be_bytes()[..12], packet.id.0);
    let times: Vec<i64> = taken.batch.samples().iter().map(|sample| sample.at.nanos()).collect();
    let written = |after: u64| {
        let at = BEGIN + after;
        i64::try_from((at - at % profile::TIME_STEP_NS).max(BEGIN)).unwrap()
    };
    assert_eq!(times, [written(0), written(1_000_000), written(2_000_000)]);

    let frames = taken.batch.frames_of(sample.stack).map(|frame| taken.batch.frame_of(frame));
    let frames: Vec<_> = frames.collect();
    let text = |id| taken.batch.text_of(id);
    let [read, inner, work, main] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!((text(read.kind), text(read.mapping), read.address), ("kernel", "", 0x77));
    assert_eq!((inner.is_inlined, work.is_inlined, main.is_inlined), (true, false, false));
    assert_eq!((text(work.file), work.line, work.start_line, work.address), ("a.c", 9, 1, 0x1139));
    assert_eq!((text(main.function), main.address), ("", 0x2000));
    assert_eq!(
        (text(main.mapping), text(main.build_id), text(main.kind)),
        ("/usr/bin/app", "f00d", "native")
    );
}

#[test]
fn times_off_the_cpu_keep_their_values() {
    let packet =
        packet(SampleKind::OffCpu, &[(true, 5, 700, 1), (true, 5, 50, 1), (true, 6, 1, 1)]);
    let taken = take(&packet.bytes);
    let expected = [("off_cpu:off_cpu:nanoseconds::".to_owned(), 751)];
    assert_eq!(sums(&taken).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn old_packets_are_refused_for_their_age() {
    let packet = packet(ON_CPU, &[(true, 0, 1, 11)]);
    let later = Timestamp::from_nanos(NOW + 2 * 3_600_000_000_000);
    let taken = otlp(&packet.bytes, Encoding::Protobuf, &Limits::default(), later).unwrap();
    assert!(refusal(&taken).starts_with("a sample is from"), "{}", refusal(&taken));
    let any = otlp(&packet.bytes, Encoding::Protobuf, &any_time(), later).unwrap();
    assert_eq!(any.batch.samples().len(), 1);
}

const JSON: &str = r#"{
  "resourceProfiles": [{
    "resource": {"attributes": [
      {"key": "service.name", "value": {"stringValue": "shop"}},
      {"key": "region", "value": {"stringValue": "eu"}},
      {"key": "region", "value": {"stringValue": "us"}},
      {"key": "process.pid", "value": {"intValue": "7"}}
    ]},
    "scopeProfiles": [{"profiles": [{
      "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
      "samples": [
        {"stackIndex": 1, "values": ["5"], "attributeIndices": [1, 2]},
        {"stackIndex": 1, "values": [6, "7"], "timestampsUnixNano": ["1800000000000000001", 1800000000000000002], "linkIndex": 1},
        {"stackIndex": 1, "values": [8], "attributeIndices": [3]}
      ],
      "timeUnixNano": "1800000000000000000", "durationNano": "10",
      "period": "0", "profileId": "000102030405060708090a0b0c0d0e0f"
    }]}]
  }],
  "dictionary": {
    "mappingTable": [{}], "functionTable": [{}, {"nameStrindex": 3}],
    "locationTable": [{}, {"lines": [{"functionIndex": 1, "line": "-1"}]}],
    "linkTable": [{}, {"traceId": "000102030405060708090a0b0c0d0e0f", "spanId": "0001020304050607"}],
    "stringTable": ["", "alloc_space", "bytes", "main", "thread.name", "route", "service.name"],
    "attributeTable": [{}, {"keyStrindex": 4, "value": {"stringValue": "t"}},
      {"keyStrindex": 5, "value": {"stringValue": "/cart"}}, {"keyStrindex": 6, "value": {"stringValue": "other"}}],
    "stackTable": [{}, {"locationIndices": [1]}]
  }
}"#;

fn take_json(text: &str) -> Result<Taken, Error> {
    otlp(text.as_bytes(), Encoding::Json, &Limits::default(), Timestamp::from_nanos(NOW))
}

#[test]
fn json_is_taken_and_attributes_become_labels() {
    let taken = take_json(JSON).unwrap();
    let kind = "memory:alloc_space:bytes::";
    let own = "__delta__=false,__otel__=true,region=eu";
    let expected = [
        format!("{kind} {{{own},route=/cart,service_name=shop}} main 5"),
        format!("{kind} {{{own},service_name=other}} main 8"),
        format!("{kind} {{{own},service_name=shop}} main 6"),
        format!("{kind} {{{own},service_name=shop}} main 7"),
    ];
    assert_eq!(shown(&taken), expected);
    let mut times: Vec<_> =
        taken.batch.samples().iter().map(|s| (s.value, s.at.nanos() - NOW)).collect();
    times.sort_unstable();
    assert_eq!(times, [(5, 0), (6, 1), (7, 2), (8, 0)]);
    assert!(
        taken
            .batch
            .samples()
            .iter()
            .all(|s| s.profile == 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
    );
    let linked = taken.batch.samples().iter().find(|s| s.value == 6).unwrap();
    assert_eq!((linked.span_id, linked.trace_id), (0x0001_0203_0405_0607, linked.profile));
}

#[test]
fn what_is_wrong_is_refused_with_what_it_is() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(JSON.contains(from), "{from}");
        let taken = take_json(&JSON.replacen(from, to, 1)).unwrap();
        assert_eq!(refusal(&taken), expected);
    };
    check(
        "\"stackIndex\": 1",
        "\"stackIndex\": 9",
        "sample 0 refers to stack 9, which is not there",
    );
    check("[1]}]\n", "[9]}]\n", "stack 1 refers to location 9, which is not there");
    check(
        "\"functionIndex\": 1",
        "\"functionIndex\": 9",
        "location 1 refers to function 9, which is not there",
    );
    check(
        "\"nameStrindex\": 3",
        "\"nameStrindex\": 9",
        "function 1 refers to string 9, which is not there",
    );
    check(
        "[{\"functionIndex\": 1, \"line\": \"-1\"}]",
        "[], \"mappingIndex\": 9",
        "location 1 refers to mapping 9, which is not there",
    );
    check(
        "\"attributeIndices\": [3]",
        "\"attributeIndices\": [9]",
        "sample 2 refers to attribute 9, which is not there",
    );
    check("\"linkIndex\": 1", "\"linkIndex\": 9", "sample 1 refers to link 9, which is not there");
    check(
        "\"typeStrindex\": 1",
        "\"typeStrindex\": 9",
        "sample type 0 refers to string 9, which is not there",
    );
    check("[6, \"7\"]", "[6, \"7\", 8]", "sample number 1 has 2 times and 3 values");
    check(
        "\"1800000000000000001\"",
        "\"18000000000000000001\"",
        "a sample is from 7423372036 s after its arrival; 600 s are taken",
    );

    let whole = |text: &str, expected: &str| {
        let error = take_json(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    };
    whole(&JSON.replace("\"dictionary\"", "\"other\""), "profiles and no dictionary");
    whole(&JSON.replace("\"stackIndex\": 1", "\"stackIndex\": -1"), "is outside the field's range");
    whole(&JSON.replace("[\"5\"]", "[\"x\"]"), "the field values is not a whole number");
    whole(
        &JSON.replace("\"1800000000000000000\"", "-1"),
        "the field time_unix_nano is not a whole number of no sign",
    );
}

#[test]
fn a_profile_without_an_id_has_the_same_one_again() {
    let text = JSON.replace("000102030405060708090a0b0c0d0e0f\"\n", "\"\n");
    let id = |text: &str| take_json(text).unwrap().profiles[0].as_ref().unwrap().id;
    assert_ne!(text, JSON);
    assert_eq!(id(&text), id(&text));
    assert_ne!(id(&text), id(&text.replace("\"5\"", "\"6\"")));
}

#[test]
fn limits_of_requests() {
    let packet = packet(ON_CPU, &[(true, 0, 1, 11), (true, 1_000_000, 1, 11), (false, 0, 1, 21)]);
    let limits = Limits { otlp_samples: 2, otlp_stack_frames: 2, ..Limits::default() };
    let taken = take_within(&packet.bytes, &limits).unwrap();
    let accepted = taken.profiles[0].as_ref().unwrap();
    assert_eq!((accepted.samples, accepted.left_out.deep_stacks), (2, 1));
    assert_eq!(stack_text(&taken.batch, taken.batch.samples()[0].stack), ";work");
    let refused = taken.profiles[1].as_ref().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::TooLarge);
    let one = Limits { profiles: 1, ..Limits::default() };
    assert_eq!(take_within(&packet.bytes, &one).unwrap_err().kind(), ErrorKind::TooLarge);
    let few = Limits { label_names: 3, ..Limits::default() };
    let taken = take_within(&packet.bytes, &few).unwrap();
    assert!(taken.profiles.iter().all(Result::is_err), "{:?}", taken.profiles);
    let nothing = take(&Writer::default().bytes);
    assert_eq!(nothing.profiles, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_any_packet_stay(
        samples in prop::collection::vec((any::<bool>(), 0..4_000_000_000u64, 1..1_000_000u64, 1..5u32), 1..60),
    ) {
        let taken = take(&packet(SampleKind::OffCpu, &samples).bytes);
        let mut expected: BTreeMap<bool, i64> = BTreeMap::new();
        for &(is_first, _, value, _) in &samples {
            *expected.entry(is_first).or_default() += i64::try_from(value).unwrap();
        }
        let mut found: BTreeMap<bool, i64> = BTreeMap::new();
        for sample in taken.batch.samples() {
            let labels = &taken.batch.series_of(sample.series).labels;
            *found.entry(labels.get("service_name") == Some("shop")).or_default() += sample.value;
        }
        prop_assert_eq!(found, expected);
    }
}
