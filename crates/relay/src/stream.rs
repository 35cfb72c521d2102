//! One stream: its files in the chunk it is in, and its way from chunk to chunk.
//!
//! ```text
//! data file    CHANNEL                 with a trace file limit: CHANNEL_0, CHANNEL_1, … then from _0 again
//! index file   index/CHANNEL.idx       likewise CHANNEL_0.idx …
//! ```
//! A data file is made when the stream enters a chunk, its index file with the first entry.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ctf::index::{HEADER_LEN, IndexEntry, IndexVersion, MAX_ENTRY_LEN};
use wire::live::{
    AddStream, ChunkId, DataHeader, Name, NetSeqNum, PacketIndex, RelativePath, RelaySessionId,
    StreamHandle, TracefileLimit,
};

use crate::env::Env;
use crate::error::{Error, FileContext, Result};
use crate::feed::Feed;
use crate::files::Kept;
use crate::index;
use crate::journal::{Change, Moving, Number};
use crate::losses::Meter;
use crate::mend::relative;
use crate::merge::{Merge, Place};
use crate::metadata;
use crate::pen::Pen;
use crate::root::Root;

/// Pieces in which bytes are moved from file to file.
const COPY_PIECE: usize = 64 * 1024;

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Metadata, on the control connection.
    Metadata,
    /// Packets, each with an index entry; `full` ones have the fields that came with LTTng 2.8.
    Indexed { full: bool },
    /// Packets without index entries: snapshots.
    Bare,
}

/// A stream of a relay session.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) session: RelaySessionId,
    pub(crate) kind: Kind,
    channel: Name,
    /// Relative to the chunk's folder.
    path: RelativePath,
    limit: Option<TracefileLimit>,
    pub(crate) merge: Merge,
    pub(crate) meter: Meter,
    /// The chunk it is in.
    pub(crate) chunk: Option<ChunkId>,
    /// Where a waiting rotation leads.
    pub(crate) target: Option<ChunkId>,
    files: Option<Files>,
    /// What could not be changed when it entered a chunk.
    pub(crate) unfinished: Option<Moving>,
    /// The last packet, once the producer closed the stream.
    pub(crate) closing: Option<NetSeqNum>,
    /// Asked about since `BEGIN_DATA_PENDING`.
    pub(crate) asked: bool,
    /// Where viewers are shown it, under this handle: not the producer's, with which one could write.
    pub(crate) feed: Arc<Feed>,
    pub(crate) shown: StreamHandle,
    pen: Pen,
}

/// The files being written in the present chunk.
#[derive(Debug)]
struct Files {
    data: Kept,
    data_len: u64,
    /// Number of the data file in this chunk, counted from 0 without wrapping.
    number: u64,
    index: Option<IndexFile>,
}

#[derive(Debug)]
struct IndexFile {
    file: Kept,
    len: u64,
    /// Number of the data file it describes.
    number: u64,
}

/// Where the bytes of a packet go.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) file: Arc<File>,
    pub(crate) place: Place,
    pub(crate) pen: Pen,
}

impl Kind {
    /// Whether index entries are to be expected.
    pub(crate) const fn is_indexed(self) -> bool {
        matches!(self, Self::Indexed { .. })
    }

    const fn has_packet_numbers(self) -> bool {
        matches!(self, Self::Indexed { full: true })
    }
}

impl Stream {
    pub(crate) fn new(
        session: RelaySessionId,
        request: &AddStream,
        kind_of_data: Kind,
        (feed, shown): (Arc<Feed>, StreamHandle),
    ) -> Self {
        Self {
            session,
            kind: if request.is_metadata() { Kind::Metadata } else { kind_of_data },
            channel: request.channel.clone(),
            path: request.path.clone(),
            limit: request.tracefile,
            merge: Merge::default(),
            meter: Meter::default(),
            chunk: None,
            target: None,
            files: None,
            unfinished: None,
            closing: None,
            asked: false,
            feed,
            shown,
            pen: Pen::default(),
        }
    }

    /// Its path in a chunk, as events and journals name it.
    pub(crate) fn path_in_chunk(&self) -> RelativePath {
        self.path.join(&self.channel)
    }

