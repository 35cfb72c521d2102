//! A recording: the traces below some folders, joined to logical traces and streams.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::{TraceClass, Uuid};
use model::TimeRange;

use crate::classes::ClassCache;
use crate::correlate::{self, ClockGroup, ClockOfTrace, ClockOrigin, Uncorrelated, Use};
use crate::discover::{Found, discover_listable};
use crate::error::Error;
use crate::finding::{Finding, Findings};
use crate::join::{Joined, Joins};
use crate::lane::PacketEnds;
use crate::merge::Merged;
use crate::options::{Correlate, ReadOptions};
use crate::stream::{Stream, StreamCover};

/// All folders of one recorded trace: a trace that was rotated has one for each chunk.
#[derive(Debug)]
pub struct LogicalTrace {
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) class: Arc<TraceClass>,
}

impl LogicalTrace {
    /// Its folders, sorted.
    #[must_use]
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The trace class that knows the most event record classes. Each folder's packets are read by that folder's own.
    #[must_use]
    pub const fn class(&self) -> &Arc<TraceClass> {
        &self.class
    }

    /// The UUID that all its metadata declare.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        self.class.uuid()
    }

    /// The host that recorded it.
    #[must_use]
    pub fn hostname(&self) -> Option<&str> {
        self.env("hostname")
    }

    /// The tracing domain, such as `kernel` or `ust`.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.env("domain")
    }

    /// UUIDs of its clocks: traces that share one can be compared in time.
    pub fn clock_uuids(&self) -> impl Iterator<Item = Uuid> {
        self.class.clock_classes().iter().filter_map(|clock| clock.uuid)
    }

    fn env(&self, name: &str) -> Option<&str> {
        self.class.env(name)?.as_str()
    }
}

/// Traces that are read together.
///
/// Folders are one trace when their metadata name the same host and the same trace: by the trace class's namespace, name
/// and unique id (CTF 2), or by UUID. Without either, they are one trace when they lie at the same place of different
/// chunks of one session and name the same host, process and process id.
#[derive(Debug)]
pub struct Recording {
    traces: Vec<LogicalTrace>,
    streams: Vec<Stream>,
    /// Of each stream, the position of its trace.
    trace_of: Vec<usize>,
    groups: Vec<ClockGroup>,
    findings: Findings,
}

