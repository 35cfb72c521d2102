//! Into which windows recordings are cut, and which pieces each of them needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ctf::Uuid;
use model::{TimeRange, Timestamp};
use serde::{Deserialize, Serialize};
use stitch::{Identities, Selection};
use tracedir::StreamKey;

use super::known::{Entry, Known, entries};
use super::survey::{Survey, Surveyed};
use crate::Error;
use crate::adapter::SpanRules;
use crate::local::{Origins, holes, one_host, windows};

/// What reading any window of the recordings of a host depends on besides the window's own pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Common {
    pub(super) host: String,
    pub(super) requests: Vec<String>,
    pub(super) id_fields: Vec<String>,
    /// The smallest distance from the epoch of each clock, by UUID.
    origins: BTreeMap<[u8; 16], i64>,
    pub(super) scheduled: TimeRange,
    /// What is counted, where it is not all.
    pub(super) selection: Option<Selection>,
}

impl Common {
    pub(super) fn origins(&self) -> Origins {
        self.origins.iter().map(|(uuid, ns)| (Uuid(*uuid), *ns)).collect()
    }

    pub(super) fn rules(&self) -> SpanRules {
        SpanRules { requests: self.requests.clone(), id_fields: self.id_fields.clone() }
    }

    /// What of it decides what is read of a part: when scheduler events begin and end elsewhere does not.
    #[must_use]
    pub fn within(&self, part: &Part) -> Self {
        let inside = |at: Timestamp| at.clamp(part.begin, part.end);
        let TimeRange { begin, end } = self.scheduled;
        let scheduled = TimeRange { begin: inside(begin), end: inside(end) };
        Self { scheduled, ..self.clone() }
    }

    /// The host that the recordings are of.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// A stretch of time that is mapped by itself, and the pieces that say something about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The first moment inside.
    pub begin: Timestamp,
    /// The first moment after.
    pub end: Timestamp,
    /// Whether nobody recorded it.
    pub is_gap: bool,
    /// Positions of the pieces, ascending: those that overlap it; and where no piece of a stream or session reaches over its
    /// begin or end, the one before or after, because what was lost between two packets shows in both.
    pub pieces: Vec<usize>,
}

/// The windows of all recordings of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What all windows depend on.
    pub common: Common,
    /// The windows, in order of time, without a hole between them.
    pub parts: Vec<Part>,
    /// Whether events do not say whose they are, so that each window needs what is [`Known`] before it.
    pub needs_known: bool,
    /// Whether anything can begin or end a span.
    has_spans: bool,
}

impl Plan {
    /// Cuts at the ends of rotation chunks.
    ///
    /// # Errors
    ///
    /// [`Error::SeveralHosts`]; [`Error::NoTime`] when no stream has a packet with a time.
    pub fn of(
        surveys: &[Survey],
        rules: &SpanRules,
        selection: Option<Selection>,
    ) -> Result<Self, Error> {
        let host = one_host(surveys.iter().flat_map(|survey| survey.hosts.iter().cloned()))?;
        let mut origins: BTreeMap<[u8; 16], i64> = BTreeMap::new();
        for (uuid, own) in surveys.iter().flat_map(|survey| survey.clocks.iter().flatten()) {
            let least = origins.entry(uuid.0).or_insert(*own);
            *least = (*own).min(*least);
        }
        let shifted = Shifted::of(surveys, &origins);
        let begin = shifted.streams.iter().map(|stream| stream.begin).min().ok_or(Error::NoTime)?;
        let end = shifted.streams.iter().map(|stream| stream.end).max().ok_or(Error::NoTime)?;
        let nothing = Timestamp::MIN;
        let kernel = || shifted.streams.iter().filter(|stream| stream.switches);
        let scheduled = TimeRange {
            begin: kernel().map(|stream| stream.begin).min().unwrap_or(nothing),
            end: kernel().map(|stream| stream.end).max().unwrap_or(nothing),
        };
        let mut gaps = shifted.missing_chunks();
        gaps.extend(holes(shifted.joined().into_values().collect()));
        let mut cuts = shifted.ends();
        cuts.extend(gaps.iter().flat_map(|(begin, end)| [*begin, *end]));
        let is_gap = |begin: Timestamp| gaps.iter().any(|(from, to)| *from <= begin && begin < *to);
        let around = shifted.around();
        let part = |(begin, end): (Timestamp, Timestamp)| Part {
            begin,
            end,
            is_gap: is_gap(begin),
            pieces: pieces(&around, begin, end),
        };
        let parts = windows(cuts, begin, end).into_iter().map(part).collect();
        let SpanRules { requests, id_fields } = rules.clone();
        Ok(Self {
            common: Common { host, requests, id_fields, origins, scheduled, selection },
            parts,
            needs_known: surveys.iter().any(|survey| survey.needs_identities),
            has_spans: surveys.iter().any(|survey| survey.has_spans),
        })
    }

    /// What each window begins with. `known` is what is known after each; where it is empty, events say whose they are.
    #[must_use]
    pub fn entries(&self, known: &[Known]) -> Vec<Entry> {
        let begin = self.parts.first().map_or(Timestamp::MIN, |part| part.begin);
        if !known.is_empty() {
            let is_gap: Vec<bool> = self.parts.iter().map(|part| part.is_gap).collect();
            return entries(begin, known, &is_gap);
        }
        let outside_spans = || Entry(Identities::default().outside_spans());
        let entry =
            |n: usize| if self.has_spans && n > 0 { Entry::default() } else { outside_spans() };
        (0..self.parts.len()).map(entry).collect()
    }
}

