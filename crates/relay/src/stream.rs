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
use crate::losses::Meter;
use crate::mend::relative;
use crate::merge::{Merge, Place};
use crate::metadata;
use crate::pen::Pen;

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

    /// Begins a data file in a chunk's folder. Packets of the chunk before that lie at or after the split
    /// follow it, and so do their entries; gives how many entries that are.
    pub(crate) fn enter(
        &mut self,
        env: &Env,
        from_folder: &RelativePath,
        folder: &RelativePath,
        first: Option<u64>,
    ) -> Result<u64> {
        let old = self.files.take();
        let name = self.data_name(0);
        let data = Arc::new(env.root.create(&folder.join_path(&self.path), &name)?);
        if self.kind == Kind::Metadata {
            self.feed.metadata_begins(self.shown, &data);
        }
        let data = env.files.keep(data);
        self.files = Some(Files { data, data_len: 0, number: 0, index: None });
        match (old, first) {
            (Some(old), Some(first)) => self.take_along(env, from_folder, folder, old, first),
            _ => Ok(0),
        }
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
        if let Err(source) = file.write_all_at(&record, index.len) {
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

    /// Number of the data file being written.
    pub(crate) fn file_number(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.number)
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
        if end > env.limits.metadata_bytes {
            let limit = usize::try_from(env.limits.metadata_bytes).unwrap_or(usize::MAX);
            return Err(Error::Limit { what: "bytes of a stream's metadata", limit });
        }
        data.write_all_at(bytes, files.data_len).on("write", path.as_path())?;
        if padding > 0 {
            data.set_len(end).on("extend", path.as_path())?;
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

    /// Offset in the present data file from which packets belong to the chunk that begins with packet
    /// `at`; `None` when none of them does.
    pub(crate) fn split(
        &mut self,
        env: &Env,
        folder: &RelativePath,
        at: u64,
    ) -> Result<Option<u64>> {
        let path = self.path_in_chunk();
        let index_file = self.index(env, folder)?;
        let Some(files) = &self.files else { return Ok(None) };
        let number = files.number;
        let overtaken = self.merge.last_committed().is_some_and(|last| last.get() >= at);
        let committed = match files.index.as_ref().zip(index_file) {
            Some((index, file))
                if overtaken && index.number == number && self.kind.has_packet_numbers() =>
            {
                first_record(&file, index.len, at)
                    .on("read index of", path.as_path())?
                    .map(|found| found.1)
            }
            _ => None,
        };
        let waiting = self
            .merge
            .waiting_places()
            .filter(|place| place.file == number)
            .map(|place| place.offset)
            .min();
        Ok(committed.into_iter().chain(waiting).min())
    }

    /// Moves packets from `first` on, and their entries, out of the files of the chunk before.
    fn take_along(
        &mut self,
        env: &Env,
        from_folder: &RelativePath,
        folder: &RelativePath,
        mut old: Files,
        first: u64,
    ) -> Result<u64> {
        let path = self.path_in_chunk();
        let name = self.data_name(old.number);
        let old_path = || file_path(from_folder, &self.path, &name);
        let old_data = old.data.get(&env.root, old_path)?;
        let old_index = match &mut old.index {
            Some(index) if index.number == old.number => {
                let folder = self.index_folder(from_folder);
                let none = RelativePath::default();
                let path = || file_path(&folder, &none, &format!("{name}.idx"));
                Some((index.file.get(&env.root, path)?, index.len))
            }
            _ => None,
        };
        let Some(data) = self.data(env, folder)? else { return Ok(0) };
        let Some(files) = &mut self.files else { return Ok(0) };
        let moved = old.data_len.saturating_sub(first);
        copy(&old_data, first, &data, moved).on("move packets of", path.as_path())?;
        old_data.set_len(first).on("truncate", path.as_path())?;
        files.data_len = moved;
        for place in self.merge.waiting_places() {
            if place.file == old.number {
                *place = Place { file: 0, offset: place.offset.saturating_sub(first) };
            }
        }
        let entries = match old_index {
            Some((file, len)) => {
                cut_records(&file, len, first).on("move entries of", path.as_path())?
            }
            None => Vec::new(),
        };
        tracing::debug!(stream = %path, from = %from_folder, to = %folder, bytes = moved, "packets moved to the new chunk");
        if entries.is_empty() {
            return Ok(0);
        }
        let index = self.open_index(env, folder, 0)?;
        if let Some(files) = &mut self.files {
            files.index = Some(index);
        }
        let Some(file) = self.index(env, folder)? else { return Ok(0) };
        if let Some(index) = self.files.as_mut().and_then(|files| files.index.as_mut()) {
            file.write_all_at(&entries, index.len).on("write index of", path.as_path())?;
            index.len += entries.len() as u64;
        }
        Ok((entries.len() / MAX_ENTRY_LEN) as u64)
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
        file.write_all_at(&header, 0).on("write", folder.as_path().join(name))?;
        let file = env.files.keep(Arc::new(file));
        Ok(IndexFile { file, len: header.len() as u64, number })
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

/// Cuts the records of packets from `first` on off the file and gives them with offsets from there.
fn cut_records(index: &File, len: u64, first: u64) -> io::Result<Vec<u8>> {
    let Some((position, _)) = find_record(index, len, |entry| entry.offset_bytes >= first)? else {
        return Ok(Vec::new());
    };
    let len = usize::try_from(len - position).map_err(io::Error::other)?;
    let mut records = vec![0; len];
    index.read_exact_at(&mut records, position)?;
    index.set_len(position)?;
    let mut cut = Vec::with_capacity(len);
    for record in records.chunks_exact(MAX_ENTRY_LEN) {
        let Some(mut entry) = IndexEntry::decode(record, IndexVersion::V1_1) else { continue };
        entry.offset_bytes = entry.offset_bytes.saturating_sub(first);
        entry.encode(IndexVersion::V1_1, &mut cut);
    }
    Ok(cut)
}

fn copy(from: &File, offset: u64, to: &File, len: u64) -> io::Result<()> {
    let mut piece = vec![0; COPY_PIECE];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(COPY_PIECE).min(COPY_PIECE);
        let Some(piece) = piece.get_mut(..want) else { break };
        from.read_exact_at(piece, offset + done)?;
        to.write_all_at(piece, done)?;
        done += want as u64;
    }
    Ok(())
}
