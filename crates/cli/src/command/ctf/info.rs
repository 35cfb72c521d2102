//! `throughline ctf info PATH…`: what traces hold, from metadata, indexes and packet headers.

use std::io::{self, Write};
use std::path::PathBuf;

use super::classes::{self, Events};
use anyhow::Context;
use clap::ValueEnum;
use ctf::{ClockClass, ClockOrigin, CtfVersion, EnvValue, TraceClass};
use model::Timestamp;
use serde_json::{Value, json};
use tracedir::manifest::{self, Manifest, SealedBy, StreamLosses};
use tracedir::{
    ClassCache, Correlate, Findings, LogicalTrace, ReadOptions, Recording, StreamSurvey,
};

use crate::command::read::summary::tell;
use crate::outcome::{Outcome, complain, plain};
use crate::table::{Align, Table};
use crate::units::{rfc3339, size};

const EXAMPLES: &str = "\
Examples:
  throughline ctf info session/                          every trace below a folder
  throughline ctf info --events session/                 also how many event records there are of each class
  throughline ctf info --fields session/                 also the fields of each class
  throughline ctf info --format json session/ | jq '.traces[].streams[].packets'

What the manifests of sealed chunks say is shown as it is; `ctf check` compares it with the chunk.

Exit code 1: some of the data cannot be read; the rest was.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How the answer is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also count the event records of each stream and class, which reads all of them
    #[arg(long)]
    events: bool,
    /// Also show the fields of each event record class
    #[arg(long)]
    fields: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned tables
    Table,
    /// One JSON object
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let options = ReadOptions { correlate: Correlate::Unchecked, ..ReadOptions::default() };
    let recording = Recording::open_as(&args.paths, &options, &mut ClassCache::default())
        .context("cannot read")?;
    let mut findings = Findings::default();
    let streams = recording.survey(&mut findings);
    let (events, complete) = if args.events {
        let (events, complete) = Events::count(&recording, &streams);
        (Some(events), complete)
    } else {
        (None, true)
    };
    let (manifests, all_manifests) = manifests(&args.paths);
    let fields = args.fields;
    let view = View { recording: &recording, streams: &streams, events, fields, manifests };
    let text = match args.format {
        Format::Table => tables(&view),
        Format::Json => format!("{}\n", document(&view)),
    };
    let written = io::stdout().lock().write_all(text.as_bytes());
    written.context("cannot write to standard output")?;
    let lacks = [recording.findings(), &findings].into_iter().map(tell).max();
    let is_whole = lacks != Some(true) && complete && all_manifests;
    Ok(if is_whole { Outcome::Done } else { Outcome::No })
}

/// The manifests below the paths by folder; those that cannot be read are told. Says whether all could be.
fn manifests(paths: &[PathBuf]) -> (Vec<(PathBuf, Manifest)>, bool) {
    let (mut manifests, mut all) = (Vec::new(), true);
    for folder in manifest::find(paths) {
        match Manifest::read(&folder) {
            Ok(Some(manifest)) => manifests.push((folder, manifest)),
            Ok(None) => {}
            Err(unreadable) => {
                complain(&format!("{}: {unreadable}", folder.display()));
                all = false;
            }
        }
    }
    (manifests, all)
}

/// What is shown.
struct View<'r> {
    recording: &'r Recording,
    streams: &'r [StreamSurvey],
    events: Option<Events>,
    fields: bool,
    /// Of sealed chunks, by folder.
    manifests: Vec<(PathBuf, Manifest)>,
}

impl View<'_> {
    /// The streams of one trace, each with its number of event records where they were counted.
    fn of_trace(&self, index: usize) -> Vec<(&StreamSurvey, Option<u64>)> {
        let counted = |at: usize| self.events.as_ref()?.of_stream.get(at).copied();
        let streams = self.streams.iter().enumerate();
        let own = streams.filter(|(_, stream)| stream.trace_index == Some(index));
        own.map(|(at, stream)| (stream, counted(at))).collect()
    }

    const fn shows_classes(&self) -> bool {
        self.events.is_some() || self.fields
    }
}

fn tables(view: &View<'_>) -> String {
    let mut out = String::new();
    for (index, trace) in view.recording.traces().iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        trace_table(trace, &mut out);
        clock_table(trace.class(), &mut out);
        stream_table(&view.of_trace(index), &mut out);
        if view.shows_classes() {
            classes::table(trace, index, view.events.as_ref(), view.fields, &mut out);
        }
    }
    manifest_table(&view.manifests, &mut out);
    out
}

