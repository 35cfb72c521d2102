//! Trace classes by their metadata, each parsed once.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ctf::TraceClass;

use crate::discover::TraceFolder;
use crate::error::{Action, Error};
use crate::options::ReadOptions;

/// Longest metadata file that is read. Real ones stay below one mebibyte.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Bytes that are read and compared at once: they stay in the nearest cache.
const BLOCK: usize = 32 << 10;

/// Trace classes by the bytes of their metadata: chunks of one session share theirs.
///
/// Metadata is compared while it is read, so that the hundredth copy of a file costs its reading and no memory. Holds
/// at most [`Self::CAPACITY`] classes and [`Self::MAX_BYTES`] of metadata, and forgets all when one more is needed.
#[derive(Debug, Default)]
pub struct ClassCache {
    /// By length and first block: process id, host and UUID are there.
    known: HashMap<Vec<u8>, Vec<Known>>,
    classes: usize,
    bytes: usize,
    block: Vec<u8>,
    parsed: u64,
}

#[derive(Debug)]
struct Known {
    metadata: Vec<u8>,
    clock_offset_ns: i128,
    class: Arc<TraceClass>,
}

impl ClassCache {
    /// The most trace classes that are kept.
    pub const CAPACITY: usize = 256;
    /// The most bytes of metadata that are kept.
    pub const MAX_BYTES: usize = 64 << 20;
    /// How much of a file's beginning files are told apart by before they are compared.
    const KEY: usize = 4 << 10;

    /// How many times metadata was parsed.
    #[must_use]
    pub const fn parsed(&self) -> u64 {
        self.parsed
    }

    pub(crate) fn read(
        &mut self,
        folder: &TraceFolder,
        options: &ReadOptions,
    ) -> Result<Arc<TraceClass>, Error> {
        let path = folder.metadata();
        if folder.metadata_len == 0 {
            return Err(Error::MetadataEmpty { path, stream_bytes: folder.stream_bytes() });
        }
        if folder.metadata_len > MAX_METADATA_BYTES {
            let (len, limit) = (folder.metadata_len, MAX_METADATA_BYTES);
            return Err(Error::MetadataTooLarge { path, len, limit });
        }
        let failed = |source| Error::io(Action::Read, &path, source);
        let mut file = File::open(&path).map_err(failed)?;
        let mut begin = Vec::with_capacity(Self::KEY);
        file.by_ref().take(Self::KEY as u64).read_to_end(&mut begin).map_err(failed)?;
        let mut read = begin.clone();
        if let Some(same) = self.find(&mut file, &mut read, options).map_err(failed)? {
            return Ok(same);
        }
        file.take(MAX_METADATA_BYTES).read_to_end(&mut read).map_err(failed)?;
        self.parse(&path, begin, read, options)
    }

    /// The class whose metadata the rest of `file` is, after the bytes in `read`; when there is none, `read` holds
    /// more of them.
    fn find(
        &mut self,
        file: &mut File,
        read: &mut Vec<u8>,
        options: &ReadOptions,
    ) -> std::io::Result<Option<Arc<TraceClass>>> {
        let Some(known) = self.known.get(read.as_slice()) else { return Ok(None) };
        let mut candidates: Vec<&Known> =
            known.iter().filter(|known| known.clock_offset_ns == options.clock_offset_ns).collect();
        let mut at = read.len();
        while let Some(first) = candidates.first().copied() {
            self.block.clear();
            let len = file.by_ref().take(BLOCK as u64).read_to_end(&mut self.block)?;
            let block = self.block.as_slice();
            let end = at.saturating_add(len);
            candidates.retain(|known| known.metadata.get(at..end) == Some(block));
            if candidates.is_empty() {
                read.extend_from_slice(first.metadata.get(read.len()..at).unwrap_or_default());
                read.extend_from_slice(block);
                return Ok(None);
            }
            at = end;
            if len < BLOCK {
                let whole = candidates.iter().find(|known| known.metadata.len() == at);
                if whole.is_none() {
                    read.extend_from_slice(first.metadata.get(read.len()..at).unwrap_or_default());
                }
                return Ok(whole.map(|known| Arc::clone(&known.class)));
            }
        }
        Ok(None)
    }

    fn parse(
        &mut self,
        path: &Path,
        begin: Vec<u8>,
        metadata: Vec<u8>,
        options: &ReadOptions,
    ) -> Result<Arc<TraceClass>, Error> {
        self.parsed += 1;
        let parsed = TraceClass::parse(&metadata)
            .map_err(|source| Error::Metadata { path: path.to_owned(), source })?;
        let clock_offset_ns = options.clock_offset_ns;
        let class = match clock_offset_ns {
            0 => parsed,
            nanos => parsed.with_shifted_clocks(nanos).ok_or_else(|| Error::ClockOffset {
                path: path.to_owned(),
                offset_ns: clock_offset_ns,
            })?,
        };
        let class = Arc::new(class);
        self.keep(begin, Known { metadata, clock_offset_ns, class: Arc::clone(&class) });
        Ok(class)
    }

