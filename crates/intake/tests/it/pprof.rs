//! pprof: what becomes of it, what is refused, and that nothing is lost.

use std::collections::BTreeMap;

use intake::{Error, ErrorKind, LeftOut, Limits, PprofSource, Taken, pprof};
use model::Timestamp;
use proptest::prelude::*;

use crate::support::{NOW, Pprof, refusal, shown, stack_text, sums};

fn source() -> PprofSource {
    let labels = [("__name__", "process_cpu"), ("service_name", "shop")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    PprofSource { id: 7, labels: labels.to_vec() }
}

fn take(profile: &Pprof) -> Taken {
    pprof(&profile.bytes(), source(), &Limits::default(), Timestamp::from_nanos(NOW))
}

#[test]
fn inlined_functions_are_frames_and_equal_stacks_one_sample() {
    let profile = Pprof::small().sample(&[2, 1], &[30], &[]).sample(&[2, 1], &[12], &[]);
    let taken = take(&profile);
    let kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    assert_eq!(shown(&taken), [format!("{kind} {{service_name=shop}} main;work;inner 42")]);
    let sample = taken.batch.samples()[0];
    assert_eq!((sample.profile, sample.at.nanos(), sample.span_id), (7, NOW, 0));
    let frames: Vec<_> =
        taken.batch.frames_of(sample.stack).map(|frame| taken.batch.frame_of(frame)).collect();
    let text = |id| taken.batch.text_of(id);
    let [inner, work, main] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!((inner.is_inlined, work.is_inlined, main.is_inlined), (true, false, false));
    assert_eq!((text(work.file), work.line, work.start_line), ("w.c", 8, 7));
    assert_eq!((text(work.mapping), text(work.build_id), work.address), ("/bin/w", "f00d", 0x120));
    // An address in no file says nothing of a function with a name.
    assert_eq!((text(main.system_name), main.address), ("", 0));
}

#[test]
fn labels_of_samples_split_series_and_spans_do_not() {
    let span = [("span_id", "00000000000000ff"), ("trace_id", "000000000000000000000000000000fe")];
    let old = [("profile_id", "00000000000000fd"), ("span_id", "no id")];
    let profile = Pprof::small()
        .sample(&[1], &[1], &[("region", "eu"), ("service_name", "other")])
        .sample(&[1], &[2], &[("service_name", "other"), ("region", "eu")])
        .sample(&[1], &[4], &span)
        .sample(&[1], &[8], &old[..1]);
    let mut profile = profile;
    let bytes = profile.string("bytes");
    profile.samples[0].labels.push((bytes, 0, 4096));
    let taken = take(&profile);
    let kind = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
    let lines = [
        format!("{kind} {{region=eu,service_name=shop}} main 3"),
        format!("{kind} {{service_name=shop}} main 4"),
        format!("{kind} {{service_name=shop}} main 8"),
    ];
    assert_eq!(shown(&taken), lines);
    let mut spans: Vec<_> =
        taken.batch.samples().iter().map(|s| (s.value, s.span_id, s.trace_id)).collect();
    spans.sort_unstable();
    assert_eq!(spans, [(3, 0, 0), (4, 0xff, 0xfe), (8, 0xfd, 0)]);
}

#[test]
fn what_counts_nothing_is_left_out_and_an_empty_profile_is_taken() {
    let profile = Pprof::small().sample(&[1], &[0], &[]).sample(&[2], &[-5], &[]);
    let taken = take(&profile);
    let accepted = taken.profiles[0].as_ref().unwrap();
    let left_out = LeftOut { zeros: 1, negatives: 1, ..LeftOut::default() };
    assert_eq!((accepted.samples, accepted.left_out), (0, left_out));
    assert_eq!(taken.batch.all_series().count(), 0);
    let nothing = pprof(&[], source(), &Limits::default(), Timestamp::from_nanos(NOW));
    assert_eq!(nothing.profiles[0].as_ref().unwrap().samples, 0);
}

#[test]
fn names_follow_the_rules_of_pyroscope() {
    let named = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let source = PprofSource { id: 1, labels: labels.collect() };
        let bytes = Pprof::small().sample(&[1], &[1], &[]).bytes();
        let taken = pprof(&bytes, source, &Limits::default(), Timestamp::from_nanos(NOW));
        shown(&taken).first().cloned().unwrap_or_else(|| refusal(&taken))
    };
    let kind = "cpu:nanoseconds:cpu:nanoseconds";
    assert_eq!(
        named(&[("__name__", "godeltaprof_memory"), ("__session_id__", "4")]),
        format!("memory:{kind} {{service_name=unknown_service}} main 1")
    );
    assert_eq!(
        named(&[("__name__", "wall"), ("__type__", "cpu"), ("service_name", "s")]),
        format!("process_cpu:{kind} {{__name_replaced__=wall,service_name=s}} main 1")
    );
    assert_eq!(named(&[("service_name", "s")]), "profile name \"\" says nothing");
    assert_eq!(named(&[("__name__", "a:b")]), "profile name \"a:b\" has a colon in it");
}

