//! OTLP over HTTP (OTLP specification, "OTLP/HTTP").

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use prost::Message;
use webclient::{Answer, Client, Headers, PRODUCT, exchange, retry_after, shown};
use wire::otlp::may_be_repeated;

use super::Attempt;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// `ExportProfilesServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `ExportProfilesPartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_profiles: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`, the body of an answer that says no.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Debug)]
pub(super) struct OtlpHttp {
    client: Client,
    uri: Uri,
    headers: Headers,
}

impl OtlpHttp {
    pub(super) fn new(client: Client, uri: Uri, headers: Headers) -> Self {
        Self { client, uri, headers }
    }

    pub(super) async fn send(&self, packet: Bytes) -> Attempt {
        let mut request = Request::new(Full::new(packet));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.uri);
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        self.headers.apply(headers);
        headers.insert(CONTENT_TYPE, PROTOBUF);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, PROTOBUF);
        match exchange(&self.client, request).await {
            Ok(answer) => judge(&answer),
            Err(why) => Attempt::Again { after: None, why },
        }
    }
}

/// What an answer means (OTLP specification, "OTLP/HTTP Response").
fn judge(answer: &Answer) -> Attempt {
    let status = answer.status;
    if status.is_success() {
        return delivered(&answer.body);
    }
    let is_protobuf = answer.headers.get(CONTENT_TYPE) == Some(&PROTOBUF);
    let said = match RpcStatus::decode(answer.body.clone()) {
        Ok(said) if is_protobuf => shown(said.message.as_bytes()),
        _ => shown(&answer.body),
    };
    let why = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
    if may_be_repeated(status.as_u16()) {
        Attempt::Again { after: retry_after(&answer.headers), why }
    } else {
        Attempt::Refused { why }
    }
}

/// What a target that took a packet says of it; an answer that cannot be read says nothing.
pub(super) fn delivered(answer: &[u8]) -> Attempt {
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let partial = partial.unwrap_or_default();
    if !partial.error_message.is_empty() {
        let message = shown(partial.error_message.as_bytes());
        tracing::warn!(rejected_profiles = partial.rejected_profiles, %message, "partial success");
    }
    let rejected_profiles = u64::try_from(partial.rejected_profiles).unwrap_or(0);
    Attempt::Delivered { rejected_profiles }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;
    use http::header::RETRY_AFTER;

    use super::*;

    fn judged(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &'static [u8],
    ) -> Attempt {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let headers: HeaderMap = headers.collect();
        let status = http::StatusCode::from_u16(status).unwrap();
        let body = Bytes::from_static(body);
        judge(&Answer { status, headers, body, trailers: HeaderMap::new() })
    }

    #[test]
    fn only_what_the_protocol_names_is_sent_again() {
        let protobuf = ("content-type", "application/x-protobuf");
        for status in [429, 502, 503, 504] {
            let answer = judged(status, &[(RETRY_AFTER.as_str(), "7")], b"");
            let Attempt::Again { after, .. } = answer else { panic!("{status}: {answer:?}") };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            let answer = judged(status, &[(RETRY_AFTER.as_str(), "7")], b"no\n\x1b[31m");
            let Attempt::Refused { why } = answer else { panic!("{status}: {answer:?}") };
            assert!(why.contains(&status.to_string()) && why.contains("no"), "{why}");
            assert!(!why.contains(char::is_control), "{why}");
        }
        let said = judged(400, &[protobuf], b"\x08\x03\x12\x04zero");
        assert_eq!(said, Attempt::Refused { why: "400 Bad Request: zero".to_owned() });
    }

    #[test]
    fn partial_success_is_counted_and_never_sent_again() {
        let rejected = |body| match judged(200, &[], body) {
            Attempt::Delivered { rejected_profiles } => rejected_profiles,
            other => panic!("{other:?}"),
        };
        assert_eq!(rejected(b""), 0);
        assert_eq!(rejected(b"\x0a\x05\x08\x03\x12\x01x"), 3);
        assert_eq!(rejected(b"\x0a\x03\x12\x01x"), 0);
        assert_eq!(rejected(b"<html>"), 0);
    }
}