    fn keep(&mut self, begin: Vec<u8>, known: Known) {
        let len = known.metadata.len();
        if len > Self::MAX_BYTES {
            return;
        }
        if self.classes >= Self::CAPACITY || self.bytes + len > Self::MAX_BYTES {
            (self.classes, self.bytes) = (0, 0);
            self.known.clear();
        }
        self.classes += 1;
        self.bytes += len;
        self.known.entry(begin).or_default().push(known);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Metadata that is the same up to its last line.
    fn metadata(filler: usize, last: &str) -> String {
        let filler = "/* filler */\n".repeat(filler);
        format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};\n{filler}stream {{ }};\n{last}"
        )
    }

    fn read(
        cache: &mut ClassCache,
        text: &str,
        options: &ReadOptions,
    ) -> Result<Arc<TraceClass>, Error> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metadata"), text).unwrap();
        let path = folder.path().to_owned();
        let metadata_len = text.len() as u64;
        cache.read(&TraceFolder { path, metadata_len, stream_files: Vec::new() }, options)
    }

    #[test]
    fn equal_metadata_is_parsed_once_whatever_its_length() {
        let options = ReadOptions::default();
        for filler in [0, 1, 200, 400, 2_600, 10_000] {
            let mut cache = ClassCache::default();
            let one = metadata(filler, "event { name = one; };");
            let first = read(&mut cache, &one, &options).unwrap();
            let again = read(&mut cache, &one, &options).unwrap();
            assert!(Arc::ptr_eq(&first, &again), "{filler} lines of filler");
            assert_eq!(cache.parsed(), 1);
            // Longer, shorter, and different at the end.
            for other in [
                metadata(filler, "event { name = one; };\n"),
                metadata(filler, ""),
                metadata(filler, "event { name = two; };"),
            ] {
                let before = cache.parsed();
                let class = read(&mut cache, &other, &options).unwrap();
                assert!(!Arc::ptr_eq(&first, &class));
                let expected = TraceClass::parse(other.as_bytes()).unwrap();
                assert_eq!(format!("{class:?}"), format!("{expected:?}"), "{filler}");
                assert_eq!(cache.parsed(), before + 1);
                assert!(Arc::ptr_eq(&class, &read(&mut cache, &other, &options).unwrap()));
            }
        }
    }

    #[test]
    fn lengths_at_the_edges_of_blocks_are_told_apart() {
        let options = ReadOptions::default();
        let mut cache = ClassCache::default();
        let text = metadata(0, "event { name = one; };");
        for len in [ClassCache::KEY, ClassCache::KEY + BLOCK, ClassCache::KEY + 2 * BLOCK] {
            for len in [len - 1, len, len + 1] {
                let before = cache.parsed();
                let padded = format!("{text}{}", " ".repeat(len - text.len()));
                let first = read(&mut cache, &padded, &options).unwrap();
                assert!(Arc::ptr_eq(&first, &read(&mut cache, &padded, &options).unwrap()));
                assert_eq!(cache.parsed(), before + 1, "{len} bytes");
            }
        }
    }

    #[test]
    fn the_cache_forgets_at_its_capacity_and_goes_on() {
        let options = ReadOptions::default();
        let mut cache = ClassCache::default();
        for id in 0..=ClassCache::CAPACITY {
            read(&mut cache, &metadata(0, &format!("event {{ name = e{id}; }};")), &options)
                .unwrap();
        }
        assert_eq!((cache.classes, cache.known.values().map(Vec::len).sum::<usize>()), (1, 1));
    }

    #[test]
    fn clocks_are_shifted_and_kept_apart() {
        let text = metadata(0, "clock { name = c; };");
        let mut cache = ClassCache::default();
        let offset = |clock_offset_ns| ReadOptions { clock_offset_ns, ..ReadOptions::default() };
        for nanos in [0, 5, -1_000_000_001, 5] {
            let class = read(&mut cache, &text, &offset(nanos)).unwrap();
            let time = class.clock_classes()[0].to_ns(10).unwrap();
            assert_eq!(i128::from(time), 10 + nanos);
        }
        assert_eq!(cache.parsed(), 3);
        let refused = read(&mut cache, &text, &offset(i128::MAX));
        assert!(matches!(refused, Err(Error::ClockOffset { .. })), "{refused:?}");
    }
}
