//! Samples of profiles: who did what, where, and how much of it.
//!
//! A [`Batch`] needs nothing but itself: what its samples refer to is in its own tables. Whatever a client sends becomes one, and so does
//! what is read from a store.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::intern::{Lists, Table, Texts, item};
use crate::time::Timestamp;

/// What the values of samples count: `name:sample_type:sample_unit:period_type:period_unit`, as Pyroscope writes it. The two last
/// parts may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the parts, by their names")]
pub struct ProfileType {
    pub name: String,
    pub sample_type: String,
    pub sample_unit: String,
    pub period_type: String,
    pub period_unit: String,
}

impl fmt::Display for ProfileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, sample_type, sample_unit, period_type, period_unit } = self;
        write!(f, "{name}:{sample_type}:{sample_unit}:{period_type}:{period_unit}")
    }
}

/// Text that names no profile type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoProfileType(pub String);

impl fmt::Display for NoProfileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no profile type: it has five parts with colons between", self.0)
    }
}

impl std::error::Error for NoProfileType {}

impl FromStr for ProfileType {
    type Err = NoProfileType;

    /// A sixth part `delta` is passed over.
    fn from_str(text: &str) -> Result<Self, NoProfileType> {
        let parts: Vec<&str> = text.split(':').collect();
        let ([name, sample_type, sample_unit, period_type, period_unit]
        | [name, sample_type, sample_unit, period_type, period_unit, "delta"]) = parts.as_slice()
        else {
            return Err(NoProfileType(text.to_owned()));
        };
        if [name, sample_type, sample_unit].iter().any(|part| part.is_empty()) {
            return Err(NoProfileType(text.to_owned()));
        }
        Ok(Self {
            name: (*name).to_owned(),
            sample_type: (*sample_type).to_owned(),
            sample_unit: (*sample_unit).to_owned(),
            period_type: (*period_type).to_owned(),
            period_unit: (*period_unit).to_owned(),
        })
    }
}

/// Names and values of a series, sorted by name; no name is there twice, and none is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// Of several values for one name the first stays. Labels without a name or a value are left out.
    pub fn new<N: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut pairs: Vec<(String, String)> =
            pairs.filter(|(name, value)| !name.is_empty() && !value.is_empty()).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, first| later.0 == first.0);
        Self(pairs)
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_str())
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text of a batch; 0 is the empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(u32);

/// A frame of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

/// A stack of a batch; 0 is the empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(u32);

/// A series of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(u32);

/// A function at a place, as one frame of a stack: of several functions at one address, which are inlined into each other, each is a
/// frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// The name for people; empty when it is not known.
    pub function: TextId,
    /// The name as the file has it; empty when it is the same.
    pub system_name: TextId,
    /// The source file.
    pub file: TextId,
    /// Line in the source file, from 1; 0 when not known.
    pub line: u32,
    /// Line at which the function begins; 0 when not known.
    pub start_line: u32,
    /// Whether the function is inlined into that of the next frame.
    pub is_inlined: bool,
    /// What ran: `profile.frame.type` of OpenTelemetry's semantic conventions.
    pub kind: TextId,
    /// Path or name of the mapped file.
    pub mapping: TextId,
    /// Identity of the mapped file, as its sender says it: a build ID in hexadecimal digits where there is one.
    pub build_id: TextId,
    /// Address in the mapped file, as its symbols count; without a file, in the process.
    pub address: u64,
}

/// What a series counts, and its labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    /// What values count.
    pub profile_type: ProfileType,
    /// Labels but for the type's.
    pub labels: Labels,
}

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sample {
    /// Whose.
    pub series: SeriesId,
    /// Where.
    pub stack: StackId,
    /// When.
    pub at: Timestamp,
    /// How much, in the unit of the series' type; greater than 0.
    pub value: i64,
    /// The profile that it was sent in.
    pub profile: u128,
    /// The span that it belongs to; 0 for none.
    pub span_id: u64,
    /// The trace that the span belongs to; 0 for none.
    pub trace_id: u128,
}

