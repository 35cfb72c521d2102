//! Summary files.

use model::Timestamp;
use stitch::{Error, Summary};

use crate::kernel_like::facts;
use crate::laws::map;

#[test]
fn a_summary_file_reads_back_and_any_flipped_bit_is_found() {
    let mut bytes = example().to_bytes().unwrap();
    assert_eq!(Summary::from_bytes(&bytes).unwrap(), example());
    for at in 0..bytes.len() {
        bytes[at] ^= 0x10;
        let error = Summary::from_bytes(&bytes).unwrap_err();
        let expected = match at {
            0..8 => matches!(error, Error::Magic { .. }),
            8..12 => matches!(error, Error::Version { .. }),
            12..20 => matches!(error, Error::Length { .. }),
            _ => matches!(error, Error::Checksum { .. }),
        };
        assert!(expected, "byte {at}: {error}");
        bytes[at] ^= 0x10;
    }
    for length in 0..bytes.len() {
        let cut = bytes.get(..length).unwrap();
        let error = Summary::from_bytes(cut).unwrap_err();
        assert!(matches!(error, Error::Magic { .. } | Error::Length { .. }), "{length}: {error}");
    }
}

fn example() -> Summary {
    let steps: Vec<(u8, u8, u8)> =
        (0..200_u8).map(|n| (n.wrapping_mul(37) % 248, n.wrapping_mul(91), n)).collect();
    let (all, end) = facts(&steps);
    map(&all, Timestamp::from_nanos(0), end)
}
