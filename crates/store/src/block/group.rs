//! A row group of a block that is read: only the rows that are asked for.

use std::iter::{once, repeat_n};
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray, StructArray};
use bytes::Bytes;
use model::Timestamp;
use model::samples::{Batch, Frame, FrameId, Labels, Sample, Series, SeriesId, StackId};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};

use super::read::{Detail, Selection};
use super::schema;
use crate::content::Digest;
use crate::error::Error;

/// A row group.
pub(super) struct Group<'b> {
    pub(super) bytes: &'b Bytes,
    pub(super) metadata: &'b ArrowReaderMetadata,
    /// Which of the block's.
    pub(super) number: usize,
    /// The number of its first row in the block.
    pub(super) first: usize,
    /// How many it has.
    pub(super) rows: usize,
}

/// Neighbouring rows of one series.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) series: Digest,
    rows: Range<usize>,
    begin_ns: i64,
    end_ns: i64,
}

/// Profiles of a series in a row group: ids and times.
type Profiles = Vec<(u128, i64)>;

/// Rows that are asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) series: SeriesId,
    pub(super) run: Run,
}

impl Group<'_> {
    /// The runs of rows that were sampled at the times of a selection.
    pub(super) fn runs(&self, selection: &Selection<'_>) -> Result<Vec<Run>, Error> {
        let mut runs: Vec<Run> = Vec::new();
        let columns = [schema::SERIES, schema::BEGIN, schema::END];
        self.read(&columns, once(0..self.rows), |first, rows| {
            let series = column(rows, schema::SERIES)?.as_fixed_size_binary();
            let times = |name| {
                Ok::<_, Error>(column(rows, name)?.as_primitive::<TimestampNanosecondType>())
            };
            let (begins, ends) = (times(schema::BEGIN)?, times(schema::END)?);
            for at in 0..rows.num_rows() {
                let (begin_ns, end_ns) = (begins.value(at), ends.value(at));
                match runs.last_mut() {
                    Some(run)
                        if run.series.0 == series.value(at)
                            && (run.begin_ns, run.end_ns) == (begin_ns, end_ns) =>
                    {
                        run.rows.end += 1;
                    }
                    _ => {
                        let row = first + at;
                        let series =
                            digest(series, at).ok_or_else(|| self.damaged("a digest", row))?;
                        runs.push(Run { series, rows: row..row + 1, begin_ns, end_ns });
                    }
                }
            }
            Ok(())
        })?;
        let times = selection.times();
        runs.retain(|run| run.begin_ns <= *times.end() && run.end_ns >= *times.start());
        Ok(runs)
    }

    /// The series of runs.
    pub(super) fn series(&self, runs: &[Run]) -> Result<Vec<Series>, Error> {
        let mut found = Vec::with_capacity(runs.len());
        let firsts = runs.iter().map(|run| run.rows.start..run.rows.start + 1);
        self.read(&[schema::TYPE, schema::LABELS], firsts, |first, rows| {
            let types = column(rows, schema::TYPE)?.as_string::<i32>();
            let labels = column(rows, schema::LABELS)?.as_map();
            for at in 0..rows.num_rows() {
                let damaged = |what| self.damaged(what, first + at);
                let profile_type =
                    types.value(at).parse().map_err(|_text| damaged("a profile type"))?;
                let pairs = labels.value(at);
                let (names, values) = (texts(&pairs, 0), texts(&pairs, 1));
                let (Some(names), Some(values)) = (names, values) else {
                    return Err(damaged("labels"));
                };
                let pairs = names.iter().zip(values.iter());
                let labels = Labels::new(pairs.filter_map(|(name, value)| Some((name?, value?))));
                found.push(Series { profile_type, labels });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Adds what is selected of runs.
    pub(super) fn give(
        &self,
        wanted: &[Wanted],
        selection: &Selection<'_>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        let times = selection.times();
        let is_whole = |it: &&Wanted| {
            selection.detail == Detail::Totals
                && times.contains(&it.run.begin_ns)
                && times.contains(&it.run.end_ns)
        };
        let (whole, parts): (Vec<&Wanted>, Vec<&Wanted>) = wanted.iter().partition(is_whole);
        let mut tables = Tables::read(self)?;
        self.give_totals(&whole, &mut tables, batch)?;
        self.give_samples(&parts, selection, &mut tables, batch)
    }

    fn give_totals(
        &self,
        wanted: &[&Wanted],
        tables: &mut Tables,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let mut each = each_row(wanted);
        self.read(&[schema::STACK, schema::TOTAL], ranges(wanted), |first, rows| {
            let stacks = column(rows, schema::STACK)?.as_primitive::<UInt32Type>();
            let totals = column(rows, schema::TOTAL)?.as_primitive::<Int64Type>();
            for (at, wanted) in (0..rows.num_rows()).zip(&mut each) {
                let stack = tables.stack(stacks.value(at), batch);
                let stack = stack.ok_or_else(|| self.damaged("a stack", first + at))?;
                batch.add(total(wanted.series, stack, wanted.run.begin_ns, totals.value(at)));
            }
            Ok(())
        })
    }

    fn give_samples(
        &self,
        wanted: &[&Wanted],
        selection: &Selection<'_>,
        tables: &mut Tables,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let times = selection.times();
        let profiles = self.profiles(wanted)?;
        let each_profiles = wanted.iter().zip(&profiles);
        let each_profiles =
            each_profiles.flat_map(|(it, profiles)| repeat_n(profiles, it.run.rows.len()));
        let mut each = each_row(wanted).zip(each_profiles);
        let columns = [
            schema::STACK,
            schema::TOTAL,
            schema::SAMPLES,
            schema::AFTER,
            schema::VALUES,
            schema::SPANS,
        ];
        self.read(&columns, ranges(wanted), |first, rows| {
            let stacks = column(rows, schema::STACK)?.as_primitive::<UInt32Type>();
            let totals = column(rows, schema::TOTAL)?.as_primitive::<Int64Type>();
            let samples = Samples::of(rows)?;
            for (at, (wanted, profiles)) in (0..rows.num_rows()).zip(&mut each) {
                let damaged = |what| self.damaged(what, first + at);
                let stack = tables.stack(stacks.value(at), batch);
                let stack = stack.ok_or_else(|| damaged("a stack"))?;
                let (series, total) = (wanted.series, totals.value(at));
                let of = Of { series, stack, total, profiles };
                let mut sum: i64 = 0;
                for sample in samples.of_row(at, &of) {
                    let sample = sample.ok_or_else(|| damaged("a sample"))?;
                    if !times.contains(&sample.at.nanos()) {
                        continue;
                    }
                    match selection.detail {
                        Detail::Samples => batch.add(sample),
                        Detail::Totals => {
                            let more = sum.checked_add(sample.value);
                            sum = more.ok_or_else(|| damaged("a sum that is too large"))?;
                        }
                    }
                }
                if sum > 0 {
                    let at_ns = wanted.run.begin_ns.max(*times.start());
                    batch.add(self::total(series, stack, at_ns, sum));
                }
            }
            Ok(())
        })
    }

    /// The profiles of each run.
    fn profiles(&self, wanted: &[&Wanted]) -> Result<Vec<Profiles>, Error> {
        let mut found = Vec::with_capacity(wanted.len());
        let firsts = wanted.iter().map(|it| it.run.rows.start..it.run.rows.start + 1);
        self.read(&[schema::PROFILES], firsts, |_, rows| {
            let lists = column(rows, schema::PROFILES)?.as_list::<i32>();
            for at in 0..lists.len() {
                let profiles = lists.value(at);
                let profiles = profiles.as_struct();
                let ids = profiles.column(0).as_fixed_size_binary();
                let times = profiles.column(1).as_primitive::<TimestampNanosecondType>();
                let all = (0..profiles.len()).map(|at| (id(ids, at), times.value(at)));
                found.push(all.collect());
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads columns of rows, which are in order. What is given has the number of its first row of those that were read; that is only
    /// the number of a row of the group when all were.
    fn read(
        &self,
        columns: &[&str],
        rows: impl IntoIterator<Item = Range<usize>>,
        mut give: impl FnMut(usize, &RecordBatch) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (selection, count) = selected(rows);
        if count == 0 {
            return Ok(());
        }
        let metadata = self.metadata.clone();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.bytes.clone(), metadata);
        let fields = self.metadata.schema().fields().iter().enumerate();
        let roots = fields.filter(|(_, field)| columns.contains(&field.name().as_str()));
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.map(|(at, _)| at));
        let reader = builder
            .with_projection(mask)
            .with_row_groups(vec![self.number])
            .with_row_selection(selection)
            .with_batch_size(count)
            .build()?;
        let mut first = 0;
        for rows in reader {
            let rows = rows?;
            give(first, &rows)?;
            first += rows.num_rows();
        }
        if first == count { Ok(()) } else { Err(self.damaged("rows that are missing", first)) }
    }

    fn damaged(&self, what: &'static str, row: usize) -> Error {
        Error::Damaged { what, row: self.first.saturating_add(row) }
    }
}

fn selected(rows: impl IntoIterator<Item = Range<usize>>) -> (RowSelection, usize) {
    let (mut selectors, mut end, mut count) = (Vec::new(), 0, 0);
    for range in rows {
        if range.start > end {
            selectors.push(RowSelector::skip(range.start - end));
        }
        selectors.push(RowSelector::select(range.len()));
        count += range.len();
        end = range.end;
    }
    (selectors.into(), count)
}

fn ranges(wanted: &[&Wanted]) -> impl Iterator<Item = Range<usize>> {
    wanted.iter().map(|it| it.run.rows.clone())
}

/// Whose each of the rows is.
fn each_row<'w>(wanted: &'w [&Wanted]) -> impl Iterator<Item = &'w Wanted> {
    wanted.iter().flat_map(|it| repeat_n(*it, it.run.rows.len()))
}

/// What rows of a group refer to. What nobody asks for stays there.
struct Tables {
    locations: StructArray,
    location_ids: Vec<Option<FrameId>>,
    stacks: ListArray,
    stack_ids: Vec<Option<StackId>>,
}

impl Tables {
    fn read(group: &Group<'_>) -> Result<Self, Error> {
        let mut found = None;
        group.read(&[schema::LOCATIONS, schema::STACKS], once(0..1), |_, rows| {
            let table = |name| {
                let lists = column(rows, name)?.as_list::<i32>();
                if lists.is_null(0) {
                    return Err(group.damaged("tables", 0));
                }
                Ok(lists.value(0))
            };
            let locations = table(schema::LOCATIONS)?.as_struct().clone();
            let stacks = table(schema::STACKS)?.as_list::<i32>().clone();
            found = Some(Self {
                location_ids: vec![None; locations.len()],
                locations,
                stack_ids: vec![None; stacks.len()],
                stacks,
            });
            Ok(())
        })?;
        found.ok_or_else(|| group.damaged("tables", 0))
    }

    fn stack(&mut self, place: u32, batch: &mut Batch) -> Option<StackId> {
        let at = place.checked_sub(1)? as usize;
        if let Some(known) = *self.stack_ids.get(at)? {
            return Some(known);
        }
        let places = self.stacks.value(at);
        let places = places.as_primitive::<UInt32Type>().values();
        let frames: Option<Vec<FrameId>> =
            places.iter().map(|place| self.location(*place, batch)).collect();
        let stack = batch.stack(&frames?);
        *self.stack_ids.get_mut(at)? = Some(stack);
        Some(stack)
    }

    fn location(&mut self, place: u32, batch: &mut Batch) -> Option<FrameId> {
        let at = place.checked_sub(1)? as usize;
        if let Some(known) = *self.location_ids.get(at)? {
            return Some(known);
        }
        let mut text = |column| Some(batch.text(texts(&self.locations, column)?.value(at)));
        let number =
            |column: usize| self.locations.column(column).as_primitive::<UInt32Type>().value(at);
        let frame = Frame {
            function: text(0)?,
            system_name: text(1)?,
            file: text(2)?,
            line: number(3),
            start_line: number(4),
            is_inlined: self.locations.column(5).as_boolean().value(at),
            kind: text(6)?,
            mapping: text(7)?,
            build_id: text(8)?,
            address: self.locations.column(9).as_primitive::<UInt64Type>().value(at),
        };
        let id = batch.frame(frame);
        *self.location_ids.get_mut(at)? = Some(id);
        Some(id)
    }
}

/// The samples of rows.
struct Samples<'r> {
    places: &'r ListArray,
    after: &'r ListArray,
    values: &'r ListArray,
    spans: &'r ListArray,
}

impl<'r> Samples<'r> {
    fn of(rows: &'r RecordBatch) -> Result<Self, Error> {
        let lists = |name| Ok::<_, Error>(column(rows, name)?.as_list::<i32>());
        Ok(Self {
            places: lists(schema::SAMPLES)?,
            after: lists(schema::AFTER)?,
            values: lists(schema::VALUES)?,
            spans: lists(schema::SPANS)?,
        })
    }

    /// `None` is one that refers to what is not there.
    fn of_row<'a>(
        &'a self,
        row: usize,
        of: &'a Of<'_>,
    ) -> impl Iterator<Item = Option<Sample>> + 'a {
        let places = part(self.places, row);
        let (after, values, spans) =
            (part(self.after, row), part(self.values, row), part(self.spans, row));
        let mut spans = spans.peekable();
        (1_u32..).zip(places).map(move |(place, at)| {
            let profile = self.places.values().as_primitive::<UInt32Type>().value(at);
            let (profile, profile_ns) = *of.profiles.get(profile.checked_sub(1)? as usize)?;
            let number = |lists: &ListArray, part: &Range<usize>, or| {
                let at = part.start + place as usize - 1;
                let numbers = lists.values().as_primitive::<Int64Type>();
                if part.is_empty() {
                    return Some(or);
                }
                part.contains(&at).then(|| numbers.value(at))
            };
            let after_ns = number(self.after, &after, 0)?;
            let (span_id, trace_id) = spans
                .next_if(|at| self.span_place(*at) == place)
                .map_or((0, 0), |at| self.span(at));
            Some(Sample {
                series: of.series,
                stack: of.stack,
                at: Timestamp::from_nanos(profile_ns.wrapping_add(after_ns)),
                value: number(self.values, &values, of.total)?,
                profile,
                span_id,
                trace_id,
            })
        })
    }

    fn span_place(&self, at: usize) -> u32 {
        self.spans.values().as_struct().column(0).as_primitive::<UInt32Type>().value(at)
    }

    fn span(&self, at: usize) -> (u64, u128) {
        let fields = self.spans.values().as_struct();
        let spans = fields.column(1).as_primitive::<UInt64Type>();
        let span_id = if spans.is_valid(at) { spans.value(at) } else { 0 };
        (span_id, id(fields.column(2).as_fixed_size_binary(), at))
    }
}

