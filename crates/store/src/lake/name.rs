//! Names of blocks: all that finding them needs.
//!
//! ```text
//! acme@0001795410000000000-0001795410999000000-0001795411000000000-0-48213-8d3c…(32 digits).parquet
//! tenant begin, end, came: nanoseconds since the epoch                │ bytes  digest of the bytes
//!                                                                     level
//! ```

use std::fmt;
use std::str::FromStr;

use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content::Digest;
use crate::error::Error;

/// Bytes of a tenant's name: as Mimir and its kin allow.
pub const MAX_TENANT_BYTES: usize = 150;

/// Whose samples they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

impl Tenant {
    /// By name: letters, digits and `!-_.*'()`, 150 at most, and neither `.` nor `..`.
    ///
    /// # Errors
    ///
    /// [`Error::Tenant`].
    pub fn new(name: &str) -> Result<Self, Error> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!-_.*'()".contains(&byte);
        let is_name =
            !name.is_empty() && name.len() <= MAX_TENANT_BYTES && !matches!(name, "." | "..");
        if !is_name || !name.bytes().all(is_allowed) {
            return Err(Error::Tenant { name: name.chars().take(MAX_TENANT_BYTES).collect() });
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A block's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlockName {
    /// Whose samples are in it.
    pub tenant: Tenant,
    /// The first time of a sample.
    pub begin: Timestamp,
    /// The last time of a sample.
    pub end: Timestamp,
    /// When it was made, by the store's clock, which only grows; of a merged one, when the last of those was that it was merged from.
    pub came: Timestamp,
    /// How often its samples were merged.
    pub level: u8,
    /// Its length.
    pub bytes: u64,
    /// Digest of its bytes.
    pub digest: Digest,
}

impl BlockName {
    /// What others say that they replace: the digest of the name. Two blocks of equal bytes have two names.
    #[must_use]
    pub fn id(&self) -> Digest {
        Digest::of(self.to_string().as_bytes())
    }
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, begin, end, came, level, bytes, digest } = self;
        let [begin, end, came] = [begin, end, came].map(|at| at.nanos());
        let tenant = &tenant.0;
        write!(f, "{tenant}@{begin:019}-{end:019}-{came:019}-{level}-{bytes}-{digest}.parquet")
    }
}

impl From<BlockName> for String {
    fn from(name: BlockName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for BlockName {
    type Error = NoBlockName;

    fn try_from(text: String) -> Result<Self, NoBlockName> {
        text.parse()
    }
}

/// Text that is no block's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no block's name")]
pub struct NoBlockName;

impl FromStr for BlockName {
    type Err = NoBlockName;

    fn from_str(text: &str) -> Result<Self, NoBlockName> {
        let parsed = || {
            let (tenant, rest) = text.strip_suffix(".parquet")?.rsplit_once('@')?;
            let mut parts = rest.split('-');
            let mut part = || parts.next();
            let (begin, end, came) = (part()?, part()?, part()?);
            let (level, bytes, digest) = (part()?, part()?, part()?);
            let name = Self {
                tenant: Tenant::new(tenant).ok()?,
                begin: Timestamp::from_nanos(begin.parse().ok()?),
                end: Timestamp::from_nanos(end.parse().ok()?),
                came: Timestamp::from_nanos(came.parse().ok()?),
                level: level.parse().ok()?,
                bytes: bytes.parse().ok()?,
                digest: digest.parse().ok()?,
            };
            // As it would be written: there is one name for each block.
            (name.to_string() == text).then_some(name)
        };
        parsed().ok_or(NoBlockName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let name = BlockName {
            tenant: Tenant::new("a-b_c.d!").unwrap(),
            begin: Timestamp::from_nanos(17),
            end: Timestamp::from_nanos(1_795_410_000_000_000_000),
            came: Timestamp::from_nanos(1_795_410_000_000_000_001),
            level: 3,
            bytes: 48_213,
            digest: Digest::of(b"x"),
        };
        let text = name.to_string();
        assert_eq!(text.parse(), Ok(name));
        for wrong in [
            text.replace("@0", "@"),
            text.replace(".parquet", ""),
            text.replace("a-b", "a/b"),
            text.replace("-3-", "-+3-"),
            text.to_uppercase(),
            format!("{text}x"),
            String::new(),
        ] {
            assert_eq!(wrong.parse::<BlockName>(), Err(NoBlockName), "{wrong}");
        }
    }

    #[test]
    fn tenants_stay_below_the_folder() {
        for wrong in ["", ".", "..", "a/b", "a@b", "a b", "é", &"x".repeat(151)] {
            assert!(Tenant::new(wrong).is_err(), "{wrong}");
        }
    }
}
