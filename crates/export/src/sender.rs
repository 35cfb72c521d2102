//! Does what the machine says: posts over HTTP, reads the source, saves the cursor.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use webclient::{Client, Headers, PRODUCT, exchange, retry_after, shown};
use wire::remote_write::Version;

use crate::answer::{Answer, Outcome};
use crate::cell::Source;
use crate::cursor::KeepCursor;
use crate::error::{Error, Result};
use crate::machine::{Machine, Post, Step};
use crate::plan::Limits;

const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");
const WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Where a receiver listens: a URL with a host, without a name or password in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// Why a text is no receiver's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Not a URL with a host.
    #[error("not a URL such as http://prometheus:9090/api/v1/write")]
    Url,
    /// A name or password before the host.
    #[error("a name or password in the URL is not sent: give a file with it")]
    Credentials,
}

impl FromStr for Endpoint {
    type Err = UrlError;

    fn from_str(text: &str) -> std::result::Result<Self, UrlError> {
        let uri: Uri = text.parse().map_err(|_invalid| UrlError::Url)?;
        let scheme = uri.scheme().filter(|it| [&Scheme::HTTP, &Scheme::HTTPS].contains(it));
        let host = uri.authority().ok_or(UrlError::Url)?;
        if host.as_str().contains('@') {
            return Err(UrlError::Credentials);
        }
        if scheme.is_none() || host.host().is_empty() {
            return Err(UrlError::Url);
        }
        Ok(Self(uri))
    }
}

/// How we say who we are. Files must be private, and are read again for each request, so that they may be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// Not at all.
    #[default]
    None,
    /// By a token that is the content of a file.
    Bearer(PathBuf),
    /// By a name, and a password that is the content of a file.
    Basic {
        /// The name.
        user: String,
        /// The file.
        password: PathBuf,
    },
}

impl Auth {
    fn header(&self) -> Result<Option<HeaderValue>> {
        let text = match self {
            Self::None => return Ok(None),
            Self::Bearer(file) => format!("Bearer {}", door::secret(file)?.trim()),
            Self::Basic { user, password } => {
                let password = door::secret(password)?;
                let both = format!("{user}:{}", password.trim_end_matches(['\r', '\n']));
                format!("Basic {}", STANDARD.encode(both))
            }
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_invalid| Error::Credentials)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// A receiver, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Where it is.
    pub endpoint: Endpoint,
    /// The message that it is sent first; the other follows if it does not understand.
    pub version: Version,
    /// Whose series they are (`X-Scope-OrgID`).
    pub tenant: Option<String>,
    /// Who we are.
    pub auth: Auth,
    /// What else goes with every request.
    pub headers: Headers,
    /// CA certificates that an encrypted receiver's must come from; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// What a request may hold.
    pub limits: Limits,
}

impl Remote {
    /// A receiver that asks for nothing.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            version: Version::V2,
            tenant: None,
            auth: Auth::None,
            headers: Headers::default(),
            ca: None,
            certificate: None,
            timeout: Duration::from_secs(30),
            limits: Limits::default(),
        }
    }
}

/// Time and chance, from outside.
pub trait Clock: Send {
    /// Milliseconds since 1970.
    fn now_ms(&mut self) -> i64;

    /// A random number from 0 to 1.
    fn chance(&mut self) -> f64;
}

/// When the next step is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After this time.
    After(Duration),
    /// When the source may have more.
    WhenMore,
}

/// Sends the cells of a source to one receiver, step by step. Between any two of them it may be killed.
pub struct Sender {
    machine: Machine,
    source: Box<dyn Source + Send>,
    cursors: Box<dyn KeepCursor + Send>,
    clock: Box<dyn Clock>,
    client: Client,
    remote: Remote,
    tenant: Option<HeaderValue>,
}

impl Sender {
    /// Goes on where the cursor says. Nothing is connected before the first step.
    ///
    /// # Errors
    /// When the cursor cannot be loaded, certificates cannot be used, or the tenant is no header.
    pub fn new(
        remote: Remote,
        source: Box<dyn Source + Send>,
        mut cursors: Box<dyn KeepCursor + Send>,
        clock: Box<dyn Clock>,
    ) -> Result<Self> {
        let uri = &remote.endpoint.0;
        let certificate =
            remote.certificate.as_ref().map(|(it, key)| (it.as_path(), key.as_path()));
        let is_encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let version = webclient::Version::Http1;
        let client = webclient::new(is_encrypted, version, remote.ca.as_deref(), certificate)?;
        let tenant = remote.tenant.as_deref().map(HeaderValue::from_str).transpose();
        let tenant = tenant.map_err(|_invalid| Error::Tenant)?;
        let limits = remote.limits.clone();
        let machine = Machine::new(&uri.to_string(), remote.version, limits, cursors.load()?);
        Ok(Self { machine, source, cursors, clock, client, remote, tenant })
    }

    /// How far it is.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Does the next step. Needs a runtime with time and I/O. Source and cursor are waited for: it should have a thread of its own.
    ///
    /// # Errors
    /// When the source cannot be read, the cursor not be saved, or a secret not be read. Nothing is lost, the same step is done next time.
    pub async fn step(&mut self) -> Result<Next> {
        let now_ms = self.clock.now_ms();
        match self.machine.next(now_ms) {
            Step::Read { from, most } => {
                let read = self.source.read(from, most);
                self.machine.has_read(read.map_err(|source| Error::Source { from, source })?)?;
            }
            Step::Save => {
                self.cursors.save(self.machine.cursor())?;
                self.machine.has_saved(now_ms);
            }
            Step::Post(post) => {
                let outcome = self.post(post).await?;
                let chance = self.clock.chance();
                self.machine.answered(&outcome, self.clock.now_ms(), chance);
            }
            Step::Wait(wait) => return Ok(Next::After(wait)),
            Step::Idle => return Ok(Next::WhenMore),
        }
        Ok(Next::Now)
    }

    async fn post(&self, post: Post) -> Result<Outcome> {
        let mut request = Request::new(Full::new(post.body));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.remote.endpoint.0);
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        if let Some(tenant) = &self.tenant {
            headers.insert(TENANT, tenant.clone());
        }
        self.remote.headers.apply(headers);
        if let Some(value) = self.remote.auth.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(post.version.content_type()));
        headers.insert(VERSION, HeaderValue::from_static(post.version.header()));
        let exchanged = tokio::time::timeout(self.remote.timeout, exchange(&self.client, request));
        Ok(match exchanged.await {
            Ok(Ok(answer)) => Outcome::Answered(Answer {
                status: answer.status.as_u16(),
                retry_after: retry_after(&answer.headers),
                samples_written: written(&answer.headers),
                words: shown(&answer.body),
            }),
            Ok(Err(why)) => Outcome::Unknown { why },
            Err(_elapsed) => {
                Outcome::Unknown { why: format!("no answer within {:?}", self.remote.timeout) }
            }
        })
    }
}

fn written(headers: &HeaderMap) -> Option<u64> {
    headers.get(WRITTEN)?.to_str().ok()?.trim().parse().ok()
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("machine", &self.machine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_urls_without_secrets() {
        for good in ["http://p:9090/api/v1/write", "https://[::1]/api/v1/push?a=b"] {
            assert!(good.parse::<Endpoint>().is_ok(), "{good}");
        }
        for wrong in ["", "p:9090", "ftp://p/", "/api/v1/write", "http://"] {
            assert_eq!(wrong.parse::<Endpoint>(), Err(UrlError::Url), "{wrong}");
        }
        assert_eq!("http://a:b@p/".parse::<Endpoint>(), Err(UrlError::Credentials));
    }
}
