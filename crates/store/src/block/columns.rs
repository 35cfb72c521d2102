//! Rows of a block as the columns of a row group.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef};
use model::samples::{Batch, Frame, Sample, Series, TextId};

use super::order::{Ordered, Row};
use super::schema::{self, ID_BYTES, schema};
use super::tables::{Run, Tables};
use crate::content::{self, Digest};
use crate::error::Error;

/// A row group of these rows, with its tables.
pub(super) fn columns(
    batch: &Batch,
    ordered: &Ordered<'_>,
    tables: &Tables,
    rows: &[Row],
) -> Result<RecordBatch, Error> {
    let series = |run: &Run| batch.series_of(run.series);
    let series_digests: Vec<Digest> =
        tables.runs.iter().map(|run| content::of_series(series(run))).collect();
    let part = part(tables, rows, &series_digests);
    let each_series = || tables.runs.iter().flat_map(|run| repeat_n(series(run), run.rows.len()));
    let each_digest = tables.runs.iter().zip(&series_digests);
    let each_digest = each_digest.flat_map(|(run, digest)| repeat_n(*digest, run.rows.len()));
    let time = |at_ns: fn(&Run) -> i64| -> ArrayRef {
        let times = tables.runs.iter().flat_map(|run| repeat_n(at_ns(run), run.rows.len()));
        Arc::new(TimestampNanosecondArray::from_iter_values(times))
    };
    let types: Vec<String> =
        tables.runs.iter().map(|run| series(run).profile_type.to_string()).collect();
    let each_type = tables.runs.iter().zip(&types);
    let each_type = each_type.flat_map(|(run, text)| repeat_n(Some(text), run.rows.len()));
    let each_service = tables.runs.iter().flat_map(|run| {
        let service = crate::service(series(run)).unwrap_or_default();
        repeat_n(Some(service), run.rows.len())
    });
    let [places, after, values, spans] = samples(ordered, tables, rows)?;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(each_type.collect::<StringArray>()),
        Arc::new(each_service.collect::<StringArray>()),
        Arc::new(labels(&each_series().collect::<Vec<_>>())?),
        Arc::new(digests(rows.len(), each_digest)?),
        Arc::new(digests(rows.len(), repeat_n(part, rows.len()))?),
        Arc::new(rows.iter().map(|row| tables.stack_place(row.stack)).collect::<UInt32Array>()),
        time(|run| run.begin_ns),
        time(|run| run.end_ns),
        Arc::new(rows.iter().map(|row| row.total).collect::<Int64Array>()),
        places,
        after,
        values,
        spans,
        Arc::new(profiles(tables)?),
        Arc::new(stacks(batch, tables, rows.len())?),
        Arc::new(locations(batch, tables, rows.len())?),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// What no other row group has: a digest of most of what this one has.
fn part(tables: &Tables, rows: &[Row], series: &[Digest]) -> Digest {
    let mut said: Vec<u8> = Vec::new();
    for (run, digest) in tables.runs.iter().zip(series) {
        said.extend(digest.0);
        for (id, at_ns) in &run.profiles {
            said.extend(id.to_le_bytes());
            said.extend(at_ns.to_le_bytes());
        }
    }
    for row in rows {
        said.extend(tables.stack_place(row.stack).to_le_bytes());
        said.extend(row.total.to_le_bytes());
    }
    Digest::of(&said)
}

/// Ids as 16 bytes, the highest first; 0 is none.
fn ids(count: usize, all: impl Iterator<Item = u128>) -> Result<FixedSizeBinaryArray, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(count, ID_BYTES);
    for id in all {
        match id {
            0 => builder.append_null(),
            id => builder.append_value(id.to_be_bytes())?,
        }
    }
    Ok(builder.finish())
}

fn digests(
    count: usize,
    all: impl Iterator<Item = Digest>,
) -> Result<FixedSizeBinaryArray, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(count, ID_BYTES);
    for digest in all {
        builder.append_value(digest.0)?;
    }
    Ok(builder.finish())
}

fn labels(series: &[&Series]) -> Result<MapArray, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(series.iter().map(|series| series.labels.len()));
    let pairs: Vec<(&str, &str)> = series.iter().flat_map(|series| series.labels.iter()).collect();
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(pairs.iter().map(|(key, _)| *key)));
    let values: ArrayRef =
        Arc::new(StringArray::from_iter_values(pairs.iter().map(|(_, value)| *value)));
    let field = schema::item(schema::LABELS);
    let entries = StructArray::try_new(schema::fields(&field), vec![keys, values], None)?;
    MapArray::try_new(field, offsets, entries, None, false)
}

