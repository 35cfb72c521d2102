//! Reading of debug information where it lies: of a file in pieces, as they are asked for.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use gimli::{Error, NativeEndian, Reader, ReaderOffsetId, Result};
use object::ReadRef;

/// Most bytes of a text that lies in debug information.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A file whose bytes are read in pieces.
pub(super) trait Bytes {
    /// Bytes in the file.
    fn len(&self) -> u64;

    /// These bytes, for as long as the file is looked at.
    fn at(&self, offset: u64, len: u64) -> Option<&[u8]>;
}

/// A [`ReadRef`] without its type.
pub(super) struct File<'a, R>(R, PhantomData<&'a ()>);

impl<'a, R: ReadRef<'a>> File<'a, R> {
    pub(super) const fn new(file: R) -> Self {
        Self(file, PhantomData)
    }
}

impl<'a, R: ReadRef<'a>> Bytes for File<'a, R> {
    fn len(&self) -> u64 {
        self.0.len().unwrap_or(0)
    }

    fn at(&self, offset: u64, len: u64) -> Option<&[u8]> {
        self.0.read_bytes_at(offset, len).ok()
    }
}

/// How much may still be read: what bounds the time that a file's contents can cost.
#[derive(Debug)]
pub(super) struct Meter(Cell<u64>);

impl Meter {
    pub(super) const fn new(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }

    /// # Errors
    /// [`Error::Io`] when it is used up, and ever after.
    pub(super) fn charge(&self, bytes: usize) -> Result<()> {
        let left = self.0.get().checked_sub(bytes as u64);
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or(Error::Io)
    }

    pub(super) const fn left(&self) -> u64 {
        self.0.get()
    }
}

/// Where a section's bytes are.
#[derive(Clone, Copy)]
pub(super) enum Place<'d> {
    Memory(&'d [u8]),
    /// Read in pieces of so many bytes, a power of two.
    InFile {
        file: &'d dyn Bytes,
        offset: u64,
        piece_bytes: u64,
    },
}

/// A section from somewhere in it to somewhere behind.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'d> {
    place: Place<'d>,
    /// The next bytes, as far as they are at hand; they may go beyond `end`.
    near: &'d [u8],
    /// From the section's begin.
    at: usize,
    end: usize,
    meter: &'d Meter,
}

impl<'d> Cursor<'d> {
    pub(super) const fn new(place: Place<'d>, len: usize, meter: &'d Meter) -> Self {
        Self { place, near: &[], at: 0, end: len, meter }
    }

    /// Gets the next bytes to hand: at least one, unless there is none.
    fn refill(&mut self) -> Result<()> {
        self.near = match self.place {
            Place::Memory(bytes) => bytes.get(self.at..).unwrap_or_default(),
            Place::InFile { file, offset, piece_bytes } => {
                let at = offset.saturating_add(self.at as u64);
                let begin = at & !(piece_bytes - 1);
                let len = file.len().saturating_sub(begin).min(piece_bytes);
                let piece = file.at(begin, len).ok_or(Error::Io)?;
                usize::try_from(at - begin).ok().and_then(|at| piece.get(at..)).unwrap_or_default()
            }
        };
        if self.near.is_empty() && self.at < self.end { Err(Error::Io) } else { Ok(()) }
    }

    /// Takes bytes that are in several pieces.
    #[cold]
    fn gather(&mut self, to: &mut [u8]) -> Result<()> {
        let mut to = to;
        while !to.is_empty() {
            if self.near.is_empty() {
                self.refill()?;
            }
            let count = to.len().min(self.near.len());
            let (now, later) = to.split_at_mut(count);
            let (from, near) = self.near.split_at(count);
            now.copy_from_slice(from);
            (to, self.near, self.at) = (later, near, self.at + count);
        }
        Ok(())
    }

    fn end_of_section(&self) -> Error {
        Error::UnexpectedEof(self.offset_id())
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({}..{})", self.at, self.end)
    }
}