#[test]
fn each_wrong_profile_is_refused_with_what_is_wrong() {
    let check = |change: fn(&mut Pprof), expected: &str| {
        let mut profile = Pprof::small().sample(&[2, 1], &[30], &[("a", "b")]);
        change(&mut profile);
        let taken = take(&profile);
        assert_eq!(refusal(&taken), expected);
        let refused = taken.profiles[0].as_ref().unwrap_err();
        assert_eq!(refused.series, "process_cpu{service_name=\"shop\"}");
        assert_eq!((refused.id, refused.error.kind()), (Some(7), ErrorKind::Invalid));
    };
    check(|p| p.strings[0] = "x".into(), "string 0 is \"x\" and not empty");
    check(|p| p.functions[0][0] = 0, "function number 0 has the id 0");
    check(|p| p.locations[1].0 = 0, "location number 1 has the id 0");
    check(|p| p.functions[0][0] = 2, "two functions have the id 2");
    check(|p| p.locations[1].0 = 1, "two locations have the id 1");
    check(|p| p.locations[0].3[0].0 = 9, "location 1 refers to function 9, which is not there");
    check(|p| p.locations[0].1 = 9, "location 1 refers to mapping 9, which is not there");
    check(|p| p.functions[0][1] = 99, "function 1 refers to string 99, which is not there");
    check(|p| p.mappings[0][5] = 99, "mapping 1 refers to string 99, which is not there");
    check(|p| p.samples[0].locations[0] = 9, "sample 0 refers to location 9, which is not there");
    check(|p| p.samples[0].labels[0].0 = 99, "sample 0 refers to string 99, which is not there");
    check(|p| p.samples[0].labels[0].1 = 99, "sample 0 refers to string 99, which is not there");
    check(|p| p.samples[0].values.push(1), "sample number 0 has 2 values for 1 sample types");
    check(|p| p.strings[1] = "on-cpu".into(), "sample type \"on-cpu\" has a minus in it");
    check(|p| p.types[0].1 = 0, "sample unit \"\" says nothing");
    check(|p| p.types[0].0 = 99, "sample type 0 refers to string 99, which is not there");
    check(|p| p.period_type.0 = 99, "period type 0 refers to string 99, which is not there");
    check(
        |p| {
            let mut again = p.samples[0].clone();
            again.values[0] = i64::MAX;
            p.samples.push(again);
        },
        "the values of equal samples add up to more than 2^63 - 1",
    );
    check(
        |p| p.time_ns = NOW - 7_200_000_000_000,
        "a sample is from 7200 s before its arrival; 3600 s are taken",
    );
    check(
        |p| p.time_ns = NOW + 7_200_000_000_000,
        "a sample is from 7200 s after its arrival; 600 s are taken",
    );
}

#[test]
fn damaged_bytes_are_refused_with_their_place() {
    let bytes = Pprof::small().sample(&[2, 1], &[30], &[]).bytes();
    let taken =
        |bytes: &[u8], limits: &Limits| pprof(bytes, source(), limits, Timestamp::from_nanos(NOW));
    let cut = refusal(&taken(&bytes[..bytes.len() - 1], &Limits::default()));
    assert!(cut.contains("bytes are needed"), "{cut}");
    let mut wrong = bytes.clone();
    let at = wrong.windows(4).position(|it| it == b"work").unwrap();
    wrong[at] = 0xff;
    let place = format!("text that is not UTF-8 at byte {at}, in string_table");
    assert_eq!(refusal(&taken(&wrong, &Limits::default())), place);
    let damaged = refusal(&taken(&[0x1f, 0x8b, 8, 0, 0], &Limits::default()));
    assert_eq!(damaged, "the compressed bytes are damaged at byte 0, in gzip");
    // A string of 10 GB that is announced and does not come.
    let announced = [0x32, 0x80, 0x80, 0x80, 0x80, 0x28];
    assert!(
        refusal(&taken(&announced, &Limits::default())).contains("10737418240 bytes are needed")
    );
    let limits = Limits { profile_bytes: 64, ..Limits::default() };
    let large = taken(&bytes, &limits);
    assert_eq!(refusal(&large), "more than 64 bytes at byte 0, in profile");
    assert_eq!(large.profiles[0].as_ref().unwrap_err().error.kind(), ErrorKind::TooLarge);
}

