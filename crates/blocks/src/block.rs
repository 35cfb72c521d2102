//! The bytes of a block.
//!
//! ```text
//! offset  size  content (integers little endian)
//!      0     8  "TLBLOCK\n"
//!      8     4  version, 1
//!     12    32  the block's name, as bytes
//!     44     8  length of the body in bytes
//!     52     n  body in postcard's encoding: what was read and could not be read, and the summary file's bytes
//!   52+n     4  CRC-32C of everything before
//! ```
//!
//! A block says its own name, so that one that was put under another is refused.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Damage;
use crate::id::BlockId;

const MAGIC: &[u8; 8] = b"TLBLOCK\n";
const VERSION: u32 = 1;
const HEADER: usize = 52;
const CHECKSUM: usize = 4;
/// Longest block that is read. Summaries are some hundred kilobytes.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Most findings that a block keeps; it counts the others.
pub const MAX_FINDINGS: usize = 100;

/// What reading a part or several gave besides their summary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Event records.
    pub events: u64,
    /// What could not be read, a line each; at most [`MAX_FINDINGS`].
    pub findings: Vec<String>,
    /// How many findings there are beyond those.
    pub more_findings: u64,
}

impl Told {
    /// Keeps what the bound allows.
    #[must_use]
    pub fn new(events: u64, mut findings: Vec<String>, more_findings: u64) -> Self {
        let over = findings.len().saturating_sub(MAX_FINDINGS) as u64;
        findings.truncate(MAX_FINDINGS);
        Self { events, findings, more_findings: more_findings.saturating_add(over) }
    }

    /// Appends what the neighbour's reading gave.
    pub(crate) fn append(&mut self, right: &Self) {
        let mut findings = std::mem::take(&mut self.findings);
        findings.extend_from_slice(&right.findings);
        let more = self.more_findings.saturating_add(right.more_findings);
        *self = Self::new(self.events.saturating_add(right.events), findings, more);
    }
}

/// What is in the block of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summarised {
    /// What reading gave besides.
    pub told: Told,
    /// The summary, as its file.
    pub summary: Vec<u8>,
}

/// The bytes of a block with this name.
pub(crate) fn encode(id: &BlockId, body: &impl Serialize) -> Result<Vec<u8>, postcard::Error> {
    let body = postcard::to_stdvec(body)?;
    let mut bytes = Vec::with_capacity(HEADER + body.len() + CHECKSUM);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(id.bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    Ok(bytes)
}

/// Reads the bytes of the block with this name. Takes no more memory than the bytes are worth.
pub(crate) fn decode<T: DeserializeOwned>(id: &BlockId, bytes: &[u8]) -> Result<T, Damage> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Damage::Magic)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Damage::Short)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(Damage::Version { found: version, expected: VERSION });
    }
    let (name, rest) = rest.split_first_chunk::<32>().ok_or(Damage::Short)?;
    let (len, rest) = rest.split_first_chunk::<8>().ok_or(Damage::Short)?;
    let (body, checksum) = rest.split_last_chunk::<CHECKSUM>().ok_or(Damage::Short)?;
    if u64::from_le_bytes(*len) != body.len() as u64 {
        return Err(Damage::Short);
    }
    let computed = crc32c::crc32c(bytes.get(..bytes.len() - CHECKSUM).unwrap_or_default());
    if u32::from_le_bytes(*checksum) != computed {
        return Err(Damage::Checksum);
    }
    if name != id.bytes() {
        return Err(Damage::OtherName);
    }
    postcard::from_bytes(body).map_err(Damage::Body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: u8) -> BlockId {
        BlockId::from_hex(&format!("{}{last:02x}", "0".repeat(62))).unwrap()
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let body =
            Summarised { told: Told::new(7, vec!["torn".to_owned()], 2), summary: vec![1, 2, 3] };
        let bytes = encode(&id(1), &body).unwrap();
        assert_eq!(decode::<Summarised>(&id(1), &bytes).unwrap(), body);
        assert!(matches!(decode::<Summarised>(&id(2), &bytes), Err(Damage::OtherName)));
    }

    #[test]
    fn every_flipped_bit_and_every_missing_end_is_noticed() {
        let body = Summarised { told: Told::default(), summary: vec![9; 40] };
        let bytes = encode(&id(1), &body).unwrap();
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 4;
            assert!(decode::<Summarised>(&id(1), &torn).is_err(), "byte {at}");
            assert!(decode::<Summarised>(&id(1), &bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn findings_beyond_the_bound_are_counted() {
        let lines = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>();
        let mut told = Told::new(1, lines(MAX_FINDINGS - 1), 5);
        told.append(&Told::new(2, lines(MAX_FINDINGS + 1), 0));
        assert_eq!((told.events, told.findings.len()), (3, MAX_FINDINGS));
        assert_eq!(told.more_findings, 5 + 1 + MAX_FINDINGS as u64 - 1);
    }
}
