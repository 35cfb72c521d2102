//! Profiles and spans in steps: what averages, exemplars and heat maps count.

use std::cmp::Reverse;

use hashbrown::HashMap;
use model::intern::Table;
use model::samples::{Batch, Sample, Series};
use wire::pyroscope::{Exemplar, LabelPair};

use crate::labels::{label, names, pairs};
use crate::select::millis;

/// What is one observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// What a profile has of a series in a step.
    Profiles,
    /// What a span has of it; samples without a span are passed over.
    Spans,
}

/// Steps of a question: the point at `start + k·step` covers the times behind the one before it, up to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The first point, in milliseconds since the epoch.
    pub start: i64,
    /// No point is behind it.
    pub end: i64,
    /// Milliseconds from point to point, at least 1.
    pub step: i64,
}

impl Steps {
    /// The point that covers a time: `k`. Negative for times that no point covers, which are before the first step.
    #[must_use]
    #[inline]
    pub fn index(self, at_ms: i64) -> i64 {
        let step = self.step.max(1);
        let behind = at_ms.saturating_sub(self.start);
        behind.div_euclid(step) + i64::from(behind.rem_euclid(step) != 0)
    }

    /// The last point.
    #[must_use]
    pub fn last(self) -> i64 {
        self.end.saturating_sub(self.start).div_euclid(self.step.max(1))
    }

    /// When a point is, in milliseconds.
    #[must_use]
    pub fn at(self, index: i64) -> i64 {
        self.start.saturating_add(index.saturating_mul(self.step.max(1)))
    }
}

/// Label sets that an answer is grouped by.
#[derive(Debug)]
pub(crate) struct Groups {
    by: Vec<String>,
    sets: Table<Vec<Pair>>,
}

/// A name and a value.
type Pair = (String, String);

impl Groups {
    pub(crate) fn by(names: &[String]) -> Self {
        let mut by = names.to_vec();
        by.sort_unstable();
        by.dedup();
        Self { by, sets: Table::new(Vec::new()) }
    }

    /// The group of each series of a batch, by the series' number.
    pub(crate) fn of_batch(&mut self, batch: &Batch) -> Vec<u32> {
        by_number(batch, |series| self.of(series))
    }

    fn of(&mut self, series: &Series) -> u32 {
        let set = self
            .by
            .iter()
            .filter_map(|name| Some((name.clone(), label(series, name)?.into_owned())));
        self.sets.intern(set.collect())
    }

    pub(crate) fn labels(&self, group: u32) -> Vec<LabelPair> {
        let set = self.sets.get(group).iter();
        set.map(|(name, value)| LabelPair { name: name.clone(), value: value.clone() }).collect()
    }
}

/// Something of each series of a batch, by the series' number.
pub(crate) fn by_number(batch: &Batch, mut of: impl FnMut(&Series) -> u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (id, series) in batch.all_series() {
        let at = id.index();
        if numbers.len() <= at {
            numbers.resize(at + 1, 0);
        }
        if let Some(slot) = numbers.get_mut(at) {
            *slot = of(series);
        }
    }
    numbers
}

/// Who an observation is of: group, step, series, profile, span and trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) group: u32,
    pub(crate) index: i64,
    pub(crate) profile: u128,
    pub(crate) span: u64,
    pub(crate) trace: u128,
    pub(crate) series: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) value: i64,
    /// Milliseconds, of the first of its samples.
    pub(crate) at: i64,
}

/// Observations: at most as many as there are samples, 120 bytes each.
#[derive(Debug)]
pub(crate) struct Observations {
    of: Of,
    series: Table<Option<Series>>,
    seen: HashMap<Key, Seen>,
}

impl Observations {
    pub(crate) fn new(of: Of) -> Self {
        Self { of, series: Table::new(None), seen: HashMap::new() }
    }

    /// Numbers of a batch's series here.
    pub(crate) fn of_batch(&mut self, batch: &Batch) -> Vec<u32> {
        by_number(batch, |series| self.series.intern(Some(series.clone())))
    }

    pub(crate) fn add(&mut self, group: u32, series: u32, index: i64, sample: &Sample) {
        let (span, trace) = match self.of {
            Of::Profiles => (0, 0),
            Of::Spans if sample.span_id == 0 => return,
            Of::Spans => (sample.span_id, sample.trace_id),
        };
        let key = Key { group, index, profile: sample.profile, span, trace, series };
        let at = millis(sample.at);
        let seen = self.seen.entry(key).or_insert(Seen { value: 0, at });
        seen.value = seen.value.saturating_add(sample.value);
        seen.at = seen.at.min(at);
    }

    /// All, by group and step.
    pub(crate) fn sorted(&self) -> Vec<(Key, Seen)> {
        let mut all: Vec<(Key, Seen)> = self.seen.iter().map(|(key, seen)| (*key, *seen)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// Of observations of one cell the profile (or span) with the most, as an example.
    pub(crate) fn best(&self, cell: &[(Key, Seen)], groups: &Groups) -> Option<Exemplar> {
        // Of equal ones the first stays, and they come by their ids.
        let best =
            subjects(cell).max_by_key(|part| (sum(part), Reverse(part.first().map(|seen| seen.0))));
        self.exemplar(best?, groups)
    }

    /// What observations of one profile (or span) are as an example. Where they come from several series it has the labels that all
    /// of them have.
    pub(crate) fn exemplar(&self, best: &[(Key, Seen)], groups: &Groups) -> Option<Exemplar> {
        let (key, _) = best.first()?;
        let at = best.iter().map(|(_, seen)| seen.at).min()?;
        let (trace_id, span_id) = match self.of {
            Of::Profiles => (String::new(), String::new()),
            Of::Spans if key.trace == 0 => (String::new(), format!("{:016x}", key.span)),
            Of::Spans => (format!("{:032x}", key.trace), format!("{:016x}", key.span)),
        };
        Some(Exemplar {
            timestamp: at,
            profile_id: uuid(key.profile),
            span_id,
            value: sum(best).unsigned_abs(),
            labels: self.common_labels(best, groups),
            trace_id,
        })
    }

    fn common_labels(&self, part: &[(Key, Seen)], groups: &Groups) -> Vec<LabelPair> {
        let labels_of = |key: &Key| {
            let series = self.series.get(key.series).as_ref();
            series.map_or_else(Vec::new, |series| {
                let names = names(series).into_iter();
                pairs(series, names.filter(|name| !groups.by.iter().any(|by| by == name)))
            })
        };
        let mut sets = part.iter().map(|(key, _)| labels_of(key));
        let mut common = sets.next().unwrap_or_default();
        for set in sets {
            common.retain(|pair| set.contains(pair));
        }
        common
    }
}

/// Observations of one profile (or span) each, of sorted ones of one cell.
pub(crate) fn subjects(cell: &[(Key, Seen)]) -> impl Iterator<Item = &[(Key, Seen)]> {
    let of = |key: &Key| (key.profile, key.span, key.trace);
    cell.chunk_by(move |a, b| of(&a.0) == of(&b.0))
}

/// What they add up to.
pub(crate) fn sum(part: &[(Key, Seen)]) -> i64 {
    part.iter().fold(0, |sum, (_, seen)| sum.saturating_add(seen.value))
}

/// A profile's id as a UUID.
#[must_use]
pub fn uuid(id: u128) -> String {
    let digits = format!("{id:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| digits.get(part).unwrap_or_default().to_owned()).join("-")
}