    /// Begins a data file in a chunk's folder. Packets of the chunk before from the pivot on follow it, and so do their entries;
    /// viewers find them there. When it fails the stream is where it was.
    pub(crate) fn enter(
        &mut self,
        env: &Env,
        (from, (to, folder)): (&RelativePath, (ChunkId, &RelativePath)),
        pivot: Option<(Place, Number)>,
    ) -> Result<()> {
        let name = self.data_name(0);
        let data = Arc::new(env.root.create(&folder.join_path(&self.path), &name)?);
        let made =
            Files { data: env.files.keep(Arc::clone(&data)), data_len: 0, number: 0, index: None };
        let old = self.files.replace(made);
        if let (Some(mut old), Some((pivot, note))) = (old, pivot) {
            let moved = self.take_along(env, (from, (to, folder)), &mut old, pivot, note);
            if moved.is_err() {
                self.files = Some(old);
            }
            moved?;
        }
        if self.kind == Kind::Metadata {
            self.feed.metadata_begins(self.shown, &data);
        }
        Ok(())
    }

    /// Leaves the chunk without entering another.
    pub(crate) fn leave(&mut self) {
        self.files = None;
        self.chunk = None;
    }

    /// Where the next packet goes; begins the next trace file when the limit says so.
    pub(crate) fn slot(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        header: &DataHeader,
    ) -> Result<Option<Slot>> {
        let Some(files) = &self.files else { return Ok(None) };
        let full = self.limit.is_some_and(|limit| {
            files.data_len > 0 && files.data_len + u64::from(header.data_len) > limit.size_bytes
        });
        if full {
            let number = files.number + 1;
            let name = self.data_name(number);
            let kept = self.limit.and_then(|limit| limit.count);
            if let (Some(chunk), Some(last)) =
                (self.chunk, kept.and_then(|kept| number.checked_sub(kept)))
            {
                self.feed.overwritten(self.shown, chunk, last);
            }
            let data = Arc::new(env.root.replace(&folder.join_path(&self.path), &name)?);
            if let Some(files) = &mut self.files {
                files.data = env.files.keep(data);
                files.data_len = 0;
                files.number = number;
            }
        }
        let Some(file) = self.data(env, folder)? else { return Ok(None) };
        Ok(self.files.as_ref().map(|files| Slot {
            file,
            place: Place { file: files.number, offset: files.data_len },
            pen: self.pen.lend(),
        }))
    }

    /// Takes the file from who writes a packet to it, and cuts off what there is of that; says whether there was one.
    pub(crate) fn stop_writing(&mut self, env: &Env, folder: &RelativePath) -> Result<bool> {
        self.pen.take_back();
        if !self.merge.is_in_flight() {
            return Ok(false);
        }
        self.merge.packet_cut_short();
        let path = self.path_in_chunk();
        if let (Some(file), Some(files)) = (self.data(env, folder)?, &self.files) {
            file.set_len(files.data_len).on("truncate", path.as_path())?;
        }
        Ok(true)
    }

    /// Cuts off the packets that have not met their entries, and forgets entries that have not met their packets.
    pub(crate) fn cut_to_committed(&mut self, env: &Env, folder: &RelativePath) -> Result<()> {
        let mut lens: BTreeMap<u64, u64> = BTreeMap::new();
        for Place { file, offset } in self.merge.forget_waiting() {
            let len = lens.entry(file).or_insert(offset);
            *len = offset.min(*len);
        }
        let kept = self.limit.and_then(|limit| limit.count).unwrap_or(u64::MAX);
        for (number, len) in lens {
            let Some(files) = &mut self.files else { return Ok(()) };
            let path = file_path(folder, &self.path, &data_name(&self.channel, self.limit, number));
            if number == files.number {
                files.data_len = len;
                files.data.get(&env.root, || path.clone())?.set_len(len)
            } else if files.number.saturating_sub(number) < kept {
                env.root.read_write(&path)?.set_len(len)
            } else {
                Ok(())
            }
            .on("truncate", path.as_path())?;
        }
        Ok(())
    }

    /// The data file being written, in the chunk's folder.
    fn data(&mut self, env: &Env, folder: &RelativePath) -> Result<Option<Arc<File>>> {
        let (path, channel, limit) = (&self.path, &self.channel, self.limit);
        let Some(files) = &mut self.files else { return Ok(None) };
        let number = files.number;
        let place = || file_path(folder, path, &data_name(channel, limit, number));
        files.data.get(&env.root, place).map(Some)
    }

