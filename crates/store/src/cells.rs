//! From the sums of a cell to what is exported of it.
//!
//! ```text
//! sums ────┬─▶ deltas: the sum of each series in the cell
//! counters ┴─▶ counters: the same added up since a start; idle ones again, for a while
//!              stale markers of those that have been idle for long
//! ```
//! A cell is a stretch of the store's own time ([`Grid`]): samples belong to the cell in which they came, whenever they were taken, so that
//! a cell is complete as soon as everything that came in it is summed. Cells of a tenant close in the order of time.

use std::collections::BTreeMap;

use export::Counter;
use model::Timestamp;
use rules::{increase, value};
use serde::{Deserialize, Serialize};
use wire::remote_write::{Labels, STALE, Sample};

/// A series without samples for so long ends with a stale marker; until then its counter is told again in each cell.
pub const IDLE_MS: i64 = 2 * 60_000;
/// A counter without samples for so long is forgotten. It begins at zero when there are samples again.
pub const FORGET_MS: i64 = 24 * 3_600_000;

/// How the store's time is cut into cells, which all have one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    cell_ms: i64,
}

impl Default for Grid {
    /// 15 s, as Prometheus is told to scrape in most places.
    fn default() -> Self {
        Self { cell_ms: 15_000 }
    }
}

impl Grid {
    /// Cells of so many milliseconds, at least one.
    #[must_use]
    pub const fn new(cell_ms: u32) -> Self {
        Self { cell_ms: if cell_ms == 0 { 1 } else { cell_ms as i64 } }
    }

    /// How long its cells are, milliseconds.
    #[must_use]
    pub const fn cell_ms(self) -> i64 {
        self.cell_ms
    }

    /// When the cell begins that a time is in, milliseconds since 1970.
    #[must_use]
    pub const fn cell_of(self, at: Timestamp) -> i64 {
        self.begin_of(at.nanos().div_euclid(1_000_000))
    }

    /// When the cell begins that milliseconds since 1970 are in.
    #[must_use]
    pub const fn begin_of(self, ms: i64) -> i64 {
        ms.div_euclid(self.cell_ms).saturating_mul(self.cell_ms)
    }

    /// When the cell ends that begins then.
    #[must_use]
    pub const fn end_of(self, cell_ms: i64) -> i64 {
        self.begin_of(cell_ms).saturating_add(self.cell_ms)
    }
}

/// A series that was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What has been added up.
    pub counter: Counter,
    /// When the last cell began that had samples of it.
    pub seen_ms: i64,
    /// Whether it ended with a stale marker.
    pub is_stale: bool,
}

/// The series of a tenant that were exported, by the labels of their deltas.
pub type KnownSeries = BTreeMap<Labels, Known>;

/// A sample of a series, of a cell that is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedCell {
    /// The series.
    pub labels: Labels,
    /// Bits of the value.
    pub bits: u64,
    /// Since when it counts; 0 when it is no counter.
    pub start_ms: i64,
}

impl ClosedCell {
    fn delta(labels: Labels, value: f64) -> Self {
        Self { labels, bits: value.to_bits(), start_ms: 0 }
    }

    fn counter(delta: &Labels, value: f64, start_ms: i64) -> Self {
        Self { labels: rules::counter(delta), bits: value.to_bits(), start_ms }
    }

    /// What is sent, with the time at which its cell ended.
    #[must_use]
    pub const fn sample(&self, time_ms: i64) -> Sample {
        Sample { value: f64::from_bits(self.bits), time_ms, start_ms: self.start_ms }
    }

    /// Whether it adds up.
    #[must_use]
    pub const fn is_counter(&self) -> bool {
        self.start_ms != 0
    }
}

/// What closing a cell made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closed {
    /// In the order of their series.
    pub cells: Vec<ClosedCell>,
    /// Series whose state is another than before; `None` when they are forgotten.
    pub changed: BTreeMap<Labels, Option<Known>>,
    /// Sums that no value of a sample is exactly.
    pub inexact: u64,
    /// Parts of sums that counters do not have: negative ones.
    pub left_out: u64,
}

