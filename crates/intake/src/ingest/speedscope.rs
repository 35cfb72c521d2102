//! speedscope's JSON: profiles of samples with weights, or of functions that begin and end.
//!
//! Source: `src/lib/file-format-spec.ts` of jlfwong/speedscope.

use model::samples::{Frame, FrameId};
use serde::Deserialize;

use super::kinds::{self, Counted};
use super::{NANOSECONDS, Query, Target};
use crate::draft::Draft;
use crate::error::Error;
use crate::identity::Identity;
use crate::{Accepted, Request};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Debug, Deserialize)]
struct File {
    #[serde(default, rename = "$schema")]
    schema: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Debug, Deserialize)]
struct Shared {
    frames: Vec<Function>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    unit: Unit,
    #[serde(default, rename = "startValue")]
    start: f64,
    /// Frames, the root first.
    #[serde(default)]
    samples: Vec<Vec<usize>>,
    #[serde(default)]
    weights: Vec<f64>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: EventKind,
    frame: usize,
    at: f64,
}

#[derive(Debug, Deserialize)]
enum EventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unit {
    None,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Bytes,
}

impl Unit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Nanoseconds => "nanoseconds",
            Self::Microseconds => "microseconds",
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }

    const fn nanoseconds(self) -> Option<f64> {
        match self {
            Self::None | Self::Bytes => None,
            Self::Nanoseconds => Some(1.0),
            Self::Microseconds => Some(1e3),
            Self::Milliseconds => Some(1e6),
            Self::Seconds => Some(1e9),
        }
    }
}

/// Takes each profile of a file. Several profiles are told apart by the label `profile_name`.
pub(super) fn file(bytes: &[u8], query: &Query, request: &mut Request<'_>) -> Result<(), Error> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| Error::json(&error))?;
    if file.schema != SCHEMA {
        let schema = file.schema.chars().take(128).collect::<String>();
        return Err(Error::Unsupported { what: format!("speedscope's schema {schema:?}") });
    }
    let (limit, several) = (request.limits.profiles, file.profiles.len() > 1);
    if file.profiles.len() > limit {
        return Err(Error::TooMany { what: "profiles of a request", limit });
    }
    let whole = query.profile_id(bytes);
    let mut draft = Draft::default();
    let frames: Vec<FrameId> =
        file.shared.frames.iter().map(|it| frame(it, &mut draft, request)).collect();
    for (place, profile) in (0u64..).zip(&file.profiles) {
        let id = match place {
            0 => whole,
            place => crate::id::digest([&whole.to_be_bytes()[..], &place.to_be_bytes()[..]]),
        };
        let counted = counted(query, profile.unit, several)?;
        let mut labels = query.series(counted.name, counted.service);
        labels.push(("profile_name".to_owned(), profile.name.clone()));
        let identity = Identity::of(labels)?;
        let outcome = take(profile, &frames, &identity, counted, query, id, request);
        let cut = std::mem::take(&mut draft.left_out).long_texts;
        let outcome = outcome.map(|mut accepted| {
            accepted.left_out.long_texts += cut;
            accepted
        });
        request.end(id, &identity.shown(), outcome);
    }
    Ok(())
}

/// The unit says what is counted where there are several profiles or the application's name does not say it.
fn counted(query: &Query, unit: Unit, several: bool) -> Result<Counted<'_>, Error> {
    let last = query.app.rsplit_once('.').map(|(_, last)| last);
    let is_named = last.is_some_and(|last| kinds::of(last).is_some());
    let of_unit =
        kinds::of(unit.as_str()).filter(|_| several || (unit == Unit::Bytes && !is_named));
    match of_unit {
        Some((name, kind, unit)) => Ok(Counted { service: &query.app, name, kind, unit }),
        None if is_named => kinds::counted(&query.app),
        None => kinds::counted("cpu").map(|counted| Counted { service: &query.app, ..counted }),
    }
}

fn take(
    profile: &Profile,
    frames: &[FrameId],
    identity: &Identity,
    counted: Counted<'_>,
    query: &Query,
    id: u128,
    request: &mut Request<'_>,
) -> Result<Accepted, Error> {
    // What one of the unit is in the type's.
    let factor = match (counted.is_time(), profile.unit.nanoseconds()) {
        (true, Some(factor)) => Some(factor),
        (true, None) if profile.unit == Unit::None && query.sample_rate != 0 => {
            Some(NANOSECONDS / f64::from(query.sample_rate))
        }
        _ => None,
    };
    let mut target = Target::new(request, identity, counted, factor.is_some(), query.from)?;
    let factor = factor.unwrap_or(1.0);
    let frame = |at: usize| {
        frames.get(at).copied().ok_or(Error::Dangling {
            from: "profile",
            id: 0,
            to: "frame",
            target: at as u64,
        })
    };
    match profile.kind.as_str() {
        "sampled" => sampled(profile, factor, frame, &mut target)?,
        "evented" => evented(profile, factor, frame, &mut target)?,
        other => {
            let other = other.chars().take(64).collect::<String>();
            return Err(Error::Unsupported {
                what: format!("speedscope's profile type {other:?}"),
            });
        }
    }
    target.finish(id)
}

fn sampled(
    profile: &Profile,
    factor: f64,
    frame: impl Fn(usize) -> Result<FrameId, Error>,
    target: &mut Target<'_, '_>,
) -> Result<(), Error> {
    let (expected, found) = (profile.samples.len(), profile.weights.len());
    if expected != found {
        return Err(Error::Weights { expected, found });
    }
    let mut stack = Vec::new();
    for (sample, weight) in profile.samples.iter().zip(&profile.weights) {
        stack.clear();
        for &at in sample {
            stack.push(frame(at)?);
        }
        target.add_stack(&stack, whole(weight * factor)?)?;
    }
    Ok(())
}

fn evented(
    profile: &Profile,
    factor: f64,
    frame: impl Fn(usize) -> Result<FrameId, Error>,
    target: &mut Target<'_, '_>,
) -> Result<(), Error> {
    let wrong = |event, why| Err(Error::Event { event, why });
    let (mut open, mut stack) = (Vec::new(), Vec::new());
    let mut last = profile.start;
    for (at, event) in profile.events.iter().enumerate() {
        if event.at < last {
            return wrong(at, "is before the one before");
        }
        if !stack.is_empty() {
            target.add_stack(&stack, whole((event.at - last) * factor)?)?;
        }
        last = event.at;
        match event.kind {
            EventKind::Open => {
                stack.push(frame(event.frame)?);
                open.push(event.frame);
            }
            EventKind::Close if open.last() == Some(&event.frame) => {
                stack.pop();
                open.pop();
            }
            EventKind::Close => return wrong(at, "closes a frame that is not the innermost"),
        }
    }
    Ok(())
}

/// The nearest whole number.
fn whole(value: f64) -> Result<i64, Error> {
    /// 2^63, the first that is too large.
    const MOST: f64 = 9_223_372_036_854_775_808.0;
    let value = value.round();
    if !(-MOST..MOST).contains(&value) {
        return Err(Error::Overflow);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in the range")]
    Ok(value as i64)
}

/// A function of the file, which all its profiles share.
fn frame(function: &Function, draft: &mut Draft, request: &mut Request<'_>) -> FrameId {
    let most = request.limits.symbol_bytes;
    let batch = &mut request.taken.batch;
    let file = function.file.as_deref().unwrap_or_default();
    let frame = Frame {
        function: draft.text(batch, &function.name, most),
        file: draft.text(batch, file, most),
        line: function.line.unwrap_or_default(),
        ..Frame::default()
    };
    batch.frame(frame)
}
