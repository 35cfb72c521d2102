//! One notification: the JSON object that OSProfiler writes for the begin or the end of a point.
//!
//! ```text
//! {"name": "wsgi-start", "base_id": UUID, "trace_id": UUID, "parent_id": UUID, "timestamp": "2026-01-02T03:04:05.678901",
//!  "info": {"host": "node-1", …}, "project": "nova", "service": "api"}
//! ```
//! Source: `osprofiler/profiler.py` and `osprofiler/drivers/redis_driver.py` of OSProfiler 4.4.0.

use std::borrow::Cow;
use std::ops::Range;

use crate::json::{self, Json};

/// Bytes of a notification.
pub const MAX_NOTIFICATION_LEN: usize = 1 << 20;

/// What an error shows of a value.
const SHOWN: usize = 64;

/// Why bytes are no notification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More than [`MAX_NOTIFICATION_LEN`].
    #[error("{len} bytes; {limit} are taken")]
    TooLong {
        /// Its length.
        len: usize,
        /// As many bytes are taken.
        limit: usize,
    },
    /// Bytes that are no text.
    #[error("byte {offset}: no UTF-8")]
    NotText {
        /// Where.
        offset: usize,
    },
    /// Text that is no JSON.
    #[error(transparent)]
    Json(#[from] json::Error),
    /// A field that must be there.
    #[error("there is no field {field}")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field with a value that cannot be its.
    #[error("field {field}: {begin} is not {expected}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What could be there.
        expected: &'static str,
        /// The begin of what is there.
        begin: String,
    },
}

/// What a notification says of its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// It begins: the name ended in `-start`.
    Start,
    /// It ends: the name ended in `-stop`.
    Stop,
    /// Neither.
    Other,
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The trace.
    pub base_id: u128,
    /// The point.
    pub trace_id: u128,
    /// The point around it; `base_id` when there is none.
    pub parent_id: u128,
    /// The point's name, without what says whether it begins or ends.
    pub name: String,
    /// Whether it begins or ends.
    pub point: Point,
    /// Since the Unix epoch.
    pub timestamp_ns: u64,
    /// Of the service.
    pub project: Option<String>,
    /// Of the project.
    pub service: Option<String>,
    /// Where the point was.
    pub host: Option<String>,
    raw: Box<str>,
    info: Range<usize>,
}

/// The fields, as the last of each name stands there.
#[derive(Default)]
struct Fields<'t> {
    name: Option<Json<'t>>,
    base_id: Option<Json<'t>>,
    trace_id: Option<Json<'t>>,
    parent_id: Option<Json<'t>>,
    timestamp: Option<Json<'t>>,
    info: Option<Json<'t>>,
    project: Option<Json<'t>>,
    service: Option<Json<'t>>,
}

impl<'t> Fields<'t> {
    fn of(object: Json<'t>) -> Self {
        let mut fields = Self::default();
        for (name, value) in object.fields() {
            let field = match &*name {
                "name" => &mut fields.name,
                "base_id" => &mut fields.base_id,
                "trace_id" => &mut fields.trace_id,
                "parent_id" => &mut fields.parent_id,
                "timestamp" => &mut fields.timestamp,
                "info" => &mut fields.info,
                "project" => &mut fields.project,
                "service" => &mut fields.service,
                _ => continue,
            };
            *field = Some(value);
        }
        fields
    }
}

impl Notification {
    /// Of its JSON, which is kept as it is.
    ///
    /// # Errors
    /// What of it is wrong, and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (len, limit) = (bytes.len(), MAX_NOTIFICATION_LEN);
        if len > limit {
            return Err(Error::TooLong { len, limit });
        }
        let text = str::from_utf8(bytes);
        let text = text.map_err(|error| Error::NotText { offset: error.valid_up_to() })?;
        let fields = Fields::of(Json::parse(text)?);
        let info = required("info", fields.info)?;
        if !info.is_object() {
            return Err(wrong("info", "an object", info));
        }
        let name = words("name", required("name", fields.name)?)?;
        let (name, point) = match (name.strip_suffix("-start"), name.strip_suffix("-stop")) {
            (Some(name), _) => (name, Point::Start),
            (_, Some(name)) => (name, Point::Stop),
            _ => (&*name, Point::Other),
        };
        let begin = info.as_str().as_ptr().addr() - text.as_ptr().addr();
        Ok(Self {
            base_id: id("base_id", fields.base_id)?,
            trace_id: id("trace_id", fields.trace_id)?,
            parent_id: id("parent_id", fields.parent_id)?,
            name: name.to_owned(),
            point,
            timestamp_ns: time(fields.timestamp)?,
            project: optional("project", fields.project)?,
            service: optional("service", fields.service)?,
            host: optional("info.host", info.get("host"))?,
            raw: text.into(),
            info: begin..begin + info.as_str().len(),
        })
    }

    /// Its JSON, byte for byte.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// What it says of what happened: an object.
    #[must_use]
    pub fn info(&self) -> Json<'_> {
        Json::checked(self.raw.get(self.info.clone()).unwrap_or("{}"))
    }

    /// The id of its span in W3C's trace context; that of the trace is `base_id`.
    #[must_use]
    pub const fn span_id(&self) -> u64 {
        low(self.trace_id)
    }

    /// The id of the span around it; `None` for a root.
    #[must_use]
    pub fn parent_span_id(&self) -> Option<u64> {
        (self.parent_id != self.base_id).then_some(low(self.parent_id))
    }
}

