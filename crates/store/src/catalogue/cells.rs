//! Sums of cells, until they are closed; then the cells, until all receivers have them.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use export::{Counter, Prefix};
use rules::{Amount, Reason, Sums};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};
use wire::remote_write::Labels;

use super::blocks::Summed;
use super::{Catalogue, Error, Result};
use crate::cells::{self, ClosedCell, Grid, Known, KnownSeries};
use crate::content::Digest;
use crate::lake::name::Tenant;

/// Cells of a tenant that wait for receivers; those of further ones are counted as lost, while counters go on.
pub const MAX_WAITING: u64 = 10_000_000;
/// Cells of time that one transaction closes.
const MAX_CLOSED: usize = 64;

/// Columns of a counter, and rows of one statement.
const COLUMNS: usize = 7;
const ROWS: usize = 128;

/// What closing made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Cells that wait for receivers.
    pub cells: u64,
    /// Cells that were lost as too many wait.
    pub lost: u64,
    /// Samples that are elsewhere.
    pub elsewhere: Elsewhere,
}

/// Samples that are not in the series that they would be in, but in the overflow or in one that lacks a label, by why. One counts for each such
/// series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the reasons, by their names")]
pub struct Elsewhere {
    pub too_many_series: u64,
    pub too_many_labels: u64,
    pub labels_too_long: u64,
    pub label_clash: u64,
}

impl Elsewhere {
    fn of(sums: &Sums) -> Self {
        let mut all = Self { label_clash: sums.clashes(), ..Self::default() };
        for (reason, Amount { samples, .. }) in sums.overflows() {
            match reason {
                Reason::TooManyLabels => all.too_many_labels += samples,
                Reason::LabelsTooLong => all.labels_too_long += samples,
                _ => all.too_many_series += samples,
            }
        }
        all
    }

    /// Each reason, and its samples.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 4] {
        let Self { too_many_series, too_many_labels, labels_too_long, label_clash } = *self;
        [
            ("too_many_series", too_many_series),
            ("too_many_labels", too_many_labels),
            ("labels_too_long", labels_too_long),
            ("label_clash", label_clash),
        ]
    }
}

impl AddAssign for Elsewhere {
    fn add_assign(&mut self, other: Self) {
        let Self { too_many_series, too_many_labels, labels_too_long, label_clash } = other;
        self.too_many_series += too_many_series;
        self.too_many_labels += too_many_labels;
        self.labels_too_long += labels_too_long;
        self.label_clash += label_clash;
    }
}

/// How a tenant's cells are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// Position of the next cell.
    pub next: u64,
    /// Cells of time before this are closed, milliseconds since 1970.
    pub closed_ms: i64,
    /// Cells that were lost as too many waited.
    pub lost: u64,
    /// Sums that are no sample's value exactly.
    pub inexact: u64,
    /// Parts of sums that counters do not have.
    pub left_out: u64,
}

impl Catalogue {
    /// The tenants that have sums or cells.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn exporting(&self) -> Result<Vec<Tenant>> {
        self.database.transact(async |connection: &mut AnyConnection| {
            let all = "SELECT tenant FROM throughline_sums UNION SELECT tenant FROM throughline_head ORDER BY 1";
            let rows = sqlx::query(all).fetch_all(connection).await?;
            rows.iter().map(|row| tenant(row.try_get(0)?)).collect()
        })
    }

    /// How a tenant's cells are.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn head(&self, tenant: &Tenant) -> Result<Head> {
        let tenant = tenant.as_str().to_owned();
        self.database.transact(async move |connection: &mut AnyConnection| {
            Ok(head(connection, &tenant).await?.unwrap_or_default())
        })
    }

    /// The latest time before which cells of any tenant are closed, milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn closed_ms(&self) -> Result<Option<i64>> {
        self.database.transact(async |connection: &mut AnyConnection| {
            let latest = "SELECT MAX(closed_ms) FROM throughline_head";
            Ok(sqlx::query(latest).fetch_one(connection).await?.try_get(0)?)
        })
    }

    /// The series of a tenant that were exported.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Damaged`].
    pub fn known(&self, tenant: &Tenant) -> Result<KnownSeries> {
        let tenant = tenant.as_str().to_owned();
        self.database
            .transact(async move |connection: &mut AnyConnection| known(connection, &tenant).await)
    }

    /// Closes a tenant's cells that began before a time, as many as one transaction may; says what was made, and whether that was all.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Damaged`].
    pub fn close(
        &self,
        tenant: &Tenant,
        before_ms: i64,
        grid: Grid,
        prefix: &Prefix,
    ) -> Result<(Made, bool)> {
        let (tenant, prefix) = (tenant.as_str().to_owned(), prefix.clone());
        self.database.transact(async move |connection: &mut AnyConnection| {
            close(connection, &tenant, before_ms, grid, &prefix).await
        })
    }
}

