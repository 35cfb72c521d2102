//! Posts a manifest to a URL.

use std::fmt;
use std::str::FromStr;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tracedir::manifest::hex;

use super::Failure;

/// The same for each attempt to tell of one chunk, and for no other chunk.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PRODUCT: &str = concat!("throughline/", env!("CARGO_PKG_VERSION"));

/// A URL that manifests are posted to: `http://HOST[:PORT]/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    uri: Uri,
}

/// Why a text is no URL of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Not a URL.
    #[error("not a URL such as http://host:port/path")]
    Url,
    /// Not `http`.
    #[error("only http:// is spoken; put a proxy on this machine before a peer that wants https")]
    Scheme,
    /// A name or password before the host.
    #[error("a name or password in the URL is not sent")]
    Credentials,
}

impl FromStr for Webhook {
    type Err = WebhookError;

    fn from_str(text: &str) -> Result<Self, WebhookError> {
        let uri: Uri = text.parse().map_err(|_invalid| WebhookError::Url)?;
        let authority = uri.authority().ok_or(WebhookError::Url)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(WebhookError::Scheme),
            None => return Err(WebhookError::Url),
        }
        if authority.as_str().contains('@') {
            return Err(WebhookError::Credentials);
        }
        // A port that is no number up to 65535 is none to this type.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = uri.port_u16();
        if authority.host().is_empty() || port == Some(0) || (has_port && port.is_none()) {
            return Err(WebhookError::Url);
        }
        Ok(Self { uri })
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

impl Webhook {
    /// Posts a manifest over a connection of its own. Redirections are not followed and the answer's body is not read.
    pub(super) async fn post(&self, manifest: Vec<u8>) -> Result<(), Failure> {
        let host =
            self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let address = (host, self.uri.port_u16().unwrap_or(80));
        let socket = TcpStream::connect(address).await.map_err(Failure::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let response = {
            let mut connection = std::pin::pin!(connection);
            let mut response = std::pin::pin!(sender.send_request(self.request(manifest)));
            tokio::select! {
                biased;
                response = &mut response => response?,
                // Its last step may have been to hand the answer over.
                ended = &mut connection => {
                    ended?;
                    response.await?
                }
            }
        };
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(Failure::Status(status.as_u16())) }
    }

    fn request(&self, manifest: Vec<u8>) -> Request<Full<Bytes>> {
        let key = hex(&Sha256::digest(&manifest));
        let mut request = Request::new(Full::new(Bytes::from(manifest)));
        *request.method_mut() = hyper::Method::POST;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = [
            (HOST, self.uri.authority().map(|host| host.as_str().to_owned()).unwrap_or_default()),
            (USER_AGENT, PRODUCT.to_owned()),
            (CONTENT_TYPE, "application/json".to_owned()),
            (IDEMPOTENCY_KEY, format!("\"{key}\"")),
        ];
        for (name, value) in headers {
            // All of them are visible ASCII.
            if let Ok(value) = value.parse() {
                request.headers_mut().insert(name, value);
            }
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_is_plain_http() {
        for url in ["http://h", "http://127.0.0.1:8080/a?b=c", "http://[::1]:80/"] {
            assert!(url.parse::<Webhook>().is_ok(), "{url}");
        }
        let error = |url: &str| url.parse::<Webhook>().unwrap_err();
        assert_eq!(error("https://h/"), WebhookError::Scheme);
        assert_eq!(error("http://user:word@h/"), WebhookError::Credentials);
        for url in ["", "h", "/path", "http://", "http://h:0/", "http://h:99999/", "http://h\n/"] {
            assert_eq!(error(url), WebhookError::Url, "{url:?}");
        }
    }
}
