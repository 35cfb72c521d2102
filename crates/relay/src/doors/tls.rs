//! The encrypted port: producers and viewers that show who they are.
//!
//! ```text
//! accept ─▶ Peers ─▶ Lobby: TLS handshake ─▶ preamble with the token ─▶ first header ─▶ served as on the plain ports
//! ```
//! The protocol's name in the handshake (ALPN) says what a connection is for. Who comes shows a certificate of
//! the clients' CA, a token, or both, whatever the relay was set up to ask for; a data connection only reaches sessions of
//! the identity that it shows itself.
//!
//! Handshakes run on the runtime of the relay's owner, away from the threads that serve connections: what anybody
//! can have the relay compute delays no producer. A connection that was let in moves to such a thread.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use door::{Answer, Grant, Preamble, Refusal, Role, Tokens};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use wire::live::Decoded;

use super::{First, Gone, Identity, Known, LONGEST_HEADER, Place, Who};
use crate::error::{Error, Result};

/// How long a peer that was refused may take to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Bytes it may have sent meanwhile.
const LAST_BYTES: u64 = 64 * 1024;

/// Settings of the encrypted port. A client CA, tokens, or both must be given, and what is given is asked of everybody.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Its address; port 0 takes a free one.
    pub address: SocketAddr,
    /// PEM file with the relay's certificate and those that lead to its CA.
    pub certificate: PathBuf,
    /// Private PEM file with the certificate's key.
    pub key: PathBuf,
    /// PEM file with the CA certificates that certificates of clients must come from.
    pub client_ca: Option<PathBuf>,
    /// Private file with tokens and what their owners may do, see [`door::Tokens`].
    pub tokens: Option<PathBuf>,
}

/// What is asked of those who come, as the files say.
#[derive(Debug)]
pub(crate) struct Gate {
    settings: Tls,
    keys: RwLock<Arc<Keys>>,
}

/// The files' content.
struct Keys {
    config: Arc<ServerConfig>,
    tokens: Option<Tokens>,
}

/// Why a connection is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Gone(#[from] Gone),
    #[error("TLS: {0}")]
    Handshake(io::Error),
    #[error("it does not say by ALPN what it is for")]
    NoRole,
    #[error("its preamble is too long")]
    Preamble,
    #[error("it ended before its preamble")]
    NoPreamble,
    #[error("its token is missing or not known")]
    Token,
    #[error("{0} has no token for this role")]
    Role(Identity),
}

/// A connection that was let in and has spoken.
pub(crate) struct Visitor {
    pub(crate) socket: Encrypted,
    pub(crate) role: Role,
    pub(crate) who: Who,
    /// To be kept while it is served.
    pub(crate) known: Option<Known>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("tokens", &self.tokens.as_ref().map(Tokens::len)).finish()
    }
}

impl Gate {
    /// Reads the files.
    pub(crate) fn open(settings: Tls) -> Result<Self> {
        if settings.client_ca.is_none() && settings.tokens.is_none() {
            return Err(Error::Unguarded { address: settings.address });
        }
        let keys = RwLock::new(Arc::new(Keys::read(&settings)?));
        Ok(Self { settings, keys })
    }

    /// Reads the files anew, for connections from now on. When one cannot be used, all stays as it is.
    pub(crate) fn reload(&self) -> Result<()> {
        let keys = Arc::new(Keys::read(&self.settings)?);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets a connection in, once it has shown who it is and has spoken.
    pub(crate) async fn admit(
        &self,
        mut place: Place,
        stream: TcpStream,
    ) -> std::result::Result<Visitor, Refused> {
        let keys = self.keys();
        let (mut stream, role, who) = place.stay(keys.identify(stream)).await??;
        let first = First::of(role);
        place.turned_out(first, who.identity.clone());
        let spoken = place.stay(first_words(&mut stream, first.len())).await?;
        let head = spoken.map_err(|_ended| Gone::Ended)?;
        let known = place.spoke(&head);
        let socket = Encrypted { stream, head, read: 0, end: first.len() };
        Ok(Visitor { socket, role, who, known })
    }
}

impl Keys {
    fn read(settings: &Tls) -> Result<Self> {
        let Tls { certificate, key, client_ca, tokens, .. } = settings;
        let config = door::server_config(certificate, key, client_ca.as_deref())?;
        let tokens = tokens.as_deref().map(Tokens::read).transpose()?;
        Ok(Self { config, tokens })
    }

    /// Has a connection show who it is.
    async fn identify(
        &self,
        stream: TcpStream,
    ) -> std::result::Result<(TlsStream<Movable>, Role, Who), Refused> {
        let socket = Movable(Some(stream));
        let accepting = TlsAcceptor::from(Arc::clone(&self.config)).accept(socket).into_fallible();
        let mut stream = match accepting.await {
            Ok(stream) => stream,
            Err((error, mut socket)) => {
                linger(&mut socket).await;
                return Err(Refused::Handshake(error));
            }
        };
        let (_, connection) = stream.get_ref();
        let role = connection.alpn_protocol().and_then(Role::of_alpn);
        let certificate = connection.peer_certificates().and_then(<[_]>::first).map(subject);
        let Some(role) = role else {
            part(&mut stream, None).await;
            return Err(Refused::NoRole);
        };
        let token = match preamble(&mut stream).await {
            Ok(token) => token,
            Err(refused) => {
                part(&mut stream, None).await;
                return Err(refused);
            }
        };
        match self.judge(role, token.as_deref(), certificate) {
            Ok(who) => {
                say(&mut stream, Answer::Welcome).await.map_err(|_gone| Gone::Ended)?;
                Ok((stream, role, who))
            }
            Err((refusal, refused)) => {
                part(&mut stream, Some(refusal)).await;
                Err(refused)
            }
        }
    }

