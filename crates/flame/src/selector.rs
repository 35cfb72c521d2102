//! Selectors of series, PromQL's matchers: `process_cpu{service_name="shop", pod!~"canary-.*"}`.
//!
//! A label that a series does not have counts as empty. Regular expressions match whole values.

use std::fmt;

use model::samples::Series;

use crate::labels::{NAME, PROFILE_TYPE, label};
use crate::pattern::Pattern;

/// Bytes of a selector.
pub const MAX_SELECTOR_BYTES: usize = 64 << 10;

/// Matchers of a selector.
pub const MAX_MATCHERS: usize = 128;

/// Which series are meant: those that all matchers match; without matchers all.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    matchers: Vec<Matcher>,
}

/// What the value of a label must be.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The label's name.
    pub name: String,
    /// What of its value.
    pub test: Test,
}

/// How a value is looked at.
#[derive(Debug, Clone)]
pub enum Test {
    /// `=`
    Equal(String),
    /// `!=`
    NotEqual(String),
    /// `=~`
    Match(Pattern),
    /// `!~`
    NoMatch(Pattern),
}

/// Text that is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} of the selector")]
pub struct SelectorError {
    /// Where, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub what: Fault,
}

/// What can be wrong with a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Something else than what the syntax has here.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A quoted text without its end.
    #[error("a text without its closing quote")]
    OpenText,
    /// A backslash before something that it does not escape.
    #[error("an escape that does not exist")]
    Escape,
    /// A regular expression that cannot be used.
    #[error("a regular expression that cannot be used ({0})")]
    Regex(String),
    /// A limit is passed.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much may be.
        limit: usize,
    },
    /// Text behind the selector.
    #[error("more than a selector")]
    Trailing,
}

impl Selector {
    /// The selector that a text is; the empty text is that of all series.
    ///
    /// A name before the braces is that of the profile, or the profile type's where it has colons.
    ///
    /// # Errors
    ///
    /// For text that is none, with the place.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_SELECTOR_BYTES {
            let what = Fault::TooMany { what: "bytes", limit: MAX_SELECTOR_BYTES };
            return Err(SelectorError { at: MAX_SELECTOR_BYTES, what });
        }
        let mut input = Input { text, at: 0 };
        let mut matchers = Vec::new();
        let name = input.identifier(':');
        if !name.is_empty() {
            let label = if name.contains(':') { PROFILE_TYPE } else { NAME };
            let test = Test::Equal(name.to_owned());
            matchers.push(Matcher { name: label.to_owned(), test });
        }
        let whole = name.is_empty() && input.rest().is_empty();
        if !whole && (name.is_empty() || !input.rest().is_empty()) {
            input.expect("{", "an opening brace")?;
            while !input.take("}") {
                if matchers.len() == MAX_MATCHERS {
                    let what = Fault::TooMany { what: "matchers", limit: MAX_MATCHERS };
                    return Err(input.fault(what));
                }
                matchers.push(input.matcher()?);
                if !input.take(",") {
                    input.expect("}", "a comma or the closing brace")?;
                    break;
                }
            }
        }
        if input.rest().is_empty() {
            Ok(Self { matchers })
        } else {
            Err(input.fault(Fault::Trailing))
        }
    }

    /// Of series that all of these matchers match.
    #[must_use]
    pub fn all(matchers: impl IntoIterator<Item = Matcher>) -> Self {
        Self { matchers: matchers.into_iter().collect() }
    }

    /// The same with one more label that must have a value.
    #[must_use]
    pub fn and(mut self, name: &str, value: &str) -> Self {
        self.matchers.push(Matcher { name: name.to_owned(), test: Test::Equal(value.to_owned()) });
        self
    }

    /// What must hold.
    #[must_use]
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// Whether a series is meant.
    #[must_use]
    pub fn matches(&self, series: &Series) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = label(series, &matcher.name);
            matcher.test.holds(value.as_deref().unwrap_or_default())
        })
    }
}

impl Test {
    /// Whether a value passes.
    #[must_use]
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Self::Equal(wanted) => value == wanted,
            Self::NotEqual(unwanted) => value != unwanted,
            Self::Match(regex) => regex.matches(value),
            Self::NoMatch(regex) => !regex.matches(value),
        }
    }
}

