//! pprof: a profile of several sample types, whose samples may have labels.
//!
//! Each pair of sample type and labels of samples becomes a series. The labels `span_id` (or `profile_id`, as older clients call it)
//! and `trace_id` say the span of a sample and are no labels of a series.
//!
//! Addresses are those of the file's bytes where the profile says the mapping (`address - memory_start + file_offset`): they are
//! the same for all processes. An address without a mapping is kept only where no function is known.

mod tables;

use hashbrown::HashMap;
use model::Timestamp;
use model::samples::{Frame, FrameId, ProfileType};

use self::tables::{Location, SampleFields, dangling};
use crate::draft::{Draft, Place};
use crate::error::Error;
use crate::identity::Identity;
use crate::limits::Limits;
use crate::{Accepted, Request, Taken};

pub(crate) use self::tables::Tables;

/// What is known of a profile beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PprofSource {
    /// What it is called: the same when it comes again.
    pub id: u128,
    /// Labels of all its series; `__name__` must be among them.
    pub labels: Vec<(String, String)>,
}

/// A profile in pprof, plain or in gzip: the only one of what was taken.
#[must_use]
pub fn pprof(bytes: &[u8], source: PprofSource, limits: &Limits, received: Timestamp) -> Taken {
    let mut request = Request::new(bytes, limits, received);
    request.pprof(bytes, source.id, &Identity::of(source.labels));
    request.taken
}

impl Request<'_> {
    /// Takes a profile in pprof, plain or in gzip.
    pub(crate) fn pprof(&mut self, bytes: &[u8], id: u128, identity: &Result<Identity, Error>) {
        let identity = match identity {
            Ok(identity) => identity,
            Err(error) => return self.end(id, "an unknown series", Err(error.clone())),
        };
        let outcome = self.unpacked(bytes).and_then(|plain| {
            let tables = Tables::decode(&plain, self.limits)?;
            let at = match tables.time_ns {
                0 => self.received,
                time_ns => Timestamp::from_nanos(time_ns),
            };
            self.convert(&tables, &Conversion { identity, id, at, rename: None })
        });
        self.end(id, &identity.shown(), outcome);
    }

    /// The bytes of a profile that may be in gzip.
    pub(crate) fn unpacked<'b>(
        &mut self,
        bytes: &'b [u8],
    ) -> Result<std::borrow::Cow<'b, [u8]>, Error> {
        let most = self.limits.profile_bytes.min(self.budget.bytes.left());
        let plain = self.ungzip(bytes, most);
        // What is refused may have been unpacked up to there.
        self.budget.bytes.take(plain.as_ref().map_or(most, |plain| plain.len()))?;
        plain
    }

    /// Takes a profile whose tables are read.
    pub(crate) fn convert(
        &mut self,
        tables: &Tables<'_>,
        conversion: &Conversion<'_>,
    ) -> Result<Accepted, Error> {
        let mut draft = Draft::default();
        Converter::new(tables, conversion)?.samples(self, &mut draft)?;
        draft.finish(self, conversion.id)
    }
}

/// What is known of a profile whose tables are read.
pub(crate) struct Conversion<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) id: u128,
    pub(crate) at: Timestamp,
    /// The name of a function, of its name and file, where another is wanted.
    pub(crate) rename: Option<fn(&str, &str) -> Option<String>>,
}

struct Converter<'a> {
    tables: &'a Tables<'a>,
    conversion: &'a Conversion<'a>,
    kinds: Vec<ProfileType>,
    /// For each location, once it was met: its frames, as a range of `frames`.
    locations: Vec<Option<(u32, u32)>>,
    frames: Vec<FrameId>,
    /// Labels of samples, by the numbers of their strings; the value is the number.
    sets: HashMap<Vec<(u64, u64)>, u32>,
    /// By set and type.
    series: HashMap<(u32, usize), u32>,
}

impl<'a> Converter<'a> {
    fn new(tables: &'a Tables<'a>, conversion: &'a Conversion<'a>) -> Result<Self, Error> {
        let period = tables.period_type()?;
        let types = tables.sample_types()?;
        let kinds = types.into_iter().map(|kind| conversion.identity.kind(kind, period));
        Ok(Self {
            tables,
            conversion,
            kinds: kinds.collect::<Result<_, _>>()?,
            locations: vec![None; tables.location_count()],
            frames: Vec::new(),
            sets: HashMap::new(),
            series: HashMap::new(),
        })
    }

    fn samples(&mut self, request: &mut Request<'_>, draft: &mut Draft) -> Result<(), Error> {
        let mut sample = SampleFields::default();
        let mut stack = Vec::new();
        for (place, reader) in self.tables.samples.iter().enumerate() {
            sample.read(*reader, request.limits)?;
            let (found, expected) = (sample.values.len(), self.kinds.len());
            if found != expected {
                return Err(Error::Values { place, found, expected });
            }
            stack.clear();
            let most = request.limits.stack_frames;
            let mut is_deep = false;
            // From the root, so that what is beyond the limit is not looked at.
            for &id in sample.locations.iter().rev() {
                let Some(at) = self.tables.location_at(id) else {
                    return Err(dangling("sample", place as u64, "location", id));
                };
                is_deep |= stack.len() >= most;
                if !is_deep {
                    let frames = self.location(at, request, draft);
                    let own = self.frames.get(frames.0 as usize..frames.1 as usize);
                    let room = most - stack.len();
                    let own = own.unwrap_or_default().iter().rev();
                    is_deep |= own.len() > room;
                    stack.extend(own.take(room));
                }
            }
            draft.left_out.deep_stacks += u64::from(is_deep);
            stack.reverse();
            let stack = draft.stack(request, &stack, most)?;
            let (span_id, trace_id) = self.span(place, &mut sample.labels)?;
            let set = self.set(&mut sample.labels);
            for (kind, &value) in sample.values.iter().enumerate() {
                let series = if value > 0 {
                    self.series(request, draft, (set, kind), &sample.labels)?
                } else {
                    0
                };
                let at = self.conversion.at;
                let place = Place { series, stack, at, span_id, trace_id };
                draft.add(place, value, usize::MAX)?;
            }
        }
        Ok(())
    }

