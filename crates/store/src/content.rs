//! Digests of content: what is equal has equal digests wherever it was sent from.

use std::fmt;
use std::str::FromStr;

use model::samples::{Batch, Frame, Series, StackId};
use sha2::{Digest as _, Sha256};

/// The first 16 bytes of SHA-256 over content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is no digest: 32 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NoDigest);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_digits| NoDigest)?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl Digest {
    /// Of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    fn finish(hash: Sha256) -> Self {
        let bytes = hash.finalize();
        Self(std::array::from_fn(|i| bytes.get(i).copied().unwrap_or_default()))
    }
}

/// Each text stands behind its length, so that no two lists of texts are the same bytes.
fn text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Of what a series counts and of its labels.
#[must_use]
pub fn of_series(series: &Series) -> Digest {
    let mut hash = Sha256::new();
    text(&mut hash, &series.profile_type.to_string());
    for (name, value) in series.labels.iter() {
        text(&mut hash, name);
        text(&mut hash, value);
    }
    Digest::finish(hash)
}

/// Of a stack: of all that its frames say, the innermost first.
#[must_use]
pub fn of_stack(batch: &Batch, stack: StackId) -> Digest {
    let mut hash = Sha256::new();
    for frame in batch.frames_of(stack) {
        let frame = batch.frame_of(frame);
        let Frame { function, system_name, file, kind, mapping, build_id, .. } = frame;
        for id in [function, system_name, file, kind, mapping, build_id] {
            text(&mut hash, batch.text_of(id));
        }
        hash.update(frame.line.to_le_bytes());
        hash.update(frame.start_line.to_le_bytes());
        hash.update([u8::from(frame.is_inlined)]);
        hash.update(frame.address.to_le_bytes());
    }
    Digest::finish(hash)
}

#[cfg(test)]
mod tests {
    use model::samples::Labels;

    use super::*;

    #[test]
    fn texts_that_are_split_otherwise_are_other_content() {
        let digest = |pairs: [(&str, &str); 1]| {
            let profile_type = "a:b:c:d:e".parse().unwrap();
            of_series(&Series { profile_type, labels: Labels::new(pairs) })
        };
        assert_ne!(digest([("a", "bc")]), digest([("ab", "c")]));
    }
}
