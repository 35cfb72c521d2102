//! A file of a chunk as viewers read it. This is the one place where such a file is found and opened.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use rustix::io::{Errno, ReadWriteFlags};
use tracedir::PacketSource;
use tracedir::seekable::ENDING;
use wire::live::RelativePath;

use crate::error::{Error, FileContext, Result};
use crate::root::Root;

/// An open file of a chunk: packets of a stream, their index, or metadata. Offsets are those of what is in it, also where
/// the packets are compressed.
#[derive(Debug, Clone)]
pub(crate) enum TraceFile {
    Plain(Arc<File>),
    Compressed(Arc<PacketSource>),
}

/// A file that is open as long as somebody reads it.
#[derive(Debug)]
pub(super) enum WeakFile {
    Plain(Weak<File>),
    Compressed(Weak<PacketSource>),
}

impl TraceFile {
    /// One that its writer has open.
    pub(crate) fn written(file: &Arc<File>) -> Self {
        Self::Plain(Arc::clone(file))
    }

    /// Opens the first of `paths` that is there, or what it was compressed to.
    pub(crate) fn open(root: &Root, paths: &[RelativePath]) -> Result<Self> {
        let opened = paths.iter().map(|path| root.read(path)).reduce(Result::or);
        let nowhere = Err(Error::Meaningless { what: "a chunk that is nowhere" });
        match opened.unwrap_or(nowhere) {
            Ok(file) => Ok(Self::Plain(Arc::new(file))),
            Err(error) => {
                let compressed = paths.iter().find_map(|path| Self::open_compressed(root, path));
                compressed.unwrap_or(Err(error))
            }
        }
    }

    /// `None` when there is no compressed file.
    fn open_compressed(root: &Root, path: &RelativePath) -> Option<Result<Self>> {
        let path = RelativePath::new(&format!("{path}{ENDING}")).ok()?;
        let file = root.read(&path).ok()?;
        let source = PacketSource::compressed(file).on("read", path.as_path());
        Some(source.map(|source| Self::Compressed(Arc::new(source))))
    }

    /// Reads what does not have to be waited for; gives how many bytes of `room` are filled. At the end of the file
    /// that is an error.
    pub(crate) fn read_at_hand(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        // Decompressing takes longer than others should wait.
        let Self::Plain(file) = self else { return Ok(0) };
        let mut have = 0;
        while let Some(rest) = room.get_mut(have..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(have as u64);
            let mut rest = [IoSliceMut::new(rest)];
            match rustix::io::preadv2(file, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => have += read,
                Err(Errno::INTR) => {}
                // The disk has to be asked, or the file system cannot tell.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(have)
    }

    /// Its length in bytes.
    pub(crate) fn content_len(&self) -> io::Result<u64> {
        match self {
            Self::Plain(file) => Ok(file.metadata()?.len()),
            Self::Compressed(source) => source.content_len(),
        }
    }

    /// Fills `room`, and waits for the disk.
    pub(crate) fn read_exact_at(&self, room: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.read_exact_at(room, offset),
            Self::Compressed(source) => source.read_exact_at(room, offset),
        }
    }

    pub(super) fn downgrade(&self) -> WeakFile {
        match self {
            Self::Plain(file) => WeakFile::Plain(Arc::downgrade(file)),
            Self::Compressed(source) => WeakFile::Compressed(Arc::downgrade(source)),
        }
    }
}

impl WeakFile {
    pub(super) fn upgrade(&self) -> Option<TraceFile> {
        match self {
            Self::Plain(file) => file.upgrade().map(TraceFile::Plain),
            Self::Compressed(source) => source.upgrade().map(TraceFile::Compressed),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Plain(file) => file.strong_count() > 0,
            Self::Compressed(source) => source.strong_count() > 0,
        }
    }

    pub(super) fn is(&self, file: &TraceFile) -> bool {
        match (self, file) {
            (Self::Plain(own), TraceFile::Plain(file)) => {
                std::ptr::eq(own.as_ptr(), Arc::as_ptr(file))
            }
            (Self::Compressed(own), TraceFile::Compressed(source)) => {
                std::ptr::eq(own.as_ptr(), Arc::as_ptr(source))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        std::fs::write(folder.path().join("b"), &bytes).unwrap();
        let paths = ["a", "b"].map(|name| RelativePath::new(name).unwrap());
        let file = TraceFile::open(&root, &paths).unwrap();
        let mut room = vec![0; 50_000];
        let have = file.read_at_hand(&mut room, 1000).unwrap();
        file.read_exact_at(&mut room[have..], 1000 + have as u64).unwrap();
        assert_eq!(room, bytes[1000..51_000]);
        let end = file.read_exact_at(&mut room, 60_000).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        assert!(TraceFile::open(&root, &paths[..1]).is_err());
        assert!(TraceFile::open(&root, &[]).is_err());
    }
}
