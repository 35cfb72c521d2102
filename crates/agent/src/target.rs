//! Who takes packets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use sha2::{Digest as _, Sha256};

/// Where OTLP/HTTP takes profiles (OTLP specification, "OTLP/HTTP Request").
const OTLP_PATH: &str = "/v1development/profiles";

/// The method of OTLP/gRPC (opentelemetry-proto, `collector/profiles/v1development/profiles_service.proto`).
const GRPC_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The method of Pyroscope's `push.v1` (grafana/pyroscope, `api/push/v1/push.proto`).
const PUSH_PATH: &str = "/push.v1.PusherService/Push";

/// Who takes packets, as a URL says:
///
/// | URL | what it is |
/// |---|---|
/// | `http://HOST[:PORT][/PATH]`, `https://…` | OTLP/HTTP; `/v1development/profiles` is put behind the path |
/// | `grpc://HOST[:PORT]`, `grpcs://…` | OTLP/gRPC; port 4317 where none is given |
/// | `pyroscope+http://HOST[:PORT][/PATH]`, `pyroscope+https://…` | Pyroscope's `push.v1`, pprof |
/// | `file:FOLDER` | a folder of files that can be read, and sent, alone |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: String,
    pub(crate) kind: Kind,
}

/// How a target is spoken with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    OtlpHttp(Uri),
    OtlpGrpc(Uri),
    Pyroscope(Uri),
    Folder(PathBuf),
}

impl Kind {
    const fn uri(&self) -> Option<&Uri> {
        match self {
            Self::OtlpHttp(uri) | Self::OtlpGrpc(uri) | Self::Pyroscope(uri) => Some(uri),
            Self::Folder(_) => None,
        }
    }
}

/// Why a text is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not a URL with a host.
    #[error("not a URL such as http://host:4318")]
    Url,
    /// A scheme that is not spoken.
    #[error(
        "the URL must begin with http://, https://, grpc://, grpcs://, pyroscope+http://, pyroscope+https:// or file:"
    )]
    Scheme,
    /// A name or password before the host, which everybody could read who lists processes.
    #[error("a name or password in the URL is not sent: give a file with headers")]
    Credentials,
    /// `file:` without a folder.
    #[error("file: needs a folder, such as file:/var/lib/profiles")]
    Folder,
}

impl Target {
    /// Targets of one agent.
    pub const MAX: usize = 16;

    /// Whether certificates are needed.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.kind.uri().is_some_and(|uri| uri.scheme() == Some(&Scheme::HTTPS))
    }

    /// Whether it is reached over the network, with headers.
    #[must_use]
    pub fn takes_headers(&self) -> bool {
        self.kind.uri().is_some()
    }

    /// Whether it speaks OTLP.
    #[must_use]
    pub fn is_otlp(&self) -> bool {
        matches!(self.kind, Kind::OtlpHttp(_) | Kind::OtlpGrpc(_))
    }

    /// The URL as it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port, or `file`: short enough for the name of a loss.
    #[must_use]
    pub fn label(&self) -> &str {
        self.kind.uri().and_then(Uri::authority).map_or("file", Authority::as_str)
    }

    /// Name of its queue's folder: readable, and no other target's.
    pub(crate) fn folder_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let readable: String = self.url.chars().map(plain).take(80).collect();
        let digest = Sha256::digest(self.url.as_bytes());
        let digest = digest.iter().take(4).map(|byte| format!("{byte:02x}"));
        format!("{readable}-{}", digest.collect::<String>())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once(':').ok_or(TargetError::Url)?;
        let at = |scheme: &str| host_url(&format!("{scheme}:{rest}"));
        let kind = match scheme {
            "file" => folder(rest)?,
            "http" | "https" => Kind::OtlpHttp(with_path(&at(scheme)?, OTLP_PATH)?),
            "grpc" => Kind::OtlpGrpc(of_grpc(at("http")?)?),
            "grpcs" => Kind::OtlpGrpc(of_grpc(at("https")?)?),
            "pyroscope+http" => Kind::Pyroscope(with_path(&at("http")?, PUSH_PATH)?),
            "pyroscope+https" => Kind::Pyroscope(with_path(&at("https")?, PUSH_PATH)?),
            _ => return Err(TargetError::Scheme),
        };
        Ok(Self { url: text.to_owned(), kind })
    }
}

