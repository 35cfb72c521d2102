//! The bytes that an application and its agent share: `docs/formats/rings.md` draws them.
//!
//! One memory file for each process: a header, then places of one size, each with a ring's header, the descriptions of
//! its call sites and its records. All numbers are of the machine's byte order: nobody else sees them.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// At the beginning of each memory file.
pub const MAGIC: [u8; 8] = *b"tl-rings";
/// Of this layout; a reader knows no other.
pub const VERSION: u32 = 2;

/// Length of [`Header`] with what is left of its page.
pub const HEADER_LEN: u64 = 4096;
/// Length of [`RingHeader`] with what is left of its page.
pub const RING_HEADER_LEN: u64 = 4096;

/// The most rings of a process: threads that write at a time.
pub const MAX_RINGS: u32 = 4096;
/// The shortest and the longest ring, in bytes; each length is a power of two.
pub const RING_LEN: std::ops::RangeInclusive<u64> = 16 << 10..=64 << 20;
/// The shortest and the longest room for descriptions, in bytes: a multiple of the page's length.
pub const SITES_LEN: std::ops::RangeInclusive<u64> = 4096..=1 << 20;
/// A ring is that many blocks, over whose borders no record goes. A flight recorder gives up its oldest block as a whole.
pub const BLOCKS: usize = 8;
/// The most call sites of a process.
pub const MAX_SITES: u32 = 4096;
/// A record is as many words of eight bytes at most, and no longer than a block.
pub const MAX_RECORD_WORDS: u64 = u16::MAX as u64;
/// The longest text or bytes of a field; what is behind is cut off, and the length that it had is told.
pub const MAX_VALUE_LEN: usize = 8 << 10;
/// Bytes of a service's name and of a thread's, with zeros behind them.
pub const SERVICE_LEN: usize = 128;
/// See [`SERVICE_LEN`].
pub const THREAD_NAME_LEN: usize = 16;

/// Which clock times are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// The time stamp counter of x86-64.
    Tsc = 1,
    /// The virtual counter of aarch64, `CNTVCT_EL0`.
    Counter = 2,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    Monotonic = 3,
}

impl ClockKind {
    /// As it is written in a header.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Tsc),
            2 => Some(Self::Counter),
            3 => Some(Self::Monotonic),
            _ => None,
        }
    }
}

/// What happens to a record that finds its ring full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Mode {
    /// It is dropped and counted.
    #[default]
    Drop = 1,
    /// The oldest block of records gives way: a flight recorder, which is read when something has happened.
    Overwrite = 2,
}

impl Mode {
    /// As it is written in a header.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Drop),
            2 => Some(Self::Overwrite),
            _ => None,
        }
    }
}

/// The life of a place for a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RingState {
    /// Nobody's. Whoever has read a ring that ended gives its place back.
    Free = 0,
    /// A thread prepares it.
    Claimed = 1,
    /// A thread writes.
    Open = 2,
    /// Its thread has ended; what it wrote may still be unread.
    Ended = 3,
}

impl RingState {
    /// As it is written in a header.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Free),
            1 => Some(Self::Claimed),
            2 => Some(Self::Open),
            3 => Some(Self::Ended),
            _ => None,
        }
    }
}

/// Why a record is not in its ring. The numbers are places in [`RingHeader::dropped`] and are never given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// The ring was full of records that nobody had read.
    Full = 0,
    /// It is longer than a block.
    TooLong = 1,
    /// Its call site's description found no room.
    NoRoomForSite = 2,
    /// A signal handler came between the parts of another record of its thread.
    Reentrant = 3,
    /// There were as many rings as there may be: of the process, not of a ring.
    NoRing = 4,
    /// Its thread had given its ring back, as destructors that run late do: of the process.
    ThreadEnded = 5,
    /// There were as many call sites as there may be.
    TooManySites = 6,
    /// There were as many spans open as there may be: of the process.
    TooManySpans = 7,
}

