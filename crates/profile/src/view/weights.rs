//! Stacks and what they weigh.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use crate::keys;
use crate::packet::PacketId;
use crate::request::{AttributeValue, Dictionary, Location, Profile, Request, ResourceProfiles};
use model::intern::{Lists, Table};

/// Lines of all stacks that are kept, 4 bytes each, and lines that are made of one request: small bytes can stand for very many.
pub(super) const MAX_LINES: usize = 1 << 26;

/// A line of a stack as it is shown: the functions inlined at one address are lines of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Label {
    /// The function, or file and address where it has no name.
    pub name: String,
    /// Path of the mapped file, or of the source of interpreted code; empty when not known.
    pub module: String,
    /// What ran in it, a word of [`crate::FrameKind`]; `process` for the first line of a stack.
    pub kind: String,
    /// Whether it was inlined into the line before.
    pub inlined: bool,
}

/// Stacks of any number of requests with the sum of their values.
///
/// Values are nanoseconds where the requests say how long a sample is, so that packets of different frequencies add up; else they
/// are what the requests count. One kind of sample is added up, that of the first profile.
#[derive(Debug)]
pub struct Weights {
    labels: Table<Label>,
    /// Labels, root first; the first is the process.
    stacks: Lists<u32>,
    /// For each stack.
    values: Vec<i64>,
    /// Lines that stacks may still take.
    room: usize,
    left_out: u64,
    packets: HashSet<PacketId>,
    kind: Option<(String, String)>,
    samples: u64,
    other_kinds: u64,
    lost: BTreeMap<String, u64>,
    whole: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            labels: Table::new(Label::default()),
            stacks: Lists::new(),
            values: vec![0],
            room: MAX_LINES,
            left_out: 0,
            packets: HashSet::new(),
            kind: None,
            samples: 0,
            other_kinds: 0,
            lost: BTreeMap::new(),
            whole: 0,
        }
    }
}

impl Weights {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing yet, and room for stacks of so many lines in all, 4 bytes each, instead of 67 million.
    #[must_use]
    pub fn with_room(lines: usize) -> Self {
        Self { room: lines, ..Self::default() }
    }

    /// Adds a request's samples. `false` if the same packet was added before: nothing is added then.
    pub fn add(&mut self, request: &Request<'_>) -> bool {
        if request.packet_id().is_some_and(|id| !self.packets.insert(id)) {
            return false;
        }
        for (class, count) in request.losses() {
            let sum = self.lost.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        let d = &request.dictionary;
        let mut expand = Expand::of(d);
        for resource in &request.resources {
            let process = Label {
                name: process_name(resource, d),
                module: resource.find_text(d, keys::EXECUTABLE_PATH).unwrap_or_default().to_owned(),
                kind: "process".to_owned(),
                inlined: false,
            };
            let process = self.labels.intern(process);
            for profile in &resource.profiles {
                self.profile(profile, process, &mut expand);
            }
        }
        true
    }

    fn profile(&mut self, profile: &Profile<'_>, process: u32, expand: &mut Expand<'_, '_>) {
        let d = expand.dictionary;
        let (kind, unit, factor) = measure(d, profile);
        let known = self.kind.get_or_insert_with(|| (kind.to_owned(), unit.to_owned()));
        if (known.0.as_str(), known.1.as_str()) != (kind, unit) {
            self.other_kinds +=
                profile.samples.iter().map(|sample| sample.events().count() as u64).sum::<u64>();
            return;
        }
        for sample in &profile.samples {
            let count = sample.events().count() as u64;
            let pair = (process, sample.stack);
            let stack = match expand.known.get(&pair) {
                Some(stack) => *stack,
                None => {
                    let stack = self.stack(pair, expand);
                    expand.known.insert(pair, stack);
                    stack
                }
            };
            let Some(sum) = stack.and_then(|stack| self.values.get_mut(stack as usize)) else {
                self.left_out += count;
                continue;
            };
            *sum = sum.saturating_add(sample.total().saturating_mul(factor));
            self.samples += count;
            if d.find_text(&sample.attributes, keys::STATUS).is_none_or(|status| status == "root") {
                self.whole += count;
            }
        }
    }

    /// The number of a process's stack; none if there is no room for it.
    fn stack(&mut self, (process, index): (u32, u32), expand: &mut Expand<'_, '_>) -> Option<u32> {
        let length = 1 + expand.lengths.get(index as usize).copied().unwrap_or_default();
        expand.work = expand.work.checked_sub(length)?;
        let mut stack = Vec::with_capacity(length);
        stack.push(process);
        let d = expand.dictionary;
        let indices = d.stacks.get(index as usize).map(Vec::as_slice).unwrap_or_default();
        for &index in indices.iter().rev() {
            if let (Some(location), Some(lines)) =
                (d.locations.get(index as usize), expand.lines.get_mut(index as usize))
            {
                stack.extend(
                    &*lines.get_or_insert_with(|| location_lines(&mut self.labels, d, location)),
                );
            }
        }
        if length > self.room {
            return None;
        }
        let id = self.stacks.intern(&stack);
        if id as usize == self.values.len() {
            self.values.push(0);
            self.room -= length;
        }
        Some(id)
    }

    /// Samples that are not in it because there was no room for their stacks.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What is counted and in which unit, such as `cpu` and `nanoseconds`; empty before the first request.
    #[must_use]
    pub fn kind(&self) -> (&str, &str) {
        self.kind.as_ref().map_or(("", ""), |(kind, unit)| (kind, unit))
    }

    /// Samples that were added.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Of these, those whose stacks were unwound to the root.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Samples of another kind than the first, which were not.
    #[must_use]
    pub fn other_kinds(&self) -> u64 {
        self.other_kinds
    }

    /// Samples that were lost, by class, as the packets say.
    #[must_use]
    pub fn lost(&self) -> &BTreeMap<String, u64> {
        &self.lost
    }

    /// The sum of all.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.values.iter().fold(0, |sum, value| sum.saturating_add(*value))
    }

