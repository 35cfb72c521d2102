//! Metadata that arrive piece by piece, from a live session or a file that grows.
//!
//! ```text
//! pieces ─▶ whole packets ─▶ text ─▶ whole declarations ─▶ trace class
//!              (or none)              up to a `;` outside of braces, or a whole JSON object
//! ```
//!
//! What is cut waits for its rest. A declaration that names something which is not there yet (an event of a stream, any
//! of them before the trace block) waits as well: metadata only ever grow.

use std::sync::Arc;

use super::{Failure, MAGIC, json, order_of, parse_text, unpack_one};
use crate::class::{ByteOrder, TraceClass};
use crate::clock::Uuid;
use crate::error::{Error, MetadataPacketProblem, MetadataStreamProblem};

/// No metadata stream may be longer than this.
pub const MAX_METADATA_BYTES: usize = 256 << 20;

/// Reads a metadata stream in pieces of any size: packets or text, of CTF 1.8 or 2.
///
/// Each piece is looked at once. When a declaration has become whole, everything so far is read again, because later
/// declarations may change what earlier ones mean (the trace block's byte order): about 30 ns a byte, 10 ms for the
/// metadata of a Linux kernel. Declarations that arrive together are read together, so larger pieces cost less.
///
/// ```
/// use ctf::{MetadataProgress, MetadataStream};
///
/// let mut stream = MetadataStream::new();
/// let pieces = ["/* CTF 1.8 */ trace { major = 1; minor = 8; byte_or", "der = le; }; event { name = a; };", "event {"];
/// let mut classes = Vec::new();
/// for piece in pieces {
///     match stream.push(piece.as_bytes())? {
///         MetadataProgress::NeedMore => classes.push(None),
///         MetadataProgress::Grown(trace) => classes.push(Some(trace.event_record_classes().len())),
///     }
/// }
/// assert_eq!(classes, [None, Some(1), None]);
/// # Ok::<(), ctf::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MetadataStream {
    container: Container,
    /// Bytes that are part of no whole packet yet.
    rest: Vec<u8>,
    /// Where `rest` begins in the stream.
    rest_begin: usize,
    text: Vec<u8>,
    scan: Scan,
    /// How much of the text the trace class is of.
    read: usize,
    trace: Option<Arc<TraceClass>>,
    /// Why the declarations that are whole do not make a trace class yet.
    waiting: Option<Error>,
    failed: Option<Error>,
}

/// What a piece of metadata has brought.
#[derive(Debug, Clone)]
pub enum MetadataProgress {
    /// Nothing that could be used yet.
    NeedMore,
    /// All that is declared so far. Event record and stream classes of earlier answers keep their ids and positions.
    Grown(Arc<TraceClass>),
}

#[derive(Debug, Default, Clone, Copy)]
enum Container {
    /// Too few bytes to tell.
    #[default]
    Unknown,
    Packets {
        order: ByteOrder,
        uuid: Option<Uuid>,
    },
    Text,
}

impl MetadataStream {
    /// Stands before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The trace class so far.
    #[must_use]
    pub const fn trace_class(&self) -> Option<&Arc<TraceClass>> {
        self.trace.as_ref()
    }

    /// What is missing before the whole declarations so far can be used, when something is.
    #[must_use]
    pub const fn waiting_for(&self) -> Option<&Error> {
        self.waiting.as_ref()
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// What no further piece can mend: as [`TraceClass::parse`], and [`Error::MetadataStream`]. Every later call gives
    /// the same error.
    pub fn push(&mut self, piece: &[u8]) -> Result<MetadataProgress, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let progress = self.take(piece).and_then(|()| self.read_whole());
        self.failed = progress.as_ref().err().cloned();
        progress
    }

    /// The end of the stream: what is there must make sense as it is.
    ///
    /// # Errors
    /// As [`TraceClass::parse`] of all pieces in one.
    pub fn finish(mut self) -> Result<Arc<TraceClass>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if matches!(self.container, Container::Unknown) {
            self.text.append(&mut self.rest);
        }
        if !self.rest.is_empty() {
            let available = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
            let problem = MetadataPacketProblem::Truncated { needed: available + 1, available };
            return Err(Error::MetadataPacket { offset_bytes: self.rest_begin, problem });
        }
        match self.trace {
            Some(trace) if self.read == self.text.len() && self.waiting.is_none() => Ok(trace),
            _ => parse_text(&self.text, self.is_packetised())
                .map(Arc::new)
                .map_err(Failure::into_error),
        }
    }

    const fn is_packetised(&self) -> bool {
        matches!(self.container, Container::Packets { .. })
    }

    /// Moves the text of a piece to the text.
    fn take(&mut self, piece: &[u8]) -> Result<(), Error> {
        let len = self.rest_begin.saturating_add(self.rest.len()).saturating_add(piece.len());
        if len > MAX_METADATA_BYTES {
            let problem = MetadataStreamProblem::TooLong { limit_bytes: MAX_METADATA_BYTES };
            return Err(Error::MetadataStream(problem));
        }
        self.rest.extend_from_slice(piece);
        if matches!(self.container, Container::Unknown) && self.rest.len() >= size_of_val(&MAGIC) {
            self.container = order_of(&self.rest)
                .map_or(Container::Text, |order| Container::Packets { order, uuid: None });
        }
        match &mut self.container {
            Container::Unknown => return Ok(()),
            Container::Text => {
                self.rest_begin += self.rest.len();
                self.text.append(&mut self.rest);
            }
            Container::Packets { order, uuid } => {
                let mut begin = 0;
                let failed = loop {
                    match unpack_one(self.rest.get(begin..).unwrap_or_default(), *order, uuid) {
                        Ok((text, len)) => {
                            self.text.extend_from_slice(text);
                            begin += len;
                        }
                        Err(MetadataPacketProblem::Truncated { .. }) => break None,
                        Err(problem) => break Some(problem),
                    }
                };
                self.rest.drain(..begin);
                self.rest_begin += begin;
                if let Some(problem) = failed {
                    return Err(Error::MetadataPacket { offset_bytes: self.rest_begin, problem });
                }
            }
        }
        self.scan.go_on(&self.text);
        Ok(())
    }

    /// Reads the whole declarations when there are new ones.
    fn read_whole(&mut self) -> Result<MetadataProgress, Error> {
        let whole = self.scan.whole;
        if whole == self.read {
            return Ok(MetadataProgress::NeedMore);
        }
        let text = self.text.get(..whole).unwrap_or(&self.text);
        self.read = whole;
        match parse_text(text, self.is_packetised()) {
            Ok(trace) => {
                let trace = Arc::new(trace);
                if let Some(before) = &self.trace {
                    same_positions(before, &trace)?;
                }
                self.waiting = None;
                self.trace = Some(Arc::clone(&trace));
                Ok(MetadataProgress::Grown(trace))
            }
            Err(Failure::Missing(error)) => {
                self.waiting = Some(error);
                Ok(MetadataProgress::NeedMore)
            }
            Err(Failure::Wrong(error)) => Err(error),
        }
    }
}

