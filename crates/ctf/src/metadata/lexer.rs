//! Tokens of TSDL: those of C99, as far as the metadata grammar has a use for them.

use std::borrow::Cow;

use crate::error::TextProblem;
use crate::work;

/// Where in the text, and what is wrong there.
pub(crate) type Problem = (usize, TextProblem);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    Number(u64),
    /// What stands between the quotes, with its escapes.
    Text(&'a [u8]),
    Sign(&'static str),
    End,
}

#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

/// Longer ones first.
const SIGNS: [&str; 19] = [
    "...", ":=", "->", "{", "}", "[", "]", "<", ">", "(", ")", ";", ":", ",", "=", ".", "*", "-",
    "+",
];

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    /// The next token and where it begins.
    pub(crate) fn token(&mut self) -> Result<(usize, Token<'a>), Problem> {
        work::step();
        self.skip_blanks()?;
        let (begin, rest) = (self.at, self.rest());
        let token = match rest.first() {
            None => Token::End,
            Some(b'0'..=b'9') => Token::Number(self.number()?),
            Some(b'"' | b'\'') => Token::Text(self.quoted(1)?),
            Some(b'L') if matches!(rest.get(1), Some(b'"' | b'\'')) => Token::Text(self.quoted(2)?),
            Some(byte) if is_word(*byte) => Token::Word(self.word()),
            Some(byte) => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign.as_bytes()));
                let sign = sign.ok_or((begin, TextProblem::Byte(*byte)))?;
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok((begin, token))
    }

    fn skip_blanks(&mut self) -> Result<(), Problem> {
        loop {
            let rest = self.rest();
            let blank =
                rest.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0B).count();
            self.at += blank;
            let rest = self.rest();
            if rest.starts_with(b"/*") {
                let end = rest.get(2..).and_then(|inside| find(inside, b"*/"));
                self.at += 4 + end.ok_or((self.at, TextProblem::Unfinished("a comment")))?;
            } else if rest.starts_with(b"//") {
                self.at += line_comment(rest);
            } else if rest.starts_with(b"\\\n") {
                self.at += 2;
            } else if blank == 0 {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let len = rest.iter().take_while(|byte| is_word(**byte)).count();
        self.at += len;
        rest.get(..len).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default()
    }

    fn number(&mut self) -> Result<u64, Problem> {
        let wrong = (self.at, TextProblem::Literal("integer"));
        let word = self.word();
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let suffix = word.get(digits.len()..).unwrap_or_default().to_ascii_lowercase();
        if !["", "u", "l", "ll", "ul", "lu", "ull", "llu"].contains(&suffix.as_str()) {
            return Err(wrong);
        }
        let (digits, radix) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (digits.get(2..), 16),
            [b'0', b'b' | b'B', ..] => (digits.get(2..), 2),
            [b'0', _, ..] => (digits.get(1..), 8),
            _ => (Some(digits), 10),
        };
        digits.and_then(|digits| u64::from_str_radix(digits, radix).ok()).ok_or(wrong)
    }

    /// A text or, between single quotes, a character literal, which stands for the text of its characters. The last
    /// byte of the prefix is the quote.
    fn quoted(&mut self, prefix: usize) -> Result<&'a [u8], Problem> {
        let (opening, inside) = self.rest().split_at_checked(prefix).unwrap_or_default();
        let quote = opening.last();
        let mut escaped = false;
        for (len, byte) in inside.iter().enumerate() {
            match byte {
                end if Some(end) == quote && !escaped => {
                    self.at += prefix + len + 1;
                    return Ok(inside.get(..len).unwrap_or(&[]));
                }
                b'\n' if !escaped => break,
                0 => return Err((self.at + prefix + len, TextProblem::Byte(0))),
                _ => escaped = *byte == b'\\' && !escaped,
            }
        }
        Err((self.at, TextProblem::Unfinished("a text")))
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// The length of a `//` comment without its line end; a backslash before the line end continues it.
fn line_comment(rest: &[u8]) -> usize {
    let mut before = 0;
    for (len, byte) in rest.iter().enumerate() {
        if *byte == b'\n' && before != b'\\' {
            return len;
        }
        before = *byte;
    }
    rest.len()
}

