//! Patterns of texts: `*` and `?`, and regular expressions.

use regex_lite::{Regex, RegexBuilder};

/// What a text must be like.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    Glob(Glob),
    Regex(Regex),
}

impl Pattern {
    /// The most memory that a compiled regular expression may take, in bytes.
    const MAX_REGEX_BYTES: usize = 1 << 20;

    pub(super) fn regex(text: &str) -> Result<Self, regex_lite::Error> {
        RegexBuilder::new(text).size_limit(Self::MAX_REGEX_BYTES).build().map(Self::Regex)
    }

    pub(super) fn fits(&self, text: &[u8]) -> bool {
        match self {
            Self::Glob(glob) => glob.fits(text),
            // Bytes that are no UTF-8 become U+FFFD; nothing is copied when there are none.
            Self::Regex(regex) => regex.is_match(&String::from_utf8_lossy(text)),
        }
    }
}

/// A pattern in which `*` stands for any bytes, `?` for any one character and `\` takes the next one as it is.
///
/// ```
/// let glob = ctf::filter::Glob::new("sched_*");
/// assert!(glob.fits(b"sched_switch") && !glob.fits(b"my_sched_switch"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Byte(u8),
    One,
    Any,
}

impl Glob {
    /// Any text is a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        let mut parts = Vec::with_capacity(pattern.len());
        let mut chars = pattern.chars();
        while let Some(char) = chars.next() {
            match char {
                '*' if parts.last() == Some(&Part::Any) => {}
                '*' => parts.push(Part::Any),
                '?' => parts.push(Part::One),
                char => {
                    let taken = if char == '\\' { chars.next().unwrap_or('\\') } else { char };
                    let mut utf8 = [0; 4];
                    parts.extend(taken.encode_utf8(&mut utf8).bytes().map(Part::Byte));
                }
            }
        }
        Self { parts }
    }

    /// Whether the whole of `text` fits. Takes time of at most the product of both lengths.
    #[must_use]
    pub fn fits(&self, text: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // The last `*`, and where in the text what it stands for ends: the only place to come back to.
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(Part::One) => (part, at) = (part + 1, next_char(text, at)),
                Some(Part::Byte(byte)) if text.get(at) == Some(byte) => {
                    (part, at) = (part + 1, at + 1);
                }
                _ => match &mut star {
                    None => return false,
                    Some((after, end)) => {
                        *end += 1;
                        (part, at) = (*after + 1, *end);
                    }
                },
            }
        }
        self.parts.get(part..).unwrap_or_default().iter().all(|part| *part == Part::Any)
    }
}

/// Where the character at `at` ends: after the bytes that only continue it.
fn next_char(text: &[u8], at: usize) -> usize {
    let rest = text.get(at + 1..).unwrap_or_default();
    at + 1 + rest.iter().take(3).take_while(|byte| *byte & 0xC0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_a_question_mark_for_one() {
        for (pattern, name, expected) in [
            ("sched_switch", "sched_switch", true),
            ("sched_switch", "sched_switches", false),
            ("sched_*", "sched_switch", true),
            ("sched_*", "my_sched_switch", false),
            ("*switch", "sched_switch", true),
            ("*_*", "sched_switch", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a**c", "abc", true),
            ("ab*ba", "aba", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?c", "aéc", true),
            ("a?c", "a€c", true),
            ("*?", "é", true),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"a\", r"a\", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(pattern).fits(name.as_bytes()), expected, "{pattern} for {name}");
        }
    }

    #[test]
    fn a_regular_expression_is_found_anywhere_and_sees_other_bytes_as_one_character() {
        let regex = Pattern::regex("b.d$").unwrap();
        assert!(regex.fits(b"abcd") && !regex.fits(b"abcde"));
        assert!(regex.fits(b"b\xFFd"));
        assert!(Pattern::regex("(").is_err());
    }
}
