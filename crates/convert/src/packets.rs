//! The packets of a stream file, one after the other.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ctf::packet::{EventReader, Outcome, PacketInfo, decode_packet_header};
use ctf::{ClockClass, TraceClass};
use tracedir::{MAX_PACKET_BYTES, PacketSource};

use crate::error::Cause;

/// Bytes that hold the header of nearly any packet.
const FIRST_LOOK: usize = 512;

/// Where a packet is, and what it says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    /// In bytes, as far as the file goes.
    pub(crate) len: u64,
    pub(crate) info: PacketInfo,
}

/// Reads packets with `pread`: a file that is cut meanwhile gives an error and no fault.
pub(crate) struct PacketFile<'c> {
    file: PacketSource,
    len: u64,
    class: &'c Arc<TraceClass>,
}

impl<'c> PacketFile<'c> {
    pub(crate) fn open(path: &Path, class: &'c Arc<TraceClass>) -> io::Result<Self> {
        let file = PacketSource::open(path)?;
        let len = file.content_len()?;
        Ok(Self { file, len, class })
    }

    /// The packet that begins at `offset`; `None` at the file's end.
    pub(crate) fn head(&self, offset: u64) -> io::Result<Option<Result<Head, Cause>>> {
        let available = self.len.saturating_sub(offset);
        if available == 0 {
            return Ok(None);
        }
        let mut wanted = FIRST_LOOK;
        loop {
            let bytes = self.read(offset, wanted)?;
            let head = match decode_packet_header(self.class, &bytes) {
                Ok(Outcome::Ready(info)) => {
                    let len = info.total_bytes().unwrap_or(available).min(available);
                    Ok(Head { offset, len, info })
                }
                Ok(Outcome::NeedMore { at_least_bytes }) if bytes.len() == wanted => {
                    wanted = at_least_bytes.max(wanted + 1);
                    continue;
                }
                Ok(Outcome::NeedMore { .. }) => Err(Cause::CutHeader),
                Err(error) => Err(error.into()),
            };
            return Ok(Some(head));
        }
    }

    /// The clock of the packet's stream class.
    pub(crate) fn clock(&self, head: &Head) -> Option<&'c ClockClass> {
        self.class.clock_of(self.class.stream_class(head.info.stream_class_id)?)
    }

    /// A reader of the packet's event records, made of `before` when there is one.
    pub(crate) fn events(
        &self,
        head: &Head,
        before: Option<EventReader<Vec<u8>>>,
    ) -> io::Result<Result<EventReader<Vec<u8>>, Cause>> {
        if head.len > MAX_PACKET_BYTES {
            let announced = head.info.total_bytes().unwrap_or(head.len);
            return Ok(Err(Cause::TooLong { announced, limit: MAX_PACKET_BYTES }));
        }
        let bytes = self.read(head.offset, usize::try_from(head.len).unwrap_or(usize::MAX))?;
        let opened = match before {
            Some(before) => before.reopen(bytes),
            None => EventReader::open(Arc::clone(self.class), bytes),
        };
        Ok(match opened {
            Ok(Outcome::Ready(reader)) => Ok(reader),
            Ok(Outcome::NeedMore { .. }) => Err(Cause::CutHeader),
            Err(error) => Err(error.into()),
        })
    }

    /// So many bytes, or fewer at the file's end.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let available = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(available)];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}
