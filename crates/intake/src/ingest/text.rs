//! Stacks as text: `main;work;inner 42`, the root first, or a line for each time that a stack was seen.

use super::Target;
use crate::error::Error;

/// `stack value`, the value behind the last blank. Lines without a blank are passed over.
pub(super) fn folded(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), Error> {
    for (line, text) in lines(bytes) {
        let text = text?;
        let Some((stack, value)) = text.rsplit_once(' ') else {
            target.draft.left_out.lines += u64::from(!text.is_empty());
            continue;
        };
        let value = value.parse().map_err(|_no_number: std::num::ParseIntError| {
            let value = value.chars().take(64).collect();
            Error::Line { line, value, why: "is no whole number" }
        })?;
        target.add_text(stack, value)?;
    }
    Ok(())
}

/// One stack for each line.
pub(super) fn single(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), Error> {
    for (_, text) in lines(bytes) {
        match text? {
            "" => {}
            stack => target.add_text(stack, 1)?,
        }
    }
    Ok(())
}

/// Lines and their numbers, from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<&str, Error>)> {
    (1..).zip(bytes.split(|byte| *byte == b'\n')).map(|(line, bytes)| {
        let text = std::str::from_utf8(bytes.strip_suffix(b"\r").unwrap_or(bytes));
        let wrong = |_not_utf8| Error::Line { line, value: String::new(), why: "is not UTF-8" };
        (line, text.map_err(wrong))
    })
}
