//! The index beside a stream file: a short cut to what the packets say, as far as they say the same.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ctf::DecodeErrorKind;
use ctf::index::{HEADER_LEN, IndexCheck, IndexEntry, IndexError, IndexVersion};

use crate::discover::StreamFile;
use crate::heads::Head;

/// Bytes of an index file that are read at once.
const BLOCK: usize = 64 << 10;

/// Why an index file is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum IndexProblem {
    /// It is not an index, or not the one of this stream file.
    Contents(IndexError),
    /// It cannot be read.
    Io(io::Error),
    /// It describes a file of this length, and a packet there says something else of itself.
    OtherPacket {
        /// Where the packet begins, bytes.
        offset_bytes: u64,
    },
}

impl std::fmt::Display for IndexProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Contents(error) => error.fmt(f),
            Self::Io(error) => write!(f, "cannot read: {error}"),
            Self::OtherPacket { offset_bytes } => {
                write!(f, "the packet at byte {offset_bytes} says something else of itself")
            }
        }
    }
}

impl From<io::Error> for IndexProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<IndexError> for IndexProblem {
    fn from(error: IndexError) -> Self {
        Self::Contents(error)
    }
}

/// The entries of an index that describes a file of the stream file's length. Read in blocks, whatever their number.
#[derive(Debug)]
pub(crate) struct Index {
    source: File,
    version: IndexVersion,
    block: Vec<u8>,
    at: usize,
    /// The first entry and the last; `None` without entries.
    ends: Option<(IndexEntry, IndexEntry)>,
}

impl Index {
    /// The index beside `file`, whose entries have all been looked at; `None` when there is none.
    pub(crate) fn open(file: &StreamFile) -> Result<Option<Self>, IndexProblem> {
        let Some(path) = file.index_path() else { return Ok(None) };
        match Self::checked(&path, file.len) {
            Err(IndexProblem::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            checked => checked.map(Some),
        }
    }

    fn checked(path: &Path, file_len: u64) -> Result<Self, IndexProblem> {
        let mut source = File::open(path)?;
        let mut header = Vec::with_capacity(HEADER_LEN);
        source.by_ref().take(HEADER_LEN as u64).read_to_end(&mut header)?;
        let version = IndexVersion::decode(&header)?;
        let entry_len = version.entry_len();
        let len = usize::try_from(source.metadata()?.len()).unwrap_or(usize::MAX) - header.len();
        if !len.is_multiple_of(entry_len) {
            return Err(IndexError::PartialEntry { len, entry_len }.into());
        }
        let mut index = Self { source, version, block: Vec::new(), at: 0, ends: None };
        let mut check = IndexCheck::default();
        while let Some(entry) = index.read_entry()? {
            check.entry(&entry)?;
            let (first, _) = index.ends.unwrap_or((entry, entry));
            index.ends = Some((first, entry));
        }
        check.finish(file_len)?;
        index.source.seek(SeekFrom::Start(HEADER_LEN as u64))?;
        index.block.clear();
        index.at = 0;
        Ok(index)
    }

    /// Layout version.
    pub(crate) const fn version(&self) -> IndexVersion {
        self.version
    }

    /// The first entry and the last; `None` without entries.
    pub(crate) const fn ends(&self) -> Option<(IndexEntry, IndexEntry)> {
        self.ends
    }

    /// What the entries say of their packets.
    pub(crate) fn heads(self) -> impl Iterator<Item = Head> {
        self.map(|entry| Head::indexed(&entry))
    }

    fn read_entry(&mut self) -> io::Result<Option<IndexEntry>> {
        let entry_len = self.version.entry_len();
        if self.at >= self.block.len() {
            self.block.clear();
            self.at = 0;
            let block = (BLOCK / entry_len * entry_len) as u64;
            self.source.by_ref().take(block).read_to_end(&mut self.block)?;
        }
        let rest = self.block.get(self.at..).unwrap_or_default();
        self.at += entry_len;
        Ok(IndexEntry::decode(rest, self.version))
    }
}

impl StreamFile {
    /// Where the next packet begins when the header of the one at `offset_bytes` cannot be read for a reason: by the
    /// length that it announces all the same, else by the index beside the file. `None` when nothing tells.
    #[must_use]
    pub fn after_damage(&self, offset_bytes: u64, reason: Option<&DecodeErrorKind>) -> Option<u64> {
        let announced = || offset_bytes.checked_add(reason?.packet_bytes()?);
        announced().filter(|next| *next <= self.len).or_else(|| {
            let mut index = Index::open(self).ok()??;
            index
                .find_map(|entry| (entry.offset_bytes > offset_bytes).then_some(entry.offset_bytes))
        })
    }
}

impl Iterator for Index {
    type Item = IndexEntry;

    /// The end also where the file has changed since it was looked at.
    fn next(&mut self) -> Option<IndexEntry> {
        self.read_entry().ok().flatten()
    }
}
