//! JSON as a flat list of values, each followed by what it contains, with its place in the text.
//!
//! A reader of its own, since metadata need what general ones do not give together: the byte offset of every value for
//! error messages, nesting without call depth (a field class costs three levels, and 4,096 may be nested), integers of
//! 64 bits of either sign without loss, and a refusal of members that occur twice.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::TextProblem;
use crate::metadata::lexer::Problem;

type Result<T> = std::result::Result<T, Problem>;

/// Objects with at most this many members are searched for doubles without a set.
const FEW_MEMBERS: usize = 16;

#[derive(Debug, Clone, PartialEq)]
enum Token<'t> {
    Null,
    Boolean,
    /// From −2⁶³ to 2⁶⁴ − 1.
    Integer(i128),
    /// Any other number.
    Real,
    Text(Cow<'t, str>),
    /// Its elements follow.
    Array,
    /// Its members follow: a text, then a value.
    Object,
}

#[derive(Debug)]
struct Entry<'t> {
    /// Where the value begins in the whole text.
    at: usize,
    token: Token<'t>,
    /// The entry after this one and all it contains.
    next: usize,
}

/// One JSON text.
#[derive(Debug)]
pub(super) struct Json<'t>(Vec<Entry<'t>>);

/// One value of a JSON text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'j> {
    all: &'j [Entry<'j>],
    index: usize,
}

impl<'t> Json<'t> {
    /// Reads `text`, which begins at byte `begin` of the whole text and holds exactly one value.
    pub(super) fn read(text: &'t str, begin: usize) -> Result<Self> {
        let mut reader = Reader { text, begin, pos: 0, entries: Vec::new(), open: Vec::new() };
        reader.value()?;
        while let Some(opened) = reader.open.last().copied() {
            reader.inside(opened)?;
        }
        reader.skip_blanks();
        match reader.peek() {
            None => Ok(Self(reader.entries)),
            Some(_) => Err(reader.unexpected("the end of the fragment")),
        }
    }

    pub(super) fn root(&self) -> Value<'_> {
        Value { all: &self.0, index: 0 }
    }

    /// The members and elements that lead to the innermost value that begins at byte `at` or before it.
    pub(super) fn path(&self, at: usize) -> String {
        let mut path = String::new();
        let mut value = self.root();
        loop {
            let found = match value.token() {
                Some(Token::Object) => {
                    let last = value.members().take_while(|(key, _)| key.at() <= at).last();
                    last.map(|(key, inner)| {
                        let dot = if path.is_empty() { "" } else { "." };
                        (format!("{dot}{}", shorten(key.text().unwrap_or(""))), inner, key.at())
                    })
                }
                Some(Token::Array) => {
                    let last = value.elements().enumerate().take_while(|(_, v)| v.at() <= at);
                    last.last().map(|(position, inner)| (format!("[{position}]"), inner, at))
                }
                _ => None,
            };
            // The error is of the value itself, or between two of its members.
            let Some((step, inner, key_at)) = found.filter(|_| at > value.at()) else {
                return path;
            };
            path.push_str(&step);
            if at <= key_at && inner.at() > at {
                return path;
            }
            value = inner;
        }
    }
}

/// A text for a message.
pub(super) fn shorten(text: &str) -> String {
    crate::metadata::parser::shorten(text)
}

impl<'j> Value<'j> {
    fn entry(&self) -> Option<&'j Entry<'j>> {
        self.all.get(self.index)
    }

    fn token(&self) -> Option<&'j Token<'j>> {
        self.entry().map(|entry| &entry.token)
    }

    /// Where it begins in the whole text.
    pub(super) fn at(&self) -> usize {
        self.entry().map_or(0, |entry| entry.at)
    }

    /// Position in the list of values; what it contains has greater ones.
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    pub(super) fn integer(&self) -> Option<i128> {
        match self.token()? {
            Token::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&'j str> {
        match self.token()? {
            Token::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.token(), Some(Token::Null))
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self.token(), Some(Token::Object))
    }

    pub(super) fn is_array(&self) -> bool {
        matches!(self.token(), Some(Token::Array))
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        match self.token() {
            Some(Token::Null) | None => "null".to_owned(),
            Some(Token::Boolean) => "true or false".to_owned(),
            Some(Token::Integer(number)) => number.to_string(),
            Some(Token::Real) => "a number that is no integer of 64 bits".to_owned(),
            Some(Token::Text(text)) => format!("\"{}\"", shorten(text)),
            Some(Token::Array) => "an array".to_owned(),
            Some(Token::Object) => "an object".to_owned(),
        }
    }

    /// What an array or object contains, keys of members included.
    fn inner(&self) -> impl Iterator<Item = Value<'j>> + use<'j> {
        let (all, mut at) = (self.all, self.index + 1);
        let end = self.entry().map_or(0, |entry| entry.next);
        std::iter::from_fn(move || {
            let entry = all.get(at).filter(|_| at < end)?;
            let index = std::mem::replace(&mut at, entry.next);
            Some(Value { all, index })
        })
    }