/// Samples with all that they refer to.
#[derive(Debug)]
pub struct Batch {
    texts: Texts,
    frames: Table<Frame>,
    stacks: Lists<u32>,
    series: Table<Option<Series>>,
    samples: Vec<Sample>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            texts: Texts::new(),
            frames: Table::new(Frame::default()),
            stacks: Lists::new(),
            series: Table::new(None),
            samples: Vec::new(),
        }
    }
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of a text.
    pub fn text(&mut self, text: &str) -> TextId {
        TextId(self.texts.intern(text))
    }

    /// The number of a frame, whose texts are this batch's.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        FrameId(self.frames.intern(frame))
    }

    /// The number of a stack: frames of this batch, the innermost first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let frames: Vec<u32> = frames.iter().map(|frame| frame.0).collect();
        StackId(self.stacks.intern(&frames))
    }

    /// The number of a series.
    pub fn series(&mut self, series: Series) -> SeriesId {
        SeriesId(self.series.intern(Some(series)))
    }

    /// Adds a sample, whose stack and series are this batch's.
    pub fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Adds samples of another batch: all that `is_wanted` says yes to, with all that the other's tables hold.
    pub fn absorb(&mut self, other: &Self, is_wanted: impl Fn(&Sample) -> bool) {
        let texts: Vec<TextId> = other.texts.iter().map(|text| self.text(text)).collect();
        let text = |id: TextId| *item(&texts, id.0);
        let frames: Vec<u32> = other
            .frames
            .iter()
            .map(|frame| {
                let Frame { function, system_name, file, kind, mapping, build_id, .. } = *frame;
                self.frames.intern(Frame {
                    function: text(function),
                    system_name: text(system_name),
                    file: text(file),
                    kind: text(kind),
                    mapping: text(mapping),
                    build_id: text(build_id),
                    ..*frame
                })
            })
            .collect();
        let mut own = Vec::new();
        let stacks: Vec<StackId> = other
            .stacks
            .iter()
            .map(|stack| {
                own.clear();
                own.extend(stack.iter().map(|frame| *item(&frames, *frame)));
                StackId(self.stacks.intern(&own))
            })
            .collect();
        let series: Vec<SeriesId> =
            other.series.iter().map(|it| SeriesId(self.series.intern(it.clone()))).collect();
        let wanted = other.samples.iter().filter(|sample| is_wanted(sample));
        self.samples.extend(wanted.map(|sample| Sample {
            series: *item(&series, sample.series.0),
            stack: *item(&stacks, sample.stack.0),
            ..*sample
        }));
    }

    /// Has other frames stand for some, in all stacks: where a frame is in `by` its list takes its place, the innermost frame first.
    ///
    /// # Panics
    ///
    /// When frames of another batch are in it.
    pub fn replace_frames(&mut self, by: &HashMap<FrameId, Vec<FrameId>>) {
        let before = std::mem::take(&mut self.stacks);
        let mut own = Vec::new();
        let stacks: Vec<StackId> = before
            .iter()
            .map(|stack| {
                own.clear();
                for frame in stack {
                    match by.get(&FrameId(*frame)) {
                        Some(others) => own.extend(others.iter().map(|other| other.0)),
                        None => own.push(*frame),
                    }
                }
                StackId(self.stacks.intern(&own))
            })
            .collect();
        for sample in &mut self.samples {
            sample.stack = *item(&stacks, sample.stack.0);
        }
    }

    /// All samples, as they came.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// What a number stands for.
    ///
    /// # Panics
    ///
    /// This and its like: for a number of another batch.
    #[must_use]
    pub fn text_of(&self, id: TextId) -> &str {
        self.texts.get(id.0)
    }

    /// What a number stands for.
    #[must_use]
    pub fn frame_of(&self, id: FrameId) -> Frame {
        *self.frames.get(id.0)
    }

    /// Frames of a stack, the innermost first.
    pub fn frames_of(
        &self,
        id: StackId,
    ) -> impl DoubleEndedIterator<Item = FrameId> + ExactSizeIterator {
        self.stacks.get(id.0).iter().map(|frame| FrameId(*frame))
    }

    /// What a number stands for.
    ///
    /// # Panics
    ///
    /// For a number of another batch.
    #[must_use]
    pub fn series_of(&self, id: SeriesId) -> &Series {
        self.series.get(id.0).as_ref().expect("series that were given a number are there")
    }

    /// All series.
    pub fn all_series(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        (0..).zip(self.series.iter()).filter_map(|(id, it)| Some((SeriesId(id), it.as_ref()?)))
    }

    /// The frames of all stacks, each once.
    #[must_use]
    pub fn frames_of_stacks(&self) -> Vec<(FrameId, Frame)> {
        let mut is_known = vec![false; self.frames.len()];
        let mut found = Vec::new();
        for frame in self.stacks.iter().flatten() {
            if let Some(is_known) = is_known.get_mut(*frame as usize)
                && !std::mem::replace(is_known, true)
            {
                found.push((FrameId(*frame), *self.frames.get(*frame)));
            }
        }
        found
    }

    /// How many stacks there are; the empty one counts.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// How many frames there are; the empty one counts.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}

