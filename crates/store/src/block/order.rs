//! The order of a block: samples by series and stack, and these by what they say, so that it is the same however they were numbered.

use std::cmp::Ordering;
use std::ops::Range;

use model::intern::number;
use model::samples::{Batch, Frame, FrameId, ProfileType, Sample, Series, SeriesId, StackId};

/// A row: samples of one series with one stack.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) series: SeriesId,
    pub(super) stack: StackId,
    /// Of all samples in order.
    pub(super) samples: Range<usize>,
    /// Does not pass the range of its type.
    pub(super) total: i64,
}

/// The samples of a batch in the order of a block.
pub(super) struct Ordered<'b> {
    batch: &'b Batch,
    /// Numbers of samples.
    order: Vec<u32>,
    frames: Vec<u32>,
    stacks: Vec<u32>,
}

/// Something by number that is sorted: what is not used has no place.
const NOWHERE: u32 = u32::MAX;

impl<'b> Ordered<'b> {
    pub(super) fn of(batch: &'b Batch) -> Self {
        let series = series_places(batch);
        let frames = frame_places(batch);
        let stacks = stack_places(batch, &frames);
        let place =
            |places: &[u32], at: usize| u64::from(places.get(at).copied().unwrap_or(NOWHERE));
        let key = |sample: &Sample| {
            place(&series, sample.series.index()) << 32 | place(&stacks, sample.stack.index())
        };
        let mut keyed: Vec<(u64, u32)> = batch
            .samples()
            .iter()
            .enumerate()
            .map(|(at, sample)| (key(sample), number(at)))
            .collect();
        keyed.sort_unstable();
        let order = keyed.into_iter().map(|(_, at)| at).collect();
        let mut own = Self { batch, order, frames, stacks };
        for row in own.same_stacks() {
            if let Some(row) = own.order.get_mut(row) {
                row.sort_unstable_by_key(|at| batch.samples().get(*at as usize).map(rest));
            }
        }
        own
    }

    pub(super) fn samples(
        &self,
        range: Range<usize>,
    ) -> impl ExactSizeIterator<Item = &'b Sample> + Clone {
        let order = self.order.get(range).unwrap_or_default();
        #[expect(clippy::indexing_slicing, reason = "they are the numbers of all samples")]
        order.iter().map(|at| &self.batch.samples()[*at as usize])
    }

    /// Where a frame stands among all that are used.
    pub(super) fn frame_place(&self, frame: FrameId) -> u32 {
        self.frames.get(frame.index()).copied().unwrap_or(NOWHERE)
    }

    /// The same of a stack.
    pub(super) fn stack_place(&self, stack: StackId) -> u32 {
        self.stacks.get(stack.index()).copied().unwrap_or(NOWHERE)
    }

    /// Neighbours of one series and stack.
    fn same_stacks(&self) -> Vec<Range<usize>> {
        let all: Vec<&Sample> = self.samples(0..self.order.len()).collect();
        let mut ends = 0;
        all.chunk_by(|a, b| (a.series, a.stack) == (b.series, b.stack))
            .map(|row| {
                let begin = ends;
                ends += row.len();
                begin..ends
            })
            .collect()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for (at, sample) in self.samples(0..self.order.len()).enumerate() {
            let last = rows.last_mut().and_then(|row| {
                let is_same = (row.series, row.stack) == (sample.series, sample.stack);
                is_same.then(|| row.total.checked_add(sample.value).map(|total| (row, total)))?
            });
            match last {
                Some((row, total)) => {
                    row.total = total;
                    row.samples.end = at + 1;
                }
                None => {
                    let Sample { series, stack, value, .. } = *sample;
                    rows.push(Row { series, stack, samples: at..at + 1, total: value });
                }
            }
        }
        rows
    }
}

/// By what samples of a row are sorted.
const fn rest(sample: &Sample) -> (model::Timestamp, i64, u128, u64, u128) {
    let Sample { at, value, profile, span_id, trace_id, .. } = *sample;
    (at, value, profile, span_id, trace_id)
}

/// Places by number, of numbers in order.
fn places(count: usize, sorted: impl Iterator<Item = usize>) -> Vec<u32> {
    let mut places = vec![NOWHERE; count];
    for (place, at) in (0..).zip(sorted) {
        if let Some(known) = places.get_mut(at) {
            *known = place;
        }
    }
    places
}

/// By service, type and labels.
fn series_places(batch: &Batch) -> Vec<u32> {
    fn key(series: &Series) -> (Option<&str>, &ProfileType, &Series) {
        (crate::service(series), &series.profile_type, series)
    }
    let mut sorted: Vec<_> = batch.all_series().collect();
    sorted.sort_by_key(|(_, series)| key(series));
    places(sorted.len() + 1, sorted.iter().map(|(id, _)| id.index()))
}

/// The stacks of samples.
fn used_stacks(batch: &Batch) -> Vec<StackId> {
    let mut is_used = vec![false; batch.stack_count()];
    let mut used = Vec::new();
    for sample in batch.samples() {
        if let Some(is_used) = is_used.get_mut(sample.stack.index())
            && !std::mem::replace(is_used, true)
        {
            used.push(sample.stack);
        }
    }
    used
}

/// By function, file, line and the rest.
fn frame_places(batch: &Batch) -> Vec<u32> {
    let mut is_used = vec![false; batch.frame_count()];
    let mut sorted: Vec<(FrameId, Frame)> = Vec::new();
    for id in used_stacks(batch).into_iter().flat_map(|stack| batch.frames_of(stack)) {
        if let Some(is_used) = is_used.get_mut(id.index())
            && !std::mem::replace(is_used, true)
        {
            sorted.push((id, batch.frame_of(id)));
        }
    }
    sorted.sort_unstable_by(|(_, a), (_, b)| compare(batch, a, b));
    places(batch.frame_count(), sorted.iter().map(|(id, _)| id.index()))
}

fn compare(batch: &Batch, a: &Frame, b: &Frame) -> Ordering {
    let texts =
        |a, b| if a == b { Ordering::Equal } else { batch.text_of(a).cmp(batch.text_of(b)) };
    let numbers = |it: &Frame| (it.line, it.start_line, it.is_inlined, it.address);
    texts(a.function, b.function)
        .then_with(|| texts(a.file, b.file))
        .then_with(|| numbers(a).cmp(&numbers(b)))
        .then_with(|| texts(a.system_name, b.system_name))
        .then_with(|| texts(a.mapping, b.mapping))
        .then_with(|| texts(a.build_id, b.build_id))
        .then_with(|| texts(a.kind, b.kind))
}

/// By frames, the outermost first: stacks with the same callers are neighbours.
fn stack_places(batch: &Batch, frames: &[u32]) -> Vec<u32> {
    let mut flat: Vec<u32> = Vec::new();
    let mut sorted: Vec<(Range<usize>, StackId)> = Vec::new();
    for stack in used_stacks(batch) {
        let begin = flat.len();
        let place = |frame: FrameId| frames.get(frame.index()).copied().unwrap_or(NOWHERE);
        flat.extend(batch.frames_of(stack).rev().map(place));
        sorted.push((begin..flat.len(), stack));
    }
    sorted.sort_unstable_by(|(a, _), (b, _)| flat.get(a.clone()).cmp(&flat.get(b.clone())));
    places(batch.stack_count(), sorted.iter().map(|(_, stack)| stack.index()))
}