/// Closes the cell that began at `cell_ms`: all that came in it is in `sums`, and cells before it are closed.
#[must_use]
pub fn close(
    sums: impl IntoIterator<Item = (Labels, i128)>,
    known: &KnownSeries,
    cell_ms: i64,
) -> Closed {
    let mut closed = Closed::default();
    for (labels, sum) in sums {
        let before = known.get(&labels).map(|known| known.counter);
        let counter = before.unwrap_or(Counter::new(cell_ms));
        let grown = increase(counter, sum, cell_ms);
        let (delta, is_exact) = value(sum);
        closed.inexact += u64::from(!is_exact);
        closed.left_out += u64::from(grown.left_out != 0);
        let Counter { start_ms, .. } = grown.counter;
        closed.cells.push(ClosedCell::counter(&labels, grown.counter.value(), start_ms));
        closed.cells.push(ClosedCell::delta(labels.clone(), delta));
        let now = Known { counter: grown.counter, seen_ms: cell_ms, is_stale: false };
        closed.changed.insert(labels, Some(now));
    }
    for (labels, series) in known {
        if closed.changed.contains_key(labels) {
            continue;
        }
        let Known { counter, seen_ms, is_stale } = *series;
        let idle_ms = cell_ms.saturating_sub(seen_ms);
        if !is_stale && idle_ms < IDLE_MS {
            closed.cells.push(ClosedCell::counter(labels, counter.value(), counter.start_ms));
        } else if !is_stale {
            closed.cells.push(ClosedCell::counter(labels, STALE, counter.start_ms));
            closed.cells.push(ClosedCell::delta(labels.clone(), STALE));
            closed.changed.insert(labels.clone(), Some(Known { is_stale: true, ..*series }));
        } else if idle_ms > FORGET_MS {
            closed.changed.insert(labels.clone(), None);
        }
    }
    closed.cells.sort_by(|a, b| a.labels.cmp(&b.labels));
    closed
}

/// When the first cell begins that closing makes something of, from `from_ms` on: `sums` begin in these cells.
#[must_use]
pub fn next_cell(
    from_ms: i64,
    sums: impl IntoIterator<Item = i64>,
    known: &KnownSeries,
) -> Option<i64> {
    let is_active = known.values().any(|series| !series.is_stale);
    let first = sums.into_iter().min().map(|first| first.max(from_ms));
    if is_active { Some(from_ms) } else { first }
}

#[cfg(test)]
mod tests {
    use wire::remote_write::{NAME, is_stale};

    use super::*;

    fn labels(name: &str) -> Labels {
        Labels::new([(NAME.to_owned(), name.to_owned())]).unwrap()
    }

    fn apply(known: &mut KnownSeries, closed: &Closed) {
        for (labels, state) in &closed.changed {
            match state {
                Some(state) => known.insert(labels.clone(), *state),
                None => known.remove(labels),
            };
        }
    }

    fn said(closed: &Closed) -> Vec<(String, f64)> {
        let cells = closed.cells.iter();
        cells.map(|it| (it.labels.metric().to_owned(), f64::from_bits(it.bits))).collect()
    }

    fn named(all: &[(&str, f64)]) -> Vec<(String, f64)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn a_series_is_a_delta_and_a_counter_that_goes_on_while_it_is_idle() {
        let mut known = KnownSeries::new();
        let first = close([(labels("b"), 5), (labels("a"), 7)], &known, 15_000);
        assert_eq!(
            said(&first),
            named(&[("a", 7.0), ("a_total", 7.0), ("b", 5.0), ("b_total", 5.0)])
        );
        assert_eq!(first.cells[1].start_ms, 15_000);
        apply(&mut known, &first);
        let second = close([(labels("a"), 1)], &known, 30_000);
        assert_eq!(said(&second), named(&[("a", 1.0), ("a_total", 8.0), ("b_total", 5.0)]));
        apply(&mut known, &second);
        let idle = close([], &known, 15_000 + IDLE_MS);
        assert_eq!(said(&idle)[0], ("a_total".to_owned(), 8.0));
        assert_eq!(idle.cells.len(), 3);
        assert!(idle.cells[1..].iter().all(|cell| is_stale(f64::from_bits(cell.bits))));
        apply(&mut known, &idle);
        let later = close([(labels("b"), 2)], &known, 30_000 + IDLE_MS);
        assert!(said(&later).contains(&("b_total".to_owned(), 7.0)), "{later:?}");
    }

    #[test]
    fn what_nobody_sends_is_forgotten() {
        let mut known = KnownSeries::new();
        for (sum, cell_ms) in [(Some(5), 0), (None, IDLE_MS), (None, FORGET_MS)] {
            let closed = close(sum.map(|sum| (labels("a"), sum)), &known, cell_ms);
            apply(&mut known, &closed);
        }
        assert_eq!(next_cell(7, [], &known), None, "nothing is told of it");
        assert_eq!(next_cell(7, [30, 20], &known), Some(20));
        assert_eq!(known.len(), 1);
        let closed = close([], &known, FORGET_MS + 15_000);
        assert!(closed.cells.is_empty());
        apply(&mut known, &closed);
        assert!(known.is_empty());
    }

    #[test]
    fn cells_are_next_to_each_other() {
        let grid = Grid::default();
        assert_eq!(
            (grid.begin_of(29_999), grid.begin_of(30_000), grid.begin_of(-1)),
            (15_000, 30_000, -15_000)
        );
        assert_eq!((grid.end_of(15_000), grid.end_of(16_000)), (30_000, 30_000));
    }

    #[test]
    fn what_is_not_exact_is_counted() {
        let closed =
            close([(labels("a"), -3), (labels("b"), (1 << 53) + 1)], &KnownSeries::new(), 0);
        assert_eq!((closed.left_out, closed.inexact), (1, 1));
    }
}
