//! Closed cells as what a sender reads, and its cursor, both in the catalogue.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use export::{Cell, Cursor, KeepCursor, Source};
use sqlx::{AnyConnection, Row as _};
use wire::remote_write::{Metadata, MetricKind};

use super::cells::{number, parse, text};
use super::{Catalogue, Result};
use crate::cells::ClosedCell;
use crate::lake::name::Tenant;

/// A tenant's closed cells for one receiver. Its positions count from where the receiver began.
#[derive(Debug)]
pub struct Outbox {
    catalogue: Arc<Catalogue>,
    tenant: Tenant,
    /// Position in the tenant's outbox of the receiver's first cell.
    origin: u64,
    /// Cells that were read last, and the position of the first.
    read: (u64, VecDeque<Cell>),
    metadata: [Arc<Metadata>; 2],
}

/// A receiver's cursor in the catalogue.
#[derive(Debug)]
pub struct KeptCursor {
    catalogue: Arc<Catalogue>,
    tenant: Tenant,
    receiver: String,
}

/// Some cells as they wait: the position of the first, and when their cell of time ended.
type Waiting = (u64, i64, Vec<ClosedCell>);

impl Catalogue {
    /// What a receiver of a tenant's cells reads, from where it is; one that is seen first begins with what is closed from here on.
    ///
    /// # Errors
    ///
    /// [`super::Error::Database`].
    pub fn receiver(
        self: &Arc<Self>,
        tenant: &Tenant,
        receiver: &str,
    ) -> Result<(Outbox, KeptCursor)> {
        let (name, own) = (tenant.as_str().to_owned(), receiver.to_owned());
        let origin = self.database.transact(async move |connection: &mut AnyConnection| {
            let insert = "INSERT INTO throughline_cursor (tenant, receiver, origin, content) \
                          SELECT $1, $2, COALESCE((SELECT next FROM throughline_head WHERE tenant = $1), 0), $3 \
                          WHERE NOT EXISTS (SELECT 1 FROM throughline_cursor WHERE tenant = $1 AND receiver = $2)";
            let begin = text(&Cursor::default())?;
            let query = sqlx::query(insert).bind(name.as_str()).bind(own.as_str()).bind(begin);
            query.execute(&mut *connection).await?;
            let select = "SELECT origin FROM throughline_cursor WHERE tenant = $1 AND receiver = $2";
            let row = sqlx::query(select).bind(name).bind(own).fetch_one(connection).await?;
            number(&row, 0)
        })?;
        let metadata = [
            metadata(
                MetricKind::Gauge,
                "Sum of the values of all profile samples that came in a cell of time.",
            ),
            metadata(MetricKind::Counter, "Sum of the values of all profile samples that came."),
        ];
        let (catalogue, tenant) = (Arc::clone(self), tenant.clone());
        let read = (0, VecDeque::new());
        let outbox = Outbox { catalogue, tenant: tenant.clone(), origin, read, metadata };
        let (catalogue, receiver) = (Arc::clone(self), receiver.to_owned());
        Ok((outbox, KeptCursor { catalogue, tenant, receiver }))
    }

    /// Forgets receivers that are not among these, and cells that all others have.
    ///
    /// # Errors
    ///
    /// [`super::Error::Database`].
    pub fn trim(&self, tenant: &Tenant, receivers: &[String]) -> Result<()> {
        let (tenant, receivers) = (tenant.as_str().to_owned(), receivers.to_vec());
        self.database.transact(async move |connection: &mut AnyConnection| {
            let select =
                "SELECT receiver, origin, content FROM throughline_cursor WHERE tenant = $1";
            let rows =
                sqlx::query(select).bind(tenant.as_str()).fetch_all(&mut *connection).await?;
            let mut first = None::<u64>;
            for row in &rows {
                let receiver: String = row.try_get(0)?;
                if receivers.contains(&receiver) {
                    let cursor: Cursor = parse(row.try_get(2)?)?;
                    let next = number(row, 1)?.saturating_add(cursor.next);
                    first = Some(first.map_or(next, |first| first.min(next)));
                } else {
                    let delete =
                        "DELETE FROM throughline_cursor WHERE tenant = $1 AND receiver = $2";
                    let query = sqlx::query(delete).bind(tenant.as_str()).bind(receiver);
                    query.execute(&mut *connection).await?;
                }
            }
            let first = first.unwrap_or(i64::MAX.cast_unsigned()).cast_signed();
            let delete = "DELETE FROM throughline_outbox WHERE tenant = $1 AND first + cells <= $2";
            sqlx::query(delete).bind(tenant).bind(first).execute(connection).await?;
            Ok(())
        })
    }

