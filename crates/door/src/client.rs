//! Coming to a relay.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned, version};
use wire::door::{Answer, Preamble, Role, Token};

use crate::error::{Error, Result};
use crate::files;
use crate::server::certified;
use crate::stream::Stream;

/// How long the relay may take until it has let us in.
const ENTRY_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 10_000 });

/// What a client shows and trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// CA certificates that the relay's certificate must come from; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Our token.
    pub token: Option<TokenSource>,
}

/// Where a token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A private file with nothing else in it.
    File(PathBuf),
    /// It is at hand.
    Given(Token),
}

impl TokenSource {
    fn token(&self) -> Result<Token> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => Token::new(files::secret(path)?.trim())
                .map_err(|source| Error::Token { path: path.clone(), source }),
        }
    }
}

/// A client whose files were read.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    token: Option<Token>,
}

impl Client {
    /// Reads the files.
    ///
    /// # Errors
    /// Any that tells of a file; [`Error::NoRoots`].
    pub fn new(settings: &Settings) -> Result<Self> {
        let certificate = settings.certificate.as_ref();
        let certificate =
            certificate.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let config = client_config(settings.ca.as_deref(), certificate)?;
        let token = settings.token.as_ref().map(TokenSource::token).transpose()?;
        Ok(Self { config, token })
    }

    /// Has a connection encrypted and let in. `host` is the name that the relay's certificate must be for. The socket's
    /// timeouts are set; the caller may set others afterwards.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::Handshake`], [`Error::Closed`], [`Error::Refused`].
    pub fn enter(&self, socket: TcpStream, host: &str, role: Role) -> Result<Stream> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_no_name| Error::Host { host: host.to_owned() })?;
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![role.alpn().to_vec()];
        let mut connection =
            ClientConnection::new(Arc::new(config), name).map_err(Error::Settings)?;
        let mut hurried = Hurried { socket: &socket, until: Instant::now() + ENTRY_LIMIT };
        let mut stream = rustls::Stream::new(&mut connection, &mut hurried);
        match self.knock(&mut stream).map_err(entry_failed)? {
            Answer::Welcome => Ok(Stream::encrypted(StreamOwned::new(connection, socket))),
            Answer::Refused(refusal) => Err(Error::Refused(refusal)),
        }
    }

    fn knock(&self, stream: &mut (impl Read + Write)) -> io::Result<Answer> {
        let mut preamble = Vec::new();
        Preamble::encode(self.token.as_ref(), &mut preamble);
        stream.write_all(&preamble)?;
        stream.flush()?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        let [answer] = answer;
        Ok(Answer::decode(answer))
    }
}

/// A socket whose reads and writes take until a time in all.
struct Hurried<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Hurried<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn entry_failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => Error::Closed,
        io::ErrorKind::WouldBlock => Error::Handshake(io::ErrorKind::TimedOut.into()),
        _ => Error::Handshake(error),
    }
}

/// What a client's TLS is set up with: trust in the CA certificates of a file or of the system, and a certificate to
/// show with its key.
///
/// # Errors
/// Any that tells of a file; [`Error::NoRoots`].
pub fn client_config(
    ca: Option<&Path>,
    certificate: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(Error::Settings)?
        .with_root_certificates(files::roots(ca)?);
    let config = match certificate {
        Some((path, key)) => {
            let (chain, private) = certified(path, key)?;
            let unusable = |source| Error::Unusable { path: path.to_owned(), source };
            builder.with_client_auth_cert(chain, private).map_err(unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use testkit::pki::Authority;

    use super::*;

    #[test]
    fn a_relay_that_drips_its_handshake_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new(folder.path(), "ca").unwrap();
        let settings = Settings { ca: Some(ca.pem().to_owned()), ..Settings::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let dripping = thread::spawn(move || {
            let (mut relay, _) = listener.accept().unwrap();
            // A record of the handshake, longer than what comes of it in ten times the limit.
            let record = [0x16, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(2));
            for byte in record.take(100) {
                if relay.write_all(&[byte]).is_err() {
                    return;
                }
                thread::park_timeout(ENTRY_LIMIT / 10);
            }
        });
        let entered = Client::new(&settings).unwrap().enter(socket, "127.0.0.1", Role::Control);
        let error = entered.map(drop).unwrap_err();
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        assert!(matches!(&error, Error::Handshake(source) if is_late(source)), "{error:?}");
        dripping.join().unwrap();
    }
}
