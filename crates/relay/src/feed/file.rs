//! A file of a chunk as viewers read it. This is the one place where such a file is found and opened.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use rustix::io::{Errno, ReadWriteFlags};
use wire::live::RelativePath;

use crate::error::{Error, Result};
use crate::root::Root;

/// An open file of a chunk: packets of a stream, their index, or metadata.
#[derive(Debug, Clone)]
pub(crate) struct TraceFile(Arc<File>);

/// A file that is open as long as somebody reads it.
#[derive(Debug)]
pub(super) struct WeakFile(Weak<File>);

impl TraceFile {
    /// One that its writer has open.
    pub(crate) fn written(file: &Arc<File>) -> Self {
        Self(Arc::clone(file))
    }

    /// Opens the first of `paths` that is there.
    pub(crate) fn open(root: &Root, paths: &[RelativePath]) -> Result<Self> {
        let opened = paths.iter().map(|path| root.read(path)).reduce(Result::or);
        let nowhere = Err(Error::Meaningless { what: "a chunk that is nowhere" });
        opened.unwrap_or(nowhere).map(|file| Self(Arc::new(file)))
    }

    /// Reads what does not have to be waited for; gives how many bytes of `room` are filled. At the end of the file
    /// that is an error.
    pub(crate) fn read_at_hand(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut have = 0;
        while let Some(rest) = room.get_mut(have..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(have as u64);
            let mut rest = [IoSliceMut::new(rest)];
            match rustix::io::preadv2(&self.0, &mut rest, at, ReadWriteFlags::NOWAIT) {
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

    /// Fills `room`, and waits for the disk.
    pub(crate) fn read_exact_at(&self, room: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(room, offset)
    }

    pub(super) fn downgrade(&self) -> WeakFile {
        WeakFile(Arc::downgrade(&self.0))
    }
}

impl WeakFile {
    pub(super) fn upgrade(&self) -> Option<TraceFile> {
        self.0.upgrade().map(TraceFile)
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(super) fn is(&self, file: &TraceFile) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&file.0))
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
