//! Values of `tracing` as words of a record, on the stack.
#![expect(unsafe_code, reason = "words that are not cleared before they are written")]

use std::fmt::{self, Write};
use std::mem::MaybeUninit;

use tracing_core::Field;
use tracing_core::field::Visit;

use crate::layout::{FieldType, MAX_FIELDS, Tag};

/// Room for values: 3.5 KiB, which with what else is on the stack stays below a page, whose end would have to be probed.
const WORDS: usize = 448;
/// Of these texts leave so many to what comes after them: all values but texts always find room, and texts at least for their length.
const KEPT_BACK: usize = 2 * MAX_FIELDS;

pub(super) struct Values {
    words: [MaybeUninit<u64>; WORDS],
    len: usize,
}

impl Values {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { words: [const { MaybeUninit::uninit() }; WORDS], len: 0 }
    }

    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        let words = self.words.get(..self.len).unwrap_or_default();
        // SAFETY: words before `len` were written.
        unsafe { words.assume_init_ref() }
    }

    #[inline]
    fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.len) {
            place.write(word);
            self.len += 1;
        }
    }

    #[inline]
    fn put(&mut self, field: &Field, kind: FieldType, word: u64) {
        let room = self.words.get_mut(self.len..).and_then(<[_]>::first_chunk_mut);
        if let (Some([tag, value]), Some(number)) = (room, number(field)) {
            tag.write(Tag::new(kind, number).0);
            value.write(word);
            self.len += 2;
        }
    }

    /// Bytes that `fill` writes, as many as there is room for.
    fn put_bytes(&mut self, field: &Field, kind: FieldType, fill: impl FnOnce(&mut Filling<'_>)) {
        let Some(number) = number(field).filter(|_| self.len + 2 <= WORDS) else { return };
        self.push(Tag::new(kind, number).0);
        let room = (WORDS - KEPT_BACK).saturating_sub(self.len + 1);
        let begin = self.len + 1;
        let room = self.words.get_mut(begin..begin + room).unwrap_or_default();
        let mut filling = Filling { room, kept: 0, had: 0 };
        fill(&mut filling);
        let (kept, had) = (filling.kept, u32::try_from(filling.had).unwrap_or(u32::MAX));
        self.push(kept as u64 | u64::from(had) << 32);
        self.len += kept.div_ceil(8);
    }
}

#[inline]
fn number(field: &Field) -> Option<u8> {
    u8::try_from(field.index()).ok().filter(|number| usize::from(*number) < MAX_FIELDS)
}

struct Filling<'a> {
    room: &'a mut [MaybeUninit<u64>],
    kept: usize,
    had: usize,
}

impl Filling<'_> {
    fn add(&mut self, bytes: &[u8]) {
        let room = self.room.len() * 8 - self.kept;
        // What comes behind a cut would be taken for its continuation.
        let taken = if self.had == self.kept { bytes.len().min(room) } else { 0 };
        let (first, last) = (self.kept.div_ceil(8), (self.kept + taken).div_ceil(8));
        // The last word is cleared before it is filled, so that zeros stand behind the text.
        let fresh = self.room.get_mut(first..last).unwrap_or_default();
        if let Some(word) = fresh.last_mut() {
            word.write(0);
        }
        let at = self.room.as_mut_ptr().cast::<u8>();
        // SAFETY: `kept + taken` is at most the room's length in bytes.
        unsafe { at.add(self.kept).copy_from_nonoverlapping(bytes.as_ptr(), taken) };
        self.kept += taken;
        self.had = self.had.saturating_add(bytes.len());
    }
}

impl Write for Filling<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

impl Visit for Values {
    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, FieldType::Unsigned, value);
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, FieldType::Signed, value.cast_unsigned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, FieldType::Float, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, FieldType::Bool, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_bytes(field, FieldType::Text, |filling| filling.add(value.as_bytes()));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.put_bytes(field, FieldType::Bytes, |filling| filling.add(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What a value says before it fails is kept.
        self.put_bytes(field, FieldType::Text, |filling| {
            write!(filling, "{value:?}").ok();
        });
    }
}
