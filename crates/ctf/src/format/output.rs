//! The buffer that lines are written into.

use std::fmt;
use std::io;

/// Lines, one after the other.
///
/// Writing into it costs no more than the bytes themselves: it keeps initialised room after what was written, so that
/// short pieces are stored whole instead of being appended byte by byte. [`Self::clear`] keeps the memory.
#[derive(Default, Clone)]
pub struct Output {
    /// What was written, then room.
    bytes: Vec<u8>,
    len: usize,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("text", &self.as_bytes().escape_ascii().to_string()).finish()
    }
}

impl Output {
    /// The room that the buffer grows by at least.
    const GROWTH: usize = 4096;

    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), len: 0 }
    }

    /// An empty buffer with memory for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], len: 0 }
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets what was written.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Writes everything to `sink` and forgets it, also when that fails.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn flush_to(&mut self, sink: &mut impl io::Write) -> io::Result<()> {
        let written = sink.write_all(self.as_bytes());
        self.clear();
        written
    }

    /// Forgets what was written after `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends what `put` stores at the beginning of `N` bytes of room; it returns how many it stored.
    #[inline]
    pub(crate) fn with_room<const N: usize>(&mut self, put: impl FnOnce(&mut [u8; N]) -> usize) {
        if self.bytes.len() - self.len < N {
            self.grow(N);
        }
        if let Some(room) = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            self.len += put(room).min(N);
        }
    }

    #[cold]
    fn grow(&mut self, room: usize) {
        let grown = self.len.saturating_add(room).saturating_add(Self::GROWTH.max(self.len));
        self.bytes.resize(grown, 0);
    }

    /// Appends a text whose length the compiler knows.
    #[inline]
    pub(crate) fn fixed<const N: usize>(&mut self, text: &[u8; N]) {
        self.with_room::<N>(|room| {
            *room = *text;
            N
        });
    }

    /// Appends any bytes.
    #[inline]
    pub(crate) fn push_bytes(&mut self, text: &[u8]) {
        if self.bytes.len() - self.len < text.len() {
            self.grow(text.len());
        }
        let end = self.len + text.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(text);
            self.len = end;
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        self.fixed(&[byte]);
    }
}

/// A text that is written again and again: in one step when it is short.
#[derive(Debug, Clone, Default)]
pub(crate) struct Piece {
    short: [u8; SHORT],
    len: usize,
    /// The whole text, when it is longer than that.
    long: Box<[u8]>,
}

/// The longest text that is stored whole: two 16-byte registers.
pub(crate) const SHORT: usize = 32;

impl Piece {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut short = [0; SHORT];
        short.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
        let long = if text.len() > SHORT { text.into() } else { Box::default() };
        Self { short, len: text.len(), long }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether [`Cursor::put_piece`] takes it.
    pub(crate) const fn is_short(&self) -> bool {
        self.len <= SHORT
    }
}

impl Output {
    #[inline]
    pub(crate) fn piece(&mut self, piece: &Piece) {
        if piece.len <= SHORT {
            self.with_room::<SHORT>(|room| {
                *room = piece.short;
                piece.len
            });
        } else {
            self.push_bytes(&piece.long);
        }
    }

    /// A cursor at the end, with at least so much room.
    #[inline(always)]
    pub(crate) fn cursor(&mut self, room: usize) -> Cursor<'_> {
        if self.bytes.len() - self.len < room {
            self.grow(room);
        }
        Cursor { room: self.bytes.get_mut(self.len..).unwrap_or_default(), at: 0 }
    }

    /// Takes what a cursor wrote.
    #[inline(always)]
    pub(crate) fn advance(&mut self, written: usize) {
        self.len = self.bytes.len().min(self.len + written);
    }
}

/// Writes into the room of an [`Output`] without keeping its length in memory up to date, which would make each piece
/// wait for the one before.
#[derive(Debug)]
pub(crate) struct Cursor<'o> {
    room: &'o mut [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    pub(crate) const fn written(&self) -> usize {
        self.at
    }

    /// How much room is left.
    #[inline(always)]
    pub(crate) const fn left(&self) -> usize {
        self.room.len() - self.at
    }

    /// Appends the first `used` bytes of a text, which is stored whole; nothing when there is no room for all of it.
    #[inline(always)]
    pub(crate) fn put<const N: usize>(&mut self, text: &[u8; N], used: usize) {
        debug_assert!(self.left() >= N, "room was asked for");
        if let Some(room) = self.room.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *room = *text;
            self.at += used.min(N);
        }
    }

    /// Appends a piece that is short.
    #[inline(always)]
    pub(crate) fn put_piece(&mut self, piece: &Piece) {
        self.put(&piece.short, piece.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_kept_in_order_and_room_is_not_shown() {
        let mut out = Output::new();
        out.fixed(b"ab");
        out.push_bytes(&[b'c'; 5000]);
        out.with_room::<8>(|room| {
            room.copy_from_slice(b"defghijk");
            2
        });
        out.push(b'!');
        assert_eq!(out.len(), 5005);
        assert_eq!(out.as_bytes().get(..4), Some(b"abcc".as_slice()));
        assert_eq!(out.as_bytes().get(5000..), Some(b"ccde!".as_slice()));
        out.truncate(3);
        assert_eq!(out.as_bytes(), b"abc");
        let mut sink = Vec::new();
        assert!(out.flush_to(&mut sink).is_ok());
        assert_eq!((sink.as_slice(), out.is_empty()), (b"abc".as_slice(), true));
    }
}
