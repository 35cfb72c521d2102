//! Values as columns: what stands at one place of a type, side by side for all values of that type.
//!
//! A table of rows is many numbers of few kinds; those of one kind resemble each other, so that they take less room when
//! they stand together. Which numbers these are follows from the types: each field of a structure, each element of a
//! sequence, each variant of an enumeration is a *place*, and places form a tree.
//!
//! ```text
//! body    texts place
//! texts   count, then length and bytes (UTF-8) of each; a text stands once
//! place   count of numbers, how they are written (0: as they are, 1: the distance to the one before), the numbers,
//!         count of places below it, these places
//! ```
//!
//! All are unsigned numbers of seven bits a byte, the lowest first, the eighth bit set while more follow. Signed ones have
//! their sign in the lowest bit. A place holds: the number itself; for a truth value, an option or an enumeration which it
//! is; for a text its position among the texts; for a sequence or map its length. Wide numbers (128 bits) are two places.

mod read;
mod write;

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why bytes are not the columns of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// They end too early.
    #[error("the bytes end inside of a column")]
    End,
    /// More follows than the value has.
    #[error("{0} bytes follow the columns")]
    More(usize),
    /// A number does not fit where it stands.
    #[error("{0} is out of range")]
    Range(u64),
    /// A column ends before its rows do, or goes on after them.
    #[error("a column has another length than its rows")]
    Rows,
    /// A text is no UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// Read back, it would take more memory than its bytes are worth.
    #[error("texts of more than {0} bytes")]
    TooMuch(usize),
    /// The value cannot be made of columns: a type has no such form, or a number makes no sense in it.
    #[error("{0}")]
    Value(String),
}

impl serde::ser::Error for ColumnError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

impl serde::de::Error for ColumnError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

/// The columns of a value.
pub(super) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, ColumnError> {
    write::to_bytes(value)
}

/// The value that has these columns, in which texts have at most so many bytes together, each counted as often as it stands
/// in the value.
pub(super) fn from_bytes<T: DeserializeOwned>(
    bytes: &[u8],
    max_text: usize,
) -> Result<T, ColumnError> {
    read::from_bytes(bytes, max_text)
}

/// How many places may lie below each other. The types of a summary need a third.
const MAX_DEPTH: usize = 64;

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        name: String,
        figures: (u64, i64, u128),
        kind: Kind,
        more: Option<BTreeMap<u16, Vec<bool>>>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Nothing,
        One(i32),
        Two(u8, String),
        Named { at: i64, row: Option<Box<Row>> },
    }

    fn rows() -> Vec<Row> {
        let kind = |n: u64| match n % 4 {
            0 => Kind::Nothing,
            1 => Kind::One(i32::MIN),
            2 => Kind::Two(255, "two".to_owned()),
            _ => Kind::Named { at: i64::MIN, row: None },
        };
        let row = |n: u64| Row {
            name: format!("name {}", n % 7),
            figures: (u64::MAX - n, -(n as i64), u128::MAX / (u128::from(n) + 1)),
            kind: kind(n),
            more: n.checked_sub(6).map(|_| (0..5).map(|m| (m, vec![true; 3])).collect()),
        };
        (0..12).map(row).collect()
    }

    #[test]
    fn a_value_reads_back_from_its_columns() {
        let bytes = to_bytes(&rows()).unwrap();
        assert_eq!(from_bytes::<Vec<Row>>(&bytes, 1 << 20).unwrap(), rows());
    }

    #[test]
    fn cut_and_flipped_bytes_are_an_error_or_another_value() {
        let bytes = to_bytes(&rows()).unwrap();
        for length in 0..bytes.len() {
            let cut = from_bytes::<Vec<Row>>(&bytes[..length], 1 << 20);
            assert!(cut.is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            for bit in [0x01, 0x10, 0x80] {
                let mut flipped = bytes.clone();
                flipped[at] ^= bit;
                if let Ok(value) = from_bytes::<Vec<Row>>(&flipped, 1 << 20) {
                    let again = to_bytes(&value).unwrap();
                    assert_eq!(from_bytes::<Vec<Row>>(&again, 1 << 20).unwrap(), value);
                }
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(from_bytes::<Vec<Row>>(&longer, 1 << 20), Err(ColumnError::More(1)));
    }

    #[test]
    fn texts_that_stand_often_cost_no_more_than_they_may() {
        let often = vec!["x".repeat(1_000); 1_000];
        let bytes = to_bytes(&often).unwrap();
        assert!(bytes.len() < 3_000);
        assert_eq!(from_bytes::<Vec<String>>(&bytes, 1_000_000).unwrap(), often);
        let refused = from_bytes::<Vec<String>>(&bytes, 999_999);
        assert_eq!(refused, Err(ColumnError::TooMuch(999_999)));
    }

    #[test]
    fn a_length_without_rows_takes_no_memory() {
        // A sequence of 2^63 numbers, of which there are none.
        let mut bytes = to_bytes(&vec![7_u64; 1]).unwrap();
        let at = bytes.iter().position(|byte| *byte == 1).unwrap();
        assert_eq!(bytes[at..at + 3], [1, 0, 1]);
        bytes.splice(at + 2..=at + 2, [0xff; 9].into_iter().chain([0]));
        assert_eq!(from_bytes::<Vec<u64>>(&bytes, 1 << 20), Err(ColumnError::Rows));
    }
}
