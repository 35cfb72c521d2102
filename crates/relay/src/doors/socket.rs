//! What a connection is served over: a TCP socket, or one with TLS above it.
//!
//! Connections are generic over it, so the plain ports run the code they would run if there were no other kind: no
//! virtual call, no pump between two sockets, no byte copied once more.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Whether the peer has said that it sends nothing more, or is gone; also behind bytes that have not been read.
pub(crate) fn has_ended(socket: &TcpStream) -> io::Result<bool> {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(socket, ends)];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(polled.iter().any(|it| it.revents().intersects(ends)))
}

/// How long an encrypted connection's goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection's two directions. After a write it is to be flushed.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket, for its options.
    fn tcp(&self) -> io::Result<&TcpStream>;

    /// Reads what lies in the bare socket, without waiting for readiness to be told.
    fn read_now(&self, room: &mut [u8]) -> io::Result<usize>;

    /// Tells the peer that nothing more will come, where that is not said by closing.
    fn say_goodbye(&mut self) -> impl Future<Output = ()> + Send;
}

impl Socket for TcpStream {
    fn tcp(&self) -> io::Result<&TcpStream> {
        Ok(self)
    }

    fn read_now(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, room, RecvFlags::DONTWAIT)?.1)
    }

    async fn say_goodbye(&mut self) {}
}

impl Socket for Encrypted {
    fn tcp(&self) -> io::Result<&TcpStream> {
        self.socket()
    }

    fn read_now(&self, _room: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    async fn say_goodbye(&mut self) {
        // A peer that does not listen needs none.
        drop(tokio::time::timeout(GOODBYE, self.shutdown()).await);
    }
}
