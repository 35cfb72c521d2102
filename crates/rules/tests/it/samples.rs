//! Batches of samples, and rules.

use std::collections::BTreeMap;

use model::Timestamp;
use model::samples::{Batch, Frame, Labels, Sample, Series};
use rules::{Draft, Functions, Rule};

pub(crate) const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
pub(crate) const ALLOC: &str = "memory:alloc_space:bytes:space:bytes";

/// Labels as pairs.
pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A frame as `name`, or `name@mapping`, or `name@mapping@file`; names may be empty.
pub(crate) fn frame(batch: &mut Batch, text: &str) -> model::samples::FrameId {
    let mut parts = text.split('@');
    let [name, mapping, file] = [(); 3].map(|()| batch.text(parts.next().unwrap_or_default()));
    batch.frame(Frame { function: name, mapping, file, address: 0x1f, ..Frame::default() })
}

/// Adds a sample: its stack is frames from the leaf on, with `;` between.
pub(crate) fn add(batch: &mut Batch, kind: &str, labels: Pairs<'_>, stack: &str, value: i64) {
    add_at(batch, kind, labels, stack, (value, 1));
}

/// The same of a value at a time, nanoseconds.
pub(crate) fn add_at(
    batch: &mut Batch,
    kind: &str,
    labels: Pairs<'_>,
    stack: &str,
    (value, at): (i64, i64),
) {
    let texts = stack.split(';').filter(|text| !text.is_empty());
    let frames: Vec<_> = texts.map(|text| frame(batch, text)).collect();
    let stack = batch.stack(&frames);
    let labels = Labels::new(labels.iter().copied());
    let series = batch.series(Series { profile_type: kind.parse().unwrap(), labels });
    let at = Timestamp::from_nanos(at);
    batch.add(Sample { series, stack, at, value, profile: 1, span_id: 0, trace_id: 0 });
}

/// A rule of CPU time whose series have these labels.
pub(crate) fn by(group_by: &[&str]) -> Draft {
    let group_by = group_by.iter().map(|name| (*name).to_owned()).collect();
    Draft { profile_type: CPU.to_owned(), group_by: Some(group_by), ..Draft::default() }
}

pub(crate) fn of(functions: Functions, draft: Draft) -> Draft {
    Draft { functions: Some(functions), ..draft }
}

pub(crate) fn rules(drafts: impl IntoIterator<Item = Draft>) -> Vec<Rule> {
    drafts.into_iter().map(|draft| draft.try_into().unwrap()).collect()
}

/// Series of sums as text, without what names of metrics have in common.
pub(crate) fn text(sums: &rules::Sums) -> BTreeMap<String, i128> {
    let short = |text: String| {
        let text = text.replace("pyroscope_exported_metrics_", "");
        text.replace("process_cpu_cpu_nanoseconds_cpu_nanoseconds", "cpu")
    };
    sums.iter().map(|(labels, sum)| (short(labels.to_string()), sum)).collect()
}
