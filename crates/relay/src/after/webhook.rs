//! Posts a manifest to a URL.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracedir::manifest::hex;

use super::Failure;

/// The same for each attempt to tell of one chunk, and for no other chunk.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PRODUCT: &str = concat!("throughline/", env!("CARGO_PKG_VERSION"));

/// A URL that manifests are posted to: `http://HOST[:PORT]/PATH`, or the same with `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    uri: Uri,
}

/// Why a text is no URL of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Not a URL.
    #[error("not a URL such as https://host:port/path")]
    Url,
    /// Neither `http` nor `https`.
    #[error("only http:// and https:// are spoken")]
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
            Some("http" | "https") => {}
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
    /// Whether what is posted is encrypted.
    pub(super) fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Posts a manifest over a connection of its own, encrypted as `trust` says if the URL is one of `https`. Redirections
    /// are not followed and the answer's body is not read.
    pub(super) async fn post(
        &self,
        manifest: Vec<u8>,
        trust: Option<&Arc<ClientConfig>>,
    ) -> Result<(), Failure> {
        let host =
            self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 });
        let socket = TcpStream::connect((host, port)).await.map_err(Failure::Connect)?;
        if !self.is_https() {
            return self.exchange(socket, manifest).await;
        }
        let trust = trust.ok_or(Failure::NoTrust)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_no_name| Failure::Host)?;
        let connecting = TlsConnector::from(Arc::clone(trust)).connect(name, socket);
        self.exchange(connecting.await.map_err(Failure::Tls)?, manifest).await
    }

    async fn exchange<S>(&self, socket: S, manifest: Vec<u8>) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let response = {
            let mut connection = std::pin::pin!(connection);
            let mut response = std::pin::pin!(sender.send_request(self.request(manifest)));
            tokio::select! {
                biased;
                response = &mut response => response?,
                // Its last step may have been to hand the answer over, also when the peer then ended it without a goodbye.
                ended = &mut connection => match (response.await, ended) {
                    (Ok(response), _) => response,
                    (Err(_), Err(why)) | (Err(why), Ok(())) => return Err(why.into()),
                },
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
    fn a_url_names_a_host_and_is_http_or_https() {
        for url in [
            "https://h/a",
            "https://h:8443",
            "http://h",
            "http://127.0.0.1:8080/a?b=c",
            "http://[::1]:80/",
        ] {
            assert!(url.parse::<Webhook>().is_ok(), "{url}");
        }
        let error = |url: &str| url.parse::<Webhook>().unwrap_err();
        assert_eq!(error("ftp://h/"), WebhookError::Scheme);
        assert_eq!(error("http://user:word@h/"), WebhookError::Credentials);
        for url in ["", "h", "/path", "http://", "http://h:0/", "http://h:99999/", "http://h\n/"] {
            assert_eq!(error(url), WebhookError::Url, "{url:?}");
        }
    }
}
