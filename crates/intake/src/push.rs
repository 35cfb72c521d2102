//! `push.v1.PusherService/Push`: profiles in pprof with the labels of their series.
//!
//! ```text
//! PushRequest       1 series            RawProfileSeries  1 labels 2 samples
//! LabelPair         1 name 2 value      RawSample         1 raw_profile, pprof plain or in gzip 2 ID, a UUID
//! ```
//! Source: `api/push/v1/push.proto` of grafana/pyroscope.

use model::Timestamp;
use wire::proto::Reader;

use crate::error::Error;
use crate::id::{digest, uuid};
use crate::identity::Identity;
use crate::json::{self, Kind, Message};
use crate::limits::Limits;
use crate::{Request, Taken};

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The bytes of Protocol Buffers.
    Protobuf,
    /// JSON.
    Json,
}

static REQUEST: Message = Message(&[("series", 1, Kind::Message(&SERIES))]);
static SERIES: Message =
    Message(&[("labels", 1, Kind::Message(&LABEL)), ("samples", 2, Kind::Message(&SAMPLE))]);
static LABEL: Message = Message(&[("name", 1, Kind::Text), ("value", 2, Kind::Text)]);
static SAMPLE: Message = Message(&[("raw_profile", 1, Kind::Bytes), ("id", 2, Kind::Text)]);

/// A `PushRequest`, plain or in gzip. The id of a profile is its UUID; one without is named after its series and bytes.
///
/// # Errors
///
/// The body is no such message or has too many profiles: none was taken. Errors of single profiles stand in the answer.
pub fn push(
    body: &[u8],
    encoding: Encoding,
    limits: &Limits,
    received: Timestamp,
) -> Result<Taken, Error> {
    let mut request = Request::new(body, limits, received);
    let plain = request.ungzip(body, limits.body_bytes)?;
    let bytes = match encoding {
        Encoding::Protobuf => plain,
        Encoding::Json => json::encode(&plain, &REQUEST, limits)?.into(),
    };
    if bytes.len() > limits.body_bytes {
        return Err(Error::TooMany { what: "bytes of a request", limit: limits.body_bytes });
    }
    let mut reader = Reader::new(&bytes, "push_request");
    while let Some((field, value)) = reader.field()? {
        if field == 1 {
            request.series(value.bytes(&reader, "series")?)?;
        }
    }
    Ok(request.taken)
}

impl Request<'_> {
    fn series(&mut self, series: Reader<'_>) -> Result<(), Error> {
        let labels = self.labels(series)?;
        let identity = labels.and_then(Identity::of);
        let mut reader = series;
        while let Some((field, value)) = reader.field()? {
            if field == 2 {
                let (mut inner, mut bytes, mut id) =
                    (value.bytes(&reader, "sample")?, [].as_slice(), "");
                while let Some((field, value)) = inner.field()? {
                    match field {
                        1 => bytes = value.bytes(&inner, "raw_profile")?.bytes,
                        2 => id = value.bytes(&inner, "id")?.text()?,
                        _ => {}
                    }
                }
                let limit = self.limits.profiles;
                if self.taken.profiles.len() >= limit {
                    return Err(Error::TooMany { what: "profiles of a request", limit });
                }
                let id = uuid(id).unwrap_or_else(|| {
                    let shown = identity.as_ref().map_or_else(ToString::to_string, Identity::text);
                    digest([shown.as_bytes(), id.as_bytes(), bytes])
                });
                self.pprof(bytes, id, &identity);
            }
        }
        Ok(())
    }

    /// The labels of a series, unless they are far too many.
    fn labels(
        &self,
        mut reader: Reader<'_>,
    ) -> Result<Result<Vec<(String, String)>, Error>, Error> {
        /// Labels that are sent and not kept.
        const SPARE: usize = 16;
        let limit = self.limits.label_names;
        let (mut labels, mut found) = (Vec::new(), 0);
        while let Some((field, value)) = reader.field()? {
            if field == 1 {
                let mut inner = value.bytes(&reader, "label")?;
                let (mut name, mut text) = ("", "");
                while let Some((field, value)) = inner.field()? {
                    match field {
                        1 => name = value.bytes(&inner, "label.name")?.text()?,
                        2 => text = value.bytes(&inner, "label.value")?.text()?,
                        _ => {}
                    }
                }
                found += 1;
                if found <= limit + SPARE {
                    labels.push((name.to_owned(), text.to_owned()));
                }
            }
        }
        if found > limit + SPARE {
            let names: String =
                labels.iter().take(8).map(|(name, _)| format!("{name:.64}, ")).collect();
            return Ok(Err(Error::Labels { found, limit, names: format!("{names}…") }));
        }
        Ok(Ok(labels))
    }
}
