//! `/ingest`: what clients send that are older than `push.v1`, and text.
//!
//! | `format`, or the content's type | body |
//! |---|---|
//! | none, `groups`, `folded`, `collapsed`, or any other word | `main;work 42`, a line for each stack |
//! | `lines` | `main;work`, a line for each time |
//! | `trie`, `binary/octet-stream+trie` | stacks with common begins |
//! | `tree`, `binary/octet-stream+tree` | a tree of calls |
//! | `pprof` | a profile in pprof |
//! | none and `multipart/form-data` | parts `profile` in pprof and, if wanted, `sample_type_config` in JSON |
//! | `speedscope` | speedscope's JSON |
//! | `jfr` | a flight recording of Java; in a form the parts `jfr` and, if wanted, `labels` |
//!
//! Each may be in gzip, which its first bytes say: what clients say of it in headers is not always so. Names and types are made as
//! Pyroscope makes them: of the application's last part (`app.alloc_space`) for text and trees, of the sample types for pprof. Samples of
//! time that have a rate become nanoseconds.

mod form;
mod kinds;
mod query;
mod speedscope;
mod text;
mod time;
mod tree;

use std::borrow::Cow;

use model::Timestamp;
use model::samples::{FrameId, StackId};
use wire::proto::is_gzip;

use self::kinds::{Counted, SampleTypes};
use crate::draft::{Draft, Place};
use crate::error::Error;
use crate::identity::Identity;
use crate::jfr::{self, Snapshot};
use crate::limits::Limits;
use crate::pprof::{Conversion, Tables};
use crate::{Accepted, Request, Taken};

pub(crate) use self::kinds::metric;
pub use self::query::Query;
pub use self::time::parse as time;

/// In a second.
const NANOSECONDS: f64 = 1e9;

/// A request to `/ingest`.
#[derive(Debug, Clone, Copy)]
pub struct Ingest<'a> {
    /// What stands behind the question mark of its address.
    pub query: &'a str,
    /// Its header `Content-Type`; empty if there is none.
    pub content_type: &'a str,
    /// Its body.
    pub body: &'a [u8],
}

/// Takes a request to `/ingest`.
///
/// # Errors
///
/// Its address is wrong ([`crate::ErrorKind::Query`]), its format is not read here, or its body holds no profile that could be named.
pub fn ingest(ingest: Ingest<'_>, limits: &Limits, received: Timestamp) -> Result<Taken, Error> {
    let Ingest { query, content_type, body } = ingest;
    let query = Query::parse(query, received)?;
    let mut request = Request::new(body, limits, received);
    let is_form = content_type.trim_start().to_ascii_lowercase().starts_with("multipart/form-data");
    match (query.format.as_str(), content_type.trim()) {
        ("trie", _) | (_, "binary/octet-stream+trie") => {
            request.stacks(body, &query, tree::trie)?
        }
        ("tree", _) | (_, "binary/octet-stream+tree") => {
            request.stacks(body, &query, tree::tree)?
        }
        ("lines", _) => request.stacks(body, &query, text::single)?,
        ("jfr", content_type) => {
            let content_type = if is_form { content_type } else { "" };
            request.recording(content_type, body, &query)?;
        }
        ("speedscope", _) => {
            let plain = request.text(body)?;
            speedscope::file(&plain, &query, &mut request)?;
        }
        ("pprof", _) if !is_form => request.pprof_of(body, None, &query)?,
        (_, content_type) if is_form => request.form(content_type, body, &query)?,
        _ => request.stacks(body, &query, text::folded)?,
    }
    Ok(request.taken)
}

