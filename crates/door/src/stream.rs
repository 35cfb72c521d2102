//! A connection to a relay, encrypted or not.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

/// How long the last word of an encrypted connection may take to be sent.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A connection to a relay.
#[derive(Debug)]
pub struct Stream(Kind);

enum Kind {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

/// Says goodbye when it is dropped: without that the relay cannot tell an end from a cut.
struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self(Kind::Plain(socket))
    }
}

impl Stream {
    pub(crate) fn encrypted(stream: StreamOwned<ClientConnection, TcpStream>) -> Self {
        Self(Kind::Tls(Box::new(Tls(stream))))
    }

    /// The socket below, for its options.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match &self.0 {
            Kind::Plain(socket) => socket,
            Kind::Tls(tls) => &tls.0.sock,
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(socket) => socket.fmt(f),
            Self::Tls(tls) => f.debug_tuple("Tls").field(&tls.0.sock).finish(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.read(room),
            Kind::Tls(tls) => tls.0.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.write(bytes),
            Kind::Tls(tls) => tls.0.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.write_vectored(slices),
            Kind::Tls(tls) => tls.0.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.flush(),
            Kind::Tls(tls) => tls.0.flush(),
        }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let StreamOwned { conn, sock } = &mut self.0;
        conn.send_close_notify();
        // Whoever is gone needs no goodbye.
        let said = sock.set_write_timeout(Some(LAST_WORD)).and_then(|()| conn.write_tls(sock));
        drop(said);
    }
}