    /// The index file being written, in the chunk's folder.
    fn index(&mut self, env: &Env, folder: &RelativePath) -> Result<Option<Arc<File>>> {
        let (path, channel, limit) = (&self.path, &self.channel, self.limit);
        let Some(index) = self.files.as_mut().and_then(|files| files.index.as_mut()) else {
            return Ok(None);
        };
        let number = index.number;
        let place = || {
            let name = format!("{}.idx", data_name(channel, limit, number));
            file_path(&index_folder(folder, path), &RelativePath::default(), &name)
        };
        index.file.get(&env.root, place).map(Some)
    }

    /// The packet at the end of the file is whole.
    pub(crate) const fn grow(&mut self, len: u64) {
        if let Some(files) = &mut self.files {
            files.data_len += len;
        }
    }

    /// Writes an entry. One whose trace file was overwritten meanwhile is dropped: `false`.
    pub(crate) fn append_index(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        place: Place,
        entry: &PacketIndex,
    ) -> Result<bool> {
        let Some(files) = &self.files else { return Ok(false) };
        let kept = self.limit.and_then(|limit| limit.count).unwrap_or(u64::MAX);
        if files.number.saturating_sub(place.file) >= kept {
            return Ok(false);
        }
        if files.index.as_ref().is_none_or(|index| index.number != place.file) {
            let opened = self.open_index(env, folder, place.file)?;
            if let Some(files) = &mut self.files {
                files.index = Some(opened);
            }
        }
        let Some(file) = self.index(env, folder)? else { return Ok(false) };
        let Some(index) = self.files.as_mut().and_then(|files| files.index.as_mut()) else {
            return Ok(false);
        };
        let mut record = Vec::with_capacity(MAX_ENTRY_LEN);
        let version = index::version(self.kind.has_packet_numbers());
        index::entry(place.offset, entry).encode(version, &mut record);
        if let Err(source) = env.root.write_at(&file, &record, index.len) {
            return Err(source).on("write index in", index_folder(folder, &self.path).as_path());
        }
        index.len += record.len() as u64;
        Ok(true)
    }

    /// Shows viewers a packet whose entry was written.
    pub(crate) fn show(&self, env: &Env, place: Place, entry: &PacketIndex) {
        if let (Some(chunk), Some(files)) = (self.chunk, &self.files) {
            let file = (files.number == place.file).then(|| files.data.open()).flatten();
            let shown = (chunk, place);
            self.feed.release(self.shown, shown, *entry, file.as_ref(), &env.counters);
        }
    }

    /// Whether so many bytes of metadata may be added.
    pub(crate) fn check_metadata_len(&self, env: &Env, added: u64) -> Result<()> {
        let max = env.limits.metadata_bytes;
        let has = self.files.as_ref().map_or(0, |files| files.data_len);
        if self.kind == Kind::Metadata && has.saturating_add(added) > max {
            let limit = usize::try_from(max).unwrap_or(usize::MAX);
            return Err(Error::Limit { what: "bytes of a stream's metadata", limit });
        }
        Ok(())
    }

    /// Appends metadata and its padding.
    pub(crate) fn append_metadata(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        bytes: &[u8],
        padding: u64,
    ) -> Result<bool> {
        let path = self.path_in_chunk();
        let Some(data) = self.data(env, folder)? else { return Ok(false) };
        let Some(files) = &mut self.files else { return Ok(false) };
        let end = files.data_len + bytes.len() as u64 + padding;
        let written = env.root.write_at(&data, bytes, files.data_len);
        let padded = written.and_then(|()| if padding > 0 { data.set_len(end) } else { Ok(()) });
        if let Err(error) = padded {
            // Half a declaration spoils those before it.
            drop(data.set_len(files.data_len));
            return Err(error).on("write", path.as_path());
        }
        files.data_len = end;
        self.feed.metadata(self.shown, bytes, padding);
        Ok(true)
    }

