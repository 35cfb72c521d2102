//! Pyroscope's `push.v1` (grafana/pyroscope, `api/push/v1/push.proto`), as a unary call of the Connect protocol.
//!
//! A packet becomes a request with a series for each set of labels: processes of one service with the same attributes are one series, with
//! one pprof profile.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request as HttpRequest, Uri};
use http_body_util::Full;
use profile::request::{Dictionary, Profile, ResourceProfiles};
use profile::view::pprof_of_series;
use profile::{DecodeError, Limits, Request, keys, ungzip};
use prost::Message;
use webclient::{Answer, Client, Headers, PRODUCT, exchange, retry_after, shown};
use wire::otlp::may_be_repeated;

use super::Attempt;

/// Labels that Pyroscope takes of one series unless it is told otherwise, and bytes of a name and a value.
const MAX_LABELS: usize = 30;
const MAX_NAME: usize = 1_024;
const MAX_VALUE: usize = 2_048;

/// Attributes of a process that would make a series of each.
const LEFT_OUT: [&str; 2] = [keys::EXECUTABLE_PATH, keys::CGROUP];

/// `PushRequest`.
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

/// `RawProfileSeries`.
#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

/// `types.v1.LabelPair`.
#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `RawSample`.
#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "bytes", tag = "1")]
    raw_profile: Bytes,
    #[prost(string, tag = "2")]
    id: String,
}

#[derive(Debug)]
pub(super) struct Pyroscope {
    client: Client,
    uri: Uri,
    headers: Headers,
}

impl Pyroscope {
    pub(super) fn new(client: Client, uri: Uri, headers: Headers) -> Self {
        Self { client, uri, headers }
    }

    pub(super) async fn send(&self, packet: Bytes) -> Attempt {
        let made = tokio::task::spawn_blocking(move || push_request(&packet)).await;
        let body = match made {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return Attempt::Refused { why: error.to_string() },
            Err(error) => return Attempt::Refused { why: error.to_string() },
        };
        let mut request = HttpRequest::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        request.uri_mut().clone_from(&self.uri);
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        self.headers.apply(headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/proto"));
        let version = HeaderName::from_static("connect-protocol-version");
        headers.insert(version, HeaderValue::from_static("1"));
        match exchange(&self.client, request).await {
            Ok(answer) => judge(&answer),
            Err(why) => Attempt::Again { after: None, why },
        }
    }
}

fn judge(answer: &Answer) -> Attempt {
    let status = answer.status;
    if status.is_success() {
        return Attempt::Delivered { rejected_profiles: 0 };
    }
    let why = format!("{status}: {}", shown(&answer.body));
    match may_be_repeated(status.as_u16()) {
        true => Attempt::Again { after: retry_after(&answer.headers), why },
        false => Attempt::Refused { why },
    }
}

/// A packet in gzip as the bytes of a `PushRequest`.
fn push_request(packet: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let bytes = ungzip(packet, Limits::default())?;
    let Request { dictionary, resources } = Request::decode(&bytes, Limits::default())?;
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<ResourceProfiles<'_>>> = BTreeMap::new();
    for ResourceProfiles { attributes, scopes, profiles } in resources {
        for profile in profiles {
            let alone = ResourceProfiles {
                attributes: attributes.clone(),
                scopes,
                profiles: vec![profile],
            };
            groups.entry(labels(&dictionary, &alone)).or_default().push(alone);
        }
    }
    // The tables are large and the same for all.
    let mut request = Request { dictionary, resources: Vec::new() };
    let mut series = Vec::new();
    for (labels, resources) in groups {
        let first = resources.first().and_then(|resource| resource.profiles.first());
        let id = first.map(|profile| uuid(profile.profile_id)).unwrap_or_default();
        request.resources = resources;
        let sample = RawSample { raw_profile: pprof_of_series(&request).into(), id };
        let labels = labels.into_iter().map(|(name, value)| LabelPair { name, value });
        series.push(Series { labels: labels.collect(), samples: vec![sample] });
    }
    Ok(PushRequest { series }.encode_to_vec())
}

/// Labels of a process's series, by name.
fn labels(d: &Dictionary<'_>, resource: &ResourceProfiles<'_>) -> Vec<(String, String)> {
    let of_process = |key| resource.find_text(d, key).filter(|text| !text.is_empty());
    let service = of_process(keys::SERVICE_NAME).or_else(|| of_process(keys::EXECUTABLE_NAME));
    let kind = resource.profiles.first().map_or("", |profile| name(d, profile));
    let mut labels = BTreeMap::from([
        ("__name__".to_owned(), kind.to_owned()),
        ("service_name".to_owned(), cut(service.unwrap_or("unknown_service"), MAX_VALUE)),
    ]);
    for attribute in &resource.attributes {
        let (key, value) = (d.key(attribute), d.text(attribute.value).unwrap_or_default());
        let is_wanted = !value.is_empty() && !key.is_empty() && key.len() <= MAX_NAME;
        if is_wanted && !LEFT_OUT.contains(&key) && labels.len() < MAX_LABELS {
            labels.entry(key.to_owned()).or_insert_with(|| cut(value, MAX_VALUE));
        }
    }
    labels.into_iter().collect()
}

/// What Pyroscope calls a kind of profile.
fn name<'a>(d: &Dictionary<'a>, profile: &Profile<'_>) -> &'a str {
    match d.string(profile.sample_type.kind) {
        "samples" | "cpu" => "process_cpu",
        other => other,
    }
}

fn cut(text: &str, most: usize) -> String {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned()
}

/// A profile's id as text; the same for the same packet.
fn uuid(id: &[u8]) -> String {
    let digits: String = id.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range));
    let parts: Option<Vec<&str>> = parts.into_iter().collect();
    parts.map(|parts| parts.join("-")).unwrap_or_default()
}