/// Adds sums to those of their cell, or to the first that is not closed.
pub(super) async fn add(connection: &mut AnyConnection, summed: &Summed) -> Result<()> {
    let tenant = summed.tenant.as_str();
    let closed_ms = head(connection, tenant).await?.map_or(i64::MIN, |head| head.closed_ms);
    let cell_ms = summed.cell_ms.max(closed_ms);
    let select = "SELECT sums FROM throughline_sums WHERE tenant = $1 AND cell_ms = $2";
    let found = sqlx::query(select).bind(tenant).bind(cell_ms).fetch_optional(&mut *connection);
    let mut all: Sums = match found.await? {
        Some(row) => parse(row.try_get(0)?)?,
        None => Sums::default(),
    };
    all.merge(summed.sums.clone(), &summed.bounds);
    let upsert = "INSERT INTO throughline_sums (tenant, cell_ms, sums) VALUES ($1, $2, $3) \
                  ON CONFLICT (tenant, cell_ms) DO UPDATE SET sums = excluded.sums";
    let query = sqlx::query(upsert).bind(tenant).bind(cell_ms).bind(text(&all)?);
    query.execute(connection).await?;
    Ok(())
}

async fn head(connection: &mut AnyConnection, tenant: &str) -> Result<Option<Head>> {
    let select =
        "SELECT next, closed_ms, lost, inexact, left_out FROM throughline_head WHERE tenant = $1";
    let row = sqlx::query(select).bind(tenant).fetch_optional(connection).await?;
    let head = |row: AnyRow| {
        Ok(Head {
            next: number(&row, 0)?,
            closed_ms: row.try_get(1)?,
            lost: number(&row, 2)?,
            inexact: number(&row, 3)?,
            left_out: number(&row, 4)?,
        })
    };
    row.map(head).transpose()
}

pub(super) async fn known(connection: &mut AnyConnection, tenant: &str) -> Result<KnownSeries> {
    let select = "SELECT series, start_ms, total, seen_ms, is_stale FROM throughline_counter WHERE tenant = $1";
    let rows = sqlx::query(select).bind(tenant).fetch_all(connection).await?;
    let series = |row: &AnyRow| {
        // All 64 bits are used: a single cell may add more than half of them.
        let total = row.try_get::<i64, _>(2)?.cast_unsigned();
        let counter = Counter { start_ms: row.try_get(1)?, total };
        let (seen_ms, is_stale) = (row.try_get(3)?, row.try_get::<i64, _>(4)? != 0);
        Ok((parse::<Labels>(row.try_get(0)?)?, Known { counter, seen_ms, is_stale }))
    };
    rows.iter().map(series).collect()
}

async fn close(
    connection: &mut AnyConnection,
    tenant: &str,
    before_ms: i64,
    grid: Grid,
    prefix: &Prefix,
) -> Result<(Made, bool)> {
    let before_ms = grid.begin_of(before_ms);
    let mut head = match head(connection, tenant).await? {
        Some(head) => head,
        None => Head { closed_ms: i64::MIN, ..Head::default() },
    };
    let select = "SELECT cell_ms FROM throughline_sums WHERE tenant = $1 AND cell_ms < $2";
    let rows = sqlx::query(select).bind(tenant).bind(before_ms).fetch_all(&mut *connection).await?;
    let mut open: Vec<i64> =
        rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>()?;
    if head.closed_ms >= before_ms {
        return Ok((Made::default(), true));
    }
    let mut series = known(connection, tenant).await?;
    let mut changed: BTreeMap<Labels, Option<Known>> = BTreeMap::new();
    let mut waiting =
        head.next.saturating_sub(first_waiting(connection, tenant).await?.unwrap_or(head.next));
    let (mut made, mut is_all) = (Made::default(), false);
    for _ in 0..MAX_CLOSED {
        let next = cells::next_cell(head.closed_ms, open.iter().copied(), &series);
        let Some(cell_ms) = next.filter(|cell_ms| *cell_ms < before_ms) else {
            is_all = true;
            break;
        };
        let sums = take_sums(connection, tenant, cell_ms).await?;
        open.retain(|it| *it != cell_ms);
        made.elsewhere += Elsewhere::of(&sums);
        let closed = cells::close(sums.with_overflow(prefix), &series, cell_ms);
        // Cells of another grid may wait, and end where the next one begins.
        let next = open.iter().copied().filter(|it| *it > cell_ms).min();
        let end_ms = grid.end_of(cell_ms).min(next.unwrap_or(i64::MAX));
        let count = closed.cells.len() as u64;
        if waiting.saturating_add(count) > MAX_WAITING {
            made.lost += count;
        } else if count > 0 {
            put(connection, tenant, head.next, end_ms, &closed.cells).await?;
            head.next += count;
            waiting += count;
            made.cells += count;
        }
        head.inexact += closed.inexact;
        head.left_out += closed.left_out;
        head.closed_ms = end_ms;
        for (labels, state) in closed.changed {
            match state {
                Some(state) => series.insert(labels.clone(), state),
                None => series.remove(&labels),
            };
            changed.insert(labels, state);
        }
    }
    if is_all {
        head.closed_ms = before_ms;
    }
    head.lost += made.lost;
    write_counters(connection, tenant, &changed).await?;
    write_head(connection, tenant, &head).await?;
    Ok((made, is_all))
}