/// The columns of samples: places of profiles, times after these, values, spans. But for the first they are null where they would say
/// nothing.
fn samples(
    ordered: &Ordered<'_>,
    tables: &Tables,
    rows: &[Row],
) -> Result<[ArrayRef; 4], ArrowError> {
    let mut lists = Lists::default();
    for run in &tables.runs {
        for row in rows.get(run.rows.clone()).unwrap_or_default() {
            lists.add(run, ordered.samples(row.samples.clone()));
        }
    }
    let numbers = |column, numbers: Vec<i64>, lengths: &[Option<usize>]| {
        some_lists(schema::item(column), Arc::new(Int64Array::from(numbers)), lengths)
    };
    let item = schema::item(schema::SAMPLES);
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.samples.len()));
    let places =
        ListArray::try_new(item, offsets, Arc::new(UInt32Array::from(lists.places)), None)?;
    let after = numbers(schema::AFTER, lists.after, &lists.after_lengths)?;
    let values = numbers(schema::VALUES, lists.values, &lists.values_lengths)?;
    let spans = &lists.spans;
    let span_ids = spans.iter().map(|(_, sample)| Some(sample.span_id).filter(|id| *id != 0));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(spans.iter().map(|(place, _)| *place).collect::<UInt32Array>()),
        Arc::new(span_ids.collect::<UInt64Array>()),
        Arc::new(ids(spans.len(), spans.iter().map(|(_, sample)| sample.trace_id))?),
    ];
    let item = schema::item(schema::SPANS);
    let spans = StructArray::try_new(schema::fields(&item), columns, None)?;
    let spans = some_lists(item, Arc::new(spans), &lists.spans_lengths)?;
    Ok([Arc::new(places), Arc::new(after), Arc::new(values), Arc::new(spans)])
}

/// What samples of rows say, with the length of each row's list where it has one.
#[derive(Default)]
struct Lists<'s> {
    places: Vec<u32>,
    after: Vec<i64>,
    after_lengths: Vec<Option<usize>>,
    values: Vec<i64>,
    values_lengths: Vec<Option<usize>>,
    spans: Vec<(u32, &'s Sample)>,
    spans_lengths: Vec<Option<usize>>,
}

impl<'s> Lists<'s> {
    fn add(&mut self, run: &Run, row: impl ExactSizeIterator<Item = &'s Sample>) {
        let count = row.len();
        let (after_before, spans_before) = (self.after.len(), self.spans.len());
        let mut is_after = false;
        for (place, sample) in (1..).zip(row) {
            let (profile, after_ns) = run.place(sample);
            self.places.push(profile);
            self.after.push(after_ns);
            is_after |= after_ns != 0;
            if count > 1 {
                self.values.push(sample.value);
            }
            if (sample.span_id, sample.trace_id) != (0, 0) {
                self.spans.push((place, sample));
            }
        }
        if !is_after {
            self.after.truncate(after_before);
        }
        self.after_lengths.push(is_after.then_some(count));
        self.values_lengths.push((count > 1).then_some(count));
        let spans = self.spans.len() - spans_before;
        self.spans_lengths.push((spans > 0).then_some(spans));
    }
}

/// The profiles of each series in its first row.
fn profiles(tables: &Tables) -> Result<ListArray, ArrowError> {
    let all = || tables.runs.iter().flat_map(|run| &run.profiles);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids(all().count(), all().map(|(id, _)| *id))?),
        Arc::new(TimestampNanosecondArray::from_iter_values(all().map(|(_, at_ns)| *at_ns))),
    ];
    let field = schema::item(schema::PROFILES);
    let values = StructArray::try_new(schema::fields(&field), columns, None)?;
    let lists = tables.runs.iter().flat_map(|run| {
        let is_first = (0..run.rows.len()).map(|row| row == 0);
        is_first.map(|is_first| is_first.then_some(run.profiles.len()))
    });
    some_lists(field, Arc::new(values), &lists.collect::<Vec<_>>())
}

/// Lists of so many items each; `None` is null.
fn some_lists(
    item: FieldRef,
    items: ArrayRef,
    lengths: &[Option<usize>],
) -> Result<ListArray, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    let nulls = lengths.iter().map(Option::is_some).collect::<NullBuffer>();
    ListArray::try_new(item, offsets, items, Some(nulls))
}

/// The lengths of a table that the first row has.
fn in_first_row(length: usize, row_count: usize) -> Vec<Option<usize>> {
    (0..row_count).map(|row| (row == 0).then_some(length)).collect()
}

fn locations(batch: &Batch, tables: &Tables, row_count: usize) -> Result<ListArray, ArrowError> {
    let all: Vec<Frame> = tables.locations.iter().map(|id| batch.frame_of(*id)).collect();
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
    let field = schema::item(schema::LOCATIONS);
    let values = StructArray::try_new(schema::fields(&field), columns, None)?;
    some_lists(field, Arc::new(values), &in_first_row(all.len(), row_count))
}

fn stacks(batch: &Batch, tables: &Tables, row_count: usize) -> Result<ListArray, ArrowError> {
    let frames = || tables.stacks.iter().map(|stack| batch.frames_of(*stack));
    let offsets = OffsetBuffer::from_lengths(frames().map(|frames| frames.len()));
    let places = frames().flatten().map(|frame| tables.location_place(frame));
    let places: ArrayRef = Arc::new(places.collect::<UInt32Array>());
    let stack = schema::item(schema::STACKS);
    let DataType::List(place) = stack.data_type() else {
        return Err(ArrowError::SchemaError("a stack is no list".to_owned()));
    };
    let stacks = ListArray::try_new(Arc::clone(place), offsets, places, None)?;
    let lengths = in_first_row(tables.stacks.len(), row_count);
    some_lists(stack, Arc::new(stacks), &lengths)
}