impl Request<'_> {
    /// A body that is no pprof.
    fn text<'b>(&mut self, body: &'b [u8]) -> Result<Cow<'b, [u8]>, Error> {
        let plain = self.ungzip(body, self.limits.text_bytes)?;
        if plain.len() > self.limits.text_bytes {
            return Err(Error::TooMany { what: "bytes of text", limit: self.limits.text_bytes });
        }
        Ok(plain)
    }

    /// Takes stacks with values, which `read` finds in a body.
    fn stacks(
        &mut self,
        body: &[u8],
        query: &Query,
        read: fn(&[u8], &mut Target<'_, '_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let counted = kinds::counted(&query.app)?;
        let identity = Identity::of(query.series(counted.name, counted.service))?;
        let plain = self.text(body)?;
        let id = query.profile_id(&plain);
        let outcome = self.stacks_of(&plain, query, counted, &identity, id, read);
        self.end(id, &identity.shown(), outcome);
        Ok(())
    }

    fn stacks_of(
        &mut self,
        bytes: &[u8],
        query: &Query,
        counted: Counted<'_>,
        identity: &Identity,
        id: u128,
        read: fn(&[u8], &mut Target<'_, '_>) -> Result<(), Error>,
    ) -> Result<Accepted, Error> {
        let is_rate = counted.is_time() && query.sample_rate != 0;
        let mut target = Target::new(self, identity, counted, is_rate, query.from)?;
        if is_rate {
            target.factor = 1_000_000_000 / i64::from(query.sample_rate);
        }
        read(bytes, &mut target)?;
        target.finish(id)
    }

    /// Takes a form with a profile in pprof.
    fn form(&mut self, content_type: &str, body: &[u8], query: &Query) -> Result<(), Error> {
        let plain = self.ungzip(body, self.limits.body_bytes)?;
        let parts = form::parts(content_type, &plain)?;
        let part = |wanted| parts.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| *bytes);
        if part("prev_profile").is_some() {
            return Err(Error::Form { why: "has the profile before, too: update the client" });
        }
        let config: Option<SampleTypes> = match part("sample_type_config") {
            Some(bytes) => {
                Some(serde_json::from_slice(bytes).map_err(|error| Error::json(&error))?)
            }
            None => None,
        };
        let profile = part("profile").ok_or(Error::Form { why: "has no part called profile" })?;
        self.pprof_of(profile, config.as_ref(), query)
    }

    /// Takes a flight recording, alone or in a form.
    fn recording(&mut self, content_type: &str, body: &[u8], query: &Query) -> Result<(), Error> {
        if content_type.is_empty() {
            let plain = self.text(body)?;
            return jfr::jfr(&plain, &Snapshot::default(), query, self);
        }
        let body = self.ungzip(body, self.limits.body_bytes)?;
        let parts = form::parts(content_type, &body)?;
        let part = |wanted| parts.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| *bytes);
        let labels = self.text(part("labels").unwrap_or_default())?;
        let labels = Snapshot::decode(&labels, self.limits.sample_labels)?;
        let recording = part("jfr").ok_or(Error::Form { why: "has no part called jfr" })?;
        let plain = self.text(recording)?;
        jfr::jfr(&plain, &labels, query, self)
    }

    /// Takes a profile in pprof, of which the request says the name.
    fn pprof_of(
        &mut self,
        bytes: &[u8],
        config: Option<&SampleTypes>,
        query: &Query,
    ) -> Result<(), Error> {
        let once = self.unpacked(bytes)?;
        let plain = if is_gzip(&once) { self.unpacked(&once)? } else { Cow::Borrowed(&*once) };
        let id = query.profile_id(&plain);
        let tables = Tables::decode(&plain, self.limits)?;
        let types = tables.sample_types()?;
        if types.is_empty() && tables.is_empty() {
            self.end(id, &query.app, Ok(Accepted { id, ..Accepted::default() }));
            return Ok(());
        }
        let identity = Identity::of(query.series(kinds::metric(&types, config), &query.app))?;
        /// The end of 1970: some clients count from their start.
        const YEAR: i64 = 365 * 86_400 * 1_000_000_000;
        let at = match tables.time_ns {
            0..YEAR => query.from,
            time_ns => Timestamp::from_nanos(time_ns),
        };
        let rename = renaming(&query.spy);
        let outcome = self.convert(&tables, &Conversion { identity: &identity, id, at, rename });
        self.end(id, &identity.shown(), outcome);
        Ok(())
    }
}

/// Functions of scripts are called by file and name.
fn renaming(spy: &str) -> Option<fn(&str, &str) -> Option<String>> {
    fn with_file(name: &str, file: &str) -> Option<String> {
        (!file.is_empty()).then(|| format!("{file} {name}"))
    }
    match spy {
        "pyspy" => Some(|name, file| with_file(name, file).filter(|_| !file.starts_with('/'))),
        "rbspy" | "scripting" => Some(with_file),
        _ => None,
    }
}

/// The only series of a profile, to which stacks are added.
struct Target<'r, 'l> {
    request: &'r mut Request<'l>,
    draft: Draft,
    series: u32,
    at: Timestamp,
    /// What a value of 1 stands for.
    factor: i64,
}

impl<'r, 'l> Target<'r, 'l> {
    /// A series of what is counted, or of nanoseconds where that is time.
    fn new(
        request: &'r mut Request<'l>,
        identity: &Identity,
        counted: Counted<'_>,
        is_time: bool,
        at: Timestamp,
    ) -> Result<Self, Error> {
        let kind = match (is_time, counted.name) {
            (false, _) => identity.kind((counted.kind, counted.unit), ("", "")),
            (true, "wall") => identity.kind(("wall", "nanoseconds"), ("cpu", "nanoseconds")),
            (true, _) => identity.kind(("cpu", "nanoseconds"), ("cpu", "nanoseconds")),
        }?;
        let mut draft = Draft::default();
        let series = draft.series(request, identity, &kind, [])?;
        Ok(Self { request, draft, series, at, factor: 1 })
    }

    fn frame(&mut self, name: &str) -> FrameId {
        self.draft.named(self.request, name)
    }

    /// A stack as text, the root first.
    fn add_text(&mut self, stack: &str, value: i64) -> Result<(), Error> {
        self.request.budget.text.take(stack.len())?;
        let names = stack.split(';').filter(|name| !name.is_empty());
        let most = self.request.limits.stack_frames;
        let mut frames = Vec::new();
        // One more than there may be, so that it shows that the stack was cut.
        for name in names.take(most + 1) {
            frames.push(self.frame(name));
        }
        self.add_stack(&frames, value)
    }

    /// A stack, the root first.
    fn add_stack(&mut self, frames: &[FrameId], value: i64) -> Result<(), Error> {
        let most = self.request.limits.stack_frames;
        let leaf_first: Vec<FrameId> = frames.iter().take(most + 1).rev().copied().collect();
        let stack = self.draft.stack(self.request, &leaf_first, most)?;
        self.add(stack, value)
    }

    fn add(&mut self, stack: StackId, value: i64) -> Result<(), Error> {
        let value = value.checked_mul(self.factor).ok_or(Error::Overflow)?;
        let Self { series, at, .. } = *self;
        let place = Place { series, stack, at, span_id: 0, trace_id: 0 };
        self.draft.add(place, value, self.request.limits.profile_samples)
    }

    fn finish(self, id: u128) -> Result<Accepted, Error> {
        self.draft.finish(self.request, id)
    }
}
