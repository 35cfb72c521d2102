//! Counting event records without giving them.

use std::ops::Range;

use crate::class::{StreamClass, TraceClass};
use crate::clock::ClockClass;
use crate::decoder::{Course, Decoder};
use crate::general;
use crate::header::QuickHeader;
use crate::packet::Count;
use crate::value::Context;

impl Decoder {
    /// Counts the event records that are left whose time is in the range of `times`; see
    /// [`crate::packet::EventReader::count_rest`].
    pub(crate) fn count_rest(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
        times: Range<i64>,
    ) -> Count {
        self.turn_back();
        let range = Cycles::new(trace.clock_of(stream), &times);
        let mut count = Count::default();
        loop {
            self.hurry((trace, stream), bytes, &range, &mut count);
            let before = self.clock;
            match self.fetch(trace, stream, bytes, 1) {
                Ok(true) => {
                    self.turn_back();
                    count.add(before, self.clock, &range);
                }
                Ok(false) => break,
                Err(error) => {
                    count.error = Some(error);
                    break;
                }
            }
        }
        self.end();
        count
    }

    /// Counts event records as far as they fit the quick way.
    fn hurry(
        &mut self,
        (trace, stream): (&TraceClass, &StreamClass),
        bytes: &[u8],
        range: &Cycles<'_>,
        count: &mut Count,
    ) {
        if stream.orders_may_clash {
            return;
        }
        let classes = (trace, stream);
        match &stream.header_plan.quick {
            Some(quick) => self.hurry_by(classes, bytes, range, count, |context, pos| {
                quick.read(context.data, pos, context.limit)
            }),
            None => self.hurry_by(classes, bytes, range, count, |context, pos| {
                Some(general::read_header(context, stream, pos, 0).ok()?.into())
            }),
        }
    }

    #[inline(never)]
    fn hurry_by(
        &mut self,
        classes: (&TraceClass, &StreamClass),
        bytes: &[u8],
        range: &Cycles<'_>,
        count: &mut Count,
        header: impl Fn(&Context<'_>, u64) -> Option<QuickHeader>,
    ) {
        // Up to here, every value of the clock has a time.
        let safe = self.ticks.map_or(u64::MAX, |ticks| ticks.safe_cycles());
        let ticking = self.ticks.is_some();
        let Self { registers, stack, programs, limit, .. } = self;
        let context = Context { data: bytes, limit: *limit, registers, stack };
        let mut course = Course::new(classes, programs, ticking, self.pos, self.clock);
        while course.pos < *limit {
            let before = course.clock();
            let Some(header) = header(&context, course.pos) else { break };
            let Some(program) = course.program(header) else { break };
            if course.go_over(&context, header, program, &mut []).is_none() {
                break;
            }
            if course.is_clocked && course.clock > safe {
                break;
            }
            count.add(before, course.clock(), range);
            (self.pos, self.clock) = (course.pos, course.clock());
            self.index += 1;
        }
    }
}

impl Count {
    /// Counts an event record that moved the clock.
    #[inline(always)]
    fn add(&mut self, before: Option<u64>, after: Option<u64>, range: &Cycles<'_>) {
        let (Some(clock), Some(cycles)) = (range.clock, after) else {
            self.untimed += 1;
            return;
        };
        let is_in = range.first <= cycles && range.end.is_none_or(|end| cycles < end);
        self.events += u64::from(is_in);
        if after < before {
            // Two values of a quick clock can be the same time.
            let before = before.map(|before| clock.to_ns_wide(before));
            self.backward += u64::from(Some(clock.to_ns_wide(cycles)) < before);
        }
    }
}

/// A range of times in cycles of a clock.
struct Cycles<'a> {
    clock: Option<&'a ClockClass>,
    first: u64,
    end: Option<u64>,
}

impl<'a> Cycles<'a> {
    fn new(clock: Option<&'a ClockClass>, times: &Range<i64>) -> Self {
        let at_or_after = |nanos: i64| clock.and_then(|clock| first_cycle(clock, nanos));
        let end = if times.end == i64::MAX { None } else { at_or_after(times.end) };
        match if times.start == i64::MIN { Some(0) } else { at_or_after(times.start) } {
            Some(first) => Self { clock, first, end },
            None => Self { clock, first: u64::MAX, end: Some(0) },
        }
    }
}

/// The first value of a clock whose time is `nanos` or later.
fn first_cycle(clock: &ClockClass, nanos: i64) -> Option<u64> {
    // Times never fall when cycles rise.
    let (mut below, mut above) = (0, u64::MAX);
    let mut found = None;
    while below <= above {
        let middle = below + (above - below) / 2;
        if clock.to_ns_wide(middle) < i128::from(nanos) {
            below = middle.checked_add(1)?;
        } else {
            found = Some(middle);
            let Some(before) = middle.checked_sub(1) else { break };
            above = before;
        }
    }
    found
}