/// Streams by the common clock.
struct Shifted<'s> {
    surveys: &'s [Survey],
    streams: Vec<Stream<'s>>,
    /// Of each survey, the first moment and the first after it; `None` for one without packets.
    times: Vec<Option<(Timestamp, Timestamp)>>,
}

struct Stream<'s> {
    piece: usize,
    key: &'s StreamKey,
    begin: Timestamp,
    /// The first moment after.
    end: Timestamp,
    switches: bool,
}

/// The pieces of one stream or session with their times, in order.
type Line = Vec<(Timestamp, Timestamp, usize)>;

impl<'s> Shifted<'s> {
    fn of(surveys: &'s [Survey], origins: &BTreeMap<[u8; 16], i64>) -> Self {
        let mut streams = Vec::new();
        let mut times = Vec::new();
        for (piece, survey) in surveys.iter().enumerate() {
            let shift = |trace: usize| match survey.clocks.get(trace) {
                Some(Some((uuid, own))) => {
                    origins.get(&uuid.0).map_or(0, |least| least.saturating_sub(*own))
                }
                _ => 0,
            };
            let at = |at: Timestamp, ns: i64| Timestamp::from_nanos(at.nanos().saturating_add(ns));
            for Surveyed { key, trace, begin, last, switches } in &survey.streams {
                let shift_ns = shift(*trace);
                let end = at(*last, shift_ns.saturating_add(1));
                let begin = at(*begin, shift_ns);
                streams.push(Stream { piece, key, begin, end, switches: *switches });
            }
            // As a whole, a chunk is told by the clock that lies furthest behind.
            let shift_ns = (0..survey.clocks.len()).map(shift).min().unwrap_or(0);
            let begin = survey.streams.iter().map(|stream| stream.begin).min();
            let last = survey.streams.iter().map(|stream| stream.last).max();
            times.push(
                begin.zip(last).map(|(begin, last)| {
                    (at(begin, shift_ns), at(last, shift_ns.saturating_add(1)))
                }),
            );
        }
        Self { surveys, streams, times }
    }

    /// Chunks by session and number, with their times.
    fn sessions(&self) -> BTreeMap<PathBuf, BTreeMap<u64, usize>> {
        let mut sessions: BTreeMap<PathBuf, BTreeMap<u64, usize>> = BTreeMap::new();
        for (piece, survey) in self.surveys.iter().enumerate() {
            let Some((session, id)) = survey.chunk() else { continue };
            sessions.entry(session).or_default().insert(id, piece);
        }
        sessions
    }

    fn times(&self, piece: usize) -> Option<(Timestamp, Timestamp)> {
        self.times.get(piece).copied().flatten()
    }

    /// The first moments after each chunk but the last of its session.
    fn ends(&self) -> Vec<Timestamp> {
        let sessions = self.sessions();
        let chunks = sessions.values().flat_map(|chunks| chunks.values().rev().skip(1));
        chunks.filter_map(|piece| self.times(*piece)).map(|(_, end)| end).collect()
    }

    /// The stretches of time whose chunk is missing between two that are there.
    fn missing_chunks(&self) -> Vec<(Timestamp, Timestamp)> {
        let mut gaps = Vec::new();
        for chunks in self.sessions().values() {
            let next = chunks.iter().skip(1);
            let apart = chunks.iter().zip(next).filter(|((a, _), (b, _))| **a + 1 < **b);
            for ((_, left), (_, right)) in apart {
                if let (Some((_, left)), Some((right, _))) = (self.times(*left), self.times(*right))
                    && left < right
                {
                    gaps.push((left, right));
                }
            }
        }
        gaps
    }

    /// The time of each stream over all pieces.
    fn joined(&self) -> BTreeMap<&StreamKey, (Timestamp, Timestamp)> {
        let mut joined: BTreeMap<&StreamKey, (Timestamp, Timestamp)> = BTreeMap::new();
        for stream in &self.streams {
            let time = joined.entry(stream.key).or_insert((stream.begin, stream.end));
            *time = (time.0.min(stream.begin), time.1.max(stream.end));
        }
        joined
    }

    /// Each stream's pieces and each session's.
    fn around(&self) -> Vec<Line> {
        let mut streams: BTreeMap<&StreamKey, Line> = BTreeMap::new();
        for stream in &self.streams {
            let line = streams.entry(stream.key).or_default();
            line.push((stream.begin, stream.end, stream.piece));
        }
        let mut lines: Vec<Line> = streams.into_values().collect();
        for chunks in self.sessions().values() {
            let timed = chunks.values().filter_map(|piece| {
                let (begin, end) = self.times(*piece)?;
                Some((begin, end, *piece))
            });
            lines.push(timed.collect());
        }
        lines.iter_mut().for_each(|line| line.sort_unstable());
        lines
    }
}

/// The pieces of each line that overlap a stretch of time; the last before it and the first after, where none reaches over
/// its begin or end.
fn pieces(lines: &[Line], begin: Timestamp, end: Timestamp) -> Vec<usize> {
    let mut pieces = BTreeSet::new();
    for line in lines {
        let over = || line.iter().filter(|(from, to, _)| *from < end && begin < *to);
        let before = line.iter().filter(|(_, to, _)| *to <= begin).max_by_key(|(_, to, _)| *to);
        let after = line.iter().find(|(from, _, _)| end <= *from);
        let before = before.filter(|_| !over().any(|(from, _, _)| *from < begin));
        let after = after.filter(|_| !over().any(|(_, to, _)| end < *to));
        pieces.extend(over().chain(before).chain(after).map(|(_, _, piece)| *piece));
    }
    pieces.into_iter().collect()
}
