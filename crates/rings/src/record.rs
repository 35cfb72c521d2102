//! Words of a ring as records. Pure: the words were copied, so that nobody changes them meanwhile.

use tracepoint::layout::{
    DROP_PLACES, DROPPED, FILLER, FieldType, Shape, SiteKind, Status, Tag, Word,
};

use crate::describe::{Lie, SiteInfo};
use crate::error::Wrong;

/// Words before the fields of a record.
const HEAD_WORDS: usize = 2;

/// One record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its number in the ring, from 0 on.
    pub number: u64,
    /// When, by the clock of the memory file.
    pub time: u64,
    /// What it is of.
    pub site: &'a SiteInfo,
    /// Of which span; `None` when it is of a call site without.
    pub span: Option<OfSpan>,
    words: &'a [u64],
}

/// The span that a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfSpan {
    /// 0 when an event was in no span.
    pub trace_id: u128,
    /// 0 when an event was in no span.
    pub span_id: u64,
    /// What a span's begin says: the span that it is in; 0 where a trace begins.
    pub parent_id: u64,
    /// What a span's end says.
    pub status: Status,
}

/// What is next in a ring.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A record.
    Record(Record<'a>),
    /// As many records as these were dropped since the item before, by [`DropReason`](tracepoint::DropReason).
    Dropped {
        /// When that was told.
        time: u64,
        /// By reason.
        counts: [u64; DROP_PLACES],
    },
}

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Of an unsigned integer.
    Unsigned(u64),
    /// Of a signed integer.
    Signed(i64),
    /// Of a floating-point number.
    Float(f64),
    /// Of a truth value.
    Bool(bool),
    /// Text: what the application wrote, which need not be whole UTF-8 when it was cut.
    Text(Cut<'a>),
    /// Any bytes.
    Bytes(Cut<'a>),
}

/// Bytes of which no more than a maximum were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Those that were kept.
    pub bytes: &'a [u8],
    /// How many there were.
    pub had: u32,
}

/// Where reading of a ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// Bytes of the ring's life.
    pub position: u64,
    /// Of the next record.
    pub number: u64,
    /// Whether the number is sure to be the next record's. Else that says its low half: a reader before this one ended between
    /// noting the number and the position.
    pub is_certain: bool,
}

/// The items of words that begin at `cursor`, which goes behind each item that is given.
#[derive(Debug)]
pub struct Items<'a> {
    words: &'a [u64],
    sites: &'a [Option<SiteInfo>],
    block_len: u64,
    cursor: Cursor,
}

impl<'a> Items<'a> {
    /// Of `words`, all of which are published; `sites` by their numbers.
    #[must_use]
    pub const fn new(
        words: &'a [u64],
        sites: &'a [Option<SiteInfo>],
        shape: &Shape,
        cursor: Cursor,
    ) -> Self {
        Self { words, sites, block_len: shape.block_len(), cursor }
    }

    /// Behind what was given.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The next item; `None` at the end.
    ///
    /// # Errors
    /// The words are none that a ring could have: nothing more is given.
    pub fn next_item(&mut self) -> Result<Option<Item<'a>>, Wrong> {
        loop {
            let Some(first) = self.words.first() else { return Ok(None) };
            let word = Word(*first);
            let left = self.block_len - self.cursor.position % self.block_len;
            if word.site() == FILLER {
                let filler = usize::try_from(left / 8).unwrap_or(usize::MAX);
                let rest = self.words.get(filler..).ok_or(Wrong::Length { words: word.words() })?;
                (self.words, self.cursor.position) = (rest, self.cursor.position + left);
                continue;
            }
            let len = u64::from(word.words()) * 8;
            let of_item = self.words.get(..word.words().into()).filter(|_| len <= left);
            let Some([_, time, words @ ..]) = of_item else {
                return Err(Wrong::Length { words: word.words() });
            };
            if !self.cursor.is_certain {
                self.cursor.number = nearest(self.cursor.number, word.number());
                self.cursor.is_certain = true;
            }
            #[expect(clippy::cast_possible_truncation, reason = "the low half is compared")]
            let expected = self.cursor.number as u32;
            if word.number() != expected {
                return Err(Wrong::Number { number: word.number(), expected });
            }
            let item = self.item(word, *time, words)?;
            self.words = self.words.get(HEAD_WORDS + words.len()..).unwrap_or_default();
            self.cursor.position += len;
            self.cursor.number += 1;
            return Ok(Some(item));
        }
    }

    fn item(&self, word: Word, time: u64, words: &'a [u64]) -> Result<Item<'a>, Wrong> {
        if word.site() == DROPPED {
            let counts = <[u64; DROP_PLACES]>::try_from(words);
            let counts = counts.map_err(|_other_len| Wrong::Length { words: word.words() })?;
            return Ok(Item::Dropped { time, counts });
        }
        let site = self.sites.get(usize::from(word.site())).and_then(Option::as_ref);
        let site = site.ok_or(Wrong::Site { site: word.site() })?;
        let wrong = Wrong::Fields { site: word.site() };
        let (of_span, words) = words.split_at_checked(site.kind.span_words()).ok_or(wrong)?;
        let span = span(site.kind, of_span).ok_or(wrong)?;
        let record = Record { number: self.cursor.number, time, site, span, words };
        match record.is_whole() {
            true => Ok(Item::Record(record)),
            false => Err(wrong),
        }
    }
}

