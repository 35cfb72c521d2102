//! A model of receivers, after what Prometheus 2.42, 2.53 and 3.5 were measured to do without out-of-order window: a repeat of a series' newest
//! sample is taken and stored once; the same time with another value, and every older time, are refused; one bad sample refuses
//! a whole request of 1.0 and, of 2.0, itself only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use export::{Answer, Outcome, Post};
use wire::remote_write::{Labels, ReceivedSeries, Sample, Version, decode};

/// What happens to a request besides what the receiver thinks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is answered.
    Answered,
    /// It is answered with this, by something before the receiver.
    Status(u16),
    /// The connection is cut before it is there.
    CutBefore,
    /// It is stored and no answer comes.
    CutAfter,
}

/// What a receiver is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// It understands 2.0; if not, it says yes and stores nothing, or 415.
    pub(crate) speaks_v2: bool,
    /// It looks at the content type.
    pub(crate) says_415: bool,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) kind: Kind,
    /// Series that it refuses (400).
    pub(crate) refuses: BTreeSet<String>,
    /// Series at which it fails (500).
    pub(crate) fails_at: BTreeSet<String>,
    /// Samples by series and time.
    pub(crate) stored: BTreeMap<String, BTreeMap<i64, u64>>,
    /// Refusals of series that it does not refuse for their names: there must be none.
    pub(crate) surprises: Vec<String>,
}

impl Receiver {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            refuses: BTreeSet::new(),
            fails_at: BTreeSet::new(),
            stored: BTreeMap::new(),
            surprises: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, post: &Post, fate: Fate) -> Outcome {
        let cut = Outcome::Unknown { why: "cut".to_owned() };
        match fate {
            Fate::CutBefore => cut,
            Fate::Status(status) => Outcome::Answered(Answer {
                status,
                retry_after: (status == 429).then_some(Duration::from_secs(1)),
                ..Answer::default()
            }),
            Fate::Answered => Outcome::Answered(self.answer(post)),
            Fate::CutAfter => {
                self.answer(post);
                cut
            }
        }
    }

    fn answer(&mut self, post: &Post) -> Answer {
        let plain = |status| Answer { status, words: "model".to_owned(), ..Answer::default() };
        if post.version == Version::V2 && !self.kind.speaks_v2 {
            return plain(if self.kind.says_415 { 415 } else { 204 });
        }
        let received = decode(post.version, &post.body).unwrap();
        let mut written = 0;
        let mut refused = None;
        let before = self.stored.clone();
        for series in &received.series {
            match self.store(series) {
                Ok(()) => written += 1,
                Err(500) => {
                    self.stored = before;
                    return plain(500);
                }
                Err(status) => refused = Some(status),
            }
        }
        match post.version {
            Version::V1 => {
                if refused.is_some() {
                    self.stored = before;
                }
                plain(refused.unwrap_or(204))
            }
            Version::V2 => {
                Answer { samples_written: Some(written), ..plain(refused.unwrap_or(204)) }
            }
        }
    }

    /// Stores a series' only sample, or says with which status it is refused.
    fn store(&mut self, series: &ReceivedSeries) -> Result<(), u16> {
        let labels = Labels::new(series.labels.clone()).unwrap();
        let pairs = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(series.labels, pairs.collect::<Vec<_>>(), "labels are not in order");
        let [sample] = series.samples.as_slice() else {
            panic!("{} samples", series.samples.len())
        };
        let name = labels.to_string();
        if self.fails_at.contains(&name) {
            return Err(500);
        }
        if self.refuses.contains(&name) {
            return Err(400);
        }
        let Sample { value, time_ms, .. } = *sample;
        let samples = self.stored.entry(name.clone()).or_default();
        match samples.last_key_value() {
            Some((newest, bits)) if (*newest, *bits) == (time_ms, value.to_bits()) => Ok(()),
            Some((newest, _)) if *newest >= time_ms => {
                self.surprises.push(format!("{name} at {time_ms} after {newest}"));
                Err(400)
            }
            _ => {
                samples.insert(time_ms, value.to_bits());
                Ok(())
            }
        }
    }
}
