//! Periods between events that somebody defines: from an event that begins one to the event that ends it, on any thread.
//!
//! A period is open for a key: the values of some fields. An end closes every open period of its definition and key; ends
//! come before begins, so that one event can do both. A period of a definition with a parent begins only while a period of
//! the parent is open whose key is the one that the event asks for, and ends with it at the latest, incomplete. Where
//! events are lost nobody knows what ended: all that is open is forgotten, and counted.
//!
//! Marks come in the order of time from the first to the last: which parent a child has depends on all that came before,
//! so a stretch of time by itself says nothing that could be merged.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{TimeRange, Timestamp};

use crate::finish::{P50, P95, P99, column, duration, frequencies, moments, number, percentiles};
use crate::fold::{Histogram, Item, Stat, Top};
use crate::select::{Between, Logged};
use crate::table::{Cell, Class, Column, Kind, Table};

/// How many periods may be open at once. One more, and all of them are forgotten, and counted as incomplete.
pub const MAX_OPEN: usize = 65_536;

/// How many groups of periods have figures of their own; all others share one.
pub const MAX_GROUPS: usize = 10_000;

const OTHER: &str = "(other)";

/// What a period is called, and inside of which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: Arc<str>,
    /// The position of the parent's definition.
    pub parent: Option<usize>,
}

/// The values of a key's fields, joined; what has no such field has no key.
pub type Key = Arc<str>;

/// What an event does to periods of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Begins one.
    Begin {
        /// The key.
        key: Key,
        /// The key that the parent must have.
        parent: Key,
        /// What is noted of the event.
        captured: Arc<str>,
        /// Whose figures it belongs to, besides the definition's.
        group: Arc<str>,
    },
    /// Ends those that have the key.
    End {
        /// The key.
        key: Key,
        /// What is noted of the event.
        captured: Arc<str>,
    },
}

/// A period that is open.
#[derive(Debug, Clone)]
struct Open {
    /// Which of all that ever began it is, and which its parent.
    id: u64,
    parent: Option<(u64, Timestamp)>,
    begin: Timestamp,
    captured: Arc<str>,
    group: Arc<str>,
}

/// A period that has ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Period {
    definition: usize,
    begin: Timestamp,
    end: Timestamp,
    parent: Option<Timestamp>,
    begin_captures: Arc<str>,
    end_captures: Arc<str>,
}

impl Item for Period {
    fn begin(&self) -> Timestamp {
        self.begin
    }

    fn end(&self) -> Timestamp {
        self.end
    }

    fn is_in(&self, _: Logged) -> bool {
        false
    }
}

#[derive(Debug, Default)]
struct Row {
    ns: Stat,
    lengths: Histogram,
}

/// Periods, found from left to right.
#[derive(Debug)]
pub struct Periods {
    definitions: Vec<Definition>,
    wanted: Between,
    /// By definition and key, in the order in which they began. Bound: [`MAX_OPEN`] in all.
    open: BTreeMap<(usize, Key), Vec<Open>>,
    /// The parent of each that is open.
    parents: BTreeMap<u64, Option<u64>>,
    begun: u64,
    /// Bound: definitions and [`MAX_GROUPS`].
    rows: BTreeMap<(usize, Arc<str>), Row>,
    top: Top<Period>,
    ended: Vec<Period>,
    incomplete: u64,
}

const COMPLETE: Column = number("count", "Periods", "periods");
const NAME: Column = column("name", "Period", Kind::Text, None);
const GROUP: Column = column("group", "Group", Kind::Text, None);

const LISTED: &[Column] = &[
    column("begin", "Begin", Kind::Time, None),
    column("end", "End", Kind::Time, None),
    duration("duration", "Duration"),
    NAME,
    column("parent", "Parent began", Kind::Time, None),
    column("begin_captures", "At the begin", Kind::Text, None),
    column("end_captures", "At the end", Kind::Text, None),
];

const LOG: Class = Class { name: "period-log", title: "Periods", columns: LISTED };
const TOP: Class = Class { name: "period-top", title: "Longest periods", columns: LISTED };

const STATS: Class = Class {
    name: "period-stats",
    title: "Periods by definition and group",
    columns: &[
        NAME,
        GROUP,
        COMPLETE,
        duration("min", "Min"),
        duration("avg", "Avg"),
        duration("max", "Max"),
        duration("stdev", "Stdev"),
        duration("total", "Total"),
        P50,
        P95,
        P99,
    ],
};

const LENGTHS: Class = Class {
    name: "period-freq",
    title: "Periods by length",
    columns: &[NAME, GROUP, duration("from", "From"), duration("to", "To"), COMPLETE],
};

impl Periods {
    /// Of these definitions, each after its parent; only those as long as wanted count.
    #[must_use]
    pub fn new(definitions: Vec<Definition>, wanted: Between) -> Self {
        Self {
            definitions,
            wanted,
            open: BTreeMap::new(),
            parents: BTreeMap::new(),
            begun: 0,
            rows: BTreeMap::new(),
            top: Top::default(),
            ended: Vec::new(),
            incomplete: 0,
        }
    }

