//! Regular expressions of whole values.
//!
//! What dashboards ask for mostly is one of some texts, `(a|b\.c)`: that is looked up. All else is matched in time that is at most in
//! proportion to the value's length and the expression's size, which has a bound.

use hashbrown::HashSet;
use regex_lite::{Regex, RegexBuilder};

use crate::selector::Fault;

/// Bytes that a compiled regular expression may take: some 4,000 steps for each letter of a value. A list of texts has no other
/// bound than the selector's.
const MAX_REGEX_BYTES: usize = 128 << 10;

/// A regular expression that a value must match from begin to end.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    engine: Engine,
}

#[derive(Debug, Clone)]
enum Engine {
    OneOf(HashSet<String>),
    Regex(Regex),
}

impl Pattern {
    /// The pattern of a text.
    ///
    /// # Errors
    ///
    /// [`Fault::Regex`] for text that is no regular expression, or one that is too large.
    pub fn new(text: &str) -> Result<Self, Fault> {
        let engine = match alternatives(text) {
            Some(texts) => Engine::OneOf(texts),
            None => Engine::Regex(regex(text).map_err(|error| Fault::Regex(error.to_string()))?),
        };
        Ok(Self { text: text.to_owned(), engine })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole of a value.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match &self.engine {
            Engine::OneOf(texts) => texts.contains(value),
            Engine::Regex(regex) => regex.is_match(value),
        }
    }
}

fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    let build = |text: &str| RegexBuilder::new(text).size_limit(MAX_REGEX_BYTES).build();
    // On its own first: a parenthesis too many would close the group.
    build(text)?;
    build(&format!(r"\A(?s:{text})\z"))
}

/// The texts that a pattern lists, if it does nothing else.
fn alternatives(pattern: &str) -> Option<HashSet<String>> {
    let inside = pattern.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let mut texts = HashSet::new();
    let mut text = String::new();
    let mut letters = inside.unwrap_or(pattern).chars();
    while let Some(letter) = letters.next() {
        match letter {
            '|' => {
                texts.insert(std::mem::take(&mut text));
            }
            '\\' => text.push(letters.next().filter(char::is_ascii_punctuation)?),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            letter => text.push(letter),
        }
    }
    texts.insert(text);
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::{Engine, Pattern};

    /// Whether a pattern is looked up, and whether it matches these values.
    fn check(pattern: &str, is_list: bool, values: &[(&str, bool)]) {
        let made = Pattern::new(pattern).unwrap();
        assert_eq!(matches!(made.engine, Engine::OneOf(_)), is_list, "{pattern}");
        let regex = super::regex(pattern).unwrap();
        for &(value, expected) in values {
            assert_eq!(made.matches(value), expected, "{pattern} {value}");
            assert_eq!(regex.is_match(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn lists_of_texts_are_looked_up_and_mean_the_same() {
        check("", true, &[("", true), ("a", false)]);
        check("a", true, &[("a", true), ("aa", false), ("", false)]);
        check("a|b|", true, &[("a", true), ("b", true), ("", true), ("a|b", false)]);
        check(r"(a\.b|c\|d)", true, &[("a.b", true), ("axb", false), ("c|d", true), ("c", false)]);
        check("()", true, &[("", true), ("()", false)]);
        check("(a)|(b)", false, &[("a", true), ("b", true), ("a)|(b", false)]);
        check(r"a\d|b", false, &[("a1", true), ("ad", false), ("b", true)]);
        check("a.*", false, &[("a\nb", true), ("ba", false)]);
        check("(?i)a", false, &[("A", true)]);
        check(r"\(", true, &[("(", true)]);
    }

    #[test]
    fn long_lists_are_taken_and_large_expressions_are_not() {
        let list =
            (0..1000).map(|pod| format!("shop-7d9f8b6c5-{pod}")).collect::<Vec<_>>().join("|");
        assert!(Pattern::new(&list).unwrap().matches("shop-7d9f8b6c5-999"));
        assert!(Pattern::new(r"(\w{50}){50}").is_err());
        for wrong in ["(", "(a", r"\", "a)|(b", r"(\)"] {
            assert!(Pattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
