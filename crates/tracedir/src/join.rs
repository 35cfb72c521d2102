//! What belongs together: trace folders to logical traces ([`Recording`](crate::Recording) says by which rule), stream
//! files to streams ([`StreamKey`]).
//!
//! What lies at the same place of different chunks of one session (`…/archives/<chunk>/<place>`) can only be one after
//! the other, because a session writes one chunk after the other. Everything else that is not named could be another
//! stream: two files of a folder without instance ids are two streams.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::{EnvValue, Identity, TraceClass, Uuid};

use crate::chunk::{ARCHIVES, ChunkName};
use crate::discover::{OLD_CHUNK, TraceFolder};
use crate::finding::{Finding, Findings};
use crate::recording::LogicalTrace;
use crate::stream::{PacketFile, Stream, StreamKey};

/// Files and folders on their way to streams and traces.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    traces: BTreeMap<TraceKey, LogicalTrace>,
    streams: BTreeMap<(StreamKey, TraceKey), Vec<PacketFile>>,
}

/// What makes trace folders one logical trace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TraceKey {
    /// Those with a UUID come first, those with neither that nor an identity last.
    name: TraceName,
    host: Option<String>,
    /// Without either: where it lies, process and process id.
    alone: Option<(PathBuf, Option<String>, Option<i128>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TraceName {
    Uuid(Uuid),
    /// With a unique id.
    Identity(Identity),
    None,
}

/// The result: streams in the order of their keys, and of each the position of its trace.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) traces: Vec<LogicalTrace>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) trace_of: Vec<usize>,
}

