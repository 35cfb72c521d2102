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
            16..24 => matches!(error, Error::Length { .. }),
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

/// Files whose checksum is right, but nothing else.
#[test]
fn whoever_can_make_a_checksum_gets_an_error_and_no_memory() {
    let good = example().to_bytes().unwrap();
    let with = |form: u32, columns: u64, body: &[u8]| {
        let mut bytes = good[..12].to_vec();
        bytes.extend(form.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(columns.to_le_bytes());
        bytes.extend(body);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        Summary::from_bytes(&bytes)
    };
    let body = &good[32..good.len() - 4];
    let length = u64::from_le_bytes(*good[24..].first_chunk().unwrap());
    assert_eq!(with(1, length, body).unwrap(), example());
    let columns = zstd::bulk::decompress(body, 1 << 20).unwrap();
    assert_eq!(with(0, length, &columns).unwrap(), example());
    let zeros = zstd::bulk::compress(&vec![0; 1 << 20], 6).unwrap();
    assert!(matches!(with(1, 1 << 20, &zeros), Err(Error::Form { .. })));
    assert!(matches!(with(2, length, body), Err(Error::Form { .. })));
    assert!(matches!(with(0, length, body), Err(Error::Form { .. })));
    assert!(matches!(with(1, length + 1, body), Err(Error::Form { .. })));
    assert!(matches!(with(1, length - 1, body), Err(Error::Compressor(_))));
    assert!(matches!(with(1, length, &body[..body.len() / 2]), Err(Error::Compressor(_))));
    let cut = &columns[..columns.len() / 2];
    assert!(matches!(with(0, cut.len() as u64, cut), Err(Error::Body(_))));
}

fn example() -> Summary {
    let steps: Vec<(u8, u8, u8)> =
        (0..200_u8).map(|n| (n.wrapping_mul(37) % 248, n.wrapping_mul(91), n)).collect();
    let (all, end) = facts(&steps);
    map(&all, Timestamp::from_nanos(0), end)
}
