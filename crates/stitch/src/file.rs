//! Summary files: a summary as bytes that anyone can check.
//!
//! ```text
//! offset  size  content (integers little endian)
//!      0     8  "TLSUMRY\n"
//!      8     4  version, 10
//!     12     4  form of the body: 0 as it is, 1 compressed
//!     16     8  length of the body in the file, in bytes
//!     24     8  length of the columns in bytes; of a body as it is the same
//!     32     n  body: the columns, in form 1 as one frame of Zstandard (RFC 8878)
//!   32+n     4  CRC-32C of everything before
//! ```
//!
//! What columns are stands in [`columns`].

pub(crate) mod columns;

use crate::Error;
use crate::summary::Summary;

const MAGIC: &[u8; 8] = b"TLSUMRY\n";
const VERSION: u32 = 11;
const HEADER: usize = 32;
const CHECKSUM: usize = 4;

const PLAIN: u32 = 0;
const COMPRESSED: u32 = 1;

/// How hard the compressor tries: beyond it, a fifth less space costs several times as long.
const LEVEL: i32 = 6;

/// A body may stand for so many times its own bytes. Columns of real recordings shrink to a tenth; what shrinks further than
/// this is stored as it is, so that a small file never takes much memory.
const MAX_RATIO: usize = 256;

/// Texts that stand in a summary may have so many times the bytes of its columns, when each is counted as often as it stands
/// there, or [`MIN_TEXT`]: a text stands once in a file.
const MAX_TEXT_RATIO: usize = 256;
const MIN_TEXT: usize = 16 << 20;

impl Summary {
    /// The summary as the bytes of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Body`] when the encoder fails, which it has no reason to.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let columns = columns::to_bytes(self).map_err(Error::Body)?;
        let shorter = zstd::bulk::compress(&columns, LEVEL).map_err(Error::Compressor)?;
        let pays = shorter.len() < columns.len() && columns.len() <= may_grow(shorter.len());
        let (form, body) = if pays { (COMPRESSED, &shorter) } else { (PLAIN, &columns) };
        let mut bytes = Vec::with_capacity(HEADER + body.len() + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&form.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(columns.len() as u64).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads the bytes of a file. Takes no more memory than a fixed multiple of them.
    ///
    /// # Errors
    ///
    /// [`Error::Magic`], [`Error::Version`], [`Error::Length`], [`Error::Checksum`], [`Error::Form`],
    /// [`Error::Compressor`] or [`Error::Body`]: what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let found = || Error::Magic { found: bytes.get(..8).unwrap_or(bytes).to_vec() };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(found)?;
        let (version, rest) = number::<4>(rest)?;
        let version = u32::from_le_bytes(version);
        if version != VERSION {
            return Err(Error::Version { found: version, expected: VERSION });
        }
        let (form, rest) = number::<4>(rest)?;
        let (announced, rest) = number::<8>(rest)?;
        let (whole, rest) = number::<8>(rest)?;
        let (announced, whole) = (u64::from_le_bytes(announced), u64::from_le_bytes(whole));
        let present = rest.len().saturating_sub(CHECKSUM) as u64;
        if announced != present || rest.len() < CHECKSUM {
            return Err(Error::Length { announced, present });
        }
        let (body, checksum) = rest.split_at(rest.len() - CHECKSUM);
        let (checksum, _) = number::<4>(checksum)?;
        let found = u32::from_le_bytes(checksum);
        let computed = crc32c::crc32c(bytes.get(..bytes.len() - CHECKSUM).unwrap_or_default());
        if found != computed {
            return Err(Error::Checksum { found, computed });
        }
        let form = u32::from_le_bytes(form);
        let unpacked = match form {
            PLAIN if whole == announced => None,
            COMPRESSED if whole <= may_grow(body.len()) as u64 => Some(unpacked(body, whole)?),
            _ => return Err(Error::Form { form, body: announced, columns: whole }),
        };
        let columns = unpacked.as_deref().unwrap_or(body);
        let max_text = columns.len().saturating_mul(MAX_TEXT_RATIO).max(MIN_TEXT);
        columns::from_bytes(columns, max_text).map_err(Error::Body)
    }
}

/// What so many compressed bytes may stand for.
fn may_grow(bytes: usize) -> usize {
    bytes.saturating_mul(MAX_RATIO)
}

/// The columns of a compressed body, which must have exactly this length.
fn unpacked(body: &[u8], length: u64) -> Result<Vec<u8>, Error> {
    let wrong = || Error::Form { form: COMPRESSED, body: body.len() as u64, columns: length };
    let capacity = usize::try_from(length).ok().ok_or_else(wrong)?;
    let columns = zstd::bulk::decompress(body, capacity).map_err(Error::Compressor)?;
    if columns.len() == capacity { Ok(columns) } else { Err(wrong()) }
}

/// The next bytes of the header and what follows them.
fn number<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), Error> {
    let (first, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or(Error::Length { announced: N as u64, present: bytes.len() as u64 })?;
    Ok((*first, rest))
}
