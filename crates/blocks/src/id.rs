//! The name of a block: a checksum of everything that decides what is in it.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stitch::Summary;
use tracedir::manifest::hex;

use crate::error::Error;
use crate::work::Work;
use mapper::job::{self, Entry};

/// Bytes of a summary file that name its format and version.
const FORMAT: usize = 12;

/// SHA-256 of what a block is made of. Whoever makes the block again gives it the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId([u8; 32]);

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Known,
    Map,
    Merge,
}

impl BlockId {
    /// What is known after a part: its pieces and bounds, what all parts depend on, and the block of what is known before it.
    pub(crate) fn of_known(work: &Work, part: usize, before: Option<Self>) -> Result<Self, Error> {
        let mut name = Self::of_part(Kind::Known, work, part)?;
        name.add(before.as_ref().map(|id| id.0.as_slice()).unwrap_or_default());
        Ok(name.finish())
    }

    /// The summary of a part: its pieces and bounds, what all parts depend on, and who was who at its begin.
    pub(crate) fn of_map(work: &Work, part: usize, entry: &Entry) -> Result<Self, Error> {
        let mut name = Self::of_part(Kind::Map, work, part)?;
        name.add(&postcard::to_stdvec(entry)?);
        Ok(name.finish())
    }

    /// The summary of neighbours: theirs, in order.
    pub(crate) fn of_merge(neighbours: &[Self]) -> Result<Self, Error> {
        let mut name = Name::new(Kind::Merge)?;
        neighbours.iter().for_each(|id| name.add(&id.0));
        Ok(name.finish())
    }

    /// The name of what is merged from nothing. Where it differs, the same events become other summaries, or blocks are called
    /// otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Summary`] when no summary can be written.
    pub fn of_nothing() -> Result<Self, Error> {
        Self::of_merge(&[])
    }

    fn of_part(kind: Kind, work: &Work, part: usize) -> Result<Name, Error> {
        let mut name = Name::new(kind)?;
        let Some(part) = work.parts.get(part) else { return Ok(name) };
        name.add(&postcard::to_stdvec(&work.common.within(part))?);
        name.add(&part.begin.nanos().to_le_bytes());
        name.add(&part.end.nanos().to_le_bytes());
        name.add(&[u8::from(part.is_gap)]);
        for piece in part.pieces.iter().filter_map(|piece| work.pieces.get(*piece)) {
            name.add(piece.name().as_bytes());
            name.add(&piece.checksum);
        }
        Ok(name)
    }

    /// The name as it is written: 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads [`Self::to_hex`].
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
        if digits.len() != 64 || text.chars().any(char::is_uppercase) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        Some(Self(bytes))
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct Name(Sha256);

impl Name {
    fn new(kind: Kind) -> Result<Self, Error> {
        let mut name = Self(Sha256::new());
        name.add(b"throughline-block 1");
        name.add(match kind {
            Kind::Known => b"known",
            Kind::Map => b"map",
            Kind::Merge => b"merge",
        });
        // A block is made of summaries of one format, by one reading of events.
        let summary = Summary::identity().to_bytes()?;
        name.add(summary.get(..FORMAT).unwrap_or_default());
        name.add(&job::VERSION.to_le_bytes());
        Ok(name)
    }

    /// Adds a field; its length is a part of it.
    fn add(&mut self, field: &[u8]) {
        self.0.update((field.len() as u64).to_le_bytes());
        self.0.update(field);
    }

    fn finish(self) -> BlockId {
        BlockId(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is() {
        let id = BlockId::of_merge(&[]).unwrap();
        assert_eq!(BlockId::from_hex(&id.to_hex()), Some(id));
        let text = id.to_hex();
        for other in [&text[1..], &format!("{text}0"), &text.to_uppercase(), &"é".repeat(32)] {
            assert_eq!(BlockId::from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn fields_that_are_cut_elsewhere_give_another_name() {
        let name = |fields: &[&[u8]]| {
            let mut name = Name::new(Kind::Map).unwrap();
            fields.iter().for_each(|field| name.add(field));
            name.finish()
        };
        assert_ne!(name(&[b"ab", b"c"]), name(&[b"a", b"bc"]));
        assert_eq!(name(&[b"ab", b"c"]), name(&[b"ab", b"c"]));
    }
}
