//! Rows of a block as the columns of a row group.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;
use model::samples::{Batch, Frame, FrameId, Sample, TextId};

use super::schema::{self, ID_BYTES, schema};
use super::write::Row;
use crate::content::Digest;
use crate::error::Error;

pub(super) struct Columns;

impl Columns {
    /// A row group of these rows, whose samples are ranges of all.
    pub(super) fn of(
        batch: &Batch,
        samples: &[Sample],
        rows: &[Row<'_>],
    ) -> Result<RecordBatch, Error> {
        let of_row = |row: &Row<'_>| samples.get(row.samples.clone()).unwrap_or_default();
        let time = |at: fn(&[Sample]) -> Option<&Sample>| -> ArrayRef {
            let times =
                rows.iter().map(|row| at(of_row(row)).map_or(0, |sample| sample.at.nanos()));
            Arc::new(TimestampNanosecondArray::from_iter_values(times))
        };
        let types = rows.iter().map(|row| Some(row.series.profile_type.to_string()));
        let services = rows.iter().map(|row| Some(crate::service(row.series).unwrap_or_default()));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(types.collect::<StringArray>()),
            Arc::new(services.collect::<StringArray>()),
            Arc::new(labels(rows)?),
            Arc::new(digests(rows.iter().map(|row| row.series_digest))?),
            Arc::new(digests(rows.iter().map(|row| row.stack_digest))?),
            Arc::new(frames(batch, rows)?),
            time(|samples| samples.first()),
            time(|samples| samples.last()),
            Arc::new(rows.iter().map(|row| row.total).collect::<Int64Array>()),
            Arc::new(sample_lists(rows.iter().map(of_row))?),
        ];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }
}

fn digests(all: impl ExactSizeIterator<Item = Digest>) -> Result<FixedSizeBinaryArray, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(all.len(), ID_BYTES);
    for digest in all {
        builder.append_value(digest.0)?;
    }
    Ok(builder.finish())
}

/// Ids as 16 bytes, the highest first; 0 is none.
fn ids(all: impl ExactSizeIterator<Item = u128>) -> Result<FixedSizeBinaryArray, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(all.len(), ID_BYTES);
    for id in all {
        match id {
            0 => builder.append_null(),
            id => builder.append_value(id.to_be_bytes())?,
        }
    }
    Ok(builder.finish())
}

fn labels(rows: &[Row<'_>]) -> Result<MapArray, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.series.labels.len()));
    let pairs: Vec<(&str, &str)> = rows.iter().flat_map(|row| row.series.labels.iter()).collect();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(pairs.iter().map(|(key, _)| *key)));
    let values: ArrayRef =
        Arc::new(StringArray::from_iter_values(pairs.iter().map(|(_, value)| *value)));
    let field = schema::item(schema::LABELS);
    let entries = StructArray::try_new(schema::fields(&field), vec![keys, values], None)?;
    MapArray::try_new(field, offsets, entries, None, true)
}

/// The frames of each stack in its first row.
fn frames(batch: &Batch, rows: &[Row<'_>]) -> Result<ListArray, ArrowError> {
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = rows.iter().map(|row| seen.insert(row.stack_digest)).collect();
    let mut all: Vec<Frame> = Vec::new();
    let mut lengths = Vec::with_capacity(rows.len());
    for (row, is_first) in rows.iter().zip(&is_first) {
        let before = all.len();
        if *is_first {
            all.extend(batch.frames_of(row.stack).map(|id: FrameId| batch.frame_of(id)));
        }
        lengths.push(all.len() - before);
    }
    let text = |field: fn(&Frame) -> TextId| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(all.iter().map(|frame| batch.text_of(field(frame)))))
    };
    let number = |field: fn(&Frame) -> u32| -> ArrayRef {
        Arc::new(all.iter().map(field).collect::<UInt32Array>())
    };
    let columns: Vec<ArrayRef> = vec![
        text(|frame| frame.function),
        text(|frame| frame.system_name),
        text(|frame| frame.file),
        number(|frame| frame.line),
        number(|frame| frame.start_line),
        Arc::new(all.iter().map(|frame| Some(frame.is_inlined)).collect::<BooleanArray>()),
        text(|frame| frame.kind),
        text(|frame| frame.mapping),
        text(|frame| frame.build_id),
        Arc::new(all.iter().map(|frame| frame.address).collect::<UInt64Array>()),
    ];
    let field = schema::item(schema::FRAMES);
    let values = StructArray::try_new(schema::fields(&field), columns, None)?;
    let nulls = NullBuffer::from(is_first);
    ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(values), Some(nulls))
}

fn sample_lists<'s>(
    rows: impl Iterator<Item = &'s [Sample]> + Clone,
) -> Result<ListArray, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(rows.clone().map(<[Sample]>::len));
    let all: Vec<&Sample> = rows.flatten().collect();
    let times = all.iter().map(|sample| sample.at.nanos());
    let spans = all.iter().map(|sample| Some(sample.span_id).filter(|id| *id != 0));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampNanosecondArray::from_iter_values(times)),
        Arc::new(all.iter().map(|sample| sample.value).collect::<Int64Array>()),
        Arc::new(ids(all.iter().map(|sample| sample.profile))?),
        Arc::new(spans.collect::<UInt64Array>()),
        Arc::new(ids(all.iter().map(|sample| sample.trace_id))?),
    ];
    let field = schema::item(schema::SAMPLES);
    let values = StructArray::try_new(schema::fields(&field), columns, None)?;
    ListArray::try_new(field, offsets, Arc::new(values), None)
}
