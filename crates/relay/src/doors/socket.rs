//! What a connection is served over: a TCP socket, or one with TLS above it.
//!
//! Connections are generic over it, so the plain ports run the code they would run if there were no other kind: no
//! virtual call, no pump between two sockets, no byte copied once more.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tls::Encrypted;

/// How long an encrypted connection's goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection's two directions. After a write it is to be flushed.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket, for its options.
    fn tcp(&self) -> io::Result<&TcpStream>;

    /// Tells the peer that nothing more will come, where that is not said by closing.
    fn say_goodbye(&mut self) -> impl Future<Output = ()> + Send;
}

impl Socket for TcpStream {
    fn tcp(&self) -> io::Result<&TcpStream> {
        Ok(self)
    }

    async fn say_goodbye(&mut self) {}
}

impl Socket for Encrypted {
    fn tcp(&self) -> io::Result<&TcpStream> {
        self.socket()
    }

    async fn say_goodbye(&mut self) {
        // A peer that does not listen needs none.
        drop(tokio::time::timeout(GOODBYE, self.shutdown()).await);
    }
}