/// `file:FOLDER` and `file:///FOLDER`.
fn folder(path: &str) -> Result<Kind, TargetError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() { Err(TargetError::Folder) } else { Ok(Kind::Folder(PathBuf::from(path))) }
}

/// A URL with a host, and neither a name nor a port that is none.
fn host_url(text: &str) -> Result<Uri, TargetError> {
    let uri: Uri = text.parse().map_err(|_invalid| TargetError::Url)?;
    let authority = uri.authority().ok_or(TargetError::Url)?;
    if authority.as_str().contains('@') {
        return Err(TargetError::Credentials);
    }
    // A port that is no number up to 65535 is none to this type.
    let has_port = authority.as_str().len() > authority.host().len();
    let port = uri.port_u16();
    if authority.host().is_empty() || port == Some(0) || (has_port && port.is_none()) {
        return Err(TargetError::Url);
    }
    Ok(uri)
}

/// The URL of the method, at the port of OTLP/gRPC where none is given. There is no other path.
fn of_grpc(base: Uri) -> Result<Uri, TargetError> {
    if !matches!(base.path(), "" | "/" | GRPC_PATH) {
        return Err(TargetError::Url);
    }
    let mut parts = with_path(&base, GRPC_PATH)?.into_parts();
    let authority = parts.authority.as_ref().filter(|it| it.port().is_none());
    if let Some(authority) = authority {
        let with_port = format!("{authority}:4317").parse();
        parts.authority = Some(with_port.map_err(|_invalid| TargetError::Url)?);
    }
    Uri::from_parts(parts).map_err(|_invalid| TargetError::Url)
}

/// A base URL with the path of a service behind its own, if it is not there already.
fn with_path(base: &Uri, path: &str) -> Result<Uri, TargetError> {
    let own = base.path().trim_end_matches('/');
    let own = own.strip_suffix(path).unwrap_or(own);
    let mut parts = base.clone().into_parts();
    let whole: PathAndQuery =
        format!("{own}{path}").parse().map_err(|_invalid| TargetError::Url)?;
    parts.path_and_query = Some(whole);
    Uri::from_parts(parts).map_err(|_invalid| TargetError::Url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> String {
        match text.parse::<Target>().unwrap().kind {
            Kind::Folder(path) => path.display().to_string(),
            kind => kind.uri().unwrap().to_string(),
        }
    }

    #[test]
    fn the_scheme_says_what_is_spoken_and_the_path_is_completed() {
        for (text, found) in [
            ("http://c:4318", "http://c:4318/v1development/profiles"),
            ("https://c/", "https://c/v1development/profiles"),
            ("https://c/otlp/", "https://c/otlp/v1development/profiles"),
            ("http://[::1]:1/v1development/profiles", "http://[::1]:1/v1development/profiles"),
            ("grpc://c", &format!("http://c:4317{GRPC_PATH}")),
            ("grpcs://[::1]:443/", &format!("https://[::1]:443{GRPC_PATH}")),
            ("pyroscope+http://p:4040", "http://p:4040/push.v1.PusherService/Push"),
            ("pyroscope+https://p/x", "https://p/x/push.v1.PusherService/Push"),
            ("file:spool", "spool"),
            ("file:///a/b", "/a/b"),
        ] {
            assert_eq!(uri(text), found, "{text}");
        }
    }

    #[test]
    fn what_is_no_target_is_told_apart() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        assert_eq!(error("ftp://c"), TargetError::Scheme);
        assert_eq!(error("collector:4318"), TargetError::Scheme);
        assert_eq!(error("https://me:secret@c/"), TargetError::Credentials);
        assert_eq!(error("file:"), TargetError::Folder);
        for text in [
            "",
            "http://",
            "grpc://c/path",
            "http://c:0",
            "http://c:99999",
            "http://c\n",
            "http:/c",
        ] {
            assert_eq!(error(text), TargetError::Url, "{text:?}");
        }
    }

    #[test]
    fn queues_of_different_targets_have_different_folders() {
        let name = |text: &str| text.parse::<Target>().unwrap().folder_name();
        assert_ne!(name("http://c/a"), name("http://c-a"));
        assert!(name("http://c:4318").starts_with("http---c-4318-"), "{}", name("http://c:4318"));
        assert!(!name("file:../../x/%2e").contains('/'));
    }
}
