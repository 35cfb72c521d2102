use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use super::{flush, formatters};
use crate::error::Error;

/// Cells of wider texts push the cells behind them aside instead of making all rows wide.
const MAX_WIDTH: usize = 60;

/// Columns side by side under a heading, two spaces between them. What traces bring along does nothing to a terminal: control
/// characters are escaped.
pub(super) struct Table<W> {
    out: W,
    buffer: String,
    headings: Vec<String>,
    is_number: Vec<bool>,
    /// By column; decided by the first batch.
    widths: Option<Vec<usize>>,
}

impl<W: Write> Table<W> {
    pub(super) fn new(schema: &SchemaRef, out: W) -> Self {
        let headings = schema.fields().iter().map(|field| plain(field.name())).collect();
        let is_number = schema.fields().iter().map(|field| field.data_type().is_numeric());
        let is_number = is_number.collect();
        Self { out, buffer: String::new(), headings, is_number, widths: None }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let formatters = formatters(batch)?;
        let mut rows = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(formatters.len());
            for formatter in &formatters {
                cells.push(plain(&formatter.value(row).try_to_string()?));
            }
            rows.push(cells);
        }
        if self.widths.is_none() {
            self.begin(&rows);
        }
        rows.iter().for_each(|cells| self.line(cells));
        Ok(flush(&mut self.out, &mut self.buffer)?)
    }

    /// The heading, as wide as it and the cells below it.
    fn begin(&mut self, rows: &[Vec<String>]) {
        let mut widths: Vec<usize> =
            self.headings.iter().map(|name| name.chars().count()).collect();
        for (width, cell) in rows.iter().flat_map(|cells| widths_of(cells)).collect::<Vec<_>>() {
            if let Some(known) = widths.get_mut(width) {
                *known = cell.min(MAX_WIDTH).max(*known);
            }
        }
        self.widths = Some(widths);
        let headings = std::mem::take(&mut self.headings);
        self.line(&headings);
    }

    fn line(&mut self, cells: &[String]) {
        let begin = self.buffer.len();
        let widths = self.widths.iter().flatten();
        for (at, ((cell, width), is_number)) in
            cells.iter().zip(widths).zip(&self.is_number).enumerate()
        {
            let padding = width.saturating_sub(cell.chars().count());
            let (before, after) = if *is_number { (padding, 0) } else { (0, padding) };
            self.buffer.push_str(if at == 0 { "" } else { "  " });
            self.buffer.extend(std::iter::repeat_n(' ', before));
            self.buffer.push_str(cell);
            self.buffer.extend(std::iter::repeat_n(' ', after));
        }
        let shown = self.buffer.get(begin..).map_or(0, |line| line.trim_end_matches(' ').len());
        self.buffer.truncate(begin + shown);
        self.buffer.push('\n');
    }

    pub(super) fn finish(mut self) -> Result<W, Error> {
        if self.widths.is_none() {
            self.begin(&[]);
        }
        flush(&mut self.out, &mut self.buffer)?;
        Ok(self.out)
    }
}

/// Of each cell: its column, and its width.
fn widths_of(cells: &[String]) -> impl Iterator<Item = (usize, usize)> {
    cells.iter().map(|cell| cell.chars().count()).enumerate()
}

/// A text that does nothing to a terminal.
fn plain(text: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    if text.contains(char::is_control) {
        text.chars().map(escape).collect()
    } else {
        text.to_owned()
    }
}
