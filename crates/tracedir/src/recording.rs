//! A recording: the traces below some folders, joined to logical traces and streams.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::{TraceClass, Uuid};
use model::TimeRange;

use crate::discover::{TraceFolder, discover};
use crate::error::{Action, Error};
use crate::finding::{Finding, Findings};
use crate::lane::PacketEnds;
use crate::merge::Merged;
use crate::stream::{PacketFile, Stream, StreamCover, StreamKey};

/// Longest metadata file that is read. Real ones stay below one mebibyte.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Trace classes by the bytes of their metadata: chunks of one session share theirs.
///
/// Holds at most [`Self::CAPACITY`] and forgets all when one more is needed.
#[derive(Debug, Default)]
pub struct ClassCache {
    classes: HashMap<Vec<u8>, Arc<TraceClass>>,
}

impl ClassCache {
    /// The most trace classes that are kept.
    pub const CAPACITY: usize = 256;

    fn parse(&mut self, path: &Path, metadata: Vec<u8>) -> Result<Arc<TraceClass>, Error> {
        if let Some(class) = self.classes.get(&metadata) {
            return Ok(Arc::clone(class));
        }
        let parsed = TraceClass::parse(&metadata);
        let class =
            Arc::new(parsed.map_err(|source| Error::Metadata { path: path.to_owned(), source })?);
        if self.classes.len() >= Self::CAPACITY {
            self.classes.clear();
        }
        self.classes.insert(metadata, Arc::clone(&class));
        Ok(class)
    }
}

/// All folders of one recorded trace: a trace that was rotated has one for each chunk.
#[derive(Debug)]
pub struct LogicalTrace {
    folders: Vec<PathBuf>,
    class: Arc<TraceClass>,
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
#[derive(Debug)]
pub struct Recording {
    traces: Vec<LogicalTrace>,
    streams: Vec<Stream>,
    findings: Findings,
}

impl Recording {
    /// Opens all traces at or below `paths`; the order of `paths` does not matter.
    ///
    /// Reads each metadata file and the first packet header of each stream file. What cannot be read among other
    /// traces becomes a [`Finding`].
    ///
    /// # Errors
    /// As [`discover`]; [`Error::NoTrace`] when there is none; when no trace can be read, the error of the first.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        Self::open_with(paths, &mut ClassCache::default())
    }

    /// As [`Self::open`], with trace classes that earlier openings have parsed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with<P: AsRef<Path>>(paths: &[P], cache: &mut ClassCache) -> Result<Self, Error> {
        let mut builder = Builder::default();
        let mut failures = Vec::new();
        for folder in discover(paths)? {
            match read_class(&folder, cache) {
                Ok(class) => builder.add(folder, &class),
                Err(error) => failures.push(error),
            }
        }
        if builder.traces.is_empty() {
            return Err(failures.into_iter().next().unwrap_or_else(|| Error::NoTrace {
                paths: paths.iter().map(|path| path.as_ref().to_owned()).collect(),
            }));
        }
        failures.into_iter().for_each(|error| builder.findings.push(Finding::Trace(error)));
        Ok(builder.finish())
    }

    /// Its logical traces, ordered by UUID and host; those without a UUID follow by path.
    #[must_use]
    pub fn traces(&self) -> &[LogicalTrace] {
        &self.traces
    }

    /// Its streams, ordered by key. [`Merged`] orders event records of equal times by position in this list.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
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

    /// What the first and last packet of each stream say, in the order of [`Self::streams`]; streams without a
    /// readable packet are left out.
    ///
    /// Reads the packet index of the first and last file of each stream, or else all packet headers in them.
    #[must_use]
    pub fn covers(&self) -> Vec<StreamCover> {
        self.streams.iter().filter_map(Stream::cover).collect()
    }
}

fn read_class(folder: &TraceFolder, cache: &mut ClassCache) -> Result<Arc<TraceClass>, Error> {
    let path = folder.metadata();
    if folder.metadata_len == 0 {
        return Err(Error::MetadataEmpty { path, stream_bytes: folder.stream_bytes() });
    }
    if folder.metadata_len > MAX_METADATA_BYTES {
        let (len, limit) = (folder.metadata_len, MAX_METADATA_BYTES);
        return Err(Error::MetadataTooLarge { path, len, limit });
    }
    let bytes = fs::read(&path).map_err(|source| Error::io(Action::Read, &path, source))?;
    cache.parse(&path, bytes)
}

/// What makes two trace folders one logical trace: UUID and host, or else nothing but the folder itself.
type TraceKey = (Option<Uuid>, Option<String>, Option<PathBuf>);

#[derive(Default)]
struct Builder {
    traces: BTreeMap<TraceKey, LogicalTrace>,
    streams: BTreeMap<StreamKey, Vec<PacketFile>>,
    findings: Findings,
}

impl Builder {
    fn add(&mut self, folder: TraceFolder, class: &Arc<TraceClass>) {
        let host = class.env("hostname").and_then(|host| host.as_str()).map(str::to_owned);
        let alone = class.uuid().is_none().then(|| folder.path.clone());
        let key = (class.uuid(), host, alone);
        for file in folder.stream_files.into_iter().filter(|file| file.len > 0) {
            match PacketFile::open(file, class) {
                Ok(file) => self.streams.entry(file.key()).or_default().push(file),
                Err((file, cause)) => self.findings.push(Finding::Rest {
                    path: file.path,
                    offset_bytes: 0,
                    lost_bytes: file.len,
                    cause,
                }),
            }
        }
        let trace = self
            .traces
            .entry(key)
            .or_insert_with(|| LogicalTrace { folders: Vec::new(), class: Arc::clone(class) });
        trace.folders.push(folder.path);
        let known = |class: &TraceClass| class.event_record_classes().len();
        if known(class) > known(&trace.class) {
            trace.class = Arc::clone(class);
        }
    }

    fn finish(self) -> Recording {
        let (with, without): (Vec<_>, Vec<_>) =
            self.traces.into_iter().partition(|((uuid, _, _), _)| uuid.is_some());
        let traces = with.into_iter().chain(without).map(|(_, trace)| trace).collect();
        let streams =
            self.streams.into_iter().map(|(key, files)| Stream::new(key, files)).collect();
        Recording { traces, streams, findings: self.findings }
    }
}
