//! The Firefox Profiler's processed profile: one JSON object, to be opened at `profiler.firefox.com`.
//!
//! Each row is a thread with markers: spans as intervals, the rest as instants, the fields of event records as data.
//! Each CPU is a thread, too, whose markers are the threads that ran on it. Source: `docs-developer/` of
//! firefox-devtools/profiler, preprocessed profile version 48.
//!
//! The format wants whole columns of each thread, so markers are kept until the end: at most [`MAX_MARKERS`], and the
//! rest is counted. The profiler itself takes no more.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::ControlFlow;

use model::Timestamp;

use crate::scene::{Argument, Arguments, Canvas, Lane, LaneKey, Mark, Scene, Switch};
use crate::viewer::{self, Summary, ViewerError, ViewerOptions};

/// The most markers of a profile.
pub const MAX_MARKERS: u64 = 2_000_000;

/// Writes all event records at or below `inputs` as one profile.
///
/// # Errors
/// [`ViewerError`]: inputs that cannot be read at all, an output that cannot be written, or a `progress`, which is told
/// the event records so far, that says to stop.
pub fn write<P: AsRef<std::path::Path>>(
    inputs: &[P],
    options: &ViewerOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Summary, ViewerError> {
    let mut profile = Profile::new(out);
    viewer::run(inputs, options, &mut profile, progress)
}

/// Positions in the list of categories.
const OTHER: usize = 0;
const SPAN: usize = 1;
const RUNNING: usize = 2;

/// A marker; `data` is a JSON object.
struct Marker {
    /// Position in the thread's texts.
    name: usize,
    begin: Timestamp,
    end: Option<Timestamp>,
    category: usize,
    data: String,
}

/// One row.
#[derive(Default)]
struct Thread {
    markers: Vec<Marker>,
    texts: Vec<String>,
    by_text: HashMap<String, usize>,
    /// Spans that have begun: name, begin and data.
    open: Vec<(usize, Timestamp, String)>,
}

impl Thread {
    /// Of a CPU: ends the marker of what runs on it.
    fn stop_running(&mut self, at: Timestamp) {
        if let Some((name, begin, data)) = self.open.pop() {
            self.markers.push(Marker { name, begin, end: Some(at), category: RUNNING, data });
        }
    }

    fn text(&mut self, text: &str) -> usize {
        if let Some(&known) = self.by_text.get(text) {
            return known;
        }
        let position = self.texts.len();
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), position);
        position
    }
}

struct Profile<'o> {
    out: &'o mut dyn Write,
    /// As the scene's rows.
    lanes: Vec<Thread>,
    /// By CPU: what ran on it, and what runs.
    cpus: BTreeMap<u64, Thread>,
    markers: u64,
    left_out: u64,
    first: Option<Timestamp>,
    last: Timestamp,
}

impl<'o> Profile<'o> {
    fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            lanes: Vec::new(),
            cpus: BTreeMap::new(),
            markers: 0,
            left_out: 0,
            first: None,
            last: Timestamp::MIN,
        }
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.markers < MAX_MARKERS;
        *(if has_room { &mut self.markers } else { &mut self.left_out }) += 1;
        has_room
    }

    fn switch(&mut self, at: Timestamp, cpu: u64, switch: &Switch) {
        if !self.has_room() {
            return;
        }
        let thread = self.cpus.entry(cpu).or_default();
        thread.stop_running(at);
        // Idle CPUs show nothing.
        if switch.next_tid != 0 {
            let name = thread.text(&switch.next_comm);
            let arguments = vec![
                ("tid".to_owned(), Argument::Signed(switch.next_tid)),
                ("prio".to_owned(), Argument::Signed(switch.next_prio)),
            ];
            thread.open.push((name, at, data(&arguments)));
        }
    }
}

