//! What a data connection brings: packets, one after the other, never answered.
//!
//! Bytes go from a buffer of fixed size to the packet's place in its file in pieces as they arrive; the last piece
//! and the padding are one write. The announced length is only ever a number to count down. Who reads them from the
//! socket is not known here.

use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use wire::live::{DATA_HEADER_LEN, DataHeader, RelaySessionId, StreamHandle};

use crate::arrivals::Arrivals;
use crate::doors::Who;
use crate::error::{Error, FileContext, Result};
use crate::recording::packets::Source;
use crate::registry::{Registry, Shared};
use crate::room;
use crate::root::Root;
use crate::stream::Slot;

/// Bytes of the buffer; at least one header.
const BUFFER: usize = 256 * 1024;

/// Padding is written from here.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The bytes of a data connection and where they go.
#[derive(Debug)]
pub(crate) struct Intake {
    registry: Arc<Registry>,
    who: Who,
    buffer: Box<[u8]>,
    /// Bytes of the buffer that have arrived and are not used: `start..end`.
    start: usize,
    end: usize,
    /// Known from the first packet.
    session: Option<Session>,
    packet: Option<Packet>,
    /// A stream for which the disk had no room to write what its last packet allows.
    unsettled: Option<(Arc<Shared>, StreamHandle)>,
    room: room::Place,
}

/// Whose connection it is.
#[derive(Debug, Clone)]
struct Session {
    id: RelaySessionId,
    shared: Arc<Shared>,
    arrivals: Arc<Arrivals>,
}

/// A packet of which something is still to come.
#[derive(Debug)]
struct Packet {
    header: DataHeader,
    slot: Slot,
    shared: Arc<Shared>,
    written: u64,
}