impl DropReason {
    /// All of them, by their numbers.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::TooLong,
        Self::NoRoomForSite,
        Self::Reentrant,
        Self::NoRing,
        Self::ThreadEnded,
        Self::TooManySites,
        Self::TooManySpans,
    ];

    /// For ledgers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "ring_full",
            Self::TooLong => "record_too_long",
            Self::NoRoomForSite => "no_room_for_site",
            Self::Reentrant => "reentrant",
            Self::NoRing => "no_ring",
            Self::ThreadEnded => "thread_ended",
            Self::TooManySites => "too_many_sites",
            Self::TooManySpans => "too_many_spans",
        }
    }
}

/// Places for counts of dropped records, of which those after [`DropReason::ALL`] are zero.
pub const DROP_PLACES: usize = 8;

/// The beginning of a memory file. Written once before anybody else sees the file, but for the counters.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Number of places for rings.
    pub rings: u32,
    /// Bytes of records in each.
    pub ring_len: u64,
    /// Bytes of descriptions in each.
    pub sites_len: u64,
    /// A [`Mode`].
    pub mode: u32,
    /// A [`ClockKind`].
    pub clock: u32,
    /// Process number, where the process sees it.
    pub pid: u32,
    /// Zero.
    pub reserved: u32,
    /// When it was made, by [`Self::clock`].
    pub made: u64,
    /// The same moment by `CLOCK_MONOTONIC`, nanoseconds.
    pub made_monotonic_ns: u64,
    /// The service's name, UTF-8, zeros behind it.
    pub service: [u8; SERVICE_LEN],
    /// Places that were ever taken: those behind were never touched.
    pub touched: AtomicU32,
    /// Zero.
    pub reserved_2: u32,
    /// Records that came to no ring, by [`DropReason`].
    pub dropped: [AtomicU64; DROP_PLACES],
}

/// The beginning of a place. What its thread writes, what it writes seldom, and what its reader writes are in cache lines of their own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingHeader {
    /// A [`RingState`].
    pub state: AtomicU32,
    /// How often the place was taken: each time is another ring.
    pub generation: AtomicU32,
    /// Thread number, where the process sees it.
    pub tid: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// The thread's name when it took the ring, zeros behind it.
    pub name: [AtomicU64; THREAD_NAME_LEN / 8],
    /// How many bytes of descriptions there are.
    pub sites_len: AtomicU64,
    /// Where the ring begins: positions go on over rings of the same place.
    pub begin: AtomicU64,
    /// See [`ThreadPart`].
    pub thread: ThreadPart,
    /// See [`ReaderPart`].
    pub reader: ReaderPart,
    /// The number of the first record of the block that was begun last at each place, by position.
    pub first_numbers: [AtomicU64; BLOCKS],
}

/// What a ring's thread writes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadPart {
    /// Everything before this position is published; positions count bytes and never go back.
    pub head: AtomicU64,
    /// A flight recorder's: what is older than this minus the ring's length is no more, or is being overwritten.
    pub reserved: AtomicU64,
    /// Records that are not in the ring, by [`DropReason`].
    pub dropped: [AtomicU64; DROP_PLACES],
}

/// What a ring's reader writes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReaderPart {
    /// Everything before this position was read, and may be overwritten.
    pub tail: AtomicU64,
    /// How many records are before the tail: written before the tail is, for a reader that comes after this one.
    pub number: AtomicU64,
}

const _: () = assert!(size_of::<Header>() as u64 <= HEADER_LEN);
const _: () = assert!(size_of::<RingHeader>() as u64 <= RING_HEADER_LEN);
const _: () = assert!(DropReason::ALL.len() <= DROP_PLACES);

/// Sizes of a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Places for rings.
    pub rings: u32,
    /// Bytes of records in each.
    pub ring_len: u64,
    /// Bytes of descriptions in each.
    pub sites_len: u64,
}

