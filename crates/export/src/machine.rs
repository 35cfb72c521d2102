//! What is done next about one receiver: a state machine without sockets, files and clocks.
//!
//! ```text
//!            ┌────────────────────────── taken, or lost ─────────────────────────┐
//!            ▼                                                                   │
//! Read ─▶ Planning ─▶ Save ─▶ Post metadata (1.0) ─▶ Post cells ─▶ verdict ──────┤
//!            ▲ nothing: Save, Idle                      ▲             │ again    │
//!            │                                          └── Wait ◀────┤          │
//!            │                                                        │ failed   │
//!            └──── refused: half as many ◀── taken ── Post probe ◀────┘          │
//!                                     alone: parked ─────────────────────────────┘
//! ```
//! Everything that is sent is a run of neighbouring cells which begins at the cursor, so that one number says what is done. A run that
//! is refused is known to have a bad cell: of what is known to be bad the first half is tried, until one cell is left.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use webclient::Backoff;
use wire::remote_write::{self, Labels, Metadata, NAME, Sample, Series, Version};

use crate::answer::{Outcome, Verdict};
use crate::cell::Cell;
use crate::cursor::{Cursor, Intent, Learned, Reason};
use crate::error::{Error, Result};
use crate::plan::{Batch, Limits, Plan, encode, plan};

/// So many failures (500) of one request in a row are needed before its cells are suspected.
const SUSPICIOUS: u32 = 3;

/// So many times the message is changed before the receiver is thought to understand neither.
const MAX_SWITCHES: u32 = 2;

/// The series of which a sample is sent to see whether a receiver that fails takes anything.
const PROBE: &str = "throughline_remote_write_probe";

/// What metrics are is told again after this; Prometheus' own sender does each minute, receivers forget after ten.
const METADATA_EVERY_MS: i64 = 5 * 60_000;

/// Metrics of which it is remembered that they were told.
const MAX_TOLD: usize = 10_000;

/// Longest wait for a clock, so that one that is set is noticed.
const MAX_CLOCK_WAIT: Duration = Duration::from_secs(30);

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Cells are needed: [`Machine::has_read`].
    Read {
        /// From this position on.
        from: u64,
        /// At most so many.
        most: usize,
    },
    /// [`Machine::cursor`] has to be made durable: [`Machine::has_saved`].
    Save,
    /// A request has to be posted: [`Machine::answered`].
    Post(Post),
    /// This time has to pass.
    Wait(Duration),
    /// All is done; there may be more cells later.
    Idle,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// What it is for.
    pub purpose: Purpose,
    /// Which message it is.
    pub version: Version,
    /// The message, compressed.
    pub body: Bytes,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Cells.
    Cells,
    /// What metrics are (1.0); nothing depends on the answer.
    Metadata,
    /// To see whether the receiver takes anything.
    Probe,
}

#[derive(Debug)]
enum Phase {
    /// Cells are needed, or planned.
    Planning,
    /// The intent to send is to be durable.
    Saving(Batch),
    /// Its metadata are to be told before.
    Telling(Batch, Bytes),
    /// To be posted.
    Posting(Batch),
    /// To be posted after a while.
    Waiting(Batch, Duration),
    /// The receiver failed at it, and may fail at everything.
    Probing { batch: Batch, probe: Bytes, after: Option<Duration>, words: String },
}

/// The sender for one receiver.
#[derive(Debug)]
pub struct Machine {
    endpoint: String,
    limits: Limits,
    first_version: Version,
    cursor: Cursor,
    is_saved: bool,
    /// Cells from the cursor on; at most as many as a request may hold.
    cells: VecDeque<Cell>,
    /// The source had nothing when it was asked last.
    is_dry: bool,
    phase: Phase,
    /// Of the cells before this position one is known to be bad.
    bad_end: Option<u64>,
    /// Failures of the request in a row.
    failures: u32,
    /// Changes of the message since something was taken.
    switches: u32,
    backoff: Backoff,
    /// Metrics that were told of; at most [`MAX_TOLD`].
    told: HashSet<String>,
    told_ms: Option<i64>,
    trouble: Option<String>,
}