async fn first_waiting(connection: &mut AnyConnection, tenant: &str) -> Result<Option<u64>> {
    let select = "SELECT MIN(first) FROM throughline_outbox WHERE tenant = $1";
    let row = sqlx::query(select).bind(tenant).fetch_one(connection).await?;
    let first: Option<i64> = row.try_get(0)?;
    Ok(first.map(i64::cast_unsigned))
}

async fn take_sums(connection: &mut AnyConnection, tenant: &str, cell_ms: i64) -> Result<Sums> {
    let delete = "DELETE FROM throughline_sums WHERE tenant = $1 AND cell_ms = $2 RETURNING sums";
    let row = sqlx::query(delete).bind(tenant).bind(cell_ms).fetch_optional(connection).await?;
    row.map_or(Ok(Sums::default()), |row| parse(row.try_get(0)?))
}

async fn put(
    connection: &mut AnyConnection,
    tenant: &str,
    first: u64,
    end_ms: i64,
    cells: &[ClosedCell],
) -> Result<()> {
    let insert = "INSERT INTO throughline_outbox (tenant, first, cells, end_ms, content) VALUES ($1, $2, $3, $4, $5)";
    let query = sqlx::query(insert).bind(tenant).bind(first.cast_signed());
    let count = (cells.len() as u64).cast_signed();
    query.bind(count).bind(end_ms).bind(text(&cells)?).execute(connection).await?;
    Ok(())
}

async fn write_counters(
    connection: &mut AnyConnection,
    tenant: &str,
    changed: &BTreeMap<Labels, Option<Known>>,
) -> Result<()> {
    let mut written = Vec::new();
    for (labels, state) in changed {
        let series = text(labels)?;
        let id = Digest::of(series.as_bytes()).to_string();
        match state {
            Some(state) => written.push((id, series, *state)),
            None => {
                let delete = "DELETE FROM throughline_counter WHERE tenant = $1 AND id = $2";
                sqlx::query(delete).bind(tenant).bind(id).execute(&mut *connection).await?;
            }
        }
    }
    for rows in written.chunks(ROWS) {
        let row = |at: usize| {
            let first = at * COLUMNS;
            let places: Vec<String> = (1..=COLUMNS).map(|it| format!("${}", first + it)).collect();
            format!("({})", places.join(", "))
        };
        let places: Vec<String> = (0..rows.len()).map(row).collect();
        let upsert = format!(
            "INSERT INTO throughline_counter (tenant, id, series, start_ms, total, seen_ms, is_stale) VALUES {} \
             ON CONFLICT (tenant, id) DO UPDATE SET start_ms = excluded.start_ms, total = excluded.total, \
             seen_ms = excluded.seen_ms, is_stale = excluded.is_stale",
            places.join(", ")
        );
        // There is nothing in it but numbers of places.
        let mut query = sqlx::query(sqlx::AssertSqlSafe(upsert));
        for (id, series, Known { counter, seen_ms, is_stale }) in rows {
            query = query.bind(tenant).bind(id.as_str()).bind(series.as_str());
            query = query.bind(counter.start_ms).bind(counter.total.cast_signed());
            query = query.bind(*seen_ms).bind(i64::from(*is_stale));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_head(connection: &mut AnyConnection, tenant: &str, head: &Head) -> Result<()> {
    let upsert = "INSERT INTO throughline_head (tenant, next, closed_ms, lost, inexact, left_out) \
                  VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant) DO UPDATE SET next = excluded.next, \
                  closed_ms = excluded.closed_ms, lost = excluded.lost, inexact = excluded.inexact, left_out = excluded.left_out";
    let query = sqlx::query(upsert).bind(tenant).bind(head.next.cast_signed()).bind(head.closed_ms);
    let query = query.bind(head.lost.cast_signed()).bind(head.inexact.cast_signed());
    query.bind(head.left_out.cast_signed()).execute(connection).await?;
    Ok(())
}

/// A count as the database has it.
pub(super) fn number(row: &AnyRow, at: usize) -> Result<u64> {
    let number: i64 = row.try_get(at)?;
    u64::try_from(number)
        .map_err(|_negative| Error::Damaged { what: format!("{number} is no count") })
}

fn tenant(name: String) -> Result<Tenant> {
    Tenant::new(&name).map_err(|error| Error::Damaged { what: error.to_string() })
}

pub(super) fn text<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Damaged { what: error.to_string() })
}

pub(super) fn parse<T: DeserializeOwned>(text: String) -> Result<T> {
    serde_json::from_str(&text).map_err(|error| Error::Damaged { what: error.to_string() })
}
