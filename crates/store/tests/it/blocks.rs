//! Blocks of any batches: equal samples are equal bytes however they were grouped, and what is asked for is what is there.

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::FieldRef;
use bytes::Bytes;
use model::Timestamp;
use model::samples::{Batch, Frame, Labels, ProfileType, Sample, Series};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::basic::Repetition;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::Type;
use proptest::prelude::*;
use store::block::{Detail, Selection, encode, header, read_into, series_into};

/// A sample in small numbers.
#[derive(Debug, Clone, Copy)]
struct Toy {
    kind: u8,
    service: u8,
    pod: u8,
    frames: [u8; 4],
    at: i64,
    value: i64,
    profile: u8,
    span: u8,
}

fn toys() -> impl Strategy<Value = Vec<Toy>> {
    let toy = (0..3_u8, 0..3_u8, 0..3_u8, any::<[u8; 4]>(), 0..50_i64, 1..9_i64, 0..4_u8, 0..3_u8);
    let toy = toy.prop_map(|(kind, service, pod, frames, at, value, profile, span)| Toy {
        kind,
        service,
        pod,
        frames: frames.map(|frame| frame % 5),
        at,
        value,
        profile,
        span,
    });
    prop::collection::vec(toy, 1..60)
}

fn profile_type(kind: u8) -> ProfileType {
    format!("cpu{kind}:cpu:nanoseconds:cpu:nanoseconds").parse().unwrap()
}

fn batch(toys: &[Toy]) -> Batch {
    let mut batch = Batch::new();
    for toy in toys {
        let mut frames = Vec::new();
        for frame in toy.frames.iter().take_while(|frame| **frame > 0) {
            let function = batch.text(&format!("f{frame}"));
            let file = batch.text("a.c");
            frames.push(batch.frame(Frame {
                function,
                file,
                line: u32::from(*frame),
                is_inlined: *frame == 2,
                address: u64::MAX - u64::from(*frame),
                ..Frame::default()
            }));
        }
        let service = format!("s{}", toy.service);
        let mut labels = vec![("service_name", service)];
        if toy.pod > 0 {
            labels.push(("pod", format!("p{}", toy.pod)));
        }
        let labels = Labels::new(labels);
        let series = Series { profile_type: profile_type(toy.kind), labels };
        let (series, stack) = (batch.series(series), batch.stack(&frames));
        batch.add(Sample {
            series,
            stack,
            at: Timestamp::from_nanos(toy.at),
            value: toy.value,
            profile: u128::from(toy.profile) << 100,
            span_id: u64::from(toy.span) << 60,
            trace_id: u128::from(toy.span) << 90,
        });
    }
    batch
}

/// Everything that a batch says, as text, with how often.
fn said(batch: &Batch) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for sample in batch.samples() {
        let series = batch.series_of(sample.series);
        let frames: Vec<String> = batch
            .frames_of(sample.stack)
            .map(|id| {
                let frame = batch.frame_of(id);
                let texts = [frame.function, frame.file].map(|text| batch.text_of(text));
                format!("{texts:?} {} {} {:x}", frame.line, frame.is_inlined, frame.address)
            })
            .collect();
        let Sample { at, value, profile, span_id, trace_id, .. } = sample;
        let sample = format!("{at:?} {value} {profile:x} {span_id:x} {trace_id:x}");
        *all.entry(format!("{series:?} {frames:?} {sample}")).or_default() += 1;
    }
    all
}

fn block(batch: &Batch) -> Bytes {
    encode(batch).unwrap().unwrap().into()
}

fn merged(blocks: &[Bytes]) -> Bytes {
    let mut all = Batch::new();
    blocks.iter().for_each(|block| read_into(block, &Selection::all(), &mut all).unwrap());
    block(&all)
}

