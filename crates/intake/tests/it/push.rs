//! `push.v1`: what real clients send, requests of which a part is wrong, and the same as JSON.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use intake::{Encoding, Error, ErrorKind, Limits, Taken, push};
use model::Timestamp;
use wire::proto::Writer;

use crate::support::{NOW, Pprof, any_time, captured, shown, sums};

fn take(body: &[u8], encoding: Encoding, limits: &Limits) -> Result<Taken, Error> {
    push(body, encoding, limits, Timestamp::from_nanos(NOW))
}

type Series<'a> = (&'a [(&'a str, &'a str)], Vec<(Vec<u8>, &'a str)>);

fn body(series: &[Series<'_>]) -> Vec<u8> {
    let mut out = Writer::default();
    for (labels, samples) in series {
        out.message(1, |out| {
            // Samples may stand before the labels of their series.
            for (profile, id) in samples {
                out.message(2, |out| {
                    out.blob(1, profile);
                    out.text(2, id);
                });
            }
            for (name, value) in *labels {
                out.message(1, |out| {
                    out.text(1, name);
                    out.text(2, value);
                });
            }
        });
    }
    out.bytes
}

const LABELS: [(&str, &str); 3] =
    [("__name__", "process_cpu"), ("service_name", "shop"), ("region", "eu")];
const UUID: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
const KIND: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

#[test]
fn what_python_sends_is_taken() {
    let Some(body) = captured("python-1.4.0-push.body") else { return };
    let taken = take(&body, Encoding::Protobuf, &any_time()).unwrap();
    assert_eq!(taken.profiles.iter().filter(|profile| profile.is_ok()).count(), 1);
    assert_eq!(sums(&taken).get(KIND), Some(&9_630_000_000));
    let series = taken.batch.all_series().map(|(id, series)| (id, &series.labels));
    let series: Vec<_> = series.collect();
    let of = |is_labelled: bool| {
        let wanted = series.iter().filter(|(_, it)| it.get("controller").is_some() == is_labelled);
        let ids: Vec<_> = wanted.map(|(id, _)| *id).collect();
        let samples = taken.batch.samples().iter().filter(|it| ids.contains(&it.series));
        samples.map(|sample| sample.value).sum::<i64>()
    };
    assert_eq!((of(true), of(false)), (9_600_000_000, 30_000_000));
    let names = ["otel.scope.name", "process.runtime.version", "region", "service_name"];
    for (_, labels) in series {
        assert!(names.iter().all(|name| labels.get(name).is_some()), "{labels:?}");
    }
}

#[test]
fn what_rust_sends_is_taken() {
    let Some(body) = captured("rust-2.1.5-push.body") else { return };
    let taken = take(&body, Encoding::Protobuf, &any_time()).unwrap();
    assert_eq!(sums(&taken).values().sum::<i64>(), 3_000_000_000, "{:?}", sums(&taken));
    let again = take(&body, Encoding::Protobuf, &any_time()).unwrap();
    assert_eq!(taken.profiles, again.profiles);
    assert_eq!(taken.batch.samples(), again.batch.samples());
}

#[test]
fn some_profiles_are_taken_while_others_are_refused() {
    let good = || Pprof::small().sample(&[1], &[5], &[]).bytes();
    let old = || {
        let mut profile = Pprof::small().sample(&[1], &[7], &[]);
        profile.time_ns = 1;
        profile.bytes()
    };
    let many: Vec<(String, String)> =
        (0..60).map(|at| (format!("l{at}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let bytes = body(&[
        (&LABELS, vec![(good(), UUID), (old(), ""), (b"no profile".to_vec(), "")]),
        (&LABELS[1..], vec![(good(), "")]),
        (&many, vec![(good(), "")]),
    ]);
    let taken = take(&bytes, Encoding::Protobuf, &Limits::default()).unwrap();
    assert_eq!(shown(&taken), [format!("{KIND} {{region=eu,service_name=shop}} main 5")]);
    assert_eq!(taken.batch.samples()[0].profile, 0xf47a_c10b_58cc_4372_a567_0e02_b2c3_d479);
    let why: Vec<String> = taken
        .profiles
        .iter()
        .skip(1)
        .map(|it| it.as_ref().unwrap_err().error.to_string())
        .collect();
    assert!(why[0].contains("before its arrival"), "{why:?}");
    assert!(why[1].contains("at byte"), "{why:?}");
    assert_eq!(why[2], "profile name \"\" says nothing");
    assert!(why[3].starts_with("60 labels; 30 are taken: l0, l1,"), "{why:?}");
}

#[test]
fn a_profile_without_a_uuid_has_the_same_id_again() {
    let profile = |value| Pprof::small().sample(&[1], &[value], &[]).bytes();
    let ids = |labels, value, id| {
        let bytes = body(&[(labels, vec![(profile(value), id)])]);
        let taken = take(&bytes, Encoding::Protobuf, &Limits::default()).unwrap();
        taken.profiles[0].as_ref().unwrap().id
    };
    let id = ids(&LABELS, 1, "");
    assert_eq!(ids(&LABELS, 1, ""), id);
    let nil = "00000000-0000-0000-0000-000000000000";
    let others =
        [ids(&LABELS, 2, ""), ids(&LABELS[..2], 1, ""), ids(&LABELS, 1, nil), ids(&LABELS, 1, "7")];
    assert!(others.iter().all(|other| *other != id && *other != 0), "{others:x?}");
}

#[test]
fn json_says_the_same() {
    let profile = Pprof::small().sample(&[2, 1], &[5], &[]).bytes();
    let labels: Vec<String> = LABELS
        .iter()
        .map(|(name, value)| format!(r#"{{"name":"{name}","value":"{value}"}}"#))
        .collect();
    let json = format!(
        r#"{{"series":[{{"labels":[{}],"samples":[{{"rawProfile":"{}","ID":"{UUID}"}}],"annotations":null}}],"other":[1]}}"#,
        labels.join(","),
        BASE64_STANDARD.encode(&profile),
    );
    let bytes = body(&[(&LABELS, vec![(profile, UUID)])]);
    let of_bytes = take(&bytes, Encoding::Protobuf, &Limits::default()).unwrap();
    let of_json = take(json.as_bytes(), Encoding::Json, &Limits::default()).unwrap();
    assert_eq!(of_json.batch.samples(), of_bytes.batch.samples());
    assert_eq!(of_json.profiles, of_bytes.profiles);
    assert_eq!(shown(&of_json), shown(&of_bytes));
}

#[test]
fn a_body_that_is_no_request_is_refused_whole() {
    let check = |body: &[u8], encoding, limits: &Limits, expected: &str| {
        let error = take(body, encoding, limits).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        error.kind()
    };
    let all = Limits::default();
    check(b"\x0a\x05", Encoding::Protobuf, &all, "5 bytes are needed, 0 are there");
    check(b"{", Encoding::Json, &all, "JSON: EOF while parsing");
    check(
        br#"{"series":7}"#,
        Encoding::Json,
        &all,
        "JSON: the field series is not an object at line 1 column 11",
    );
    let field = br#"{"series":[{"samples":[{"rawProfile":"?"}]}]}"#;
    check(field, Encoding::Json, &all, "the field raw_profile is not base64");
    let two = body(&[(&LABELS, vec![(vec![], ""), (vec![], "")])]);
    let limits = Limits { profiles: 1, ..Limits::default() };
    let kind = check(&two, Encoding::Protobuf, &limits, "more than 1 profiles of a request");
    assert_eq!(kind, ErrorKind::TooLarge);
    let limits = Limits { text_bytes: 4, ..Limits::default() };
    check(field, Encoding::Json, &limits, "more than 4 bytes of JSON");
}

#[test]
fn what_profiles_unpack_to_has_a_bound_for_all_of_a_request() {
    let many = (0..1_000).fold(Pprof::small(), |all, _| all.sample(&[1], &[5], &[]));
    let profile = many.bytes();
    let limits = Limits { body_bytes: profile.len() * 5 / 2, ..Limits::default() };
    let packed = gzip(&profile);
    let bytes =
        body(&[(&LABELS, vec![(packed.clone(), "1"), (packed.clone(), "2"), (packed, "3")])]);
    let taken = take(&bytes, Encoding::Protobuf, &limits).unwrap();
    assert_eq!(taken.profiles.iter().filter(|profile| profile.is_ok()).count(), 2);
    let refused = taken.profiles[2].as_ref().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::TooLarge, "{refused}");
}

#[test]
fn what_is_refused_while_it_is_unpacked_counts_as_unpacked() {
    let bomb = gzip(&vec![0; 100_000]);
    let samples = ["1", "2", "3", "4"].map(|id| (bomb.clone(), id));
    let limits = Limits { profile_bytes: 10_000, body_bytes: 25_000, ..Limits::default() };
    let taken = take(&body(&[(&LABELS, samples.to_vec())]), Encoding::Protobuf, &limits).unwrap();
    let why: Vec<String> =
        taken.profiles.iter().map(|it| it.as_ref().unwrap_err().error.to_string()).collect();
    assert!(why[..2].iter().all(|why| why.starts_with("more than 10000 bytes")), "{why:?}");
    assert!(why[2].starts_with("more than 5000 bytes"), "{why:?}");
    assert!(why[3].starts_with("more than 0 bytes"), "{why:?}");
}

#[test]
fn series_have_a_bound_for_all_of_a_request() {
    let value = "v".repeat(2_000);
    let pairs: Vec<(String, &str)> = (0..26).map(|at| (format!("l{at}"), value.as_str())).collect();
    let labels =
        LABELS.into_iter().chain(pairs.iter().map(|(name, value)| (name.as_str(), *value)));
    let labels: Vec<(&str, &str)> = labels.collect();
    let many =
        (0..400).fold(Pprof::small(), |all, at| all.sample(&[1], &[5], &[("id", &at.to_string())]));
    let limits = Limits { body_bytes: 1 << 20, ..Limits::default() };
    let taken =
        take(&body(&[(&labels, vec![(many.bytes(), "")])]), Encoding::Protobuf, &limits).unwrap();
    let refused = taken.profiles[0].as_ref().unwrap_err();
    assert_eq!(refused.error.to_string(), "more than 16777216 bytes of all series of a request");
    assert_eq!(taken.batch.all_series().count(), 0);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}
