//! Reading of a file under a position of its own.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use object::ReadCache;

/// A file that several threads read at once: each from where it has come to itself.
#[derive(Debug)]
pub(super) struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

/// What is read of a file, kept while this is.
pub(super) fn reading(file: &File) -> ReadCache<Positioned<'_>> {
    ReadCache::new(Positioned::new(file))
}

impl<'a> Positioned<'a> {
    /// At its begin.
    pub(super) const fn new(file: &'a File) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for Positioned<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Positioned<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
        };
        self.at = from.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use object::ReadRef;

    use super::*;

    #[test]
    fn two_readers_of_a_file_have_each_their_own_position() {
        let file = File::open("/proc/self/exe").unwrap();
        let (mut one, mut other) = (Positioned::new(&file), [0; 4]);
        one.seek(SeekFrom::End(-4)).unwrap();
        Positioned::new(&file).read_exact(&mut other).unwrap();
        assert_eq!(&other, b"\x7fELF");
        let cache = reading(&file);
        let len = (&cache).len().unwrap();
        one.read_exact(&mut other).unwrap();
        assert_eq!((&cache).read_bytes_at(len - 4, 4).unwrap(), other);
        assert_eq!(one.stream_position().unwrap(), len);
        assert!(one.seek(SeekFrom::Current(-1 - len.cast_signed())).is_err());
    }
}