proptest! {
    #[test]
    fn a_block_says_what_its_batch_said(toys in toys()) {
        let batch = batch(&toys);
        let bytes = block(&batch);
        let mut read = Batch::new();
        read_into(&bytes, &Selection::all(), &mut read).unwrap();
        prop_assert_eq!(said(&read), said(&batch));
        let header = header(&bytes).unwrap();
        let times = || toys.iter().map(|toy| toy.at);
        prop_assert_eq!(header.samples, toys.len() as u64);
        prop_assert_eq!(Some(header.begin_unix_ns), times().min());
        prop_assert_eq!(Some(header.end_unix_ns), times().max());
    }

    #[test]
    fn blocks_merged_in_any_order_and_grouping_are_the_same_bytes(
        toys in toys(),
        cuts in prop::collection::vec(0..60_usize, 0..4),
        turn in 0..8_usize,
    ) {
        let whole = block(&batch(&toys));
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(toys.len())).collect();
        cuts.extend([0, toys.len()]);
        cuts.sort_unstable();
        let mut parts: Vec<Bytes> = cuts
            .windows(2)
            .filter_map(|cut| encode(&batch(&toys[cut[0]..cut[1]])).unwrap())
            .map(Bytes::from)
            .collect();
        let count = parts.len();
        parts.rotate_left(turn % count);
        let (left, right) = parts.split_at(count / 2);
        let grouped: Vec<Bytes> =
            [left, right].iter().filter(|it| !it.is_empty()).map(|it| merged(it)).collect();
        prop_assert_eq!(merged(&parts), &whole);
        prop_assert_eq!(merged(&grouped), &whole);
    }

    #[test]
    fn what_is_selected_is_what_lies_there(toys in toys(), kind in 0..4_u8, service in 0..3_u8, from in 0..50_i64, length in 0..50_i64) {
        let bytes = block(&batch(&toys));
        let profile_type = profile_type(kind);
        let wanted = format!("s{service}");
        let mut selection = Selection {
            profile_type: Some(&profile_type),
            series: &|series| store::service(series) == Some(&wanted),
            times: (Timestamp::from_nanos(from), Timestamp::from_nanos(from + length)),
            detail: Detail::Samples,
        };
        let inside: Vec<Toy> = toys
            .iter()
            .filter(|it| it.kind == kind && it.service == service)
            .filter(|it| (from..=from + length).contains(&it.at))
            .copied()
            .collect();
        let mut read = Batch::new();
        read_into(&bytes, &selection, &mut read).unwrap();
        prop_assert_eq!(said(&read), said(&batch(&inside)));

        let mut series = BTreeSet::new();
        series_into(&bytes, selection.times, &mut series).unwrap();
        let in_time = toys.iter().filter(|it| (from..=from + length).contains(&it.at));
        let in_time: Vec<Toy> = in_time.copied().collect();
        let expected = batch(&in_time).all_series().map(|(_, it)| it.clone()).collect();
        // A row that goes on over the time counts, whether it was sampled in it or not.
        prop_assert!(series.is_superset(&expected));
        let all: BTreeSet<Series> = batch(&toys).all_series().map(|(_, it)| it.clone()).collect();
        prop_assert!(series.is_subset(&all));

        selection.detail = Detail::Totals;
        let mut sums = Batch::new();
        read_into(&bytes, &selection, &mut sums).unwrap();
        let by_stack = |batch: &Batch| {
            let mut sums = BTreeMap::<String, i64>::new();
            for sample in batch.samples() {
                let frames: Vec<_> = batch.frames_of(sample.stack).map(|id| batch.text_of(batch.frame_of(id).function).to_owned()).collect();
                *sums.entry(format!("{:?} {frames:?}", batch.series_of(sample.series))).or_default() += sample.value;
            }
            sums
        };
        prop_assert_eq!(by_stack(&sums), by_stack(&read));
        prop_assert!(sums.samples().len() <= read.samples().len());
    }
}

#[test]
fn a_batch_without_samples_is_no_block() {
    assert!(encode(&Batch::new()).unwrap().is_none());
}

