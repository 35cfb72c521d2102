//! Complete requests: the slowest one by one, and all of them by how long they took and by when they ended.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Tid, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::ClassTerm;
use crate::fold::bucket;
use crate::ident::Left;
use crate::path::Ended;
use crate::spent::{Body, Times};

/// How many requests an answer lists: the slowest.
pub const MAX_LISTED_REQUESTS: usize = 10_000;

/// Complete requests, and how many were not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) complete: u64,
    pub(crate) abandoned: u64,
    pub(crate) wall_ns: u64,
    /// By the bucket of the time they took. Bound: the buckets of a histogram.
    pub(crate) by_length: BTreeMap<u16, Group>,
    pub(crate) course: Course,
    /// Unsorted while a window is read; at most twice [`MAX_LISTED_REQUESTS`].
    pub(crate) slowest: Vec<Request>,
}

/// One complete request; its calls without files, its waiting without who had the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) name: Arc<str>,
    pub(crate) request: Option<u64>,
    pub(crate) tid: Tid,
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) body: Body,
}

/// Some of the complete requests together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) requests: u64,
    pub(crate) longest_ns: u64,
    pub(crate) times: Times,
}

/// Requests by when they ended, in slots of equal width, in which time since the epoch is divided.
///
/// The width is the least of [`WIDTHS`] of which at most [`MAX_SLOTS`] hold all ends, and each width is a multiple of the
/// one before: so it follows from the ends alone, in whatever order they come together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Course {
    width: Width,
    /// Those with requests, by number: how many widths they begin after the epoch. Bound: [`MAX_SLOTS`].
    slots: BTreeMap<i64, Group>,
}

/// How many slots a course has at most, those without requests counted: a picture has not more columns.
const MAX_SLOTS: i64 = 240;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const HOUR: i64 = 3_600 * S;
const DAY: i64 = 24 * HOUR;

/// Widths of slots in nanoseconds: round ones for those who read, up to where [`MAX_SLOTS`] hold all times there are.
const WIDTHS: [i64; 24] = [
    MS,
    2 * MS,
    10 * MS,
    20 * MS,
    100 * MS,
    200 * MS,
    S,
    2 * S,
    10 * S,
    20 * S,
    60 * S,
    120 * S,
    600 * S,
    1_200 * S,
    HOUR,
    2 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    10 * DAY,
    20 * DAY,
    100 * DAY,
    200 * DAY,
    1_000 * DAY,
];

/// A place in [`WIDTHS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
struct Width(u8);

impl Width {
    fn ns(self) -> i64 {
        WIDTHS.get(usize::from(self.0)).copied().unwrap_or(i64::MAX)
    }

    fn slot(self, at: Timestamp) -> i64 {
        at.nanos().div_euclid(self.ns())
    }
}

impl From<Width> for u8 {
    fn from(width: Width) -> Self {
        width.0
    }
}

impl TryFrom<u8> for Width {
    type Error = &'static str;

    fn try_from(place: u8) -> Result<Self, Self::Error> {
        let is_one = usize::from(place) < WIDTHS.len();
        is_one.then_some(Self(place)).ok_or("slots have no such width")
    }
}

impl Requests {
    /// Counts a request that is complete.
    pub(crate) fn push(&mut self, request: Request) {
        let wall_ns = request.wall_ns();
        self.complete = self.complete.saturating_add(1);
        self.wall_ns = self.wall_ns.saturating_add(wall_ns);
        let group = Group { requests: 1, longest_ns: wall_ns, times: request.body.times() };
        self.by_length.entry(bucket(wall_ns)).or_default().add(group.clone());
        self.course.add(request.end, group);
        self.slowest.push(request);
        if self.slowest.len() >= 2 * MAX_LISTED_REQUESTS {
            self.keep_slowest();
        }
    }

    pub(crate) fn append(&mut self, right: Self) {
        self.complete = self.complete.saturating_add(right.complete);
        self.abandoned = self.abandoned.saturating_add(right.abandoned);
        self.wall_ns = self.wall_ns.saturating_add(right.wall_ns);
        for (bucket, group) in right.by_length {
            self.by_length.entry(bucket).or_default().add(group);
        }
        self.course.append(right.course);
        self.slowest.extend(right.slowest);
        self.keep_slowest();
    }

    fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.by_length.values_mut().chain(self.course.slots.values_mut())
    }

    /// Changes causes that are known to be others.
    pub(crate) fn settle_causes(&mut self, known: &impl Fn(&ClassTerm) -> Option<ClassTerm>) {
        self.groups_mut().for_each(|group| group.times.settle_causes(known));
        for spent in self.slowest.iter_mut().flat_map(|request| request.body.spent_mut()) {
            spent.times.settle_causes(known);
        }
    }

    pub(crate) fn resolve(&mut self, left: &impl Left) {
        self.groups_mut().for_each(|group| group.times.resolve(left));
        for request in &mut self.slowest {
            request.body.resolve(left);
        }
    }

    /// The slowest first; equally slow ones by begin and thread, and in time order when even those are equal.
    pub(crate) fn keep_slowest(&mut self) {
        self.slowest
            .sort_by_key(|request| (Reverse(request.wall_ns()), request.begin, request.tid));
        self.slowest.truncate(MAX_LISTED_REQUESTS);
    }
}

impl Request {
    /// The request without what was counted in it.
    pub(crate) fn ended(&self) -> Ended {
        let Self { begin, end, tid, request, .. } = *self;
        Ended { begin, end, tid, name: Arc::clone(&self.name), request }
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.end.since(self.begin).get()
    }
}

impl Group {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.times.add(other.times);
    }
}

impl Course {
    /// How wide a slot is.
    pub(crate) fn slot_ns(&self) -> i64 {
        self.width.ns()
    }

    /// Slots with requests, each with the moment at which it begins.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Timestamp, &Group)> {
        let begin = |slot: i64| Timestamp::from_nanos(slot.saturating_mul(self.slot_ns()));
        self.slots.iter().map(move |(slot, group)| (begin(*slot), group))
    }

    fn add(&mut self, end: Timestamp, group: Group) {
        self.slots.entry(self.width.slot(end)).or_default().add(group);
        self.widen(self.width);
    }

    fn append(&mut self, mut right: Self) {
        let width = self.width.max(right.width);
        self.widen(width);
        right.widen(width);
        for (slot, group) in right.slots {
            self.slots.entry(slot).or_default().add(group);
        }
        self.widen(width);
    }

    /// Makes slots at least so wide, and as wide as they have to be.
    fn widen(&mut self, least: Width) {
        while self.width < least || self.spread() >= MAX_SLOTS {
            let Ok(wider) = Width::try_from(self.width.0 + 1) else { return };
            let narrow = self.width.ns();
            self.width = wider;
            let factor = wider.ns() / narrow;
            for (slot, group) in std::mem::take(&mut self.slots) {
                self.slots.entry(slot.div_euclid(factor)).or_default().add(group);
            }
        }
    }

    /// How far the last slot is from the first.
    fn spread(&self) -> i64 {
        let ends = self.slots.first_key_value().zip(self.slots.last_key_value());
        ends.map_or(0, |((first, _), (last, _))| last.saturating_sub(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group { requests: 1, longest_ns: 7, times: Times::default() }
    }

    fn course(ends: &[i64]) -> Course {
        let mut course = Course::default();
        for end in ends {
            course.add(Timestamp::from_nanos(*end), group());
        }
        course
    }

    #[test]
    fn each_width_is_a_multiple_of_the_one_before_and_all_times_have_room() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1] > pair[0] && pair[1] % pair[0] == 0));
        let widest = course(&[i64::MIN, 0, i64::MAX]);
        assert!(widest.spread() < MAX_SLOTS);
        assert_eq!(widest.slots().map(|(_, group)| group.requests).sum::<u64>(), 3);
    }

    #[test]
    fn a_course_is_the_same_in_whatever_order_its_parts_come_together() {
        let ends = [5, 3 * S, -7 * S, 90 * S, 90 * S + 1, 4 * HOUR, 239 * MS, 240 * MS];
        let whole = course(&ends);
        for split in 0..=ends.len() {
            let (one, other) = ends.split_at(split);
            for (first, second) in [(one, other), (other, one)] {
                let mut merged = course(first);
                merged.append(course(second));
                assert_eq!(merged, whole, "{first:?} and {second:?}");
            }
        }
    }

    #[test]
    fn slots_are_as_narrow_as_their_number_lets_them() {
        assert_eq!(course(&[0, 239 * MS]).slot_ns(), MS);
        assert_eq!(course(&[0, 240 * MS]).slot_ns(), 2 * MS);
        assert_eq!(course(&[-1, 0]).slots().count(), 2, "slots do not meet around the epoch");
    }

    #[test]
    fn a_width_that_there_is_not_is_refused() {
        assert!(Width::try_from(24).is_err());
    }
}
