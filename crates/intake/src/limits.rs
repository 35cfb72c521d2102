//! What a request may ask for.

use model::{Nanos, Timestamp};

use crate::error::Error;

/// What a tenant's requests may ask for. The defaults are Pyroscope's where it has such a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body, and of all that is unpacked of it.
    pub body_bytes: usize,
    /// Bytes of bodies in a second, see [`crate::Bucket`].
    pub bytes_per_second: u64,
    /// Bytes of bodies at once.
    pub burst_bytes: u64,
    /// Profiles of a request.
    pub profiles: usize,
    /// Bytes of one profile in pprof, unpacked.
    pub profile_bytes: usize,
    /// Bytes of one body that is text, JSON or a tree, unpacked.
    pub text_bytes: usize,
    /// Samples of one profile: records of pprof, different stacks of others.
    pub profile_samples: usize,
    /// Samples of a request of OTLP, each event by itself.
    pub otlp_samples: usize,
    /// Labels of one sample of pprof, numbers among them.
    pub sample_labels: usize,
    /// Frames of a stack, inlined ones counted; of a deeper one the root's side is kept.
    pub stack_frames: usize,
    /// The same for OTLP, where the agent takes more than Pyroscope does.
    pub otlp_stack_frames: usize,
    /// Bytes of a function's name or a file's; of a longer one the end is kept.
    pub symbol_bytes: usize,
    /// Labels of a series, `__name__` and `service_name` among them.
    pub label_names: usize,
    /// Bytes of a label's name.
    pub label_name_bytes: usize,
    /// Bytes of a label's value.
    pub label_value_bytes: usize,
    /// How long before its arrival a sample may have been taken; any time if `None`.
    pub oldest: Option<Nanos>,
    /// How long after its arrival a sample may say that it was taken; any time if `None`.
    pub newest: Option<Nanos>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 256 << 20,
            bytes_per_second: 4 << 20,
            burst_bytes: 2 << 20,
            profiles: 1 << 16,
            profile_bytes: 4 << 20,
            text_bytes: 32 << 20,
            profile_samples: 16_000,
            otlp_samples: 1 << 20,
            sample_labels: 100,
            stack_frames: 1_000,
            otlp_stack_frames: 4_096,
            symbol_bytes: 65_535,
            label_names: 30,
            label_name_bytes: 1_024,
            label_value_bytes: 2_048,
            oldest: Some(Nanos::new(3_600_000_000_000)),
            newest: Some(Nanos::new(600_000_000_000)),
        }
    }
}

impl Limits {
    /// Whether a sample that arrived at one time may be of another.
    pub(crate) fn check_time(&self, at: Timestamp, received: Timestamp) -> Result<(), Error> {
        let (before, after) = (received.since(at), at.since(received));
        match (self.oldest, self.newest) {
            (Some(limit), _) if before > limit => Err(Error::TooOld { before, limit }),
            (_, Some(limit)) if after > limit => Err(Error::TooNew { after, limit }),
            _ => Ok(()),
        }
    }
}

/// What is left of what a whole request may take.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes that may be unpacked.
    pub(crate) bytes: Allowance,
    /// Bytes of memory of series, each by itself.
    pub(crate) labels: Allowance,
    /// Bytes of stacks that are text, each as often as it comes.
    pub(crate) text: Allowance,
    /// Frames of all stacks that are looked at, each as often as it comes.
    pub(crate) frames: Allowance,
}

impl Budget {
    pub(crate) fn of(limits: &Limits) -> Self {
        /// As many frames as one profile of the default limits may have, so that small bodies are not refused for what one may hold.
        const LEAST: usize = 1 << 24;
        let allow = Allowance::new;
        let quarter = LEAST.max(limits.body_bytes / 4);
        Self {
            bytes: allow("bytes of all profiles of a request", limits.body_bytes),
            labels: allow("bytes of all series of a request", quarter),
            text: allow(
                "bytes of all stacks of a request",
                limits.body_bytes.max(limits.text_bytes),
            ),
            frames: allow("frames of all stacks of a request", quarter),
        }
    }
}

/// So much of something.
#[derive(Debug)]
pub(crate) struct Allowance {
    what: &'static str,
    limit: usize,
    left: usize,
}

impl Allowance {
    pub(crate) const fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, left: limit }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<(), Error> {
        let Self { what, limit, left } = *self;
        self.left = left.checked_sub(count).ok_or(Error::TooMany { what, limit })?;
        Ok(())
    }

    pub(crate) const fn left(&self) -> usize {
        self.left
    }
}
