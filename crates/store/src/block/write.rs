//! From a batch to the bytes of a block.

use model::samples::Batch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::columns::columns;
use super::order::{Ordered, Row};
use super::schema::{self, schema};
use super::tables::Tables;
use super::{FORMAT, HEADER_KEY, Header};
use crate::content::Digest;
use crate::error::Error;

/// Samples after which a row group ends where the service changes: neighbours share tables until then, above all ids of profiles that
/// have samples of many services.
const MIN_GROUP_SAMPLES: usize = 65_536;
/// Samples after which a row group ends in any case: some 64 MB while it is read.
const MAX_GROUP_SAMPLES: usize = 1 << 20;

/// How hard zstd tries for what clients sent: it is merged soon.
const FRESH_LEVEL: i32 = 3;
/// The same for merged blocks: 5 % smaller than with 3, for a sixth more time of writing; 9 spares 1 % more for as much again.
const MERGED_LEVEL: i32 = 6;

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
    let ordered = Ordered::of(batch);
    let rows = ordered.rows();
    // What Arrow adds to the schema says nothing more, and is as long as the rest of a small block's footer.
    let options = ArrowWriterOptions::new()
        .with_properties(properties(&header)?)
        .with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema(), options)?;
    for group in groups(batch, &rows) {
        let tables = Tables::of(batch, &ordered, group);
        writer.write(&columns(batch, &ordered, &tables, group)?)?;
        writer.flush()?;
    }
    let bytes = writer.into_inner()?;
    Ok(Some((header, bytes)))
}

fn properties(header: &Header) -> Result<WriterProperties, Error> {
    let path = |parts: &[&str]| {
        ColumnPath::from(parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>())
    };
    let stack = path(&[schema::STACK]);
    let after = path(&[schema::AFTER, "list", "element"]);
    let frames = path(&[schema::STACKS, "list", "element", "list", "element"]);
    let profile_id = path(&[schema::PROFILES, "list", "element", "id"]);
    let profile_at = path(&[schema::PROFILES, "list", "element", "at"]);
    let text = serde_json::to_string(header)?;
    let level = if header.replaces.is_empty() { FRESH_LEVEL } else { MERGED_LEVEL };
    let mut builder = WriterProperties::builder()
        .set_created_by("throughline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(level)?))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(vec![KeyValue::new(HEADER_KEY.to_owned(), text)]));
    // Where a dictionary would be as long as the values, or hide from zstd that neighbours have the same bytes. All of it DuckDB can
    // read, too: it knows BYTE_STREAM_SPLIT for floating point alone.
    for (column, encoding) in [
        (stack, Encoding::DELTA_BINARY_PACKED),
        (after, Encoding::PLAIN),
        (frames, Encoding::PLAIN),
        (profile_id, Encoding::PLAIN),
        (profile_at, Encoding::DELTA_BINARY_PACKED),
    ] {
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, encoding);
    }
    for column in [schema::TYPE, schema::SERVICE, schema::BEGIN, schema::END, schema::TOTAL] {
        builder = builder.set_column_statistics_enabled(path(&[column]), EnabledStatistics::Chunk);
    }
    Ok(builder.build())
}

/// Rows that are written together.
fn groups<'r>(batch: &Batch, rows: &'r [Row]) -> Vec<&'r [Row]> {
    let service = |row: &Row| crate::service(batch.series_of(row.series));
    let mut groups = Vec::new();
    let (mut begin, mut samples) = (0, 0);
    for (at, row) in rows.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| rows.get(before));
        let changes = before
            .is_some_and(|before| before.series != row.series && service(before) != service(row));
        if (changes && samples >= MIN_GROUP_SAMPLES) || samples >= MAX_GROUP_SAMPLES {
            groups.extend(rows.get(begin..at));
            (begin, samples) = (at, 0);
        }
        samples += row.samples.len();
    }
    groups.extend(rows.get(begin..));
    groups
}
