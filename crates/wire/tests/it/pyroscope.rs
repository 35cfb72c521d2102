//! Pyroscope's messages against bytes that clients sent and against their JSON mapping.

use std::io::Read as _;

use prost::Message;
use serde_json::{Value, json};
use wire::pyroscope::{
    Code, Encoding, Error, ExemplarType, FlameGraph, GetProfileStatsResponse, GoPgo, HeatmapSlot,
    LabelPair, Level, Location, MetricType, Point, ProfileFormat, ProfileType, PushRequest,
    QueryImpact, RawProfileSeries, RawSample, RecordingRule, SelectMergeStacktracesRequest,
    SelectSeriesRequest, Setting, StackTraceSelector, StacktraceFilter,
    StacktraceFilterFunctionName, TimeSeriesAggregationType, UpsertRecordingRuleRequest, decode,
    encode, pprof,
};

fn question() -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1_676_282_400_000,
        end: i64::MAX,
        max_nodes: Some(0),
        format: ProfileFormat::Tree.into(),
        stack_trace_selector: Some(StackTraceSelector {
            call_site: vec![Location { name: "main".to_owned() }],
            go_pgo: Some(GoPgo { keep_locations: 5, aggregate_callees: true }),
        }),
        profile_id_selector: Vec::new(),
        trace_id_selector: vec!["a".repeat(32)],
        span_selector: Vec::new(),
    }
}

fn question_json() -> Value {
    json!({
        "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "labelSelector": "{}",
        "start": "1676282400000",
        "end": "9223372036854775807",
        "maxNodes": "0",
        "format": "PROFILE_FORMAT_TREE",
        "stackTraceSelector": {
            "callSite": [{"name": "main"}],
            "goPgo": {"keepLocations": 5, "aggregateCallees": true},
        },
        "traceIdSelector": ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
    })
}

#[test]
fn messages_come_back_from_both_encodings() {
    for encoding in [Encoding::Proto, Encoding::Json] {
        let body = encode(&question(), encoding);
        assert_eq!(decode(&body, encoding), Ok(question()), "{encoding:?}");
        assert_eq!(Encoding::of(encoding.content_type()), Some(encoding));
    }
    assert_eq!(Encoding::of("application/json; charset=utf-8"), Some(Encoding::Json));
    assert_eq!(Encoding::of("text/plain"), None);
}

#[test]
fn json_is_that_of_the_protobuf_mapping() {
    let written: Value = serde_json::from_slice(&encode(&question(), Encoding::Json)).unwrap();
    assert_eq!(written, question_json());
    let point = Point { value: f64::NAN, timestamp: -1, ..Point::default() };
    assert_eq!(serde_json::to_value(&point).unwrap(), json!({"value": "NaN", "timestamp": "-1"}));
    let slot = HeatmapSlot {
        timestamp: 5,
        y_min: vec![0.5, 2.0],
        counts: vec![1, 0],
        ..HeatmapSlot::default()
    };
    assert_eq!(
        serde_json::to_value(&slot).unwrap(),
        json!({"timestamp": "5", "yMin": [0.5, 2.0], "counts": [1, 0]})
    );
    let kind =
        ProfileType { id: "a".to_owned(), sample_unit: "b".to_owned(), ..ProfileType::default() };
    assert_eq!(serde_json::to_value(&kind).unwrap(), json!({"ID": "a", "sampleUnit": "b"}));
    let level = Level { values: vec![0, i64::MAX] };
    let graph = FlameGraph { levels: vec![level], max_self: 3, ..FlameGraph::default() };
    assert_eq!(
        serde_json::to_value(&graph).unwrap(),
        json!({"levels": [{"values": ["0", "9223372036854775807"]}], "maxSelf": "3"})
    );
    let nothing = GetProfileStatsResponse::default();
    assert_eq!(serde_json::to_value(nothing).unwrap(), json!({}));
    let value = pprof::ValueType { kind: 1, unit: 2 };
    assert_eq!(serde_json::to_value(value).unwrap(), json!({"type": "1", "unit": "2"}));
}

