//! Announces a chunk on a subject of NATS.
//!
//! What is promised depends on the server. Where a JetStream stream takes the subject, a chunk has been announced when the stream
//! says that it has stored the manifest; each attempt has the same `Nats-Msg-Id`, by which the stream drops repetitions. Elsewhere it
//! has been announced when the server took it and somebody listened at that time: what becomes of it then is unknown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tracedir::manifest::{Contents, Manifest};
use wire::nats::{self, FromServer, Message, Writer};

use super::Failure;

/// Longest file with credentials, in bytes.
const MAX_CREDENTIALS_LEN: u64 = 64 << 10;
/// Where JetStream says which streams take a subject.
const STREAM_NAMES: &str = "$JS.API.STREAM.NAMES";
/// The answer when nobody listens.
const NO_RESPONDERS: u16 = 503;
/// Our only subscription.
const SUBSCRIPTION: u32 = 1;

/// A subject of a NATS server: `nats://HOST[:PORT]/SUBJECT`, or `tls://` for one that must be encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsSubject {
    host: String,
    port: u16,
    subject: String,
    is_encrypted: bool,
    /// A file with what the server wants to know: one line is a token, two are a name and a password. Read for each connection.
    pub credentials: Option<PathBuf>,
}

/// Why a text is no subject of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NatsSubjectError {
    /// Not a URL with a host and a subject.
    #[error("not a URL such as nats://host:4222/subject or tls://host:4222/subject")]
    Url,
    /// Not a subject that can be published to.
    #[error("not a subject: words between dots, without * and >")]
    Subject,
    /// A name or password before the host.
    #[error("credentials in the URL: they are read from a file (--announce-nats-credentials)")]
    Credentials,
}

/// Why a server was not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NatsFailure {
    #[error("the server says {0:?}")]
    Refused(String),
    #[error("what the server says is not understood")]
    Protocol(#[from] nats::Error),
    #[error("the server ended the connection")]
    Ended,
    #[error("the connection failed")]
    Connection(#[from] std::io::Error),
    #[error("nobody listens to the subject, and no stream takes it")]
    NobodyListens,
    #[error("encryption")]
    Tls(#[from] door::Error),
    #[error("{host} cannot be the name of a certificate")]
    Host { host: String },
    #[error("the credentials in {} cannot be read", path.display())]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error(
        "the server takes messages of at most {limit} bytes, the shortest form of the manifest has {len}"
    )]
    TooLong { limit: usize, len: usize },
}

impl FromStr for NatsSubject {
    type Err = NatsSubjectError;

    fn from_str(text: &str) -> Result<Self, NatsSubjectError> {
        let (scheme, rest) = text.split_once("://").ok_or(NatsSubjectError::Url)?;
        let is_encrypted = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(NatsSubjectError::Url),
        };
        let (server, subject) = rest.split_once('/').ok_or(NatsSubjectError::Url)?;
        if server.contains('@') {
            return Err(NatsSubjectError::Credentials);
        }
        let uri: hyper::Uri =
            format!("http://{server}/").parse().map_err(|_invalid| NatsSubjectError::Url)?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let has_port = uri.authority().is_some_and(|it| it.as_str().len() > it.host().len());
        let port = if has_port { uri.port_u16() } else { Some(4222) };
        let port =
            port.filter(|port| *port > 0 && !host.is_empty()).ok_or(NatsSubjectError::Url)?;
        if !nats::is_subject(subject) {
            return Err(NatsSubjectError::Subject);
        }
        let (host, subject) = (host.to_owned(), subject.to_owned());
        Ok(Self { host, port, subject, is_encrypted, credentials: None })
    }
}

impl fmt::Display for NatsSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, subject, .. } = self;
        let scheme = if self.is_encrypted { "tls" } else { "nats" };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}/{subject}"),
            false => write!(f, "{scheme}://{host}:{port}/{subject}"),
        }
    }
}

