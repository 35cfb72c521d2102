//! What a profile counts, of its application's name or its sample types.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;

/// What values of text and trees count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted<'a> {
    pub(super) service: &'a str,
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) unit: &'static str,
}

impl Counted<'_> {
    /// Whether values are samples of time.
    pub(super) fn is_time(&self) -> bool {
        matches!(self.name, "process_cpu" | "wall")
    }
}

/// The last part of an application's name says what is counted; of a name without parts it is time on the CPU.
pub(super) fn counted(app: &str) -> Result<Counted<'_>, Error> {
    let (service, last) = app.rsplit_once('.').unwrap_or((app, "cpu"));
    let found = of(last).map(|(name, kind, unit)| Counted { service, name, kind, unit });
    found.ok_or_else(|| Error::Query {
        parameter: "name",
        value: app.chars().take(128).collect(),
        why: "does not end in what is counted (as .cpu or .alloc_space)",
    })
}

/// Name, type and unit.
pub(super) fn of(last: &str) -> Option<(&'static str, &'static str, &'static str)> {
    const MEMORY: &str = "memory";
    Some(match last {
        "cpu" | "itimer" => ("process_cpu", "samples", "count"),
        "wall" | "seconds" | "milliseconds" | "microseconds" | "nanoseconds" => {
            ("wall", "samples", "count")
        }
        "inuse_objects" => (MEMORY, "inuse_objects", "count"),
        "inuse_space" => (MEMORY, "inuse_space", "bytes"),
        "alloc_objects" => (MEMORY, "alloc_objects", "count"),
        "alloc_space" => (MEMORY, "alloc_space", "bytes"),
        "alloc_in_new_tlab_objects" => (MEMORY, "alloc_in_new_tlab_objects", "count"),
        "alloc_in_new_tlab_bytes" => (MEMORY, "alloc_in_new_tlab_bytes", "bytes"),
        "alloc_outside_tlab_objects" => (MEMORY, "alloc_outside_tlab_objects", "count"),
        "alloc_outside_tlab_bytes" => (MEMORY, "alloc_outside_tlab_bytes", "bytes"),
        "live" => (MEMORY, "live", "count"),
        "bytes" => (MEMORY, "samples", "bytes"),
        "goroutines" => ("goroutine", "goroutines", "count"),
        "mutex_count" => ("mutex", "contentions", "count"),
        "mutex_duration" => ("mutex", "delay", "nanoseconds"),
        "block_count" | "lock_count" => ("block", "contentions", "count"),
        "block_duration" | "lock_duration" => ("block", "delay", "nanoseconds"),
        "exceptions" => ("exceptions", "samples", "count"),
        _ => return None,
    })
}

/// What a form says of sample types.
#[derive(Debug, Deserialize)]
pub(crate) struct SampleTypeConfig {
    #[serde(default, rename = "display-name")]
    display_name: String,
}

/// By sample type.
pub(crate) type SampleTypes = BTreeMap<String, SampleTypeConfig>;

/// The name of a profile in pprof, of its sample types: `wall` if one is called so, else of the first that says it. A form may
/// call them otherwise.
pub(crate) fn metric<'t>(types: &[(&'t str, &str)], config: Option<&SampleTypes>) -> &'t str {
    if types.iter().any(|(kind, _)| *kind == "wall") {
        return "wall";
    }
    let shown = |kind: &'t str| match config {
        Some(config) => config.get(kind).map_or("", |it| it.display_name.as_str()),
        None => match kind {
            "samples" => "cpu",
            "goroutine" => "goroutines",
            "contentions" => "mutex_count",
            "delay" => "mutex_duration",
            _ => "",
        },
    };
    let named = types.iter().find_map(|&(kind, _)| {
        let kind = match shown(kind) {
            "" => kind,
            shown => shown,
        };
        Some(match kind {
            _ if kind.contains("cpu") => "process_cpu",
            _ if kind.contains("alloc_") || kind.contains("inuse_") => "memory",
            "space" | "objects" => "memory",
            _ if kind.contains("mutex_") => "mutex",
            _ if kind.contains("block_") => "block",
            _ if kind.contains("goroutines") => "goroutines",
            _ => return None,
        })
    });
    named.unwrap_or_else(|| types.last().map_or("", |(kind, _)| kind))
}
