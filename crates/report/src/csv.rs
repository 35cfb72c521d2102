//! A table as comma-separated values, RFC 4180.
//!
//! A process takes three columns (`process`, `process_tid`, `process_pid`), an interrupt three (`irq`, `irq_kind`,
//! `irq_nr`), a disk two (`disk`, `disk_dev`). Where any number of a column is not certain, `NAME_high` follows: what it
//! is at most, empty without limit. What nobody knows, and what is not there, is
//! empty.

use stitch::table::{Bound, Cell, Column, Kind, Table};

use crate::json::number_of;

/// The table with a line of names above it.
#[must_use]
pub fn table(table: &Table) -> String {
    let open: Vec<bool> = (0..table.class.columns.len())
        .map(|n| table.rows.iter().any(|row| row.get(n).is_some_and(is_open)))
        .collect();
    let mut out = String::new();
    let heads = table.class.columns.iter().zip(&open);
    line(&mut out, heads.flat_map(|(column, open)| names(column, *open)));
    for row in &table.rows {
        let cells = row.iter().zip(table.class.columns).zip(&open);
        line(&mut out, cells.flat_map(|((cell, column), open)| values(cell, column, *open)));
    }
    out
}

/// A part of a long table all of whose numbers are certain, with the line of names where it is the first.
#[must_use]
pub fn part(part: &Table, is_first: bool) -> String {
    let all = table(part);
    if is_first {
        return all;
    }
    all.split_once("\r\n").map(|(_, rows)| rows.to_owned()).unwrap_or_default()
}

fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    for (n, field) in fields.enumerate() {
        if n > 0 {
            out.push(',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
}

fn bound_of(cell: &Cell) -> Option<Bound> {
    match cell {
        Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => Some(*bound),
        _ => None,
    }
}

fn is_open(cell: &Cell) -> bool {
    bound_of(cell).is_some_and(|bound| bound.certain().is_none())
}

fn names(column: &Column, open: bool) -> Vec<String> {
    let name = column.name;
    let more: &[&str] = match column.kind {
        Kind::Process => &["_tid", "_pid"],
        Kind::Irq => &["_kind", "_nr"],
        Kind::Disk => &["_dev"],
        _ if open => &["_high"],
        _ => &[],
    };
    [name.to_owned()].into_iter().chain(more.iter().map(|more| format!("{name}{more}"))).collect()
}

fn values(cell: &Cell, column: &Column, open: bool) -> Vec<String> {
    let known = |number: Option<i32>| number.map(|n| n.to_string()).unwrap_or_default();
    match cell {
        Cell::Nothing | Cell::Unknown => vec![String::new(); names(column, open).len()],
        Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => {
            let high = bound.high.map(|high| high.to_string()).unwrap_or_default();
            let low = bound.low.to_string();
            if open { vec![low, high] } else { vec![low] }
        }
        Cell::Ratio { .. } | Cell::Mean { .. } | Cell::Deviation { .. } => {
            vec![cell.real().map(|real| real.to_string()).unwrap_or_default()]
        }
        Cell::At(at) => vec![at.nanos().to_string()],
        Cell::Text(text) | Cell::Syscall(text) | Cell::Path(text) | Cell::Interface(text) => {
            vec![text.to_string()]
        }
        Cell::Process { tid, pid, comm } => {
            vec![comm.to_string(), known(tid.map(model::Tid::get)), known(pid.map(model::Pid::get))]
        }
        Cell::Cpu(cpu) => vec![cpu.get().to_string()],
        Cell::Irq { line, name } => {
            let (hard, number) = number_of(*line);
            let kind = if hard { "hard" } else { "soft" };
            vec![name.to_string(), kind.to_owned(), number.to_string()]
        }
        Cell::Disk { dev, name } => vec![name.to_string(), dev.0.to_string()],
        Cell::Fd(fd) => vec![fd.get().to_string()],
    }
}

#[cfg(test)]
mod tests {
    use stitch::table::Class;

    use super::*;

    const CLASS: Class = Class {
        name: "c",
        title: "C",
        columns: &[
            Column { name: "who", title: "Who", kind: Kind::Process, unit: None },
            Column { name: "calls", title: "Calls", kind: Kind::Number, unit: Some("calls") },
        ],
    };

    #[test]
    fn every_line_has_the_columns_of_the_first_and_quotes_what_must_be() {
        let process =
            Cell::Process { tid: Some(model::Tid::new(7)), pid: None, comm: "a,\"b".into() };
        let range = model::TimeRange::ALL;
        let rows = vec![
            vec![process, Cell::Count(Bound { low: 1, high: None })],
            vec![Cell::Unknown, Cell::count(2)],
        ];
        let found = super::table(&Table { class: &CLASS, range, rows, left_out: 0 });
        let expected = "who,who_tid,who_pid,calls,calls_high\r\n\"a,\"\"b\",7,,1,\r\n,,,2,2\r\n";
        assert_eq!(found, expected);
    }
}