impl NatsSubject {
    /// Announces a manifest over a connection of its own; `id` is the same for each attempt to tell of one chunk. An
    /// encrypted server's certificate must come from `ca`; `None`: from those of the system.
    pub(super) async fn publish(
        &self,
        ca: Option<&Path>,
        manifest: &[u8],
        id: &str,
    ) -> Result<(), Failure> {
        let socket =
            TcpStream::connect((&*self.host, self.port)).await.map_err(Failure::Connect)?;
        self.tell(socket, ca, manifest, id).await.map_err(Failure::Nats)
    }

    async fn tell(
        &self,
        mut socket: TcpStream,
        ca: Option<&Path>,
        manifest: &[u8],
        id: &str,
    ) -> Result<(), NatsFailure> {
        let mut arrived = Vec::new();
        let info = greeting(&mut socket, &mut arrived).await?;
        let max_payload = info.max_payload.unwrap_or(1 << 20);
        if self.is_encrypted || info.tls_required {
            let config = door::client_config(ca, None)?;
            let name = ServerName::try_from(self.host.clone())
                .map_err(|_no_name| NatsFailure::Host { host: self.host.clone() })?;
            let socket = TlsConnector::from(config).connect(name, socket).await?;
            // What came in the open after the greeting is nobody's word.
            let mut client = Client::new(socket, Vec::new(), max_payload);
            client.greet(self.credentials.as_deref()).await?;
            client.announce(&self.subject, manifest, id).await
        } else {
            let mut client = Client::new(socket, arrived, max_payload);
            client.greet(self.credentials.as_deref()).await?;
            client.announce(&self.subject, manifest, id).await
        }
    }
}

/// What a server says of itself, which it does first.
async fn greeting(
    socket: &mut (impl AsyncRead + Unpin),
    arrived: &mut Vec<u8>,
) -> Result<Info, NatsFailure> {
    loop {
        if let Some((said, used)) = FromServer::decode(arrived)? {
            let info = match said {
                FromServer::Info(json) => serde_json::from_slice(json).ok(),
                FromServer::Error(text) => return Err(NatsFailure::Refused(text.to_owned())),
                _ => None,
            };
            arrived.drain(..used);
            return info.ok_or_else(|| NatsFailure::Refused("nothing of itself".to_owned()));
        }
        if socket.read_buf(arrived).await? == 0 {
            return Err(NatsFailure::Ended);
        }
    }
}

/// A connection to a server.
struct Client<S> {
    socket: S,
    arrived: Vec<u8>,
    inbox: String,
    max_payload: usize,
}

/// What a server says of itself, as far as it matters here.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    tls_required: bool,
    max_payload: Option<usize>,
}

/// The answer of a stream to a message.
#[derive(Deserialize)]
struct Stored {
    stream: Option<String>,
    seq: Option<u64>,
    error: Option<Refusal>,
}

/// The streams that take a subject.
#[derive(Deserialize)]
struct Streams {
    streams: Option<Vec<String>>,
    error: Option<Refusal>,
}

/// Why JetStream does not do something.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    description: String,
}

/// An answer to one of our questions, or that there will be none.
enum Answer {
    Said(Vec<u8>),
    Nobody,
    /// All that was sent before was taken.
    Taken,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(socket: S, arrived: Vec<u8>, max_payload: usize) -> Self {
        // Connections of one process, and processes by their number, need names that differ.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let inbox = format!("_INBOX.throughline-{}-{}-{number}", std::process::id(), nonce());
        Self { socket, arrived, inbox, max_payload }
    }

