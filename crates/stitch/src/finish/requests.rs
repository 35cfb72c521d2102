//! Complete requests by how long they took and when they ended.

use super::Finish;
use crate::answer::{DurationBucket, Durations, Percentile, Timeline, TimelineSlot};
use crate::fold::{percentile, values};

/// The shares of requests that are told.
const PERCENTS: [u8; 3] = [50, 95, 99];

impl Finish<'_> {
    pub(super) fn durations(&self) -> Durations {
        let by_length = &self.summary.requests.by_length;
        let counts = by_length.iter().map(|(bucket, group)| (*bucket, group.requests));
        let percentiles = PERCENTS.into_iter().filter_map(|percent| {
            let (low_ns, high_ns) = percentile(counts.clone(), u64::from(percent))?;
            Some(Percentile { percent, low_ns, high_ns })
        });
        let buckets = by_length.iter().map(|(bucket, group)| {
            let (low_ns, high_ns) = values(*bucket);
            let split = self.split(&group.times);
            DurationBucket { low_ns, high_ns, requests: group.requests, split }
        });
        Durations { percentiles: percentiles.collect(), buckets: buckets.collect() }
    }

    pub(super) fn timeline(&self) -> Timeline {
        let course = &self.summary.requests.course;
        let slots = course.slots().map(|(begin, group)| TimelineSlot {
            begin_ns: begin.nanos(),
            requests: group.requests,
            longest_ns: group.longest_ns,
            split: self.split(&group.times),
        });
        Timeline { slot_ns: course.slot_ns().unsigned_abs(), slots: slots.collect() }
    }
}
