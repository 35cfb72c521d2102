//! Which samples of a batch a question is about.

use hashbrown::HashSet;
use model::Timestamp;
use model::samples::{Batch, Sample};

use crate::selector::Selector;
use crate::stacks::frame_name;

const NANOS_PER_MILLI: i64 = 1_000_000;

/// A range of times in milliseconds since the epoch, both ends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis {
    /// The first.
    pub start: i64,
    /// The last.
    pub end: i64,
}

impl Millis {
    /// Its first and last nanosecond.
    #[must_use]
    pub const fn nanos(self) -> (i64, i64) {
        let last = self.end.saturating_mul(NANOS_PER_MILLI).saturating_add(NANOS_PER_MILLI - 1);
        (self.start.saturating_mul(NANOS_PER_MILLI), last)
    }
}

/// The millisecond that a time is in.
#[must_use]
pub fn millis(at: Timestamp) -> i64 {
    at.nanos().div_euclid(NANOS_PER_MILLI)
}

/// What samples must be to count. Sets that are empty take all.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Which series.
    pub selector: Selector,
    /// When.
    pub time: Millis,
    /// Profiles that they were sent in.
    pub profiles: HashSet<u128>,
    /// Spans that they belong to.
    pub spans: HashSet<u64>,
    /// Traces that they belong to.
    pub traces: HashSet<u128>,
    /// Names of functions that their stacks begin with, root first.
    pub call_site: Vec<String>,
}

impl Selection {
    /// All samples of some series in a time.
    #[must_use]
    pub fn new(selector: Selector, time: Millis) -> Self {
        Self {
            selector,
            time,
            profiles: HashSet::new(),
            spans: HashSet::new(),
            traces: HashSet::new(),
            call_site: Vec::new(),
        }
    }

    /// Samples of a batch that it takes. Series and, of a call site, stacks are looked at once each.
    pub fn samples<'a>(&'a self, batch: &'a Batch) -> impl Iterator<Item = &'a Sample> {
        let mut series = Vec::new();
        for (id, of) in batch.all_series() {
            let at = id.index();
            if series.len() <= at {
                series.resize(at + 1, false);
            }
            if let Some(chosen) = series.get_mut(at) {
                *chosen = self.selector.matches(of);
            }
        }
        let (first, last) = self.time.nanos();
        let mut stacks = CallSite::new(self, batch);
        batch.samples().iter().filter(move |sample| {
            series.get(sample.series.index()).is_some_and(|chosen| *chosen)
                && (first..=last).contains(&sample.at.nanos())
                && (self.profiles.is_empty() || self.profiles.contains(&sample.profile))
                && (self.spans.is_empty() || self.spans.contains(&sample.span_id))
                && (self.traces.is_empty() || self.traces.contains(&sample.trace_id))
                && stacks.takes(sample)
        })
    }
}

/// Whether stacks begin with a call site, each stack and each frame looked at once.
struct CallSite<'a> {
    batch: &'a Batch,
    names: &'a [String],
    stacks: Vec<Option<bool>>,
}

impl<'a> CallSite<'a> {
    fn new(selection: &'a Selection, batch: &'a Batch) -> Self {
        let stacks = if selection.call_site.is_empty() { 0 } else { batch.stack_count() };
        Self { batch, names: &selection.call_site, stacks: vec![None; stacks] }
    }

    fn takes(&mut self, sample: &Sample) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let Self { batch, names, stacks } = self;
        let begins = || {
            let frames = batch.frames_of(sample.stack);
            frames.len() >= names.len()
                && frames
                    .rev()
                    .zip(names.iter())
                    .all(|(frame, name)| frame_name(batch, &batch.frame_of(frame)) == *name)
        };
        stacks.get_mut(sample.stack.index()).is_some_and(|known| *known.get_or_insert_with(begins))
    }
}