    /// Begins the metadata anew. Those there are stay beside them for the case that the new ones do not become whole; of two
    /// that are replaced in a chunk, the longer.
    pub(crate) fn reset_metadata(&mut self, env: &Env, folder: &RelativePath) -> Result<bool> {
        let folder = folder.join_path(&self.path);
        let name = self.data_name(0);
        let Some(files) = &mut self.files else { return Ok(false) };
        let place = folder.join_path(&relative(&name));
        let replaced = folder.join_path(&relative(metadata::REPLACED));
        let had = if env.root.exists(&replaced) { env.root.file_len(&replaced)? } else { 0 };
        let data = if files.data_len == 0 {
            files.data.get(&env.root, || place)?
        } else if files.data_len < had {
            Arc::new(env.root.replace(&folder, &name)?)
        } else {
            env.root.remove_file(&replaced)?;
            env.root.rename(&place, &replaced)?;
            let made = env.root.create(&folder, &name);
            if made.is_err() {
                env.root.rename(&replaced, &place)?;
            }
            Arc::new(made?)
        };
        self.feed.metadata_reset(self.shown, &data);
        files.data = env.files.keep(data);
        files.data_len = 0;
        Ok(true)
    }

    /// Where the packets begin that belong to the chunk that begins with packet `at`; `None` when none of them is there.
    pub(crate) fn split(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        at: u64,
    ) -> Result<Option<Place>> {
        let path = self.path_in_chunk();
        let overtaken = self.merge.last_committed().is_some_and(|last| last.get() >= at);
        let indexed = self.files.as_ref().and_then(|files| files.index.as_ref());
        let indexed = indexed.map(|index| index.number);
        let mut committed = None;
        if overtaken && self.kind.has_packet_numbers() {
            for number in (0..indexed.map_or(0, |last| last.saturating_add(1))).rev() {
                let Some((file, len)) = self.index_of(env, folder, number)? else { break };
                let found = first_record(&file, len, at).on("read index of", path.as_path())?;
                let Some((record, offset)) = found else { break };
                committed = Some(Place { file: number, offset });
                if record > HEADER_LEN as u64 {
                    break;
                }
            }
        }
        let waiting = self.merge.waiting_places().map(|place| *place);
        let in_order = |place: &Place| (place.file, place.offset);
        Ok(committed.into_iter().chain(waiting).min_by_key(in_order))
    }

    /// The index of a data file of the chunk it is in, and how long it is; `None` when that has none, or was overwritten.
    fn index_of(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        number: u64,
    ) -> Result<Option<(Arc<File>, u64)>> {
        let Some(files) = &self.files else { return Ok(None) };
        if let Some(index) = files.index.as_ref().filter(|index| index.number == number) {
            let len = index.len;
            return Ok(self.index(env, folder)?.map(|file| (file, len)));
        }
        let kept = self.limit.and_then(|limit| limit.count).unwrap_or(u64::MAX);
        let place = self.index_path(folder, number);
        if files.number.saturating_sub(number) >= kept || !env.root.exists(&place) {
            return Ok(None);
        }
        let file = env.root.read_write(&place)?;
        let len = file.metadata().on("look at", place.as_path())?.len();
        Ok(Some((Arc::new(file), len)))
    }

    /// Moves packets from the pivot on, and their entries, out of the files of the chunk before. A kill leaves a note of what is
    /// to be undone or, once all is copied, to be finished. A failure undoes it; where that fails too, it is left to be done
    /// again.
    fn take_along(
        &mut self,
        env: &Env,
        (from, (to, folder)): (&RelativePath, (ChunkId, &RelativePath)),
        old: &mut Files,
        pivot: Place,
        note: Number,
    ) -> Result<()> {
        let kept = self.limit.and_then(|limit| limit.count).unwrap_or(u64::MAX);
        let first = pivot.file.max((old.number + 1).saturating_sub(kept));
        let numbers = first..=old.number;
        let made = numbers.clone().map(|number| number - pivot.file).chain([0]);
        let made = made
            .flat_map(|number| [self.data_path(folder, number), self.index_path(folder, number)]);
        let undo = Moving { changes: made.map(Change::Gone).collect() };
        let copied = undo.write(&env.root, note).and_then(|()| {
            let mut moved = vec![0; usize::try_from(first - pivot.file).unwrap_or(0)];
            let mut changes = Vec::new();
            for number in numbers {
                let offset = if number == pivot.file { pivot.offset } else { 0 };
                let (entries, cut) =
                    self.copy_file(env, (from, folder), old, (number, offset), pivot.file)?;
                moved.push(entries);
                changes.extend(cut);
            }
            let moving = Moving { changes };
            moving.write(&env.root, note).map(|()| (moved, moving))
        });
        let (moved, moving) = match copied {
            Ok(copied) => copied,
            Err(error) => {
                self.finish_moving(env, undo, note);
                return Err(error);
            }
        };
        // All is in the new chunk from here on. Who reads where it was is told before that is cut.
        if let Some(left) = self.chunk {
            self.feed.relocate(self.shown, (left, pivot.file, pivot.offset), &moved, to);
        }
        self.finish_moving(env, moving, note);
        for place in self.merge.waiting_places() {
            let offset = if place.file == pivot.file { pivot.offset } else { 0 };
            place.offset = place.offset.saturating_sub(offset);
            place.file = place.file.saturating_sub(pivot.file);
        }
        tracing::debug!(stream = %self.path_in_chunk(), %from, to = %folder, "packets moved to the new chunk");
        Ok(())
    }

