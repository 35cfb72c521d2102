//! Tables for a terminal.

use model::Nanos;
use stitch::answer::Loss;
use stitch::fact::Line;
use stitch::table::{Bound, Cell, Kind, Table};

use crate::text;

/// Tables one below the other, each under its title, and what is missing from them.
#[must_use]
pub fn tables(tables: &[Table], loss: &Loss) -> String {
    let mut out = String::new();
    for table in tables {
        text::write_line(&mut out, table.class.title);
        if table.rows.is_empty() {
            text::write_line(&mut out, "(nothing)");
        } else {
            aligned(table).render(&mut out);
        }
        if table.left_out > 0 {
            text::write_line(&mut out, &format!("and {} more", table.left_out));
        }
        out.push('\n');
    }
    text::loss(loss, &mut out);
    out
}

fn aligned(table: &Table) -> text::Table {
    let titles: Vec<&str> = table.class.columns.iter().map(|column| column.title).collect();
    let names = table.class.columns.iter().map(|column| is_name(column.kind)).collect();
    let mut aligned = text::Table::with_names(&titles, names);
    for row in &table.rows {
        aligned.row(row.iter().map(cell));
    }
    aligned
}

/// A long table that comes in parts.
#[derive(Debug, Default)]
pub struct Lines {
    widths: Vec<usize>,
}

impl Lines {
    /// The rows of the next part, below a head where it is the first.
    #[must_use]
    pub fn rows(&mut self, part: &Table) -> String {
        let mut out = String::new();
        aligned(part).render_below(&mut self.widths, &mut out);
        out
    }
}

/// What is missing from tables; nothing where nothing is.
#[must_use]
pub fn missing(loss: &Loss) -> String {
    let mut out = String::new();
    text::loss(loss, &mut out);
    out
}

/// Whether a column's cells are names, flush on the left, and no numbers.
fn is_name(kind: Kind) -> bool {
    use Kind::{Disk, Interface, Irq, Path, Process, Syscall, Text};
    matches!(kind, Process | Syscall | Path | Text | Irq | Disk | Interface)
}

/// A cell as people read it. No character of it is one that a terminal would obey.
#[must_use]
pub fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Unknown => "?".to_owned(),
        Cell::Count(bound) | Cell::Bytes(bound) => bounded(*bound, |number| number.to_string()),
        Cell::Ns(bound) => bounded(*bound, time),
        Cell::Ratio { part, whole } => {
            let hundredths = u128::from(*part) * 10_000 / u128::from(*whole).max(1);
            format!("{}.{:02} %", hundredths / 100, hundredths % 100)
        }
        Cell::Mean { sum, n } => time(sum / (*n).max(1)),
        Cell::Deviation { .. } => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a deviation is not negative, and as small as what it is of"
            )]
            let ns = cell.real().unwrap_or(0.0).round() as u64;
            time(ns)
        }
        Cell::At(at) => seconds(at.nanos()),
        Cell::Text(text) | Cell::Syscall(text) | Cell::Path(text) | Cell::Interface(text) => {
            text::printable(text)
        }
        Cell::Process { tid, pid, comm } => {
            let number = tid.map(|tid| tid.get()).or(pid.map(|pid| pid.get()));
            let number = number.map_or_else(|| "?".to_owned(), |number| number.to_string());
            let comm = if comm.is_empty() { "?" } else { &**comm };
            format!("{} ({number})", text::printable(comm))
        }
        Cell::Cpu(cpu) => cpu.get().to_string(),
        Cell::Irq { line, name } => {
            let number = match line {
                Line::Hard(number) => u32::from(*number),
                Line::Soft(vector) => u32::from(*vector),
            };
            format!("{number} {}", text::printable(name)).trim_end().to_owned()
        }
        Cell::Disk { name, .. } => text::printable(name),
        Cell::Fd(fd) => fd.get().to_string(),
    }
}

/// One number where it is known, or looks the same; else from and to.
fn bounded(bound: Bound, show: impl Fn(u64) -> String) -> String {
    let low = show(bound.low);
    match bound.high.map(show) {
        None => format!("{low}+"),
        Some(high) if high == low => low,
        Some(high) => format!("{low}-{high}"),
    }
}

fn time(ns: u64) -> String {
    Nanos::new(ns).to_string()
}

/// Seconds since the epoch with nanoseconds.
fn seconds(ns: i64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}.{:09}", ns.unsigned_abs() / SECOND, ns.unsigned_abs() % SECOND)
}

#[cfg(test)]
mod tests {
    use model::{Tid, Timestamp};

    use super::*;

    #[test]
    fn cells_are_short_and_harmless() {
        let process =
            |comm: &str| Cell::Process { tid: Some(Tid::new(7)), pid: None, comm: comm.into() };
        for (value, expected) in [
            (Cell::Unknown, "?"),
            (Cell::count(12), "12"),
            (Cell::Count(Bound { low: 3, high: Some(4) }), "3-4"),
            (Cell::Bytes(Bound { low: 3, high: None }), "3+"),
            (Cell::Ratio { part: 1, whole: 3 }, "33.33 %"),
            (Cell::At(Timestamp::from_nanos(-1)), "-0.000000001"),
            (process("sh\u{1b}[2J"), "sh\u{fffd}[2J (7)"),
            (process(""), "? (7)"),
            (Cell::Irq { line: Line::Soft(3), name: "NET_RX".into() }, "3 NET_RX"),
        ] {
            assert_eq!(cell(&value), expected);
        }
    }
}