/// The number with these low 32 bits that is nearest to another.
fn nearest(number: u64, low: u32) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is compared")]
    let ahead = low.wrapping_sub(number as u32).cast_signed();
    number.saturating_add_signed(ahead.into())
}

/// The words of a span before the fields; `None` when they say what cannot be.
#[inline]
fn span(kind: SiteKind, words: &[u64]) -> Option<Option<OfSpan>> {
    let [high, low, span_id, rest @ ..] = words else { return Some(None) };
    let last = rest.first().copied().unwrap_or_default();
    let is_begin = kind == SiteKind::SpanBegin;
    Some(Some(OfSpan {
        trace_id: u128::from(*high) << 64 | u128::from(*low),
        span_id: *span_id,
        parent_id: if is_begin { last } else { 0 },
        status: if is_begin { Status::Unset } else { Status::from_code(last)? },
    }))
}

impl<'a> Record<'a> {
    /// Its values, as they stand in it.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> {
        self.fields().map(|(_, value)| value)
    }

    /// Its values with the numbers of their fields in [`SiteInfo::fields`].
    pub fn fields(&self) -> impl Iterator<Item = (usize, Value<'a>)> {
        let mut rest = Fields::of(self);
        std::iter::from_fn(move || rest.next_field().flatten())
    }

    #[inline]
    fn is_whole(&self) -> bool {
        if self.site.lie == Lie::Words {
            return self.words.len() == self.site.fields.len();
        }
        let mut rest = Fields::of(self);
        loop {
            match rest.next_field() {
                Some(Some(_)) => {}
                Some(None) => return rest.words.is_empty(),
                None => return false,
            }
        }
    }
}

/// The fields of a record that are still to come.
struct Fields<'a> {
    words: &'a [u64],
    kinds: &'a [(String, FieldType)],
    is_tagged: bool,
    next: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    fn of(record: &Record<'a>) -> Self {
        let SiteInfo { fields, lie, .. } = record.site;
        Self { words: record.words, kinds: fields, is_tagged: *lie == Lie::Tagged, next: 0 }
    }

    /// `Some(None)` at the end, `None` when the words are none of such a record.
    #[inline]
    fn next_field(&mut self) -> Option<Option<(usize, Value<'a>)>> {
        let (field, kind) = if self.is_tagged {
            let Some((tag, rest)) = self.words.split_first() else { return Some(None) };
            self.words = rest;
            let tag = Tag(*tag);
            let field = usize::from(tag.field());
            (field, tag.kind().filter(|_| field < self.kinds.len())?)
        } else {
            let Some((_, kind)) = self.kinds.get(self.next) else { return Some(None) };
            (self.next, *kind)
        };
        let (value, rest) = value(self.words, kind)?;
        (self.words, self.next) = (rest, self.next + 1);
        Some(Some((field, value)))
    }
}

#[inline]
fn value(words: &[u64], kind: FieldType) -> Option<(Value<'_>, &[u64])> {
    let (first, rest) = words.split_first()?;
    let value = match kind {
        FieldType::Unsigned => Value::Unsigned(*first),
        FieldType::Signed => Value::Signed(first.cast_signed()),
        FieldType::Float => Value::Float(f64::from_bits(*first)),
        FieldType::Bool => match first {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            _ => return None,
        },
        FieldType::Tagged => return None,
        FieldType::Text | FieldType::Bytes => {
            let (kept, had) = (*first & u64::from(u32::MAX), *first >> 32);
            if kept > had {
                return None;
            }
            let kept = usize::try_from(kept).ok()?;
            let (words, rest) = rest.split_at_checked(kept.div_ceil(8))?;
            let bytes = bytes_of(words).get(..kept)?;
            let cut = Cut { bytes, had: u32::try_from(had).ok()? };
            let value = match kind {
                FieldType::Text => Value::Text(cut),
                _ => Value::Bytes(cut),
            };
            return Some((value, rest));
        }
    };
    Some((value, rest))
}

#[expect(unsafe_code, reason = "bytes as they lie in memory")]
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: each word is eight initialised bytes, of looser alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
