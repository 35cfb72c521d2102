//! OTLP over gRPC (OTLP specification, "OTLP/gRPC"; gRPC over HTTP2).
//!
//! ```text
//! message: compressed u8 (0 or 1), length u32 big endian, bytes
//! ```
//! A packet goes over the wire as it lies in the spool: it is compressed once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use profile::{Limits, ungzip};
use prost::Message;
use webclient::{Answer, Client, Headers, PRODUCT, exchange, shown};
use wire::otlp::may_be_repeated;

use super::Attempt;
use super::http::delivered;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";

/// Padding may be there or not (gRPC over HTTP2, "Custom-Metadata").
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Codes of gRPC that are looked at.
const OK: u32 = 0;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Debug)]
pub(super) struct OtlpGrpc {
    client: Client,
    uri: Uri,
    headers: Headers,
    /// The server said that it does not know gzip.
    is_plain: AtomicBool,
}

impl OtlpGrpc {
    pub(super) fn new(client: Client, uri: Uri, headers: Headers) -> Self {
        Self { client, uri, headers, is_plain: AtomicBool::new(false) }
    }

    pub(super) async fn send(&self, packet: Bytes) -> Attempt {
        if self.is_plain.load(Ordering::Relaxed) {
            return self.send_plain(&packet).await;
        }
        match exchange(&self.client, self.request(true, &packet)).await {
            Ok(answer) if knows_no_gzip(&answer) => {
                self.is_plain.store(true, Ordering::Relaxed);
                self.send_plain(&packet).await
            }
            Ok(answer) => judge(&answer),
            Err(why) => Attempt::Again { after: None, why },
        }
    }

    async fn send_plain(&self, packet: &[u8]) -> Attempt {
        let plain = match ungzip(packet, Limits::default()) {
            Ok(plain) => plain,
            Err(error) => return Attempt::Refused { why: error.to_string() },
        };
        match exchange(&self.client, self.request(false, &plain)).await {
            Ok(answer) => judge(&answer),
            Err(why) => Attempt::Again { after: None, why },
        }
    }

