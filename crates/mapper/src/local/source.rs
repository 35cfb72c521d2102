//! The traces of one host, opened, with what is needed to read any stretch of their time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::{TraceClass, Uuid};
use model::{CpuId, TimeRange, Timestamp};
use stitch::fact::Fact;
use stitch::{Cover, Identities, LookAhead, Selection};
use tracedir::{ClassCache, LogicalTrace, Recording, StreamCover, StreamKey};

use super::Folders;
use super::flow::{Flow, Lane, Mapped, Taker, Task};
use super::round::{Round, Stretch};
use crate::Error;
use crate::adapter::{Adapter, SpanRules, has_spans, has_switches, is_kernel, needs_identities};

/// How far traces lie behind the common clock, by folder.
pub(super) type Shifts = BTreeMap<PathBuf, i64>;

/// The smallest distance from the epoch of each clock, by the clock's UUID, in nanoseconds.
///
/// Whoever reads the traces of a host bit by bit keeps it between the bits: what was read first and what comes later
/// must be told by the same clock. Bound: one entry for each boot of the host that was recorded.
pub(crate) type Origins = BTreeMap<Uuid, i64>;

/// Adds the clocks of these traces.
pub(super) fn learn_origins(traces: &[LogicalTrace], origins: &mut Origins) {
    for (uuid, own) in traces.iter().filter_map(|trace| clock(trace.class())) {
        let least = origins.entry(uuid).or_insert(own);
        *least = own.min(*least);
    }
}

/// Traces that are read together.
#[derive(Debug)]
pub(crate) struct Source {
    rules: SpanRules,
    /// Traces by how far their clock lies behind the common one.
    groups: Vec<Group>,
    shifts: Shifts,
    host: String,
    begin: Timestamp,
    end: Timestamp,
    scheduled: TimeRange,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) recording: Recording,
    pub(super) shift_ns: i64,
    /// Of each stream, whether it is the kernel's.
    pub(super) kernel: Vec<bool>,
}

impl Source {
    pub(crate) fn open<P: AsRef<Path>>(
        paths: &[P],
        rules: &SpanRules,
        cache: &mut ClassCache,
        origins: &mut Origins,
    ) -> Result<Self, Error> {
        let all = Recording::open_with(paths, cache)?;
        learn_origins(all.traces(), origins);
        let names = all.traces().iter().filter_map(|trace| host_of(trace.class()));
        let host = one_host(names.map(str::to_owned))?;
        let mut by_shift: BTreeMap<i64, Folders> = BTreeMap::new();
        let mut shifts = Shifts::new();
        for trace in all.traces() {
            let shift_ns = shift(trace.class(), origins);
            by_shift.entry(shift_ns).or_default().extend_from_slice(trace.folders());
            shifts.extend(trace.folders().iter().map(|folder| (folder.clone(), shift_ns)));
        }
        let mut groups = Vec::new();
        if by_shift.len() == 1 {
            let shift_ns = by_shift.into_keys().next().unwrap_or(0);
            groups.push(Group::new(all, shift_ns));
        } else {
            for (shift_ns, folders) in by_shift {
                groups.push(Group::new(Recording::open_with(&folders, cache)?, shift_ns));
            }
        }
        let times = || groups.iter().flat_map(Group::times);
        let begin = times().map(|(begin, _, _)| begin).min().ok_or(Error::NoTime)?;
        let end = times().map(|(_, end, _)| end).max().ok_or(Error::NoTime)?;
        let kernel = || times().filter(|(_, _, switches)| *switches);
        let nothing = Timestamp::MIN;
        let scheduled = TimeRange {
            begin: kernel().map(|(begin, _, _)| begin).min().unwrap_or(nothing),
            end: kernel().map(|(_, end, _)| end).max().unwrap_or(nothing),
        };
        let rules = rules.clone();
        Ok(Self { rules, groups, shifts, host, begin, end, scheduled })
    }