/// Which items of all lists are a row's; none where its list is null.
fn part(lists: &ListArray, row: usize) -> Range<usize> {
    let offset = |at: usize| {
        let offset = lists.value_offsets().get(at).copied();
        offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or_default()
    };
    offset(row)..offset(row + 1)
}

/// What samples of a row share.
struct Of<'p> {
    series: SeriesId,
    stack: StackId,
    total: i64,
    profiles: &'p Profiles,
}

const fn total(series: SeriesId, stack: StackId, at_unix_ns: i64, value: i64) -> Sample {
    let at = Timestamp::from_nanos(at_unix_ns);
    Sample { series, stack, at, value, profile: 0, span_id: 0, trace_id: 0 }
}

fn column<'r>(rows: &'r RecordBatch, name: &'static str) -> Result<&'r dyn Array, Error> {
    let column = rows.column_by_name(name);
    column.map(AsRef::as_ref).ok_or(Error::NoBlock { what: "a column is missing" })
}

fn texts(columns: &StructArray, at: usize) -> Option<&StringArray> {
    columns.columns().get(at)?.as_string_opt::<i32>()
}

fn digest(column: &FixedSizeBinaryArray, at: usize) -> Option<Digest> {
    column.value(at).try_into().map(Digest).ok()
}

/// 16 bytes, the highest first; 0 where there is none.
fn id(column: &FixedSizeBinaryArray, at: usize) -> u128 {
    if column.is_null(at) {
        return 0;
    }
    column.value(at).try_into().map_or(0, u128::from_be_bytes)
}