impl Reader for Cursor<'_> {
    type Endian = NativeEndian;
    type Offset = usize;

    fn endian(&self) -> NativeEndian {
        NativeEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.end - self.at
    }

    fn empty(&mut self) {
        self.end = self.at;
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(self.end_of_section());
        }
        self.end = self.at + len;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.at.saturating_sub(base.at)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.at as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        usize::try_from(id.0).ok()?.checked_sub(self.at)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut rest = *self;
        let most = self.len().min(MAX_TEXT_BYTES);
        let mut passed = 0;
        while passed < most {
            if rest.near.is_empty() {
                rest.refill()?;
            }
            let near = rest.near.get(..most - passed).unwrap_or(rest.near);
            let found = near.iter().position(|it| *it == byte);
            self.meter.charge(found.unwrap_or(near.len()))?;
            if let Some(found) = found {
                return Ok(passed + found);
            }
            passed += near.len();
            rest.skip(near.len())?;
        }
        Err(self.end_of_section())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(self.end_of_section());
        }
        self.at += len;
        self.near = self.near.get(len..).unwrap_or_default();
        Ok(())
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        let mut first = *self;
        first.truncate(len)?;
        self.skip(len)?;
        Ok(first)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(bytes) = self.near.get(..self.len()) {
            return Ok(Cow::Borrowed(bytes));
        }
        if self.len() > MAX_TEXT_BYTES {
            return Err(Error::Io);
        }
        let mut bytes = vec![0; self.len()];
        let mut rest = *self;
        rest.read_slice(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        match self.to_slice()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
        }
        .ok_or(Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        let bytes = self.to_slice()?;
        Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }

    #[inline]
    fn read_slice(&mut self, to: &mut [u8]) -> Result<()> {
        if to.len() > self.len() {
            return Err(self.end_of_section());
        }
        self.meter.charge(to.len())?;
        match self.near.split_at_checked(to.len()) {
            Some((bytes, near)) => {
                to.copy_from_slice(bytes);
                (self.near, self.at) = (near, self.at + to.len());
                Ok(())
            }
            None => self.gather(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(place: Place<'_>, len: usize) {
        let meter = Meter::new(10_000);
        let section = Cursor::new(place, len, &meter);
        let mut cursor = section;
        cursor.skip(3).unwrap();
        assert_eq!(cursor.read_u32().unwrap(), u32::from_ne_bytes([3, 4, 5, 6]));
        assert_eq!((cursor.find(20), cursor.find(200)), (Ok(13), Err(cursor.end_of_section())));
        let mut part = cursor.split(30).unwrap();
        assert_eq!(part.to_slice().unwrap(), (7..37).collect::<Vec<u8>>());
        assert_eq!((part.read_u8(), cursor.read_u8()), (Ok(7), Ok(37)));
        assert_eq!((cursor.offset_from(&section), cursor.len()), (38, 62));
        cursor.skip(61).unwrap();
        assert!(cursor.read_u16().is_err());
        assert_eq!(cursor.read_u8(), Ok(99));
        assert!(cursor.is_empty() && cursor.skip(1).is_err());
    }

    #[test]
    fn a_section_reads_the_same_from_memory_and_in_pieces() {
        let bytes: Vec<u8> = (0..100).collect();
        check(Place::Memory(&bytes), 100);
        let shifted: Vec<u8> = [vec![255; 5], bytes, vec![255; 5]].concat();
        let file = File::new(&*shifted);
        for piece_bytes in [1, 2, 8, 64, 1024] {
            check(Place::InFile { file: &file, offset: 5, piece_bytes }, 100);
        }
    }

    #[test]
    fn a_section_that_ends_behind_its_file_is_an_error_where_it_does() {
        let bytes = [1_u8; 10];
        let (file, meter) = (File::new(&bytes[..]), Meter::new(100));
        let place = Place::InFile { file: &file, offset: 4, piece_bytes: 4 };
        let mut cursor = Cursor::new(place, 20, &meter);
        cursor.read_slice(&mut [0; 6]).unwrap();
        assert_eq!(cursor.read_u8(), Err(Error::Io));
        assert_eq!(cursor.to_slice(), Err(Error::Io));
    }

    #[test]
    fn what_is_read_is_counted_and_ends() {
        let bytes = [0_u8; 64];
        let meter = Meter::new(40);
        let section = Cursor::new(Place::Memory(&bytes), 64, &meter);
        for _ in 0..5 {
            let mut again = section;
            again.read_u64().unwrap();
        }
        assert_eq!(meter.left(), 0);
        let mut again = section;
        assert_eq!(again.read_u8(), Err(Error::Io));
    }
}
