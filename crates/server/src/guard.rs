//! What every request must satisfy, and what every reply says, before any endpoint is asked.
//!
//! A web site that a user visits can make the browser send requests to this server. It cannot read the replies, unless
//! its own name is made to resolve to our address (DNS rebinding): then the browser takes both for one site. The name
//! still stands in the `Host` field, so a loopback listener answers only to names of the loopback. What costs work even
//! though nobody can read it, the live view, is answered to pages of this server only, as far as the browser says whose they are.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::page;

/// The paths of the live view.
const LIVE: &str = "/api/v1/live/";

/// Refuses what this server never answers and adds the protective fields to every reply.
pub(crate) async fn guard(
    State(local): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match refusal(local, &request) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    protect(response.headers_mut(), page::content_security_policy(), Framing::Nobody);
    response
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Method,
    Body,
    Host,
    Site,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")], "only GET is answered\n").into_response()
            }
            Self::Body => (
                StatusCode::PAYLOAD_TOO_LARGE,
                [(header::CONNECTION, "close")],
                "requests with a body are not answered\n",
            )
                .into_response(),
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this server answers to localhost and loopback addresses only; ask for http://localhost:PORT/\n",
            )
                .into_response(),
            Self::Site => (
                StatusCode::FORBIDDEN,
                "this is answered to pages of this server only\n",
            )
                .into_response(),
        }
    }
}

fn refusal(local: SocketAddr, request: &Request) -> Option<Refusal> {
    if request.method() != Method::GET {
        return Some(Refusal::Method);
    }
    let headers = request.headers();
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    if !empty || headers.contains_key(header::TRANSFER_ENCODING) {
        return Some(Refusal::Body);
    }
    if let Err(refusal) = is_for_us(local, request) {
        return Some(refusal);
    }
    let is_foreign = request.uri().path().starts_with(LIVE) && comes_from_elsewhere(headers);
    is_foreign.then_some(Refusal::Site)
}

/// Whether a request names this server: one that came to the loopback has to name that.
pub(crate) fn is_for_us(local: SocketAddr, request: &Request) -> Result<(), Refusal> {
    let is_rebound = local.ip().to_canonical().is_loopback() && !asks_for_loopback(request);
    if is_rebound { Err(Refusal::Host) } else { Ok(()) }
}

/// True when a browser says that it sends the request for another site's page. Other programs say nothing of it.
pub(crate) fn comes_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().any(|site| site != "same-origin" && site != "none")
}

/// True when the one `Host` field and the authority, of which HTTP/2 has the latter and an absolute request target both, name the loopback.
fn asks_for_loopback(request: &Request) -> bool {
    let hosts = request.headers().get_all(header::HOST);
    let named = hosts.iter().map(|host| host.to_str().ok().and_then(|host| host.parse().ok()));
    let named: Vec<Option<Authority>> =
        named.chain(request.uri().authority().cloned().map(Some)).collect();
    hosts.iter().count() <= 1
        && !named.is_empty()
        && named.iter().all(|name| name.as_ref().is_some_and(is_loopback_name))
}

fn is_loopback_name(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Who may show a reply inside of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    Nobody,
    /// Pages of this server.
    Ours,
}

/// Adds the protective fields to a reply whose document has this policy.
pub(crate) fn protect(headers: &mut HeaderMap, policy: &str, framing: Framing) {
    let (frame_options, ancestors) = match framing {
        Framing::Nobody => ("DENY", "'none'"),
        Framing::Ours => ("SAMEORIGIN", "'self'"),
    };
    // Only a field can say who may frame a document.
    let policy = HeaderValue::from_str(&format!("{policy}; frame-ancestors {ancestors}"));
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let fields: [(HeaderName, HeaderValue); 6] = [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static(frame_options)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    headers.extend(fields);
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

    fn check(local: SocketAddr, target: &str, hosts: &[&str], expected: Option<Refusal>) {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let request = request.body(Body::empty()).expect("a request");
        assert_eq!(refusal(local, &request), expected, "{target} {hosts:?} at {local}");
    }

    #[test]
    fn a_loopback_listener_answers_to_loopback_names_only() {
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]"]
        {
            check(LOOPBACK, "/", &[host], None);
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost.",
        ] {
            check(LOOPBACK, "/", &[host], Some(Refusal::Host));
        }
        check(LOOPBACK, "/", &[], Some(Refusal::Host));
        check(LOOPBACK, "/", &["localhost", "evil.example"], Some(Refusal::Host));
        check(LOOPBACK, "http://evil.example/", &["localhost"], Some(Refusal::Host));
        // As HTTP/2 has it.
        check(LOOPBACK, "http://evil.example/", &[], Some(Refusal::Host));
        check(LOOPBACK, "http://localhost:8080/", &[], None);
        check(LOOPBACK, "http://localhost:8080/", &["evil.example"], Some(Refusal::Host));
        let mapped = "[::ffff:127.0.0.1]:80".parse().expect("an address");
        check(mapped, "/", &["evil.example"], Some(Refusal::Host));
    }

    #[test]
    fn a_listener_for_others_answers_to_any_name() {
        let open = "192.0.2.1:80".parse().expect("an address");
        check(open, "/", &["trace.example"], None);
    }

    #[test]
    fn the_live_view_answers_to_its_own_page_only() {
        let refused = |path: &str, site: Option<&str>| {
            let mut request = Request::builder().uri(path).header(header::HOST, "localhost");
            if let Some(site) = site {
                request = request.header("sec-fetch-site", site);
            }
            refusal(LOOPBACK, &request.body(Body::empty()).expect("a request"))
        };
        for path in ["/api/v1/live/tail?host=h&session=s", "/api/v1/live/sessions"] {
            for site in [None, Some("same-origin"), Some("none")] {
                assert_eq!(refused(path, site), None, "{path} {site:?}");
            }
            for site in [Some("cross-site"), Some("same-site"), Some("")] {
                assert_eq!(refused(path, site), Some(Refusal::Site), "{path} {site:?}");
            }
        }
        assert_eq!(refused("/", Some("cross-site")), None);
    }

    #[test]
    fn the_policy_is_a_legal_field() {
        let mut headers = HeaderMap::new();
        protect(&mut headers, page::content_security_policy(), Framing::Nobody);
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(policy.contains("script-src 'sha256-"));
    }
}
