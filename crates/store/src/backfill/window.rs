//! Sums of the cells of a stretch of time, in memory.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::HashMap;
use wire::remote_write::Labels;

use super::runs::BySeries;
use crate::cells::Grid;

/// The sums of a series by the begins of their cells, milliseconds since 1970.
pub(super) type Cells = BTreeMap<i64, i128>;

/// The cells that are filled, fewer when they have too many sums.
#[derive(Debug)]
pub(super) struct Window {
    grid: Grid,
    cells: Range<i64>,
    most: usize,
    series: HashMap<Labels, Cells>,
    count: usize,
}

impl Window {
    /// Of the cells that begin at these times, with `most` sums at a time.
    pub(super) fn new(grid: Grid, cells: Range<i64>, most: usize) -> Self {
        Self { grid, cells, most, series: HashMap::new(), count: 0 }
    }

    /// The cells whose sums are taken. Whoever fills it gives all that each of them has.
    pub(super) fn cells(&self) -> Range<i64> {
        self.cells.clone()
    }

    /// Adds sums of a cell; those of a cell that is not taken are left aside.
    pub(super) fn add(&mut self, cell_ms: i64, sums: impl IntoIterator<Item = (Labels, i128)>) {
        if !self.cells.contains(&cell_ms) {
            return;
        }
        for (labels, sum) in sums {
            let cells = self.series.entry(labels).or_default();
            let before = cells.len();
            *cells.entry(cell_ms).or_default() += sum;
            self.count += cells.len() - before;
        }
        while self.count > self.most && self.halve() {}
    }

    /// Takes the first half of the cells only; says whether there was more than one.
    fn halve(&mut self) -> bool {
        let half = (self.cells.end - self.cells.start) / 2;
        let end = self.grid.begin_of(self.cells.start + half);
        if end <= self.cells.start {
            return false;
        }
        self.cells.end = end;
        self.series.retain(|_, cells| {
            cells.split_off(&end);
            !cells.is_empty()
        });
        self.count = self.series.values().map(BTreeMap::len).sum();
        true
    }

    /// All of it together.
    pub(super) fn sum(&self) -> i128 {
        self.series.values().flat_map(BTreeMap::values).sum()
    }

    /// By metric and labels.
    pub(super) fn into_series(self) -> BTreeMap<BySeries, Cells> {
        self.series.into_iter().map(|(labels, cells)| (BySeries(labels), cells)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::remote_write::NAME;

    fn labels(name: &str) -> Labels {
        Labels::new([(NAME.to_owned(), name.to_owned())]).unwrap()
    }

    #[test]
    fn of_too_many_sums_the_first_half_stays_until_one_cell_is_left() {
        let mut window = Window::new(Grid::default(), 0..150_000, 4);
        for (cell_ms, name) in
            [(135_000, "a"), (0, "a"), (60_000, "b"), (75_000, "b"), (60_000, "b")]
        {
            window.add(cell_ms, [(labels(name), 1)]);
        }
        assert_eq!((window.cells(), window.sum()), (0..150_000, 5));
        window.add(15_000, [(labels("c"), 10)]);
        assert_eq!((window.cells(), window.sum()), (0..75_000, 1 + 2 + 10));
        window.add(75_000, [(labels("c"), 100)]);
        assert_eq!(window.sum(), 13, "it is not taken any more");
        for name in ["d", "e", "f", "g"] {
            window.add(0, [(labels(name), 1)]);
        }
        assert_eq!((window.cells(), window.sum()), (0..15_000, 5));
        window.add(0, [(labels("h"), 1)]);
        assert_eq!(window.sum(), 6, "one cell is not cut");
    }
}