impl Shape {
    /// Whether the sizes are within their bounds.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=MAX_RINGS).contains(&self.rings)
            && RING_LEN.contains(&self.ring_len)
            && self.ring_len.is_power_of_two()
            && SITES_LEN.contains(&self.sites_len)
            && self.sites_len.is_multiple_of(RING_HEADER_LEN)
    }

    /// Bytes from one place to the next.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        RING_HEADER_LEN + self.sites_len + self.ring_len
    }

    /// Where a place begins.
    #[must_use]
    pub const fn ring(&self, number: u32) -> u64 {
        HEADER_LEN + number as u64 * self.stride()
    }

    /// Where the descriptions of a place begin.
    #[must_use]
    pub const fn sites(&self, number: u32) -> u64 {
        self.ring(number) + RING_HEADER_LEN
    }

    /// Where the records of a place begin.
    #[must_use]
    pub const fn records(&self, number: u32) -> u64 {
        self.sites(number) + self.sites_len
    }

    /// Length of a block.
    #[must_use]
    pub const fn block_len(&self) -> u64 {
        self.ring_len / BLOCKS as u64
    }

    /// Length of the file.
    #[must_use]
    pub const fn file_len(&self) -> u64 {
        HEADER_LEN + self.rings as u64 * self.stride()
    }
}

/// The first word of a record: its length in words in bits 0 to 15, its call site in bits 16 to 31, and the low 32 bits
/// of its number in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

/// Instead of a call site: nothing, up to the end of the block, whatever its length says. A filler has neither number nor time.
pub const FILLER: u16 = 0xFFFF;
/// Instead of a call site: records were dropped since the record before. Its payload is how many, by [`DropReason`].
pub const DROPPED: u16 = 0xFFFE;

const _: () = assert!(MAX_SITES <= DROPPED as u32);

impl Word {
    /// Of a record of `words`, itself and the time included.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the number is meant")]
    pub const fn new(words: u16, site: u16, number: u64) -> Self {
        Self(words as u64 | (site as u64) << 16 | (number as u32 as u64) << 32)
    }

    /// Length in words of eight bytes.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "these bits are meant")]
    pub const fn words(self) -> u16 {
        self.0 as u16
    }

    /// The call site's number, [`FILLER`] or [`DROPPED`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "these bits are meant")]
    pub const fn site(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The low half of the record's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The type of a field, as descriptions name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FieldType {
    /// One word.
    Unsigned = 1,
    /// One word, two's complement.
    Signed = 2,
    /// One word, IEEE 754.
    Float = 3,
    /// One word, 0 or 1.
    Bool = 4,
    /// A word with the length that is there in its low half and the length that it had in its high half, and as many words as hold
    /// the UTF-8 bytes, zeros behind them.
    Text = 5,
    /// The same of any bytes.
    Bytes = 6,
    /// A field that a record may have, of a type that the record says. When one field of a call site is of this kind all are; see
    /// [`Tag`].
    Tagged = 7,
}

impl FieldType {
    /// As it is written in a description.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Unsigned),
            2 => Some(Self::Signed),
            3 => Some(Self::Float),
            4 => Some(Self::Bool),
            5 => Some(Self::Text),
            6 => Some(Self::Bytes),
            7 => Some(Self::Tagged),
            _ => None,
        }
    }
}

/// The word before each value of a record whose fields are [`FieldType::Tagged`]: the value's type in bits 0 to 7, the number of its field in bits 8
/// to 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u64);

impl Tag {
    /// Of a value of a field.
    #[must_use]
    pub const fn new(kind: FieldType, field: u8) -> Self {
        Self(kind as u64 | (field as u64) << 8)
    }

    /// The value's type; `None` for one that no value has.
    #[must_use]
    pub const fn kind(self) -> Option<FieldType> {
        match FieldType::from_code(self.0.to_le_bytes()[0]) {
            Some(FieldType::Tagged) | None => None,
            kind => kind,
        }
    }

    /// The number of the field.
    #[must_use]
    pub const fn field(self) -> u8 {
        self.0.to_le_bytes()[1]
    }
}

