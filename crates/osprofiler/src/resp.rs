//! The Redis serialization protocol, as a server speaks it: requests are read, replies are written.
//!
//! ```text
//! request   *N␍␊  then N times  $LEN␍␊bytes␍␊      or on one line, between spaces:  PING␍␊
//! reply     +text␍␊   -ERR text␍␊   :7␍␊   $LEN␍␊bytes␍␊   *N␍␊…   no value: $-1␍␊ in RESP2, _␍␊ in RESP3
//!           a map: *2N␍␊… in RESP2, %N␍␊… in RESP3   text that is shown: $LEN␍␊… in RESP2, =LEN␍␊txt:…␍␊ in RESP3
//! ```
//! Source: redis.io, "Redis serialization protocol specification".

use std::ops::Range;

/// Arguments of a request, with its command.
pub const MAX_ARGUMENTS: usize = 1024;
/// Bytes of an argument.
pub const MAX_BULK_LEN: usize = 1 << 20;
/// Bytes of a whole request.
pub const MAX_REQUEST_LEN: usize = 4 << 20;
/// Bytes of a request on one line.
pub const MAX_INLINE_LEN: usize = 64 << 10;

/// Bytes of a line that says a length.
const MAX_LENGTH_LINE: usize = 32;
/// What a buffer keeps when it is empty.
const KEPT_CAPACITY: usize = 64 << 10;

/// What is too much for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Arguments of a request.
    pub arguments: usize,
    /// Bytes of an argument.
    pub bulk_len: usize,
}

impl Bounds {
    /// Who said the password, or needs none.
    pub const KNOWN: Self = Self { arguments: MAX_ARGUMENTS, bulk_len: MAX_BULK_LEN };
    /// Who has not said the password; Redis takes as much of those.
    pub const STRANGER: Self = Self { arguments: 10, bulk_len: 16 << 10 };
}

/// Why bytes are no request. Nothing behind them can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the connection: {wrong}")]
pub struct Error {
    /// Where the wrong line or argument begins.
    pub offset: u64,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// `*N` where N is no number, or too large.
    #[error("invalid multibulk length, the limit is {limit}")]
    Arguments {
        /// As many are taken.
        limit: usize,
    },
    /// `$LEN` where LEN is no number, negative or too large.
    #[error("invalid bulk length, the limit is {limit}")]
    Bulk {
        /// As many bytes are taken.
        limit: usize,
    },
    /// Another byte where an argument should begin.
    #[error("expected '$', got '{}'", found.escape_ascii())]
    NoBulk {
        /// The byte.
        found: u8,
    },
    /// An argument that is not followed by the end of a line.
    #[error("a bulk that is longer than it says")]
    NoEnd,
    /// The request is larger than [`MAX_REQUEST_LEN`].
    #[error("a request of more than {limit} bytes")]
    TooLong {
        /// As many are taken.
        limit: usize,
    },
    /// A line without end.
    #[error("too big inline request, the limit is {limit}")]
    Inline {
        /// As many bytes are taken.
        limit: usize,
    },
    /// Quotes in a request on one line.
    #[error("quotes in an inline request")]
    Quotes,
}

impl Wrong {
    /// As Redis says it, where it has words for it.
    #[must_use]
    pub fn reply(self) -> String {
        match self {
            Self::Arguments { limit } if limit < MAX_ARGUMENTS => {
                "unauthenticated multibulk length".to_owned()
            }
            Self::Bulk { limit } if limit < MAX_BULK_LEN => {
                "unauthenticated bulk length".to_owned()
            }
            Self::Arguments { .. } => "invalid multibulk length".to_owned(),
            Self::Bulk { .. } => "invalid bulk length".to_owned(),
            Self::NoBulk { found } => format!("expected '$', got '{}'", char::from(found)),
            Self::Inline { .. } => "too big inline request".to_owned(),
            other => other.to_string(),
        }
    }
}

