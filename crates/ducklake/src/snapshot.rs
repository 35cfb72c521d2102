//! Snapshots: the newest one, and the one after it.

use jiff::fmt::strtime;
use model::Timestamp;
use sqlx::AnyConnection;

use crate::connect::Backend;
use crate::error::{Doing, Error, Result};
use crate::rows::{insert, row};
use crate::tables::{SNAPSHOT, SNAPSHOT_CHANGES};

/// A snapshot's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub(crate) i64);

impl SnapshotId {
    /// The number, as DuckDB's `AT (VERSION => n)` takes it.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// What a snapshot says of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) id: i64,
    pub(crate) schema_version: i64,
    pub(crate) next_catalog_id: i64,
    pub(crate) next_file_id: i64,
}

impl Snapshot {
    /// The first of all: there is one schema, `main`, and nothing in it.
    pub(crate) const FIRST: Self =
        Self { id: 0, schema_version: 0, next_catalog_id: 1, next_file_id: 0 };

    /// The one after the newest; nobody else writes one until the transaction ends.
    pub(crate) async fn next(connection: &mut AnyConnection) -> Result<Self> {
        const DOING: &str = "reading the newest snapshot";
        if Backend::of(connection)? == Backend::Postgres {
            // Readers pass; other writers, DuckDB's too, wait.
            let lock = sqlx::query("LOCK TABLE ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE");
            lock.execute(&mut *connection).await.doing(DOING)?;
        }
        let newest = sqlx::query_as(
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        );
        let newest: Option<(i64, i64, i64, i64)> =
            newest.fetch_optional(connection).await.doing(DOING)?;
        let (id, schema_version, next_catalog_id, next_file_id) =
            newest.ok_or(Error::Damaged { what: "snapshot" })?;
        Ok(Self { id: id + 1, schema_version, next_catalog_id, next_file_id })
    }

    /// The id of something that is made in this snapshot.
    pub(crate) fn take_catalog_id(&mut self) -> i64 {
        let id = self.next_catalog_id;
        self.next_catalog_id += 1;
        id
    }

    /// Writes it; `changes` as `ducklake_snapshot_changes` has them.
    pub(crate) async fn write(
        self,
        connection: &mut AnyConnection,
        changes: &str,
        message: Option<&str>,
        at: Timestamp,
    ) -> Result<SnapshotId> {
        let Self { id, schema_version, next_catalog_id, next_file_id } = self;
        let rows = [row![id, time_text(at), schema_version, next_catalog_id, next_file_id]];
        insert(connection, &SNAPSHOT, &rows).await?;
        let author = message.map(|_| "throughline");
        let rows = [row![id, changes, author, message, Option::<i64>::None]];
        insert(connection, &SNAPSHOT_CHANGES, &rows).await?;
        Ok(SnapshotId(id))
    }
}

/// A time as the catalogue has it, to the microsecond.
pub(crate) fn time_text(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.nanos()));
    let at = at.expect("64 bits of nanoseconds are years 1677 to 2262");
    strtime::format("%Y-%m-%d %H:%M:%S.%6f+00", at).expect("a time that is a date")
}

/// A name as `ducklake_snapshot_changes` has it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_duckdb_writes_them() {
        let at = Timestamp::from_nanos(1_704_164_645_012_345_678);
        assert_eq!(time_text(at), "2024-01-02 03:04:05.012345+00");
        assert_eq!(time_text(Timestamp::MIN).len(), "2024-01-02 03:04:05.012345+00".len());
    }

    #[test]
    fn quotes_in_names_are_doubled() {
        assert_eq!(quoted(r#"a "b""#), r#""a ""b""""#);
    }
}
