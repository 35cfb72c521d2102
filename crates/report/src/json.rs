//! Tables as JSON, `throughline-table/1`.
//!
//! ```json
//! {"format": "throughline-table/1", "host": "h", "tables": [
//!    {"class": "irq-hard", "title": "…", "begin_ns": 0, "end_ns": 9, "columns": [{"name": "irq", "title": "…", "kind": "irq", "unit": null}],
//!     "rows": [[{"hard": true, "nr": 27, "name": "virtio"}, 95, …]], "left_out": 0}], "loss": {…}}
//! ```
//!
//! Numbers are integers in the column's unit, times in nanoseconds; `[low, high]` where they are not certain, `high` null
//! when there is no limit. Means, deviations and ratios have fractions. What nobody knows, and what is not there, is null.

use serde_json::{Map, Value, json};
use stitch::answer::Loss;
use stitch::fact::Line;
use stitch::table::{Bound, Cell, Kind, Table};

/// The `format` of [`tables`].
pub const FORMAT: &str = "throughline-table/1";

/// Tables of one host, and what is missing from them.
#[must_use]
pub fn tables(host: &str, tables: &[Table], loss: &Loss) -> Value {
    json!({
        "format": FORMAT,
        "host": host,
        "tables": tables.iter().map(table).collect::<Vec<_>>(),
        "loss": loss,
    })
}

/// The rows of a table, one object a line, by the names of its columns.
#[must_use]
pub fn lines(table: &Table) -> String {
    let line = |row: &Vec<Cell>| {
        let cells = table.class.columns.iter().zip(row);
        let fields: Map<String, Value> =
            cells.map(|(column, value)| (column.name.to_owned(), cell(value))).collect();
        Value::Object(fields).to_string() + "\n"
    };
    table.rows.iter().map(line).collect()
}

fn table(table: &Table) -> Value {
    let columns = table.class.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "title": column.title,
            "kind": word(column.kind),
            "unit": column.unit,
        })
    });
    let rows = table.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>());
    json!({
        "class": table.class.name,
        "title": table.class.title,
        "begin_ns": table.range.begin.nanos(),
        "end_ns": table.range.end.nanos(),
        "columns": columns.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
        "left_out": table.left_out,
    })
}

/// A cell as a value.
#[must_use]
pub fn cell(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing | Cell::Unknown => Value::Null,
        Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => bounded(*bound),
        Cell::Ratio { .. } | Cell::Mean { .. } | Cell::Deviation { .. } => json!(cell.real()),
        Cell::At(at) => json!(at.nanos()),
        Cell::Text(text) | Cell::Syscall(text) | Cell::Path(text) | Cell::Interface(text) => {
            json!(text)
        }
        Cell::Process { tid, pid, comm } => json!({
            "tid": tid.map(|tid| tid.get()),
            "pid": pid.map(|pid| pid.get()),
            "name": comm,
        }),
        Cell::Cpu(cpu) => json!(cpu.get()),
        Cell::Irq { line, name } => {
            let (hard, number) = number_of(*line);
            json!({"hard": hard, "nr": number, "name": name})
        }
        Cell::Disk { dev, name } => json!({"dev": dev.0, "name": name}),
        Cell::Fd(fd) => json!(fd.get()),
    }
}

/// Whether an interrupt is a device's, and its number.
pub(crate) fn number_of(line: Line) -> (bool, u16) {
    match line {
        Line::Hard(number) => (true, number),
        Line::Soft(vector) => (false, u16::from(vector)),
    }
}

fn bounded(bound: Bound) -> Value {
    match bound.certain() {
        Some(value) => json!(value),
        None => json!([bound.low, bound.high]),
    }
}

/// What programs call the cells of a column.
pub(crate) const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "number",
        Kind::Duration => "duration",
        Kind::Size => "size",
        Kind::Ratio => "ratio",
        Kind::Time => "timestamp",
        Kind::Text => "string",
        Kind::Process => "process",
        Kind::Syscall => "syscall",
        Kind::Path => "path",
        Kind::Cpu => "cpu",
        Kind::Irq => "irq",
        Kind::Disk => "disk",
        Kind::Fd => "fd",
        Kind::Interface => "netif",
    }
}
