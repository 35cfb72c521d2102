//! OTLP over HTTP: spans to `/v1/traces`, events that are in no span to `/v1/logs`.
//!
//! Spans of which one end is still to come are noted beside the journal with the entries that they were read from, so that these need not
//! be kept. Who is killed between an answer and its note sends spans again, with the same ids.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use journal::Entry;
use prost::Message;
use records::{
    Assembler, EntryKind, Event, Limits, Process, RingBatch, Span, logs_request, traces_request,
};
use tokio::runtime::Runtime;
use webclient::{Answer, Client, Headers, PRODUCT, Version, exchange, retry_after, shown};
use wire::otlp::may_be_repeated;

use super::points::Points;
use super::{Driver, Outcome};
use crate::clock;
use crate::error::{Error, On, Result};
use crate::known::{checked, write_checked};

/// Spans, or events, of a request.
const MOST: usize = 512;
/// How long a collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

pub(super) struct Otlp {
    client: Client,
    runtime: Runtime,
    traces: Uri,
    logs: Uri,
    headers: Headers,
    machine: Vec<(String, String)>,
    state: PathBuf,
    assembler: Assembler,
    /// Entries before this one are in the assembler, or behind it.
    added: u64,
    /// What is behind the assembler and not delivered.
    spans: Vec<Span>,
    events: Vec<Event>,
    points: Points,
    /// Records that the collector did not take, of entries that are not acknowledged.
    rejected: u64,
}

/// What a collector said.
enum Said {
    Taken { rejected: u64 },
    Never(String),
    Again(Option<Duration>, String),
}

impl Otlp {
    pub(super) fn open(
        uri: &Uri,
        headers: Headers,
        state: PathBuf,
        machine: &[(String, String)],
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let is_encrypted = uri.scheme_str() == Some("https");
        let client = webclient::new(is_encrypted, Version::Http1, None, None);
        let client = client.map_err(|error| Error::Client(Box::new(error)))?;
        let (added, assembler, points) = restored(&state)?;
        Ok(Self {
            client,
            runtime: runtime.map_err(Error::Thread)?,
            traces: below(uri, "v1/traces"),
            logs: below(uri, "v1/logs"),
            headers,
            machine: machine.to_vec(),
            state,
            assembler,
            added,
            spans: Vec::new(),
            events: Vec::new(),
            points,
            rejected: 0,
        })
    }

    fn add(&mut self, entry: &Entry) {
        let added = match EntryKind::from_code(entry.header.kind) {
            Some(EntryKind::Ring) => RingBatch::decode(&entry.payload).and_then(|batch| {
                self.points.add_batch(&batch)?;
                self.assembler.add(&batch, entry.header.time)
            }),
            Some(EntryKind::Notified) => self.points.add_entry(&entry.payload),
            Some(EntryKind::ProcessEnded) => {
                Process::decode(&entry.payload).map(|process| self.assembler.end_process(&process))
            }
            None => Ok(()),
        };
        if let Err(error) = added {
            let entry = entry.header.position.entry;
            tracing::warn!(entry, error = model::with_causes(&error), "an entry cannot be read");
        }
        self.added = entry.header.end().entry;
    }

    /// Sends what is ready; stops where the collector does not take it.
    fn send(&mut self) -> Outcome {
        let (spans, events) = self.assembler.take(clock::now());
        self.spans.extend(spans);
        self.events.extend(events);
        while !self.spans.is_empty() {
            let some = self.spans.get(..MOST).unwrap_or(&self.spans);
            let request = traces_request(some, &self.machine).encode_to_vec();
            let (len, records) = (some.len(), some.iter().map(|it| u64::from(it.records)).sum());
            if let Some(again) = self.post(&self.traces.clone(), &request, len, records) {
                return again;
            }
            self.spans.drain(..len);
        }
        while let Some((request, len, records)) = self.points.request(MOST) {
            let request = request.encode_to_vec();
            if let Some(again) = self.post(&self.traces.clone(), &request, len, records) {
                return again;
            }
            self.points.sent(len);
        }
        while !self.events.is_empty() {
            let some = self.events.get(..MOST).unwrap_or(&self.events);
            let request = logs_request(some, &self.machine).encode_to_vec();
            let len = some.len();
            if let Some(again) = self.post(&self.logs.clone(), &request, len, len as u64) {
                return again;
            }
            self.events.drain(..len);
        }
        if let Err(error) = self.note() {
            return Outcome::Again(None, model::with_causes(&error));
        }
        self.rejected += self.points.take_of_none();
        match std::mem::take(&mut self.rejected) {
            0 => Outcome::Taken,
            rejected => Outcome::Rejected(rejected),
        }
    }

