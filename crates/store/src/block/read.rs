//! From the bytes of a block to a batch.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, FixedSizeBinaryArray, RecordBatch, StringArray, StructArray};
use bytes::Bytes;
use model::Timestamp;
use model::samples::{Batch, Frame, Labels, ProfileType, Sample, Series, SeriesId, StackId};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::schema::{self, schema};
use super::{FORMAT, HEADER_KEY, Header};
use crate::content::Digest;
use crate::error::Error;

/// What of a block is asked for.
#[derive(Clone, Copy)]
pub struct Selection<'s> {
    /// Only what counts this; all types when absent.
    pub profile_type: Option<&'s ProfileType>,
    /// Only series that this says yes to.
    pub series: &'s dyn Fn(&Series) -> bool,
    /// Only what was sampled from the first to the last of these, both of them included.
    pub times: (Timestamp, Timestamp),
    /// What has to be known of samples.
    pub detail: Detail,
}

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection")
            .field("profile_type", &self.profile_type)
            .field("times", &self.times)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

impl Selection<'_> {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            profile_type: None,
            series: &|_| true,
            times: (Timestamp::MIN, Timestamp::MAX),
            detail: Detail::Samples,
        }
    }

    fn times(&self) -> RangeInclusive<i64> {
        self.times.0.nanos()..=self.times.1.nanos()
    }
}

/// What has to be known of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Each of them.
    Samples,
    /// The sum of those of a row: it stands as one sample at the row's first time, of no profile and no span. What is asked for costs
    /// less then.
    Totals,
}

/// What a block says of itself.
///
/// # Errors
///
/// [`Error::Parquet`], [`Error::NoBlock`], [`Error::Header`], [`Error::Format`].
pub fn header(bytes: &Bytes) -> Result<Header, Error> {
    guarded(|| {
        header_of(ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?.metadata())
    })
}

/// The decoder of Parquet ends by a panic on some bytes that nobody wrote as a block. What was read until then is whole rows' parts, as
/// after any error.
fn guarded<T>(read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let panicked = |_| Err(Error::NoBlock { what: "the decoder of Parquet cannot read it" });
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

fn header_of(metadata: &ParquetMetaData) -> Result<Header, Error> {
    let pairs = metadata.file_metadata().key_value_metadata();
    let pair = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == HEADER_KEY));
    let text = pair.and_then(|pair| pair.value.as_deref());
    let text = text.ok_or(Error::NoBlock { what: "it has no header" })?;
    let header: Header = serde_json::from_str(text)?;
    match header.format {
        1..=FORMAT => Ok(header),
        format => Err(Error::Format { format }),
    }
}

/// Adds what is selected of a block to a batch.
///
/// # Errors
///
/// Those of [`header`]; [`Error::NoBlock`] for other columns than a block's; [`Error::Damaged`]. The batch has what was read until then.
pub fn read_into(bytes: &Bytes, selection: &Selection<'_>, batch: &mut Batch) -> Result<(), Error> {
    guarded(|| read_groups(bytes, selection, batch))
}

fn read_groups(bytes: &Bytes, selection: &Selection<'_>, batch: &mut Batch) -> Result<(), Error> {
    let metadata = ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?;
    header_of(metadata.metadata())?;
    if metadata.schema().fields() != schema().fields() {
        return Err(Error::NoBlock { what: "its columns are others" });
    }
    let mut series = HashMap::new();
    let mut row = 0;
    for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        let first = row;
        row += rows;
        let Some(needs_samples) = needs(group, selection) else { continue };
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.clone());
        let columns = schema().fields().len();
        let columns = if needs_samples { 0..columns } else { 0..columns - 1 };
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns);
        let builder = builder.with_projection(mask).with_row_groups(vec![number]);
        // All at once: a stack's frames stand in its first row of the group.
        for read in builder.with_batch_size(rows.max(1)).build()? {
            let group = Group::of(&read?, first)?;
            group.give(selection, &mut series, batch)?;
        }
    }
    Ok(())
}

/// Adds the series of a block that were sampled from the first to the last of these times, both of them included; their stacks and
/// samples are not read.
///
/// # Errors
///
/// As [`read_into`].
pub fn series_into(
    bytes: &Bytes,
    times: (Timestamp, Timestamp),
    found: &mut BTreeSet<Series>,
) -> Result<(), Error> {
    guarded(|| read_series(bytes, times, found))
}