impl StackId {
    /// The number, from 0 without gaps.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// The number, from 0 without gaps.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SeriesId {
    /// The number, from 1 without gaps.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_type_is_five_parts() {
        let text = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
        let parsed: ProfileType = text.parse().unwrap();
        assert_eq!(parsed.to_string(), text);
        assert_eq!(format!("{text}:delta").parse(), Ok(parsed));
        let memory: ProfileType = "memory:alloc:bytes::".parse().unwrap();
        assert_eq!((memory.period_type.as_str(), memory.period_unit.as_str()), ("", ""));
        for wrong in ["", "a:b:c:d", "a:b:c:d:e:f", "a::c:d:e", ":b:c:d:e"] {
            assert_eq!(wrong.parse::<ProfileType>(), Err(NoProfileType(wrong.to_owned())));
        }
    }

    #[test]
    fn labels_are_sorted_and_the_first_of_a_name_stays() {
        let labels = Labels::new([("b", "1"), ("a", "2"), ("b", "3"), ("", "4"), ("c", "")]);
        let pairs: Vec<_> = labels.iter().collect();
        assert_eq!(pairs, [("a", "2"), ("b", "1")]);
        assert_eq!((labels.get("b"), labels.get("c"), labels.len()), (Some("1"), None, 2));
    }

    #[test]
    fn equal_frames_stacks_and_series_are_one() {
        let mut batch = Batch::new();
        let function = batch.text("main");
        let main = batch.frame(Frame { function, line: 3, ..Frame::default() });
        assert_eq!(batch.frame(Frame { function, line: 3, ..Frame::default() }), main);
        let other = batch.frame(Frame { function, line: 4, ..Frame::default() });
        let stack = batch.stack(&[other, main]);
        assert_eq!(batch.stack(&[other, main]), stack);
        assert_ne!(batch.stack(&[main, other]), stack);
        assert_eq!(batch.frames_of(stack).collect::<Vec<_>>(), [other, main]);
        assert_eq!(batch.text_of(batch.frame_of(main).function), "main");
        let series = Series {
            profile_type: "a:b:c:d:e".parse().unwrap(),
            labels: Labels::new([("service_name", "s")]),
        };
        let id = batch.series(series.clone());
        assert_eq!(batch.series(series.clone()), id);
        assert_eq!(batch.all_series().collect::<Vec<_>>(), [(id, &series)]);
    }

    #[test]
    fn frames_stand_for_one_in_all_stacks() {
        let mut batch = Batch::new();
        let mut frame = |line| batch.frame(Frame { line, ..Frame::default() });
        let [main, unknown, inlined, outer] = [1, 2, 3, 4].map(&mut frame);
        let series = batch.series(Series {
            profile_type: "a:b:c:d:e".parse().unwrap(),
            labels: Labels::default(),
        });
        let mut stacks = [vec![unknown, main], vec![main], vec![inlined, outer, main]];
        for (value, frames) in (1..).zip(&stacks) {
            let stack = batch.stack(frames);
            let at = Timestamp::from_nanos(0);
            let (profile, span_id, trace_id) = (0, 0, 0);
            batch.add(Sample { series, stack, at, value, profile, span_id, trace_id });
        }
        batch.replace_frames(&HashMap::from([(unknown, vec![inlined, outer])]));
        stacks[0] = vec![inlined, outer, main];
        let found: Vec<Vec<FrameId>> =
            batch.samples().iter().map(|it| batch.frames_of(it.stack).collect()).collect();
        assert_eq!(found, stacks);
        assert_eq!(batch.samples()[0].stack, batch.samples()[2].stack);
        assert_eq!(batch.stack_count(), 3, "stacks that became equal are one");
        let used: Vec<FrameId> = batch.frames_of_stacks().into_iter().map(|(id, _)| id).collect();
        assert_eq!(used, [inlined, outer, main]);
    }
}
