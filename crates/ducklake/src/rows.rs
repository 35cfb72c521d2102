//! Rows in and lists of paths out, many in one statement.

use std::fmt::Write as _;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use crate::connect::Backend;
use crate::error::{Doing, Result};
use crate::tables::{Kind, Relation};

/// How many rows, or values of a list, one statement has. Few sizes, so that the database prepares few statements; the largest
/// with 16 columns stays far below what SQLite (32,766) and PostgreSQL (65,535) bind.
const SIZES: [usize; 4] = [128, 32, 8, 1];

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Flag(bool),
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of the given values.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::rows::Value::from($value)),*] };
}
pub(crate) use row;

type Bound<'a> = Query<'a, Any, AnyArguments>;

/// Puts rows into a table, in its columns' order.
pub(crate) async fn insert(
    connection: &mut AnyConnection,
    relation: &Relation,
    rows: &[Vec<Value>],
) -> Result<()> {
    let backend = Backend::of(connection)?;
    let mut rest = rows;
    while let Some(size) = SIZES.into_iter().find(|size| *size <= rest.len()) {
        let (these, others) = rest.split_at(size);
        rest = others;
        let mut query = sqlx::query(AssertSqlSafe(insertion(relation, backend, size)));
        for row in these {
            debug_assert_eq!(row.len(), relation.columns.len(), "{}", relation.name);
            for (value, (_, kind)) in row.iter().zip(relation.columns) {
                query = bind(query, *kind, value);
            }
        }
        query.execute(&mut *connection).await.doing("adding rows")?;
    }
    Ok(())
}

fn insertion(relation: &Relation, backend: Backend, rows: usize) -> String {
    let mut sql = format!("INSERT INTO {} VALUES ", relation.name);
    let mut number = 0;
    for row in 0..rows {
        sql.push_str(if row == 0 { "(" } else { "), (" });
        for (column, (_, kind)) in relation.columns.iter().enumerate() {
            number += 1;
            let comma = if column == 0 { "" } else { ", " };
            sql.push_str(comma);
            sql.push_str(&placeholder(number, *kind, backend));
        }
    }
    sql.push(')');
    sql
}

/// `$n`, with PostgreSQL as the type that sqlx's `Any` cannot bind.
pub(crate) fn placeholder(number: usize, kind: Kind, backend: Backend) -> String {
    match (backend, kind) {
        (Backend::Postgres, Kind::Time) => format!("CAST(${number} AS TIMESTAMPTZ)"),
        (Backend::Postgres, Kind::Uuid) => format!("CAST(${number} AS UUID)"),
        _ => format!("${number}"),
    }
}

fn bind<'a>(query: Bound<'a>, kind: Kind, value: &Value) -> Bound<'a> {
    match (value, kind) {
        (Value::Null, Kind::Integer) => query.bind(Option::<i64>::None),
        (Value::Null, Kind::Flag) => query.bind(Option::<bool>::None),
        (Value::Null, Kind::Text | Kind::Time | Kind::Uuid) => query.bind(Option::<String>::None),
        (Value::Integer(value), _) => query.bind(*value),
        (Value::Flag(value), _) => query.bind(*value),
        (Value::Text(value), _) => query.bind(value.clone()),
    }
}

/// Parts of a list, and how many places of a statement each fills: a part that is too short is filled by its last value again.
pub(crate) fn parts<T>(list: &[T]) -> impl Iterator<Item = (&[T], usize)> {
    let [most, ..] = SIZES;
    list.chunks(most).map(move |part| {
        let fits = SIZES.into_iter().rev().find(|size| part.len() <= *size);
        (part, fits.unwrap_or(most))
    })
}

/// A part of a list as often as it has places, see [`parts`].
pub(crate) fn filled<T>(part: &[T], places: usize) -> impl Iterator<Item = &T> {
    part.iter().chain(part.last().into_iter().cycle()).take(places)
}

/// `($n, …)` with so many places from `$first` on.
pub(crate) fn list(first: usize, places: usize) -> String {
    let mut sql = String::from("(");
    for number in first..first + places {
        let comma = if number == first { "" } else { ", " };
        write!(sql, "{comma}${number}").expect("a text takes all");
    }
    sql.push(')');
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_statements_of_few_sizes() {
        let list: Vec<u32> = (0..300).collect();
        let sizes: Vec<_> = parts(&list).map(|(part, places)| (part.len(), places)).collect();
        assert_eq!(sizes, [(128, 128), (128, 128), (44, 128)]);
        let sizes: Vec<_> = parts(&list[..3]).map(|(part, places)| (part.len(), places)).collect();
        assert_eq!(sizes, [(3, 8)]);
        assert_eq!(filled(&[1, 2], 4).collect::<Vec<_>>(), [&1, &2, &2, &2]);
        assert_eq!(super::list(3, 2), "($3, $4)");
    }
}
