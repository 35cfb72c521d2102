//! Stream files as readers see them: plain, or compressed under another name.
//!
//! The packets of the stream file `ch_0` are in a file of that name, or compressed in `ch_0.zst`. Where both are there,
//! which is so while one is made of the other, the plain one is read. A file called so that does not begin as zstd's do is a
//! stream file like others.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::discover::StreamFile;
use crate::seekable::{self, ENDING, Seekable, Source};

/// The first bytes of a zstd frame, and of one to be skipped but for the low half of its first byte.
const FRAME: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
    compressed: bool,
}

impl FileId {
    pub(crate) fn of(attributes: &Metadata, compressed: bool) -> Self {
        Self { device: attributes.dev(), inode: attributes.ino(), compressed }
    }

    /// Whether a file that is found where the other was may hold its packets: it is that one, or was made of it by
    /// compressing or decompressing.
    pub(crate) fn replaces(self, other: Self) -> bool {
        self == other || self.compressed != other.compressed
    }
}

impl StreamFile {
    /// The file as it is.
    pub(crate) fn now(path: PathBuf) -> io::Result<Self> {
        let source = PacketSource::open(&path)?;
        let (len, id) = (source.content_len()?, source.id()?);
        Ok(Self { path, len, id: Some(id) })
    }

    /// Whether both are one file, or one was made of the other; known to be so where nothing tells otherwise.
    pub(crate) fn is(&self, other: Option<FileId>) -> bool {
        self.id.zip(other).is_none_or(|(own, other)| own.replaces(other))
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] also when another file lies there now: a rotation moves files, and puts the next
    /// ones where they were.
    pub(crate) fn open(&self) -> io::Result<PacketSource> {
        let source = PacketSource::open(&self.path)?;
        match self.id {
            Some(_) if !self.is(Some(source.id()?)) => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(source),
        }
    }
}

/// A stream file that is open; offsets are those of its packets, whether it is compressed or not.
#[derive(Debug)]
pub struct PacketSource(Kind);

#[derive(Debug)]
enum Kind {
    Plain(File),
    Compressed(Box<Seekable<File>>),
}

impl PacketSource {
    /// Opens the stream file `path`, or what it was compressed to.
    ///
    /// # Errors
    /// What the system says of `path`; [`SeekableError`](crate::seekable::SeekableError) within an error of the kind
    /// [`io::ErrorKind::InvalidData`] when it is compressed and its seek table is damaged.
    pub fn open(path: &Path) -> io::Result<Self> {
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let compressed = File::open(compressed_path(path)).ok();
                match compressed.filter(is_compressed) {
                    Some(file) => Self::compressed(file),
                    // While it is being decompressed, the plain one may have come meanwhile.
                    None => File::open(path).map(Self::plain),
                }
            }
            opened => opened.map(Self::plain),
        }
    }

    /// A stream file that is open.
    #[must_use]
    pub const fn plain(file: File) -> Self {
        Self(Kind::Plain(file))
    }

    /// A compressed stream file that is open.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn compressed(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self(Kind::Compressed(Box::new(Seekable::open(file, len)?))))
    }

    /// The file itself, as it is on the disk.
    #[must_use]
    pub fn file(&self) -> &File {
        match &self.0 {
            Kind::Plain(file) => file,
            Kind::Compressed(compressed) => compressed.source(),
        }
    }

    pub(crate) fn id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&self.file().metadata()?, self.is_compressed()))
    }

    /// Whether it is compressed.
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        matches!(self.0, Kind::Compressed(_))
    }

    /// Bytes of packets in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn content_len(&self) -> io::Result<u64> {
        match &self.0 {
            Kind::Plain(file) => Ok(file.metadata()?.len()),
            Kind::Compressed(compressed) => Ok(compressed.table().content_len()),
        }
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when there is less; what is damaged, as [`Self::open`]; what the system says.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = seekable::read_at_most(self, buffer, offset)?;
        if read == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Source for PacketSource {
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            Kind::Plain(file) => file.read_some_at(buffer, offset),
            Kind::Compressed(compressed) => compressed.read_some_at(buffer, offset),
        }
    }
}

/// What the stream file `path` is called when it is compressed.
#[must_use]
pub fn compressed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ENDING);
    name.into()
}

/// The name of the stream file whose compressed packets a file of this name may hold.
pub(crate) fn plain_name(name: &OsStr) -> Option<OsString> {
    let plain = name.as_bytes().strip_suffix(ENDING.as_bytes())?;
    (!plain.is_empty()).then(|| OsStr::from_bytes(plain).to_owned())
}

/// The stream file whose compressed packets the file `path` holds, if it does.
pub(crate) fn plain_path(path: &Path) -> Option<PathBuf> {
    let plain = path.with_file_name(plain_name(path.file_name()?)?);
    compressed_len(path).map(|_| plain)
}

/// Whether a file begins as zstd's do.
pub(crate) fn is_compressed(file: &File) -> bool {
    let mut begin = [0; 4];
    let read = seekable::read_at_most(file, &mut begin, 0);
    let [first, rest @ ..] = begin;
    read.is_ok_and(|read| read == begin.len())
        && (begin == FRAME || (first >> 4 == 5 && rest == SKIPPABLE))
}

/// Bytes of packets in a compressed file; its own length where it cannot be read, so that it is not taken to be empty.
pub(crate) fn compressed_len(path: &Path) -> Option<u64> {
    compressed(path).map(|(len, _)| len)
}

/// As [`compressed_len`], with the file that they are in.
pub(crate) fn compressed(path: &Path) -> Option<(u64, Option<FileId>)> {
    let file = File::open(path).ok().filter(is_compressed)?;
    let attributes = file.metadata().ok()?;
    let read = PacketSource::compressed(file).and_then(|source| source.content_len());
    Some((read.unwrap_or(attributes.len()), Some(FileId::of(&attributes, true))))
}

/// Bytes of packets in the stream file `path`; 0 when it is not there.
pub(crate) fn len_of(path: &Path) -> u64 {
    let plain = std::fs::metadata(path).ok().map(|attributes| attributes.len());
    plain.or_else(|| compressed_len(&compressed_path(path))).unwrap_or(0)
}
