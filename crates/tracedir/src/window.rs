//! A stream file seen through one bounded buffer.
//!
//! Files are read with `pread` into memory of our own: a recording that is rotated, cleared or truncated under a reader
//! gives a short read and an error, where a mapped file would end the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once while packets are smaller. Streams are read in parallel, so this is the memory of each.
pub(crate) const READ_AHEAD: usize = 64 << 10;

/// Bytes that hold the header of nearly any packet.
pub(crate) const FIRST_LOOK: usize = 512;

/// Whether the file stays open between two reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handles {
    /// One descriptor for each stream that is being read.
    Keep,
    /// Opened for each read: for more streams than a process may hold open.
    Release,
}

/// A part of a buffer that outlives the buffer's next filling.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    buffer: Arc<Vec<u8>>,
    begin: usize,
    end: usize,
}

impl AsRef<[u8]> for Bytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(self.begin..self.end).unwrap_or_default()
    }
}

impl Bytes {
    pub(crate) const fn len(&self) -> usize {
        self.end - self.begin
    }
}

#[derive(Debug)]
pub(crate) struct Window {
    handles: Handles,
    file: Option<File>,
    start: u64,
    buffer: Arc<Vec<u8>>,
}

impl Window {
    pub(crate) fn new(handles: Handles) -> Self {
        Self { handles, file: None, start: 0, buffer: Arc::default() }
    }

    /// The bytes of `path` from `offset`, at least `least` of them and more when they are there anyway; fewer only
    /// at the file's end.
    ///
    /// Takes memory for `least` bytes: the caller has compared it with the file's length.
    pub(crate) fn get(&mut self, path: &Path, offset: u64, least: usize) -> io::Result<Bytes> {
        let held = self.from(offset);
        if held.len() >= least && held.len() > 0 {
            return Ok(held);
        }
        self.fill(path, offset, held, least.max(READ_AHEAD))?;
        Ok(self.from(offset))
    }

    /// Turns to another file.
    pub(crate) fn close(&mut self) {
        *self = Self::new(self.handles);
    }

    /// What the buffer holds from `offset` on.
    fn from(&self, offset: u64) -> Bytes {
        let skip = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let end = self.buffer.len();
        let begin = skip.unwrap_or(end).min(end);
        Bytes { buffer: Arc::clone(&self.buffer), begin, end }
    }

    fn fill(&mut self, path: &Path, offset: u64, held: Bytes, len: usize) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(path)?,
        };
        // A packet is looked at twice, first its header: what is there already is not read again.
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(held.as_ref());
        drop(held);
        let kept = bytes.len();
        bytes.resize(len.max(kept), 0);
        let missing = bytes.get_mut(kept..).unwrap_or_default();
        let read = read_at_most(&file, missing, offset.saturating_add(kept as u64))?;
        bytes.truncate(kept + read);
        self.start = offset;
        self.buffer = Arc::new(bytes);
        if self.handles == Handles::Keep {
            self.file = Some(file);
        }
        Ok(())
    }
}

/// Fills `buffer` from `offset`; fewer bytes only at the file's end.
fn read_at_most(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn any_place_is_read_with_either_way_to_hold_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..=250_u8).cycle().take(200_000).collect();
        file.write_all(&content).unwrap();
        for handles in [Handles::Keep, Handles::Release] {
            let mut window = Window::new(handles);
            for (offset, least) in [(0, 10), (5, 70_000), (130_000, 64), (60_000, 1), (199_990, 99)]
            {
                let bytes = window.get(file.path(), offset, least).unwrap();
                let at = usize::try_from(offset).unwrap();
                assert!(bytes.len() >= least.min(content.len() - at), "{least} bytes at {offset}");
                assert_eq!(bytes.as_ref(), &content[at..at + bytes.len()]);
                assert_eq!(window.file.is_some(), handles == Handles::Keep);
            }
        }
    }

    #[test]
    fn bytes_stay_as_they_were_when_the_window_moves_on() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 100]).unwrap();
        file.write_all(&vec![2; READ_AHEAD]).unwrap();
        let mut window = Window::new(Handles::Keep);
        let first = window.get(file.path(), 0, 100).unwrap();
        let second = window.get(file.path(), 100, READ_AHEAD).unwrap();
        assert_eq!(first.as_ref()[..100], [1; 100]);
        assert_eq!(second.as_ref(), vec![2; READ_AHEAD]);
    }

    #[test]
    fn a_file_that_shrinks_gives_fewer_bytes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 100]).unwrap();
        let mut window = Window::new(Handles::Keep);
        assert_eq!(window.get(file.path(), 90, 64).unwrap().as_ref(), [7; 10]);
        file.as_file().set_len(20).unwrap();
        assert_eq!(window.get(file.path(), 0, 64).unwrap().as_ref(), [7; 20]);
        assert_eq!(window.get(file.path(), 50, 64).unwrap().len(), 0);
    }
}
