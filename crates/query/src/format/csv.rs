use std::io::Write;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;

use super::{flush, formatters};
use crate::error::Error;

/// RFC 4180, with a line feed alone at the end of lines, as programs around expect.
pub(super) struct Csv<W> {
    out: W,
    buffer: String,
    cell: String,
}

impl<W: Write> Csv<W> {
    pub(super) fn new(schema: &SchemaRef, out: W) -> Self {
        let mut buffer = String::new();
        for (at, field) in schema.fields().iter().enumerate() {
            separate(&mut buffer, at);
            quoted(&mut buffer, field.name());
        }
        buffer.push('\n');
        Self { out, buffer, cell: String::new() }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let columns = formatters(batch)?;
        for row in 0..batch.num_rows() {
            for (at, (formatter, column)) in columns.iter().zip(batch.columns()).enumerate() {
                separate(&mut self.buffer, at);
                if column.is_null(row) {
                    continue;
                }
                self.cell.clear();
                formatter.value(row).write(&mut self.cell)?;
                quoted(&mut self.buffer, &self.cell);
            }
            self.buffer.push('\n');
        }
        Ok(flush(&mut self.out, &mut self.buffer)?)
    }

    pub(super) fn finish(mut self) -> Result<W, Error> {
        flush(&mut self.out, &mut self.buffer)?;
        Ok(self.out)
    }
}

fn separate(buffer: &mut String, at: usize) {
    if at > 0 {
        buffer.push(',');
    }
}

/// A cell, in quotes where it needs them; the empty text does, as null is nothing.
fn quoted(buffer: &mut String, cell: &str) {
    if !cell.is_empty() && !cell.contains(['"', ',', '\n', '\r']) {
        buffer.push_str(cell);
        return;
    }
    buffer.push('"');
    for character in cell.chars() {
        if character == '"' {
            buffer.push('"');
        }
        buffer.push(character);
    }
    buffer.push('"');
}
