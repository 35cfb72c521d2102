//! What was recorded of a session before its feed was there: before the relay was started again, or its producer came
//! back.
//!
//! Those chunks are sealed, and lie in the session's archives. They are looked at when the first viewer asks for the beginning, away from
//! the threads that serve others: which streams they hold, and how many packets each index file lists.

use std::collections::{BTreeMap, VecDeque};

use ctf::index::{HEADER_LEN, IndexEntry};
use wire::live::{Name, RelativePath, RelaySessionId, StreamHandle};

use super::chunks::ChunkKey;
use super::entry::{Content, Entry};
use super::file::TraceFile;
use super::history;
use super::metadata::Metadata;
use super::stream::Stream;
use super::{Feed, State, lock};
use crate::env::Env;
use crate::error::Result;
use crate::index;
use crate::names::ARCHIVES;
use crate::root::Root;
use crate::seal::parent;

/// How deep a chunk's folders are looked at.
const MAX_DEPTH: usize = 16;
const METADATA: &str = "metadata";
/// The owner of streams that nobody sends.
const NOBODY: RelaySessionId = RelaySessionId::new(0);

/// Sealed chunks of a session that nobody has looked at.
#[derive(Debug, Default)]
pub(super) struct Past(Option<Vec<(ChunkKey, RelativePath)>>);

/// Packets of one stream in one chunk, as an index file says.
#[derive(Debug, Clone, Copy)]
struct Part {
    chunk: ChunkKey,
    /// Number of the trace file.
    file: u64,
    count: u64,
    first: IndexEntry,
}

/// What the chunks hold.
#[derive(Debug, Default)]
struct Found {
    /// By folder in the chunk, and name of the data file.
    streams: BTreeMap<(RelativePath, Name), Vec<Part>>,
    /// The newest metadata of each folder, and their length.
    metadata: BTreeMap<RelativePath, (TraceFile, u64)>,
}

impl Feed {
    /// The session was here before: these are its sealed chunks.
    pub(super) fn goes_on(&self, chunks: Vec<RelativePath>) {
        let mut state = lock(&self.state);
        let chunks = (0..).map(ChunkKey::Before).zip(chunks);
        let chunks: Vec<(ChunkKey, RelativePath)> = chunks.collect();
        for (chunk, folder) in &chunks {
            state.chunks.is_at(*chunk, folder);
        }
        drop(state);
        lock(&self.past).0 = Some(chunks);
    }

    /// Looks at what was recorded before, if nobody has. Waits for the disk, or for another who does.
    pub(crate) fn look_at_past(&self, env: &Env) {
        let mut past = lock(&self.past);
        let Some(chunks) = &past.0 else { return };
        let mut found = Found::default();
        for (chunk, folder) in chunks {
            let looked = found.look(&env.root, *chunk, folder, &RelativePath::default(), MAX_DEPTH);
            if let Err(error) = looked {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%folder, error, "viewers are not shown all of a chunk");
            }
        }
        self.adopt(env, found);
        past.0 = None;
    }

    fn adopt(&self, env: &Env, found: Found) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let mut known: BTreeMap<StreamHandle, Vec<Part>> = BTreeMap::new();
        for ((path, name), mut parts) in found.streams {
            // Without those that were deleted meanwhile.
            parts.retain(|part| state.chunks.folders(part.chunk).next().is_some());
            let is_it = |(handle, entry): (&StreamHandle, &Entry)| {
                entry.file_number(&path, &name).map(|file| (*handle, file))
            };
            if let Some((handle, file)) = state.streams.iter().find_map(is_it) {
                let parts = parts.into_iter().map(|part| Part { file, ..part });
                known.entry(handle).or_default().extend(parts);
            } else if !parts.is_empty() {
                let mut stream = Stream::default();
                self.prepend(&mut stream, parts);
                stream.close();
                let handle =
                    state.insert_past(env, path.clone(), name.clone(), Content::Packets(stream));
                state.returnable.insert((path, name), handle);
            }
        }
        for (handle, parts) in known {
            let entry = state.streams.get_mut(&handle);
            if let Some(Content::Packets(stream)) = entry.map(|entry| &mut entry.content) {
                self.prepend(stream, parts);
            }
        }
        for (path, (file, len)) in found.metadata {
            let trace = state.traces.get(&path);
            let Some(trace) = trace.copied().filter(|trace| !state.metadata.contains_key(trace))
            else {
                continue;
            };
            let Ok(channel) = Name::new(METADATA) else { continue };
            let content = Content::Metadata(Metadata::complete(file, len));
            let handle = state.insert_past(env, path.clone(), channel.clone(), content);
            state.returnable.insert((path, channel), handle);
            state.metadata.insert(trace, handle);
        }
        self.let_go_of_closed(state);
    }

    /// Puts packets in front of those of a stream.
    fn prepend(&self, stream: &mut Stream, mut parts: Vec<Part>) {
        parts.sort_by_key(|part| (part.chunk, part.first.timestamp_begin, part.file));
        let class = parts.last().map(|part| part.first.stream_class_id);
        let parts = parts.iter().map(|part| (part.chunk, part.file, part.count)).collect();
        let change = stream.prepend(parts, class, self.budget.for_stream(None).files);
        self.budget.note(change);
    }
}

