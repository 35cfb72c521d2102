//! Java's flight recordings (JFR): what the JDK and async-profiler write, and Pyroscope's agent for Java sends.
//!
//! ```text
//! recording ─ chunk ▶ metadata: classes and their fields
//!                   ▶ constants: stacks, methods, names, by class and number
//!                   ▶ events ─▶ samples, equal ones summed, of all chunks together
//! ```
//!
//! | event | series |
//! |---|---|
//! | `jdk.ExecutionSample`, the thread not asleep | `process_cpu:cpu:nanoseconds:cpu:nanoseconds` |
//! | the same, recorded with `event=wall` | `wall:wall:nanoseconds:wall:nanoseconds` |
//! | `profiler.WallClockSample` | the same |
//! | `jdk.ObjectAllocationInNewTLAB` | `memory:alloc_in_new_tlab_objects:count:space:bytes`, `…_bytes:bytes:…` |
//! | `jdk.ObjectAllocationOutsideTLAB` | `memory:alloc_outside_tlab_objects:count:space:bytes`, `…_bytes:bytes:…` |
//! | `jdk.ObjectAllocationSample` | `memory:alloc_sample_objects:count:space:bytes`, `…_bytes:bytes:…` |
//! | `jdk.JavaMonitorEnter` | `mutex:contentions:count:mutex:count`, `mutex:delay:nanoseconds:mutex:count` |
//! | `jdk.ThreadPark` | `block:contentions:count:block:count`, `block:delay:nanoseconds:block:count` |
//! | `profiler.LiveObject` | `memory:live:count:objects:count` |
//! | `profiler.Malloc` | `memory:malloc_objects:count::`, `memory:malloc_bytes:bytes::` |
//!
//! Names are those that Pyroscope gives (`pprof/parser.go` of grafana/jfr-parser). A sample of time counts one turn of the request's
//! sample rate. Other events are passed over by their size.
//!
//! No crate of the kind reads recordings of strangers: the one there is (`jfrs` 0.2.5, of 2023) takes memory as it is announced. Here each
//! value that is read, and each byte of a name that is read again, is a step of [`MAX_STEPS`].

mod chunk;
mod cursor;
mod labels;
mod metadata;
mod stacks;

use hashbrown::{HashMap, HashSet};
use wire::proto::Reader;

use self::chunk::{Chunk, Event};
pub(crate) use self::labels::Snapshot;
use self::stacks::{Constant, Stacks};
use crate::Request;
use crate::draft::{Draft, Place};
use crate::error::Error;
use crate::id::digest;
use crate::identity::Identity;
use crate::ingest::Query;
use crate::limits::Allowance;

/// Values that are read of one recording, and bytes of names that come again: twice as many as a recording of 32 MiB can hold.
const MAX_STEPS: usize = 1 << 26;
/// In a second, where the request says none.
const DEFAULT_RATE: u32 = 100;
const NANOS: i64 = 1_000_000_000;

/// Name and types of the series of an event.
struct Metric {
    name: &'static str,
    period: (&'static str, &'static str),
    /// How many, then how much.
    values: &'static [(&'static str, &'static str)],
}

const METRICS: [Metric; 9] = [
    Metric {
        name: "process_cpu",
        period: ("cpu", "nanoseconds"),
        values: &[("cpu", "nanoseconds")],
    },
    Metric { name: "wall", period: ("wall", "nanoseconds"), values: &[("wall", "nanoseconds")] },
    Metric {
        name: "memory",
        period: ("space", "bytes"),
        values: &[("alloc_in_new_tlab_objects", "count"), ("alloc_in_new_tlab_bytes", "bytes")],
    },
    Metric {
        name: "memory",
        period: ("space", "bytes"),
        values: &[("alloc_outside_tlab_objects", "count"), ("alloc_outside_tlab_bytes", "bytes")],
    },
    Metric {
        name: "memory",
        period: ("space", "bytes"),
        values: &[("alloc_sample_objects", "count"), ("alloc_sample_bytes", "bytes")],
    },
    Metric {
        name: "mutex",
        period: ("mutex", "count"),
        values: &[("contentions", "count"), ("delay", "nanoseconds")],
    },
    Metric {
        name: "block",
        period: ("block", "count"),
        values: &[("contentions", "count"), ("delay", "nanoseconds")],
    },
    Metric { name: "memory", period: ("objects", "count"), values: &[("live", "count")] },
    Metric {
        name: "memory",
        period: ("", ""),
        values: &[("malloc_objects", "count"), ("malloc_bytes", "bytes")],
    },
];
const CPU: usize = 0;
const WALL: usize = 1;

/// What an event is worth.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A turn of the clock.
    Execution,
    /// So many turns.
    WallClock,
    /// One, and what a field says, of a metric.
    One(usize, &'static str),
}