    /// Says who we are, and waits until the server agrees.
    async fn greet(&mut self, credentials: Option<&Path>) -> Result<(), NatsFailure> {
        let Value::Object(mut options) = json!({
            "verbose": false,
            "pedantic": false,
            "headers": true,
            "no_responders": true,
            "name": "throughline",
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
        }) else {
            return Err(NatsFailure::Ended);
        };
        for (name, value) in credentials.map(read_credentials).transpose()?.unwrap_or_default() {
            options.insert(name.to_owned(), Value::String(value));
        }
        let inbox = format!("{}.*", self.inbox);
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.connect(&Value::Object(options).to_string());
        writer.subscribe(&inbox, SUBSCRIPTION);
        writer.ping();
        self.socket.write_all(&bytes).await?;
        match self.answer("").await? {
            Answer::Taken => Ok(()),
            Answer::Said(_) | Answer::Nobody => Err(NatsFailure::Ended),
        }
    }

    /// Reads on; what has not been understood yet is bounded by the protocol's longest message.
    async fn read(&mut self) -> Result<(), NatsFailure> {
        match self.socket.read_buf(&mut self.arrived).await? {
            0 => Err(NatsFailure::Ended),
            _ => Ok(()),
        }
    }

    /// The answer to `question`, or that the last `PING` was answered, whichever comes first.
    async fn answer(&mut self, question: &str) -> Result<Answer, NatsFailure> {
        let ours = format!("{}.{question}", self.inbox);
        loop {
            while let Some((said, used)) = FromServer::decode(&self.arrived)? {
                let mut pings = false;
                let answer = match said {
                    FromServer::Pong => Some(Answer::Taken),
                    FromServer::Error(text) => return Err(NatsFailure::Refused(text.to_owned())),
                    FromServer::Message(Message { subject, status, payload, .. })
                        if subject == ours =>
                    {
                        Some(match status {
                            Some(NO_RESPONDERS) => Answer::Nobody,
                            _ => Answer::Said(payload.to_owned()),
                        })
                    }
                    FromServer::Ping => {
                        pings = true;
                        None
                    }
                    FromServer::Info(_) | FromServer::Ok | FromServer::Message(_) => None,
                };
                self.arrived.drain(..used);
                if pings {
                    let mut bytes = Vec::new();
                    Writer(&mut bytes).pong();
                    self.socket.write_all(&bytes).await?;
                }
                if let Some(answer) = answer {
                    return Ok(answer);
                }
            }
            self.read().await?;
        }
    }

    /// Sends to a subject; `question` names the answer.
    async fn send(
        &mut self,
        subject: &str,
        question: &str,
        headers: &[(&str, &str)],
        payload: &[u8],
        then_ping: bool,
    ) -> Result<(), NatsFailure> {
        let reply = format!("{}.{question}", self.inbox);
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        writer.publish(subject, &reply, headers, payload);
        if then_ping {
            writer.ping();
        }
        Ok(self.socket.write_all(&bytes).await?)
    }

    async fn announce(
        &mut self,
        subject: &str,
        manifest: &[u8],
        id: &str,
    ) -> Result<(), NatsFailure> {
        let is_kept = self.is_kept(subject).await?;
        let mut headers = vec![("Nats-Msg-Id", id), ("Content-Type", "application/json")];
        // Headers are part of the length.
        let limit = self.max_payload.saturating_sub(1024);
        let short;
        let payload = if manifest.len() <= limit {
            manifest
        } else {
            headers.push(("Throughline-Manifest", "shortened"));
            short = shortened(manifest);
            &short
        };
        if payload.len() > limit {
            return Err(NatsFailure::TooLong { limit, len: payload.len() });
        }
        self.send(subject, "told", &headers, payload, !is_kept).await?;
        loop {
            match self.answer("told").await? {
                Answer::Nobody => return Err(NatsFailure::NobodyListens),
                Answer::Taken if !is_kept => return Ok(()),
                Answer::Taken => {}
                Answer::Said(answer) => {
                    // Any listener may answer; only a stream does so with its name.
                    let Ok(answer) = serde_json::from_slice::<Stored>(&answer) else { continue };
                    match answer {
                        Stored { error: Some(error), .. } => {
                            return Err(NatsFailure::Refused(error.description));
                        }
                        Stored { stream: Some(_), seq: Some(_), .. } => return Ok(()),
                        Stored { .. } => {}
                    }
                }
            }
        }
    }

