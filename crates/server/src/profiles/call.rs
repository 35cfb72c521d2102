//! Calls of methods: one message in, one message out, in the framing that the request has.
//!
//! | `Content-Type` | protocol | an error |
//! |---|---|---|
//! | `application/proto`, `application/json` | Connect | a status, and JSON |
//! | `application/grpc`, `…+proto`, `…+json` | gRPC, over HTTP/2 | `grpc-status` in the fields |
//! | `application/grpc-web`, `…+proto`, `…+json` | gRPC-Web | `grpc-status` in a last frame |
//!
//! A handler does not know which it is. Messages may be in gzip, and answers are for those who say that they take it. The frames are
//! [`wire::pyroscope::grpc`]'s: of what a library has for gRPC, unary calls need five bytes, and so one bound on bodies and
//! one on what is unpacked hold for all three. HTTP/2 itself is hyper's.

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full};
use store::lake::Ticket;
use store::lake::name::Tenant;
use wire::proto::{DecodeError, Wrong};
use wire::pyroscope::grpc;
use wire::pyroscope::{self as connect, Code, Encoding};

use super::{Failed, Inner, Kind, Profiles, of_store};

/// Answers of fewer bytes are not compressed.
const MIN_GZIP_BYTES: usize = 1 << 10;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CONNECT_TIMEOUT_MS: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// What a handler is given.
pub(super) struct Call<'a> {
    pub(super) inner: &'a Inner,
    pub(super) tenant: &'a Tenant,
    pub(super) headers: &'a HeaderMap,
    pub(super) message: &'a [u8],
    pub(super) encoding: Encoding,
}

/// What a handler gives.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) message: Vec<u8>,
    /// What is to be on the disk first.
    pub(super) stored: Option<Ticket>,
    /// What is said instead of the message then.
    pub(super) refused: Option<connect::Error>,
}

impl From<Vec<u8>> for Answer {
    fn from(message: Vec<u8>) -> Self {
        Self { message, ..Self::default() }
    }
}

