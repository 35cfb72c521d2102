//! The samples of one profile, until it is known that all of it can be taken.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use model::Timestamp;
use model::samples::{Batch, Frame, FrameId, ProfileType, Sample, Series, StackId, TextId};

use crate::error::Error;
use crate::identity::Identity;
use crate::{Accepted, LeftOut, Request};

/// Where and when: samples that agree in all of it are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Of the draft.
    pub(crate) series: u32,
    pub(crate) stack: StackId,
    pub(crate) at: Timestamp,
    pub(crate) span_id: u64,
    pub(crate) trace_id: u128,
}

/// The samples of one profile. Stacks are those of the request's batch, series its own.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// By content; the value is the number.
    series: HashMap<Series, u32>,
    samples: HashMap<Place, i64>,
    pub(crate) left_out: LeftOut,
}

impl Draft {
    /// The number of a series: an identity's labels, then those of samples, of which the first of a name counts.
    pub(crate) fn series<'s>(
        &mut self,
        request: &mut Request<'_>,
        identity: &'s Identity,
        kind: &ProfileType,
        labels: impl IntoIterator<Item = (&'s str, &'s str)>,
    ) -> Result<u32, Error> {
        let labels = identity.labels(labels, request.limits)?;
        /// What a series takes beside its texts, and a label.
        const SERIES: usize = 512;
        const LABEL: usize = 96;
        let bytes = labels.iter().map(|(name, value)| LABEL + name.len() + value.len());
        request.budget.labels.take(SERIES + bytes.sum::<usize>())?;
        let next = model::intern::number(self.series.len());
        let series = Series { profile_type: kind.clone(), labels };
        Ok(*self.series.entry(series).or_insert(next))
    }

    /// Adds a value. What counts nothing is left out.
    pub(crate) fn add(&mut self, place: Place, value: i64, most: usize) -> Result<(), Error> {
        match value {
            0 => self.left_out.zeros += 1,
            ..0 => self.left_out.negatives += 1,
            1.. => {
                let count = self.samples.len();
                match self.samples.entry(place) {
                    Entry::Occupied(mut sum) => {
                        let next = sum.get().checked_add(value).ok_or(Error::Overflow)?;
                        sum.insert(next);
                    }
                    Entry::Vacant(_) if count >= most => {
                        return Err(Error::TooMany { what: "different samples", limit: most });
                    }
                    Entry::Vacant(free) => {
                        free.insert(value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts all samples into the request's batch, in an order that does not depend on hashes.
    pub(crate) fn finish(self, request: &mut Request<'_>, id: u128) -> Result<Accepted, Error> {
        for place in self.samples.keys() {
            request.limits.check_time(place.at, request.received)?;
        }
        let mut series: Vec<(u32, Series)> =
            self.series.into_iter().map(|(series, number)| (number, series)).collect();
        series.sort_unstable_by_key(|(number, _)| *number);
        let mut samples: Vec<(Place, i64)> = self.samples.into_iter().collect();
        samples.sort_unstable();
        let accepted = Accepted { id, samples: samples.len(), left_out: self.left_out };
        let batch = &mut request.taken.batch;
        let mut samples = samples.into_iter().peekable();
        for (number, series) in series {
            if samples.peek().is_none_or(|(place, _)| place.series != number) {
                continue;
            }
            let series = batch.series(series);
            while let Some((place, value)) = samples.next_if(|(place, _)| place.series == number) {
                let Place { stack, at, span_id, trace_id, .. } = place;
                batch.add(Sample { series, stack, at, value, profile: id, span_id, trace_id });
            }
        }
        Ok(accepted)
    }

    /// The number of a text, whose begin is cut when it is long.
    pub(crate) fn text(&mut self, batch: &mut Batch, text: &str, most: usize) -> TextId {
        if text.len() <= most {
            return batch.text(text);
        }
        self.left_out.long_texts += 1;
        let begin = text.ceil_char_boundary(text.len() - most);
        batch.text(text.get(begin..).unwrap_or_default())
    }

    /// The number of a stack, the innermost frame first, whose innermost frames are cut when it is deep.
    pub(crate) fn stack(
        &mut self,
        request: &mut Request<'_>,
        frames: &[FrameId],
        most: usize,
    ) -> Result<StackId, Error> {
        let cut = frames.len().saturating_sub(most);
        self.left_out.deep_stacks += u64::from(cut != 0);
        let frames = frames.get(cut..).unwrap_or_default();
        request.budget.frames.take(frames.len())?;
        Ok(request.taken.batch.stack(frames))
    }

    /// The number of a frame of which nothing but its name is known.
    pub(crate) fn named(&mut self, request: &mut Request<'_>, name: &str) -> FrameId {
        let most = request.limits.symbol_bytes;
        let function = self.text(&mut request.taken.batch, name, most);
        request.taken.batch.frame(Frame { function, ..Frame::default() })
    }
}
