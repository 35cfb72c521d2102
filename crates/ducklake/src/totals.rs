//! A table's statistics over all of its files: sums of the live ones, and bounds that only widen, as older snapshots are read by them too.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AnyConnection, AssertSqlSafe};

use crate::bound::Bound;
use crate::commit::DataFile;
use crate::error::{Doing, Result};
use crate::rows::{Value, filled, insert, list, parts, row};
use crate::statistics::ColumnStatistics;
use crate::tables::{TABLE_COLUMN_STATS, TABLE_STATS};

const DOING: &str = "changing a table's statistics";

/// Sums over a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Of live files.
    pub(crate) rows: i64,
    /// Of live files.
    pub(crate) bytes: i64,
    /// The number that the next row gets; never given twice.
    pub(crate) next_row_id: i64,
}

impl Totals {
    pub(crate) async fn read(connection: &mut AnyConnection, table: i64) -> Result<Self> {
        let totals = sqlx::query_as(
            "SELECT record_count, file_size_bytes, next_row_id FROM ducklake_table_stats WHERE table_id = $1",
        );
        let totals: Option<(i64, i64, i64)> =
            totals.bind(table).fetch_optional(connection).await.doing(DOING)?;
        Ok(totals.map_or_else(Self::default, |(rows, bytes, next_row_id)| Self {
            rows,
            bytes,
            next_row_id,
        }))
    }

    pub(crate) async fn write(self, connection: &mut AnyConnection, table: i64) -> Result<()> {
        let Self { rows, bytes, next_row_id } = self;
        let update = sqlx::query(
            "UPDATE ducklake_table_stats SET record_count = $1, file_size_bytes = $2, next_row_id = $3 WHERE table_id = $4",
        );
        let update = update.bind(rows).bind(bytes).bind(next_row_id).bind(table);
        let updated = update.execute(&mut *connection).await.doing(DOING)?;
        if updated.rows_affected() == 0 {
            insert(connection, &TABLE_STATS, &[row![table, rows, next_row_id, bytes]]).await?;
        }
        Ok(())
    }
}

/// What is known of a column over all files that ever were. A column is absent when none of them had a value of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    has_nulls: bool,
    /// `None`: not known.
    min: Option<String>,
    /// `None`: not known.
    max: Option<String>,
}