/// Reads requests from the bytes of a connection, however they are cut.
///
/// Its memory is at most [`MAX_REQUEST_LEN`] and what was fed last, as long as all requests are taken before more is fed.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Where in the connection the buffer begins.
    offset: u64,
    /// Where in the buffer the request begins.
    begin: usize,
    /// What of it was read.
    at: usize,
    /// Up to where no end of a line was found.
    searched: usize,
    /// The arguments that are there, from the begin of the request on.
    arguments: Vec<Range<usize>>,
    awaits: Awaits,
    bounds: Bounds,
    error: Option<Error>,
}

#[derive(Debug, Clone, Copy)]
enum Awaits {
    Request,
    /// The length of an argument; so many are missing.
    Length(usize),
    /// An argument of this length; so many are missing.
    Bulk(usize, usize),
}

enum Step {
    Again,
    MoreBytes,
    Done,
}

impl Decoder {
    /// At the begin of a connection.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            buffer: Vec::new(),
            offset: 0,
            begin: 0,
            at: 0,
            searched: 0,
            arguments: Vec::new(),
            awaits: Awaits::Request,
            bounds,
            error: None,
        }
    }

    /// From the next argument on.
    pub const fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Takes bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        if matches!(self.awaits, Awaits::Request) {
            self.begin = self.at;
        }
        self.buffer.drain(..self.begin);
        self.offset += self.begin as u64;
        self.at -= self.begin;
        self.searched = self.searched.saturating_sub(self.begin);
        self.begin = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT_CAPACITY);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next request: its command and arguments, of which there is at least one. `None` when it is not all there yet.
    ///
    /// # Errors
    /// When the bytes are no request; then this is the answer from here on.
    pub fn request(&mut self) -> Result<Option<Vec<&[u8]>>, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        loop {
            match self.step() {
                Ok(Step::Again) => {}
                Ok(Step::MoreBytes) => return Ok(None),
                Ok(Step::Done) => break,
                Err(error) => {
                    self.error = Some(error);
                    return Err(error);
                }
            }
        }
        self.awaits = Awaits::Request;
        let whole = self.buffer.get(self.begin..self.at).unwrap_or_default();
        let argument = |range: &Range<usize>| whole.get(range.clone()).unwrap_or_default();
        Ok(Some(self.arguments.iter().map(argument).collect()))
    }

    fn step(&mut self) -> Result<Step, Error> {
        if self.at - self.begin > MAX_REQUEST_LEN {
            return Err(self.wrong(self.begin, Wrong::TooLong { limit: MAX_REQUEST_LEN }));
        }
        match self.awaits {
            Awaits::Request => self.start(),
            Awaits::Length(missing) => self.length(missing),
            Awaits::Bulk(len, missing) => self.bulk(len, missing),
        }
    }

    fn start(&mut self) -> Result<Step, Error> {
        self.begin = self.at;
        self.arguments.clear();
        match self.buffer.get(self.at) {
            None => Ok(Step::MoreBytes),
            Some(b'*') => {
                let limit = self.bounds.arguments;
                let wrong = Wrong::Arguments { limit };
                let Some(number) = self.number(wrong)? else { return Ok(Step::MoreBytes) };
                if number <= 0 {
                    return Ok(Step::Again);
                }
                let number = usize::try_from(number).ok().filter(|number| *number <= limit);
                let number = number.ok_or_else(|| self.wrong(self.begin, wrong))?;
                self.awaits = Awaits::Length(number);
                Ok(Step::Again)
            }
            Some(_) => self.inline(),
        }
    }

    /// A request on one line.
    fn inline(&mut self) -> Result<Step, Error> {
        let limit = MAX_INLINE_LEN;
        let Some(line) = self.line(limit, Wrong::Inline { limit })? else {
            return Ok(Step::MoreBytes);
        };
        let text = self.buffer.get(line.clone()).unwrap_or_default();
        if text.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
            return Err(self.wrong(line.start, Wrong::Quotes));
        }
        let mut at = 0;
        for word in text.split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.arguments.push(at..at + word.len());
            }
            at += word.len() + 1;
        }
        let limit = self.bounds.arguments;
        if self.arguments.len() > limit {
            return Err(self.wrong(line.start, Wrong::Arguments { limit }));
        }
        Ok(if self.arguments.is_empty() { Step::Again } else { Step::Done })
    }

    /// The line that says an argument's length.
    fn length(&mut self, missing: usize) -> Result<Step, Error> {
        let begin = self.at;
        let limit = self.bounds.bulk_len;
        match self.buffer.get(begin) {
            None => return Ok(Step::MoreBytes),
            Some(b'$') => {}
            Some(&found) => return Err(self.wrong(begin, Wrong::NoBulk { found })),
        }
        let wrong = Wrong::Bulk { limit };
        let Some(len) = self.number(wrong)? else { return Ok(Step::MoreBytes) };
        let len = usize::try_from(len).ok().filter(|len| *len <= limit);
        let len = len.ok_or_else(|| self.wrong(begin, wrong))?;
        if self.at - self.begin + len > MAX_REQUEST_LEN {
            return Err(self.wrong(begin, Wrong::TooLong { limit: MAX_REQUEST_LEN }));
        }
        self.awaits = Awaits::Bulk(len, missing);
        Ok(Step::Again)
    }

    /// An argument.
    fn bulk(&mut self, len: usize, missing: usize) -> Result<Step, Error> {
        let end = self.at + len;
        let Some(after) = self.buffer.get(end..end + 2) else { return Ok(Step::MoreBytes) };
        if after != b"\r\n" {
            return Err(self.wrong(end, Wrong::NoEnd));
        }
        self.arguments.push(self.at - self.begin..end - self.begin);
        self.at = end + 2;
        let missing = missing.saturating_sub(1);
        self.awaits = Awaits::Length(missing);
        Ok(if missing == 0 { Step::Done } else { Step::Again })
    }

    /// The number behind the first byte of a line.
    fn number(&mut self, wrong: Wrong) -> Result<Option<i64>, Error> {
        let begin = self.at;
        let Some(line) = self.line(MAX_LENGTH_LINE, wrong)? else { return Ok(None) };
        let digits = self.buffer.get(line.start + 1..line.end).and_then(integer);
        digits.map(Some).ok_or_else(|| self.wrong(begin, wrong))
    }

    /// The line at which it stands, without its end; `too_long` when it has more than so many bytes.
    fn line(&mut self, most: usize, too_long: Wrong) -> Result<Option<Range<usize>>, Error> {
        let begin = self.at;
        let from = self.searched.max(begin);
        let rest = self.buffer.get(from..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n').map(|at| from + at);
        self.searched = end.unwrap_or(self.buffer.len());
        if self.searched - begin > most {
            return Err(self.wrong(begin, too_long));
        }
        let Some(end) = end else { return Ok(None) };
        self.at = end + 1;
        let line = self.buffer.get(begin..end).unwrap_or_default();
        Ok(Some(begin..end - usize::from(line.ends_with(b"\r"))))
    }

    const fn wrong(&self, at: usize, wrong: Wrong) -> Error {
        Error { offset: self.offset + at as u64, wrong }
    }
}

/// A number as Redis reads one: digits without a sign `+`, spaces or zeros in front.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = matches!(digits, [b'1'..=b'9', ..]) || text == b"0";
    let is_plain = is_plain && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// How replies are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// What a connection begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Version {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Writes replies.
#[derive(Debug)]
pub struct Replies<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
}

impl<'o> Replies<'o> {
    /// Behind what stands in `out`.
    #[must_use]
    pub const fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    /// How they are written.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// From here on.
    pub const fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// A short text, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error; its first word is its kind. Ends of lines become spaces.
    pub fn error(&mut self, text: &[u8]) {
        let plain = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        self.line(b'-', &text.iter().map(plain).collect::<Vec<u8>>());
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.line(b':', number.to_string().as_bytes());
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.count(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The begin of a list; as many replies follow.
    pub fn array(&mut self, len: usize) {
        self.count(b'*', len);
    }

    /// The begin of a map; as many names follow, each with a value.
    pub fn map(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.array(len * 2),
            Version::Resp3 => self.count(b'%', len),
        }
    }

    /// Text for people.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.count(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn count(&mut self, kind: u8, count: usize) {
        self.line(kind, count.to_string().as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}
