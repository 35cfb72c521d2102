//! One connection to a relay: a request, its reply, nothing else under way.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use wire::live::viewer::{
    AttachReply, AttachSession, Connect, CreateViewerSessionReply, DetachReply, Request, Seek,
    SessionEntry, SessionListHead, StreamEntry,
};
use wire::live::{Decoded, ProtocolMinor, Version, ViewedSessionId, ViewerSessionId};

use door::{Client, Role, Settings, Stream};

use crate::address::Address;
use crate::error::{Error, Refusal};
use crate::viewing::{Options, Viewing};

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long the socket waits at once, between two looks whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// How many times in a row it may wait in vain.
const TICKS: u32 = 300;

/// Bytes are read in pieces of at most this many: what a relay announces takes no memory before it comes.
const PIECE: usize = 256 << 10;

/// Asked while a reply is awaited: `true` gives the reply up.
pub type Stop = Box<dyn FnMut() -> bool + Send>;

/// A connection to a relay's port for viewers.
pub struct Relay<S = TcpStream> {
    socket: S,
    minor: ProtocolMinor,
    stop: Stop,
    /// Requests are written and replies read here.
    buffer: Vec<u8>,
    has_viewer_session: bool,
}

impl<S> fmt::Debug for Relay<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("minor", &self.minor).finish_non_exhaustive()
    }
}

impl Relay<TcpStream> {
    /// Connects to the relay of an address.
    ///
    /// # Errors
    /// [`Error::Connect`]; as [`Self::greet`].
    pub fn connect(address: &Address, stop: Stop) -> Result<Self, Error> {
        Self::greet(open(address)?, stop)
    }
}

impl Relay<Stream> {
    /// Connects to the relay of an address, over TLS with these settings if the address says so.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Tls`]; as [`Self::greet`].
    pub fn enter(address: &Address, settings: &Settings, stop: Stop) -> Result<Self, Error> {
        if !address.is_tls {
            return Self::greet(open(address)?.into(), stop);
        }
        let tls = |source| Error::Tls { address: relay(address), source };
        let client = Client::new(settings).map_err(tls)?;
        let stream = client.enter(open(address)?, &address.host, Role::Viewer).map_err(tls)?;
        set_patience(stream.socket()).map_err(Error::Io)?;
        Self::greet(stream, stop)
    }
}

/// The address without a session.
fn relay(address: &Address) -> String {
    Address { session: None, ..address.clone() }.to_string()
}

fn set_patience(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK * TICKS))
}

fn open(address: &Address) -> Result<TcpStream, Error> {
    connect(address).map_err(|source| Error::Connect { address: relay(address), source })
}

