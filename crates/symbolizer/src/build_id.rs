//! What linkers call the contents of a file.

use std::fmt;
use std::str::FromStr;

/// The longest, in bytes: linkers write 8 to 32.
const MAX_BYTES: usize = 64;

/// The build id of a file, as its note has it (`NT_GNU_BUILD_ID`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Vec<u8>);

/// Text that is no build id: those of Go's linker, for one, are none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a build id has 2 to {MAX_BYTES} bytes, in hexadecimal digits")]
pub struct NoBuildId;

impl BuildId {
    /// Of so many bytes as one may have.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (2..=MAX_BYTES).contains(&bytes.len()).then(|| Self(bytes.to_vec()))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for BuildId {
    type Err = NoBuildId;

    fn from_str(text: &str) -> Result<Self, NoBuildId> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
        if !rest.is_empty() || pairs.len() > MAX_BYTES {
            return Err(NoBuildId);
        }
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.and_then(|bytes| Self::new(&bytes)).ok_or(NoBuildId)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_its_hexadecimal_digits() {
        let id: BuildId = "93AC61ec5a8eb1396f9fbd350e3169a558528a40".parse().unwrap();
        assert_eq!(id.to_string(), "93ac61ec5a8eb1396f9fbd350e3169a558528a40");
        let long = "ab".repeat(65);
        for wrong in ["", "ab", "abc", "ab/../..", "+1+1", "zz00", "é0", long.as_str()] {
            assert_eq!(wrong.parse::<BuildId>(), Err(NoBuildId), "{wrong}");
        }
    }
}