fn manifest_table(manifests: &[(PathBuf, Manifest)], out: &mut String) {
    if manifests.is_empty() {
        return;
    }
    let mut table = Table::new(
        ["sealed chunk", "by", "files", "size", "streams", "packets", "lost"],
        [
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Left,
        ],
    );
    for (_, Manifest { origin, contents, losses, .. }) in manifests {
        let sum = |of: fn(&StreamLosses) -> u64| losses.iter().map(of).sum::<u64>();
        let losses = [
            (sum(|lost| lost.tracer_event_records), "event records by the tracer"),
            (sum(|lost| lost.tracer_packets), "packets by the tracer"),
            (sum(|lost| lost.network_packets), "packets by the network"),
        ];
        let losses: Vec<String> = losses
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let by = match origin.sealed_by {
            SealedBy::Closed => "producer",
            SealedBy::ProducerGone => "end of the producer",
            SealedBy::Interrupted => "next start of the relay",
        };
        table.row([
            format!("{} of {}", origin.chunk, plain(&origin.folder)),
            by.to_owned(),
            contents.totals.files.to_string(),
            size(contents.totals.bytes),
            contents.streams.len().to_string(),
            contents.totals.packets.to_string(),
            if losses.is_empty() { "-".to_owned() } else { losses.join(", ") },
        ]);
    }
    out.push('\n');
    table.render("", out);
}

fn trace_table(trace: &LogicalTrace, out: &mut String) {
    let class = trace.class();
    let mut table = Table::new(["trace", &name(trace)], [Align::Left; 2]);
    let mut row = |key: &str, value: String| table.row([key.to_owned(), value]);
    row("format", version(class).to_owned());
    for folder in trace.folders().iter().take(SHOWN_FOLDERS) {
        row("folder", folder.display().to_string());
    }
    if trace.folders().len() > SHOWN_FOLDERS {
        row("folder", format!("and {} more", trace.folders().len() - SHOWN_FOLDERS));
    }
    for (key, value) in class.environment() {
        row(key, env_text(value));
    }
    row("event record classes", class.event_record_classes().len().to_string());
    table.render("", out);
}

/// A trace of many rotation chunks has as many folders.
const SHOWN_FOLDERS: usize = 4;

/// What a trace is called: its UUID, or the names that CTF 2 knows, or its first folder.
fn name(trace: &LogicalTrace) -> String {
    let identity = trace.class().identity();
    let names = [&identity.namespace, &identity.name, &identity.uid];
    let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    match (trace.uuid(), &*names) {
        (Some(uuid), _) => uuid.to_string(),
        (None, []) => "without a UUID".to_owned(),
        (None, names) => names.join("/"),
    }
}

const fn version(class: &TraceClass) -> &'static str {
    match class.version() {
        CtfVersion::V1_8 => "CTF 1.8",
        CtfVersion::V2 => "CTF 2",
    }
}

fn env_text(value: &EnvValue) -> String {
    match value {
        EnvValue::Integer(number) => number.to_string(),
        EnvValue::Text(text) => text.escape_debug().to_string(),
    }
}

fn clock_table(class: &TraceClass, out: &mut String) {
    if class.clock_classes().is_empty() {
        return;
    }
    let mut table = Table::new(
        ["clock", "frequency Hz", "origin", "offset", "precision", "uuid"],
        [Align::Left, Align::Right, Align::Left, Align::Right, Align::Right, Align::Left],
    );
    for clock in class.clock_classes() {
        table.row([
            clock.name.clone(),
            clock.frequency.to_string(),
            origin(clock),
            format!("{} s + {} cycles", clock.offset_s, clock.offset),
            clock.precision.to_string(),
            clock.uuid.map_or_else(|| "-".to_owned(), |uuid| uuid.to_string()),
        ]);
    }
    out.push('\n');
    table.render("  ", out);
}

fn origin(clock: &ClockClass) -> String {
    match &clock.origin {
        ClockOrigin::UnixEpoch => "Unix epoch".to_owned(),
        ClockOrigin::Unknown => "unknown".to_owned(),
        ClockOrigin::Custom { namespace, name, uid } => {
            let namespace =
                namespace.as_ref().map_or_else(String::new, |space| format!("{space}/"));
            format!("{namespace}{name}/{uid}")
        }
    }
}

fn stream_table(streams: &[(&StreamSurvey, Option<u64>)], out: &mut String) {
    let counted = if streams.iter().any(|(_, events)| events.is_some()) { "events" } else { "" };
    let mut table = Table::new(
        ["class", "stream", "files", "packets", counted, "size", "begin", "end", "lost", "index"],
        [
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Left,
            Align::Left,
            Align::Left,
            Align::Left,
        ],
    );
    for (stream, events) in streams {
        table.row([
            stream.key.class_id.to_string(),
            stream.key.instance_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            stream.files.to_string(),
            stream.packets.to_string(),
            events.map_or_else(String::new, |events| events.to_string()),
            size(stream.bytes),
            time_text(stream.begin),
            time_text(stream.end),
            lost_text(stream),
            index_text(stream),
        ]);
    }
    out.push('\n');
    table.render("  ", out);
    for (path, problem) in streams.iter().flat_map(|(stream, _)| &stream.indexes_refused) {
        out.push_str(&format!("  index not used: {}: {problem}\n", path.display()));
    }
}