    /// Takes in what an event does, by position of the definition: ends before begins, parents before their children.
    pub fn take(&mut self, at: Timestamp, definition: usize, mark: Mark) {
        match mark {
            Mark::Begin { key, parent, captured, group } => {
                let Some(parent) = self.parent(definition, &parent) else { return };
                if self.parents.len() >= MAX_OPEN {
                    self.forget();
                }
                self.begun += 1;
                let (id, begin) = (self.begun, at);
                self.parents.insert(id, parent.map(|(parent, _)| parent));
                let open = Open { id, parent, begin, captured, group };
                self.open.entry((definition, key)).or_default().push(open);
            }
            Mark::End { key, captured } => {
                for open in self.open.remove(&(definition, key)).unwrap_or_default() {
                    let is_open = self.is_open(open.id);
                    self.parents.remove(&open.id);
                    if is_open {
                        self.count(definition, open, at, &captured);
                    } else {
                        self.incomplete = self.incomplete.saturating_add(1);
                    }
                }
            }
        }
    }

    /// The innermost open parent of this key, where one is needed; `None` when there is none.
    fn parent(&self, definition: usize, key: &Key) -> Option<Option<(u64, Timestamp)>> {
        let Some(parent) = self.definitions.get(definition)?.parent else { return Some(None) };
        let mut open = self.open.get(&(parent, Arc::clone(key)))?.iter().rev();
        let found = open.find(|open| self.is_open(open.id))?;
        Some(Some((found.id, found.begin)))
    }

    /// Whether it and all that it is inside of have not ended.
    fn is_open(&self, id: u64) -> bool {
        let mut next = Some(id);
        while let Some(id) = next {
            match self.parents.get(&id) {
                Some(parent) => next = *parent,
                None => return false,
            }
        }
        true
    }

    fn count(&mut self, definition: usize, open: Open, end: Timestamp, captured: &Arc<str>) {
        let Open { parent, begin, captured: begin_captures, group, .. } = open;
        let ns = end.since(begin).get();
        if !self.wanted.contains(ns) {
            return;
        }
        let is_new = !self.rows.contains_key(&(definition, Arc::clone(&group)));
        let group = if is_new && self.rows.len() >= MAX_GROUPS { OTHER.into() } else { group };
        let row = self.rows.entry((definition, group)).or_default();
        row.ns.take(ns);
        row.lengths.take(ns);
        let parent = parent.map(|(_, begin)| begin);
        let end_captures = Arc::clone(captured);
        let period = Period { definition, begin, end, parent, begin_captures, end_captures };
        self.top.push(&period);
        self.ended.push(period);
    }

    /// Events are missing: nobody knows which periods ended.
    pub fn forget(&mut self) {
        self.incomplete = self.incomplete();
        self.open.clear();
        self.parents.clear();
    }

    /// How many periods ended since the log was taken.
    #[must_use]
    pub fn logged(&self) -> usize {
        self.ended.len()
    }

    /// Periods that began and whose end nobody saw, up to now.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.incomplete.saturating_add(self.parents.len() as u64)
    }

    /// Takes out the periods that ended since, in that order.
    pub fn take_log(&mut self, range: TimeRange) -> Table {
        let ended = std::mem::take(&mut self.ended);
        let rows = ended.iter().map(|period| self.row(period)).collect();
        Table { class: &LOG, range, rows, left_out: 0 }
    }

    /// Count, least, mean, greatest, deviation and percentiles by definition and group.
    #[must_use]
    pub fn stats(&self, range: TimeRange) -> Table {
        let rows = self.rows.iter().map(|((definition, group), row)| {
            let mut cells = vec![self.name(*definition), Cell::Text(Arc::clone(group))];
            cells.extend(moments(&row.ns));
            cells.push(Cell::ns(row.ns.sum));
            cells.extend(percentiles(&row.lengths));
            cells
        });
        Table { class: &STATS, range, rows: rows.collect(), left_out: 0 }
    }

    /// How many of each length.
    #[must_use]
    pub fn lengths(&self, range: TimeRange) -> Table {
        let rows = self.rows.iter().flat_map(|((definition, group), row)| {
            let of = [self.name(*definition), Cell::Text(Arc::clone(group))];
            frequencies(&row.lengths).map(move |cells| of.iter().cloned().chain(cells).collect())
        });
        Table { class: &LENGTHS, range, rows: rows.collect(), left_out: 0 }
    }

    /// The longest, at most a hundred.
    #[must_use]
    pub fn longest(&self, range: TimeRange) -> Table {
        let mut longest: Vec<&Period> = self.top.iter().collect();
        longest.sort_by_key(|period| (Reverse(period.ns()), period.begin));
        longest.truncate(crate::fold::KEPT);
        let rows = longest.into_iter().map(|period| self.row(period)).collect();
        Table { class: &TOP, range, rows, left_out: 0 }
    }

    fn name(&self, definition: usize) -> Cell {
        let definition = self.definitions.get(definition);
        definition.map_or(Cell::Unknown, |definition| Cell::Text(Arc::clone(&definition.name)))
    }

    fn row(&self, period: &Period) -> Vec<Cell> {
        vec![
            Cell::At(period.begin),
            Cell::At(period.end),
            Cell::ns(period.ns()),
            self.name(period.definition),
            period.parent.map_or(Cell::Unknown, Cell::At),
            Cell::Text(Arc::clone(&period.begin_captures)),
            Cell::Text(Arc::clone(&period.end_captures)),
        ]
    }
}
