//! From samples to sums.
//!
//! ```text
//! samples ─▶ (series, list of functions): amount ─ drain ─▶ (group, function): amount ─ flush ─▶ labels: amount
//! ```
//! A sample costs looking up its series and its stack, and an addition. What follows is done for each series with each list of functions that its stacks
//! have, and for each series of the sums.

use export::Prefix;
use hashbrown::HashMap;
use model::Timestamp;
use model::intern::Lists;
use model::samples::{Batch, Sample, SeriesId, StackId};

use super::bounds::Bounds;
use super::groups::Groups;
use super::stacks::Stacks;
use super::{Amount, Sums};
use crate::rule::Rule;

/// Series with lists of functions that are kept before they are drained: 48 bytes each.
const MAX_PAIRS: usize = 1 << 19;

/// Groups with functions that are kept before they are flushed: 40 bytes each.
const MAX_CELLS: usize = 1 << 20;

/// The sums of all samples of a batch, by the rules of its cell.
///
/// Memory: 4 bytes for each stack, 8 for each frame, 4 for each series and rule, and what [`Bounds`] and the constants of this module say.
#[must_use]
pub fn sums<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    prefix: &Prefix,
    batch: &Batch,
    bounds: &Bounds,
) -> Sums {
    let rules: Vec<&Rule> = rules.into_iter().collect();
    let chosen = Chosen::new(&rules, batch);
    let mut collector = Collector::new(&rules, prefix, batch, bounds, &chosen);
    collector.add_all(batch.samples());
    collector.take()
}

/// The sums of all samples of a batch, which are of many cells: `give` gets those of each cell that has samples, by the order of
/// `cell_of`, which says in which cell a time is. They are what [`sums`] makes of the samples of that cell alone.
///
/// Memory: as of [`sums`], and 16 bytes for each sample.
pub fn sums_by_cell<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    prefix: &Prefix,
    batch: &Batch,
    bounds: &Bounds,
    cell_of: impl Fn(Timestamp) -> i64,
    mut give: impl FnMut(i64, Sums),
) {
    let rules: Vec<&Rule> = rules.into_iter().collect();
    let chosen = Chosen::new(&rules, batch);
    let mut collector = Collector::new(&rules, prefix, batch, bounds, &chosen);
    let samples = batch.samples();
    let cells = samples.iter().map(|sample| cell_of(sample.at));
    let mut order: Vec<(i64, usize)> = cells.zip(0..).collect();
    order.sort_unstable();
    for cell in order.chunk_by(|(a, _), (b, _)| a == b) {
        let Some((cell_ms, _)) = cell.first() else { continue };
        collector.add_all(cell.iter().filter_map(|(_, at)| samples.get(*at)));
        let sums = collector.take();
        if !sums.is_empty() {
            give(*cell_ms, sums);
        }
    }
}

/// A group of series and a function; 0 for all samples.
type Cell = (u32, u32);

struct Collector<'a> {
    bounds: &'a Bounds,
    chosen: &'a Chosen,
    stacks: Stacks<'a>,
    groups: Groups<'a>,
    pairs: HashMap<(SeriesId, u32), Amount>,
    cells: HashMap<Cell, Amount>,
    sums: Sums,
    scratch: Vec<Cell>,
}

impl<'a> Collector<'a> {
    fn new(
        rules: &[&'a Rule],
        prefix: &Prefix,
        batch: &'a Batch,
        bounds: &'a Bounds,
        chosen: &'a Chosen,
    ) -> Self {
        let active = (0..).zip(rules.iter().copied()).filter(|(at, _)| chosen.is_active(*at));
        Self {
            bounds,
            stacks: Stacks::new(active, batch),
            groups: Groups::new(rules, prefix, batch),
            chosen,
            pairs: HashMap::new(),
            cells: HashMap::new(),
            sums: Sums::default(),
            scratch: Vec::new(),
        }
    }

    fn add_all<'s>(&mut self, samples: impl IntoIterator<Item = &'s Sample>) {
        // Samples mostly come in runs of one series and one stack.
        let mut run = None;
        let mut amount = Amount::default();
        for sample in samples {
            let key = (sample.series, sample.stack);
            if run == Some(key) {
                amount += Amount::of(sample.value);
                continue;
            }
            if let Some((series, stack)) = run.replace(key) {
                self.add(series, stack, amount);
            }
            amount = Amount::of(sample.value);
        }
        if let Some((series, stack)) = run {
            self.add(series, stack, amount);
        }
    }