fn time_text(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), rfc3339)
}

fn lost_text(stream: &StreamSurvey) -> String {
    let mut parts = Vec::new();
    if stream.lost_event_records > 0 {
        parts.push(format!("{} event records", stream.lost_event_records));
    }
    if stream.lost_packets > 0 {
        parts.push(format!("{} packets", stream.lost_packets));
    }
    if let Some(before) = stream.discarded_at_first.filter(|count| *count > 0) {
        parts.push(format!("{before} event records up to the first packet's end"));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn index_text(stream: &StreamSurvey) -> String {
    let refused = stream.indexes_refused.len() as u64;
    match (stream.indexes_trusted, refused, stream.indexes_absent) {
        (0, 0, _) => "none".to_owned(),
        (_, 0, 0) => "used".to_owned(),
        (0, _, 0) => "not used".to_owned(),
        (used, refused, absent) => format!("{used} used, {refused} not used, {absent} absent"),
    }
}

fn document(view: &View<'_>) -> Value {
    let traces = view.recording.traces().iter().enumerate();
    json!({
        "traces": traces.map(|(index, trace)| trace_document(view, trace, index)).collect::<Vec<_>>(),
        "manifests": view
            .manifests
            .iter()
            .map(|(folder, manifest)| {
                json!({ "folder": folder.display().to_string(), "manifest": manifest })
            })
            .collect::<Vec<_>>(),
    })
}

fn trace_document(view: &View<'_>, trace: &LogicalTrace, index: usize) -> Value {
    let class = trace.class();
    let identity = class.identity();
    let streams = view.of_trace(index);
    let mut document = json!({
        "uuid": trace.uuid().map(|uuid| uuid.to_string()),
        "namespace": identity.namespace,
        "name": identity.name,
        "uid": identity.uid,
        "format": version(class),
        "folders": trace.folders().iter().map(|at| at.display().to_string()).collect::<Vec<_>>(),
        "environment": class
            .environment()
            .map(|(key, value)| (key.to_owned(), env_document(value)))
            .collect::<serde_json::Map<_, _>>(),
        "clocks": class.clock_classes().iter().map(clock_document).collect::<Vec<_>>(),
        "streams": streams.iter().map(|(stream, events)| stream_document(stream, *events)).collect::<Vec<_>>(),
        "event_record_classes": class.event_record_classes().len(),
    });
    if let Some(object) = document.as_object_mut().filter(|_| view.shows_classes()) {
        let classes = classes::documents(trace, index, view.events.as_ref(), view.fields);
        object.insert("classes".to_owned(), Value::Array(classes));
    }
    document
}

fn env_document(value: &EnvValue) -> Value {
    match value {
        EnvValue::Text(text) => json!(text),
        // Any value of the environment fits in one of both.
        EnvValue::Integer(number) => i64::try_from(*number)
            .map_or_else(|_| json!(u64::try_from(*number).ok()), |number| json!(number)),
    }
}

fn clock_document(clock: &ClockClass) -> Value {
    json!({
        "name": clock.name,
        "uuid": clock.uuid.map(|uuid| uuid.to_string()),
        "description": clock.description,
        "frequency_hz": clock.frequency,
        "origin": origin(clock),
        "offset_s": clock.offset_s,
        "offset_cycles": clock.offset,
        "precision_cycles": clock.precision,
        "accuracy_cycles": clock.accuracy,
    })
}

fn stream_document(stream: &StreamSurvey, events: Option<u64>) -> Value {
    let mut document = json!({
        "class_id": stream.key.class_id,
        "instance_id": stream.key.instance_id,
        "files": stream.files,
        "bytes": stream.bytes,
        "packets": stream.packets,
        "content_bits": stream.content_bits,
        "begin_ns": stream.begin.map(Timestamp::nanos),
        "end_ns": stream.end.map(Timestamp::nanos),
        "lost_event_records": stream.lost_event_records,
        "lost_packets": stream.lost_packets,
        "discarded_at_first_packet": stream.discarded_at_first,
        "indexes": {
            "used": stream.indexes_trusted,
            "absent": stream.indexes_absent,
            "not_used": stream
                .indexes_refused
                .iter()
                .map(|(path, problem)| {
                    json!({ "path": path.display().to_string(), "problem": problem.to_string() })
                })
                .collect::<Vec<_>>(),
        },
    });
    if let Some(object) = document.as_object_mut() {
        object.extend(events.map(|events| ("event_records".to_owned(), json!(events))));
    }
    document
}
