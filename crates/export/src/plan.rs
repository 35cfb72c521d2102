//! Which cells go together into the next request.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use wire::remote_write::{self, Version};

use crate::cell::Cell;
use crate::cursor::{Cursor, Reason};

/// A cell may be so far ahead of the clock: Prometheus 3.5 takes no more.
const MAX_AHEAD_MS: i64 = 10 * 60_000;

/// A cell that is further ahead is waited for up to this; nothing waits for one with a time of next year.
const MAX_WAIT_MS: i64 = 60 * 60_000;

/// A cell may be so much older than the newest one that a receiver has: Prometheus without out-of-order window takes no more of a series that it did not
/// have.
const MAX_AGE_MS: i64 = 60 * 60_000;

/// What a request may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Series, of which each has one sample; at least 1.
    pub series: usize,
    /// Bytes after compression. A cell that is larger alone is sent all the same.
    pub bytes: usize,
    /// Cells of any age are sent: the receiver is known to take them.
    pub is_backfill: bool,
}

impl Default for Limits {
    /// As Prometheus' own sender, which puts up to 2,000 samples into a request.
    fn default() -> Self {
        Self { series: 2_000, bytes: 1 << 20, is_backfill: false }
    }
}

/// Cells that are sent together.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) cells: usize,
    pub(crate) version: Version,
    pub(crate) body: Bytes,
}

/// What is to be done about the first of some cells.
#[derive(Debug)]
pub(crate) enum Plan {
    /// There is none.
    Nothing,
    /// So many milliseconds are to pass before.
    Wait { ms: u64 },
    /// It is not sent.
    Lose { reason: Reason, words: Option<String> },
    /// It is sent, with those behind it.
    Send(Batch),
}

/// Plans what is to be done about `cells`, those from the cursor on. At most `most` are put together.
pub(crate) fn plan(
    cells: &VecDeque<Cell>,
    cursor: &Cursor,
    limits: &Limits,
    version: Version,
    most: usize,
    now_ms: i64,
) -> Plan {
    let Some(first) = cells.front() else { return Plan::Nothing };
    let ahead_ms = first.sample.time_ms.saturating_sub(now_ms);
    if ahead_ms > MAX_AHEAD_MS + MAX_WAIT_MS {
        return Plan::Lose { reason: Reason::Ahead, words: None };
    }
    if let Ok(ms @ 1..) = u64::try_from(ahead_ms.saturating_sub(MAX_AHEAD_MS)) {
        return Plan::Wait { ms };
    }
    let is_old = |cell: &Cell, newest_ms: Option<i64>| {
        let age_ms = newest_ms.map_or(0, |newest| newest.saturating_sub(cell.sample.time_ms));
        age_ms > MAX_AGE_MS && !limits.is_backfill
    };
    if is_old(first, cursor.newest_ms) {
        return Plan::Lose { reason: Reason::Old, words: None };
    }
    let has_alone = cursor.has_alone();
    let is_alone = |cell: &Cell| has_alone && cursor.parks(&cell.labels.to_string());
    let mut count = 1;
    if !is_alone(first) {
        let mut newest_ms = cursor.newest_ms.max(Some(first.sample.time_ms));
        let mut series = HashSet::from([&first.labels]);
        let fits =
            cells.iter().take(most.clamp(1, limits.series.max(1))).skip(1).take_while(|cell| {
                let is_sent = cell.sample.time_ms.saturating_sub(now_ms) <= MAX_AHEAD_MS
                    && !is_old(cell, newest_ms)
                    && !is_alone(cell)
                    && series.insert(&cell.labels);
                newest_ms = newest_ms.max(Some(cell.sample.time_ms));
                is_sent
            });
        count += fits.count();
    }
    within_bytes(cells, version, count, limits.bytes)
}

/// The request of these cells, or of fewer that are small enough.
fn within_bytes(cells: &VecDeque<Cell>, version: Version, count: usize, bytes: usize) -> Plan {
    let mut count = count;
    loop {
        match encode(cells, version, count) {
            Ok(batch) if batch.body.len() <= bytes || count == 1 => return Plan::Send(batch),
            Ok(_) => {}
            Err(error) if count == 1 => {
                return Plan::Lose { reason: Reason::TooLarge, words: Some(error.to_string()) };
            }
            Err(_too_long) => {}
        }
        count /= 2;
    }
}

/// The request of the first `count` cells: the same bytes for the same cells.
pub(crate) fn encode(
    cells: &VecDeque<Cell>,
    version: Version,
    count: usize,
) -> Result<Batch, remote_write::Error> {
    let series: Vec<_> = cells.iter().take(count).map(Cell::series).collect();
    let body = remote_write::encode(version, &series)?.into();
    Ok(Batch { cells: count, version, body })
}
