//! The name of a packet's file.

use std::fmt;
use std::str::FromStr;

use profile::{DecodeError, Limits, Packet, PacketId, Request, SampleKind};

use crate::ledger::Kind;

/// How the name of a complete file ends.
const SUFFIX: &str = ".otlp.gz";

/// `BEGIN-KIND-ID-SAMPLES.otlp.gz`: begin in nanoseconds since the epoch (20 digits), `cpu`, `off_cpu` or `other`, packet id (24
/// hexadecimal digits), number of samples. The same packet has the same name; names are in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketName {
    /// Begin of the packet's window, in nanoseconds since the epoch.
    pub begin_unix_ns: u64,
    /// What its samples are.
    pub kind: Kind,
    /// What the content is called.
    pub id: PacketId,
    /// Samples in it.
    pub samples: u64,
}

impl PacketName {
    /// Of a packet.
    #[must_use]
    pub fn of(packet: &Packet) -> Self {
        let Packet { id, begin_unix_ns, samples, .. } = *packet;
        let kind = match packet.kind {
            SampleKind::OnCpu { .. } => Kind::Cpu,
            SampleKind::OffCpu => Kind::OffCpu,
        };
        Self { begin_unix_ns, kind, id, samples: samples as u64 }
    }

    /// Of anyone's request.
    ///
    /// # Errors
    /// As [`Request::decode`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let request = Request::decode(bytes, Limits::default())?;
        let profiles = || request.resources.iter().flat_map(|resource| &resource.profiles);
        let samples = profiles().flat_map(|profile| &profile.samples);
        let kind = profiles().next().map(|it| request.dictionary.string(it.sample_type.kind));
        Ok(Self {
            kind: match kind {
                Some("samples" | "cpu") => Kind::Cpu,
                Some("off_cpu") => Kind::OffCpu,
                _ => Kind::Other,
            },
            begin_unix_ns: profiles().map(|profile| profile.time_unix_ns).min().unwrap_or(0),
            id: match request.packet_id() {
                Some(id) => id,
                None => profile::packet_id(bytes)?,
            },
            samples: samples.map(|sample| sample.events().count() as u64).sum(),
        })
    }
}

impl fmt::Display for PacketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begin_unix_ns, kind, id, samples } = self;
        write!(f, "{begin_unix_ns:020}-{}-{id}-{samples}{SUFFIX}", kind.as_str())
    }
}

/// A text that is no name of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a packet's file")]
pub struct BadName;

impl FromStr for PacketName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let read = || -> Option<Self> {
            let mut parts = text.strip_suffix(SUFFIX)?.splitn(4, '-');
            let begin_unix_ns = parts.next()?.parse().ok()?;
            let word = parts.next()?;
            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == word)?;
            let digits = parts.next()?;
            let samples = parts.next()?.parse().ok()?;
            let mut id = [0; 12];
            for (at, byte) in id.iter_mut().enumerate() {
                *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
            }
            Some(Self { begin_unix_ns, kind, id: PacketId(id), samples })
        };
        // Only what would be written so: no signs, no other widths or cases.
        read().filter(|name| name.to_string() == text).ok_or(BadName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_no_other() {
        let id = PacketId([0xab; 12]);
        let name = PacketName { begin_unix_ns: 1, kind: Kind::OffCpu, id, samples: 42 };
        let text = "00000000000000000001-off_cpu-abababababababababababab-42.otlp.gz";
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
        for other in [
            "",
            "lock",
            "1-off_cpu-abababababababababababab-42.otlp.gz",
            "00000000000000000001-off_cpu-ABABABABABABABABABABABAB-42.otlp.gz",
            "00000000000000000001-off_cpu-abababababababababababab-+42.otlp.gz",
            "00000000000000000001-off-cpu-abababababababababababab-42.otlp.gz",
            "00000000000000000001-off_cpu-abababababababababababab-42.otlp.gz.part",
            "00000000000000000001-cpu-é-42.otlp.gz",
        ] {
            assert_eq!(other.parse::<PacketName>(), Err(BadName), "{other}");
        }
    }
}