impl Recording {
    /// Opens all traces at or below `paths`; the order of `paths` does not matter.
    ///
    /// Reads each metadata file and the first packet header of each stream file. What cannot be read among other
    /// traces becomes a [`Finding`].
    ///
    /// # Errors
    /// As [`discover`](crate::discover()), but for folders below `paths` that cannot be listed, which are findings;
    /// [`Error::NoTrace`] when there is none; when no trace can be read, the error of the first;
    /// [`Error::Uncorrelated`] when times of different traces cannot be compared.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        Self::open_with(paths, &mut ClassCache::default())
    }

    /// As [`Self::open`], with trace classes that earlier openings have parsed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with<P: AsRef<Path>>(paths: &[P], cache: &mut ClassCache) -> Result<Self, Error> {
        Self::open_as(paths, &ReadOptions::default(), cache)
    }

    /// As [`Self::open_with`], read as `options` say.
    ///
    /// # Errors
    /// As [`Self::open`]; [`Error::ClockOffset`] with an offset that a clock cannot take.
    pub fn open_as<P: AsRef<Path>>(
        paths: &[P],
        options: &ReadOptions,
        cache: &mut ClassCache,
    ) -> Result<Self, Error> {
        let mut joins = Joins::default();
        let mut findings = Findings::default();
        let mut failures = Vec::new();
        let Found { folders, unlisted } = discover_listable(paths)?;
        for folder in folders {
            match cache.read(&folder, options) {
                Ok(class) => joins.add(folder, &class, &mut findings),
                Err(error) => failures.push(error),
            }
        }
        failures.extend(unlisted);
        if joins.is_empty() {
            return Err(failures.into_iter().next().unwrap_or_else(|| Error::NoTrace {
                paths: paths.iter().map(|path| path.as_ref().to_owned()).collect(),
            }));
        }
        failures.into_iter().for_each(|error| findings.push(Finding::Trace(error)));
        let Joined { traces, streams, trace_of } = joins.finish();
        let uses: Vec<Use> = streams
            .iter()
            .zip(&trace_of)
            .filter_map(|(stream, trace)| {
                let file = stream.files.first()?;
                let origin = match options.correlate {
                    Correlate::ForceUnixEpoch => ClockOrigin::UnixEpoch,
                    _ => correlate::origin(&file.class, file.clock(), *trace),
                };
                Some(Use { origin, trace: *trace })
            })
            .collect();
        let groups = correlate::groups(&uses);
        let recording = Self { traces, streams, trace_of, groups, findings };
        match recording.correlation() {
            Err(why) if options.correlate == Correlate::Required => Err(Error::Uncorrelated(why)),
            _ => Ok(recording),
        }
    }

    /// Its streams by what can be put in one order of time: one group unless the recording was opened with
    /// [`Correlate::Unchecked`].
    #[must_use]
    pub fn clock_groups(&self) -> &[ClockGroup] {
        &self.groups
    }

    /// Whether the times of all streams can be compared.
    ///
    /// # Errors
    /// Two clocks that cannot.
    pub fn correlation(&self) -> Result<(), Box<Uncorrelated>> {
        let mut clocks = self.groups.iter().filter_map(|group| self.first_clock(group));
        match (clocks.next(), clocks.next()) {
            (Some(a), Some(b)) => Err(Box::new(Uncorrelated { a, b })),
            _ => Ok(()),
        }
    }

    fn first_clock(&self, group: &ClockGroup) -> Option<ClockOfTrace> {
        clock_of_trace(self.streams.get(*group.streams.first()?)?, group)
    }

    /// The trace of a stream, by the stream's position in [`Self::streams`].
    #[must_use]
    pub fn trace_of(&self, stream_index: usize) -> Option<&LogicalTrace> {
        self.traces.get(self.trace_index(stream_index)?)
    }

    /// The position in [`Self::traces`] of a stream's trace.
    pub(crate) fn trace_index(&self, stream_index: usize) -> Option<usize> {
        self.trace_of.get(stream_index).copied()
    }

    /// Its logical traces, ordered by UUID and host, then by the names of CTF 2; those without either follow by path.
    #[must_use]
    pub fn traces(&self) -> &[LogicalTrace] {
        &self.traces
    }

    /// Its streams, ordered by key. [`Merged`] orders event records of equal times by position in this list.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Takes what could not be opened.
    pub(crate) fn take_findings(&mut self) -> Findings {
        std::mem::take(&mut self.findings)
    }

    /// What could not be opened.
    #[must_use]
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }

    /// All event records and losses with `range.begin <= time < range.end`, in order.
    #[must_use]
    pub fn merged(&self, range: TimeRange) -> Merged<'_> {
        Merged::new(&self.streams, range, PacketEnds::Passed)
    }

    /// As [`Self::merged`], with a choice of order where the packets of a stream overlap.
    #[must_use]
    pub fn merged_with(&self, range: TimeRange, packet_ends: PacketEnds) -> Merged<'_> {
        Merged::new(&self.streams, range, packet_ends)
    }

    /// The event records and losses of one stream alone, as [`Self::merged`]; `None` when there is no such stream. As there
    /// are no others, its position in them ([`Event::stream_index`](crate::Event::stream_index)) is 0.
    #[must_use]
    pub fn stream_merged(&self, stream_index: usize, range: TimeRange) -> Option<Merged<'_>> {
        let stream = self.streams.get(stream_index)?;
        Some(Merged::new(std::slice::from_ref(stream), range, PacketEnds::Passed))
    }

    /// What the first and last packet of each stream say, in the order of [`Self::streams`]; streams without a
    /// readable packet are left out.
    ///
    /// Reads the packet index of the first and last file of each stream, or else all packet headers in them.
    #[must_use]
    pub fn covers(&self) -> Vec<StreamCover> {
        self.streams.iter().filter_map(Stream::cover).collect()
    }
}

/// The clock of a group's first stream.
pub(crate) fn clock_of_trace(stream: &Stream, group: &ClockGroup) -> Option<ClockOfTrace> {
    let file = stream.files.first()?;
    Some(ClockOfTrace {
        folder: file.file.path.parent()?.to_owned(),
        clock: file.clock().map(|clock| clock.name.clone()),
        origin: group.origins.first()?.clone(),
    })
}
