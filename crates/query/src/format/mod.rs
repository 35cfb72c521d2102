//! Rows as text for people, CSV, JSON and Parquet. Each writer takes batch after batch and holds no more than one, but
//! Parquet, which holds a row group.

mod answer;
mod csv;
mod text;

use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::{LineDelimited, Writer as JsonWriter};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

use crate::error::Error;

pub use answer::write_table;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Columns side by side, as wide as the cells of the first batch; numbers flush right.
    Table,
    /// RFC 4180 with a heading; null is nothing, an empty text is `""`.
    Csv,
    /// One JSON object a line; nulls are written.
    Json,
    /// Apache Parquet.
    Parquet,
}

/// Writes rows.
pub struct Writer<W: Write + Send> {
    kind: Kind<W>,
    rows: u64,
}

enum Kind<W: Write + Send> {
    Table(text::Table<W>),
    Csv(csv::Csv<W>),
    Json(JsonWriter<W, LineDelimited>),
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<W: Write + Send> Writer<W> {
    /// A writer of rows with these columns.
    ///
    /// # Errors
    /// [`Error::Parquet`] when it has no form for one of the columns.
    pub fn new(format: Format, schema: &SchemaRef, out: W) -> Result<Self, Error> {
        let kind = match format {
            Format::Table => Kind::Table(text::Table::new(schema, out)),
            Format::Csv => Kind::Csv(csv::Csv::new(schema, out)),
            Format::Json => {
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                Kind::Json(builder.build::<_, LineDelimited>(out))
            }
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
                    .build();
                let schema = std::sync::Arc::clone(schema);
                Kind::Parquet(Box::new(ArrowWriter::try_new(out, schema, Some(properties))?))
            }
        };
        Ok(Self { kind, rows: 0 })
    }

    /// Writes some rows.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Arrow`], [`Error::Parquet`]: they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.rows += batch.num_rows() as u64;
        match &mut self.kind {
            Kind::Table(table) => table.write(batch)?,
            Kind::Csv(csv) => csv.write(batch)?,
            Kind::Json(json) => json.write(batch).map_err(unwrapped)?,
            Kind::Parquet(parquet) => parquet.write(batch)?,
        }
        Ok(())
    }

    /// How many rows were written.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes what is left, and gives back where it was written to.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(self) -> Result<W, Error> {
        match self.kind {
            Kind::Table(table) => table.finish(),
            Kind::Csv(csv) => csv.finish(),
            Kind::Json(mut json) => {
                json.finish().map_err(unwrapped)?;
                Ok(json.into_inner())
            }
            Kind::Parquet(parquet) => Ok(parquet.into_inner()?),
        }
    }
}

/// An output that fails is that, not a wrong value.
fn unwrapped(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => Error::Io(error),
        error => Error::Arrow(error),
    }
}

/// The cells of a batch as text, column by column; null is empty.
fn formatters(batch: &RecordBatch) -> Result<Vec<ArrayFormatter<'_>>, ArrowError> {
    const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_null("");
    batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &OPTIONS)).collect()
}

/// Writes a whole buffer and empties it.
fn flush(out: &mut impl Write, buffer: &mut String) -> io::Result<()> {
    out.write_all(buffer.as_bytes())?;
    buffer.clear();
    Ok(())
}