fn read_series(
    bytes: &Bytes,
    times: (Timestamp, Timestamp),
    found: &mut BTreeSet<Series>,
) -> Result<(), Error> {
    const COLUMNS: [&str; 5] =
        [schema::TYPE, schema::LABELS, schema::SERIES, schema::BEGIN, schema::END];
    let metadata = ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?;
    header_of(metadata.metadata())?;
    if metadata.schema().fields() != schema().fields() {
        return Err(Error::NoBlock { what: "its columns are others" });
    }
    let selection = Selection { times, ..Selection::all() };
    let mut known = HashSet::new();
    let mut first = 0;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata);
    let mask = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
    for rows in builder.with_projection(mask).build()? {
        let rows = rows?;
        let count = rows.num_rows();
        let group = Group { first, rows, frames: HashMap::new() };
        first += count;
        for row in 0..count {
            let (begin, end) = (group.time(schema::BEGIN, row)?, group.time(schema::END, row)?);
            let is_outside = begin > *selection.times().end() || end < *selection.times().start();
            if !is_outside && known.insert(group.digest(schema::SERIES, row)?) {
                found.insert(group.series(row)?);
            }
        }
    }
    Ok(())
}

/// Whether samples of a row group are needed to answer; `None` when nothing of it is.
fn needs(group: &RowGroupMetaData, selection: &Selection<'_>) -> Option<bool> {
    let column = |name: &str| {
        let column = group.columns().iter().find(|it| it.column_path().string() == name)?;
        column.statistics()
    };
    if let (Some(wanted), Some(Statistics::ByteArray(types))) =
        (selection.profile_type, column(schema::TYPE))
        && let (Some(least), Some(most)) = (types.min_bytes_opt(), types.max_bytes_opt())
        // A bound that is cut short is no bound any more.
        && types.min_is_exact()
        && types.max_is_exact()
    {
        let wanted = wanted.to_string();
        if wanted.as_bytes() < least || wanted.as_bytes() > most {
            return None;
        }
    }
    let times = selection.times();
    let number =
        |name: &str,
         bound: fn(&parquet::file::statistics::ValueStatistics<i64>) -> Option<&i64>| {
            match column(name) {
                Some(Statistics::Int64(statistics)) => bound(statistics).copied(),
                _ => None,
            }
        };
    let begin = number(schema::BEGIN, |it| it.min_opt());
    let end = number(schema::END, |it| it.max_opt());
    let (Some(begin), Some(end)) = (begin, end) else { return Some(true) };
    if begin > *times.end() || end < *times.start() {
        return None;
    }
    let is_inside = times.contains(&begin) && times.contains(&end);
    Some(selection.detail == Detail::Samples || !is_inside)
}

/// The columns of a row group.
struct Group {
    /// The number of its first row in the block.
    first: usize,
    rows: RecordBatch,
    /// The row that has a stack's frames.
    frames: HashMap<Digest, usize>,
}

impl Group {
    fn of(rows: &RecordBatch, first: usize) -> Result<Self, Error> {
        let mut group = Self { first, rows: rows.clone(), frames: HashMap::new() };
        let all = group.column(schema::FRAMES)?.as_list::<i32>().clone();
        for row in 0..rows.num_rows() {
            if all.is_valid(row) {
                group.frames.insert(group.digest(schema::STACK, row)?, row);
            }
        }
        Ok(group)
    }

    fn column(&self, name: &'static str) -> Result<&dyn Array, Error> {
        let column = self.rows.column_by_name(name);
        column.map(AsRef::as_ref).ok_or(Error::NoBlock { what: "a column is missing" })
    }

    fn damaged(&self, what: &'static str, row: usize) -> Error {
        Error::Damaged { what, row: self.first + row }
    }

    fn digest(&self, name: &'static str, row: usize) -> Result<Digest, Error> {
        let bytes = self.column(name)?.as_fixed_size_binary().value(row);
        bytes.try_into().map(Digest).map_err(|_length| self.damaged("a digest", row))
    }

    fn time(&self, name: &'static str, row: usize) -> Result<i64, Error> {
        Ok(self.column(name)?.as_primitive::<TimestampNanosecondType>().value(row))
    }

    /// Adds what is selected.
    fn give(
        &self,
        selection: &Selection<'_>,
        series: &mut HashMap<Digest, Option<SeriesId>>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let mut stacks = HashMap::new();
        let times = selection.times();
        for row in 0..self.rows.num_rows() {
            let (begin, end) = (self.time(schema::BEGIN, row)?, self.time(schema::END, row)?);
            if begin > *times.end() || end < *times.start() {
                continue;
            }
            let digest = self.digest(schema::SERIES, row)?;
            let id = match series.get(&digest) {
                Some(known) => *known,
                None => {
                    let found = self.series(row)?;
                    let is_type = selection.profile_type.is_none_or(|it| *it == found.profile_type);
                    let id = (is_type && (selection.series)(&found)).then(|| batch.series(found));
                    series.insert(digest, id);
                    id
                }
            };
            let Some(id) = id else { continue };
            let digest = self.digest(schema::STACK, row)?;
            let stack = match stacks.get(&digest) {
                Some(known) => *known,
                None => {
                    let stack = self.stack(digest, row, batch)?;
                    stacks.insert(digest, stack);
                    stack
                }
            };
            let is_inside = times.contains(&begin) && times.contains(&end);
            if selection.detail == Detail::Totals && is_inside {
                let value = self.column(schema::TOTAL)?.as_primitive::<Int64Type>().value(row);
                batch.add(total(id, stack, begin, value));
                continue;
            }
            let mut sum: i64 = 0;
            for sample in self.samples(row, id, stack)? {
                if !times.contains(&sample.at.nanos()) {
                    continue;
                }
                match selection.detail {
                    Detail::Samples => batch.add(sample),
                    Detail::Totals => {
                        let more = sum.checked_add(sample.value);
                        sum = more.ok_or_else(|| self.damaged("a sum that is too large", row))?;
                    }
                }
            }
            if sum > 0 {
                batch.add(total(id, stack, begin.max(*times.start()), sum));
            }
        }
        Ok(())
    }

