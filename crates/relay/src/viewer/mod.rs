//! The viewer port: babeltrace2 and others list, attach to and read recording sessions while they are written.
//!
//! ```text
//! requests ─▶ Connection ─▶ session::Viewer ─▶ crate::feed ◀─ what is recorded
//!                └── replies, and bytes straight from the trace's files
//! ```
//! Any number of viewers read the same session, each at its own place. A viewer that does not take its replies waits for
//! itself: nobody else does, least of all the producer.

mod disk;
mod reading;
mod session;

use std::io::ErrorKind::UnexpectedEof;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use wire::live::viewer::{AttachReply, Command, Header, Request};

use self::session::{Tail, Viewer};
use crate::doors::{Socket, Who};
use crate::error::{Error, FileContext, Result};
use crate::registry::Registry;

/// Bytes that are read from a file and sent at a time.
const PIECE: usize = 64 * 1024;
/// Capacity of the buffers of a viewer that waits.
const IDLE_BUFFER: usize = 1024;
/// How often a packet that moves while it is sent is looked for.
const TRIES: usize = 4;
/// How long a connection may take to say what it is.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// A viewer's connection.
pub(crate) struct Connection<S> {
    viewer: Viewer,
    stream: S,
    /// What has arrived and was not answered.
    arrived: Vec<u8>,
    reply: Vec<u8>,
}

impl<S: Socket> Connection<S> {
    pub(crate) fn new(registry: Arc<Registry>, who: Who, stream: S) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            viewer: Viewer::new(registry, who, number),
            stream,
            arrived: Vec::new(),
            reply: Vec::new(),
        }
    }

    /// Serves the connection until its end, or until `stop` says so.
    pub(crate) async fn serve(mut self, mut stop: watch::Receiver<bool>) -> Result<()> {
        self.stream.tcp()?.set_nodelay(true)?;
        let result = tokio::select! {
            result = self.answer_all() => result,
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        };
        self.stream.say_goodbye().await;
        result
    }

    async fn answer_all(&mut self) -> Result<()> {
        loop {
            while let Some((command, payload)) = self.take_request()? {
                self.answer(command, &payload).await?;
            }
            let read = self.read().await?;
            if read == 0 {
                return match self.arrived.len() {
                    0 => Ok(()),
                    have => Err(Error::CutShort { missing: self.needed(have) as u64 }),
                };
            }
        }
    }

    /// Waits for more. Who follows a session may take any time; others must not keep a place for nothing.
    async fn read(&mut self) -> Result<usize> {
        let (limit, silent) = match &self.viewer {
            viewer if viewer.is_attached() => {
                return Ok(self.stream.read_buf(&mut self.arrived).await?);
            }
            viewer if viewer.is_connected() => (viewer.idle_limit(), Error::ViewerIdle),
            _ => (GREETING_LIMIT, Error::ViewerNotConnected),
        };
        let read = self.stream.read_buf(&mut self.arrived);
        Ok(tokio::time::timeout(limit, read).await.map_err(|_elapsed| silent)??)
    }

    /// Takes the request at the front of what has arrived, if it is whole.
    fn take_request(&mut self) -> Result<Option<(Command, Vec<u8>)>> {
        let Some((header, rest)) = self.arrived.split_first_chunk::<{ Header::LEN }>() else {
            self.arrived.reserve(IDLE_BUFFER);
            return Ok(None);
        };
        let Header { command, payload_len } = Header::decode(header)?;
        let Some(payload) = rest.get(..payload_len as usize) else {
            self.arrived.reserve(payload_len as usize);
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.arrived.drain(..Header::LEN + payload.len());
        self.arrived.shrink_to(IDLE_BUFFER);
        Ok(Some((command, payload)))
    }

    /// How many bytes a request that was cut after `have` bytes lacks at least.
    fn needed(&self, have: usize) -> usize {
        let header = self.arrived.first_chunk().and_then(|header| Header::decode(header).ok());
        let whole = Header::LEN + header.map_or(0, |header| header.payload_len as usize);
        whole.saturating_sub(have)
    }

    async fn answer(&mut self, command: Command, payload: &[u8]) -> Result<()> {
        let answer = match Request::decode(command, payload) {
            Ok(request) => self.viewer.answer(&request, &mut self.reply).await,
            Err(wire::live::Error::BadValue { .. }) if command == Command::AttachSession => {
                AttachReply::BadSeek.encode(&mut self.reply);
                Ok(Tail::Nothing)
            }
            Err(error) => Err(error.into()),
        };
        // What is answered before the connection ends is sent.
        let tail = match answer {
            Ok(tail) => tail,
            Err(error) => {
                self.send().await?;
                return Err(error);
            }
        };
        match tail {
            Tail::Nothing => {}
            Tail::Streams(entries) => {
                for entry in entries {
                    if self.reply.len() >= PIECE {
                        self.send().await?;
                    }
                    entry.encode(&mut self.reply);
                }
            }
            Tail::Bytes { mut file, mut offset, len, mut packet } => {
                let mut end = offset + len;
                let mut tries = 0;
                while offset < end {
                    if self.reply.len() >= PIECE {
                        self.send().await?;
                    }
                    let room = (PIECE - self.reply.len()) as u64;
                    let len = usize::try_from((end - offset).min(room)).unwrap_or(PIECE);
                    let filled = self.reply.len();
                    let read = disk::append(&file, offset, len, &mut self.reply).await;
                    match (&read, &mut packet) {
                        // A rotation took the packet to another chunk.
                        (Err(error), Some((stream, begin)))
                            if error.kind() == UnexpectedEof && tries < TRIES =>
                        {
                            tries += 1;
                            self.reply.truncate(filled);
                            let Some((moved, to)) = self.viewer.packet_again(*stream).await else {
                                return read.on("read", "trace file");
                            };
                            (offset, end) = (offset - *begin + to, end - *begin + to);
                            (file, *begin) = (moved, to);
                        }
                        _ => {
                            read.on("read", "trace file")?;
                            offset += len as u64;
                        }
                    }
                }
            }
        }
        self.send().await?;
        self.reply.shrink_to(IDLE_BUFFER);
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.reply).await?;
        self.stream.flush().await?;
        self.reply.clear();
        Ok(())
    }
}