fn connect(address: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                set_patience(&socket)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl<S: Read + Write> Relay<S> {
    /// Exchanges versions over a connection that is there. `stop` is asked whenever `socket` has nothing to read for a
    /// while, which it says by [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    /// [`Error::Version`]; as all that talk to the relay: [`Error::Io`], [`Error::Closed`], [`Error::Silent`],
    /// [`Error::Stopped`], [`Error::Protocol`].
    pub fn greet(socket: S, stop: Stop) -> Result<Self, Error> {
        let (buffer, minor) = (Vec::new(), ProtocolMinor::OURS);
        let mut relay = Self { socket, minor, stop, buffer, has_viewer_session: false };
        let connect = Connect {
            viewer_session: ViewerSessionId::NONE,
            version: Version::OURS,
            kind: Connect::COMMAND,
        };
        let Connect { version, .. } = relay.ask(&Request::Connect(connect), Connect::decode)?;
        relay.minor = Version::OURS.negotiate(version).ok_or(Error::Version { version })?;
        Ok(relay)
    }

    /// What the relay has to show.
    ///
    /// # Errors
    /// As [`Self::greet`].
    pub fn sessions(&mut self) -> Result<Vec<SessionEntry>, Error> {
        let minor = self.minor;
        let SessionListHead { count } =
            self.ask(&Request::ListSessions, SessionListHead::decode)?;
        (0..count).map(|_| self.read(|bytes| SessionEntry::decode(bytes, minor))).collect()
    }

    /// Attaches to sessions and begins to view their streams together.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::TooManyStreams`]; as [`Self::greet`].
    pub fn view(self, sessions: &[SessionEntry], options: Options) -> Result<Viewing<S>, Error> {
        Viewing::begin(self, sessions, &options)
    }

    /// Attaches to a session; gives its streams.
    pub(crate) fn attach(
        &mut self,
        session: ViewedSessionId,
        seek: Seek,
    ) -> Result<Vec<StreamEntry>, Error> {
        if !self.has_viewer_session {
            match self.ask(&Request::CreateSession, CreateViewerSessionReply::decode)? {
                CreateViewerSessionReply::Made => self.has_viewer_session = true,
                CreateViewerSessionReply::Failed => {
                    return Err(Error::Refused(Refusal::ViewerSession));
                }
            }
        }
        let request = Request::AttachSession(AttachSession { session, seek });
        let refusal = match self.ask(&request, AttachReply::decode)? {
            AttachReply::Attached(count) => return self.streams(count),
            AttachReply::Taken => Refusal::Taken,
            AttachReply::Unknown => Refusal::Unknown,
            AttachReply::NotLive => Refusal::NotLive,
            AttachReply::BadSeek => Refusal::Seek,
            AttachReply::NoViewerSession => Refusal::ViewerSession,
        };
        Err(Error::Refused(refusal))
    }

    /// Leaves a session.
    pub(crate) fn detach(&mut self, session: ViewedSessionId) -> Result<(), Error> {
        self.ask(&Request::DetachSession(session), DetachReply::decode).map(|_| ())
    }

    /// Reads the streams that a reply announced.
    pub(crate) fn streams(&mut self, count: u32) -> Result<Vec<StreamEntry>, Error> {
        (0..count).map(|_| self.read(StreamEntry::decode)).collect()
    }

    /// Sends a request and reads its reply, or the part that announces how much follows.
    pub(crate) fn ask<T>(
        &mut self,
        request: &Request,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> Result<T, Error> {
        self.buffer.clear();
        request.encode(&mut self.buffer);
        self.socket.write_all(&self.buffer).map_err(Error::Io)?;
        self.socket.flush().map_err(Error::Io)?;
        self.read(decode)
    }

    fn read<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> Result<T, Error> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        loop {
            match decode(&bytes)? {
                Decoded::Complete { value, .. } => {
                    self.buffer = bytes;
                    return Ok(value);
                }
                Decoded::Incomplete { needed } => {
                    let more = needed.saturating_sub(bytes.len());
                    self.bytes(more, &mut bytes)?;
                }
            }
        }
    }

    /// Appends so many bytes to `out`.
    pub(crate) fn bytes(&mut self, mut len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        while len > 0 {
            let begin = out.len();
            let piece = len.min(PIECE);
            out.resize(begin + piece, 0);
            self.fill(out.get_mut(begin..).unwrap_or_default())?;
            len -= piece;
        }
        Ok(())
    }

    fn fill(&mut self, mut room: &mut [u8]) -> Result<(), Error> {
        let mut ticks = 0;
        while !room.is_empty() {
            let read = self.socket.read(room);
            if (self.stop)() {
                return Err(Error::Stopped);
            }
            match read {
                Ok(0) => return Err(Error::Closed),
                Ok(len) => {
                    room = room.get_mut(len..).unwrap_or_default();
                    ticks = 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    ticks += 1;
                    if ticks > TICKS {
                        return Err(Error::Silent { seconds: (TICK * TICKS).as_secs() });
                    }
                }
                // Without a goodbye over TLS: a relay that was killed.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
                    ) =>
                {
                    return Err(Error::Closed);
                }
                Err(error) => return Err(Error::Io(error)),
            }
        }
        Ok(())
    }
}