    /// The folders of all traces.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.shifts.keys().map(PathBuf::as_path)
    }

    pub(super) fn shifts(&self) -> &Shifts {
        &self.shifts
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The stretch of time of each stream.
    pub(super) fn covers(&self) -> Vec<(Timestamp, Timestamp)> {
        let times = self.groups.iter().flat_map(Group::times);
        times.map(|(begin, end, _)| (begin, end)).collect()
    }

    /// The first moment of any stream.
    pub(crate) fn begin(&self) -> Timestamp {
        self.begin
    }

    /// The first moment after all streams.
    pub(crate) fn end(&self) -> Timestamp {
        self.end
    }

    /// What could not be opened, and how much more there is.
    pub(crate) fn findings(&self) -> (Vec<String>, u64) {
        let mut kept = Vec::new();
        let mut more = 0;
        for group in &self.groups {
            let findings = group.recording.findings();
            kept.extend(findings.kept().iter().map(ToString::to_string));
            more += findings.more();
        }
        (kept, more)
    }

    /// Whether some events do not say which thread and process they belong to.
    pub(crate) fn needs_identities(&self) -> bool {
        let mut traces = self.groups.iter().flat_map(|group| group.recording.traces());
        traces.any(|trace| needs_identities(trace.class(), &self.rules))
    }

    /// Whether anything here can begin or end a span.
    fn has_spans(&self) -> bool {
        let mut traces = self.groups.iter().flat_map(|group| group.recording.traces());
        traces.any(|trace| has_spans(trace.class(), &self.rules))
    }

    /// Who is who at the begin of each of these windows, from one reading of everything.
    pub(crate) fn identities(&self, windows: &[Stretch]) -> Vec<Arc<Identities>> {
        if !self.needs_identities() {
            let outside_spans = Arc::new(Identities::default().outside_spans());
            let has_spans = self.has_spans();
            let entries = windows.iter().enumerate().map(|(n, _)| match has_spans && n > 0 {
                true => Arc::default(),
                false => Arc::clone(&outside_spans),
            });
            return entries.collect();
        }
        let mut round = Round::new(windows);
        self.flow(TimeRange::ALL).run(|fact| round.take(fact));
        round.finish()
    }

    /// Who had each CPU before its first switch after a time.
    pub(crate) fn look_ahead(&self, begin: Timestamp) -> LookAhead {
        let mut ahead = LookAhead::new(begin);
        if !self.needs_identities() {
            return ahead;
        }
        let cpus = self.kernel_cpus();
        let all = RefCell::new(&mut ahead);
        self.flow(TimeRange { begin, end: Timestamp::MAX })
            .run_while(|| !all.borrow().is_over(&cpus), |fact| all.borrow_mut().take(fact));
        ahead
    }

    /// The CPUs that the kernel's streams name.
    fn kernel_cpus(&self) -> BTreeSet<CpuId> {
        let streams = self.groups.iter().flat_map(|group| {
            let streams = group.recording.streams().iter().zip(&group.kernel);
            streams.filter(|(_, is_kernel)| **is_kernel).map(|(stream, _)| stream)
        });
        let cpu = |id: u64| u32::try_from(id).ok().map(CpuId::new);
        streams.filter_map(|stream| stream.key().instance_id.and_then(cpu)).collect()
    }

    /// The same, read as a part of recordings of this host, in which scheduler events say what threads do while this.
    pub(crate) fn into_part_of(mut self, host: &str, scheduled: TimeRange) -> Self {
        host.clone_into(&mut self.host);
        self.scheduled = scheduled;
        self
    }

    /// Gives all facts of a stretch of time in order.
    pub(crate) fn facts(&self, range: TimeRange, give: impl FnMut(&Fact<&str>)) {
        self.flow(range).run(give);
    }

    /// The summary of one window that begins with these known, or of its last piece when somebody takes pieces.
    pub(crate) fn map<'t>(
        &self,
        cover: Cover,
        entry: Arc<Identities>,
        selection: Option<&'t Arc<Selection>>,
        taker: Option<&'t mut (dyn Taker + 't)>,
    ) -> Mapped {
        let range = TimeRange { begin: cover.begin, end: cover.end };
        let unscheduled = Some(self.scheduled.end).filter(|end| range.contains(*end));
        self.flow(range).summarise(Task { cover, entry, unscheduled, selection, taker })
    }

    fn flow(&self, range: TimeRange) -> Flow<'_> {
        let lanes = self.groups.iter().map(|group| {
            let own = |at: Timestamp| match at {
                Timestamp::MIN | Timestamp::MAX => at,
                _ => Timestamp::from_nanos(at.nanos().saturating_sub(group.shift_ns)),
            };
            let range = TimeRange { begin: own(range.begin), end: own(range.end) };
            let adapter = Adapter::new(&self.rules, self.scheduled, group.shift_ns);
            Lane::new(group, group.recording.merged(range), adapter)
        });
        Flow::new(lanes.collect())
    }
}

