//! Sums and averages over time.

use hashbrown::HashMap;
use model::samples::{Batch, Sample};
use wire::pyroscope::{Point, Series};

use crate::answers::by_labels;
use crate::observe::{Groups, Key, Observations, Of, Seen, Steps};
use crate::select::{Millis, millis};

/// What becomes of the values in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// They add up.
    Sum,
    /// They add up and are divided by how many profiles they come from.
    Average,
}

/// A question for series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesQuestion {
    /// Where points are.
    pub steps: Steps,
    /// Labels of which each set of values has a series.
    pub group_by: Vec<String>,
    /// What a point is.
    pub aggregation: Aggregation,
    /// What points have as an example, one each: the profile or span with the most of it.
    pub exemplars: Option<Of>,
    /// How many series are given: those with the greatest sums.
    pub limit: Option<usize>,
}

impl SeriesQuestion {
    /// The times that points cover: some are before the first point.
    #[must_use]
    pub fn time(&self) -> Millis {
        let Steps { start, step, .. } = self.steps;
        let last = self.steps.at(self.steps.last());
        Millis { start: start.saturating_sub(step).saturating_add(1), end: last }
    }
}

/// Series, and how many there would be more without the limit.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesAnswer {
    /// By their labels.
    pub series: Vec<Series>,
    /// Series that the limit left out.
    pub left_out: usize,
}

/// Samples being added up by group and step: 24 bytes for each group and step with a value, and what averages and exemplars need.
#[derive(Debug)]
pub struct SeriesSums {
    question: SeriesQuestion,
    groups: Groups,
    cells: HashMap<(u32, i64), i64>,
    observations: Option<Observations>,
}

impl SeriesSums {
    /// Nothing yet.
    #[must_use]
    pub fn new(question: SeriesQuestion) -> Self {
        let of = match (question.aggregation, question.exemplars) {
            (Aggregation::Sum, None) => None,
            // An average counts profiles; spans are only examples of sums.
            (Aggregation::Average, _) => Some(Of::Profiles),
            (Aggregation::Sum, Some(of)) => Some(of),
        };
        Self {
            groups: Groups::by(&question.group_by),
            question,
            cells: HashMap::new(),
            observations: of.map(Observations::new),
        }
    }

    /// Adds samples of a batch. Those that no point covers are passed over.
    pub fn add<'a>(&mut self, batch: &Batch, samples: impl IntoIterator<Item = &'a Sample>) {
        let groups = self.groups.of_batch(batch);
        let series = self.observations.as_mut().map(|known| known.of_batch(batch));
        let steps = self.question.steps;
        let last = steps.last();
        // Samples mostly come in runs of one series and one step.
        let mut run = ((0, -1), 0_i64);
        for sample in samples {
            let index = steps.index(millis(sample.at));
            if !(0..=last).contains(&index) {
                continue;
            }
            let at = sample.series.index();
            let group = groups.get(at).copied().unwrap_or_default();
            if run.0 == (group, index) {
                run.1 = run.1.saturating_add(sample.value);
            } else {
                add(&mut self.cells, run);
                run = ((group, index), sample.value);
            }
            if let (Some(seen), Some(series)) = (&mut self.observations, &series) {
                seen.add(group, series.get(at).copied().unwrap_or_default(), index, sample);
            }
        }
        add(&mut self.cells, run);
    }

    /// The answer.
    #[must_use]
    pub fn finish(self) -> SeriesAnswer {
        let mut cells: Vec<((u32, i64), i64)> =
            self.cells.iter().map(|(key, sum)| (*key, *sum)).collect();
        cells.sort_unstable();
        let seen = self.observations.as_ref().map(Observations::sorted).unwrap_or_default();
        let mut seen = Runs(&seen);
        let mut found: Vec<(i64, Series)> = Vec::new();
        for group in cells.chunk_by(|a, b| a.0.0 == b.0.0) {
            let sum = group.iter().fold(0_i64, |sum, (_, value)| sum.saturating_add(*value));
            let points = group.iter().map(|&(key, value)| self.point(key, value, seen.of(key)));
            let points = points.collect();
            let labels = self.groups.labels(group.first().map_or(0, |(key, _)| key.0));
            found.push((sum, Series { labels, points }));
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| by_labels(&a.1.labels, &b.1.labels)));
        let limit = self.question.limit.unwrap_or(usize::MAX);
        let left_out = found.len().saturating_sub(limit);
        found.truncate(limit);
        let mut series: Vec<Series> = found.into_iter().map(|(_, series)| series).collect();
        series.sort_by(|a, b| by_labels(&a.labels, &b.labels));
        SeriesAnswer { series, left_out }
    }

    #[expect(clippy::cast_precision_loss, reason = "the protocol's values are doubles")]
    fn point(&self, (_, index): (u32, i64), sum: i64, seen: &[(Key, Seen)]) -> Point {
        let value = match self.question.aggregation {
            Aggregation::Sum => sum as f64,
            Aggregation::Average => sum as f64 / seen.len().max(1) as f64,
        };
        let observations = self.observations.as_ref().filter(|_| self.question.exemplars.is_some());
        let exemplar = observations.and_then(|known| known.best(seen, &self.groups));
        Point {
            value,
            timestamp: self.question.steps.at(index),
            annotations: Vec::new(),
            exemplars: exemplar.into_iter().collect(),
        }
    }
}

fn add(cells: &mut HashMap<(u32, i64), i64>, (key, value): ((u32, i64), i64)) {
    if value > 0 {
        let sum = cells.entry(key).or_default();
        *sum = sum.saturating_add(value);
    }
}

/// Sorted observations, taken cell by cell.
pub(crate) struct Runs<'a>(pub(crate) &'a [(Key, Seen)]);

impl<'a> Runs<'a> {
    /// Those of a cell, which is behind all that were asked for before.
    pub(crate) fn of(&mut self, cell: (u32, i64)) -> &'a [(Key, Seen)] {
        let of = |key: &Key| (key.group, key.index);
        let begin = self.0.partition_point(|(key, _)| of(key) < cell);
        let rest = self.0.get(begin..).unwrap_or_default();
        let (run, rest) = rest.split_at(rest.partition_point(|(key, _)| of(key) == cell));
        self.0 = rest;
        run
    }
}