impl Canvas for Profile<'_> {
    type Error = io::Error;

    fn mark(&mut self, at: Timestamp, mark: Mark<'_>, lanes: &[Lane]) -> io::Result<()> {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = self.last.max(at);
        self.lanes.resize_with(lanes.len(), Thread::default);
        match mark {
            Mark::Lane(_) => {}
            Mark::Switch { cpu, switch } => self.switch(at, cpu, switch),
            Mark::Begin { lane, name, arguments } => {
                if let Some(thread) = self.lanes.get_mut(lane) {
                    let name = thread.text(name);
                    thread.open.push((name, at, data(arguments)));
                }
            }
            Mark::End { lane, arguments } => {
                let has_room = self.has_room();
                let Some(thread) = self.lanes.get_mut(lane) else { return Ok(()) };
                if let Some((name, begin, said)) = thread.open.pop().filter(|_| has_room) {
                    // What is said at the end follows what was said at the begin.
                    let data = joined(&said, &data(arguments));
                    let end = Some(at);
                    thread.markers.push(Marker { name, begin, end, category: SPAN, data });
                }
            }
            Mark::Instant { lane, name, arguments } => {
                if self.has_room()
                    && let Some(thread) = self.lanes.get_mut(lane)
                {
                    let name = thread.text(name);
                    let data = data(arguments);
                    thread.markers.push(Marker {
                        name,
                        begin: at,
                        end: None,
                        category: OTHER,
                        data,
                    });
                }
            }
        }
        Ok(())
    }
}

impl viewer::Viewer for Profile<'_> {
    fn finish(&mut self, scene: &Scene) -> io::Result<u64> {
        let first = self.first.unwrap_or(Timestamp::from_nanos(0));
        self.out.write_all(head(first).as_bytes())?;
        let mut is_first = true;
        for (lane, thread) in scene.lanes.iter().zip(&self.lanes) {
            if thread.markers.is_empty() {
                continue;
            }
            let tid = match &lane.key {
                LaneKey::Thread { tid, .. } => *tid,
                LaneKey::Cpu { .. } | LaneKey::Process { .. } => lane.pid,
            };
            let host = match &lane.key {
                LaneKey::Thread { host, .. }
                | LaneKey::Cpu { host, .. }
                | LaneKey::Process { host, .. } => host.as_deref(),
            };
            let row = Row { name: &lane.name, process: host, pid: lane.pid, tid, first };
            self.out.write_all(separator(&mut is_first))?;
            row.write(thread, self.out)?;
        }
        for (cpu, thread) in &mut self.cpus {
            thread.stop_running(self.last);
            let name = format!("CPU {cpu}");
            let tid = i64::try_from(*cpu).unwrap_or(i64::MAX);
            let row = Row { name: &name, process: Some("CPUs"), pid: 0, tid, first };
            self.out.write_all(separator(&mut is_first))?;
            row.write(thread, self.out)?;
        }
        self.out.write_all(b"]}")?;
        self.out.flush()?;
        Ok(self.left_out)
    }
}

fn separator(is_first: &mut bool) -> &'static [u8] {
    if std::mem::replace(is_first, false) { b"" } else { b",\n" }
}

/// Everything before the threads.
fn head(first: Timestamp) -> String {
    let schema = |name: &str, label: &str| {
        format!(
            r#"{{"name":"{name}","tooltipLabel":"{{marker.name}}","tableLabel":"{label}","chartLabel":"{{marker.name}}","display":["marker-chart","marker-table","timeline-overview"],"data":[{{"key":"fields","label":"Fields","format":"string","searchable":true}}]}}"#
        )
    };
    let category = |name: &str, color: &str| {
        format!(r#"{{"name":"{name}","color":"{color}","subcategories":["Other"]}}"#)
    };
    let categories =
        [category("Other", "grey"), category("Span", "blue"), category("Running", "green")];
    format!(
        concat!(
            r#"{{"meta":{{"version":24,"preprocessedProfileVersion":48,"interval":1,"startTime":{},"#,
            r#""processType":0,"product":"Throughline","stackwalk":0,"debug":false,"symbolicated":true,"#,
            r#""sampleUnits":{{"time":"ms","eventDelay":"ms","threadCPUDelta":"ns"}},"#,
            r#""extensions":{{"length":0,"baseURL":[],"id":[],"name":[]}},"sourceCodeIsNotOnSearchfox":true,"#,
            r#""categories":[{}],"markerSchema":[{}]}},"libs":[],"pages":[],"counters":[],"#,
            r#""profilerOverhead":[],"threads":["#,
        ),
        milliseconds(first.nanos()),
        categories.join(","),
        schema("event", "{marker.data.fields}"),
    )
}

/// A row's place among the others.
struct Row<'r> {
    name: &'r str,
    process: Option<&'r str>,
    pid: i64,
    tid: i64,
    first: Timestamp,
}

