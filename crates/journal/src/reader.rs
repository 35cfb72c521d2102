//! Reading at a place of one's own.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::frame::{HEADER_LEN, Header, PREAMBLE_LEN, Position};
use crate::state::{Journal, Reason};

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What is said of it.
    pub header: Header,
    /// What it holds.
    pub payload: Vec<u8>,
}

/// Reads entries in order. Each is given until it was acknowledged.
#[derive(Debug)]
pub struct Reader {
    journal: Arc<Journal>,
    index: usize,
    /// An offset in the segment that begins with this entry, at which the entry of that number begins.
    known: Option<(u64, u64, u64)>,
}

impl Reader {
    pub(crate) const fn new(journal: Arc<Journal>, index: usize) -> Self {
        Self { journal, index, known: None }
    }

    /// Where it is: before the next entry.
    #[must_use]
    pub fn position(&self) -> Position {
        self.journal.position(self.index)
    }

    /// Waits until there is an entry, for so long at most. Gives whether there is.
    pub fn wait(&self, patience: Duration) -> bool {
        self.journal.wait(self.position(), patience)
    }

    /// The next entries: about as many bytes of them, one at least; none when there are none. They are in the caller's hands until [`Self::acknowledge`]
    /// or [`Self::give_back`].
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io). Entries that are damaged are passed over and counted.
    pub fn next(&mut self, most_bytes: usize) -> Result<Vec<Entry>> {
        loop {
            let Some((segment, segment_end)) = self.journal.lend(self.index) else {
                return Ok(Vec::new());
            };
            let position = self.position();
            let offset = match self.known {
                Some((begin, offset, entry))
                    if begin == segment.begin.entry && entry == position.entry =>
                {
                    offset
                }
                _ => PREAMBLE_LEN as u64,
            };
            let (mut entries, mut bytes, mut behind) = (Vec::new(), 0, offset);
            segment.scan_while(offset, |header, payload| {
                if header.position.entry < position.entry {
                    behind += (HEADER_LEN + payload.len()) as u64;
                    return true;
                }
                if header.position.entry >= segment_end.entry || (bytes > 0 && bytes >= most_bytes)
                {
                    return false;
                }
                bytes += HEADER_LEN + payload.len();
                entries.push(Entry { header: *header, payload: payload.to_vec() });
                true
            })?;
            if let Some(last) = entries.last() {
                let entry = last.header.end().entry;
                self.known = Some((segment.begin.entry, behind + bytes as u64, entry));
                return Ok(entries);
            }
            // Nothing that can be read up to the segment's end, where there should be.
            let missed = segment_end.records.saturating_sub(position.records);
            tracing::warn!(path = %segment.path.display(), records = missed, "a segment is damaged: the rest of it is dropped");
            self.journal.pass_over(self.index, segment_end)?;
        }
    }

    /// What is before a position was taken.
    ///
    /// # Errors
    /// The position cannot be written down.
    pub fn acknowledge(&mut self, to: Position) -> Result<()> {
        self.journal.advance(self.index, to)
    }

    /// So many of the records that were acknowledged are none that their taker has, for a reason.
    ///
    /// # Errors
    /// That cannot be written down.
    pub fn reject(&mut self, reason: Reason, records: u64) -> Result<()> {
        self.journal.reject(self.index, reason, records)
    }

    /// What was given is not in the caller's hands any more, and is given again.
    pub fn give_back(&mut self) {
        self.journal.give_back(self.index);
    }
}
