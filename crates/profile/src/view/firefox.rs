//! The Firefox Profiler's processed profile format, version 48: `profiler.firefox.com` opens it as a file.
//!
//! Threads keep their samples one by one with their times, so this view shows when something ran, too. Tables belong to threads there.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use serde_json::{Value, json};

use super::weights::{MAX_LINES, lengths, measure, process_name, unnamed};
use crate::keys;
use crate::request::{
    AttributeValue, Dictionary, Location, Profile, Request, ResourceProfiles, Sample,
};
use model::intern::{Table, Texts};

const CATEGORIES: [(&str, &str); 4] =
    [("Other", "grey"), ("User", "yellow"), ("Kernel", "orange"), ("Interpreted", "green")];

/// Requests as one JSON document, each packet once. Times count from the earliest begin. Samples of the kind of the first profile are
/// taken; those without times are put at their profile's begin.
#[must_use]
pub fn firefox(requests: &[Request<'_>]) -> String {
    let mut seen = HashSet::new();
    let requests: Vec<_> =
        requests.iter().filter(|r| r.packet_id().is_none_or(|id| seen.insert(id))).collect();
    let profiles =
        || requests.iter().flat_map(|r| r.resources.iter().flat_map(|resource| &resource.profiles));
    let begin_ns = profiles().map(|profile| profile.time_unix_ns).min().unwrap_or_default();
    let interval_ns =
        profiles().map(|profile| profile.period).find(|period| *period > 0).unwrap_or(1_000_000);
    let mut threads: BTreeMap<(i64, i64), Thread> = BTreeMap::new();
    let mut kind: Option<(String, String)> = None;
    let mut budget = (MAX_LINES, 0);
    for request in requests {
        let lengths = lengths(&request.dictionary);
        for resource in &request.resources {
            for profile in &resource.profiles {
                let (of, unit, factor) = measure(&request.dictionary, profile);
                let known = kind.get_or_insert_with(|| (of.to_owned(), unit.to_owned()));
                if (known.0.as_str(), known.1.as_str()) == (of, unit) {
                    take(
                        (&request.dictionary, &lengths),
                        resource,
                        profile,
                        (begin_ns, factor),
                        &mut threads,
                        &mut budget,
                    );
                }
            }
        }
    }
    let left_out = json!({ "label": "Samples left out", "format": "integer", "value": budget.1 });
    let extra = match budget.1 {
        0 => json!([]),
        _ => json!([{ "label": "Throughline", "entries": [left_out] }]),
    };
    let categories: Vec<_> = CATEGORIES
        .iter()
        .map(|(name, color)| json!({ "name": name, "color": color, "subcategories": ["Other"] }))
        .collect();
    json!({
        "meta": {
            "version": 24,
            "preprocessedProfileVersion": 48,
            "interval": milliseconds(interval_ns),
            "startTime": milliseconds(i64::try_from(begin_ns).unwrap_or(i64::MAX)),
            "processType": 0,
            "product": "Throughline",
            "stackwalk": 1,
            "debug": false,
            "symbolicated": true,
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
            "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
            "sourceCodeIsNotOnSearchfox": true,
            "categories": categories,
            "markerSchema": [],
            "extra": extra,
        },
        "libs": [],
        "pages": [],
        "counters": [],
        "profilerOverhead": [],
        "threads": threads.into_iter().map(|((pid, tid), thread)| thread.json(pid, tid)).collect::<Vec<_>>(),
    })
    .to_string()
}

#[derive(Debug)]
struct Thread {
    process: String,
    name: String,
    strings: Texts,
    /// Name, source file, line on which it begins.
    functions: Table<(u32, u32, i64)>,
    frames: Table<FrameRow>,
    stacks: Table<(u32, u32)>,
    /// Offset in nanoseconds, stack, weight.
    samples: Vec<(i64, u32, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct FrameRow {
    function: u32,
    address: u64,
    inline_depth: u32,
    category: u32,
    line: i64,
}

fn take(
    (d, lengths): (&Dictionary<'_>, &[usize]),
    resource: &ResourceProfiles<'_>,
    profile: &Profile<'_>,
    (begin_ns, factor): (u64, i64),
    threads: &mut BTreeMap<(i64, i64), Thread>,
    (room, left_out): &mut (usize, u64),
) {
    let number = |value| if let Some(AttributeValue::Int(number)) = value { number } else { 0 };
    let pid = number(resource.find(d, keys::PID));
    let mut stacks = HashMap::new();
    for sample in &profile.samples {
        let tid = number(d.find(&sample.attributes, keys::THREAD_ID));
        let thread = threads.entry((pid, tid)).or_insert_with(|| Thread::new(d, resource, sample));
        let stack = *stacks.entry((tid, sample.stack)).or_insert_with(|| {
            let length = lengths.get(sample.stack as usize).copied().unwrap_or_default();
            *room = room.checked_sub(length)?;
            Some(thread.stack(d, sample.stack))
        });
        let Some(stack) = stack else {
            *left_out += sample.events().count() as u64;
            continue;
        };
        for (at, value) in sample.events() {
            let offset = at.unwrap_or(profile.time_unix_ns).saturating_sub(begin_ns);
            let offset = i64::try_from(offset).unwrap_or(i64::MAX);
            thread.samples.push((offset, stack, value.saturating_mul(factor)));
        }
    }
}

impl Thread {
    fn new(d: &Dictionary<'_>, resource: &ResourceProfiles<'_>, sample: &Sample) -> Self {
        let process = process_name(resource, d);
        let name =
            d.find_text(&sample.attributes, keys::THREAD_NAME).unwrap_or(&process).to_owned();
        Self {
            process,
            name,
            strings: Texts::new(),
            functions: Table::new((0, 0, 0)),
            frames: Table::new(FrameRow::default()),
            stacks: Table::new((0, 0)),
            samples: Vec::new(),
        }
    }

    /// The number of a stack; 0 of an empty one.
    fn stack(&mut self, d: &Dictionary<'_>, index: u32) -> u32 {
        let mut prefix = 0;
        let locations: Vec<&Location> = d.stack(index).rev().collect();
        for location in locations {
            for row in self.rows(d, location) {
                let frame = self.frames.intern(row);
                prefix = self.stacks.intern((frame, prefix));
            }
        }
        prefix
    }

    /// Frames of a location, outermost first.
    fn rows(&mut self, d: &Dictionary<'_>, location: &Location) -> Vec<FrameRow> {
        let category = match d.find_text(&location.attributes, keys::FRAME_TYPE) {
            Some("kernel") => 2,
            Some("native" | "go" | "rust") => 1,
            Some(_) => 3,
            None => 0,
        };
        let path = d.mappings.get(location.mapping as usize).map(|mapping| d.string(mapping.path));
        let row = FrameRow { address: location.address, category, ..FrameRow::default() };
        if location.lines.is_empty() {
            let name = self.strings.intern(&unnamed(path.unwrap_or_default(), location.address));
            return vec![FrameRow { function: self.functions.intern((name, 0, 0)), ..row }];
        }
        let lines = (0..).zip(location.lines.iter().rev());
        lines
            .map(|(inline_depth, line)| {
                let function = d.functions.get(line.function as usize).copied().unwrap_or_default();
                let name = if function.name == 0 { function.system_name } else { function.name };
                let (name, file) = (
                    self.strings.intern(d.string(name)),
                    self.strings.intern(d.string(function.file)),
                );
                FrameRow {
                    function: self.functions.intern((name, file, function.start_line)),
                    inline_depth,
                    line: line.line,
                    ..row
                }
            })
            .collect()
    }

    fn json(mut self, pid: i64, tid: i64) -> Value {
        self.samples.sort_unstable();
        let (samples, frames, stacks, functions) =
            (self.samples.len(), self.frames.len(), self.stacks.len() - 1, self.functions.len());
        // Stack 0 is the empty one, which is null there: the others count from 0.
        let stack = |id: u32| id.checked_sub(1);
        json!({
            "processType": "default",
            "processName": self.process,
            "processStartupTime": 0,
            "processShutdownTime": null,
            "registerTime": 0,
            "unregisterTime": null,
            "pausedRanges": [],
            "name": self.name,
            "isMainThread": pid == tid,
            "pid": pid.to_string(),
            "tid": tid,
            "samples": {
                "length": samples,
                "stack": column(&self.samples, |sample| json!(stack(sample.1))),
                "time": column(&self.samples, |sample| json!(milliseconds(sample.0))),
                "weight": column(&self.samples, |sample| json!(milliseconds(sample.2))),
                "weightType": "tracing-ms",
                "threadCPUDelta": vec![Value::Null; samples],
            },
            "markers": {
                "length": 0, "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "data": [],
            },
            "stackTable": {
                "length": stacks,
                "frame": column(self.stacks.iter().skip(1), |row| json!(row.0)),
                "prefix": column(self.stacks.iter().skip(1), |row| json!(stack(row.1))),
                "category": column(self.stacks.iter().skip(1), |row| json!(self.frames.get(row.0).category)),
                "subcategory": vec![0; stacks],
            },
            "frameTable": {
                "length": frames,
                "address": column(self.frames.iter(), |row| json!(row.address)),
                "inlineDepth": column(self.frames.iter(), |row| json!(row.inline_depth)),
                "category": column(self.frames.iter(), |row| json!(row.category)),
                "subcategory": vec![0; frames],
                "func": column(self.frames.iter(), |row| json!(row.function)),
                "nativeSymbol": vec![Value::Null; frames],
                "innerWindowID": vec![Value::Null; frames],
                "implementation": vec![Value::Null; frames],
                "line": column(self.frames.iter(), |row| json!((row.line > 0).then_some(row.line))),
                "column": vec![Value::Null; frames],
            },
            "funcTable": {
                "length": functions,
                "name": column(self.functions.iter(), |row| json!(row.0)),
                "isJS": vec![false; functions],
                "relevantForJS": vec![false; functions],
                "resource": vec![-1; functions],
                "fileName": column(self.functions.iter(), |row| json!((row.1 != 0).then_some(row.1))),
                "lineNumber": column(self.functions.iter(), |row| json!((row.2 > 0).then_some(row.2))),
                "columnNumber": vec![Value::Null; functions],
            },
            "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
            "nativeSymbols": { "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [] },
            "stringArray": column(self.strings.iter(), |text| json!(text)),
        })
    }
}

fn column<T>(rows: impl IntoIterator<Item = T>, value: impl Fn(T) -> Value) -> Vec<Value> {
    rows.into_iter().map(value).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the format counts in fractions of milliseconds")]
fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}
