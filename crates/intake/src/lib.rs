//! Bodies of profile clients as batches of samples.
//!
//! In go the bytes of a request and the time of its arrival; out comes a [`Batch`] with the samples of each of its profiles, or why
//! not. Sockets, headers and tenants stay the caller's duty, and so does keeping a profile once that comes twice: each has an id
//! that is the same when its request is sent again.
//!
//! - **profile**: what a client sends at once of one process; one of pprof has several sample types.
//! - **series**: labels and what values count, `name:sample_type:sample_unit:period_type:period_unit`.
//! - **identity**: name and labels that all series of a profile share.
//! - **sample**: a stack with a value at a time.
//!
//! Some profiles of a request may be taken while others are refused. A refused one leaves no sample and no series, though stacks and
//! texts that no sample refers to may stay in the batch.
//!
//! Memory: all lengths are checked before any is taken. A body has at most [`Limits::body_bytes`], and so has all that is unpacked of it;
//! one profile's tables take up to 32 times [`Limits::profile_bytes`], speedscope's files, flight recordings and stacks as text as many times
//! [`Limits::text_bytes`]; frames of stacks and labels of series have
//! bounds for all of a request. Nothing here panics on any bytes.
//!
//! ```
//! use intake::{Ingest, Limits, ingest};
//! use model::Timestamp;
//!
//! let body = b"main;work 2\nmain 1";
//! let request = Ingest { query: "name=shop.cpu&from=1795191872", content_type: "", body };
//! let received = Timestamp::from_nanos(1_795_191_880_000_000_000);
//! let taken = ingest(request, &Limits::default(), received)?;
//! let values: Vec<i64> = taken.batch.samples().iter().map(|sample| sample.value).collect();
//! assert_eq!(values, [20_000_000, 10_000_000], "nanoseconds, as a hundred samples are a second");
//! # Ok::<(), intake::Error>(())
//! ```

mod draft;
mod error;
mod id;
mod identity;
mod ingest;
mod jfr;
mod json;
mod limits;
mod otlp;
mod pprof;
mod push;
mod rate;

use std::borrow::Cow;
use std::fmt;

use model::Timestamp;
use model::samples::Batch;
use wire::proto::{DecodeError, Wrong};

pub use error::{Error, ErrorKind};
pub use ingest::{Ingest, Query, ingest, time};
pub use limits::Limits;
pub use otlp::otlp;
pub use pprof::{PprofSource, pprof};
pub use push::{Encoding, push};
pub use rate::Bucket;

/// What came of a request.
#[derive(Debug, Default)]
pub struct Taken {
    /// Samples of all profiles that were taken.
    pub batch: Batch,
    /// All profiles, as they came.
    pub profiles: Vec<Result<Accepted, Refused>>,
    /// Samples that were lost before, by class, as an agent's packet says.
    pub lost: Vec<(String, u64)>,
    /// Bytes of the request, unpacked, and as sent where they cannot be unpacked.
    pub bytes: usize,
}

/// A profile that was taken, perhaps as one without any sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The same when it comes again.
    pub id: u128,
    /// How many samples of the batch are its.
    pub samples: usize,
    /// What of it is not in them.
    pub left_out: LeftOut,
}

/// What was passed over or cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Values that were 0.
    pub zeros: u64,
    /// Values below 0.
    pub negatives: u64,
    /// Stacks whose leaf's side was cut.
    pub deep_stacks: u64,
    /// Lines without a value.
    pub lines: u64,
    /// Texts whose begin was cut.
    pub long_texts: u64,
    /// References of a recording to stacks, methods and names that it does not have.
    pub missing: u64,
}

impl LeftOut {
    /// Each count with its name.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 6] {
        let Self { zeros, negatives, deep_stacks, lines, long_texts, missing } = *self;
        [
            ("zero_value", zeros),
            ("negative_value", negatives),
            ("deep_stack", deep_stacks),
            ("line_without_value", lines),
            ("long_text", long_texts),
            ("missing_reference", missing),
        ]
    }
}

/// A profile that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its id, if it came so far.
    pub id: Option<u128>,
    /// Name and service of its series, as far as known.
    pub series: String,
    /// Why.
    pub error: Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("profile ")?;
        if let Some(id) = self.id {
            write!(f, "{id:032x} ")?;
        }
        write!(f, "of {}: {}", self.series, self.error)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// What all profiles of a request share.
struct Request<'l> {
    limits: &'l Limits,
    received: Timestamp,
    budget: limits::Budget,
    taken: Taken,
}

impl<'l> Request<'l> {
    /// With the bytes of its body, as they came.
    fn new(body: &[u8], limits: &'l Limits, received: Timestamp) -> Self {
        let budget = limits::Budget::of(limits);
        let taken = Taken { bytes: body.len(), ..Taken::default() };
        Self { limits, received, budget, taken }
    }

    /// Bytes that may be in gzip, `most` of them at most, which are counted as they are then.
    fn ungzip<'b>(&mut self, bytes: &'b [u8], most: usize) -> Result<Cow<'b, [u8]>, Error> {
        let plain = wire::proto::ungzip(bytes, most);
        let is_too_much = |error: &DecodeError| matches!(error.wrong, Wrong::TooMany { .. });
        let len = match &plain {
            Ok(plain) => plain.len(),
            // It was unpacked up to there.
            Err(error) if is_too_much(error) => most,
            Err(_) => 0,
        };
        self.taken.bytes += len.saturating_sub(bytes.len());
        Ok(plain?)
    }

    /// Says what came of a profile.
    fn end(&mut self, id: u128, series: &str, outcome: Result<Accepted, Error>) {
        let refused = |error| Refused { id: Some(id), series: series.to_owned(), error };
        self.taken.profiles.push(outcome.map_err(refused));
    }
}