impl Machine {
    /// Goes on where a cursor says, with an endpoint that is first spoken to in `version` unless it is known to understand the other.
    #[must_use]
    pub fn new(endpoint: &str, version: Version, limits: Limits, cursor: Option<Cursor>) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            limits,
            first_version: version,
            cursor: cursor.unwrap_or_default(),
            is_saved: true,
            cells: VecDeque::new(),
            is_dry: false,
            phase: Phase::Planning,
            bad_end: None,
            failures: 0,
            switches: 0,
            backoff: Backoff::default(),
            told: HashSet::new(),
            told_ms: None,
            trouble: None,
        }
    }

    /// How far it is. Not all of it need be durable.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Why nothing is taken at the moment, in the receiver's words.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The message that is sent to the endpoint.
    #[must_use]
    pub fn version(&self) -> Version {
        let learned = self.cursor.learned.as_ref().filter(|it| it.endpoint == self.endpoint);
        learned.map_or(self.first_version, |it| it.version)
    }

    /// What is to be done, at a time in milliseconds since 1970. The same until it was done; a wait is said once.
    pub fn next(&mut self, now_ms: i64) -> Step {
        if matches!(self.phase, Phase::Planning)
            && let Some(step) = self.prepare(now_ms)
        {
            return step;
        }
        if let Phase::Waiting(batch, wait) = &self.phase {
            let (batch, wait) = (batch.clone(), *wait);
            self.phase = Phase::Posting(batch);
            return Step::Wait(wait);
        }
        match &self.phase {
            Phase::Planning | Phase::Waiting(..) | Phase::Saving(_) => Step::Save,
            Phase::Telling(batch, body) => post(Purpose::Metadata, batch.version, body),
            Phase::Posting(batch) => post(Purpose::Cells, batch.version, &batch.body),
            Phase::Probing { batch, probe, .. } => post(Purpose::Probe, batch.version, probe),
        }
    }

    /// Plans, and loses what is not sent, until there is a batch (`None`) or something else to do first.
    fn prepare(&mut self, now_ms: i64) -> Option<Step> {
        let intended = self.cursor.intent;
        if intended.is_some_and(|intent| self.cells.len() < intent.cells)
            || (self.cells.is_empty() && !self.is_dry)
        {
            let most = intended.map_or(self.limits.series.max(1), |intent| intent.cells);
            return Some(Step::Read { from: self.cursor.next, most });
        }
        // What a crash left half sent is sent as it was, whatever the limits are meanwhile.
        if let Some(Intent { cells, version }) = intended
            && let Ok(batch) = encode(&self.cells, version, cells)
        {
            self.phase = Phase::Posting(batch);
            return None;
        }
        loop {
            let most = self.most();
            let version = self.version();
            match plan(&self.cells, &self.cursor, &self.limits, version, most, now_ms) {
                Plan::Nothing if !self.is_dry => {
                    let most = self.limits.series.max(1);
                    return Some(Step::Read { from: self.cursor.next, most });
                }
                Plan::Nothing if !self.is_saved => return Some(Step::Save),
                Plan::Nothing => {
                    self.is_dry = false;
                    return Some(Step::Idle);
                }
                Plan::Wait { .. } if !self.is_saved => return Some(Step::Save),
                Plan::Wait { ms } => {
                    self.trouble = Some(format!("the next cell is {ms} ms too far ahead"));
                    return Some(Step::Wait(Duration::from_millis(ms).min(MAX_CLOCK_WAIT)));
                }
                Plan::Lose { reason, words } => self.lose(reason, words),
                Plan::Send(batch) => {
                    let Batch { cells, version, .. } = batch;
                    self.cursor.intent = Some(Intent { cells, version });
                    self.is_saved = false;
                    self.phase = Phase::Saving(batch);
                    return None;
                }
            }
        }
    }

    /// How many cells may be sent together: of those with a bad one among them the first half.
    fn most(&mut self) -> usize {
        self.bad_end = self.bad_end.filter(|&end| end > self.cursor.next);
        let Some(end) = self.bad_end else { return self.limits.series };
        usize::try_from((end - self.cursor.next) / 2).unwrap_or(usize::MAX).max(1)
    }

    /// Takes what the source gave when it was asked.
    ///
    /// # Errors
    /// [`Error::Shrunk`] when cells that were being sent are gone.
    pub fn has_read(&mut self, cells: Vec<Cell>) -> Result<()> {
        if let Some(Intent { cells: intended, .. }) = self.cursor.intent
            && cells.len() < intended
        {
            let (from, found) = (self.cursor.next, cells.len());
            return Err(Error::Shrunk { from, intended, found });
        }
        self.is_dry = cells.is_empty();
        self.cells = cells.into();
        Ok(())
    }

    /// The cursor is durable.
    pub fn has_saved(&mut self, now_ms: i64) {
        self.is_saved = true;
        if let Phase::Saving(batch) = &self.phase {
            let batch = batch.clone();
            self.phase = match self.untold(&batch, now_ms) {
                Some(body) => Phase::Telling(batch, body),
                None => Phase::Posting(batch),
            };
        }
    }

    /// What came of the request that was posted. `chance` is a random number from 0 to 1.
    pub fn answered(&mut self, outcome: &Outcome, now_ms: i64, chance: f64) {
        match std::mem::replace(&mut self.phase, Phase::Planning) {
            Phase::Telling(batch, _) => self.phase = Phase::Posting(batch),
            Phase::Posting(batch) => self.judge(batch, outcome, now_ms, chance),
            Phase::Probing { batch, after, words, .. } => {
                if Verdict::of(batch.version, 1, outcome) == Verdict::Taken {
                    self.refused(&batch, Reason::Failed, words);
                } else {
                    self.again(batch, after, words, chance);
                }
            }
            // Nothing was posted.
            other @ (Phase::Planning | Phase::Saving(_) | Phase::Waiting(..)) => self.phase = other,
        }
    }

    fn judge(&mut self, batch: Batch, outcome: &Outcome, now_ms: i64, chance: f64) {
        let failures = std::mem::take(&mut self.failures);
        match Verdict::of(batch.version, batch.cells, outcome) {
            Verdict::Taken => self.taken(&batch),
            Verdict::Refused { reason, words } => self.refused(&batch, reason, words),
            Verdict::OtherVersion { .. } if self.switches < MAX_SWITCHES => self.switch(&batch),
            Verdict::OtherVersion { words } => {
                // Neither is understood: both are tried again later.
                self.switches = 0;
                self.again(batch, None, words, chance);
            }
            Verdict::Again { after, words } => self.again(batch, after, words, chance),
            Verdict::Failed { after, words } => {
                self.failures = failures.saturating_add(1);
                // A cell is lost for it only after as many failures alone.
                let is_suspected =
                    self.failures >= SUSPICIOUS || (self.bad_end.is_some() && batch.cells > 1);
                match probe(batch.version, now_ms).filter(|_| is_suspected) {
                    Some(probe) => self.phase = Phase::Probing { batch, probe, after, words },
                    None => self.again(batch, after, words, chance),
                }
            }
        }
    }

    fn taken(&mut self, batch: &Batch) {
        let has_alone = self.cursor.has_alone();
        for cell in self.cells.drain(..batch.cells.min(self.cells.len())) {
            if has_alone {
                self.cursor.unpark(&cell.labels.to_string());
            }
            let newest_ms = &mut self.cursor.newest_ms;
            *newest_ms = (*newest_ms).max(Some(cell.sample.time_ms));
            self.cursor.next += 1;
            self.cursor.taken += 1;
        }
        self.cursor.intent = None;
        self.is_saved = false;
        self.switches = 0;
        self.backoff.reset();
        self.trouble = None;
    }

    fn refused(&mut self, batch: &Batch, reason: Reason, words: String) {
        self.cursor.intent = None;
        self.is_saved = false;
        self.failures = 0;
        if batch.cells == 1 {
            self.bad_end = None;
            self.lose(reason, Some(words));
        } else {
            self.bad_end = Some(self.cursor.next + batch.cells as u64);
        }
    }

    /// The first cell will not be taken; `words` say why, if it was tried.
    fn lose(&mut self, reason: Reason, words: Option<String>) {
        let Some(cell) = self.cells.pop_front() else { return };
        self.cursor.lose(reason);
        self.is_saved = false;
        if let Some(words) = words {
            self.cursor.park(cell.labels.to_string(), cell.sample.time_ms, reason, words);
        }
    }

    fn switch(&mut self, batch: &Batch) {
        let version = match batch.version {
            Version::V1 => Version::V2,
            Version::V2 => Version::V1,
        };
        self.cursor.learned = Some(Learned { endpoint: self.endpoint.clone(), version });
        self.cursor.intent = None;
        self.is_saved = false;
        self.switches += 1;
    }

    fn again(&mut self, batch: Batch, after: Option<Duration>, words: String, chance: f64) {
        self.trouble = Some(words);
        let wait = self.backoff.after_failure(after, chance);
        self.phase = Phase::Waiting(batch, wait);
    }

    /// What 1.0 has not been told of a batch's metrics, as a request.
    fn untold(&mut self, batch: &Batch, now_ms: i64) -> Option<Bytes> {
        if batch.version == Version::V2 {
            return None;
        }
        let is_due = |told_ms: i64| now_ms.saturating_sub(told_ms) >= METADATA_EVERY_MS;
        if self.told.len() >= MAX_TOLD || self.told_ms.is_none_or(is_due) {
            self.told.clear();
            self.told_ms = Some(now_ms);
        }
        let cells = self.cells.iter().take(batch.cells);
        let known = cells.filter_map(|it| Some((it.labels.metric(), it.metadata.as_deref()?)));
        let untold: BTreeMap<&str, &Metadata> =
            known.filter(|(metric, _)| !self.told.contains(*metric)).collect();
        if untold.is_empty() {
            return None;
        }
        self.told.extend(untold.keys().map(|metric| (*metric).to_owned()));
        // Too many of them at once are not told: their loss is harmless.
        remote_write::encode_metadata(untold).ok().map(Bytes::from)
    }
}

fn post(purpose: Purpose, version: Version, body: &Bytes) -> Step {
    Step::Post(Post { purpose, version, body: body.clone() })
}

/// A request with one sample that the receiver has not seen: an empty one would be taken by a receiver whose disk is full.
fn probe(version: Version, now_ms: i64) -> Option<Bytes> {
    let labels = Labels::new([(NAME.to_owned(), PROBE.to_owned())]).ok()?;
    let sample = Sample { value: 1.0, time_ms: now_ms, start_ms: 0 };
    let help = "Sent when the receiver fails, to see whether it takes anything.".to_owned();
    let metadata = Metadata { help, ..Metadata::default() };
    let series = Series::new(labels, vec![sample], Some(Arc::new(metadata)));
    remote_write::encode(version, &[series]).ok().map(Bytes::from)
}
