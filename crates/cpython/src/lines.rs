//! Line tables of code objects.
//!
//! | version | table | entries |
//! |---|---|---|
//! | 3.8, 3.9 | `co_lnotab` | bytes of code, then lines (signed): both before the place that follows |
//! | 3.10 | `co_linetable` (PEP 626) | bytes of code, then lines (signed; −128: none): of the code that follows |
//! | 3.11 to 3.14 | `co_linetable` (`InternalDocs/code_objects.md`) | a byte of kind and length, then numbers by kind |

/// `_Py_CODEUNIT`.
const UNIT_BYTES: u32 = 2;

/// The line of the instruction that begins so many bytes behind the code's first one. `None` where there is none, and where the
/// table ends before it.
///
/// `minor` is that of the version; `first_line` the code's first.
#[must_use]
pub fn line(minor: u8, table: &[u8], first_line: u32, instruction: u32) -> Option<u32> {
    let found = match minor {
        0..=9 => by_lnotab(table, first_line, instruction),
        10 => by_pairs(table, first_line, instruction),
        _ => by_locations(table, first_line, instruction),
    };
    found.filter(|line| *line > 0)
}

fn by_lnotab(table: &[u8], first_line: u32, instruction: u32) -> Option<u32> {
    let (mut at, mut line) = (0_u32, first_line);
    for [bytes, lines] in table.as_chunks().0 {
        at = at.saturating_add(u32::from(*bytes));
        if at > instruction {
            break;
        }
        line = line.wrapping_add_signed(i32::from(lines.cast_signed()));
    }
    Some(line)
}

fn by_pairs(table: &[u8], first_line: u32, instruction: u32) -> Option<u32> {
    const NONE: i8 = -128;
    let (mut begin, mut line) = (0_u32, first_line);
    for [bytes, lines] in table.as_chunks().0 {
        let lines = lines.cast_signed();
        if lines != NONE {
            line = line.wrapping_add_signed(lines.into());
        }
        let end = begin.saturating_add(u32::from(*bytes));
        if (begin..end).contains(&instruction) {
            return (lines != NONE).then_some(line);
        }
        begin = end;
    }
    None
}

fn by_locations(table: &[u8], first_line: u32, instruction: u32) -> Option<u32> {
    const IS_FIRST: u8 = 0x80;
    let (mut end, mut line) = (0_u32, first_line);
    let mut entries = table.split(|byte| byte & IS_FIRST != 0);
    // What `split` takes away: the first byte of each entry.
    let mut heads = table.iter().filter(|byte| **byte & IS_FIRST != 0);
    entries.next()?;
    for rest in entries {
        let head = heads.next()?;
        let lines = match head >> 3 & 0xf {
            // Those with columns in a byte stay on the line.
            0..=9 => Some(0),
            kind @ 10..=12 => Some(i32::from(kind) - 10),
            13 | 14 => Some(signed(rest)?),
            _ => None,
        };
        line = line.wrapping_add_signed(lines.unwrap_or(0));
        end = end.saturating_add((u32::from(head & 7) + 1) * UNIT_BYTES);
        if instruction < end {
            return lines.map(|_| line);
        }
    }
    None
}

/// The number that an entry begins with: six bits a byte, the lowest first, and the lowest of all is the sign.
fn signed(bytes: &[u8]) -> Option<i32> {
    const MORE: u8 = 0x40;
    let mut number = 0_u32;
    for (place, byte) in bytes.iter().enumerate().take(6) {
        number |= u32::from(byte & 0x3f) << (6 * place);
        if byte & MORE == 0 {
            let half = (number >> 1).cast_signed();
            return Some(if number & 1 == 0 { half } else { -half });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of all instructions, as far as the table tells them.
    fn lines(minor: u8, table: &[u8], first_line: u32, bytes: u32) -> Vec<u32> {
        let each = (0..bytes).step_by(2);
        each.map(|at| line(minor, table, first_line, at).unwrap_or(0)).collect()
    }

    type Case = (u8, u32, &'static [u8], &'static [(u32, u32)]);

    #[test]
    fn lines_are_those_that_the_compiler_meant() {
        let cases: &[Case] = &include!("../tests/lines.in");
        for (minor, first_line, table, expected) in cases {
            for (at, expected) in *expected {
                let found = line(*minor, table, *first_line, *at).unwrap_or(0);
                assert_eq!(found, *expected, "3.{minor} at {at} of {table:?}");
            }
        }
    }

    #[test]
    fn code_without_a_line_has_none() {
        assert_eq!(lines(10, &[2, 1, 2, 0x80, 2, 1], 5, 8), [6, 0, 7, 0]);
        // One unit on the next line, two units of none, one on the same line as the first.
        assert_eq!(lines(11, &[0xd8, 0, 0, 0xf9, 0x80, 0], 5, 8), [6, 0, 0, 6]);
    }

    #[test]
    fn a_table_that_was_cut_tells_what_it_has() {
        assert_eq!(lines(11, &[0xd8, 0, 0], 5, 4), [6, 0]);
        // A number that does not end.
        assert_eq!(lines(11, &[0xe8, 0x40], 5, 2), [0]);
        assert_eq!(lines(11, &[0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f], 5, 2), [0]);
        // Bytes before the first entry belong to none.
        assert_eq!(lines(11, &[3, 3, 0xd0, 0, 0], 5, 2), [5]);
        assert_eq!(line(8, &[], 5, 100), Some(5));
        assert_eq!(lines(10, &[], 5, 2), [0]);
    }
}
