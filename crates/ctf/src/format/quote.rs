//! Texts in quotes, with what needs it escaped.
//!
//! Eight bytes are looked at and copied at once: a word tells whether any of its bytes is special and which is the
//! first, so that text without specials costs a few instructions for each eight bytes.

use super::number::hex_byte;
use super::output::{Cursor, Output};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte that is zero. Bytes above the lowest such byte may be marked too.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH
}

/// The high bit of each byte below `limit` (at most 128), as exact as [`zero_bytes`].
#[inline]
const fn bytes_below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(ONES * limit) & !word & HIGH
}

/// The high bit of each byte equal to `byte`, as exact as [`zero_bytes`].
#[inline]
const fn bytes_equal(word: u64, byte: u8) -> u64 {
    zero_bytes(word ^ (ONES * byte as u64))
}

/// What is escaped and how.
pub(crate) trait Escapes {
    /// Marks the high bit of the lowest byte that is escaped, and maybe of bytes above it.
    fn special(word: u64) -> u64;

    /// Appends what stands for a byte, which may be one that is not escaped.
    fn escape(out: &mut Output, byte: u8);
}

/// C's escapes. Bytes from 0x80 on are kept as they are.
pub(crate) struct C;

impl Escapes for C {
    #[inline]
    fn special(word: u64) -> u64 {
        bytes_below(word, 0x20)
            | bytes_equal(word, b'"')
            | bytes_equal(word, b'\'')
            | bytes_equal(word, b'?')
            | bytes_equal(word, b'\\')
            | bytes_equal(word, 0x7F)
    }

    fn escape(out: &mut Output, byte: u8) {
        let letter = match byte {
            b'\\' | b'\'' | b'"' | b'?' => byte,
            0x00 => b'0',
            0x07 => b'a',
            0x08 => b'b',
            0x09 => b't',
            0x0A => b'n',
            0x0B => b'v',
            0x0C => b'f',
            0x0D => b'r',
            0x1B => b'e',
            0x01..=0x1F | 0x7F => {
                out.fixed(b"\\x");
                return hex_byte(out, byte, b'a');
            }
            _ => return out.push(byte),
        };
        out.fixed(&[b'\\', letter]);
    }
}

/// JSON's escapes, for text that is UTF-8.
pub(crate) struct Json;

impl Escapes for Json {
    #[inline]
    fn special(word: u64) -> u64 {
        bytes_below(word, 0x20) | bytes_equal(word, b'"') | bytes_equal(word, b'\\')
    }

    fn escape(out: &mut Output, byte: u8) {
        let letter = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\t' => b't',
            b'\r' => b'r',
            0x00..=0x1F => {
                out.fixed(b"\\u00");
                return hex_byte(out, byte, b'A');
            }
            _ => return out.push(byte),
        };
        out.fixed(&[b'\\', letter]);
    }
}

/// As [`Json`], for bytes of which it is not known whether they are UTF-8: all that is not ASCII is special.
pub(crate) struct JsonAscii;

impl Escapes for JsonAscii {
    #[inline]
    fn special(word: u64) -> u64 {
        Json::special(word) | (word & HIGH)
    }

    fn escape(out: &mut Output, byte: u8) {
        Json::escape(out, byte);
    }
}

/// A text in double quotes.
#[inline]
pub(crate) fn quoted<E: Escapes>(out: &mut Output, text: &[u8]) {
    out.push(b'"');
    escaped::<E>(out, text);
    out.push(b'"');
}

/// A text without the quotes.
#[inline]
pub(crate) fn escaped<E: Escapes>(out: &mut Output, text: &[u8]) {
    let mut rest = text;
    while let Some(bytes) = rest.first_chunk::<8>() {
        let special = E::special(u64::from_le_bytes(*bytes));
        if special == 0 {
            out.fixed(bytes);
            rest = rest.get(8..).unwrap_or_default();
            continue;
        }
        let plain = to_usize(special.trailing_zeros() / 8);
        out.with_room::<8>(|room| {
            *room = *bytes;
            plain
        });
        let Some((byte, after)) = rest.get(plain..).and_then(<[u8]>::split_first) else { return };
        E::escape(out, *byte);
        rest = after;
    }
    for byte in rest {
        E::escape(out, *byte);
    }
}

/// A text of any encoding.
pub(crate) fn escaped_chars<E: Escapes>(out: &mut Output, chars: impl Iterator<Item = char>) {
    for char in chars {
        escaped::<E>(out, char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Writes the beginning of a text up to the first word in which something is special, `text` being the first `len` bytes
/// of what there is to read. Returns how much of it was written.
#[inline(always)]
pub(crate) fn plain_words<E: Escapes>(line: &mut Cursor<'_>, bytes: &[u8], len: usize) -> usize {
    let mut done = 0;
    while done < len
        && line.left() >= 8
        && let Some(word) = bytes.get(done..).and_then(<[u8]>::first_chunk)
    {
        let used = (len - done).min(8);
        // What follows the text is made plain.
        let beyond = u64::MAX.checked_shl(8 * to_u32(used)).unwrap_or(0);
        let text = u64::from_le_bytes(*word) & !beyond | (ONES * u64::from(b'x')) & beyond;
        if E::special(text) != 0 {
            break;
        }
        line.put(word, used);
        done += used;
    }
    done
}

#[expect(clippy::cast_possible_truncation, reason = "at most 8")]
const fn to_u32(value: usize) -> u32 {
    value as u32
}

const fn to_usize(value: u32) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<E: Escapes>(text: &[u8]) -> Vec<u8> {
        let mut out = Output::new();
        quoted::<E>(&mut out, text);
        out.as_bytes().to_vec()
    }

    #[test]
    fn strings_are_quoted_with_the_escapes_of_c() {
        assert_eq!(
            written::<C>(b"a\\b\"c'd?\n\x01\x7f\x1b\xc3\xa9"),
            b"\"a\\\\b\\\"c\\'d\\?\\n\\x01\\x7f\\e\xc3\xa9\""
        );
    }

    /// Every byte at every place of a word is treated as it is alone.
    fn each_byte_alone<E: Escapes>() {
        for byte in 0..=u8::MAX {
            let mut alone = Output::new();
            E::escape(&mut alone, byte);
            for place in 0..20 {
                let mut text = [b'x'; 20];
                if let Some(slot) = text.get_mut(place) {
                    *slot = byte;
                }
                let (before, after) = ("x".repeat(place), "x".repeat(19 - place));
                let expected =
                    [b"\"", before.as_bytes(), alone.as_bytes(), after.as_bytes(), b"\""];
                assert_eq!(written::<E>(&text), expected.concat(), "{byte:#x} at {place}");
            }
        }
    }

    #[test]
    fn words_are_escaped_as_their_bytes_are() {
        each_byte_alone::<C>();
        each_byte_alone::<Json>();
    }

    #[test]
    fn neighbours_of_a_special_byte_are_kept() {
        assert_eq!(
            written::<C>(b"\"!\"!\"!\"!\x80\x01\x00\x02@>~"),
            b"\"\\\"!\\\"!\\\"!\\\"!\x80\\x01\\0\\x02@>~\""
        );
    }
}