    /// Stacks with their values, root first, in the order of their texts.
    #[must_use]
    pub fn stacks(&self) -> Vec<(Vec<&Label>, i64)> {
        let named = |(stack, value): (&[u32], &i64)| {
            (stack.iter().map(|&label| self.labels.get(label)).collect::<Vec<_>>(), *value)
        };
        let mut stacks: Vec<_> = self.stacks.iter().zip(&self.values).skip(1).map(named).collect();
        stacks.sort();
        stacks
    }

    /// A value as people read it.
    #[must_use]
    pub fn amount(&self, value: i64) -> String {
        amount(value, self.kind().1)
    }
}

/// Stacks of one request being turned into lines: each stack of a process once.
struct Expand<'r, 'a> {
    dictionary: &'r Dictionary<'a>,
    /// Lines of each stack.
    lengths: Vec<usize>,
    /// Lines of each location, once they were asked for.
    lines: Vec<Option<Vec<u32>>>,
    known: HashMap<(u32, u32), Option<u32>>,
    /// Lines that may still be made.
    work: usize,
}

impl<'r, 'a> Expand<'r, 'a> {
    fn of(dictionary: &'r Dictionary<'a>) -> Self {
        let lines = vec![None; dictionary.locations.len()];
        Self {
            dictionary,
            lengths: lengths(dictionary),
            lines,
            known: HashMap::new(),
            work: MAX_LINES,
        }
    }
}

/// The number of lines of each stack.
pub(super) fn lengths(d: &Dictionary<'_>) -> Vec<usize> {
    let of = |index: &u32| {
        d.locations.get(*index as usize).map_or(0, |location| location.lines.len().max(1))
    };
    d.stacks.iter().map(|stack| stack.iter().map(of).fold(0, usize::saturating_add)).collect()
}

/// Kind and unit of a profile's values, and what to multiply them with.
pub(super) fn measure<'a>(d: &Dictionary<'a>, profile: &Profile<'a>) -> (&'a str, &'a str, i64) {
    let (kind, unit) = (d.string(profile.sample_type.kind), d.string(profile.sample_type.unit));
    let (timed, period_unit) =
        (d.string(profile.period_type.kind), d.string(profile.period_type.unit));
    if unit == keys::COUNT && period_unit == keys::NANOSECONDS && profile.period > 0 {
        (timed, period_unit, profile.period)
    } else {
        (kind, unit, 1)
    }
}

pub(super) fn process_name(resource: &ResourceProfiles<'_>, d: &Dictionary<'_>) -> String {
    let name = resource
        .find_text(d, keys::EXECUTABLE_NAME)
        .or_else(|| resource.find_text(d, keys::SERVICE_NAME))
        .filter(|name| !name.is_empty());
    match (name, resource.find(d, keys::PID)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(AttributeValue::Int(pid))) => format!("process {pid}"),
        (None, _) => "process".to_owned(),
    }
}

/// The lines of a location, outermost first.
fn location_lines(labels: &mut Table<Label>, d: &Dictionary<'_>, location: &Location) -> Vec<u32> {
    let kind = d.find_text(&location.attributes, keys::FRAME_TYPE).unwrap_or_default();
    let mapping = d.mappings.get(location.mapping as usize).map(|mapping| d.string(mapping.path));
    let path = mapping.filter(|path| !path.is_empty());
    let path =
        path.or_else(|| d.find_text(&location.attributes, keys::MAPPED_PATH)).unwrap_or_default();
    let mut add = |name: &str, module: &str, inlined| {
        let label = Label {
            name: name.to_owned(),
            module: module.to_owned(),
            kind: kind.to_owned(),
            inlined,
        };
        labels.intern(label)
    };
    if location.lines.is_empty() {
        return vec![add(&unnamed(path, location.address), path, false)];
    }
    let outermost = location.lines.len() - 1;
    let lines = location.lines.iter().enumerate().rev();
    lines
        .map(|(at, line)| {
            let function = d.functions.get(line.function as usize).copied().unwrap_or_default();
            let texts =
                [function.name, function.system_name, function.file].map(|text| d.string(text));
            let name = texts.iter().copied().find(|text| !text.is_empty()).unwrap_or("?");
            let source = texts.last().copied().unwrap_or_default();
            add(name, if path.is_empty() { source } else { path }, at != outermost)
        })
        .collect()
}

/// What stands for a name: the file and the address in it, which with the build ID tell it later.
pub(super) fn unnamed(path: &str, address: u64) -> String {
    let file = path.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("?");
    format!("{file}+{address:#x}")
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn amount(value: i64, unit: &str) -> String {
    let number = value as f64;
    match (unit, value.unsigned_abs()) {
        ("nanoseconds", 10_000_000_000..) => format!("{:.1} s", number / 1e9),
        ("nanoseconds", 1_000_000_000..) => format!("{:.2} s", number / 1e9),
        ("nanoseconds", 1_000_000..) => format!("{:.1} ms", number / 1e6),
        ("nanoseconds", 1_000..) => format!("{:.1} µs", number / 1e3),
        ("nanoseconds", _) => format!("{value} ns"),
        ("bytes", 1_048_576..) => format!("{:.1} MiB", number / 1_048_576.0),
        ("bytes", 1_024..) => format!("{:.1} KiB", number / 1_024.0),
        ("bytes", _) => format!("{value} B"),
        _ => value.to_string(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
pub(super) fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
