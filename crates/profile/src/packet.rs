//! A finished packet.

use std::fmt;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::model::SampleKind;

/// How hard the compressor tries: beyond it, a fiftieth less space costs half as much time again.
const LEVEL: u32 = 6;

/// First bytes of the SHA-256 of a request whose profile ids are all zero: the same content has the same id, whoever wrote it
/// and however often. Each profile's own id is this, then its place in the request, from 1, as four bytes, big endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(pub [u8; 12]);

/// 24 hexadecimal digits.
impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One window's samples as an `ExportProfilesServiceRequest` (OTLP v1.10 numbers), complete in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// What the content is called.
    pub id: PacketId,
    /// The request.
    pub bytes: Vec<u8>,
    /// When its window began, in nanoseconds since the epoch.
    pub begin_unix_ns: u64,
    /// What its samples are.
    pub kind: SampleKind,
    /// Samples in it.
    pub samples: usize,
}

impl Packet {
    /// The request as HTTP's `Content-Encoding: gzip` and files have it; the same for the same packet.
    #[must_use]
    pub fn gzip(&self) -> Vec<u8> {
        gzip(&self.bytes)
    }
}

/// Bytes in gzip; the same for the same bytes.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let room = Vec::with_capacity(bytes.len() / 3 + 64);
    let mut encoder = GzEncoder::new(room, Compression::new(LEVEL));
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("a vector takes all that is written to it")
}