#[test]
fn json_requests_may_have_numbers_nulls_and_names_of_the_protocol() {
    let read = |value: Value| {
        decode::<SelectMergeStacktracesRequest>(value.to_string().as_bytes(), Encoding::Json)
    };
    let lenient = json!({
        "profile_typeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "label_selector": "{}",
        "start": 1_676_282_400_000_i64,
        "end": i64::MAX,
        "max_nodes": 0,
        "format": 2,
        "stackTraceSelector": {
            "call_site": [{"name": "main", "nobody": [1]}],
            "go_pgo": {"keepLocations": 5, "aggregate_callees": true},
        },
        "traceIdSelector": ["a".repeat(32)],
        "spanSelector": null,
        "unknown": {"a": 1},
    });
    assert_eq!(read(lenient), Ok(question()));
    assert_eq!(read(json!({"start": 5.0})).unwrap().start, 5);
    for wrong in [
        json!({"start": "5x"}),
        json!({"start": 5.5}),
        json!({"end": 18_446_744_073_709_551_615_u64}),
        json!({"format": "TREE"}),
        json!({"labelSelector": 5}),
        json!([]),
    ] {
        let error = read(wrong.clone()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{wrong}");
    }
    assert_eq!(
        decode::<PushRequest>(b"{", Encoding::Json).unwrap_err().code,
        Code::InvalidArgument
    );
    assert_eq!(
        decode::<PushRequest>(&[0x0a, 9], Encoding::Proto).unwrap_err().code,
        Code::InvalidArgument
    );
}

#[test]
fn series_requests_know_unset_from_zero() {
    let body = br#"{"step": "15.5", "limit": "0", "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE", "exemplarType": 3}"#;
    let request: SelectSeriesRequest = decode(body, Encoding::Json).unwrap();
    assert_eq!((request.step, request.limit), (15.5, Some(0)));
    assert_eq!(request.aggregation(), TimeSeriesAggregationType::Average);
    assert_eq!(request.exemplar_type(), ExemplarType::Span);
    let request: SelectSeriesRequest = decode(b"{}", Encoding::Json).unwrap();
    assert_eq!((request.limit, request.aggregation), (None, None));
}

#[test]
fn bytes_are_base64_of_either_alphabet() {
    let push = |text: &str| {
        let body = json!({"series": [{"samples": [{"rawProfile": text, "ID": "u"}]}]}).to_string();
        decode::<PushRequest>(body.as_bytes(), Encoding::Json)
            .map(|request| request.series[0].samples[0].raw_profile.clone())
    };
    for text in ["+/8=", "+/8", "-_8=", "-_8"] {
        assert_eq!(push(text), Ok(vec![0xfb, 0xff]), "{text}");
    }
    assert!(push("+_8=").is_err());
    assert!(push("!").is_err());
}

#[test]
fn errors_are_json_with_a_code() {
    let error = Error::new(Code::ResourceExhausted, "too many");
    let text = serde_json::to_string(&error).unwrap();
    assert_eq!(text, r#"{"code":"resource_exhausted","message":"too many"}"#);
    assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
    for code in Code::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), json!(code.as_str()));
    }
    let status = [
        (Code::InvalidArgument, 400),
        (Code::Unauthenticated, 401),
        (Code::PermissionDenied, 403),
        (Code::NotFound, 404),
        (Code::AlreadyExists, 409),
        (Code::ResourceExhausted, 429),
        (Code::Internal, 500),
        (Code::Unknown, 500),
        (Code::Unimplemented, 501),
        (Code::Unavailable, 503),
        (Code::DeadlineExceeded, 504),
        (Code::Canceled, 499),
    ];
    for (code, status) in status {
        assert_eq!(code.http_status(), status, "{code:?}");
    }
}

