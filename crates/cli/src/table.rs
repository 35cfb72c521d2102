//! Tables of text: columns as wide as their widest cell, two spaces between them.

use crate::outcome::plain;

/// On which side a column's cells are flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells under a heading.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    align: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with this first row.
    pub(crate) fn new(heading: [&str; N], align: [Align; N]) -> Self {
        Self { align, rows: vec![heading.map(str::to_owned)] }
    }

    /// Adds a row, which takes one line whatever is in its cells.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| plain(&cell).into_owned()));
    }

    /// Appends the lines, each after `indent`.
    pub(crate) fn render(&self, indent: &str, out: &mut String) {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            let begin = out.len();
            for ((cell, width), align) in row.iter().zip(widths).zip(self.align) {
                let padding = width - cell.chars().count();
                let (before, after) = match align {
                    Align::Left => (0, padding),
                    Align::Right => (padding, 0),
                };
                out.push_str(if out.len() == begin { indent } else { "  " });
                out.extend(std::iter::repeat_n(' ', before));
                out.push_str(cell);
                out.extend(std::iter::repeat_n(' ', after));
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table =
            Table::new(["name", "events", ""], [Align::Left, Align::Right, Align::Left]);
        table.row(["sched_switch".to_owned(), "7".to_owned(), "x".to_owned()]);
        table.row(["é".to_owned(), "12345678".to_owned(), String::new()]);
        let mut out = String::new();
        table.render("  ", &mut out);
        let expected =
            "  name            events\n  sched_switch         7  x\n  é             12345678\n";
        assert_eq!(out, expected);
    }
}