/// What a call site's records are. All but [`Event`](Self::Event) begin with words of their span, before the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SiteKind {
    /// Something happened.
    Event = 1,
    /// A span begins: both halves of the trace id, the high one first, the span's id, and its parent's or 0.
    SpanBegin = 2,
    /// A span ends: its trace and its own id, and a [`Status`].
    SpanEnd = 3,
    /// Something happened in a span: its trace and its own id; zeros when there was none.
    SpanEvent = 4,
    /// More values of a span's fields: its trace and its own id.
    SpanRecord = 5,
}

impl SiteKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Event, Self::SpanBegin, Self::SpanEnd, Self::SpanEvent, Self::SpanRecord];

    /// As it is written in a description.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Words of the span that stand before the fields of a record.
    #[must_use]
    pub const fn span_words(self) -> usize {
        match self {
            Self::Event => 0,
            Self::SpanBegin | Self::SpanEnd => 4,
            Self::SpanEvent | Self::SpanRecord => 3,
        }
    }
}

/// How severe a call site's records are: numbers of OpenTelemetry's `SeverityNumber`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Severity {
    /// Nobody has said.
    #[default]
    Unspecified = 0,
    /// Of use to who looks for a fault.
    Trace = 1,
    /// See above, less of it.
    Debug = 5,
    /// Of use to who runs the program.
    Info = 9,
    /// Something may be wrong.
    Warn = 13,
    /// Something is wrong.
    Error = 17,
}

impl Severity {
    /// As it is written in a description.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Unspecified),
            1 => Some(Self::Trace),
            5 => Some(Self::Debug),
            9 => Some(Self::Info),
            13 => Some(Self::Warn),
            17 => Some(Self::Error),
            _ => None,
        }
    }
}

/// How a span went: the codes of OpenTelemetry's `Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u64)]
pub enum Status {
    /// Nobody has said.
    #[default]
    Unset = 0,
    /// Well, as the application says.
    Ok = 1,
    /// It failed.
    Error = 2,
}

impl Status {
    /// As it is written at a span's end.
    #[must_use]
    pub const fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => Some(Self::Unset),
            1 => Some(Self::Ok),
            2 => Some(Self::Error),
            _ => None,
        }
    }
}

/// The longest description, in bytes.
pub const MAX_DESCRIPTION_LEN: usize = 4096;
/// The most fields of a call site.
pub const MAX_FIELDS: usize = 64;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_are_where_the_format_says() {
        let header = [
            offset_of!(Header, version),
            offset_of!(Header, rings),
            offset_of!(Header, ring_len),
            offset_of!(Header, sites_len),
            offset_of!(Header, mode),
            offset_of!(Header, clock),
            offset_of!(Header, pid),
            offset_of!(Header, made),
            offset_of!(Header, made_monotonic_ns),
            offset_of!(Header, service),
            offset_of!(Header, touched),
            offset_of!(Header, dropped),
        ];
        assert_eq!(header, [8, 12, 16, 24, 32, 36, 40, 48, 56, 64, 192, 200]);
        let (thread, reader) = (offset_of!(RingHeader, thread), offset_of!(RingHeader, reader));
        let ring = [
            offset_of!(RingHeader, state),
            offset_of!(RingHeader, generation),
            offset_of!(RingHeader, tid),
            offset_of!(RingHeader, name),
            offset_of!(RingHeader, sites_len),
            offset_of!(RingHeader, begin),
            thread + offset_of!(ThreadPart, head),
            thread + offset_of!(ThreadPart, reserved),
            thread + offset_of!(ThreadPart, dropped),
            reader + offset_of!(ReaderPart, tail),
            reader + offset_of!(ReaderPart, number),
            offset_of!(RingHeader, first_numbers),
        ];
        assert_eq!(ring, [0, 4, 8, 16, 32, 40, 64, 72, 80, 192, 200, 256]);
    }
}
