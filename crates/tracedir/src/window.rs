//! A stream file seen through one bounded buffer.
//!
//! Files are read with `pread` into memory of our own: a recording that is rotated, cleared or truncated under a reader
//! gives a short read and an error, where a mapped file would end the process.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::discover::StreamFile;
use crate::seekable::read_at_most;
use crate::source::PacketSource;

/// Bytes read at once while packets are smaller. Streams are read in parallel, so this is the memory of each.
pub(crate) const READ_AHEAD: usize = 64 << 10;

/// As [`READ_AHEAD`] with many streams: together they should not fill the processor's caches.
pub(crate) const READ_AHEAD_OF_MANY: usize = 16 << 10;

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

/// A buffer so many times as long as what is needed is given up for a shorter one.
const SPARE: usize = 4;

#[derive(Debug)]
pub(crate) struct Window {
    handles: Handles,
    read_ahead: usize,
    file: Option<PacketSource>,
    start: u64,
    /// What was read, and beyond it what an earlier reading left there.
    buffer: Bytes,
    /// How much of it was read.
    filled: usize,
}

impl Window {
    pub(crate) const fn new(handles: Handles, read_ahead: usize) -> Self {
        Self { handles, read_ahead, file: None, start: 0, buffer: Bytes::new(), filled: 0 }
    }

    /// The bytes of `listed` from `offset`, at least `least` of them and more when they are there anyway; fewer only
    /// at the file's end. None after the first `available`: the file may be growing, and those not be whole.
    ///
    /// Memory is used again unless someone holds bytes that were given out of it.
    pub(crate) fn get(
        &mut self,
        listed: &StreamFile,
        offset: u64,
        least: usize,
        available: u64,
    ) -> io::Result<Bytes> {
        let skip = self.skip_to(offset);
        let held = self.filled - skip;
        if held >= least && held > 0 {
            return Ok(self.buffer.slice(skip..self.filled));
        }
        let available = usize::try_from(available).unwrap_or(usize::MAX);
        self.fill(listed, offset, skip, least.max(self.read_ahead).min(available))?;
        Ok(self.buffer.slice(..self.filled))
    }

    /// Turns to another file.
    pub(crate) fn close(&mut self) {
        *self = Self::new(self.handles, self.read_ahead);
    }

    /// Whether anything of a file was read.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some() || self.filled > 0
    }

    /// How much of what was read lies before `offset`: all of it when it does not reach so far.
    fn skip_to(&self, offset: u64) -> usize {
        let skip = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.unwrap_or(self.filled).min(self.filled)
    }

    fn fill(
        &mut self,
        listed: &StreamFile,
        offset: u64,
        skip: usize,
        len: usize,
    ) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => listed.open()?,
        };
        // A packet is looked at twice, first its header: what is there already is not read again.
        let held = self.filled - skip;
        let len = len.max(held);
        let mut bytes = self.spare(skip, len);
        let (_, missing) = bytes.split_at_mut(held);
        let missing = missing.get_mut(..len - held).unwrap_or_default();
        let read = read_at_most(&file, missing, offset.saturating_add(held as u64));
        self.start = offset;
        self.filled = held;
        self.buffer = bytes.freeze();
        self.filled += read?;
        if self.handles == Handles::Keep {
            self.file = Some(file);
        }
        Ok(())
    }

    /// At least `len` bytes that begin with what was read behind `skip`. The buffer itself when nobody else holds it:
    /// fresh memory costs as much as reading into it.
    fn spare(&mut self, skip: usize, len: usize) -> BytesMut {
        let filled = std::mem::take(&mut self.filled);
        match std::mem::take(&mut self.buffer).try_into_mut() {
            Ok(mut bytes) if bytes.len() / SPARE <= len => {
                bytes.copy_within(skip..filled, 0);
                if bytes.len() < len {
                    bytes.resize(len, 0);
                }
                bytes
            }
            Ok(bytes) => Self::fresh(bytes.get(skip..filled), len),
            Err(bytes) => Self::fresh(bytes.get(skip..filled), len),
        }
    }

    fn fresh(held: Option<&[u8]>, len: usize) -> BytesMut {
        let mut bytes = BytesMut::zeroed(len);
        for (to, from) in bytes.iter_mut().zip(held.unwrap_or_default()) {
            *to = *from;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn listed(path: &std::path::Path) -> StreamFile {
        StreamFile::now(path.to_owned()).unwrap()
    }

    #[test]
    fn any_place_is_read_with_either_way_to_hold_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..=250_u8).cycle().take(200_000).collect();
        file.write_all(&content).unwrap();
        for handles in [Handles::Keep, Handles::Release] {
            let mut window = Window::new(handles, READ_AHEAD);
            for (offset, least) in [(0, 10), (5, 70_000), (130_000, 64), (60_000, 1), (199_990, 99)]
            {
                let bytes = window.get(&listed(file.path()), offset, least, u64::MAX).unwrap();
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
        let mut window = Window::new(Handles::Keep, READ_AHEAD);
        let first = window.get(&listed(file.path()), 0, 100, u64::MAX).unwrap();
        let second = window.get(&listed(file.path()), 100, READ_AHEAD, u64::MAX).unwrap();
        assert_eq!(first.as_ref()[..100], [1; 100]);
        assert_eq!(second.as_ref(), vec![2; READ_AHEAD]);
    }

    #[test]
    fn memory_that_nobody_holds_is_used_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; READ_AHEAD]).unwrap();
        file.write_all(&[2; READ_AHEAD]).unwrap();
        let mut window = Window::new(Handles::Keep, READ_AHEAD);
        let place = |bytes: Bytes| bytes.as_ptr();
        let first = place(window.get(&listed(file.path()), 0, READ_AHEAD, u64::MAX).unwrap());
        let second =
            window.get(&listed(file.path()), READ_AHEAD as u64, READ_AHEAD, u64::MAX).unwrap();
        assert_eq!(second.as_ref(), vec![2; READ_AHEAD]);
        assert_eq!(place(second), first);
        let shorter =
            window.get(&listed(file.path()), 2 * READ_AHEAD as u64 - 10, 64, u64::MAX).unwrap();
        assert_eq!(shorter.as_ref(), [2; 10], "nothing that an earlier reading left");
    }

    #[test]
    fn what_is_not_available_yet_is_not_kept() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let mut window = Window::new(Handles::Keep, READ_AHEAD);
        assert_eq!(window.get(&listed(file.path()), 0, 64, 80).unwrap().len(), 80);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[2; 20], 80).unwrap();
        assert_eq!(window.get(&listed(file.path()), 80, 1, 20).unwrap().as_ref(), [2; 20]);
    }

    #[test]
    fn a_file_that_shrinks_gives_fewer_bytes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 100]).unwrap();
        let mut window = Window::new(Handles::Keep, READ_AHEAD);
        assert_eq!(window.get(&listed(file.path()), 90, 64, u64::MAX).unwrap().as_ref(), [7; 10]);
        file.as_file().set_len(20).unwrap();
        assert_eq!(window.get(&listed(file.path()), 0, 64, u64::MAX).unwrap().as_ref(), [7; 20]);
        assert_eq!(window.get(&listed(file.path()), 50, 64, u64::MAX).unwrap().len(), 0);
    }
}