/// The low 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "the others are not asked for")]
const fn low(id: u128) -> u64 {
    id as u64
}

fn wrong(field: &'static str, expected: &'static str, found: Json<'_>) -> Error {
    Error::Field { field, expected, begin: found.as_str().chars().take(SHOWN).collect() }
}

fn required<'t>(field: &'static str, value: Option<Json<'t>>) -> Result<Json<'t>, Error> {
    value.ok_or(Error::Missing { field })
}

fn words<'t>(field: &'static str, value: Json<'t>) -> Result<Cow<'t, str>, Error> {
    value.text().ok_or_else(|| wrong(field, "a text", value))
}

/// A text, or `null` or nothing for none.
fn optional(field: &'static str, value: Option<Json<'_>>) -> Result<Option<String>, Error> {
    let value = value.filter(|value| value.as_str() != "null");
    value.map(|value| words(field, value).map(Cow::into_owned)).transpose()
}

/// A UUID whose low half can be the id of a span.
fn id(field: &'static str, value: Option<Json<'_>>) -> Result<u128, Error> {
    let value = required(field, value)?;
    let id = uuid(&words(field, value)?).filter(|id| low(*id) != 0);
    id.ok_or_else(|| wrong(field, "a UUID of a span", value))
}

/// 32 hexadecimal digits, perhaps with dashes after 8, 12, 16 and 20 of them.
pub(crate) fn uuid(text: &str) -> Option<u128> {
    let mut digits = [0_u8; 32];
    let bytes = text.as_bytes();
    let is_dash = |at: &usize| bytes.len() == 36 && matches!(at, 8 | 13 | 18 | 23);
    if !matches!(bytes.len(), 32 | 36) {
        return None;
    }
    let mut digit = digits.iter_mut();
    for (at, byte) in bytes.iter().enumerate() {
        match (is_dash(&at), byte) {
            (true, b'-') => {}
            (false, byte) if byte.is_ascii_hexdigit() => *digit.next()? = *byte,
            _ => return None,
        }
    }
    u128::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()
}

/// A text as `2026-01-02T03:04:05.678901`, in UTC, with one to nine digits behind the point.
fn time(value: Option<Json<'_>>) -> Result<u64, Error> {
    let value = required("timestamp", value)?;
    let expected = "a time as 2026-01-02T03:04:05.678901, of 1970 or later";
    let time = timestamp_ns(&words("timestamp", value)?);
    time.ok_or_else(|| wrong("timestamp", expected, value))
}

fn timestamp_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let mark = |at: usize| seconds.as_bytes().get(at).copied();
    let marks = [4, 7, 10, 13, 16].map(mark);
    if seconds.len() != 19 || marks != [b'-', b'-', b'T', b':', b':'].map(Some) {
        return None;
    }
    let part = |range: Range<usize>| number(seconds.get(range)?);
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    let is_day = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if year < 1970 || !is_day || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_before(year, month) + day - 1;
    let seconds = (seconds * 24 + hour) * 3600 + minute * 60 + second;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let nanoseconds = number(fraction)? * 10_u64.pow(9 - digits);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + is_leap(year) as u64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// From the epoch to a month's begin, in the Gregorian calendar.
fn days_before(year: u64, month: u64) -> u64 {
    let before = year - 1;
    let leaps = before / 4 - before / 100 + before / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    (year - 1970) * 365 + leaps + months
}
