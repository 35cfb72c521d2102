//! JSON as Python's `json` writes and reads it, checked once and then looked at where it stands.
//!
//! RFC 8259, and beside it `NaN`, `Infinity` and `-Infinity`; whole numbers of any size; half of a surrogate pair in a text, which is
//! read as U+FFFD. Of fields with the same name the last one counts.

use std::borrow::Cow;

/// Objects and lists within each other.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {wrong}")]
pub struct Error {
    /// Where, in bytes.
    pub offset: usize,
    /// What.
    pub wrong: Wrong,
}

/// What is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The text ends within a value.
    #[error("the text ends within a value")]
    End,
    /// Another byte stands there.
    #[error("{found:?} where {expected} should be")]
    Unexpected {
        /// The byte.
        found: char,
        /// What could stand there.
        expected: &'static str,
    },
    /// More than [`MAX_DEPTH`].
    #[error("more than {limit} objects and lists within each other")]
    TooDeep {
        /// As many are taken.
        limit: usize,
    },
}

/// A value that is known to be well formed: its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'t>(&'t str);

impl<'t> Json<'t> {
    /// Checks that a text is one value.
    ///
    /// # Errors
    /// Where it is not, and why.
    pub fn parse(text: &'t str) -> Result<Self, Error> {
        let mut scanner = Scanner { text, at: 0 };
        scanner.space();
        let value = scanner.value(0)?;
        scanner.space();
        match scanner.peek() {
            None => Ok(value),
            Some(found) => Err(scanner.unexpected(found, "the end")),
        }
    }

    /// Of a part of a text that was parsed.
    pub(crate) const fn checked(text: &'t str) -> Self {
        Self(text)
    }

    /// As it was written.
    #[must_use]
    pub const fn as_str(self) -> &'t str {
        self.0
    }

    /// The fields of an object; of another value there are none.
    pub fn fields(self) -> impl Iterator<Item = (Cow<'t, str>, Self)> {
        let mut scanner = Scanner { text: self.0, at: 1 };
        let mut is_open = self.0.starts_with('{');
        std::iter::from_fn(move || {
            let field = if is_open { scanner.field(0).ok().flatten() } else { None };
            is_open = field.is_some();
            field
        })
    }

    /// The field of an object.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Self> {
        self.fields().filter(|(field, _)| field == name).last().map(|(_, value)| value)
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Whether Python takes it for true in a condition: `null`, `false`, 0, and what is empty, are not.
    #[must_use]
    pub fn is_truthy(self) -> bool {
        match self.0.as_bytes() {
            b"null" | b"false" | b"\"\"" => false,
            [b'{' | b'[', inside @ .., _] => !inside.trim_ascii().is_empty(),
            [b'-' | b'0'..=b'9', ..] => self.0.parse::<f64>().is_ok_and(|number| number != 0.0),
            _ => true,
        }
    }

    /// The characters of a text.
    #[must_use]
    pub fn text(self) -> Option<Cow<'t, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(if inside.contains('\\') { Cow::Owned(unescaped(inside)) } else { inside.into() })
    }
}

/// The characters for which a text's escapes stand.
fn unescaped(text: &str) -> String {
    let mut characters = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        characters.push_str(plain);
        let mut following = escape.chars();
        let character = match following.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => code_point(&mut following),
            Some(itself) => itself,
            None => break,
        };
        characters.push(character);
        rest = following.as_str();
    }
    characters.push_str(rest);
    characters
}

/// The character of the digits after `\u`, and of those of a second half if they follow.
fn code_point(rest: &mut std::str::Chars<'_>) -> char {
    let digits = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let text = rest.as_str();
    let unit = digits(text).unwrap_or_default();
    *rest = text.get(4..).unwrap_or_default().chars();
    let low = rest.as_str().strip_prefix("\\u").and_then(digits);
    match (unit, low) {
        (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
            *rest = rest.as_str().get(6..).unwrap_or_default().chars();
            char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
        }
        _ => char::from_u32(unit),
    }
    .unwrap_or(char::REPLACEMENT_CHARACTER)
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn unexpected(&self, found: u8, expected: &'static str) -> Error {
        let rest = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        let found = rest.unwrap_or(char::from(found));
        Error { offset: self.at, wrong: Wrong::Unexpected { found, expected } }
    }

    /// The byte that stands here must be there, or another one.
    fn wrong(&self, expected: &'static str) -> Error {
        match self.peek() {
            Some(found) => self.unexpected(found, expected),
            None => Error { offset: self.at, wrong: Wrong::End },
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Error> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.wrong(expected))
    }

    fn literal(&mut self, word: &str) -> Result<(), Error> {
        word.bytes().try_for_each(|byte| self.expect(byte, "a value"))
    }

    fn value(&mut self, depth: usize) -> Result<Json<'t>, Error> {
        let begin = self.at;
        match self.peek() {
            Some(b'{') => {
                self.nest(depth)?;
                while self.field(depth + 1)?.is_some() {}
            }
            Some(b'[') => self.list(depth)?,
            Some(b'"') => self.string()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            Some(b'N') => self.literal("NaN")?,
            Some(b'I') => self.literal("Infinity")?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.wrong("a value")),
        }
        Ok(Json(self.text.get(begin..self.at).unwrap_or_default()))
    }

    /// Steps into an object or a list.
    fn nest(&mut self, depth: usize) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            let wrong = Wrong::TooDeep { limit: MAX_DEPTH };
            return Err(Error { offset: self.at, wrong });
        }
        self.at += 1;
        Ok(())
    }

    /// The next field of an object; `None` behind its last one, and then the object is over.
    fn field(&mut self, depth: usize) -> Result<Option<(Cow<'t, str>, Json<'t>)>, Error> {
        if !self.is_more(b'{', b'}', "',' or '}'")? {
            return Ok(None);
        }
        let begin = self.at;
        self.string()?;
        let name = Json(self.text.get(begin..self.at).unwrap_or_default());
        self.space();
        self.expect(b':', "':'")?;
        self.space();
        let value = self.value(depth)?;
        Ok(Some((name.text().unwrap_or_default(), value)))
    }

    fn list(&mut self, depth: usize) -> Result<(), Error> {
        self.nest(depth)?;
        while self.is_more(b'[', b']', "',' or ']'")? {
            self.value(depth + 1)?;
        }
        Ok(())
    }

    /// Goes to the next element of what is open, over the comma before it, or over the end.
    fn is_more(&mut self, open: u8, close: u8, expected: &'static str) -> Result<bool, Error> {
        let before = self.at.checked_sub(1).and_then(|at| self.text.as_bytes().get(at));
        let is_first = before == Some(&open);
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        if !is_first {
            self.expect(b',', expected)?;
            self.space();
        }
        Ok(true)
    }

    fn string(&mut self) -> Result<(), Error> {
        self.expect(b'"', "a text")?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(0x20..) => self.at += 1,
                _ => return Err(self.wrong("a character")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Error> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.wrong("a hexadecimal digit"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong("an escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Error> {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return self.literal("Infinity");
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong("a digit"));
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }
}