    fn finish_moving(&mut self, env: &Env, moving: Moving, note: Number) {
        if let Err(error) = moving.finish(&env.root, note) {
            let (stream, error) = (self.path_in_chunk(), &error as &dyn std::error::Error);
            tracing::error!(%stream, error, "packets that were moved are in two chunks; it is tried again");
            self.unfinished = Some(moving);
        }
    }

    /// Copies what lies in a data file from an offset on, and its entries, to the file so many numbers before in the new chunk,
    /// which is the one being written then. Gives how many entries that are, and what is to be cut off.
    fn copy_file(
        &mut self,
        env: &Env,
        (from, folder): (&RelativePath, &RelativePath),
        old: &mut Files,
        (number, offset): (u64, u64),
        before: u64,
    ) -> Result<(u64, Vec<Change>)> {
        let path = self.path_in_chunk();
        let target = number - before;
        let (data_path, index_path) = (self.data_path(from, number), self.index_path(from, number));
        let (source, len) = if number == old.number {
            (old.data.get(&env.root, || data_path.clone())?, old.data_len)
        } else {
            let file = env.root.read_write(&data_path)?;
            let len = file.metadata().on("look at", data_path.as_path())?.len();
            (Arc::new(file), len)
        };
        if target > 0 {
            let dir = folder.join_path(&self.path);
            let data = Arc::new(env.root.replace(&dir, &self.data_name(target))?);
            let data = env.files.keep(data);
            self.files = Some(Files { data, data_len: 0, number: target, index: None });
        }
        let Some(data) = self.data(env, folder)? else { return Ok((0, Vec::new())) };
        let moved = len.saturating_sub(offset);
        copy(&env.root, (&source, offset), &data, moved).on("move packets of", path.as_path())?;
        if let Some(files) = &mut self.files {
            files.data_len = moved;
        }
        let index = match &mut old.index {
            Some(index) if index.number == number => {
                let len = index.len;
                Some((index.file.get(&env.root, || index_path.clone())?, len))
            }
            Some(index) if index.number > number && env.root.exists(&index_path) => {
                let file = env.root.read_write(&index_path)?;
                let len = file.metadata().on("look at", index_path.as_path())?.len();
                Some((Arc::new(file), len))
            }
            _ => None,
        };
        let records = index.map(|(file, len)| records_from(&file, len, offset)).transpose();
        let records = records.on("read index of", path.as_path())?.flatten();
        let changes = match &records {
            _ if offset == 0 => vec![Change::Gone(data_path), Change::Gone(index_path)],
            Some((at, _)) => vec![Change::Cut(data_path, offset), Change::Cut(index_path, *at)],
            None => vec![Change::Cut(data_path, offset)],
        };
        let Some((_, entries)) = records else { return Ok((0, changes)) };
        let mut index = self.open_index(env, folder, target)?;
        let file = index.file.get(&env.root, || self.index_path(folder, target))?;
        env.root.write_at(&file, &entries, index.len).on("write index of", path.as_path())?;
        index.len += entries.len() as u64;
        if let Some(files) = &mut self.files {
            files.index = Some(index);
        }
        Ok(((entries.len() / MAX_ENTRY_LEN) as u64, changes))
    }

    fn open_index(&self, env: &Env, folder: &RelativePath, number: u64) -> Result<IndexFile> {
        let folder = self.index_folder(folder);
        let name = format!("{}.idx", self.data_name(number));
        let file = if self.wraps(number) {
            env.root.replace(&folder, &name)?
        } else {
            env.root.create(&folder, &name)?
        };
        let header = index::version(self.kind.has_packet_numbers()).header();
        if let Err(error) = env.root.write_at(&file, &header, 0) {
            // It is to be made again.
            env.root.remove_file(&folder.join_path(&relative(&name)))?;
            return Err(error).on("write", folder.as_path().join(name));
        }
        let file = env.files.keep(Arc::new(file));
        Ok(IndexFile { file, len: header.len() as u64, number })
    }