    /// Adds samples of one series and one stack.
    fn add(&mut self, series: SeriesId, stack: StackId, amount: Amount) {
        let class = self.chosen.class(series);
        let list = if class.has_functions { self.stacks.list(stack) } else { 0 };
        if list == 0 && class.totals.is_empty() {
            return;
        }
        *self.pairs.entry((series, list)).or_default() += amount;
        if self.pairs.len() >= MAX_PAIRS || self.stacks.is_full() {
            self.drain();
            if self.stacks.is_full() {
                self.stacks.forget();
            }
        }
    }

    /// Gives each series of the sums what pairs have for it, once however many rules say so.
    fn drain(&mut self) {
        let mut cells = std::mem::take(&mut self.scratch);
        for ((series, list), amount) in std::mem::take(&mut self.pairs) {
            cells.clear();
            let class = self.chosen.class(series);
            let hits = self.stacks.hits(list).iter().copied();
            let hits = hits.filter(|(rule, _)| class.takes(*rule));
            let mut before = None;
            for (rule, function) in class.totals.iter().map(|rule| (*rule, 0)).chain(hits) {
                let place = self.groups.of(rule, series);
                if before.replace(rule) != Some(rule) {
                    self.sums.add_clashes(u64::from(place.clashes) * amount.samples);
                }
                cells.push((place.group, function));
            }
            if class.may_repeat {
                cells.sort_unstable();
                cells.dedup();
            }
            for cell in &cells {
                *self.cells.entry(*cell).or_default() += amount;
            }
            if self.cells.len() >= MAX_CELLS {
                self.flush();
            }
        }
        self.scratch = cells;
    }

    /// Gives what cells have to the series of their labels.
    fn flush(&mut self) {
        for ((group, function), amount) in std::mem::take(&mut self.cells) {
            let function = (function > 0).then(|| self.stacks.name(function));
            match self.groups.labels(group, function) {
                Ok(labels) => self.sums.add(labels, amount),
                Err(reason) => self.sums.add_overflow(reason, amount),
            }
            if self.sums.len() > self.bounds.most().saturating_mul(2) {
                self.sums.limit(self.bounds);
            }
        }
    }

    /// The sums of what was added since this was called last.
    fn take(&mut self) -> Sums {
        self.drain();
        self.flush();
        self.sums.limit(self.bounds);
        std::mem::take(&mut self.sums)
    }
}

/// Which rules take which series.
struct Chosen {
    /// By the series' number.
    series: Vec<u32>,
    classes: Vec<Class>,
    none: Class,
    active: Vec<bool>,
}

/// Rules that take the same series.
#[derive(Default)]
struct Class {
    /// By the rule's place.
    takes: Vec<bool>,
    /// Rules of all samples.
    totals: Vec<u32>,
    has_functions: bool,
    /// Whether several may write the same series.
    may_repeat: bool,
}

impl Class {
    fn new(taken: &[u32], rules: &[&Rule]) -> Self {
        let mut class = Self { takes: vec![false; rules.len()], ..Self::default() };
        let mut of_default = 0;
        for &at in taken {
            let Some(rule) = rules.get(at as usize) else { continue };
            if let Some(takes) = class.takes.get_mut(at as usize) {
                *takes = true;
            }
            match rule.matching() {
                Some(_) => class.has_functions = true,
                None => class.totals.push(at),
            }
            of_default += usize::from(rule.draft().metric.is_none());
        }
        class.may_repeat = of_default > 1;
        class
    }

    fn takes(&self, rule: u32) -> bool {
        self.takes.get(rule as usize).copied().unwrap_or_default()
    }
}

impl Chosen {
    fn new(rules: &[&Rule], batch: &Batch) -> Self {
        let mut chosen = Self {
            series: Vec::new(),
            classes: Vec::new(),
            none: Class::default(),
            active: vec![false; rules.len()],
        };
        let mut lists = Lists::new();
        for (id, series) in batch.all_series() {
            let takes = (0..).zip(rules).filter(|(_, rule)| rule.takes(series));
            let taken: Vec<u32> = takes.map(|(at, _)| at).collect();
            let class = lists.intern(&taken);
            if class as usize > chosen.classes.len() {
                chosen.classes.push(Class::new(&taken, rules));
                for at in taken {
                    if let Some(active) = chosen.active.get_mut(at as usize) {
                        *active = true;
                    }
                }
            }
            chosen.series.resize(id.index() + 1, 0);
            if let Some(place) = chosen.series.get_mut(id.index()) {
                *place = class;
            }
        }
        chosen
    }

    /// The rules of a series.
    fn class(&self, series: SeriesId) -> &Class {
        let class = self.series.get(series.index()).copied().unwrap_or_default();
        let known = (class as usize).checked_sub(1).and_then(|at| self.classes.get(at));
        known.unwrap_or(&self.none)
    }

    /// Whether a rule takes any series.
    fn is_active(&self, rule: u32) -> bool {
        self.active.get(rule as usize).copied().unwrap_or_default()
    }
}
