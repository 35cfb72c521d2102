//! Reads for viewers who are behind what is in memory. Everything here waits for the disk.
//!
//! A file may be moved, cut or replaced while it is read. Writers tell the feed before they overwrite, cut or delete one; so
//! entries hold if there were as many, and if the feed still knows them where they were read.

use std::io;

use ctf::index::{HEADER_LEN, IndexEntry, IndexVersion, MAX_ENTRY_LEN};
use wire::live::StreamHandle;

use super::chunks::ChunkKey;
use super::file::TraceFile;
use super::packet::{Packet, Page, Stored};
use super::{Feed, lock};
use crate::error::{Error, FileContext, Result};
use crate::root::Root;

/// Looks for a file that is being moved.
const TRIES: usize = 3;

impl Feed {
    /// Reads entries, at most `most` of them, and opens their file; `None` when they are gone or elsewhere by now.
    pub(crate) fn read_page(
        &self,
        root: &Root,
        handle: StreamHandle,
        stored: &Stored,
        most: usize,
    ) -> Result<Option<Page>> {
        let (chunk, number) = stored.file();
        let paths = {
            let state = lock(&self.state);
            let Some(entry) = state.streams.get(&handle) else { return Ok(None) };
            entry.index_paths(&state.chunks, chunk, number)
        };
        let index = TraceFile::open(root, &paths)?;
        let name = || paths.first().map(|path| path.as_path().to_owned()).unwrap_or_default();
        let count = usize::try_from(stored.count).unwrap_or(most).min(most);
        let entries = entries(&index, stored.record(), count).on("read index", name())?;
        let Some(file) = self.file(root, handle, (chunk, number))? else { return Ok(None) };
        Ok(self.accept(handle, stored, entries, file))
    }

    /// Entries that were read; `None` when they are gone or elsewhere by now, for then they may be others.
    pub(super) fn accept(
        &self,
        handle: StreamHandle,
        stored: &Stored,
        entries: Vec<IndexEntry>,
        file: TraceFile,
    ) -> Option<Page> {
        let (chunk, number) = stored.file();
        let mut state = lock(&self.state);
        let entry = state.streams.get_mut(&handle)?;
        entry.packets().filter(|stream| stream.has(stored))?;
        entry.opened(chunk, number, &file);
        Some(Page { chunk, number, first: stored.number, entries, file: Some(file) })
    }

    /// Finds a packet and opens its file; `None` when it is gone. An error may pass.
    pub(crate) fn open(
        &self,
        root: &Root,
        handle: StreamHandle,
        number: u64,
    ) -> Result<Option<(TraceFile, Packet)>> {
        let find = || lock(&self.state).packets(handle)?.find(number);
        for _ in 0..TRIES {
            match find() {
                None => return Ok(None),
                Some(Ok(packet)) => {
                    let file = self.file(root, handle, (packet.chunk, packet.file))?;
                    // A file of this name may be another one by now, but then the packet is gone or elsewhere.
                    let Some(file) = file.filter(|_| find() == Some(Ok(packet))) else { continue };
                    if let Some(entry) = lock(&self.state).streams.get_mut(&handle) {
                        entry.opened(packet.chunk, packet.file, &file);
                    }
                    return Ok(Some((file, packet)));
                }
                Some(Err(stored)) => {
                    let page = self.read_page(root, handle, &stored, 1)?;
                    let found = page.and_then(|page| page.take_first());
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
        }
        Err(Error::Meaningless { what: "a packet that is on its way to another chunk" })
    }

    /// Opens a trace file; `None` when its stream is not known any more.
    fn file(
        &self,
        root: &Root,
        handle: StreamHandle,
        (chunk, number): (ChunkKey, u64),
    ) -> Result<Option<TraceFile>> {
        let mut last = None;
        // A chunk may move between the look and the opening.
        for _ in 0..TRIES {
            let paths = {
                let state = lock(&self.state);
                let Some(entry) = state.streams.get(&handle) else { return Ok(None) };
                if let Some(file) = entry.open_file(chunk, number) {
                    return Ok(Some(file));
                }
                entry.data_paths(&state.chunks, chunk, number)
            };
            match TraceFile::open(root, &paths) {
                Ok(file) => return Ok(Some(file)),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    }
}

/// The version of an index file.
pub(super) fn version(index: &TraceFile) -> io::Result<IndexVersion> {
    let mut header = [0; HEADER_LEN];
    index.read_exact_at(&mut header, 0)?;
    IndexVersion::decode(&header).map_err(io::Error::other)
}

/// Reads `count` entries of an index file after the first `skipped`.
pub(super) fn entries(
    index: &TraceFile,
    skipped: u64,
    count: usize,
) -> io::Result<Vec<IndexEntry>> {
    let version = version(index)?;
    let len = version.entry_len();
    let offset = skipped.saturating_mul(len as u64).saturating_add(HEADER_LEN as u64);
    let mut bytes = vec![0; count * len.min(MAX_ENTRY_LEN)];
    index.read_exact_at(&mut bytes, offset)?;
    Ok(bytes.chunks_exact(len).filter_map(|record| IndexEntry::decode(record, version)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctf::index::PacketIndex;
    use wire::live::RelativePath;

    #[test]
    fn entries_are_read_in_pieces_and_never_half() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for version in [IndexVersion::V1_0, IndexVersion::V1_1] {
            let entry = |number| IndexEntry::decode(&[number; MAX_ENTRY_LEN], version).unwrap();
            let all = PacketIndex { version, entries: (0..10).map(entry).collect() };
            std::fs::write(folder.path().join("i"), all.encode()).unwrap();
            let paths = [RelativePath::new("i").unwrap()];
            let file = TraceFile::open(&root, &paths).unwrap();
            assert_eq!(entries(&file, 0, 10).unwrap(), all.entries);
            assert_eq!(entries(&file, 7, 2).unwrap(), all.entries[7..9]);
            let end = io::ErrorKind::UnexpectedEof;
            assert_eq!(entries(&file, 9, 2).unwrap_err().kind(), end);
            assert_eq!(
                entries(&file, u64::MAX, 1).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
