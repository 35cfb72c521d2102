//! A data connection: packets, one after the other, never answered.
//!
//! Bytes go from a buffer of fixed size to the packet's place in its file in pieces as they arrive; the last piece
//! and the padding are one write. The announced length is only ever a number to count down.

use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use wire::live::{DATA_HEADER_LEN, DataHeader, RelaySessionId};

use crate::doors::{Identity, Socket};
use crate::error::{Error, FileContext, Result};
use crate::recording::Arrivals;
use crate::registry::{Registry, Shared};
use crate::stream::Slot;

/// Bytes of the buffer; at least one header.
const BUFFER: usize = 256 * 1024;

/// Padding is written from here.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A data connection.
pub(crate) struct Data<S> {
    registry: Arc<Registry>,
    stream: S,
    identity: Identity,
    stop: watch::Receiver<bool>,
    buffer: Box<[u8]>,
    /// Bytes of the buffer that have arrived and are not used: `start..end`.
    start: usize,
    end: usize,
    /// Known from the first packet.
    session: Option<(RelaySessionId, Arc<Shared>)>,
    arrivals: Arc<Arrivals>,
}

impl<S: Socket> Data<S> {
    pub(crate) fn new(
        registry: Arc<Registry>,
        stream: S,
        identity: Identity,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self {
            registry,
            stream,
            identity,
            stop,
            buffer,
            start: 0,
            end: 0,
            session: None,
            arrivals: Arc::default(),
        }
    }

    /// Takes packets until the connection's end, or until `stop` says so.
    pub(crate) async fn serve(mut self) -> Result<()> {
        let result = self.take_all().await;
        if let Some((id, shared)) = self.session.take() {
            self.registry.act(&shared, |recording, env| recording.data_ended(env, id))?;
        }
        self.stream.say_goodbye().await;
        result
    }

    async fn take_all(&mut self) -> Result<()> {
        while let Some(header) = self.header().await? {
            header.check_packet_len(self.registry.env.limits.packet_bytes)?;
            let shared = match &self.session {
                Some((_, shared)) => Arc::clone(shared),
                None => self.registry.find_stream(header.stream, &self.identity)?,
            };
            self.packet(&shared, &header).await?;
        }
        Ok(())
    }

    async fn packet(&mut self, shared: &Arc<Shared>, header: &DataHeader) -> Result<()> {
        let bound = self.session.as_ref().map(|(id, _)| *id);
        let (id, slot, arrivals) = self.registry.act(shared, |recording, env| {
            let (id, slot) = recording.begin_packet(env, bound, header)?;
            let arrivals = bound.is_none().then(|| recording.data_connected(id)).flatten();
            Ok::<_, Error>((id, slot, arrivals))
        })?;
        if bound.is_none() {
            self.session = Some((id, Arc::clone(shared)));
            self.arrivals = arrivals.unwrap_or_default();
            self.arrivals.came();
        }
        match self.body(header, &slot).await {
            Ok(()) => {
                let done = self.registry.act(shared, |recording, env| {
                    recording.end_packet(env, header, slot.place, Instant::now())
                });
                shared.packet_done.notify_waiters();
                done
            }
            Err(error) => {
                let cut = slot.file.set_len(slot.place.offset).on("truncate", "packet cut short");
                self.registry
                    .act(shared, |recording, env| recording.cut_packet(env, header.stream))?;
                cut.and(Err(error))
            }
        }
    }

    /// Writes the packet's bytes and padding to its slot.
    async fn body(&mut self, header: &DataHeader, slot: &Slot) -> Result<()> {
        let mut offset = slot.place.offset;
        let mut left = u64::from(header.data_len);
        let padding = u64::from(header.padding_len);
        loop {
            let have = usize::try_from(left).unwrap_or(usize::MAX).min(self.end - self.start);
            let piece = self.buffer.get(self.start..self.start + have).unwrap_or(&[]);
            left -= piece.len() as u64;
            if left == 0 {
                write_last(slot, piece, offset, padding).on("write", "packet")?;
                self.start += have;
                return Ok(());
            }
            slot.file.write_all_at(piece, offset).on("write", "packet")?;
            offset += piece.len() as u64;
            self.start += have;
            if self.fill().await? == 0 {
                return Err(Error::CutShort { missing: left });
            }
        }
    }

    /// The next header; `None` at the end of the connection.
    async fn header(&mut self) -> Result<Option<DataHeader>> {
        loop {
            let arrived = self.buffer.get(self.start..self.end).unwrap_or(&[]);
            if let Some(header) = arrived.first_chunk::<DATA_HEADER_LEN>() {
                self.start += DATA_HEADER_LEN;
                return Ok(Some(DataHeader::decode(header)));
            }
            let have = arrived.len();
            if self.fill().await? == 0 {
                return match have {
                    0 => Ok(None),
                    _ => Err(Error::CutShort { missing: (DATA_HEADER_LEN - have) as u64 }),
                };
            }
        }
    }

    /// Reads more behind what is there; 0 at the end of the connection or when the relay stops.
    async fn fill(&mut self) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.arrivals.wait();
        let room = self.buffer.get_mut(self.end..).unwrap_or(&mut []);
        let read = tokio::select! {
            biased;
            read = self.stream.read(room) => read?,
            _ = self.stop.wait_for(|stop| *stop) => 0,
        };
        self.arrivals.came();
        self.end += read;
        Ok(read)
    }
}

/// Writes the last piece and its padding at once.
fn write_last(slot: &Slot, piece: &[u8], offset: u64, padding: u64) -> io::Result<()> {
    if padding == 0 {
        return slot.file.write_all_at(piece, offset);
    }
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
