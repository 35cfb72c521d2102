//! Which clocks can be compared: see [`ClockOrigin`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use ctf::{ClockClass, EnvValue, TraceClass, Uuid};

/// Where a clock counts from.
///
/// Times of two clocks can be put in one order when both count from the same origin. It is known to be
///
/// - the Unix epoch, when the clock class says so, when it is LTTng's clock `monotonic` (which is given with its offset
///   from the epoch, and does not say so), or when it is perf's clock and has an offset (perf gives it one when it was
///   told the wall clock's time, and does not say so either);
/// - the point that the clock class names (CTF 2), when it names one;
/// - that of all clocks with the same UUID (CTF 1.8), or the same namespace, name and unique id (CTF 2).
///
/// Otherwise the clock can be compared with itself alone. Clocks of one logical trace are comparable: one tracer
/// described them together. So is what can be compared with the same third clock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ClockOrigin {
    /// The Unix epoch.
    UnixEpoch,
    /// A point that has a name (CTF 2).
    Named {
        /// Whose name it is.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// What tells it from points of the same name.
        uid: String,
    },
    /// The unknown origin of all clocks with this UUID.
    Uuid(Uuid),
    /// The unknown origin of one clock that several traces may name (CTF 2).
    Clock {
        /// Whose name it is.
        namespace: Option<String>,
        /// Name of the clock.
        name: String,
        /// What tells it from clocks of the same name.
        uid: String,
    },
    /// An origin that no other trace can refer to.
    Own {
        /// Position of the trace in [`Recording::traces`](crate::Recording::traces).
        trace: usize,
        /// Name of the clock.
        clock: String,
    },
    /// There is no clock: event records have no time, and so no place among others.
    None,
}

/// Streams whose times can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockGroup {
    /// Where their clocks count from: more than one when a trace has clocks of several origins.
    pub origins: Vec<ClockOrigin>,
    /// Positions in [`Recording::streams`](crate::Recording::streams), rising.
    pub streams: Vec<usize>,
}

/// Two clocks that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncorrelated {
    /// One of them.
    pub a: ClockOfTrace,
    /// The other.
    pub b: ClockOfTrace,
}

/// A clock, by the trace that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockOfTrace {
    /// A folder of the trace.
    pub folder: PathBuf,
    /// Name of the clock; `None` when the trace has none.
    pub clock: Option<String>,
    /// Where it counts from.
    pub origin: ClockOrigin,
}

impl fmt::Display for ClockOfTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        match (&self.clock, &self.origin) {
            (Some(clock), ClockOrigin::UnixEpoch) => {
                write!(f, "clock `{clock}` of {folder} counts from the Unix epoch")
            }
            (Some(clock), ClockOrigin::Uuid(uuid)) => {
                write!(f, "clock `{clock}` of {folder} counts from the unknown origin of {uuid}")
            }
            (Some(clock), ClockOrigin::Named { name, uid, .. }) => {
                write!(f, "clock `{clock}` of {folder} counts from the origin `{name}` {uid}")
            }
            (Some(clock), _) => {
                write!(f, "clock `{clock}` of {folder} counts from an origin of its own")
            }
            (None, _) => write!(f, "{folder} has no clock"),
        }
    }
}

impl fmt::Display for Uncorrelated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.a, self.b)
    }
}

/// Where `clock` of a trace counts from.
pub(crate) fn origin(class: &TraceClass, clock: Option<&ClockClass>, trace: usize) -> ClockOrigin {
    let Some(clock) = clock else { return ClockOrigin::None };
    let (namespace, name) = (clock.namespace.clone(), clock.name.clone());
    match &clock.origin {
        ctf::ClockOrigin::UnixEpoch => ClockOrigin::UnixEpoch,
        ctf::ClockOrigin::Custom { namespace, name, uid } => {
            let (namespace, name, uid) = (namespace.clone(), name.clone(), uid.clone());
            ClockOrigin::Named { namespace, name, uid }
        }
        ctf::ClockOrigin::Unknown if counts_from_epoch(class, clock) => ClockOrigin::UnixEpoch,
        ctf::ClockOrigin::Unknown => match (clock.uuid, clock.uid.clone()) {
            (_, Some(uid)) => ClockOrigin::Clock { namespace, name, uid },
            (Some(uuid), None) => ClockOrigin::Uuid(uuid),
            (None, None) => ClockOrigin::Own { trace, clock: name },
        },
    }
}

/// Whether a tracer is known to give this clock its offset from the epoch without saying so.
fn counts_from_epoch(class: &TraceClass, clock: &ClockClass) -> bool {
    let tracer = class.env("tracer_name").and_then(EnvValue::as_str).unwrap_or_default();
    match tracer {
        "perf" => clock.offset_s != 0 || clock.offset != 0,
        lttng => lttng.starts_with("lttng") && clock.name == "monotonic",
    }
}

