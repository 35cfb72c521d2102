//! Texts between double quotes, in metadata of either version.

use std::fmt::{self, Display, Write};

/// A text as a literal that cannot end early.
pub(super) struct Quoted<'a> {
    text: &'a str,
    controls: Controls,
}

/// How characters below U+0020 are written.
enum Controls {
    /// `\001`: what C and so TSDL have.
    Octal,
    /// `\u0001`: what JSON has.
    Unicode,
}

impl<'a> Quoted<'a> {
    pub(super) const fn tsdl(text: &'a str) -> Self {
        Self { text, controls: Controls::Octal }
    }

    pub(super) const fn json(text: &'a str) -> Self {
        Self { text, controls: Controls::Unicode }
    }
}

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.text.chars() {
            match (character, &self.controls) {
                ('"' | '\\', _) => write!(f, "\\{character}")?,
                ('\n', _) => f.write_str("\\n")?,
                ('\0'..='\u{1F}', Controls::Octal) => write!(f, "\\{:03o}", u32::from(character))?,
                ('\0'..='\u{1F}', Controls::Unicode) => {
                    write!(f, "\\u{:04x}", u32::from(character))?;
                }
                (other, _) => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_cannot_end_its_literal_early() {
        let text = "a\"b\\c\nd\u{1}e\u{1e}é";
        assert_eq!(Quoted::tsdl(text).to_string(), r#""a\"b\\c\nd\001e\036é""#);
        assert_eq!(Quoted::json(text).to_string(), r#""a\"b\\c\nd\u0001e\u001eé""#);
    }
}