impl Group {
    fn new(recording: Recording, shift_ns: i64) -> Self {
        let of_stream = |key: &StreamKey| trace_of(recording.traces(), key).is_some_and(is_kernel);
        let kernel = recording.streams().iter().map(|stream| of_stream(stream.key())).collect();
        Self { recording, shift_ns, kernel }
    }

    /// Begin and end of each stream by the common clock, and whether its trace has switches. The first moment after is one
    /// nanosecond after the last packet's end, where the last event may be.
    fn times(&self) -> impl Iterator<Item = (Timestamp, Timestamp, bool)> {
        let shifted =
            |at: Timestamp| Timestamp::from_nanos(at.nanos().saturating_add(self.shift_ns));
        self.recording.covers().into_iter().filter_map(move |cover: StreamCover| {
            let end = cover.end?.nanos().saturating_add(1);
            let switches =
                trace_of(self.recording.traces(), &cover.stream).is_some_and(has_switches);
            Some((shifted(cover.begin?), shifted(Timestamp::from_nanos(end)), switches))
        })
    }
}

/// The trace class of a stream.
fn trace_of<'t>(traces: &'t [LogicalTrace], key: &StreamKey) -> Option<&'t TraceClass> {
    let in_folder = |trace: &&LogicalTrace| {
        let folder = key.file.as_deref().and_then(Path::parent);
        folder.is_none_or(|folder| trace.folders().iter().any(|known| known == folder))
    };
    let mut found = traces
        .iter()
        .filter(|trace| trace.uuid() == key.trace && trace.hostname() == key.host.as_deref());
    found.find(in_folder).map(|trace| &**trace.class())
}

/// The host that a trace names.
pub(crate) fn host_of(class: &TraceClass) -> Option<&str> {
    // perf calls it `host`.
    let text = |name| class.env(name).and_then(|host| host.as_str());
    text("hostname").or_else(|| text("host"))
}

/// The one host of these names; none when there is no name.
pub(crate) fn one_host(names: impl Iterator<Item = String>) -> Result<String, Error> {
    let mut hosts: Vec<String> = names.collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.len() > 1 {
        return Err(Error::SeveralHosts { hosts });
    }
    Ok(hosts.pop().unwrap_or_default())
}

/// The UUID of a trace's clock and its distance from the epoch.
pub(crate) fn clock(class: &TraceClass) -> Option<(Uuid, i64)> {
    let clock = class.clock_classes().first()?;
    Some((clock.uuid?, clock.to_ns(0).ok()?))
}

/// How far the clock of a trace lies behind the smallest of its UUID: zero or negative.
fn shift(class: &TraceClass, origins: &Origins) -> i64 {
    let Some((uuid, own)) = clock(class) else { return 0 };
    origins.get(&uuid).map_or(0, |least| least.saturating_sub(own))
}
