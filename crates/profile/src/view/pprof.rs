//! pprof's `profile.proto`, compressed, as `go tool pprof` and its kin read it.
//!
//! ```text
//! Profile   1 sample_type 2 sample 3 mapping 4 location 5 function 6 string_table 9 time_nanos 10 duration_nanos 11 period_type 12 period 13 comment
//! Sample    1 location_id, leaf first 2 value 3 label        Label    1 key 2 str 3 num
//! Mapping   1 id 2 memory_start 3 memory_limit 4 file_offset 5 filename 6 build_id 7 has_functions 8 has_filenames 9 has_line_numbers 10 has_inline_frames
//! Location  1 id 2 mapping_id 3 address 4 line               Line     1 function_id 2 line 3 column
//! Function  1 id 2 name 3 system_name 4 filename 5 start_line
//! ```
//!
//! Processes, threads, CPUs, statuses and spans become labels of samples. Times of single samples have no place there, and
//! attributes of resources neither.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::weights::{MAX_LINES, measure};
use crate::keys;
use crate::packet::gzip;
use crate::request::{
    AttributeValue, Dictionary, LinkEntry, Profile, Request, ResourceProfiles, Sample,
};
use model::intern::{Lists, Table, Texts};
use wire::proto::{Writer, bits};

/// A label of a sample: key, then text or number.
type Label = (u32, u32, i64);

