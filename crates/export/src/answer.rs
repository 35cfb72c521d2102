//! What an answer means for the cells of a request (remote write 1.0 and 2.0, "Retries & Backoff"; measured on Prometheus 2.42, 2.53 and
//! 3.5 and on VictoriaMetrics 1.145).
//!
//! | answer | 1.0 | 2.0 |
//! |---|---|---|
//! | 2xx | all taken | by the written count; without one nothing is: a receiver of 1.0 |
//! | 400, 409, 422 | nothing taken: one cell is bad | by the count; without one a receiver of 1.0 |
//! | 413 | too large | too large |
//! | 415 | the other message | the other message |
//! | 500 | again; if only this fails, one cell is bad | the same |
//! | 429, other 5xx | again, not before `Retry-After` | the same |
//! | others (401, 404, 3xx, …) | again: they are about the endpoint, not about a cell | the same |
//! | none | again | again |
//!
//! That the last but one are tried again is our choice: a wrong password or path costs time, no cell.

use std::time::Duration;

use wire::remote_write::Version;

use crate::cursor::Reason;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An answer came.
    Answered(Answer),
    /// None came, or not all of it: the receiver may have the cells, or not.
    Unknown {
        /// What is wrong.
        why: String,
    },
}

/// An answer, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// `X-Prometheus-Remote-Write-Samples-Written`; of use in 2.0 only, as some receivers say nonsense in 1.0.
    pub samples_written: Option<u64>,
    /// The begin of its body, in one line.
    pub words: String,
}

/// What is to be done about cells after their request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All are there.
    Taken,
    /// Not all are there, and a repeat would not change that.
    Refused { reason: Reason, words: String },
    /// None is there: the receiver understands the other message.
    OtherVersion { words: String },
    /// The receiver failed, by itself or by these cells.
    Failed { after: Option<Duration>, words: String },
    /// The same bytes may be taken later.
    Again { after: Option<Duration>, words: String },
}

impl Verdict {
    /// On a request of `cells` cells.
    pub(crate) fn of(version: Version, cells: usize, outcome: &Outcome) -> Self {
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Unknown { why } => return Self::Again { after: None, words: why.clone() },
        };
        let words = match &answer.words {
            words if words.is_empty() => format!("status {}", answer.status),
            words => format!("status {}: {words}", answer.status),
        };
        let after = answer.retry_after;
        let written = answer.samples_written.filter(|_| version == Version::V2);
        let is_all_written = written.is_some_and(|written| written >= cells as u64);
        match (answer.status, version) {
            (200..=299, Version::V1) => Self::Taken,
            (200..=299 | 400 | 409 | 422, _) if is_all_written => Self::Taken,
            (200..=299 | 400 | 409 | 422, Version::V2) if written.is_none() => {
                Self::OtherVersion { words }
            }
            (200..=299, _) => Self::Refused { reason: Reason::Unwritten, words },
            (400 | 409 | 422, _) => Self::Refused { reason: Reason::Refused, words },
            (413, _) => Self::Refused { reason: Reason::TooLarge, words },
            (415, _) => Self::OtherVersion { words },
            (500, _) => Self::Failed { after, words },
            _ => Self::Again { after, words },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(version: Version, status: u16, written: Option<u64>) -> Verdict {
        let words = "w".to_owned();
        let answer = Answer { status, retry_after: None, samples_written: written, words };
        Verdict::of(version, 2, &Outcome::Answered(answer))
    }

    #[test]
    fn answers_mean_what_the_table_says() {
        use Version::{V1, V2};
        let refused =
            |status: u16, reason| Verdict::Refused { reason, words: format!("status {status}: w") };
        let other = |status: u16| Verdict::OtherVersion { words: format!("status {status}: w") };
        let again =
            |status: u16| Verdict::Again { after: None, words: format!("status {status}: w") };
        for (version, status, written, expected) in [
            (V1, 204, None, Verdict::Taken),
            (V1, 204, Some(0), Verdict::Taken),
            (V2, 204, Some(2), Verdict::Taken),
            (V2, 204, Some(1), refused(204, Reason::Unwritten)),
            (V2, 204, None, other(204)),
            (V1, 400, None, refused(400, Reason::Refused)),
            (V1, 400, Some(2), refused(400, Reason::Refused)),
            (V2, 400, Some(1), refused(400, Reason::Refused)),
            (V2, 400, Some(2), Verdict::Taken),
            (V2, 400, None, other(400)),
            (V1, 413, None, refused(413, Reason::TooLarge)),
            (V1, 415, None, other(415)),
            (V2, 415, Some(0), other(415)),
            (V1, 429, None, again(429)),
            (V2, 503, Some(0), again(503)),
            (V1, 401, None, again(401)),
            (V1, 404, None, again(404)),
            (V1, 301, None, again(301)),
        ] {
            assert_eq!(verdict(version, status, written), expected, "{version:?} {status}");
        }
        assert!(matches!(verdict(V1, 500, None), Verdict::Failed { .. }));
        let cut = Outcome::Unknown { why: "cut".into() };
        assert!(matches!(Verdict::of(V2, 1, &cut), Verdict::Again { .. }));
    }
}
