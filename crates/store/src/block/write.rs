//! From a batch to the bytes of a block.

use std::ops::Range;

use model::samples::{Batch, Sample, Series, StackId};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::columns::Columns;
use super::schema::{self, schema};
use super::{FORMAT, HEADER_KEY, Header};
use crate::content::{self, Digest, Stacks};
use crate::error::Error;

/// Samples after which a row group ends where the type or the service changes: smaller ones cost more than they spare.
const MIN_GROUP_SAMPLES: usize = 16_384;
/// Samples after which a row group ends in any case: some 64 MB while it is read.
const MAX_GROUP_SAMPLES: usize = 1 << 20;

/// A row: samples of one series with one stack.
#[derive(Debug)]
pub(super) struct Row<'b> {
    pub(super) series: &'b Series,
    pub(super) series_digest: Digest,
    pub(super) stack: StackId,
    pub(super) stack_digest: Digest,
    /// Of all samples in order.
    pub(super) samples: Range<usize>,
    /// Does not pass the range of its type.
    pub(super) total: i64,
}

/// The samples of a batch as a block; `None` when it has none.
///
/// # Errors
///
/// [`Error::Parquet`] when the encoder refuses.
pub fn encode(batch: &Batch) -> Result<Option<Vec<u8>>, Error> {
    Ok(encode_as(batch, &[])?.map(|(_, bytes)| bytes))
}

/// The same as a block that stands for others, with what it says of itself.
///
/// # Errors
///
/// [`Error::Parquet`] when the encoder refuses.
pub fn encode_as(batch: &Batch, replaces: &[Digest]) -> Result<Option<(Header, Vec<u8>)>, Error> {
    let (Some(begin), Some(end)) = (
        batch.samples().iter().map(|sample| sample.at).min(),
        batch.samples().iter().map(|sample| sample.at).max(),
    ) else {
        return Ok(None);
    };
    let header = Header {
        format: FORMAT,
        samples: batch.samples().len() as u64,
        begin_unix_ns: begin.nanos(),
        end_unix_ns: end.nanos(),
        replaces: replaces.iter().map(Digest::to_string).collect(),
    };
    let sorted = Sorted::of(batch);
    let rows = sorted.rows(batch);
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), Some(properties(&header)?))?;
    for group in groups(&rows) {
        let columns = Columns::of(batch, &sorted.samples, group)?;
        writer.write(&columns)?;
        writer.flush()?;
    }
    let bytes = writer.into_inner()?;
    Ok(Some((header, bytes)))
}

fn properties(header: &Header) -> Result<WriterProperties, Error> {
    let text = serde_json::to_string(header)?;
    let at =
        ColumnPath::from([schema::SAMPLES, "list", "element", "at"].map(str::to_owned).to_vec());
    let stack = ColumnPath::from(schema::STACK);
    Ok(WriterProperties::builder()
        .set_created_by("throughline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_max_row_group_row_count(None)
        // Times are near each other, and digests are all different.
        .set_column_dictionary_enabled(at.clone(), false)
        .set_column_encoding(at, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(stack, false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(vec![KeyValue::new(HEADER_KEY.to_owned(), text)]))
        .build())
}

/// The samples of a batch in the order of a block.
struct Sorted {
    samples: Vec<Sample>,
    stacks: Stacks,
}

impl Sorted {
    fn of(batch: &Batch) -> Self {
        let mut stacks = Stacks::of(batch);
        let mut by_content: Vec<_> = batch.all_series().collect();
        by_content.sort_by_key(|(_, series)| order(series));
        let mut places = vec![0_usize; by_content.len() + 1];
        for (place, (id, _)) in by_content.iter().enumerate() {
            if let Some(known) = places.get_mut(id.index()) {
                *known = place;
            }
        }
        let mut keyed: Vec<_> = batch
            .samples()
            .iter()
            .map(|sample| {
                let place = places.get(sample.series.index()).copied().unwrap_or_default();
                let Sample { at, value, profile, span_id, trace_id, .. } = *sample;
                let rest = (at, value, profile, span_id, trace_id);
                ((place, stacks.digest(batch, sample.stack), rest), *sample)
            })
            .collect();
        keyed.sort_unstable_by_key(|(key, _)| *key);
        Self { samples: keyed.into_iter().map(|(_, sample)| sample).collect(), stacks }
    }

    fn rows<'b>(&self, batch: &'b Batch) -> Vec<Row<'b>> {
        let mut rows: Vec<Row<'b>> = Vec::new();
        let mut stacks = self.stacks.clone();
        for (at, sample) in self.samples.iter().enumerate() {
            let last = rows.last_mut().and_then(|row| {
                let first = self.samples.get(row.samples.start)?;
                let is_same = (first.series, first.stack) == (sample.series, sample.stack);
                is_same.then(|| row.total.checked_add(sample.value).map(|total| (row, total)))?
            });
            match last {
                Some((row, total)) => {
                    row.total = total;
                    row.samples.end = at + 1;
                }
                None => {
                    let series = batch.series_of(sample.series);
                    rows.push(Row {
                        series,
                        series_digest: content::of_series(series),
                        stack: sample.stack,
                        stack_digest: stacks.digest(batch, sample.stack),
                        samples: at..at + 1,
                        total: sample.value,
                    });
                }
            }
        }
        rows
    }
}

/// Type, service, labels.
fn order(series: &Series) -> (&model::samples::ProfileType, Option<&str>, &Series) {
    (&series.profile_type, crate::service(series), series)
}

/// Rows that are written together.
fn groups<'r, 'b>(rows: &'r [Row<'b>]) -> Vec<&'r [Row<'b>]> {
    let mut groups = Vec::new();
    let (mut begin, mut samples) = (0, 0);
    for (at, row) in rows.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| rows.get(before));
        let changes = before.is_some_and(|before| {
            before.series.profile_type != row.series.profile_type
                || crate::service(before.series) != crate::service(row.series)
        });
        if (changes && samples >= MIN_GROUP_SAMPLES) || samples >= MAX_GROUP_SAMPLES {
            groups.extend(rows.get(begin..at));
            (begin, samples) = (at, 0);
        }
        samples += row.samples.len();
    }
    groups.extend(rows.get(begin..));
    groups
}
