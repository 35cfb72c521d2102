//! Chunks of a recording, each readable by itself, and their events.
//!
//! ```text
//! offset  size                                    offset  size
//! 0       4    FLR\0                              40      8    nanoseconds that it lasts
//! 4       2    version: 2                         48      8    ticks at its begin
//! 8       8    bytes of the chunk                 56      8    ticks in a second
//! 16      8    place of the last constants        66      2    bit 0: whole numbers are packed
//! 24      8    place of the metadata              68      …    events
//! 32      8    nanoseconds since the epoch
//!
//! event   int size, its own bytes counted; long type: 0 metadata, 1 constants, else the id of a class; its fields
//! constants   long start, long duration, long to those before, byte mask, int count, so many pools
//! pool        long class, int count, so many (long number, a value)
//! ```
//! The events are walked from the first to the last, so places that go in circles do not matter: none is followed.
//! Source: `jdk.jfr.internal.consumer` and `jfrChunkWriter.cpp` of OpenJDK 17.

use hashbrown::HashMap;
use wire::proto::{DecodeError, Reader, Wrong};

use super::cursor::Cursor;
use super::metadata::{Kind, Metadata};
use crate::error::Error;
use crate::limits::Allowance;

const HEAD_BYTES: usize = 68;
/// Classes whose constants are looked at.
const KEPT: [&str; 6] = [
    "java.lang.Class",
    "java.lang.String",
    "jdk.types.Method",
    "jdk.types.StackTrace",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
];
const METADATA: i64 = 0;
const CONSTANTS: i64 = 1;

/// A whole chunk.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    events: Cursor<'a>,
    pub(super) ticks_per_second: i64,
    pub(super) metadata: Metadata,
    /// Where constants begin behind the head, by class and number.
    constants: HashMap<i64, HashMap<i64, u32>>,
}

/// An event, and what stands behind its type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) class: i64,
    pub(super) cursor: Cursor<'a>,
}

impl<'a> Chunk<'a> {
    /// The next one of a recording.
    pub(super) fn decode(recording: &mut Reader<'a>, steps: &mut Allowance) -> Result<Self, Error> {
        let begin = *recording;
        let mut head = Cursor { reader: *recording, is_packed: false };
        if head.fixed()? != *b"FLR\0" {
            return Err(begin
                .wrong(Wrong::Type { expected: "the begin of a chunk of JFR" })
                .into());
        }
        let version = u16::from_be_bytes(head.fixed()?);
        if version != 2 {
            return Err(Error::Unsupported { what: format!("version {version} of JFR") });
        }
        head.fixed::<2>()?;
        let size = u64::from_be_bytes(head.fixed()?);
        head.fixed::<40>()?;
        let ticks_per_second = i64::from_be_bytes(head.fixed()?);
        head.fixed::<2>()?;
        let is_packed = u16::from_be_bytes(head.fixed()?) & 1 == 1;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let events = recording.take(size.max(HEAD_BYTES))?;
        let mut reader = Reader { bytes: events, ..begin };
        reader.take(HEAD_BYTES)?;
        let events = Cursor { reader, is_packed };
        let mut chunk = Self {
            events,
            ticks_per_second,
            metadata: Metadata::default(),
            constants: HashMap::new(),
        };
        // A later one has all of those before.
        let mut last = None;
        for event in chunk.events() {
            let event = event?;
            if event.class == METADATA {
                last = Some(event.cursor);
            }
        }
        let none = || reader.wrong(Wrong::Type { expected: "a chunk with metadata" });
        chunk.metadata = Metadata::decode(last.ok_or_else(none)?)?;
        for event in chunk.events() {
            let event = event?;
            if event.class == CONSTANTS {
                chunk.read_constants(event.cursor, steps)?;
            }
        }
        Ok(chunk)
    }

    /// All events, in the order of the chunk.
    pub(super) fn events(&self) -> impl Iterator<Item = Result<Event<'a>, DecodeError>> + use<'a> {
        let mut left = Some(self.events);
        std::iter::from_fn(move || {
            let cursor = left.as_mut().filter(|cursor| !cursor.reader.bytes.is_empty())?;
            let event = next(cursor);
            if event.is_err() {
                left = None;
            }
            Some(event)
        })
    }

    fn read_constants(
        &mut self,
        mut cursor: Cursor<'a>,
        steps: &mut Allowance,
    ) -> Result<(), Error> {
        for _ in 0..3 {
            cursor.long()?;
        }
        cursor.byte()?;
        for _ in 0..cursor.count()? {
            let class = cursor.long()?;
            let is_kept = KEPT.contains(&self.metadata.class(class)?.name);
            for _ in 0..cursor.count()? {
                let number = cursor.long()?;
                if is_kept {
                    let at = cursor.reader.offset - self.events.reader.offset;
                    // A recording has 4 GiB at most.
                    let at = u32::try_from(at).unwrap_or(u32::MAX);
                    self.constants.entry(class).or_default().insert(number, at);
                }
                self.metadata.skip(&mut cursor, class, steps)?;
            }
        }
        Ok(())
    }

    /// The value of a constant.
    pub(super) fn constant(&self, class: i64, number: i64) -> Option<Cursor<'a>> {
        let at = *self.constants.get(&class)?.get(&number)? as usize;
        let mut cursor = self.events;
        cursor.reader.take(at).ok()?;
        Some(cursor)
    }

    /// Whether a class is written as one text.
    pub(super) fn is_text(&self, class: i64) -> bool {
        self.metadata.class(class).is_ok_and(|class| class.kind == Kind::Text)
    }
}

fn next<'a>(cursor: &mut Cursor<'a>) -> Result<Event<'a>, DecodeError> {
    let begin = cursor.reader;
    let mut sized = *cursor;
    let size = usize::try_from(sized.int()?).unwrap_or(usize::MAX);
    let head = begin.bytes.len() - sized.reader.bytes.len();
    let whole = cursor.reader.take(size.max(head))?;
    let mut event = Cursor { reader: Reader { bytes: whole, ..begin }, ..*cursor };
    event.reader.take(head)?;
    let class = event.long()?;
    Ok(Event { class, cursor: event })
}