    /// Posts so many spans or events, which were so many records. Gives what is in the way.
    fn post(&mut self, to: &Uri, request: &[u8], len: usize, records: u64) -> Option<Outcome> {
        match self.said(to, request) {
            Said::Taken { rejected } => {
                // Of spans each is about as many records as the others.
                let share = rejected.min(len as u64) * records / (len as u64).max(1);
                self.rejected += share;
            }
            Said::Never(why) => {
                tracing::warn!(to = %to, why, "a collector refuses a request: it is dropped");
                self.rejected += records;
            }
            Said::Again(after, why) => return Some(Outcome::Again(after, why)),
        }
        None
    }

    fn said(&self, to: &Uri, body: &[u8]) -> Said {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = gzip.write_all(body).and_then(|()| gzip.finish());
        let Ok(packed) = packed else { return Said::Never("no gzip".to_owned()) };
        let mut request = Request::new(Full::new(Bytes::from(packed)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = to.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
        self.headers.apply(headers);
        headers.insert(CONTENT_TYPE, PROTOBUF);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, PROTOBUF);
        let answer = self.runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, exchange(&self.client, request)).await
        });
        match answer {
            Ok(Ok(answer)) => judge(&answer),
            Ok(Err(why)) => Said::Again(None, why),
            Err(_elapsed) => Said::Again(None, format!("no answer within {TIMEOUT:?}")),
        }
    }

    /// Notes what waits for its other end, and of which entries it is.
    fn note(&self) -> Result<()> {
        let saved = self.assembler.save().map_err(io::Error::other).on("write", &self.state)?;
        let noted = (self.added, saved, self.points.open());
        let noted =
            postcard::to_allocvec(&noted).map_err(io::Error::other).on("write", &self.state)?;
        write_checked(&self.state, &noted)
    }
}

impl Driver for Otlp {
    fn deliver(&mut self, entries: &[Entry]) -> Outcome {
        let added = self.added;
        entries.iter().filter(|it| it.header.position.entry >= added).for_each(|it| self.add(it));
        self.send()
    }

    fn idle(&mut self) -> Outcome {
        let partial = self.assembler.partial();
        let (spans, events) = self.assembler.take(clock::now());
        let is_nothing = partial == self.assembler.partial()
            && spans.is_empty()
            && events.is_empty()
            && self.spans.is_empty()
            && self.events.is_empty()
            && self.points.is_idle(clock::now());
        self.spans.extend(spans);
        self.events.extend(events);
        if is_nothing { Outcome::Taken } else { self.send() }
    }
}

/// Up to which entry there is what waits for its other end.
fn restored(state: &PathBuf) -> Result<(u64, Assembler, Points)> {
    let bytes = match fs::read(state) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((0, Assembler::new(Limits::default()), Points::default()));
        }
        Err(error) => return Err(error).on("read", state),
    };
    let restored = checked(&bytes).and_then(|bytes| {
        let (added, saved, open): (u64, Vec<u8>, Vec<String>) = postcard::from_bytes(bytes).ok()?;
        let assembler = Assembler::restore(Limits::default(), &saved).ok()?;
        Some((added, assembler, Points::restore(&open)))
    });
    restored.ok_or_else(|| Error::Damaged { path: state.clone() })
}

fn below(uri: &Uri, path: &str) -> Uri {
    let mut parts = uri.clone().into_parts();
    let base = uri.path().trim_end_matches('/');
    parts.path_and_query = format!("{base}/{path}").parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_no_uri| uri.clone())
}

/// What an answer means (OTLP specification, "OTLP/HTTP Response").
fn judge(answer: &Answer) -> Said {
    let status = answer.status;
    if status.is_success() {
        let partial = wire::otlp::Answer::decode(answer.body.clone()).ok();
        let partial = partial.and_then(|it| it.partial_success).unwrap_or_default();
        return Said::Taken { rejected: partial.rejected.try_into().unwrap_or(0) };
    }
    let why = format!("{status}: {}", shown(&answer.body));
    if may_be_repeated(status.as_u16()) {
        Said::Again(retry_after(&answer.headers), why)
    } else {
        Said::Never(why)
    }
}