    /// Frames of a location, the innermost first, as a range.
    fn location(&mut self, at: u32, request: &mut Request<'_>, draft: &mut Draft) -> (u32, u32) {
        if let Some(Some(known)) = self.locations.get(at as usize) {
            return *known;
        }
        let location = self.tables.location_of(at);
        let begin = model::intern::number(self.frames.len());
        self.add_frames(&location, request, draft);
        let range = (begin, model::intern::number(self.frames.len()));
        if let Some(place) = self.locations.get_mut(at as usize) {
            *place = Some(range);
        }
        range
    }

    fn add_frames(&mut self, location: &Location, request: &mut Request<'_>, draft: &mut Draft) {
        let most = request.limits.symbol_bytes;
        let batch = &mut request.taken.batch;
        let tables = self.tables;
        let lines = tables.lines(location);
        let mapping = tables.mapping(location);
        let mut frame = Frame { address: location.address, ..Frame::default() };
        match mapping {
            Some(mapping) => {
                frame.mapping = draft.text(batch, tables.string(mapping.file), most);
                frame.build_id = draft.text(batch, tables.string(mapping.build_id), most);
                if (mapping.start..mapping.limit).contains(&location.address) {
                    let relative = location.address - mapping.start;
                    frame.address = relative.wrapping_add(mapping.offset);
                }
            }
            None if !lines.is_empty() => frame.address = 0,
            None => {}
        }
        if lines.is_empty() {
            self.frames.push(batch.frame(frame));
        }
        for (at, line) in (1..).zip(lines) {
            let function = tables.function(line);
            let system_name = tables.string(function.system_name);
            let file = tables.string(function.file);
            let name = match tables.string(function.name) {
                "" => system_name,
                name => name,
            };
            let renamed = self.conversion.rename.and_then(|rename| rename(name, file));
            let frame = Frame {
                function: draft.text(batch, renamed.as_deref().unwrap_or(name), most),
                system_name: match system_name == name {
                    true => frame.system_name,
                    false => draft.text(batch, system_name, most),
                },
                file: draft.text(batch, file, most),
                line: u32::try_from(line.line).unwrap_or_default(),
                start_line: u32::try_from(function.start_line).unwrap_or_default(),
                is_inlined: at < lines.len(),
                ..frame
            };
            self.frames.push(batch.frame(frame));
        }
    }

    /// Takes the labels out that say a sample's span: its id and its trace's, 0 where they are not there or no such numbers.
    fn span(&self, place: usize, labels: &mut Vec<(u64, u64)>) -> Result<(u64, u128), Error> {
        let (mut span_id, mut trace_id) = (0, 0);
        for &(key, text) in &*labels {
            let text = self.tables.string_of("sample", place as u64, text)?;
            match self.tables.string_of("sample", place as u64, key)? {
                "span_id" | "profile_id" => span_id = hex::<16>(text),
                "trace_id" => trace_id = hex::<32>(text),
                _ => {}
            }
        }
        let of_span = ["span_id", "profile_id", "trace_id"];
        labels.retain(|&(key, _)| !of_span.contains(&self.tables.string(key)));
        Ok((u64::try_from(span_id).unwrap_or_default(), trace_id))
    }

    /// The number of a sample's labels.
    fn set(&mut self, labels: &mut [(u64, u64)]) -> u32 {
        // Of two with one key the first counts, so only the order of keys may change.
        labels.sort_by_key(|&(key, _)| key);
        if let Some(&known) = self.sets.get(&*labels) {
            return known;
        }
        let next = model::intern::number(self.sets.len());
        self.sets.insert(labels.to_vec(), next);
        next
    }

    fn series(
        &mut self,
        request: &mut Request<'_>,
        draft: &mut Draft,
        (set, kind): (u32, usize),
        labels: &[(u64, u64)],
    ) -> Result<u32, Error> {
        if let Some(&known) = self.series.get(&(set, kind)) {
            return Ok(known);
        }
        let text = |&(key, value)| (self.tables.string(key), self.tables.string(value));
        let labels = labels.iter().map(text);
        let Some(of) = self.kinds.get(kind) else { return Ok(0) };
        let series = draft.series(request, self.conversion.identity, of, labels)?;
        self.series.insert((set, kind), series);
        Ok(series)
    }
}

/// A number of so many hexadecimal digits, 0 when it is none.
fn hex<const DIGITS: usize>(text: &str) -> u128 {
    let is_hex = text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let parsed = is_hex.then(|| u128::from_str_radix(text, 16));
    parsed.and_then(Result::ok).unwrap_or_default()
}