/// `fields` as protobuf: field number, then bytes or a number.
fn by_hand(fields: &[(u8, Result<&[u8], u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, value) in fields {
        match value {
            Ok(bytes) => {
                out.extend([number << 3 | 2, bytes.len() as u8]);
                out.extend(*bytes);
            }
            Err(value) => out.extend([number << 3, *value]),
        }
    }
    out
}

#[test]
fn fields_have_the_protocols_numbers() {
    let label = by_hand(&[(1, Ok(b"a")), (2, Ok(b"b"))]);
    let sample = by_hand(&[(1, Ok(b"raw")), (2, Ok(b"id"))]);
    let series = by_hand(&[(1, Ok(&label)), (2, Ok(&sample))]);
    let push = PushRequest {
        series: vec![RawProfileSeries {
            labels: vec![LabelPair { name: "a".to_owned(), value: "b".to_owned() }],
            samples: vec![RawSample { raw_profile: b"raw".to_vec(), id: "id".to_owned() }],
        }],
    };
    assert_eq!(push.encode_to_vec(), by_hand(&[(1, Ok(&series))]));
    let kind =
        ProfileType { id: "i".to_owned(), sample_type: "t".to_owned(), ..ProfileType::default() };
    assert_eq!(kind.encode_to_vec(), by_hand(&[(1, Ok(b"i")), (4, Ok(b"t"))]));
    let request = SelectMergeStacktracesRequest {
        max_nodes: Some(0),
        format: ProfileFormat::Pprof.into(),
        span_selector: vec!["s".to_owned()],
        ..SelectMergeStacktracesRequest::default()
    };
    assert_eq!(request.encode_to_vec(), by_hand(&[(5, Err(0)), (6, Err(4)), (11, Ok(b"s"))]));
    let level = Level { values: vec![0, 7] };
    assert_eq!(level.encode_to_vec(), by_hand(&[(1, Ok(&[0, 7]))]));
    let impact = QueryImpact { deduplication_needed: true, ..QueryImpact::default() };
    assert_eq!(impact.encode_to_vec(), by_hand(&[(4, Err(1))]));
}

#[test]
fn rules_have_the_protocols_numbers_and_names() {
    let name = by_hand(&[(1, Ok(b"f"))]);
    let filter = by_hand(&[(1, Ok(&name))]);
    let label = by_hand(&[(1, Ok(b"a")), (2, Ok(b"b"))]);
    let function = StacktraceFilterFunctionName {
        function_name: "f".to_owned(),
        metric_type: MetricType::Total.into(),
    };
    let stacktrace_filter = Some(StacktraceFilter { function_name: Some(function) });
    let external_labels = vec![LabelPair { name: "a".to_owned(), value: "b".to_owned() }];
    let rule = RecordingRule {
        id: "i".to_owned(),
        metric_name: "m".to_owned(),
        profile_type: "t".to_owned(),
        matchers: vec!["x".to_owned()],
        group_by: vec!["g".to_owned()],
        external_labels: external_labels.clone(),
        generation: 3,
        stacktrace_filter: stacktrace_filter.clone(),
        provisioned: true,
        throughline: None,
    };
    let texts = [(1, &b"i"[..]), (2, b"m"), (3, b"t"), (4, b"x"), (5, b"g"), (6, &label)];
    let mut fields: Vec<_> = texts.into_iter().map(|(number, text)| (number, Ok(text))).collect();
    fields.extend([(7, Err(3)), (8, Ok(filter.as_slice())), (9, Err(1))]);
    assert_eq!(rule.encode_to_vec(), by_hand(&fields));
    assert_eq!(
        serde_json::to_value(&rule).unwrap(),
        json!({
            "id": "i", "metricName": "m", "profileType": "t", "matchers": ["x"], "groupBy": ["g"],
            "externalLabels": [{"name": "a", "value": "b"}], "generation": "3",
            "stacktraceFilter": {"functionName": {"functionName": "f"}}, "provisioned": true,
        })
    );
    let upsert = UpsertRecordingRuleRequest {
        metric_name: "m".to_owned(),
        external_labels,
        generation: 3,
        stacktrace_filter,
        ..UpsertRecordingRuleRequest::default()
    };
    let fields = [(2, Ok(&b"m"[..])), (5, Ok(&label)), (6, Err(3)), (7, Ok(&filter))];
    assert_eq!(upsert.encode_to_vec(), by_hand(&fields));
    let setting = Setting { name: "n".to_owned(), value: "v".to_owned(), modified_at: 5 };
    assert_eq!(setting.encode_to_vec(), by_hand(&[(1, Ok(b"n")), (2, Ok(b"v")), (3, Err(5))]));
    let named = json!({"name": "n", "value": "v", "modifiedAt": "5"});
    assert_eq!(serde_json::to_value(&setting).unwrap(), named);
}

/// Recorded from PyPI `pyroscope-io` 1.4.0; the value is that of its samples.
#[test]
fn a_push_of_a_real_client_is_read() {
    let folder = testkit::shared_dir().map(|shared| shared.join("captures/pyroscope-clients"));
    let Some(Ok(body)) = folder.map(|folder| std::fs::read(folder.join("python-1.4.0-push.body")))
    else {
        println!("skipped: no recorded requests of Pyroscope's clients");
        return;
    };
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut plain).unwrap();
    let push: PushRequest = decode(&plain, Encoding::Proto).unwrap();
    let labels = &push.series[0].labels;
    assert!(labels.iter().any(|label| label.name == "service_name"));
    let profile = pprof::Profile::decode(push.series[0].samples[0].raw_profile.as_slice()).unwrap();
    assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 9_630_000_000);
    let json = encode(&push, Encoding::Json);
    assert_eq!(decode(&json, Encoding::Json), Ok(push));
    let json = encode(&profile, Encoding::Json);
    assert_eq!(decode(&json, Encoding::Json), Ok(profile));
}
