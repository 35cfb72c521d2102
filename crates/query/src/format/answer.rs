//! A table of an answer as Parquet, with the columns of its CSV form: a process takes three (`process`, `process_tid`,
//! `process_pid`), an interrupt three (`irq`, `irq_kind`, `irq_nr`), a disk two (`disk`, `disk_dev`). Where any number of a
//! column is not certain, `NAME_high` follows: what it is at most, null without limit. What nobody knows, and what is not
//! there, is null.

use std::io::Write;

use stitch::fact::Line;
use stitch::table::{Bound, Cell, Column, Kind, Table};

use super::{Format, Writer};
use crate::error::Error;
use crate::rows::{Rows, Type, Value, schema};

/// Writes the table, times as timestamps, numbers as integers in the column's unit, means and the like as doubles.
///
/// # Errors
/// [`Error::Io`], [`Error::Parquet`]: it cannot be written.
pub fn write_table<W: Write + Send>(table: &Table, out: W) -> Result<W, Error> {
    let columns: Vec<Shape<'_>> = table
        .class
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| Shape::new(column, table.rows.iter().filter_map(|row| row.get(at))))
        .collect();
    let named: Vec<(String, Type)> = columns.iter().flat_map(Shape::columns).collect();
    let schema = schema(named.iter().map(|(name, of)| (name.as_str(), *of)));
    let mut writer = Writer::new(Format::Parquet, &schema, out)?;
    let mut rows = Rows::new(schema);
    for row in &table.rows {
        let cells = columns.iter().zip(row);
        rows.push(cells.flat_map(|(column, cell)| column.values(cell)));
    }
    writer.write(&rows.take_batch()?)?;
    writer.finish()
}

/// What a column becomes.
struct Shape<'c> {
    column: &'c Column,
    /// Whether its numbers have fractions.
    is_real: bool,
    /// Whether any of them is not certain.
    is_open: bool,
}

impl<'c> Shape<'c> {
    fn new<'r>(column: &'c Column, cells: impl Iterator<Item = &'r Cell> + Clone) -> Self {
        let is_open = |cell: &Cell| bound_of(cell).is_some_and(|bound| bound.certain().is_none());
        Self {
            column,
            is_real: column.kind == Kind::Ratio || cells.clone().any(|cell| cell.real().is_some()),
            is_open: cells.clone().any(is_open),
        }
    }

    fn columns(&self) -> Vec<(String, Type)> {
        let number = if self.is_real { Type::Float } else { Type::Int };
        let (of, more): (Type, &[(&str, Type)]) = match self.column.kind {
            Kind::Number | Kind::Duration | Kind::Size if self.is_open => {
                (number, &[("_high", Type::Int)])
            }
            Kind::Number | Kind::Duration | Kind::Size | Kind::Ratio => (number, &[]),
            Kind::Time => (Type::Time, &[]),
            Kind::Cpu | Kind::Fd => (Type::Int, &[]),
            Kind::Process => (Type::Text, &[("_tid", Type::Int), ("_pid", Type::Int)]),
            Kind::Irq => (Type::Text, &[("_kind", Type::Text), ("_nr", Type::Int)]),
            Kind::Disk => (Type::Text, &[("_dev", Type::Int)]),
            Kind::Text | Kind::Syscall | Kind::Path | Kind::Interface => (Type::Text, &[]),
        };
        let name = self.column.name;
        let more = more.iter().map(|(ending, of)| (format!("{name}{ending}"), *of));
        [(name.to_owned(), of)].into_iter().chain(more).collect()
    }

    fn values<'v>(&self, cell: &'v Cell) -> Vec<Value<'v>> {
        match cell {
            Cell::Nothing | Cell::Unknown => vec![Value::Null; self.columns().len()],
            Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => {
                let low = Value::int(Some(bound.low));
                let high = self.is_open.then(|| Value::int(bound.high));
                [low].into_iter().chain(high).collect()
            }
            Cell::Ratio { .. } | Cell::Mean { .. } | Cell::Deviation { .. } => {
                vec![cell.real().map_or(Value::Null, Value::Float)]
            }
            Cell::At(at) => vec![Value::Int(at.nanos())],
            Cell::Text(text) | Cell::Syscall(text) | Cell::Path(text) | Cell::Interface(text) => {
                vec![Value::Text(text)]
            }
            Cell::Process { tid, pid, comm } => vec![
                Value::text(Some(comm)),
                Value::int(tid.map(model::Tid::get)),
                Value::int(pid.map(model::Pid::get)),
            ],
            Cell::Cpu(cpu) => vec![Value::int(Some(cpu.get()))],
            Cell::Irq { line, name } => {
                let (kind, number) = match line {
                    Line::Hard(number) => ("hard", i64::from(*number)),
                    Line::Soft(vector) => ("soft", i64::from(*vector)),
                };
                vec![Value::text(Some(name)), Value::Text(kind), Value::Int(number)]
            }
            Cell::Disk { dev, name } => vec![Value::text(Some(name)), Value::int(Some(dev.0))],
            Cell::Fd(fd) => vec![Value::int(Some(fd.get()))],
        }
    }
}

const fn bound_of(cell: &Cell) -> Option<Bound> {
    match cell {
        Cell::Count(bound) | Cell::Ns(bound) | Cell::Bytes(bound) => Some(*bound),
        _ => None,
    }
}