/// Answers a call whose message has as many bytes at most as such a request may have, compressed or not.
pub(super) async fn call(
    profiles: &Profiles,
    kind: Kind,
    request: Request,
    handler: impl FnOnce(&Call<'_>) -> Result<Answer, connect::Error> + Send + 'static,
) -> Response {
    let Some(framing) = Framing::of(request.headers()) else {
        let words = "what is called has the content type application/proto, application/json, application/grpc or application/grpc-web\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, words).into_response();
    };
    if framing.protocol == Protocol::Grpc && request.version() < Version::HTTP_2 {
        return (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC comes over HTTP/2\n")
            .into_response();
    }
    let deadline = framing.deadline(request.headers());
    let work = async {
        let work = move |inner: &Inner, tenant: &Tenant, headers: &HeaderMap, body: &[u8]| {
            let message = framing.open(headers, body, inner.most_bytes(tenant, kind))?;
            let encoding = framing.encoding;
            let call = Call { inner, tenant, headers, message: &message, encoding };
            let Answer { message, stored, refused } = handler(&call)?;
            Ok((framing.pack(headers, message), stored, refused))
        };
        let (message, stored, refused) = profiles.work(kind, request, work).await?;
        if let Some(stored) = stored {
            stored.await.map_err(|error| of_store(&error))?;
        }
        refused.map_or(Ok(message), Err)
    };
    let done = match deadline {
        Some(deadline) => tokio::time::timeout(deadline, work).await.unwrap_or_else(|_elapsed| {
            let words = format!("not done within the {deadline:?} that the request gives");
            Err(connect::Error::new(Code::DeadlineExceeded, words))
        }),
        None => work.await,
    };
    framing.respond(done.map_err(|error| match kind {
        Kind::Push => unless_it_may_fit(error),
        Kind::Question => error,
    }))
}

/// What is more than is ever taken is no good request, as Pyroscope says: whoever is told that something is exhausted sends it again.
fn unless_it_may_fit(error: connect::Error) -> connect::Error {
    match (error.code, error.retry_after) {
        (Code::ResourceExhausted, None) => connect::Error::invalid(error.message),
        _ => error,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Connect,
    Grpc,
    GrpcWeb,
}

/// How a request is written, and its answer.
#[derive(Debug, Clone, Copy)]
struct Framing {
    protocol: Protocol,
    encoding: Encoding,
    content_type: &'static str,
}

/// The message of an answer.
#[derive(Debug)]
struct Packed {
    message: Vec<u8>,
    is_compressed: bool,
}

impl Framing {
    const ALL: [Self; 9] = [
        Self::new(Protocol::Connect, Encoding::Proto, "application/proto"),
        Self::new(Protocol::Connect, Encoding::Proto, "application/protobuf"),
        Self::new(Protocol::Connect, Encoding::Json, "application/json"),
        Self::new(Protocol::Grpc, Encoding::Proto, "application/grpc"),
        Self::new(Protocol::Grpc, Encoding::Proto, "application/grpc+proto"),
        Self::new(Protocol::Grpc, Encoding::Json, "application/grpc+json"),
        Self::new(Protocol::GrpcWeb, Encoding::Proto, "application/grpc-web"),
        Self::new(Protocol::GrpcWeb, Encoding::Proto, "application/grpc-web+proto"),
        Self::new(Protocol::GrpcWeb, Encoding::Json, "application/grpc-web+json"),
    ];

    const fn new(protocol: Protocol, encoding: Encoding, content_type: &'static str) -> Self {
        Self { protocol, encoding, content_type }
    }

    fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or_default().trim();
        Self::ALL.into_iter().find(|known| kind.eq_ignore_ascii_case(known.content_type))
    }

    /// The time that a request gives.
    fn deadline(&self, headers: &HeaderMap) -> Option<Duration> {
        let said = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        match self.protocol {
            Protocol::Connect => said(CONNECT_TIMEOUT_MS)?.parse().ok().map(Duration::from_millis),
            Protocol::Grpc | Protocol::GrpcWeb => grpc::timeout(said(GRPC_TIMEOUT)?),
        }
    }

    /// The message of a body.
    fn open<'b>(
        &self,
        headers: &HeaderMap,
        body: &'b [u8],
        most: usize,
    ) -> Result<Cow<'b, [u8]>, connect::Error> {
        let (is_compressed, message) = match self.protocol {
            Protocol::Connect => (is_gzip(headers, header::CONTENT_ENCODING)?, body),
            Protocol::Grpc | Protocol::GrpcWeb => {
                let says_gzip = is_gzip(headers, GRPC_ENCODING)?;
                let (is_compressed, message) = grpc::unframe(body)?;
                if is_compressed && !says_gzip {
                    let words = "a message is compressed, but no grpc-encoding says how";
                    return Err(connect::Error::new(Code::Internal, words));
                }
                (is_compressed, message)
            }
        };
        let plain = if is_compressed { ungzip(message, most)? } else { Cow::Borrowed(message) };
        if plain.len() > most {
            let words = format!("the message has more than {most} bytes");
            return Err(connect::Error::new(Code::ResourceExhausted, words));
        }
        Ok(plain)
    }

    /// Compresses what is worth it, for those who take it.
    fn pack(&self, headers: &HeaderMap, message: Vec<u8>) -> Packed {
        let accepts = match self.protocol {
            Protocol::Connect => header::ACCEPT_ENCODING,
            Protocol::Grpc | Protocol::GrpcWeb => GRPC_ACCEPT_ENCODING,
        };
        if message.len() >= MIN_GZIP_BYTES && takes_gzip(headers, &accepts) {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            // Memory takes all that is written to it.
            if let Ok(message) = gzip.write_all(&message).and_then(|()| gzip.finish()) {
                return Packed { message, is_compressed: true };
            }
        }
        Packed { message, is_compressed: false }
    }

    fn respond(&self, done: Result<Packed, connect::Error>) -> Response {
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        let gzip = HeaderValue::from_static("gzip");
        let (mut response, is_compressed) = match (self.protocol, done) {
            (Protocol::Connect, Err(error)) => return Failed(error).into_response(),
            (Protocol::Connect, Ok(Packed { message, is_compressed })) => {
                let content_type = [(header::CONTENT_TYPE, self.encoding.content_type())];
                let mut response = (content_type, message).into_response();
                if is_compressed {
                    response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
                }
                return response;
            }
            (Protocol::Grpc, Err(error)) => {
                let mut response = Response::new(Body::empty());
                response.headers_mut().extend(fields(grpc::trailers(Some(&error))));
                (response, false)
            }
            (Protocol::Grpc, Ok(Packed { message, is_compressed })) => {
                let body = Full::new(Bytes::from(grpc::frame(&message, is_compressed)));
                let trailers = HeaderMap::from_iter(fields(grpc::trailers(None)));
                let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
                (Response::new(Body::new(body)), is_compressed)
            }
            (Protocol::GrpcWeb, done) => {
                let error = done.as_ref().err();
                let trailers = grpc::trailers_frame(grpc::trailers(error));
                let packed = done.ok();
                let is_compressed = packed.as_ref().is_some_and(|packed| packed.is_compressed);
                let message = packed.map(|packed| grpc::frame(&packed.message, is_compressed));
                let body = [message.unwrap_or_default(), trailers].concat();
                (Response::new(Body::from(body)), is_compressed)
            }
        };
        let headers = response.headers_mut();
        headers.extend([content_type, (GRPC_ACCEPT_ENCODING, gzip.clone())]);
        if is_compressed {
            headers.insert(GRPC_ENCODING, gzip);
        }
        response
    }
}

/// Trailers as fields. What was made for them is no other text than fields have.
fn fields(
    trailers: Vec<(&'static str, String)>,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    trailers.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    })
}

/// Whether a field says gzip; other encodings are refused.
fn is_gzip(headers: &HeaderMap, name: HeaderName) -> Result<bool, connect::Error> {
    match headers.get(name).map(HeaderValue::to_str) {
        None | Some(Ok("" | "identity")) => Ok(false),
        Some(Ok("gzip")) => Ok(true),
        Some(_) => Err(connect::Error::new(Code::Unimplemented, "messages are plain or in gzip")),
    }
}

/// Whether gzip is among what is taken, in the order of the field or by weight.
fn takes_gzip(headers: &HeaderMap, accepts: &HeaderName) -> bool {
    let said = headers.get_all(accepts).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|said| said.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let is_none = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim() == "gzip" && !is_none
    })
}

fn ungzip(bytes: &[u8], most: usize) -> Result<Cow<'_, [u8]>, connect::Error> {
    wire::proto::ungzip(bytes, most).map_err(|error: DecodeError| {
        let code = match error.wrong {
            Wrong::TooMany { .. } => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        connect::Error::new(code, error.to_string())
    })
}