impl Row<'_> {
    fn write(&self, thread: &Thread, out: &mut dyn Write) -> io::Result<()> {
        let Self { name, process, pid, tid, first } = self;
        write!(
            out,
            r#"{{"processType":"default","processName":{},"processStartupTime":0,"processShutdownTime":null,"registerTime":0,"unregisterTime":null,"pausedRanges":[],"name":{},"isMainThread":{},"pid":"{pid}","tid":{tid},"showMarkersInTimeline":true,"#,
            quoted(process.unwrap_or(name)),
            quoted(name),
            pid == tid,
        )?;
        let markers = &thread.markers;
        out.write_all(br#""markers":{"#)?;
        let since = |at: Timestamp| milliseconds(at.nanos().saturating_sub(first.nanos()));
        column(out, "name", markers, |marker| marker.name.to_string())?;
        column(out, "startTime", markers, |marker| since(marker.begin))?;
        column(out, "endTime", markers, |marker| {
            marker.end.map_or_else(|| "null".to_owned(), since)
        })?;
        // 0: an instant, 1: an interval.
        column(out, "phase", markers, |marker| u8::from(marker.end.is_some()).to_string())?;
        column(out, "category", markers, |marker| marker.category.to_string())?;
        column(out, "data", markers, |marker| {
            format!(r#"{{"type":"event","fields":{}}}"#, quoted(&marker.data))
        })?;
        write!(out, r#""length":{}}},"#, markers.len())?;
        out.write_all(EMPTY_TABLES.as_bytes())?;
        let texts: Vec<String> = thread.texts.iter().map(|text| quoted(text)).collect();
        write!(out, r#""stringArray":[{}]}}"#, texts.join(","))
    }
}

/// There are no samples.
const EMPTY_TABLES: &str = concat!(
    r#""samples":{"length":0,"stack":[],"time":[],"weight":null,"weightType":"samples","threadCPUDelta":[]},"#,
    r#""stackTable":{"length":0,"frame":[],"prefix":[],"category":[],"subcategory":[]},"#,
    r#""frameTable":{"length":0,"address":[],"inlineDepth":[],"category":[],"subcategory":[],"func":[],"#,
    r#""nativeSymbol":[],"innerWindowID":[],"implementation":[],"line":[],"column":[]},"#,
    r#""funcTable":{"length":0,"name":[],"isJS":[],"relevantForJS":[],"resource":[],"fileName":[],"#,
    r#""lineNumber":[],"columnNumber":[]},"#,
    r#""resourceTable":{"length":0,"lib":[],"name":[],"host":[],"type":[]},"#,
    r#""nativeSymbols":{"length":0,"libIndex":[],"address":[],"name":[],"functionSize":[]},"#,
);

fn column(
    out: &mut dyn Write,
    name: &str,
    markers: &[Marker],
    value: impl Fn(&Marker) -> String,
) -> io::Result<()> {
    write!(out, "\"{name}\":[")?;
    for (index, marker) in markers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}{}", value(marker))?;
    }
    out.write_all(b"],")
}

/// Milliseconds with all six digits behind the point.
fn milliseconds(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    format!("{sign}{}.{:06}", nanos / 1_000_000, nanos % 1_000_000)
}

/// Fields as `name = value`, separated by commas.
fn data(arguments: &Arguments) -> String {
    let one = |(name, value): &(String, Argument)| match value {
        Argument::Unsigned(number) => format!("{name} = {number}"),
        Argument::Signed(number) => format!("{name} = {number}"),
        Argument::Float(number) => format!("{name} = {number}"),
        Argument::Bool(truth) => format!("{name} = {truth}"),
        Argument::Text(text) => format!("{name} = {text:?}"),
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn joined(begin: &str, end: &str) -> String {
    match (begin, end) {
        ("", only) | (only, "") => only.to_owned(),
        (begin, end) => format!("{begin} … {end}"),
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if u32::from(control) < 0x20 => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