/// Sums that pass the range of a number begin another row, and stay exact.
#[test]
fn large_values_are_kept() {
    let toy = Toy {
        kind: 0,
        service: 0,
        pod: 0,
        frames: [1; 4],
        at: 5,
        value: i64::MAX,
        profile: 0,
        span: 0,
    };
    let toys = [toy, Toy { at: 6, value: i64::MAX - 1, ..toy }, Toy { at: 7, value: 3, ..toy }];
    let bytes = block(&batch(&toys));
    for detail in [Detail::Samples, Detail::Totals] {
        let mut read = Batch::new();
        read_into(&bytes, &Selection { detail, ..Selection::all() }, &mut read).unwrap();
        let sum: i128 = read.samples().iter().map(|sample| i128::from(sample.value)).sum();
        assert_eq!(sum, 2 * i128::from(i64::MAX) + 2);
    }
}

/// The number of each field below one, by its path; groups that repeat an item have none of their own.
fn numbers(field: &Type, path: &str, found: &mut BTreeMap<String, i32>) {
    for child in field.get_fields() {
        let path = format!("{path}{}", child.name());
        let info = child.get_basic_info();
        if info.has_id() {
            found.insert(path.clone(), info.id());
        }
        assert!(info.has_id() || info.repetition() == Repetition::REPEATED, "{path}");
        if child.is_group() {
            numbers(child, &format!("{path}."), found);
        }
    }
}

#[test]
fn each_field_has_its_number_in_the_file() {
    let toy =
        Toy { kind: 0, service: 0, pod: 1, frames: [1; 4], at: 5, value: 1, profile: 0, span: 0 };
    let reader = SerializedFileReader::new(block(&batch(&[toy]))).unwrap();
    let mut found = BTreeMap::new();
    numbers(reader.metadata().file_metadata().schema(), "", &mut found);
    let written: BTreeSet<i32> = found.values().copied().collect();
    assert_eq!(written, (1..=41).collect(), "{found:?}");
    assert_eq!(found.len(), 41);
    assert_eq!((found["type"], found["labels.key_value.value"]), (1, 5));
    assert_eq!(
        (found["spans.list.element.trace_id"], found["stacks.list.element.list.element"]),
        (22, 29)
    );
    let number =
        |field: &FieldRef| -> i32 { field.metadata()[PARQUET_FIELD_ID_META_KEY].parse().unwrap() };
    for field in store::block::schema().fields() {
        assert_eq!(found[field.name()], number(field), "{field}");
    }
}

#[test]
fn what_is_no_block_is_refused() {
    let bytes = block(&batch(&[Toy {
        kind: 0,
        service: 0,
        pod: 1,
        frames: [1, 2, 3, 4],
        at: 5,
        value: 2,
        profile: 1,
        span: 1,
    }]));
    let mut read = Batch::new();
    for cut in [0, 4, bytes.len() / 2, bytes.len() - 1] {
        assert!(read_into(&bytes.slice(..cut), &Selection::all(), &mut read).is_err(), "{cut}");
    }
    let other = String::from_utf8_lossy(&bytes).contains("throughline.samples");
    assert!(other);
}

/// A block that is damaged is an error, or says something else; the digest in its name tells before that it is damaged.
#[test]
fn any_changed_byte_is_no_panic() {
    let toy = Toy {
        kind: 0,
        service: 0,
        pod: 1,
        frames: [1, 2, 3, 4],
        at: 5,
        value: 2,
        profile: 1,
        span: 1,
    };
    let bytes = block(&batch(&[toy, Toy { at: 6, frames: [2, 3, 0, 0], ..toy }])).to_vec();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        let mut read = Batch::new();
        refused += usize::from(read_into(&bytes.into(), &Selection::all(), &mut read).is_err());
    }
    assert!(refused * 4 > bytes.len(), "{refused} of {}", bytes.len());
}