/// Widens the bounds of a table's columns to those of files; `had_rows`: whether there was any row before.
pub(crate) async fn widen(
    connection: &mut AnyConnection,
    table: i64,
    files: &[DataFile],
    had_rows: bool,
) -> Result<()> {
    let known = known(connection, table).await?;
    let widened = widened(&known, files, had_rows);
    let changed: Vec<_> =
        widened.iter().filter(|(id, column)| known.get(id) != Some(column)).collect();
    let ids: Vec<i64> = changed.iter().map(|(id, _)| **id).collect();
    for (part, places) in parts(&ids) {
        let sql = format!(
            "DELETE FROM ducklake_table_column_stats WHERE table_id = $1 AND column_id IN {}",
            list(2, places)
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(table);
        let query = filled(part, places).fold(query, |query, id| query.bind(*id));
        query.execute(&mut *connection).await.doing(DOING)?;
    }
    let rows = changed.into_iter().map(|(id, column)| {
        let Known { has_nulls, min, max } = column.clone();
        row![table, *id, has_nulls, Value::Null, min, max, Value::Null]
    });
    insert(connection, &TABLE_COLUMN_STATS, &rows.collect::<Vec<_>>()).await
}

async fn known(connection: &mut AnyConnection, table: i64) -> Result<BTreeMap<i64, Known>> {
    let rows = sqlx::query_as(
        "SELECT column_id, CASE WHEN contains_null THEN 1 ELSE 0 END, min_value, max_value FROM ducklake_table_column_stats WHERE table_id = $1",
    );
    let rows: Vec<(i64, i64, Option<String>, Option<String>)> =
        rows.bind(table).fetch_all(connection).await.doing(DOING)?;
    let known = rows.into_iter().map(|(id, has_nulls, min, max)| {
        let known = Known { has_nulls: has_nulls != 0, min, max };
        (id, known)
    });
    Ok(known.collect())
}

fn widened(
    known: &BTreeMap<i64, Known>,
    files: &[DataFile],
    had_rows: bool,
) -> BTreeMap<i64, Known> {
    let in_files = files.iter().flat_map(|file| &file.numbers.columns).map(|column| column.id);
    let ids: BTreeSet<i64> = known.keys().copied().chain(in_files).collect();
    let files: Vec<BTreeMap<i64, &ColumnStatistics>> = files
        .iter()
        .filter(|file| file.numbers.rows > 0)
        .map(|file| file.numbers.columns.iter().map(|column| (column.id, column)).collect())
        .collect();
    let widened = ids.into_iter().filter_map(|id| {
        let columns: Vec<_> = files.iter().map(|file| file.get(&id).copied()).collect();
        let is_null = |column: &Option<&ColumnStatistics>| {
            column.is_none_or(|column| column.nulls != Some(0))
        };
        let has_nulls = columns.iter().any(is_null);
        let valued = columns.into_iter().flatten().filter(|column| column.values != Some(0));
        let valued: Vec<_> = valued.collect();
        let before = known.get(&id);
        if before.is_none() && valued.is_empty() {
            return None;
        }
        let min = valued.iter().map(|column| column.min.as_ref());
        let max = valued.iter().map(|column| column.max.as_ref());
        let widened = Known {
            has_nulls: has_nulls || before.map_or(had_rows, |before| before.has_nulls),
            min: outermost(before.map(|before| before.min.as_deref()), min, |one, other| {
                one < other
            }),
            max: outermost(before.map(|before| before.max.as_deref()), max, |one, other| {
                one > other
            }),
        };
        Some((id, widened))
    });
    widened.collect()
}

/// The text of the bound that is outside of all others; `None` when any is not known.
fn outermost<'a>(
    before: Option<Option<&str>>,
    bounds: impl Iterator<Item = Option<&'a Bound>>,
    is_outside: fn(&Bound, &Bound) -> bool,
) -> Option<String> {
    let bounds: Option<Vec<&Bound>> = bounds.collect();
    let outer = |one, other| if is_outside(one, other) { one } else { other };
    let found = bounds?.into_iter().reduce(outer);
    match (before, found) {
        (None, found) => found.map(Bound::to_string),
        (Some(before), None) => before.map(str::to_owned),
        (Some(before), Some(found)) => {
            let before = found.read_like(before?)?;
            Some(outer(&before, found).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Numbers;

    fn file(columns: &[(i64, u64, u64, Option<[i128; 2]>)]) -> DataFile {
        let columns = columns.iter().map(|(id, values, nulls, bounds)| ColumnStatistics {
            id: *id,
            bytes: 1,
            values: Some(*values),
            nulls: Some(*nulls),
            min: bounds.map(|[min, _]| Bound::Integer(min)),
            max: bounds.map(|[_, max]| Bound::Integer(max)),
        });
        let numbers = Numbers { footer_bytes: 1, rows: 9, columns: columns.collect() };
        DataFile { path: String::new(), bytes: 1, numbers }
    }

    fn known(has_nulls: bool, min: Option<i64>, max: Option<i64>) -> Known {
        let text = |bound: Option<i64>| bound.map(|bound| bound.to_string());
        Known { has_nulls, min: text(min), max: text(max) }
    }

    #[test]
    fn bounds_widen_by_value_and_not_by_text() {
        let before = BTreeMap::from([(1, known(false, Some(9), Some(10)))]);
        let after = widened(&before, &[file(&[(1, 9, 0, Some([-10, 9]))])], true);
        assert_eq!(after, BTreeMap::from([(1, known(false, Some(-10), Some(10)))]));
    }

    #[test]
    fn a_column_that_earlier_files_do_not_have_has_nulls() {
        let after = widened(&BTreeMap::new(), &[file(&[(2, 9, 0, Some([1, 2]))])], true);
        assert_eq!(after, BTreeMap::from([(2, known(true, Some(1), Some(2)))]));
        let both = [file(&[]), file(&[(2, 9, 0, Some([1, 2]))])];
        assert_eq!(widened(&BTreeMap::new(), &both, false), after);
        let before = BTreeMap::from([(2, known(false, Some(1), Some(2)))]);
        assert_eq!(widened(&before, &[file(&[])], true), after);
    }

    #[test]
    fn a_column_without_values_says_nothing_of_bounds() {
        let empty = file(&[(1, 0, 9, None)]);
        assert_eq!(widened(&BTreeMap::new(), std::slice::from_ref(&empty), false), BTreeMap::new());
        let before = BTreeMap::from([(1, known(false, Some(1), Some(2)))]);
        let after = widened(&before, &[empty], true);
        assert_eq!(after, BTreeMap::from([(1, known(true, Some(1), Some(2)))]));
    }

    #[test]
    fn what_is_not_known_once_stays_so() {
        let before = BTreeMap::from([(1, known(false, Some(1), Some(2)))]);
        let after = widened(&before, &[file(&[(1, 9, 0, None)])], true);
        assert_eq!(after, BTreeMap::from([(1, known(false, None, None))]));
        let later = widened(&after, &[file(&[(1, 9, 0, Some([1, 2]))])], true);
        assert_eq!(later, after);
    }
}
