//! What profiles are called.

use sha2::{Digest as _, Sha256};

/// The first 16 bytes of the SHA-256 of parts, the length of each as eight bytes, little endian, before it.
pub(crate) fn digest<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

/// The number of a UUID, which is not 0.
pub(crate) fn uuid(text: &str) -> Option<u128> {
    let digits: String = match text.len() {
        32 => text.to_owned(),
        36 => {
            let dashes = [8, 13, 18, 23];
            let is_dash = |at: &usize| text.as_bytes().get(*at) == Some(&b'-');
            if !dashes.iter().all(is_dash) {
                return None;
            }
            text.replace('-', "")
        }
        _ => return None,
    };
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(&digits, 16).ok().filter(|id| is_hex && *id != 0)
}