impl State {
    /// A stream that nobody sends; who attaches from then on sees it.
    fn insert_past(
        &mut self,
        env: &Env,
        path: RelativePath,
        channel: Name,
        content: Content,
    ) -> StreamHandle {
        let trace = *self.traces.entry(path.clone()).or_insert_with(|| env.next_trace());
        let handle = env.next_past_stream();
        self.publications = self.publications.max(1);
        let entry = Entry {
            owner: NOBODY,
            path,
            channel,
            limit: None,
            trace,
            published: Some(1),
            content,
            open: VecDeque::new(),
        };
        self.streams.insert(handle, entry);
        self.closed.push_front(handle);
        handle
    }
}

impl Found {
    /// Looks at a folder of a chunk, and those in it; `path` is relative to the chunk's.
    fn look(
        &mut self,
        root: &Root,
        chunk: ChunkKey,
        folder: &RelativePath,
        path: &RelativePath,
        depth: usize,
    ) -> Result<()> {
        let place = folder.join_path(path);
        for entry in root.list(&place)? {
            let Ok(name) = Name::new(entry.name.clone()) else { continue };
            match entry.is_dir {
                true if depth > 0 => {
                    self.look(root, chunk, folder, &path.join(&name), depth - 1)?
                }
                true => {}
                false if entry.name == METADATA => {
                    let file = TraceFile::open(root, &[place.join(&name)])?;
                    let len = root.file_len(&place.join(&name))?;
                    self.metadata.insert(path.clone(), (file, len));
                }
                false => {
                    let data_file = index::data_file(path, &entry.name);
                    let data_file = data_file.and_then(|name| Name::new(name).ok());
                    if let Some(data_file) = data_file
                        && let Some((count, first)) = listed(root, &place.join(&name))?
                    {
                        let parts = self.streams.entry((parent(path), data_file)).or_default();
                        parts.push(Part { chunk, file: 0, count, first });
                    }
                }
            }
        }
        Ok(())
    }
}

/// How many packets an index file lists, and the first of them; `None` when there is none, or the file is no index.
fn listed(root: &Root, path: &RelativePath) -> Result<Option<(u64, IndexEntry)>> {
    let len = root.file_len(path)?;
    let file = TraceFile::open(root, std::slice::from_ref(path))?;
    let Ok(first) = history::entries(&file, 0, 1) else { return Ok(None) };
    let record = history::version(&file).map_or(0, |version| version.entry_len() as u64);
    let count = len.saturating_sub(HEADER_LEN as u64).checked_div(record).unwrap_or(0);
    Ok(first.first().map(|first| (count, *first)))
}

/// The sealed chunks in a session's archives, in the order they were recorded.
pub(crate) fn sealed_chunks(root: &Root, session: &RelativePath) -> Result<Vec<RelativePath>> {
    let archives = session.join_path(&RelativePath::new(ARCHIVES).unwrap_or_default());
    let entries = root.list(&archives)?.into_iter();
    let mut chunks: Vec<(u64, RelativePath)> = entries
        .filter(|entry| entry.is_dir)
        .filter_map(|entry| {
            let number = entry.name.rsplit_once('-')?.1.parse().ok()?;
            Some((number, archives.join_path(&RelativePath::new(&entry.name).ok()?)))
        })
        .collect();
    chunks.sort();
    Ok(chunks.into_iter().map(|(_, folder)| folder).collect())
}