/// Stream classes are sorted by id: one that comes later with a lower id would move the others.
fn same_positions(before: &TraceClass, after: &TraceClass) -> Result<(), Error> {
    let mut pairs = before.stream_classes().iter().zip(after.stream_classes());
    match pairs.find(|(before, after)| before.id() != after.id()) {
        None => Ok(()),
        Some((before, _)) => Err(Error::MetadataStream(MetadataStreamProblem::Moved {
            stream_class_id: before.id(),
        })),
    }
}

/// Finds where declarations end, each byte being looked at once.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes looked at.
    at: usize,
    /// Bytes up to the end of the last whole declaration.
    whole: usize,
    depth: usize,
    place: Place,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Code,
    /// Behind a `/` in code.
    Slash,
    LineComment,
    /// Behind a backslash in such a comment, which its line end does not end.
    LineCommentEscape,
    BlockComment,
    /// Behind a `*` in such a comment.
    BlockCommentStar,
    Text,
    TextEscape,
    Character,
    CharacterEscape,
}

impl Scan {
    fn go_on(&mut self, text: &[u8]) {
        let is_json = text.first() == Some(&json::RECORD_SEPARATOR);
        for byte in text.get(self.at..).unwrap_or_default() {
            self.at += 1;
            self.place = self.step(*byte, is_json);
        }
    }

    fn step(&mut self, byte: u8, is_json: bool) -> Place {
        match (self.place, byte) {
            (Place::Slash, b'/') => Place::LineComment,
            (Place::Slash, b'*') => Place::BlockComment,
            (Place::Code, b'/') if !is_json => Place::Slash,
            (Place::Code | Place::Slash, b'"') => Place::Text,
            (Place::Code | Place::Slash, b'\'') if !is_json => Place::Character,
            (Place::Code | Place::Slash, _) => {
                self.code(byte, is_json);
                Place::Code
            }
            (Place::LineComment, b'\n') => Place::Code,
            (Place::LineComment | Place::LineCommentEscape, b'\\') => Place::LineCommentEscape,
            (Place::LineComment | Place::LineCommentEscape, _) => Place::LineComment,
            (Place::BlockCommentStar, b'/') => Place::Code,
            (Place::BlockComment | Place::BlockCommentStar, b'*') => Place::BlockCommentStar,
            (Place::BlockComment | Place::BlockCommentStar, _) => Place::BlockComment,
            (Place::Text, b'"') => Place::Code,
            (Place::Text, b'\\') => Place::TextEscape,
            (Place::Text | Place::TextEscape, _) => Place::Text,
            (Place::Character, b'\'') => Place::Code,
            (Place::Character, b'\\') => Place::CharacterEscape,
            (Place::Character | Place::CharacterEscape, _) => Place::Character,
        }
    }

    const fn code(&mut self, byte: u8, is_json: bool) {
        match byte {
            b'{' => self.depth += 1,
            b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let end = if is_json { b'}' } else { b';' };
        if byte == end && self.depth == 0 {
            self.whole = self.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> &str {
        let mut scan = Scan::default();
        scan.go_on(text.as_bytes());
        &text[..scan.whole]
    }

    #[test]
    fn a_declaration_ends_at_a_semicolon_outside_of_everything() {
        assert_eq!(whole("a { b; }; c { d; }"), "a { b; };");
        assert_eq!(
            whole("a /* ; */ // ;\n \"; \\\" ;\" ; /* ;"),
            "a /* ; */ // ;\n \"; \\\" ;\" ;"
        );
        assert_eq!(whole("// \\\n ;"), "");
        assert_eq!(whole("// \\\\\n ;"), "");
        assert_eq!(whole("a '\"'; ';\\';"), "a '\"';");
        assert_eq!(whole("a / ; ;"), "a / ; ;");
        assert_eq!(whole("/***/;"), "/***/;");
        assert_eq!(whole("\u{1e}{\"a\": \"}\"}\u{1e}{"), "\u{1e}{\"a\": \"}\"}");
    }
}