impl fmt::Display for Selector {
    /// As text that gives the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (at, Matcher { name, test }) in self.matchers.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let (sign, value) = match test {
                Test::Equal(value) => ("=", value.as_str()),
                Test::NotEqual(value) => ("!=", value.as_str()),
                Test::Match(regex) => ("=~", regex.as_str()),
                Test::NoMatch(regex) => ("!~", regex.as_str()),
            };
            write!(f, "{comma}{}{sign}{}", quoted(name), quoted(value))?;
        }
        f.write_str("}")
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"))
}

#[derive(Clone, Copy)]
struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Input<'a> {
    fn fault(&self, what: Fault) -> SelectorError {
        SelectorError { at: self.at, what }
    }

    /// What is left, without spaces before it.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn expect(&mut self, sign: &str, name: &'static str) -> Result<(), SelectorError> {
        if self.take(sign) { Ok(()) } else { Err(self.fault(Fault::Missing(name))) }
    }

    /// A name, which may be empty. Dots are taken, too, as label names of OpenTelemetry have them.
    fn identifier(&mut self, also: char) -> &'a str {
        let rest = self.rest();
        let is_part =
            |letter: char| letter.is_ascii_alphanumeric() || ['_', '.', also].contains(&letter);
        let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let name = rest.get(..length).unwrap_or_default();
        if name.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
            return "";
        }
        self.at += length;
        name
    }

    fn matcher(&mut self) -> Result<Matcher, SelectorError> {
        let name = if self.rest().starts_with(['"', '\'', '`']) {
            self.quoted()?
        } else {
            self.identifier('_').to_owned()
        };
        if name.is_empty() {
            return Err(self.fault(Fault::Missing("a label's name")));
        }
        let signs = ["=~", "!~", "!=", "="];
        let Some(sign) = signs.into_iter().find(|sign| self.take(sign)) else {
            return Err(self.fault(Fault::Missing("one of =, !=, =~ and !~")));
        };
        self.rest();
        let at = self.at;
        let value = self.quoted()?;
        let regex = |value: &str| Pattern::new(value).map_err(|what| SelectorError { at, what });
        let test = match sign {
            "=~" => Test::Match(regex(&value)?),
            "!~" => Test::NoMatch(regex(&value)?),
            "!=" => Test::NotEqual(value),
            _ => Test::Equal(value),
        };
        Ok(Matcher { name, test })
    }

    /// A text in quotes, as Go writes it: between backticks nothing is escaped.
    fn quoted(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let open = *self;
        let mut letters = rest.char_indices();
        let quote = match letters.next() {
            Some((_, quote @ ('"' | '\'' | '`'))) => quote,
            _ => return Err(self.fault(Fault::Missing("a text in quotes"))),
        };
        let mut out = String::new();
        while let Some((at, letter)) = letters.next() {
            if letter == quote {
                self.at += at + quote.len_utf8();
                return Ok(out);
            }
            if letter != '\\' || quote == '`' {
                out.push(letter);
                continue;
            }
            let escape = SelectorError { at: self.at + at, what: Fault::Escape };
            let digits = match letters.next().ok_or_else(|| open.fault(Fault::OpenText))?.1 {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                letter => {
                    out.push(plain(letter, quote).ok_or(escape)?);
                    continue;
                }
            };
            let value =
                letters.by_ref().take(digits).try_fold((0_u32, 0), |(value, count), (_, digit)| {
                    Some((value.checked_mul(16)?.checked_add(digit.to_digit(16)?)?, count + 1))
                });
            // A byte beyond ASCII would be half of a letter.
            let letter = value.filter(|(_, count)| *count == digits).and_then(|(value, _)| {
                char::from_u32(value).filter(|letter| digits > 2 || letter.is_ascii())
            });
            out.push(letter.ok_or(escape)?);
        }
        Err(open.fault(Fault::OpenText))
    }
}

fn plain(letter: char, quote: char) -> Option<char> {
    Some(match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        letter if letter == quote => quote,
        _ => return None,
    })
}
