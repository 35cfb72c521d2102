//! Summary files: a summary as bytes that anyone can check.
//!
//! ```text
//! offset  size  content (integers little endian)
//!      0     8  "TLSUMRY\n"
//!      8     4  version, 7
//!     12     8  length of the body in bytes
//!     20     n  body: the summary in postcard's encoding (https://postcard.jamesmunns.com/wire-format)
//!   20+n     4  CRC-32C of everything before
//! ```

use crate::Error;
use crate::summary::Summary;

const MAGIC: &[u8; 8] = b"TLSUMRY\n";
const VERSION: u32 = 7;
const HEADER: usize = 20;
const CHECKSUM: usize = 4;

impl Summary {
    /// The summary as the bytes of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Body`] when the encoder fails, which it has no reason to.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let body = postcard::to_stdvec(self).map_err(Error::Body)?;
        let mut bytes = Vec::with_capacity(HEADER + body.len() + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads the bytes of a file. Takes no more memory than the bytes are worth.
    ///
    /// # Errors
    ///
    /// [`Error::Magic`], [`Error::Version`], [`Error::Length`], [`Error::Checksum`] or [`Error::Body`]: what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let found = || Error::Magic { found: bytes.get(..8).unwrap_or(bytes).to_vec() };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(found)?;
        let (version, rest) = number::<4>(rest)?;
        let version = u32::from_le_bytes(version);
        if version != VERSION {
            return Err(Error::Version { found: version, expected: VERSION });
        }
        let (announced, rest) = number::<8>(rest)?;
        let announced = u64::from_le_bytes(announced);
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
        postcard::from_bytes(body).map_err(Error::Body)
    }
}

/// The next bytes of the header and what follows them.
fn number<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), Error> {
    let (first, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or(Error::Length { announced: N as u64, present: bytes.len() as u64 })?;
    Ok((*first, rest))
}