#[test]
fn limits_cut_or_refuse() {
    let take = |profile: &Pprof, limits: &Limits| {
        pprof(&profile.bytes(), source(), limits, Timestamp::from_nanos(NOW))
    };
    let profile = Pprof::small().sample(&[2, 1, 1], &[1], &[("a", "b"), ("c", "d")]);
    // The root's side of a stack and the end of a name are kept.
    let limits = Limits { stack_frames: 3, symbol_bytes: 3, ..Limits::default() };
    let taken = take(&profile, &limits);
    assert_eq!(stack_text(&taken.batch, taken.batch.samples()[0].stack), "ain;ain;ork");
    let left_out = taken.profiles[0].as_ref().unwrap().left_out;
    assert_eq!((left_out.deep_stacks, left_out.zeros), (1, 0));
    assert!(left_out.long_texts >= 2, "{left_out:?}");

    let check = |limits: Limits, expected: &str| {
        assert_eq!(refusal(&take(&profile, &limits)), expected);
    };
    let limits = Limits::default();
    check(
        Limits { label_names: 3, ..limits.clone() },
        "4 labels; 3 are taken: a, c, service_name…",
    );
    check(Limits { sample_labels: 1, ..limits.clone() }, "more than 1 labels of a sample");
    check(Limits { profile_samples: 0, ..limits.clone() }, "more than 0 samples");
    let expected = "a label's name of 12 bytes; 4 are taken: service_name…";
    check(Limits { label_name_bytes: 4, ..limits.clone() }, expected);
    let expected = "the value of label service_name has 4 bytes; 2 are taken";
    check(Limits { label_value_bytes: 2, ..limits }, expected);
}

#[test]
fn times_of_any_age_are_taken_where_there_is_no_limit() {
    let mut profile = Pprof::small().sample(&[1], &[1], &[]);
    profile.time_ns = 5;
    let limits = Limits { oldest: None, newest: None, ..Limits::default() };
    let taken = pprof(&profile.bytes(), source(), &limits, Timestamp::from_nanos(NOW));
    assert_eq!(taken.batch.samples()[0].at.nanos(), 5);
}

/// A small alphabet, so that stacks and labels meet again.
fn profiles() -> impl Strategy<Value = Pprof> {
    let labels = prop::collection::vec((0..3usize, 0..3usize), 0..4);
    let stack = prop::collection::vec(1..=4u64, 0..6);
    let sample = (stack, prop::array::uniform2(-3..1_000_000i64), labels);
    prop::collection::vec(sample, 0..40).prop_map(|samples| {
        let mut profile = Pprof::small();
        let (count, unit) = (profile.string("samples"), profile.string("count"));
        profile.types.insert(0, (count, unit));
        profile.locations.push((3, 1, 0x4030, vec![]));
        profile.locations.push((4, 0, 0x77, vec![]));
        for (stack, values, labels) in samples {
            let labels: Vec<(&str, &str)> = labels
                .into_iter()
                .map(|(key, value)| (["a", "b", "service_name"][key], ["x", "y", "z"][value]))
                .collect();
            profile = profile.sample(&stack, &values, &labels);
        }
        profile
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_any_profile_stay(profile in profiles()) {
        let taken = take(&profile);
        let mut expected = BTreeMap::new();
        let kinds = ["process_cpu:samples:count:cpu:nanoseconds", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"];
        for sample in &profile.samples {
            for (kind, value) in kinds.into_iter().zip(&sample.values) {
                if *value > 0 {
                    *expected.entry(kind.to_owned()).or_default() += value;
                }
            }
        }
        prop_assert_eq!(sums(&taken), expected);
        // No two samples are the same, and the same bytes give the same batch.
        let mut places: Vec<_> = taken.batch.samples().iter().map(|s| (s.series, s.stack)).collect();
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len(), taken.batch.samples().len());
        let again = take(&profile);
        prop_assert_eq!(taken.batch.samples(), again.batch.samples());
    }

    #[test]
    fn any_change_of_a_byte_is_taken_or_refused(profile in profiles(), at in 0.0..1.0f64, to: u8) {
        let mut bytes = profile.bytes();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the bytes")]
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] = to;
        let taken = pprof(&bytes, source(), &Limits::default(), Timestamp::from_nanos(NOW));
        match &taken.profiles[..] {
            [Err(refused)] => {
                if let Error::Bytes(error) = &refused.error {
                    prop_assert!(error.offset <= bytes.len());
                }
                prop_assert!(taken.batch.samples().is_empty());
            }
            [Ok(accepted)] => prop_assert_eq!(accepted.samples, taken.batch.samples().len()),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