    /// The elements of an array; nothing for other values.
    pub(super) fn elements(&self) -> impl Iterator<Item = Value<'j>> + use<'j> {
        self.inner().take(if self.is_array() { usize::MAX } else { 0 })
    }

    /// Keys and values of an object; nothing for other values.
    pub(super) fn members(&self) -> impl Iterator<Item = (Value<'j>, Value<'j>)> + use<'j> {
        let mut inner = self.inner().take(if self.is_object() { usize::MAX } else { 0 });
        std::iter::from_fn(move || Some((inner.next()?, inner.next()?)))
    }

    /// The member `name` of an object.
    pub(super) fn get(&self, name: &str) -> Option<Value<'j>> {
        self.members().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }
}

struct Reader<'t> {
    text: &'t str,
    begin: usize,
    pos: usize,
    entries: Vec<Entry<'t>>,
    /// Entries of the arrays and objects whose end has not come.
    open: Vec<usize>,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn skip_blanks(&mut self) {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let rest = self.text.as_bytes().get(self.pos..).unwrap_or(&[]);
        self.pos += rest.iter().take_while(|byte| is_blank(byte)).count();
    }

    fn problem<T>(&self, problem: TextProblem) -> Result<T> {
        Err((self.begin + self.pos, problem))
    }

    fn unexpected(&self, expected: &'static str) -> Problem {
        let found = match self.rest().chars().next() {
            None => return (self.begin + self.pos, TextProblem::Unfinished("a JSON value")),
            Some(found) if found.is_control() => format!("U+{:04X}", u32::from(found)),
            Some(found) => found.to_string(),
        };
        (self.begin + self.pos, TextProblem::Unexpected { expected, found })
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.peek() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    fn push(&mut self, at: usize, token: Token<'t>) {
        let next = self.entries.len() + 1;
        self.entries.push(Entry { at: self.begin + at, token, next });
    }

    /// One value; of an array or object only its beginning.
    fn value(&mut self) -> Result<()> {
        self.skip_blanks();
        let at = self.pos;
        let token = match self.peek() {
            Some(open @ (b'{' | b'[')) => {
                self.pos += 1;
                self.open.push(self.entries.len());
                if open == b'{' { Token::Object } else { Token::Array }
            }
            Some(b'"') => Token::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        self.push(at, token);
        Ok(())
    }

    fn word(&mut self) -> Result<Token<'t>> {
        for (word, token) in
            [("null", Token::Null), ("true", Token::Boolean), ("false", Token::Boolean)]
        {
            if self.rest().starts_with(word) {
                self.pos += word.len();
                return Ok(token);
            }
        }
        Err(self.unexpected("a JSON value"))
    }

    /// The next element or member of an open array or object, or its end.
    fn inside(&mut self, opened: usize) -> Result<()> {
        let is_first = self.entries.len() == opened + 1;
        let is_object =
            matches!(self.entries.get(opened), Some(Entry { token: Token::Object, .. }));
        if self.take(if is_object { b'}' } else { b']' }) {
            return self.close(opened, is_object);
        }
        if !is_first && !self.take(b',') {
            return Err(self.unexpected(if is_object { ", or }" } else { ", or ]" }));
        }
        if is_object {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("the name of a member"));
            }
            let at = self.pos;
            let name = self.string()?;
            self.push(at, Token::Text(name));
            if !self.take(b':') {
                return Err(self.unexpected(":"));
            }
        }
        self.value()
    }

    fn close(&mut self, opened: usize, is_object: bool) -> Result<()> {
        self.open.pop();
        let next = self.entries.len();
        if let Some(entry) = self.entries.get_mut(opened) {
            entry.next = next;
        }
        if is_object { self.check_doubles(opened) } else { Ok(()) }
    }

    fn check_doubles(&self, opened: usize) -> Result<()> {
        let object = Value { all: &self.entries, index: opened };
        let names = || object.members().filter_map(|(key, _)| Some((key.at(), key.text()?)));
        let double = if names().nth(FEW_MEMBERS).is_some() {
            let mut seen = HashSet::new();
            names().find(|(_, name)| !seen.insert(*name))
        } else {
            let is_double = |(position, (_, name)): &(usize, (usize, &str))| {
                names().take(*position).any(|(_, before)| before == *name)
            };
            names().enumerate().find(is_double).map(|(_, double)| double)
        };
        match double {
            Some((at, name)) => {
                Err((at, TextProblem::Duplicate { what: "member", name: shorten(name) }))
            }
            None => Ok(()),
        }
    }

    fn number(&mut self) -> Result<Token<'t>> {
        let bytes = self.text.as_bytes();
        let digits = |from: usize| {
            bytes.get(from..).unwrap_or(&[]).iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let begin = self.pos;
        let sign = usize::from(self.peek() == Some(b'-'));
        let whole = digits(begin + sign);
        let mut end = begin + sign + whole;
        let has_idle_zero = whole > 1 && bytes.get(begin + sign) == Some(&b'0');
        let mut is_right = whole > 0 && !has_idle_zero;
        let mut is_integer = true;
        if bytes.get(end) == Some(&b'.') {
            let count = digits(end + 1);
            (end, is_integer, is_right) = (end + 1 + count, false, is_right && count > 0);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let count = digits(end + 1 + sign);
            (end, is_integer, is_right) = (end + 1 + sign + count, false, is_right && count > 0);
        }
        if !is_right {
            return self.problem(TextProblem::Literal("number"));
        }
        self.pos = end;
        let literal = self.text.get(begin..end).filter(|_| is_integer);
        let number = literal.and_then(|literal| literal.parse().ok());
        let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
        Ok(number.filter(|number| range.contains(number)).map_or(Token::Real, Token::Integer))
    }

    /// The string that begins here, its escapes replaced.
    fn string(&mut self) -> Result<Cow<'t, str>> {
        let quote = self.pos;
        self.pos += 1;
        let mut all = Cow::Borrowed("");
        loop {
            let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1F);
            let rest = self.rest();
            let plain = rest.bytes().take_while(is_plain).count();
            let run = rest.get(..plain).unwrap_or("");
            all = if all.is_empty() { Cow::Borrowed(run) } else { all + run };
            self.pos += plain;
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(all);
                }
                Some(b'\\') => all.to_mut().push(self.escape()?),
                Some(_) => return Err(self.unexpected("a printable character")),
                None => {
                    return Err((self.begin + quote, TextProblem::Unfinished("a JSON string")));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let wrong = (self.begin + self.pos, TextProblem::Literal("escape sequence"));
        let kind = self.text.as_bytes().get(self.pos + 1).copied();
        self.pos += 2;
        Ok(match kind {
            Some(same @ (b'"' | b'\\' | b'/')) => char::from(same),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let code = self.hexadecimal().ok_or(wrong.clone())?;
                let is_high = (0xD800..0xDC00).contains(&code);
                let scalar = if is_high && self.rest().starts_with("\\u") {
                    self.pos += 2;
                    let low = self.hexadecimal().filter(|low| (0xDC00..0xE000).contains(low));
                    low.map(|low| 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00))
                } else {
                    Some(code)
                };
                scalar.and_then(char::from_u32).ok_or(wrong)?
            }
            _ => return Err(wrong),
        })
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digits = self.text.get(self.pos..self.pos + 4)?;
        self.pos += 4;
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| all_digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_places_and_all_64_bits() {
        let text = r#" {"a": [1, -9223372036854775808, 18446744073709551615, 18446744073709551616, 1.0],
            "b\"\u00e9\ud83d\ude00": {}, "c": null, "d": true} "#;
        let json = Json::read(text, 100).expect("right");
        let root = json.root();
        let numbers: Vec<_> =
            root.get("a").expect("a").elements().map(|value| value.integer()).collect();
        let (least, most) = (i128::from(i64::MIN), i128::from(u64::MAX));
        assert_eq!(numbers, [Some(1), Some(least), Some(most), None, None]);
        assert_eq!((root.at(), root.get("a").map(|a| a.at())), (101, Some(107)));
        assert!(root.get("b\"é😀").is_some_and(|b| b.is_object() && b.members().count() == 0));
        assert!(root.get("c").is_some_and(|c| c.is_null()));
        assert_eq!(root.members().count(), 4);
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_begins() {
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("{\"a\" 1}", 5),
            ("{\"a\":1,}", 7),
            ("{a:1}", 1),
            ("[01]", 1),
            ("[1.]", 1),
            ("[-]", 1),
            ("[1e]", 1),
            ("[+1]", 1),
            ("\"a", 0),
            ("\"\n\"", 1),
            ("\"\\x\"", 1),
            ("\"\\ud800\"", 1),
            ("\"\\u12g4\"", 1),
            ("nul", 0),
            ("{} {}", 3),
            ("{\"a\":1,\"b\":2,\"a\":3}", 13),
            ("]", 0),
        ] {
            let found = Json::read(text, 0).map(|_| ()).expect_err(text).0;
            assert_eq!(found, at, "{text}");
        }
    }

    #[test]
    fn nesting_costs_no_call_depth() {
        let depth = 300_000;
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::read(&deep, 0).is_ok_and(|json| json.0.len() == depth));
        let many: Vec<_> = (0..100).map(|n| format!("\"{n}\":0")).collect();
        let double = format!("{{{},\"7\":1}}", many.join(","));
        assert!(matches!(Json::read(&double, 0), Err((_, TextProblem::Duplicate { .. }))));
    }

    #[test]
    fn a_place_has_a_path() {
        let text = r#"{"a": {"b": [1, {"c": "x"}]}, "d": 5}"#;
        let json = Json::read(text, 0).expect("right");
        let check = |part: &str, path: &str| {
            let at = text.find(part).expect("there");
            assert_eq!(json.path(at), path, "{part}");
        };
        check("\"x\"", "a.b[1].c");
        check("\"c\"", "a.b[1].c");
        check("[1", "a.b");
        check("1,", "a.b[0]");
        check("5", "d");
        assert_eq!(json.path(0), "");
    }
}
