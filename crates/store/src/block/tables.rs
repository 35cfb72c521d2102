//! What the rows of a row group refer to, each once.

use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use model::samples::{Batch, FrameId, Sample, SeriesId, StackId};

use super::order::{Ordered, Row};

/// The tables of a row group. An item's place counts from 1.
pub(super) struct Tables {
    /// In the order of a block.
    pub(super) locations: Vec<FrameId>,
    location_places: HashMap<FrameId, u32>,
    /// In the order of a block.
    pub(super) stacks: Vec<StackId>,
    stack_places: HashMap<StackId, u32>,
    /// Rows of one series each.
    pub(super) runs: Vec<Run>,
}

/// Rows of one series.
pub(super) struct Run {
    pub(super) series: SeriesId,
    pub(super) rows: Range<usize>,
    /// The first and the last time of a sample.
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    /// Ids with the first time of a sample, by time. 0 is one, too.
    pub(super) profiles: Vec<(u128, i64)>,
    profile_places: HashMap<u128, u32>,
}

impl Tables {
    pub(super) fn of(batch: &Batch, ordered: &Ordered<'_>, rows: &[Row]) -> Self {
        let stacks: HashSet<StackId> = rows.iter().map(|row| row.stack).collect();
        let locations: HashSet<FrameId> =
            stacks.iter().flat_map(|stack| batch.frames_of(*stack)).collect();
        let mut locations: Vec<FrameId> = locations.into_iter().collect();
        let mut stacks: Vec<StackId> = stacks.into_iter().collect();
        locations.sort_unstable_by_key(|frame| ordered.frame_place(*frame));
        stacks.sort_unstable_by_key(|stack| ordered.stack_place(*stack));
        let location_places = locations.iter().copied().zip(1..).collect();
        let stack_places = stacks.iter().copied().zip(1..).collect();
        let mut end = 0;
        let runs = rows.chunk_by(|a, b| a.series == b.series).filter_map(|same| {
            let begin = end;
            end += same.len();
            Run::of(ordered, same, begin..end)
        });
        Self { runs: runs.collect(), locations, location_places, stacks, stack_places }
    }

    pub(super) fn location_place(&self, frame: FrameId) -> u32 {
        self.location_places.get(&frame).copied().unwrap_or(0)
    }

    pub(super) fn stack_place(&self, stack: StackId) -> u32 {
        self.stack_places.get(&stack).copied().unwrap_or(0)
    }
}

impl Run {
    fn of(ordered: &Ordered<'_>, same: &[Row], rows: Range<usize>) -> Option<Self> {
        let (first, last) = (same.first()?, same.last()?);
        let mut times: HashMap<u128, i64> = HashMap::new();
        let (mut begin_ns, mut end_ns) = (i64::MAX, i64::MIN);
        for sample in ordered.samples(first.samples.start..last.samples.end) {
            let at_ns = sample.at.nanos();
            (begin_ns, end_ns) = (begin_ns.min(at_ns), end_ns.max(at_ns));
            let time = times.entry(sample.profile).or_insert(at_ns);
            *time = at_ns.min(*time);
        }
        let mut profiles: Vec<(u128, i64)> = times.into_iter().collect();
        profiles.sort_unstable_by_key(|(id, at_ns)| (*at_ns, *id));
        let profile_places = profiles.iter().map(|(id, _)| *id).zip(1..).collect();
        Some(Self { series: first.series, rows, begin_ns, end_ns, profiles, profile_places })
    }

    /// The place of a sample's profile, and how long after it the sample was taken.
    pub(super) fn place(&self, sample: &Sample) -> (u32, i64) {
        let place = self.profile_places.get(&sample.profile).copied().unwrap_or(0);
        let profile = place.checked_sub(1).and_then(|at| self.profiles.get(at as usize));
        (place, sample.at.nanos().wrapping_sub(profile.map_or(0, |(_, at_ns)| *at_ns)))
    }
}