    /// The cells that one closing made, of which the one at a position is, or the first behind it.
    fn waiting(&self, tenant: &Tenant, position: u64) -> Result<Option<Waiting>> {
        let tenant = tenant.as_str().to_owned();
        self.database.transact(async move |connection: &mut AnyConnection| {
            let select = "SELECT first, end_ms, content FROM throughline_outbox \
                          WHERE tenant = $1 AND first + cells > $2 ORDER BY first LIMIT 1";
            let query = sqlx::query(select).bind(tenant).bind(position.cast_signed());
            let row = query.fetch_optional(connection).await?;
            row.map(|row| Ok((number(&row, 0)?, row.try_get(1)?, parse(row.try_get(2)?)?)))
                .transpose()
        })
    }
}

fn metadata(kind: MetricKind, help: &str) -> Arc<Metadata> {
    Arc::new(Metadata { kind, help: help.to_owned(), unit: String::new() })
}

impl Outbox {
    /// The position in the tenant's outbox of the receiver's first cell.
    #[must_use]
    pub const fn origin(&self) -> u64 {
        self.origin
    }

    fn cell(&self, cell: ClosedCell, end_ms: i64) -> Cell {
        let [gauge, counter] = &self.metadata;
        let metadata = Arc::clone(if cell.is_counter() { counter } else { gauge });
        let sample = cell.sample(end_ms);
        Cell { labels: cell.labels, sample, metadata: Some(metadata) }
    }
}

impl Source for Outbox {
    fn read(&mut self, from: u64, most: usize) -> io::Result<Vec<Cell>> {
        let from = self.origin.saturating_add(from);
        // What was read before and is sent is not needed again.
        while self.read.0 < from && self.read.1.pop_front().is_some() {
            self.read.0 += 1;
        }
        if self.read.0 != from {
            self.read = (from, VecDeque::new());
        }
        while self.read.1.len() < most {
            let next = from.saturating_add(self.read.1.len() as u64);
            let found = self.catalogue.waiting(&self.tenant, next).map_err(io::Error::other)?;
            let Some((first, end_ms, cells)) = found else { break };
            let Some(before) = next.checked_sub(first) else {
                let words = format!("cells from {next} to {first} are not in the catalogue");
                return Err(io::Error::other(words));
            };
            let before = usize::try_from(before).unwrap_or(usize::MAX);
            let cells: Vec<Cell> =
                cells.into_iter().skip(before).map(|cell| self.cell(cell, end_ms)).collect();
            self.read.1.extend(cells);
        }
        Ok(self.read.1.iter().take(most).cloned().collect())
    }
}

impl KeepCursor for KeptCursor {
    fn load(&mut self) -> export::Result<Option<Cursor>> {
        let (tenant, receiver) = (self.tenant.as_str().to_owned(), self.receiver.clone());
        let found =
            self.catalogue.database.transact(async move |connection: &mut AnyConnection| {
                let select =
                    "SELECT content FROM throughline_cursor WHERE tenant = $1 AND receiver = $2";
                let query = sqlx::query(select).bind(tenant).bind(receiver);
                let row = query.fetch_optional(connection).await?;
                row.map(|row| parse(row.try_get(0)?)).transpose()
            });
        found.map_err(|error| export::Error::Cursor(io::Error::other(error)))
    }

    fn save(&mut self, cursor: &Cursor) -> export::Result<()> {
        let (tenant, receiver) = (self.tenant.as_str().to_owned(), self.receiver.clone());
        let content = text(cursor);
        let saved = self.catalogue.database.transact(async move |connection: &mut AnyConnection| {
            let update = "UPDATE throughline_cursor SET content = $1 WHERE tenant = $2 AND receiver = $3";
            let query = sqlx::query(update).bind(content?).bind(tenant).bind(receiver);
            match query.execute(connection).await?.rows_affected() {
                1 => Ok(()),
                _ => Err(super::Error::Damaged { what: "a receiver's cursor is gone".to_owned() }),
            }
        });
        saved.map_err(|error| export::Error::Cursor(io::Error::other(error)))
    }
}
