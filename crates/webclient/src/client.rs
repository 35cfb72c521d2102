//! HTTP, with or without TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use model::with_causes;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// An answer's body that is read: 4 MiB, as the OTLP specification has it.
const MAX_ANSWER: usize = 4 << 20;

/// A connection that nothing was sent over for so long is closed.
const IDLE: Duration = Duration::from_secs(90);

/// A connection of HTTP/2 on which a request waits is asked so often, and given so long, whether it still lives: requests that are given up
/// leave it open, and the system alone would take a quarter of an hour to notice.
const PING: Duration = Duration::from_secs(4);

/// A server leads elsewhere so often at most.
const MAX_REDIRECTS: usize = 5;

/// Characters of an answer that are shown.
const SHOWN: usize = 200;

/// What we are called in `User-Agent`.
pub const PRODUCT: &str = concat!("throughline/", env!("CARGO_PKG_VERSION"));

/// A client; it keeps its connection.
pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, also without TLS.
    Http2,
}

/// An answer that was read whole.
#[derive(Debug)]
pub struct Answer {
    /// What it says first.
    pub status: StatusCode,
    /// What stands before its body.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// What stands behind its body.
    pub trailers: HeaderMap,
}

/// A client. `ca`: certificates that an encrypted server's must come from, those of the system if `None`; `certificate`: ours, and its key.
///
/// # Errors
/// When certificates cannot be used.
pub fn new(
    is_encrypted: bool,
    version: Version,
    ca: Option<&Path>,
    certificate: Option<(&Path, &Path)>,
) -> Result<Client, door::Error> {
    let config = match is_encrypted {
        true => Arc::unwrap_or_clone(door::client_config(ca, certificate)?),
        // Never used, and a machine without certificates can do without.
        false => ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(door::Error::Settings)?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    let connector = match version {
        Version::Http1 => connector.enable_http1().build(),
        Version::Http2 => connector.enable_http2().build(),
    };
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(1);
    builder.timer(TokioTimer::new()).http2_only(version == Version::Http2);
    builder.http2_keep_alive_interval(PING).http2_keep_alive_timeout(PING);
    Ok(builder.build(connector))
}

/// Sends a request and reads the answer.
///
/// # Errors
/// What is wrong, in one line.
pub async fn exchange(client: &Client, request: Request<Full<Bytes>>) -> Result<Answer, String> {
    let answer = client.request(request).await.map_err(|error| with_causes(&error))?;
    let (head, body) = answer.into_parts();
    let body =
        Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| with_causes(&*error))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
}

/// Asks for something of any length, which `take` is given piece by piece; how the server answers. The body of another answer than 200 is not
/// read. A server may lead elsewhere, [`MAX_REDIRECTS`] times.
///
/// # Errors
/// What is wrong, in one line; that of `take`.
pub async fn download(
    client: &Client,
    uri: Uri,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<StatusCode, String> {
    let mut uri = uri;
    for _ in 0..=MAX_REDIRECTS {
        let request = Request::get(uri.clone())
            .header(header::USER_AGENT, PRODUCT)
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = client.request(request).await.map_err(|error| with_causes(&error))?;
        let status = answer.status();
        if status.is_redirection() {
            uri = elsewhere(&uri, answer.headers())?;
            continue;
        }
        if status == StatusCode::OK {
            let mut body = answer.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| with_causes(&error))?;
                frame.data_ref().map_or(Ok(()), |piece| take(piece))?;
            }
        }
        return Ok(status);
    }
    Err(format!("it leads elsewhere more than {MAX_REDIRECTS} times"))
}

/// Where an answer leads, which may be said without scheme and host. What was asked for over TLS is not asked for without.
fn elsewhere(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let place = headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
    let place = place.ok_or("it leads elsewhere and does not say where")?;
    let wrong = || format!("it leads to {}", shown(place.as_bytes()));
    let mut to = place.parse::<Uri>().ok().ok_or_else(wrong)?.into_parts();
    if to.authority.is_none() {
        let from = from.clone().into_parts();
        (to.scheme, to.authority) = (from.scheme, from.authority);
    }
    let to = Uri::from_parts(to).ok().ok_or_else(wrong)?;
    let is_known = matches!(to.scheme_str(), Some("http" | "https"));
    let is_downgrade = from.scheme_str() == Some("https") && to.scheme_str() != Some("https");
    if is_known && !is_downgrade { Ok(to) } else { Err(wrong()) }
}

/// The begin of what a server says, fit for one line.
#[must_use]
pub fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let plain = |c: char| if c.is_control() || c == char::REPLACEMENT_CHARACTER { ' ' } else { c };
    let line: String = text.chars().take(SHOWN).map(plain).collect();
    line.trim().to_owned()
}