impl Intake {
    pub(crate) fn new(registry: Arc<Registry>, who: Who) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self {
            registry,
            who,
            buffer,
            start: 0,
            end: 0,
            session: None,
            packet: None,
            unsettled: None,
            room: room::Place::default(),
        }
    }

    /// The relay session's arrivals, once it is known.
    pub(crate) fn arrivals(&self) -> Option<&Arc<Arrivals>> {
        self.session.as_ref().map(|session| &session.arrivals)
    }

    /// How many bytes are missing of the first header or packet that is not whole; 0 when it cannot be told.
    pub(crate) fn missing(&self) -> u64 {
        let arrived = self.buffer.get(self.start..self.end).unwrap_or(&[]);
        let wanted = match (&self.packet, arrived.first_chunk::<DATA_HEADER_LEN>()) {
            (Some(packet), _) => u64::from(packet.header.data_len) - packet.written,
            (None, Some(header)) => {
                DATA_HEADER_LEN as u64 + u64::from(DataHeader::decode(header).data_len)
            }
            (None, None) => DATA_HEADER_LEN as u64,
        };
        wanted.saturating_sub(arrived.len() as u64)
    }

    /// Where to read to; empty only while all of the buffer waits for [`Intake::take`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.buffer.get_mut(self.end..).unwrap_or(&mut [])
    }

    /// So many bytes were read there.
    pub(crate) const fn arrived(&mut self, read: usize) {
        self.end += read;
    }

    /// Takes what arrived. When the disk has no room for it nothing may be read until [`Intake::again`] has found some.
    pub(crate) fn take(&mut self) -> Result<()> {
        while match (self.unsettled.take(), self.packet.take()) {
            (Some((shared, stream)), _) => self.settle(shared, stream)?,
            (None, Some(packet)) => self.body(packet)?,
            (None, None) => self.header()?,
        } {}
        Ok(())
    }

    /// Whether there was no room on the disk for what was read.
    pub(crate) const fn waits_for_room(&self) -> bool {
        self.room.is_taken()
    }

    /// Looks whether there is room.
    pub(crate) fn again(&mut self) -> Result<()> {
        self.take()
    }

    /// Whether what was tried worked; what had no room is tried again.
    fn had_room<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(value) => {
                self.room.leave();
                Ok(Some(value))
            }
            Err(error) => self.room.failed(&self.registry.env, error).map(|()| None),
        }
    }

    /// Writes what the last packet of a stream allows.
    fn settle(&mut self, shared: Arc<Shared>, stream: StreamHandle) -> Result<bool> {
        let settled = self.registry.act(&shared, |recording, env| recording.settle(env, stream));
        shared.packet_done.notify_waiters();
        let settled = self.had_room(settled)?;
        if settled.is_none() {
            self.unsettled = Some((shared, stream));
        }
        Ok(settled.is_some())
    }

    /// The connection ended.
    pub(crate) fn finish(mut self) -> Result<()> {
        let cut = match self.packet.take() {
            Some(packet) => {
                let missing = u64::from(packet.header.data_len).saturating_sub(packet.written);
                self.cut(&packet).and(Err(Error::CutShort { missing }))
            }
            None => match self.end - self.start {
                0 => Ok(()),
                have if have < DATA_HEADER_LEN => {
                    Err(Error::CutShort { missing: (DATA_HEADER_LEN - have) as u64 })
                }
                have => Err(Error::NotTaken { bytes: have as u64 }),
            },
        };
        self.leave().and(cut)
    }

    /// It failed, or its connection did.
    pub(crate) fn give_up(mut self) -> Result<()> {
        let cut = self.packet.take().map_or(Ok(()), |packet| self.cut(&packet));
        self.leave().and(cut)
    }

    fn leave(&mut self) -> Result<()> {
        let Some(Session { id, shared, arrivals }) = self.session.take() else { return Ok(()) };
        arrivals.wait();
        let ended = self.registry.act(&shared, |recording, env| recording.data_ended(env, id));
        shared.packet_done.notify_waiters();
        ended
    }

    /// Begins the next packet if its header is there.
    fn header(&mut self) -> Result<bool> {
        let arrived = self.buffer.get(self.start..self.end).unwrap_or(&[]);
        let Some(header) = arrived.first_chunk::<DATA_HEADER_LEN>() else { return Ok(false) };
        let header = DataHeader::decode(header);
        self.start += DATA_HEADER_LEN;
        header.check_packet_len(self.registry.env.limits.packet_bytes)?;
        let bound = self.session.as_ref();
        let shared = match bound {
            Some(session) => Arc::clone(&session.shared),
            None => self.registry.find_stream(header.stream, &self.who.identity)?,
        };
        let from = bound.map_or(Source::Host(self.who.host), |session| Source::Session(session.id));
        let is_bound = bound.is_some();
        let begun = self.registry.act(&shared, |recording, env| {
            let (id, slot) = recording.begin_packet(env, from, &header)?;
            let arrivals = (!is_bound).then(|| recording.data_connected(id)).flatten();
            Ok::<_, Error>((id, slot, arrivals))
        });
        let Some((id, slot, arrivals)) = self.had_room(begun)? else {
            self.start -= DATA_HEADER_LEN;
            return Ok(false);
        };
        if !is_bound {
            let arrivals = arrivals.unwrap_or_default();
            arrivals.came();
            self.session = Some(Session { id, shared: Arc::clone(&shared), arrivals });
        }
        self.packet = Some(Packet { header, slot, shared, written: 0 });
        Ok(true)
    }

    /// Writes what is there of a packet to its slot; says whether it is whole.
    fn body(&mut self, mut packet: Packet) -> Result<bool> {
        let Packet { header, slot, .. } = &packet;
        let offset = slot.place.offset + packet.written;
        let left = u64::from(header.data_len) - packet.written;
        let have = usize::try_from(left).unwrap_or(usize::MAX).min(self.end - self.start);
        let piece = self.buffer.get(self.start..self.start + have).unwrap_or(&[]);
        let is_whole = piece.len() as u64 == left;
        let root = &self.registry.env.root;
        let written = slot.pen.write(|| {
            if is_whole {
                write_last(root, slot, piece, offset, u64::from(header.padding_len))
            } else {
                root.write_at(&slot.file, piece, offset)
            }
        });
        // The stream ended without it.
        let Some(written) = written else {
            return Err(Error::UnknownStream { handle: header.stream });
        };
        match self.had_room(written.on("write", "packet")) {
            Ok(Some(())) => self.start += have,
            Ok(None) => {
                self.packet = Some(packet);
                return Ok(false);
            }
            Err(error) => return self.cut(&packet).and(Err(error)),
        }
        if !is_whole {
            packet.written += have as u64;
            self.packet = Some(packet);
            return Ok(false);
        }
        let done = self.registry.act(&packet.shared, |recording, env| {
            recording.end_packet(env, header, slot, Instant::now())
        });
        packet.shared.packet_done.notify_waiters();
        let settled = self.had_room(done)?;
        if settled.is_none() {
            self.unsettled = Some((packet.shared, packet.header.stream));
        }
        Ok(settled.is_some())
    }

    /// Cuts off what was written of a packet that will not be whole.
    fn cut(&self, Packet { header, slot, shared, .. }: &Packet) -> Result<()> {
        self.registry.act(shared, |recording, env| recording.cut_packet(env, header.stream, slot))
    }
}

/// Writes the last piece and its padding at once.
fn write_last(root: &Root, slot: &Slot, piece: &[u8], offset: u64, padding: u64) -> io::Result<()> {
    if padding == 0 {
        return root.write_at(&slot.file, piece, offset);
    }
    root.about_to_change()?;
    let end = offset + piece.len() as u64 + padding;
    let zeros = usize::try_from(padding).ok().and_then(|padding| ZEROS.get(..padding));
    let Some(zeros) = zeros else {
        slot.file.write_all_at(piece, offset)?;
        return slot.file.set_len(end);
    };
    let written =
        rustix::io::pwritev(&slot.file, &[IoSlice::new(piece), IoSlice::new(zeros)], offset)?;
    // A short write means a full disk or a signal; the plain calls find out which.
    match piece.get(written..) {
        Some(rest) if !rest.is_empty() => {
            slot.file.write_all_at(rest, offset + written as u64)?;
            slot.file.set_len(end)
        }
        _ if (written as u64) < end - offset => slot.file.set_len(end),
        _ => Ok(()),
    }
}