/// Requests as one pprof profile, each packet once. Samples of the kind of the first profile are taken.
#[must_use]
pub fn pprof(requests: &[Request<'_>]) -> Vec<u8> {
    let mut out = Pprof::new();
    let mut seen = hashbrown::HashSet::new();
    for request in requests {
        if request.packet_id().is_none_or(|id| seen.insert(id)) {
            out.request(request);
        }
    }
    gzip(&out.encode())
}

/// A request as one pprof profile for a store that makes a series of each value of a label: samples have no labels but those of spans.
#[must_use]
pub fn pprof_of_series(request: &Request<'_>) -> Vec<u8> {
    let mut out = Pprof::new();
    out.only_spans = true;
    out.request(request);
    gzip(&out.encode())
}

/// Numbers of a request's stacks and locations here.
#[derive(Default)]
struct Known {
    stacks: HashMap<u32, u32>,
    locations: HashMap<u32, u32>,
}

struct Pprof {
    strings: Texts,
    mappings: Table<Mapping>,
    functions: Table<Function>,
    locations: Table<Location>,
    /// Locations, leaf first.
    stacks: Lists<u32>,
    samples: BTreeMap<(u32, Vec<Label>), (i64, i64)>,
    /// Locations that samples may still have.
    room: usize,
    left_out: u64,
    /// Whether processes and attributes of samples are left out.
    only_spans: bool,
    /// Kind, unit and period.
    kind: Option<(u32, u32)>,
    period: i64,
    begin_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Mapping {
    start: u64,
    limit: u64,
    offset: u64,
    path: u32,
    build_id: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Function {
    name: u32,
    system_name: u32,
    file: u32,
    start_line: i64,
}

#[derive(PartialEq, Eq, Hash, Default)]
struct Location {
    mapping: u32,
    address: u64,
    /// Function, line and column.
    lines: Vec<(u32, i64, i64)>,
}

impl Pprof {
    fn new() -> Self {
        Self {
            strings: Texts::new(),
            mappings: Table::new(Mapping::default()),
            functions: Table::new(Function::default()),
            locations: Table::new(Location::default()),
            stacks: Lists::new(),
            samples: BTreeMap::new(),
            room: MAX_LINES,
            left_out: 0,
            only_spans: false,
            kind: None,
            period: 0,
            begin_ns: u64::MAX,
            end_ns: 0,
        }
    }

    fn request(&mut self, request: &Request<'_>) {
        let d = &request.dictionary;
        let mut known = Known::default();
        for resource in &request.resources {
            for profile in &resource.profiles {
                let (kind, unit, factor) = measure(d, profile);
                let kind = (self.strings.intern(kind), self.strings.intern(unit));
                if *self.kind.get_or_insert(kind) != kind {
                    continue;
                }
                self.period = profile.period;
                self.begin_ns = self.begin_ns.min(profile.time_unix_ns);
                self.end_ns =
                    self.end_ns.max(profile.time_unix_ns.saturating_add(profile.duration_ns));
                self.profile(d, resource, profile, factor, &mut known);
            }
        }
    }

    fn profile(
        &mut self,
        d: &Dictionary<'_>,
        resource: &ResourceProfiles<'_>,
        profile: &Profile<'_>,
        factor: i64,
        known: &mut Known,
    ) {
        for sample in &profile.samples {
            let events = sample.events().count();
            let length = d.stacks.get(sample.stack as usize).map_or(0, Vec::len);
            let stack = match known.stacks.get(&sample.stack) {
                Some(stack) => *stack,
                None => {
                    let stack = self.stack(d, sample.stack, &mut known.locations);
                    known.stacks.insert(sample.stack, stack);
                    stack
                }
            };
            let key = (stack, self.labels(d, resource, sample));
            // Each sample writes its whole stack, so few bytes of a request could become very many.
            if !self.samples.contains_key(&key) {
                let Some(room) = self.room.checked_sub(length) else {
                    self.left_out += events as u64;
                    continue;
                };
                self.room = room;
            }
            let sum = self.samples.entry(key).or_default();
            sum.0 = sum.0.saturating_add(i64::try_from(events).unwrap_or(i64::MAX));
            sum.1 = sum.1.saturating_add(sample.total().saturating_mul(factor));
        }
    }

    fn stack(&mut self, d: &Dictionary<'_>, index: u32, known: &mut HashMap<u32, u32>) -> u32 {
        let indices = d.stacks.get(index as usize).into_iter().flatten();
        let locations: Vec<u32> = indices
            .map(|&index| match known.get(&index) {
                Some(id) => *id,
                None => {
                    let id = self.location(d, index);
                    known.insert(index, id);
                    id
                }
            })
            .collect();
        self.stacks.intern(&locations)
    }

    fn location(&mut self, d: &Dictionary<'_>, index: u32) -> u32 {
        let Some(location) = d.locations.get(index as usize) else { return 0 };
        let mapping = d.mappings.get(location.mapping as usize).filter(|_| location.mapping != 0);
        let mapping = mapping.map_or(0, |mapping| {
            let build_id = [keys::BUILD_ID_GNU, keys::BUILD_ID_GO, keys::BUILD_ID_HTLHASH]
                .iter()
                .find_map(|key| d.find_text(&mapping.attributes, key))
                .unwrap_or_default();
            let mapping = Mapping {
                start: mapping.memory_start,
                limit: mapping.memory_limit,
                offset: mapping.file_offset,
                path: self.strings.intern(d.string(mapping.path)),
                build_id: self.strings.intern(build_id),
            };
            self.mappings.intern(mapping)
        });
        let lines = location.lines.iter().map(|line| {
            let function = d.functions.get(line.function as usize).copied().unwrap_or_default();
            let name = if function.name == 0 { function.system_name } else { function.name };
            let function = Function {
                name: self.strings.intern(d.string(name)),
                system_name: self.strings.intern(d.string(function.system_name)),
                file: self.strings.intern(d.string(function.file)),
                start_line: function.start_line,
            };
            (self.functions.intern(function), line.line, line.column)
        });
        let location = Location { mapping, address: location.address, lines: lines.collect() };
        self.locations.intern(location)
    }

    fn labels(
        &mut self,
        d: &Dictionary<'_>,
        resource: &ResourceProfiles<'_>,
        sample: &Sample,
    ) -> Vec<Label> {
        let mut labels = Vec::new();
        let of_process = [keys::PID, keys::EXECUTABLE_NAME, keys::CONTAINER_ID, keys::SERVICE_NAME];
        let of_process = of_process.iter().filter_map(|key| Some((*key, resource.find(d, key)?)));
        let of_sample = of_process.chain(d.attributes_of(&sample.attributes));
        for (key, value) in of_sample.filter(|_| !self.only_spans) {
            let (text, number) = match (d.text(value), value) {
                (Some(text), _) => (self.strings.intern(text), 0),
                (None, AttributeValue::Int(number)) => (0, number),
                (None, AttributeValue::Bool(truth)) => (0, i64::from(truth)),
                _ => continue,
            };
            labels.push((self.strings.intern(key), text, number));
        }
        let link = d.links.get(sample.link as usize).filter(|_| sample.link != 0);
        if let Some(LinkEntry { trace_id, span_id }) = link {
            for (key, id) in [("trace_id", trace_id), ("span_id", span_id)] {
                let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                labels.push((self.strings.intern(key), self.strings.intern(&digits), 0));
            }
        }
        labels.sort_unstable();
        labels
    }

    fn encode(mut self) -> Vec<u8> {
        let count = (self.strings.intern(keys::SAMPLES), self.strings.intern(keys::COUNT));
        let kind = self.kind.unwrap_or(count);
        let mut out = Writer::default();
        let value_type = |out: &mut Writer, field, (kind, unit): (u32, u32)| {
            out.message(field, |out| {
                out.uint(1, kind.into());
                out.uint(2, unit.into());
            });
        };
        value_type(&mut out, 1, count);
        value_type(&mut out, 1, kind);
        for ((stack, labels), (count, value)) in &self.samples {
            out.message(2, |out| {
                out.packed(1, self.stacks.get(*stack).iter().map(|&id| id.into()));
                out.packed(2, [*count, *value].into_iter().map(bits));
                for (key, text, number) in labels {
                    out.message(3, |out| {
                        out.uint(1, (*key).into());
                        out.uint(2, (*text).into());
                        out.uint(3, bits(*number));
                    });
                }
            });
        }
        let comment = (self.left_out != 0).then(|| {
            self.strings
                .intern(&format!("{} samples are left out: there was no room", self.left_out))
        });
        self.tables(&mut out);
        if self.begin_ns < self.end_ns {
            out.uint(9, self.begin_ns);
            out.uint(10, self.end_ns - self.begin_ns);
        }
        if self.period > 0 {
            value_type(&mut out, 11, kind);
            out.uint(12, bits(self.period));
        }
        out.uint(13, comment.unwrap_or_default().into());
        out.bytes
    }

    /// For each mapping whether its locations have functions, file names, line numbers, inlined frames. Readers do not look up
    /// what has functions, so all its locations must have them.
    fn known(&self) -> Vec<[bool; 4]> {
        let mut known = vec![[true, false, false, false]; self.mappings.len()];
        for location in self.locations.iter() {
            if let Some([functions, files, lines, inlined]) =
                known.get_mut(location.mapping as usize)
            {
                *functions &= !location.lines.is_empty();
                *files |= location.lines.iter().any(|line| self.functions.get(line.0).file != 0);
                *lines |= location.lines.iter().any(|line| line.1 != 0);
                *inlined |= location.lines.len() > 1;
            }
        }
        known
    }

    fn tables(&self, out: &mut Writer) {
        let known = self.known();
        for ((id, mapping), known) in (0..).zip(self.mappings.iter()).zip(&known).skip(1) {
            out.message(3, |out| {
                out.uint(1, id);
                out.uint(2, mapping.start);
                out.uint(3, mapping.limit);
                out.uint(4, mapping.offset);
                out.uint(5, mapping.path.into());
                out.uint(6, mapping.build_id.into());
                for (field, has) in (7..).zip(known) {
                    out.uint(field, (*has).into());
                }
            });
        }
        for (id, location) in (0..).zip(self.locations.iter()).skip(1) {
            out.message(4, |out| {
                out.uint(1, id);
                out.uint(2, location.mapping.into());
                out.uint(3, location.address);
                for &(function, line, column) in &location.lines {
                    out.message(4, |out| {
                        out.uint(1, function.into());
                        out.uint(2, bits(line));
                        out.uint(3, bits(column));
                    });
                }
            });
        }
        for (id, function) in (0..).zip(self.functions.iter()).skip(1) {
            out.message(5, |out| {
                out.uint(1, id);
                out.uint(2, function.name.into());
                out.uint(3, function.system_name.into());
                out.uint(4, function.file.into());
                out.uint(5, bits(function.start_line));
            });
        }
        for text in self.strings.iter() {
            out.blob(6, text.as_bytes());
        }
    }
}