    fn series(&self, row: usize) -> Result<Series, Error> {
        let profile_type = self.column(schema::TYPE)?.as_string::<i32>().value(row).parse();
        let profile_type = profile_type.map_err(|_text| self.damaged("a profile type", row))?;
        let pairs = self.column(schema::LABELS)?.as_map().value(row);
        let (names, values) = (text_column(&pairs, 0), text_column(&pairs, 1));
        let (Some(names), Some(values)) = (names, values) else {
            return Err(self.damaged("labels", row));
        };
        let pairs = names.iter().zip(values.iter());
        let labels = Labels::new(pairs.filter_map(|(name, value)| Some((name?, value?))));
        Ok(Series { profile_type, labels })
    }

    fn stack(&self, digest: Digest, row: usize, batch: &mut Batch) -> Result<StackId, Error> {
        let at = self.frames.get(&digest).ok_or_else(|| self.damaged("a stack", row))?;
        let frames = self.column(schema::FRAMES)?.as_list::<i32>().value(*at);
        let frames = frames.as_struct();
        let texts = |column: usize| {
            text_column(frames, column).ok_or_else(|| self.damaged("a frame's texts", row))
        };
        let (functions, system_names, files) = (texts(0)?, texts(1)?, texts(2)?);
        let (kinds, mappings, build_ids) = (texts(6)?, texts(7)?, texts(8)?);
        let lines = frames.column(3).as_primitive::<UInt32Type>();
        let start_lines = frames.column(4).as_primitive::<UInt32Type>();
        let are_inlined = frames.column(5).as_boolean();
        let addresses = frames.column(9).as_primitive::<UInt64Type>();
        let mut ids = Vec::with_capacity(frames.len());
        for at in 0..frames.len() {
            let frame = Frame {
                function: batch.text(functions.value(at)),
                system_name: batch.text(system_names.value(at)),
                file: batch.text(files.value(at)),
                line: lines.value(at),
                start_line: start_lines.value(at),
                is_inlined: are_inlined.value(at),
                kind: batch.text(kinds.value(at)),
                mapping: batch.text(mappings.value(at)),
                build_id: batch.text(build_ids.value(at)),
                address: addresses.value(at),
            };
            ids.push(batch.frame(frame));
        }
        Ok(batch.stack(&ids))
    }

    fn samples(&self, row: usize, series: SeriesId, stack: StackId) -> Result<Vec<Sample>, Error> {
        let samples = self.column(schema::SAMPLES)?.as_list::<i32>().value(row);
        let samples = samples.as_struct();
        let times = samples.column(0).as_primitive::<TimestampNanosecondType>();
        let values = samples.column(1).as_primitive::<Int64Type>();
        let profiles = samples.column(2).as_fixed_size_binary();
        let spans = samples.column(3).as_primitive::<UInt64Type>();
        let traces = samples.column(4).as_fixed_size_binary();
        let sample = |at: usize| Sample {
            series,
            stack,
            at: Timestamp::from_nanos(times.value(at)),
            value: values.value(at),
            profile: id(profiles, at),
            span_id: if spans.is_valid(at) { spans.value(at) } else { 0 },
            trace_id: id(traces, at),
        };
        Ok((0..samples.len()).map(sample).collect())
    }
}

const fn total(series: SeriesId, stack: StackId, at_unix_ns: i64, value: i64) -> Sample {
    let at = Timestamp::from_nanos(at_unix_ns);
    Sample { series, stack, at, value, profile: 0, span_id: 0, trace_id: 0 }
}

fn text_column(columns: &StructArray, at: usize) -> Option<&StringArray> {
    columns.columns().get(at)?.as_string_opt::<i32>()
}

/// 16 bytes, the highest first; 0 where there is none.
fn id(column: &FixedSizeBinaryArray, at: usize) -> u128 {
    if column.is_null(at) {
        return 0;
    }
    column.value(at).iter().fold(0, |id, byte| id << 8 | u128::from(*byte))
}
