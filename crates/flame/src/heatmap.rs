//! Heat maps: how many profiles or spans had how much, over time.
//!
//! A column is a step, whose time is its right edge; what is behind the last column counts to it. The values between the least and
//! the greatest of all series are cut into 20 cells of one size, whose lower edges are rounded down to integers; the last cell has
//! the greatest value in it.

use model::samples::{Batch, Sample};
use wire::pyroscope::{HeatmapSeries, HeatmapSlot};

use crate::answers::by_labels;
use crate::observe::{Groups, Key, Observations, Of, Seen, Steps, subjects, sum};
use crate::select::millis;

/// Cells of a column, as Pyroscope has them (`DefaultYAxisBuckets` in `pkg/model/heatmap`).
pub const CELLS: usize = 20;

/// A question for a heat map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatmapQuestion {
    /// Where columns are.
    pub steps: Steps,
    /// What is counted.
    pub of: Of,
    /// Labels of which each set of values has a heat map.
    pub group_by: Vec<String>,
    /// Whether each cell has an example: the profile or span with the most.
    pub exemplars: bool,
    /// How many heat maps are given: those with the greatest sums.
    pub limit: Option<usize>,
}

/// Heat maps, and how many there would be more without the limit.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatmapAnswer {
    /// By their labels.
    pub series: Vec<HeatmapSeries>,
    /// Heat maps that the limit left out.
    pub left_out: usize,
}

/// Samples being added up by profile or span.
#[derive(Debug)]
pub struct HeatmapSums {
    question: HeatmapQuestion,
    groups: Groups,
    observations: Observations,
}

impl HeatmapSums {
    /// Nothing yet.
    #[must_use]
    pub fn new(question: HeatmapQuestion) -> Self {
        Self {
            groups: Groups::by(&question.group_by),
            observations: Observations::new(question.of),
            question,
        }
    }

    /// Adds samples of a batch. Those before the start or behind the end are passed over.
    pub fn add<'a>(&mut self, batch: &Batch, samples: impl IntoIterator<Item = &'a Sample>) {
        let groups = self.groups.of_batch(batch);
        let series = self.observations.of_batch(batch);
        let steps = self.question.steps;
        let last = steps.last();
        for sample in samples {
            let at = millis(sample.at);
            if !(steps.start..=steps.end).contains(&at) {
                continue;
            }
            let index = steps.index(at).min(last);
            let number = |of: &[u32]| of.get(sample.series.index()).copied().unwrap_or_default();
            self.observations.add(number(&groups), number(&series), index, sample);
        }
    }

    /// The answer.
    #[must_use]
    pub fn finish(self) -> HeatmapAnswer {
        let seen = self.observations.sorted();
        let of = |key: &Key| (key.group, key.index);
        let columns = || seen.chunk_by(|a, b| of(&a.0) == of(&b.0));
        let values = || columns().flat_map(subjects).map(|part| sum(part).unsigned_abs());
        let (Some(least), Some(greatest)) = (values().min(), values().max()) else {
            return HeatmapAnswer { series: Vec::new(), left_out: 0 };
        };
        let edges = edges(least, greatest);
        let mut found: Vec<(i64, HeatmapSeries)> = Vec::new();
        for group in seen.chunk_by(|a, b| a.0.group == b.0.group) {
            let columns = group.chunk_by(|a, b| a.0.index == b.0.index);
            let slots = columns.map(|column| self.slot(column, &edges)).collect();
            let labels = self.groups.labels(group.first().map_or(0, |(key, _)| key.group));
            found.push((sum(group), HeatmapSeries { labels, slots }));
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| by_labels(&a.1.labels, &b.1.labels)));
        let limit = self.question.limit.unwrap_or(usize::MAX);
        let left_out = found.len().saturating_sub(limit);
        found.truncate(limit);
        let mut series: Vec<HeatmapSeries> = found.into_iter().map(|(_, series)| series).collect();
        series.sort_by(|a, b| by_labels(&a.labels, &b.labels));
        HeatmapAnswer { series, left_out }
    }

    #[expect(clippy::cast_precision_loss, reason = "the protocol's edges are doubles")]
    fn slot(&self, column: &[(Key, Seen)], edges: &[u64; CELLS]) -> HeatmapSlot {
        let mut cells: [Vec<&[(Key, Seen)]>; CELLS] = std::array::from_fn(|_| Vec::new());
        for part in subjects(column) {
            if let Some(cell) = cells.get_mut(cell(sum(part).unsigned_abs(), edges)) {
                cell.push(part);
            }
        }
        let count = |cell: &Vec<_>| i32::try_from(cell.len()).unwrap_or(i32::MAX);
        let asked = cells.iter().filter(|_| self.question.exemplars);
        HeatmapSlot {
            timestamp: self.question.steps.at(column.first().map_or(0, |(key, _)| key.index)),
            y_min: edges.iter().map(|edge| *edge as f64).collect(),
            counts: cells.iter().map(count).collect(),
            exemplars: asked
                // Of equal ones the first stays, and they come by their ids.
                .filter_map(|cell| cell.iter().rev().max_by_key(|part| sum(part)))
                .filter_map(|best| self.observations.exemplar(best, &self.groups))
                .collect(),
        }
    }
}

/// Lower edges of the cells.
fn edges(least: u64, greatest: u64) -> [u64; CELLS] {
    // One value alone has cells up to the next.
    let width = u128::from((greatest - least).max(1));
    std::array::from_fn(|at| {
        let above = width * at as u128 / CELLS as u128;
        least.saturating_add(u64::try_from(above).unwrap_or(u64::MAX))
    })
}

/// The cell of a value: the last of those whose lower edge it reaches, as cells of no width have nothing in them.
fn cell(value: u64, edges: &[u64; CELLS]) -> usize {
    edges.partition_point(|edge| *edge <= value).saturating_sub(1)
}
