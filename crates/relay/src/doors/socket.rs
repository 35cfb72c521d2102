//! What a connection is served over: a TCP socket, or one with TLS above it.
//!
//! Connections are generic over it, so the plain ports run the code they would run if there were no other kind: no
//! virtual call, no pump between two sockets, no byte copied once more.

use std::io;
use std::time::Duration;

use rustix::net::{RecvFlags, recv, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tls::Encrypted;

/// A peer that sends nothing for so long is asked whether it is still there, this often, so many times.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_secs(10);
const ASK_TIMES: u32 = 3;
/// How long a producer may leave an answer without acknowledgement.
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Has the system end the connection when the machine of its peer is gone.
pub(crate) fn end_when_gone(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(socket, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, ASK_TIMES)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

/// The same while bytes are on their way to it. Not for viewers, who may stop to read for as long as they like.
pub(crate) fn end_when_mute(socket: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS)?)
}

/// How long an encrypted connection's goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection's two directions. After a write it is to be flushed.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket, for its options.
    fn tcp(&self) -> io::Result<&TcpStream>;

    /// Whether it can be lent.
    const CAN_LEND: bool;

    /// Reads what lies in the bare socket, without waiting for readiness to be told.
    fn read_now(&self, room: &mut [u8]) -> io::Result<usize>;

    /// Gives the bare socket to somebody else who reads it, where there is nothing above it.
    fn lend(self) -> io::Result<Lent<Self>>
    where
        Self: Sized;

    /// A socket that was lent comes back.
    fn returned(socket: std::net::TcpStream) -> io::Result<Self>
    where
        Self: Sized;

    /// Tells the peer that nothing more will come, where that is not said by closing.
    fn say_goodbye(&mut self) -> impl Future<Output = ()> + Send;
}

/// What became of a socket that was to be lent.
pub(crate) enum Lent<S> {
    /// It does not block.
    Socket(std::net::TcpStream),
    /// It cannot be.
    Not(S),
}

impl Socket for TcpStream {
    const CAN_LEND: bool = true;

    fn tcp(&self) -> io::Result<&TcpStream> {
        Ok(self)
    }

    fn read_now(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, room, RecvFlags::DONTWAIT)?.1)
    }

    fn lend(self) -> io::Result<Lent<Self>> {
        self.into_std().map(Lent::Socket)
    }

    fn returned(socket: std::net::TcpStream) -> io::Result<Self> {
        Self::from_std(socket)
    }

    async fn say_goodbye(&mut self) {}
}

impl Socket for Encrypted {
    fn tcp(&self) -> io::Result<&TcpStream> {
        self.socket()
    }

    const CAN_LEND: bool = false;

    fn read_now(&self, _room: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn lend(self) -> io::Result<Lent<Self>> {
        Ok(Lent::Not(self))
    }

    fn returned(_socket: std::net::TcpStream) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn say_goodbye(&mut self) {
        // A peer that does not listen needs none.
        drop(tokio::time::timeout(GOODBYE, self.shutdown()).await);
    }
}
