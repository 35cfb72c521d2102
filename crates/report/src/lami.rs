//! Tables in the LTTng analyses machine interface (LAMI) 1.0, which trace viewers call for tables of other programs.
//!
//! Source: <https://github.com/lttng/lami-spec>, version 1.0.

use serde_json::{Map, Value, json};
use stitch::Subject;
use stitch::table::{Bound, Cell, Class, Kind, Table};

use crate::json::{number_of, word};

/// The version of the interface.
pub const VERSION: &str = "1.0";

/// What an analysis is called and which tables it has. `version` is the program's: `1.2.3`.
#[must_use]
pub fn metadata(subject: Subject, version: &str) -> Value {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    let classes: Map<String, Value> =
        subject.classes().iter().map(|class| (class.name.to_owned(), class_of(class))).collect();
    json!({
        "mi-version": {"major": 1, "minor": 0},
        "version": {"major": major, "minor": minor, "patch": patch},
        "title": subject.title(),
        "authors": ["Throughline"],
        "description": subject.title(),
        "url": "",
        "tags": ["throughline", subject.name()],
        "table-classes": classes,
    })
}

fn class_of(class: &Class) -> Value {
    let columns = class.columns.iter().map(|column| {
        let mut description = json!({"title": column.title, "class": word(column.kind)});
        if let (Some(unit), Some(fields)) = (column.unit, description.as_object_mut()) {
            fields.insert("unit".to_owned(), json!(unit));
        }
        description
    });
    json!({"title": class.title, "column-descriptions": columns.collect::<Vec<_>>()})
}

/// The tables of an answer.
#[must_use]
pub fn results(tables: &[Table]) -> Value {
    json!({"results": tables.iter().map(result).collect::<Vec<_>>()})
}

/// Why there is no answer.
#[must_use]
pub fn error(message: &str) -> Value {
    json!({"error-message": message})
}

fn result(table: &Table) -> Value {
    let time = |ns: i64| json!({"class": "timestamp", "value": ns});
    let columns = table.class.columns;
    let row = |row: &Vec<Cell>| -> Vec<Value> {
        row.iter().zip(columns).map(|(value, column)| cell(value, column.kind)).collect()
    };
    json!({
        "time-range": {
            "class": "time-range",
            "begin": time(table.range.begin.nanos()),
            "end": time(table.range.end.nanos()),
        },
        "class": table.class.name,
        "data": table.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn cell(cell: &Cell, kind: Kind) -> Value {
    let class = word(kind);
    match cell {
        Cell::Nothing => Value::Null,
        Cell::Unknown => json!({"class": "unknown"}),
        Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => bounded(class, *bound),
        Cell::Ratio { .. } | Cell::Mean { .. } | Cell::Deviation { .. } => {
            json!({"class": class, "value": cell.real()})
        }
        Cell::At(at) => json!({"class": class, "value": at.nanos()}),
        Cell::Text(text) => json!({"class": class, "value": text}),
        Cell::Syscall(name) | Cell::Interface(name) => json!({"class": class, "name": name}),
        Cell::Path(path) => json!({"class": class, "path": path}),
        Cell::Process { tid, pid, comm } => {
            let mut process = json!({"class": class, "name": comm});
            let numbers = [("tid", tid.map(|tid| tid.get())), ("pid", pid.map(|pid| pid.get()))];
            for (name, number) in numbers {
                if let (Some(number), Some(fields)) = (number, process.as_object_mut()) {
                    fields.insert(name.to_owned(), json!(number));
                }
            }
            process
        }
        Cell::Cpu(cpu) => json!({"class": class, "id": cpu.get()}),
        Cell::Irq { line, name } => {
            let (hard, number) = number_of(*line);
            json!({"class": class, "hard": hard, "nr": number, "name": name})
        }
        Cell::Disk { name, .. } => json!({"class": class, "name": name}),
        Cell::Fd(fd) => json!({"class": class, "fd": fd.get()}),
    }
}

/// One value where it is known, else its bounds.
fn bounded(class: &str, bound: Bound) -> Value {
    match (bound.certain(), bound.high) {
        (Some(value), _) => json!({"class": class, "value": value}),
        (None, Some(high)) => json!({"class": class, "low": bound.low, "high": high}),
        (None, None) => json!({"class": class, "low": bound.low, "high": "+inf"}),
    }
}