    /// A data file, relative to the root.
    fn data_path(&self, folder: &RelativePath, number: u64) -> RelativePath {
        file_path(folder, &self.path, &self.data_name(number))
    }

    /// The index of a data file, relative to the root.
    fn index_path(&self, folder: &RelativePath, number: u64) -> RelativePath {
        let name = format!("{}.idx", self.data_name(number));
        self.index_folder(folder).join_path(&relative(&name))
    }

    fn index_folder(&self, folder: &RelativePath) -> RelativePath {
        index_folder(folder, &self.path)
    }

    fn wraps(&self, number: u64) -> bool {
        self.limit.and_then(|limit| limit.count).is_some_and(|count| number >= count)
    }

    fn data_name(&self, number: u64) -> String {
        data_name(&self.channel, self.limit, number)
    }
}

/// Where the index files of streams at `path` are, relative to the root.
fn index_folder(folder: &RelativePath, path: &RelativePath) -> RelativePath {
    let index = RelativePath::new("index").unwrap_or_default();
    folder.join_path(path).join_path(&index)
}

/// A file of a stream, relative to the root.
fn file_path(folder: &RelativePath, path: &RelativePath, name: &str) -> RelativePath {
    let name = RelativePath::new(name).unwrap_or_default();
    folder.join_path(path).join_path(&name)
}

/// The name of a stream's data file with this number.
pub(crate) fn data_name(channel: &Name, limit: Option<TracefileLimit>, number: u64) -> String {
    match limit {
        None => channel.to_string(),
        Some(TracefileLimit { count: Some(count), .. }) => format!("{channel}_{}", number % count),
        Some(_) => format!("{channel}_{number}"),
    }
}

/// The first record at or after a packet: (offset in the index file, offset in the data file).
fn first_record(index: &File, len: u64, at: u64) -> io::Result<Option<(u64, u64)>> {
    find_record(index, len, |entry| {
        entry.position.is_some_and(|position| position.packet_seq_num >= at)
    })
}

/// The first record that `wanted` picks, from the end backwards while it does. Of an index with packet numbers.
fn find_record(
    index: &File,
    len: u64,
    wanted: impl Fn(&IndexEntry) -> bool,
) -> io::Result<Option<(u64, u64)>> {
    let mut record = [0; MAX_ENTRY_LEN];
    let mut position = len;
    let mut found = None;
    while position >= (HEADER_LEN + MAX_ENTRY_LEN) as u64 {
        position -= MAX_ENTRY_LEN as u64;
        index.read_exact_at(&mut record, position)?;
        match IndexEntry::decode(&record, IndexVersion::V1_1) {
            Some(entry) if wanted(&entry) => found = Some((position, entry.offset_bytes)),
            _ => break,
        }
    }
    Ok(found)
}

/// The records of packets from `first` on with offsets from there, and where they begin; `None` when there are none.
fn records_from(index: &File, len: u64, first: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    let Some((position, _)) = find_record(index, len, |entry| entry.offset_bytes >= first)? else {
        return Ok(None);
    };
    let len = usize::try_from(len - position).map_err(io::Error::other)?;
    let mut records = vec![0; len];
    index.read_exact_at(&mut records, position)?;
    let mut moved = Vec::with_capacity(len);
    for record in records.chunks_exact(MAX_ENTRY_LEN) {
        let Some(mut entry) = IndexEntry::decode(record, IndexVersion::V1_1) else { continue };
        entry.offset_bytes = entry.offset_bytes.saturating_sub(first);
        entry.encode(IndexVersion::V1_1, &mut moved);
    }
    Ok(Some((position, moved)))
}

fn copy(root: &Root, (from, offset): (&File, u64), to: &File, len: u64) -> io::Result<()> {
    let mut piece = vec![0; COPY_PIECE];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(COPY_PIECE).min(COPY_PIECE);
        let Some(piece) = piece.get_mut(..want) else { break };
        from.read_exact_at(piece, offset + done)?;
        root.write_at(to, piece, done)?;
        done += want as u64;
    }
    Ok(())
}