/// One stream's clock.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) origin: ClockOrigin,
    /// Position of its trace.
    pub(crate) trace: usize,
}

/// Groups streams, given in their order, by what can be compared; ordered by their first streams.
pub(crate) fn groups(uses: &[Use]) -> Vec<ClockGroup> {
    let mut joined = Joined::default();
    let mut first_with: BTreeMap<&ClockOrigin, usize> = BTreeMap::new();
    for own in uses {
        let first = *first_with.entry(&own.origin).or_insert(own.trace);
        joined.join(first, own.trace);
    }
    let mut positions: BTreeMap<usize, usize> = BTreeMap::new();
    let mut groups: Vec<ClockGroup> = Vec::new();
    for (stream, own) in uses.iter().enumerate() {
        let position = *positions.entry(joined.root(own.trace)).or_insert(groups.len());
        if position == groups.len() {
            groups.push(ClockGroup { origins: Vec::new(), streams: Vec::new() });
        }
        if let Some(group) = groups.get_mut(position) {
            group.streams.push(stream);
            if !group.origins.contains(&own.origin) {
                group.origins.push(own.origin.clone());
            }
        }
    }
    groups
}

/// Sets of traces: each trace leads to another of its set, the last to itself.
#[derive(Default)]
struct Joined(BTreeMap<usize, usize>);

impl Joined {
    fn root(&self, trace: usize) -> usize {
        let mut at = trace;
        while let Some(next) = self.0.get(&at).copied().filter(|next| *next != at) {
            at = next;
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        // Always to the smaller, so that no way leads in a circle.
        self.0.insert(a.max(b), a.min(b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(trace: usize, origin: ClockOrigin) -> Use {
        Use { origin, trace }
    }

    fn own(trace: usize) -> ClockOrigin {
        ClockOrigin::Own { trace, clock: "c".to_owned() }
    }

    fn check(uses: &[Use], expected: &[&[usize]]) {
        let streams: Vec<_> = groups(uses).into_iter().map(|group| group.streams).collect();
        assert_eq!(streams, expected);
    }

    #[test]
    fn streams_of_one_origin_or_one_trace_are_one_group() {
        let epoch = ClockOrigin::UnixEpoch;
        let uuid = |byte| ClockOrigin::Uuid(Uuid([byte; 16]));
        check(&[], &[]);
        check(&[of(0, epoch.clone()), of(1, epoch.clone())], &[&[0, 1]]);
        check(&[of(0, uuid(1)), of(1, uuid(2)), of(2, uuid(1))], &[&[0, 2], &[1]]);
        check(&[of(0, own(0)), of(1, own(1))], &[&[0], &[1]]);
        check(&[of(0, own(0)), of(0, epoch.clone()), of(0, ClockOrigin::None)], &[&[0, 1, 2]]);
        check(&[of(0, ClockOrigin::None), of(1, ClockOrigin::None)], &[&[0, 1]]);
        check(&[of(0, ClockOrigin::None), of(1, epoch)], &[&[0], &[1]]);
    }

    #[test]
    fn a_trace_with_two_clocks_joins_what_each_can_be_compared_with() {
        let epoch = ClockOrigin::UnixEpoch;
        let uuid = ClockOrigin::Uuid(Uuid([1; 16]));
        let uses =
            [of(2, uuid.clone()), of(1, own(1)), of(0, epoch.clone()), of(3, epoch), of(3, uuid)];
        check(&uses, &[&[0, 2, 3, 4], &[1]]);
        assert_eq!(groups(&uses)[0].origins.len(), 2);
    }

    #[test]
    fn known_tracers_count_from_the_epoch_without_saying_so() {
        let check = |tracer: &str, clock: &str, attributes: &str, epoch: bool| {
            let text = format!(
                "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }}; \
                 env {{ tracer_name = \"{tracer}\"; }}; \
                 clock {{ name = {clock}; freq = 1000000000; {attributes} }}; stream {{ }};"
            );
            let class = TraceClass::parse(text.as_bytes()).unwrap();
            let found = origin(&class, class.clock_classes().first(), 3);
            assert_eq!(found == ClockOrigin::UnixEpoch, epoch, "{text}: {found:?}");
        };
        check("lttng-ust", "monotonic", "offset = 5;", true);
        check("lttng-modules", "monotonic", "", true);
        check("lttng-ust", "other", "offset = 5;", false);
        check("barectf", "monotonic", "offset = 5;", false);
        check("barectf", "c", "absolute = TRUE;", true);
        check("perf", "perf_clock", "offset = 5; absolute = FALSE;", true);
        check("perf", "perf_clock", "offset_s = 5; absolute = FALSE;", true);
        check("perf", "perf_clock", "offset = 0; absolute = FALSE;", false);
    }
}