    /// Who shows these, if it may come for this.
    fn judge(
        &self,
        role: Role,
        token: Option<&[u8]>,
        certificate: Option<String>,
    ) -> std::result::Result<Who, (Refusal, Refused)> {
        let grant = match &self.tokens {
            Some(tokens) => {
                let grant = token.and_then(|token| tokens.find(token));
                Some(grant.ok_or((Refusal::Token, Refused::Token))?)
            }
            None => None,
        };
        let shown = [grant.map(|grant| grant.name.clone()), certificate];
        let identity = Identity::new(&shown.into_iter().flatten().collect::<Vec<_>>().join("/"));
        if grant.is_some_and(|grant| !grant.allows(role)) {
            return Err((Refusal::Role, Refused::Role(identity)));
        }
        let hosts = grant.and_then(|Grant { hosts, .. }| hosts.clone()).map(Arc::new);
        Ok(Who { identity, hosts, host: None })
    }
}

/// What tells the owner of a certificate from others, also with its next certificate: its subject, and the name of the CA
/// that vouches for it.
fn subject(certificate: &CertificateDer<'_>) -> String {
    let read = webpki::EndEntityCert::try_from(certificate).ok();
    let subject = read.as_ref().map(|certificate| certificate.subject());
    // Without a subject, the certificate itself.
    let told = subject.filter(|subject| !subject.is_empty()).unwrap_or(certificate);
    let issuer = read.as_ref().map_or(&[][..], |certificate| certificate.issuer());
    let digest = Sha256::new()
        .chain_update((issuer.len() as u64).to_be_bytes())
        .chain_update(issuer)
        .chain_update(told)
        .finalize();
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("subject-{hex}")
}

/// The token of a preamble, if it has one.
async fn preamble(
    stream: &mut TlsStream<Movable>,
) -> std::result::Result<Option<Vec<u8>>, Refused> {
    let mut bytes = Vec::new();
    loop {
        match Preamble::decode(&bytes).map_err(|_too_long| Refused::Preamble)? {
            Decoded::Complete { value: Preamble { token }, .. } => {
                return Ok(token.map(<[u8]>::to_vec));
            }
            Decoded::Incomplete { needed } => {
                let have = bytes.len();
                bytes.resize(needed, 0);
                let room = bytes.get_mut(have..).unwrap_or_default();
                stream.read_exact(room).await.map_err(|_ended| Refused::NoPreamble)?;
            }
        }
    }
}

/// The first bytes of a connection.
async fn first_words(
    stream: &mut TlsStream<Movable>,
    needed: usize,
) -> io::Result<[u8; LONGEST_HEADER]> {
    let mut head = [0; LONGEST_HEADER];
    stream.read_exact(head.get_mut(..needed).unwrap_or_default()).await?;
    Ok(head)
}

async fn say(stream: &mut TlsStream<Movable>, answer: Answer) -> io::Result<()> {
    stream.write_u8(answer.encode()).await?;
    stream.flush().await
}

/// Ends a connection that is not served, with the reason if the peer is to know it.
async fn part(stream: &mut TlsStream<Movable>, why: Option<Refusal>) {
    let said = async {
        if let Some(refusal) = why {
            say(stream, Answer::Refused(refusal)).await?;
        }
        stream.shutdown().await
    };
    // It may be gone.
    drop(tokio::time::timeout(LAST_WORDS, said).await);
    linger(stream.get_mut().0).await;
}

/// Lets a peer read the last words: closing while bytes of it are unread would take them back.
async fn linger(socket: &mut Movable) {
    let reading = async {
        socket.shutdown().await?;
        tokio::io::copy(&mut socket.take(LAST_BYTES), &mut tokio::io::sink()).await
    };
    drop(tokio::time::timeout(LAST_WORDS, reading).await);
}

/// A TCP socket that can change the runtime which watches it.
#[derive(Debug)]
struct Movable(Option<TcpStream>);

impl Movable {
    fn socket(&self) -> io::Result<&TcpStream> {
        self.0.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn pinned(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Movable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pinned()?.poll_read(cx, room)
    }
}

impl AsyncWrite for Movable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pinned()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned()?.poll_shutdown(cx)
    }
}

/// A connection that was let in; what was read to see that it speaks is read again first.
#[derive(Debug)]
pub(crate) struct Encrypted {
    stream: TlsStream<Movable>,
    head: [u8; LONGEST_HEADER],
    /// How much of the head was read again.
    read: usize,
    end: usize,
}

impl Encrypted {
    /// Has the runtime that this is called on watch the socket.
    pub(crate) fn move_here(mut self) -> io::Result<Self> {
        let socket = &mut self.stream.get_mut().0.0;
        let moved = socket.take().map(|socket| TcpStream::from_std(socket.into_std()?));
        *socket = moved.transpose()?;
        Ok(self)
    }

    pub(super) fn socket(&self) -> io::Result<&TcpStream> {
        self.stream.get_ref().0.socket()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, head, read, end } = &mut *self;
        if read < end {
            let rest = head.get(*read..*end).unwrap_or_default();
            let piece = rest.get(..room.remaining().min(rest.len())).unwrap_or_default();
            room.put_slice(piece);
            *read += piece.len();
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(stream).poll_read(cx, room))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
