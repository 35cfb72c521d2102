//! Bodies that may be compressed.

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;

use super::{DecodeError, Wrong};

/// Whether bytes begin as those of gzip do. No message does: 7 is no wire type.
#[must_use]
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// The bytes of a message that may be compressed with gzip, which their first bytes say.
///
/// # Errors
///
/// [`Wrong::Gzip`] when they are damaged, [`Wrong::TooMany`] when they stand for more than `limit`.
pub fn ungzip(bytes: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
    let wrong = |wrong| DecodeError { offset: 0, path: "gzip", wrong };
    if !is_gzip(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let most = limit as u64;
    let mut plain = Vec::new();
    match MultiGzDecoder::new(bytes).take(most.saturating_add(1)).read_to_end(&mut plain) {
        Ok(length) if length > limit => Err(wrong(Wrong::TooMany { what: "bytes", limit })),
        Ok(_) => Ok(Cow::Owned(plain)),
        Err(_) => Err(wrong(Wrong::Gzip)),
    }
}
