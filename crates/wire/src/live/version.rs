//! `VERSION` (5), both directions, and what a version implies.
//!
//! ```text
//! off size
//!   0    4  major, always 2
//!   4    4  minor: the lttng-tools minor up to 14; lttng-tools 2.15 and 2.16 both say 15
//! ```
//! The reply has the same shape with the relay's own numbers. Both sides then speak the smaller minor.

use super::error::Result;
use super::reader::Reader;
use super::reply::{Decoded, fixed_reply};

/// A pair of version numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Major number; peers with different ones cannot talk.
    pub major: u32,
    /// Minor number.
    pub minor: ProtocolMinor,
}

impl Version {
    /// What this implementation announces.
    pub const OURS: Self = Self { major: 2, minor: ProtocolMinor::OURS };
    /// Length of request payload and of reply, in bytes.
    pub const LEN: usize = 8;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let major = reader.u32("major")?;
        let minor = ProtocolMinor(reader.u32("minor")?);
        Ok(Self { major, minor })
    }

    /// Reads the reply to `VERSION`.
    ///
    /// # Errors
    /// None beyond the shape; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, Self::read)
    }

    /// Appends the eight bytes, as request payload or as reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.major.to_be_bytes());
        out.extend_from_slice(&self.minor.0.to_be_bytes());
    }

    /// What two peers speak, or `None` when their majors differ.
    #[must_use]
    pub fn negotiate(self, peer: Self) -> Option<ProtocolMinor> {
        (self.major == peer.major).then(|| self.minor.min(peer.minor))
    }
}

/// The minor version a connection speaks; it decides the layout of some messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolMinor(pub u32);

impl ProtocolMinor {
    /// The newest one this module knows.
    pub const OURS: Self = Self(15);

    /// `ADD_STREAM` carries trace file limits.
    #[must_use]
    pub const fn has_tracefile_limit(self) -> bool {
        self.0 >= 2
    }

    /// `CREATE_SESSION` carries names.
    #[must_use]
    pub const fn has_session_names(self) -> bool {
        self.0 >= 4
    }

    /// Index entries carry stream instance id and packet sequence number.
    #[must_use]
    pub const fn has_full_index(self) -> bool {
        self.0 >= 8
    }

    /// Sessions have trace chunks and the relay chooses the output path.
    #[must_use]
    pub const fn has_trace_chunks(self) -> bool {
        self.0 >= 11
    }

    /// `CREATE_SESSION` carries the trace format.
    #[must_use]
    pub const fn has_trace_format(self) -> bool {
        self.0 >= 15
    }
}
