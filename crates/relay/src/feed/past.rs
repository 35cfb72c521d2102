//! What was recorded of a session before its feed was there: before the relay was started again, or its producer came
//! back.
//!
//! Those chunks are sealed, and lie in the session's archives. They are looked at when the first viewer asks for the beginning, away from
//! the threads that serve others: which streams they hold, and how many packets each index file lists.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ctf::index::{HEADER_LEN, IndexEntry};
use tokio::sync::OwnedMutexGuard;
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
#[derive(Debug)]
pub(crate) struct Past(Option<Vec<(ChunkKey, RelativePath)>>);

/// The right to look at them, which one has at a time.
pub(crate) type Unseen = OwnedMutexGuard<Past>;

/// Packets of one stream in one chunk, as an index file says.
#[derive(Debug, Clone, Copy)]
struct Part {
    chunk: ChunkKey,
    /// Number of the trace file.
    file: u64,
    count: u64,
    first: IndexEntry,
}

/// What the chunks hold, by folder in the chunk.
#[derive(Debug, Default)]
struct Found(BTreeMap<RelativePath, Folder>);

/// One trace.
#[derive(Debug, Default)]
struct Folder {
    /// By name of the data file.
    streams: BTreeMap<Name, Vec<Part>>,
    /// The newest metadata: their chunk, where they are and their length.
    metadata: Option<(ChunkKey, RelativePath, u64)>,
}

impl Past {
    /// Those in these folders, oldest first.
    pub(super) fn of(folders: Vec<RelativePath>) -> Self {
        let chunks: Vec<(ChunkKey, RelativePath)> =
            (0..).map(ChunkKey::Before).zip(folders).collect();
        Self((!chunks.is_empty()).then_some(chunks))
    }

    pub(super) fn chunks(&self) -> &[(ChunkKey, RelativePath)] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Feed {
    /// What nobody has looked at yet; waits while another looks. `None` once all was looked at.
    pub(crate) async fn unseen_past(&self) -> Option<Unseen> {
        let past = Arc::clone(&self.past).lock_owned().await;
        past.0.is_some().then_some(past)
    }

    /// Looks at what was recorded before. Waits for the disk.
    pub(crate) fn look_at_past(&self, mut unseen: Unseen, env: &Env) {
        let mut found = Found::default();
        for (chunk, folder) in unseen.chunks() {
            let looked = found.look(&env.root, *chunk, folder, &RelativePath::default(), MAX_DEPTH);
            if let Err(error) = looked {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%folder, error, "viewers are not shown all of a chunk");
            }
        }
        self.adopt(env, found);
        unseen.0 = None;
    }

    fn adopt(&self, env: &Env, found: Found) {
        let folders = self.chosen(found);
        let metadata: Vec<Option<Metadata>> =
            folders.iter().map(|(_, folder)| folder.open_metadata(&env.root)).collect();
        let mut state = lock(&self.state);
        let state = &mut *state;
        for ((path, folder), metadata) in folders.into_iter().zip(metadata) {
            self.adopt_streams(state, env, &path, folder.streams);
            let trace = state.traces.get(&path);
            let trace = trace.copied().filter(|trace| !state.metadata.contains_key(trace));
            if let (Some(trace), Some(metadata), Ok(channel)) =
                (trace, metadata, Name::new(METADATA))
            {
                let content = Content::Metadata(metadata);
                let handle = state.insert_past(env, path.clone(), channel.clone(), content);
                state.returnable.add((path, channel), handle);
                state.metadata.insert(trace, handle);
            }
        }
        self.let_go_of_closed(state);
    }

    /// The folders that viewers are shown, newest first: those of traces that are known, and of others as many as may be kept
    /// of what has ended.
    fn chosen(&self, found: Found) -> Vec<(RelativePath, Folder)> {
        let mut folders: Vec<(RelativePath, Folder)> = found.0.into_iter().collect();
        folders.sort_by_key(|(_, folder)| std::cmp::Reverse(folder.newest()));
        let state = lock(&self.state);
        let mut room = self.closed_kept.max(1);
        let before = folders.len();
        folders.retain(|(path, folder)| {
            let is_known = state.traces.contains_key(path);
            let taken = room.checked_sub(folder.len()).filter(|_| !is_known);
            room = taken.unwrap_or(room);
            is_known || taken.is_some()
        });
        let left_out = before - folders.len();
        if left_out > 0 {
            tracing::info!(traces = left_out, "viewers are not shown the oldest traces");
        }
        folders
    }

    /// Puts packets in front of those of streams that are known; of each other trace file it makes a stream that has ended.
    fn adopt_streams(
        &self,
        state: &mut State,
        env: &Env,
        path: &RelativePath,
        streams: BTreeMap<Name, Vec<Part>>,
    ) {
        let mut known: BTreeMap<StreamHandle, Vec<Part>> = BTreeMap::new();
        for (name, mut parts) in streams {
            // Without those that were deleted meanwhile.
            parts.retain(|part| state.chunks.folders(part.chunk).next().is_some());
            let is_it = |(handle, entry): (&StreamHandle, &Entry)| {
                entry.file_number(path, &name).map(|file| (*handle, file))
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
                state.returnable.add((path.clone(), name), handle);
            }
        }
        for (handle, parts) in known {
            let entry = state.streams.get_mut(&handle);
            if let Some(Entry { content: Content::Packets(stream), trace, channel, .. }) = entry {
                self.prepend(stream, parts);
                stream.class().into_iter().for_each(|it| state.classes.is(*trace, channel, it));
            }
        }
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
        if let Some(class) = entry.packets().and_then(Stream::class) {
            self.classes.is(trace, &entry.channel, class);
        }
        self.streams.insert(handle, entry);
        self.closed.first(handle);
        handle
    }
}

impl Folder {
    /// How many streams it has, with that of the metadata.
    fn len(&self) -> usize {
        self.streams.len() + 1
    }

    /// The newest chunk that it is in.
    fn newest(&self) -> Option<ChunkKey> {
        let parts = self.streams.values().flatten().map(|part| part.chunk);
        parts.chain(self.metadata.iter().map(|(chunk, _, _)| *chunk)).max()
    }

    /// `None` when there are none, or they are not there any more.
    fn open_metadata(&self, root: &Root) -> Option<Metadata> {
        let (_, path, len) = self.metadata.as_ref()?;
        let file = TraceFile::open(root, std::slice::from_ref(path)).inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(%path, error, "viewers are not shown a trace");
        });
        Some(Metadata::complete(file.ok()?, *len))
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
                    let file = place.join(&name);
                    let len = root.file_len(&file)?;
                    self.0.entry(path.clone()).or_default().metadata = Some((chunk, file, len));
                }
                false => {
                    let data_file = index::data_file(path, &entry.name);
                    let data_file = data_file.and_then(|name| Name::new(name).ok());
                    if let Some(data_file) = data_file
                        && let Some((count, first)) = listed(root, &place.join(&name))?
                    {
                        let folder = self.0.entry(parent(path)).or_default();
                        let parts = folder.streams.entry(data_file).or_default();
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