/// Replaces C escapes; `None` when one is malformed. Bytes that are not UTF-8 become replacement characters.
pub(crate) fn unescape(raw: &[u8]) -> Option<String> {
    let mut out = Cow::Borrowed(raw);
    if raw.contains(&b'\\') {
        let mut bytes = Vec::with_capacity(raw.len());
        let mut rest = raw;
        while let Some((byte, after)) = rest.split_first() {
            rest = if *byte == b'\\' {
                escape(after, &mut bytes)?
            } else {
                bytes.push(*byte);
                after
            };
        }
        out = Cow::Owned(bytes);
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Replaces the escape after a backslash; returns what follows it.
fn escape<'a>(after: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (kind, rest) = after.split_first()?;
    let plain = match kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0B,
        b'\\' | b'"' | b'\'' | b'?' => *kind,
        b'0'..=b'7' => return numeric(after, 8, 1, 3, out),
        b'x' => return numeric(rest, 16, 1, 2, out),
        b'u' => return numeric(rest, 16, 4, 4, out),
        b'U' => return numeric(rest, 16, 8, 8, out),
        _ => return None,
    };
    out.push(plain);
    Some(rest)
}

/// A character by `least` to `most` digits: a byte for short escapes, UTF-8 for the long ones.
fn numeric<'a>(
    rest: &'a [u8],
    radix: u32,
    least: usize,
    most: usize,
    out: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let len = rest.iter().take(most).take_while(is_digit).count();
    let (digits, after) = rest.split_at_checked(len).filter(|_| len >= least)?;
    let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?;
    if most < 4 {
        out.push(u8::try_from(code).ok()?);
    } else {
        let mut buffer = [0; 4];
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
    }
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token<'_>>, Problem> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match lexer.token()?.1 {
                Token::End => return Ok(all),
                token => all.push(token),
            }
        }
    }

    #[test]
    fn tokens_are_those_of_c() {
        use Token::{Number, Sign, Text, Word};
        let check = |text, expected: &[Token<'_>]| {
            assert_eq!(tokens(text).as_deref(), Ok(expected), "{text}")
        };
        check(
            "a_1 /* x */ := 0x1Full; // end",
            &[Word("a_1"), Sign(":="), Number(0x1F), Sign(";")],
        );
        check("1...07", &[Number(1), Sign("..."), Number(7)]);
        check("0b101 -18446744073709551615", &[Number(5), Sign("-"), Number(u64::MAX)]);
        check(r#""a\"b" L"c""#, &[Text(br#"a\"b"#), Text(b"c")]);
        check(
            r#"'a' '\'"' L'bc' "it's""#,
            &[Text(b"a"), Text(br#"\'""#), Text(b"bc"), Text(b"it's")],
        );
        check("// one \\\n still\ntwo", &[Word("two")]);
        check("a\r\n\x0b\x0cb", &[Word("a"), Word("b")]);
    }

    #[test]
    fn what_is_no_token_is_reported_where_it_begins() {
        let check = |text, at, problem| assert_eq!(tokens(text), Err((at, problem)), "{text}");
        check("a /* b", 2, TextProblem::Unfinished("a comment"));
        check("ab \"c", 3, TextProblem::Unfinished("a text"));
        check("ab 'c\"", 3, TextProblem::Unfinished("a text"));
        check("08", 0, TextProblem::Literal("integer"));
        check(" 0x", 1, TextProblem::Literal("integer"));
        check("12ab", 0, TextProblem::Literal("integer"));
        check("18446744073709551616", 0, TextProblem::Literal("integer"));
        check("a\0", 1, TextProblem::Byte(0));
    }

    #[test]
    fn escapes_are_those_of_c() {
        let check = |raw: &str, text: Option<&str>| {
            assert_eq!(unescape(raw.as_bytes()).as_deref(), text, "{raw}")
        };
        check(r"a\n\t\\\x41\101\u00e9\U0001F600", Some("a\n\t\\AA\u{e9}\u{1F600}"));
        check(r"\q", None);
        check(r"\u12", None);
        check(r"\U00110000", None);
        check(r"\777", None);
    }
}