impl Joins {
    pub(crate) fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    pub(crate) fn add(
        &mut self,
        folder: TraceFolder,
        class: &Arc<TraceClass>,
        findings: &mut Findings,
    ) {
        let key = TraceKey::of(&folder.path, class);
        for file in folder.stream_files.into_iter().filter(|file| file.len > 0) {
            match PacketFile::open(file, class) {
                Ok(file) => {
                    let stream = grouping(&file, key.is_named());
                    self.streams.entry((stream, key.clone())).or_default().push(file);
                }
                Err((file, cause)) => findings.push(Finding::Rest {
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

    pub(crate) fn finish(self) -> Joined {
        let (keys, traces): (Vec<TraceKey>, Vec<LogicalTrace>) = self.traces.into_iter().unzip();
        let mut streams: Vec<(Stream, usize)> = Vec::new();
        let mut rotated: BTreeMap<Rotated, Vec<PacketFile>> = BTreeMap::new();
        for ((key, trace), files) in self.streams {
            // Every stream's trace was added with it.
            let trace = keys.binary_search(&trace).unwrap_or(usize::MAX);
            for files in chunks_joined(&key, files) {
                match Rotated::of(&key, &files, trace) {
                    Some(rotation) => rotated.entry(rotation).or_default().extend(files),
                    None => streams.push((stream_of(files), trace)),
                }
            }
        }
        for (rotation, files) in rotated {
            let trace = rotation.trace;
            streams
                .extend(rotation.joined(files).into_iter().map(|files| (stream_of(files), trace)));
        }
        streams.sort_by(|(a, _), (b, _)| a.key().cmp(b.key()));
        let (streams, trace_of) = streams.into_iter().unzip();
        Joined { traces, streams, trace_of }
    }
}

impl TraceKey {
    /// Whether the trace's metadata name it, so that its folders may lie anywhere.
    pub(crate) fn is_named(&self) -> bool {
        self.name != TraceName::None
    }

    pub(crate) fn of(folder: &Path, class: &TraceClass) -> Self {
        let text = |name| class.env(name).and_then(EnvValue::as_str).map(str::to_owned);
        let name = match (class.identity(), class.uuid()) {
            (identity, _) if identity.uid.is_some() => TraceName::Identity(identity.clone()),
            (_, Some(uuid)) => TraceName::Uuid(uuid),
            (_, None) => TraceName::None,
        };
        let alone = (name == TraceName::None).then(|| {
            let process_id = class.env("vpid").and_then(EnvValue::as_integer);
            (place(folder).1, text("procname"), process_id)
        });
        Self { name, host: text("hostname"), alone }
    }
}

/// The chunk that `path` lies in, if any, and where it lies in every chunk of the session.
pub(crate) fn place(path: &Path) -> (Option<ChunkName>, PathBuf) {
    let names: Vec<_> = path.components().collect();
    let chunk = names
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, name)| Some((at, ChunkName::parse(name.as_os_str().to_str()?)?)));
    let Some((at, chunk)) = chunk else {
        let lasting = names.into_iter().filter(|name| name.as_os_str() != OLD_CHUNK);
        return (None, lasting.collect());
    };
    let (session, within) = names.split_at(at);
    let session = match session {
        [session @ .., last] if last.as_os_str() == ARCHIVES => session,
        session => session,
    };
    (Some(chunk), session.iter().chain(within.iter().skip(1)).collect())
}

/// What tells the stream of a file from others of its trace, as far as it is known; the file stands for all at the same
/// place of other chunks.
pub(crate) fn grouping(file: &PacketFile, trace_is_named: bool) -> StreamKey {
    // What names the trace is in its own key; metadata of one trace may differ in their UUID.
    let mut key = StreamKey { trace: None, ..file.key() };
    if !trace_is_named || key.instance_id.is_none() {
        key.file = Some(place(&file.file.path).1);
    }
    key
}

/// The stream that these files are.
pub(crate) fn stream_of(files: Vec<PacketFile>) -> Stream {
    let key = files.first().map(PacketFile::key).unwrap_or_default();
    let mut stream = Stream::new(key, files);
    if stream.key.trace.is_none() || stream.key.instance_id.is_none() {
        stream.key.file = stream.files.iter().map(|file| file.file.path.clone()).min();
    }
    stream
}

/// Files that look alike but for their chunks: one stream if they are as chunks should be, else one each.
fn chunks_joined(key: &StreamKey, mut files: Vec<PacketFile>) -> Vec<Vec<PacketFile>> {
    if key.file.is_none() {
        return vec![files];
    }
    let chunk = |file: &PacketFile| place(&file.file.path).0.map(|chunk| chunk.id);
    files.sort_by_cached_key(|file| (chunk(file), file.file.path.clone()));
    let in_order = files.windows(2).all(|two| match two {
        [a, b] => chunk(a) < chunk(b) && a.time(a.first.begin) <= b.time(b.first.begin),
        _ => true,
    });
    if in_order { vec![files] } else { files.into_iter().map(|file| vec![file]).collect() }
}

/// What files of one tracefile rotation have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rotated {
    /// Without a file.
    key: StreamKey,
    trace: usize,
    cpu: u64,
    /// The files' common place, with the beginning of their name.
    stem: PathBuf,
}

impl Rotated {
    fn of(key: &StreamKey, files: &[PacketFile], trace: usize) -> Option<Self> {
        let file = files.first().filter(|file| file.class.uuid().is_some())?;
        key.instance_id.is_none().then_some(())?;
        let tracer = file.class.env("tracer_name").and_then(EnvValue::as_str)?;
        let (_, path) = place(&file.file.path);
        let (stem, number) = path.file_name()?.to_str()?.rsplit_once('_')?;
        let numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (tracer.starts_with("lttng") && numbered).then_some(())?;
        let key = StreamKey { file: None, ..key.clone() };
        Some(Self { key, trace, cpu: file.cpu?, stem: path.with_file_name(stem) })
    }

    /// One stream if each file ends before the next begins, else one each.
    fn joined(&self, mut files: Vec<PacketFile>) -> Vec<Vec<PacketFile>> {
        files.sort_by_key(|file| file.first.begin);
        let apart = files.windows(2).all(|two| match two {
            [a, b] => {
                let last = a.last_head();
                let end = last.end.filter(|end| *end != 0).max(last.begin);
                end.zip(b.first.begin).is_some_and(|(end, begin)| end <= begin)
            }
            _ => true,
        });
        if apart { vec![files] } else { files.into_iter().map(|file| vec![file]).collect() }
    }
}
