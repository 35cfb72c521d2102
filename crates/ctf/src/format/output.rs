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