impl Kind {
    fn of(class: &str) -> Option<Self> {
        Some(match class {
            "jdk.ExecutionSample" => Self::Execution,
            "profiler.WallClockSample" => Self::WallClock,
            "jdk.ObjectAllocationInNewTLAB" => Self::One(2, "tlabSize"),
            "jdk.ObjectAllocationOutsideTLAB" => Self::One(3, "allocationSize"),
            "jdk.ObjectAllocationSample" => Self::One(4, "weight"),
            "jdk.JavaMonitorEnter" => Self::One(5, "duration"),
            "jdk.ThreadPark" => Self::One(6, "duration"),
            "profiler.LiveObject" => Self::One(7, "allocationSize"),
            "profiler.Malloc" => Self::One(8, "size"),
            _ => return None,
        })
    }
}

/// What is read of an event.
#[derive(Debug, Default)]
struct Seen {
    stack: Option<Constant>,
    state: Option<Constant>,
    samples: i64,
    amount: i64,
    context: i64,
    span_id: i64,
    span_name: i64,
}

/// The samples of one metric.
struct Open {
    identity: Identity,
    draft: Draft,
    /// By value, context and name of the span.
    series: HashMap<(usize, i64, i64), u32>,
}

/// What becomes of a recording.
struct Recording<'q, 's> {
    query: &'q Query,
    snapshot: &'s Snapshot<'s>,
    /// What async-profiler was told to sample.
    event: String,
    open: [Option<Open>; METRICS.len()],
}

/// Takes a recording, unpacked.
pub(crate) fn jfr(
    bytes: &[u8],
    snapshot: &Snapshot<'_>,
    query: &Query,
    request: &mut Request<'_>,
) -> Result<(), Error> {
    let mut steps = Allowance::new("values of a recording", MAX_STEPS);
    let mut recording =
        Recording { query, snapshot, event: String::new(), open: [const { None }; METRICS.len()] };
    let mut reader = Reader::new(bytes, "jfr");
    while !reader.bytes.is_empty() {
        let chunk = Chunk::decode(&mut reader, &mut steps)?;
        recording.add(&chunk, &mut steps, request)?;
    }
    let id = query.profile_id(bytes);
    for (number, open) in recording.open.into_iter().enumerate() {
        let Some(Open { identity, draft, .. }) = open else { continue };
        let id = digest([id.to_be_bytes().as_slice(), number.to_be_bytes().as_slice()]);
        let outcome = draft.finish(request, id);
        request.end(id, &identity.shown(), outcome);
    }
    Ok(())
}