    fn request(&self, is_compressed: bool, message: &[u8]) -> Request<Full<Bytes>> {
        let mut frame = BytesMut::with_capacity(message.len() + 5);
        frame.put_u8(u8::from(is_compressed));
        // A packet is 64 MiB at most.
        frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        frame.put_slice(message);
        let mut request = Request::new(Full::new(frame.freeze()));
        *request.method_mut() = Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        request.uri_mut().clone_from(&self.uri);
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        self.headers.apply(headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if is_compressed {
            headers.insert(ENCODING, HeaderValue::from_static("gzip"));
        }
        request
    }
}

/// An answer's status: in the trailers, or in the headers where nothing else came.
fn status(answer: &Answer) -> Option<(u32, &HeaderMap)> {
    let of = |headers: &HeaderMap| headers.get(STATUS)?.to_str().ok()?.parse().ok();
    let both = [&answer.trailers, &answer.headers];
    both.into_iter().find_map(|headers| Some((of(headers)?, headers)))
}

fn knows_no_gzip(answer: &Answer) -> bool {
    let knows = |headers: &HeaderMap| {
        let known = headers.get_all(ACCEPT_ENCODING).iter();
        known.filter_map(|it| it.to_str().ok()).any(|it| it.contains("gzip"))
    };
    status(answer).is_some_and(|(code, _)| code == UNIMPLEMENTED)
        && [&answer.headers, &answer.trailers].iter().any(|it| it.contains_key(ACCEPT_ENCODING))
        && !knows(&answer.headers)
        && !knows(&answer.trailers)
}

/// What an answer means (OTLP specification, "OTLP/gRPC Response" and "Failures").
fn judge(answer: &Answer) -> Attempt {
    let Some((code, said)) = status(answer) else {
        // From something between, that speaks no gRPC.
        let why = answer.status.to_string();
        let is_cut = answer.status == StatusCode::OK;
        return match is_cut || may_be_repeated(answer.status.as_u16()) {
            true => Attempt::Again { after: None, why },
            false => Attempt::Refused { why },
        };
    };
    if code == OK {
        return delivered(answer.body.get(5..).unwrap_or_default());
    }
    let text = said.get(MESSAGE).map(|text| percent_decode_str(text.to_str().unwrap_or_default()));
    let text = text.map(|text| shown(&text.collect::<Vec<u8>>())).unwrap_or_default();
    let why = format!("{}: {text}", name(code));
    let after = retry_info(said);
    match code {
        RESOURCE_EXHAUSTED if after.is_none() => Attempt::Refused { why },
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | RESOURCE_EXHAUSTED | 10 | 11 | 14 | 15 => Attempt::Again { after, why },
        _ => Attempt::Refused { why },
    }
}

/// How long a server wants to be left alone.
fn retry_info(headers: &HeaderMap) -> Option<Duration> {
    let details = BASE64.decode(headers.get(DETAILS)?.as_bytes()).ok()?;
    let status = RpcStatus::decode(&*details).ok()?;
    let is_retry_info = |any: &&Any| any.type_url.ends_with("/google.rpc.RetryInfo");
    let info = status.details.iter().find(is_retry_info)?;
    let delay = RetryInfo::decode(info.value.clone()).ok()?.retry_delay.unwrap_or_default();
    let seconds = u64::try_from(delay.seconds).unwrap_or(0);
    Some(Duration::new(seconds, u32::try_from(delay.nanos).unwrap_or(0).min(999_999_999)))
}

/// The codes of gRPC by name (grpc/grpc, `doc/statuscodes.md`).
fn name(code: u32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code as usize).map_or_else(|| format!("code {code}"), |&name| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, trailers: &[(&'static str, &str)]) -> Attempt {
        let trailers = trailers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        judge(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"\0\0\0\0\x07\x0a\x05\x08\x03\x12\x01x"),
            trailers: trailers.collect(),
        })
    }

    #[test]
    fn only_what_the_protocol_names_is_sent_again() {
        assert_eq!(judged(200, &[(STATUS, "0")]), Attempt::Delivered { rejected_profiles: 3 });
        for code in 1..=16 {
            let answer = judged(200, &[(STATUS, &code.to_string()), (MESSAGE, "not%20now")]);
            match ([1, 4, 10, 11, 14, 15].contains(&code), answer) {
                (true, Attempt::Again { after: None, why }) | (false, Attempt::Refused { why }) => {
                    assert!(why.ends_with(": not now"), "{why}");
                }
                (_, answer) => panic!("{code}: {answer:?}"),
            }
        }
        for (status, is_again) in [(200, true), (503, true), (404, false), (401, false)] {
            let answer = judged(status, &[]);
            assert_eq!(matches!(answer, Attempt::Again { .. }), is_again, "{status}");
        }
    }

    #[test]
    fn a_server_that_has_had_enough_is_asked_again_when_it_says_when() {
        let delay = RetryInfo { retry_delay: Some(Delay { seconds: 3, nanos: 500_000_000 }) };
        let any = Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: delay.encode_to_vec().into(),
        };
        let details = RpcStatus { details: vec![Any::default(), any] }.encode_to_vec();
        let text = BASE64.encode(&details);
        for text in [text.trim_end_matches('='), &text] {
            let answer = judged(200, &[(STATUS, "8"), (DETAILS, text)]);
            let Attempt::Again { after, .. } = answer else { panic!("{answer:?}") };
            assert_eq!(after, Some(Duration::from_millis(3_500)));
        }
        let answer = judged(200, &[(STATUS, "8"), (DETAILS, "!!")]);
        assert!(matches!(answer, Attempt::Refused { .. }), "{answer:?}");
        let answer = judged(200, &[(STATUS, "3"), (DETAILS, &text)]);
        assert!(matches!(answer, Attempt::Refused { .. }), "{answer:?}");
    }
}
