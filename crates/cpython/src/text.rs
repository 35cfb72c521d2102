//! Names, as `PyUnicodeObject` has them (PEP 393).

/// A string of so many bytes a character (1: Latin-1, 2, 4); `None` for any other width. What is no character becomes U+FFFD, and what
/// is left of a character at the end is dropped.
#[must_use]
pub fn text(bytes: &[u8], width: u8) -> Option<String> {
    let character = |code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match width {
        1 => Some(bytes.iter().copied().map(char::from).collect()),
        2 => {
            let codes = bytes.as_chunks().0.iter().map(|code| u16::from_ne_bytes(*code));
            Some(codes.map(|code| character(code.into())).collect())
        }
        4 => {
            let codes = bytes.as_chunks().0.iter().map(|code| u32::from_ne_bytes(*code));
            Some(codes.map(character).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_all_widths_are_read() {
        assert_eq!(text(b"na\xefve", 1).unwrap(), "naïve");
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_ne_bytes).collect::<Vec<_>>();
        assert_eq!(text(&wide("Ωmega"), 2).unwrap(), "Ωmega");
        let full: Vec<u8> = "f𝓯".chars().flat_map(|it| u32::from(it).to_ne_bytes()).collect();
        assert_eq!(text(&full, 4).unwrap(), "f𝓯");
        assert_eq!(text(&full[..7], 4).unwrap(), "f");
    }

    #[test]
    fn what_is_no_character_is_marked() {
        assert_eq!(text(&0xd800_u16.to_ne_bytes(), 2).unwrap(), "\u{fffd}");
        assert_eq!(text(&[0xff; 4], 4).unwrap(), "\u{fffd}");
        assert_eq!(text(b"abc", 3), None);
        assert_eq!(text(b"", 1).unwrap(), "");
    }
}