    /// Whether a stream of JetStream takes the subject.
    async fn is_kept(&mut self, subject: &str) -> Result<bool, NatsFailure> {
        let question = json!({ "subject": subject }).to_string();
        self.send(STREAM_NAMES, "streams", &[], question.as_bytes(), false).await?;
        loop {
            match self.answer("streams").await? {
                Answer::Nobody => return Ok(false),
                Answer::Taken => {}
                Answer::Said(answer) => {
                    let answer: Streams = serde_json::from_slice(&answer)
                        .map_err(|error| NatsFailure::Refused(error.to_string()))?;
                    return match answer.error {
                        // JetStream is not there for this account.
                        Some(error) if error.code == NO_RESPONDERS => Ok(false),
                        Some(error) => Err(NatsFailure::Refused(error.description)),
                        None => Ok(answer.streams.is_some_and(|names| !names.is_empty())),
                    };
                }
            }
        }
    }
}

/// What sets inboxes of processes with one number on two machines apart.
fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(0))
}

/// One line is a token, two are a name and a password.
fn read_credentials(path: &Path) -> Result<Vec<(&'static str, String)>, NatsFailure> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        std::io::Read::read_to_string(
            &mut std::io::Read::take(std::fs::File::open(path)?, MAX_CREDENTIALS_LEN),
            &mut text,
        )?;
        Ok(text)
    };
    let failed = |source| NatsFailure::Credentials { path: path.to_owned(), source };
    let text = read().map_err(failed)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match *lines.as_slice() {
        [token] => Ok(vec![("auth_token", token.to_owned())]),
        [user, password] => Ok(vec![("user", user.to_owned()), ("pass", password.to_owned())]),
        _ => {
            let what = "neither one line with a token nor two with a name and a password";
            Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, what)))
        }
    }
}

/// A manifest without what there is one of for each file or stream: which chunk it is, and its sums.
fn shortened(manifest: &[u8]) -> Vec<u8> {
    match Manifest::parse(manifest) {
        Ok(Some(manifest)) => {
            let totals = manifest.contents.totals;
            let contents = Contents { totals, files_unlisted: totals.files, ..Contents::default() };
            Manifest { contents, losses: Vec::new(), ..manifest }.to_json()
        }
        _ => manifest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_a_subject() {
        for (url, shown) in [
            ("nats://h/trace.chunks", "nats://h:4222/trace.chunks"),
            ("nats://127.0.0.1:5222/a", "nats://127.0.0.1:5222/a"),
            ("nats://[::1]/a", "nats://[::1]:4222/a"),
            ("tls://h/a", "tls://h:4222/a"),
        ] {
            assert_eq!(url.parse::<NatsSubject>().unwrap().to_string(), shown);
        }
        let error = |url: &str| url.parse::<NatsSubject>().unwrap_err();
        for url in
            ["", "h/a", "http://h/a", "nats://h", "nats:///a", "nats://h:0/a", "nats://h:x/a"]
        {
            assert_eq!(error(url), NatsSubjectError::Url, "{url}");
        }
        for url in ["nats://h/", "nats://h/a.>", "nats://h/a b", "nats://h/a\r\nPUB x 0"] {
            assert_eq!(error(url), NatsSubjectError::Subject, "{url:?}");
        }
        assert_eq!(error("nats://me:secret@h/a"), NatsSubjectError::Credentials);
    }

    #[test]
    fn credentials_are_a_token_or_a_name_and_a_password() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_credentials(file.path()).ok()
        };
        assert_eq!(read("tok\n"), Some(vec![("auth_token", "tok".to_owned())]));
        let both = vec![("user", "me".to_owned()), ("pass", "a b".to_owned())];
        assert_eq!(read("me\na b\n"), Some(both));
        assert_eq!((read(""), read("a\nb\nc\n")), (None, None));
        assert!(read_credentials(Path::new("/nowhere")).is_err());
    }
}