impl Recording<'_, '_> {
    fn add<'a>(
        &mut self,
        chunk: &Chunk<'a>,
        steps: &mut Allowance,
        request: &mut Request<'_>,
    ) -> Result<(), Error> {
        let mut stacks = Stacks::new(chunk, steps);
        let classes = chunk.metadata.classes.iter();
        let kinds: HashMap<i64, Kind> =
            classes.filter_map(|(id, class)| Some((*id, Kind::of(class.name)?))).collect();
        let classes = chunk.metadata.classes.iter();
        let settings = classes.filter(|(_, class)| class.name == "jdk.ActiveSetting");
        let settings: HashSet<i64> = settings.map(|(id, _)| *id).collect();
        for event in chunk.events() {
            let event = event?;
            stacks.steps.take(1)?;
            if settings.contains(&event.class) {
                self.setting(event, &mut stacks)?;
            }
        }
        let mut asleep = HashMap::new();
        for event in chunk.events() {
            let event = event?;
            stacks.steps.take(1)?;
            if let Some(kind) = kinds.get(&event.class) {
                self.sample(event, *kind, &mut stacks, &mut asleep, request)?;
            }
        }
        // Where it is told does not matter: they are counted once.
        if let Some(open) = self.open.iter_mut().flatten().next() {
            open.draft.left_out.missing += stacks.missing;
        }
        Ok(())
    }

    fn setting<'a>(
        &mut self,
        mut event: Event<'a>,
        stacks: &mut Stacks<'_, 'a>,
    ) -> Result<(), Error> {
        let (mut name, mut value) = (None, None);
        stacks.fields(event.class, &mut event.cursor, |stacks, field, cursor| {
            let to = match field.name {
                "name" => &mut name,
                "value" => &mut value,
                _ => return Ok(false),
            };
            *to = stacks.text(field, cursor)?;
            Ok(to.is_some())
        })?;
        if name.as_deref() == Some("event") {
            self.event = value.unwrap_or_default().into_owned();
        }
        Ok(())
    }

    fn sample<'a>(
        &mut self,
        mut event: Event<'a>,
        kind: Kind,
        stacks: &mut Stacks<'_, 'a>,
        asleep: &mut HashMap<Constant, bool>,
        request: &mut Request<'_>,
    ) -> Result<(), Error> {
        let amount = match kind {
            Kind::One(_, field) => field,
            Kind::Execution | Kind::WallClock => "",
        };
        let mut seen = Seen { samples: 1, ..Seen::default() };
        stacks.fields(event.class, &mut event.cursor, |stacks, field, cursor| {
            let to = match field.name {
                "stackTrace" | "state" if field.is_constant && !field.is_array => {
                    let constant = Some((field.class, cursor.long()?));
                    match field.name {
                        "state" => seen.state = constant,
                        _ => seen.stack = constant,
                    }
                    return Ok(true);
                }
                "samples" => &mut seen.samples,
                "contextId" => &mut seen.context,
                "spanId" => &mut seen.span_id,
                "spanName" => &mut seen.span_name,
                name if !name.is_empty() && name == amount => &mut seen.amount,
                _ => return Ok(false),
            };
            let number = stacks.number(field, cursor)?;
            *to = number.unwrap_or(*to);
            Ok(number.is_some())
        })?;
        match kind {
            Kind::Execution => {
                let is_asleep = match seen.state {
                    None => false,
                    Some(state) => match asleep.get(&state) {
                        Some(known) => *known,
                        None => {
                            let is_asleep = stacks.name(state)? == "STATE_SLEEPING";
                            asleep.insert(state, is_asleep);
                            is_asleep
                        }
                    },
                };
                let turn = [self.turns(1)?];
                if !is_asleep {
                    self.count(CPU, &turn, &seen, stacks, request)?;
                }
                if self.event == "wall" {
                    self.count(WALL, &turn, &seen, stacks, request)?;
                }
                Ok(())
            }
            Kind::WallClock => {
                let turns = [self.turns(seen.samples)?];
                self.count(WALL, &turns, &seen, stacks, request)
            }
            Kind::One(metric, field) => {
                let amount = match field {
                    "duration" => nanoseconds(seen.amount, stacks.chunk.ticks_per_second)?,
                    _ => seen.amount,
                };
                self.count(metric, &[1, amount], &seen, stacks, request)
            }
        }
    }

    /// Nanoseconds of so many samples.
    fn turns(&self, count: i64) -> Result<i64, Error> {
        let rate = match self.query.sample_rate {
            0 => DEFAULT_RATE,
            rate => rate,
        };
        count.checked_mul(NANOS / i64::from(rate)).ok_or(Error::Overflow)
    }

    fn count<'a>(
        &mut self,
        metric: usize,
        amounts: &[i64],
        seen: &Seen,
        stacks: &mut Stacks<'_, 'a>,
        request: &mut Request<'_>,
    ) -> Result<(), Error> {
        let (Some(of), Some(slot)) = (METRICS.get(metric), self.open.get_mut(metric)) else {
            return Ok(());
        };
        let open = match slot {
            Some(open) => open,
            none => {
                let mut labels = self.query.series(of.name, &self.query.app);
                if !self.event.is_empty() {
                    labels.push(("jfr_event".to_owned(), self.event.clone()));
                }
                let identity = Identity::of(labels)?;
                none.insert(Open { identity, draft: Draft::default(), series: HashMap::new() })
            }
        };
        let stack = stacks.stack(request, &mut open.draft, seen.stack.unwrap_or_default())?;
        let span_id = u64::from_ne_bytes(seen.span_id.to_ne_bytes());
        for (at, (&(kind, unit), &amount)) in of.values.iter().zip(amounts).enumerate() {
            let key = (at, seen.context, seen.span_name);
            let series = match open.series.get(&key) {
                Some(known) => *known,
                None => {
                    let kind = open.identity.kind((kind, unit), of.period)?;
                    let span = self.snapshot.string(seen.span_name);
                    let span = span.filter(|name| !name.is_empty()).map(|name| ("span_name", name));
                    let labels = self.snapshot.of(seen.context).chain(span);
                    let series = open.draft.series(request, &open.identity, &kind, labels)?;
                    open.series.insert(key, series);
                    series
                }
            };
            let place = Place { series, stack, at: self.query.from, span_id, trace_id: 0 };
            open.draft.add(place, amount, request.limits.profile_samples)?;
        }
        Ok(())
    }
}

fn nanoseconds(ticks: i64, per_second: i64) -> Result<i64, Error> {
    let nanos = i128::from(ticks) * i128::from(NANOS);
    let nanos =
        nanos.checked_div(i128::from(per_second)).and_then(|nanos| i64::try_from(nanos).ok());
    nanos.ok_or(Error::Overflow)
}
