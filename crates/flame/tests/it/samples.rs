//! Batches of samples in few words.

use model::Timestamp;
use model::samples::{Batch, Frame, Labels, Sample, Series};

pub(crate) const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// A sample: labels, stack (root first, with semicolons), milliseconds, value, profile, span.
pub(crate) type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, i64, i64, u128, u64);

pub(crate) fn series(labels: &[(&str, &str)]) -> Series {
    Series { profile_type: CPU.parse().unwrap(), labels: Labels::new(labels.iter().copied()) }
}

pub(crate) fn batch(rows: &[Row<'_>]) -> Batch {
    let mut batch = Batch::new();
    for &(labels, stack, at_ms, value, profile, span_id) in rows {
        let series = batch.series(series(labels));
        let names = stack.split(';').rev().filter(|name| !name.is_empty());
        let frames: Vec<_> = names
            .map(|name| {
                let function = batch.text(name);
                batch.frame(Frame { function, line: 7, ..Frame::default() })
            })
            .collect();
        let stack = batch.stack(&frames);
        let at = Timestamp::from_nanos(at_ms * 1_000_000 + 999_999);
        let trace_id = u128::from(span_id) << 64;
        batch.add(Sample { series, stack, at, value, profile, span_id, trace_id });
    }
    batch
}
