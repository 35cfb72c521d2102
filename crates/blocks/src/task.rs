//! What is sent to a worker, and what it says: the bytes of both.
//!
//! ```text
//! offset  size  content (integers little endian)
//!      0     8  "TLTASK\r\n"
//!      8     4  version, 1
//!     12    32  name of the block that is merged from nothing: which summaries, and which reading of events
//!     44     n  body in postcard's encoding: what of the job the steps need, and the steps
//! ```
//!
//! A report is postcard's encoding alone: it answers a task, so both sides are of one version. Summaries are in neither. A
//! worker commits them as blocks, and says their names.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{BadTask, Error};
use crate::id::BlockId;
use crate::tree::Node;
use crate::work::{Step, Work};

const MAGIC: &[u8; 8] = b"TLTASK\r\n";
/// Which bytes tasks and reports are.
pub const TASK_VERSION: u32 = 1;
/// Longest task that is read.
pub const MAX_TASK_BYTES: usize = 24 << 20;
/// Longest report that is read: names of blocks that were refused, or a problem.
pub const MAX_REPORT_BYTES: usize = 1 << 20;
/// A task takes at most so many bytes of memory for each byte that it is sent as, and [`TASK_BASE_BYTES`].
pub const TASK_FACTOR: usize = 64;
/// See [`TASK_FACTOR`].
pub const TASK_BASE_BYTES: usize = 4 << 20;

/// Steps for one worker, and what it has to know of the job to do them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    work: Work,
    steps: Vec<Step>,
}

/// What became of a step, or of several that were merged, as a worker says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// A summary is committed.
    Kept(Kept),
    /// See [`crate::Outcome::Gone`].
    Gone {
        /// Which block.
        id: BlockId,
        /// Why it was refused.
        refused: Option<String>,
    },
    /// See [`crate::Outcome::Stale`].
    Stale {
        /// What a window did not know.
        problem: String,
    },
    /// See [`crate::Outcome::Failed`].
    Failed {
        /// Where it failed.
        place: String,
        /// Why.
        problem: String,
    },
}

/// A block that a worker made or brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// What it covers.
    pub node: Node,
    /// Its name.
    pub id: BlockId,
    /// Bytes of its summary.
    pub bytes: u64,
    /// CRC-32C of its summary.
    pub checksum: u32,
    /// How many blocks were made for it that were not there before.
    pub made: u64,
    /// How many blocks it was merged from that were.
    pub loaded: u64,
    /// Blocks that were refused meanwhile, a line each.
    pub refused: Vec<String>,
}

impl Task {
    /// These steps of a job, in the order of their windows, with the pieces that they need.
    #[must_use]
    pub fn new(work: &Work, mut steps: Vec<Step>) -> Self {
        steps.sort_by_key(Step::first);
        let mapped: BTreeSet<usize> = steps.iter().filter_map(part_of).collect();
        let mut pieces = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut parts = work.parts.clone();
        for (n, part) in parts.iter_mut().enumerate() {
            if !mapped.contains(&n) {
                part.pieces.clear();
            }
            for number in &mut part.pieces {
                let Some(piece) = work.pieces.get(*number) else { continue };
                *number = *numbers.entry(*number).or_insert_with(|| {
                    pieces.push(piece.clone());
                    pieces.len() - 1
                });
            }
        }
        let (common, blocks) = (work.common.clone(), work.blocks.clone());
        Self { work: Work { common, parts, pieces, blocks }, steps }
    }

    /// The job, without what these steps do not need.
    #[must_use]
    pub const fn work(&self) -> &Work {
        &self.work
    }

    /// The steps, in the order of their windows.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub(crate) fn into_parts(self) -> (Work, Vec<Step>) {
        (self.work, self.steps)
    }

    /// What every task of this version begins with.
    ///
    /// # Errors
    ///
    /// As [`BlockId::of_nothing`].
    pub fn header() -> Result<Vec<u8>, Error> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&TASK_VERSION.to_le_bytes());
        bytes.extend_from_slice(BlockId::of_nothing()?.bytes());
        Ok(bytes)
    }

    /// The bytes to send.
    ///
    /// # Errors
    ///
    /// [`Error::Task`] for more than [`MAX_TASK_BYTES`]; [`Error::Encoding`].
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let bytes = postcard::to_extend(self, Self::header()?)?;
        match bytes.len() > MAX_TASK_BYTES {
            true => Err(BadTask::TooLong { len: bytes.len() }.into()),
            false => Ok(bytes),
        }
    }

    /// Reads what was sent. Takes at most [`TASK_BASE_BYTES`] and [`TASK_FACTOR`] bytes of memory for each byte.
    ///
    /// # Errors
    ///
    /// [`Error::Task`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_TASK_BYTES {
            return Err(BadTask::TooLong { len: bytes.len() }.into());
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(BadTask::Magic)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(BadTask::Magic)?;
        let version = u32::from_le_bytes(*version);
        if version != TASK_VERSION {
            return Err(BadTask::Version { found: version, expected: TASK_VERSION }.into());
        }
        let (reading, rest) = rest.split_first_chunk::<32>().ok_or(BadTask::Magic)?;
        if reading != BlockId::of_nothing()?.bytes() {
            return Err(BadTask::OtherReading.into());
        }
        let (task, rest): (Self, &[u8]) = postcard::take_from_bytes(rest).map_err(BadTask::Body)?;
        if !rest.is_empty() {
            return Err(BadTask::Inconsistent("it is longer than its body").into());
        }
        task.check()?;
        Ok(task)
    }

    /// Whether all numbers are of something that is there.
    fn check(&self) -> Result<(), BadTask> {
        let Work { parts, pieces, blocks, .. } = &self.work;
        let refuse = |why| Err(BadTask::Inconsistent(why));
        if blocks.is_none() {
            return refuse("it says nowhere to keep blocks");
        }
        if parts.iter().flat_map(|part| &part.pieces).any(|piece| *piece >= pieces.len()) {
            return refuse("a window needs a piece that is not in it");
        }
        let mut end = 0;
        for step in &self.steps {
            let node = match step {
                Step::Map { part, .. } => Node::window(*part),
                Step::Load { node, .. } => *node,
            };
            if !node.is_one_of(parts.len()) {
                return refuse("a step is of a window that is not in it");
            }
            if node.first < end {
                return refuse("its steps overlap, or are not in the order of time");
            }
            end = node.end(parts.len());
        }
        Ok(())
    }
}

impl Report {
    /// The bytes to send.
    ///
    /// # Errors
    ///
    /// [`Error::Encoding`].
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Reads what was sent.
    ///
    /// # Errors
    ///
    /// [`Error::Task`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_REPORT_BYTES {
            return Err(BadTask::TooLong { len: bytes.len() }.into());
        }
        Ok(postcard::from_bytes(bytes).map_err(BadTask::Body)?)
    }
}

fn part_of(step: &Step) -> Option<usize> {
    match step {
        Step::Map { part, .. } => Some(*part),
        Step::Load { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use mapper::job::Entry;

    use super::*;
    use crate::work::{Piece, Place};

    fn id() -> BlockId {
        BlockId::of_nothing().unwrap()
    }

    /// A job of so many windows, each of the piece of its number and the next one.
    fn work(windows: usize) -> Work {
        let piece = |n: usize| Piece {
            place: Place::Folder(format!("/traces/{n}").into()),
            checksum: [7; 32],
            bytes: 1,
        };
        let part = |n: usize| mapper::job::Part {
            begin: model::Timestamp::from_nanos(i64::try_from(n).unwrap()),
            end: model::Timestamp::from_nanos(i64::try_from(n + 1).unwrap()),
            is_gap: false,
            pieces: vec![n, n + 1],
        };
        let folder = tempfile::tempdir().unwrap();
        let chunk = testkit::Chunked { chunks: 1, events: 9, seed: 1 }.write(folder.path());
        let rules = mapper::SpanRules::default();
        let mut cache = tracedir::ClassCache::default();
        let survey = mapper::job::Survey::of_folder(&chunk[0], &rules, &mut cache).unwrap();
        Work {
            common: mapper::job::Plan::of(&[survey], &rules, None).unwrap().common,
            parts: (0..windows).map(part).collect(),
            pieces: (0..=windows).map(piece).collect(),
            blocks: Some("/kept".to_owned()),
        }
    }

    fn map(part: usize) -> Step {
        Step::Map { part, id: id(), entry: Box::new(Entry::default()) }
    }

    #[test]
    fn a_task_has_what_its_steps_need_and_nothing_else_of_the_job() {
        let work = work(20);
        let load = Step::Load { node: Node { first: 8, level: 1 }, id: id() };
        let task = Task::new(&work, vec![load.clone(), map(3), map(2)]);
        assert_eq!(task.steps(), [map(2), map(3), load]);
        assert_eq!(task.work().parts.len(), 20);
        assert_eq!(task.work().pieces, work.pieces[2..=4]);
        assert_eq!(task.work().parts[3].pieces, [1, 2]);
        assert_eq!(Task::decode(&task.encode().unwrap()).unwrap(), task);
    }

    #[test]
    fn what_is_no_task_of_this_version_is_refused() {
        let good = Task::new(&work(3), vec![map(1)]).encode().unwrap();
        let refused = |bytes: &[u8]| match Task::decode(bytes) {
            Err(Error::Task(bad)) => bad,
            other => panic!("{other:?}"),
        };
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        assert!(matches!(refused(b""), BadTask::Magic));
        assert!(matches!(refused(&changed(0)), BadTask::Magic));
        assert!(matches!(refused(&changed(8)), BadTask::Version { found: 0, expected: 1 }));
        assert!(matches!(refused(&changed(20)), BadTask::OtherReading));
        for len in 44..good.len() {
            assert!(matches!(refused(&good[..len]), BadTask::Body(_)), "{len}");
        }
        assert!(matches!(refused(&[&*good, b"x"].concat()), BadTask::Inconsistent(_)));
        assert!(matches!(refused(&vec![0; MAX_TASK_BYTES + 1]), BadTask::TooLong { .. }));
    }

    #[test]
    fn steps_of_what_is_not_there_are_refused() {
        let sent = |work: &Work, steps: Vec<Step>| {
            let task = Task { work: work.clone(), steps };
            matches!(Task::decode(&task.encode().unwrap()), Err(Error::Task(_)))
        };
        let load = |first, level| Step::Load { node: Node { first, level }, id: id() };
        let good = work(20);
        assert!(!sent(&good, vec![map(0), load(8, 1), load(16, 1)]));
        assert!(sent(&good, vec![map(20)]));
        assert!(sent(&good, vec![load(24, 1)]));
        assert!(sent(&good, vec![load(4, 1)]));
        assert!(sent(&good, vec![load(0, 40)]));
        assert!(sent(&good, vec![map(3), map(3)]));
        assert!(sent(&good, vec![load(8, 1), map(9)]));
        assert!(sent(&Work { blocks: None, ..good.clone() }, vec![]));
        assert!(sent(&Work { pieces: vec![], ..good }, vec![]));
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let kept = Kept {
            node: Node::window(3),
            id: id(),
            bytes: 9,
            checksum: 8,
            made: 1,
            loaded: 2,
            refused: vec!["a block".to_owned()],
        };
        let gone = Report::Gone { id: id(), refused: None };
        for report in [Report::Kept(kept), gone, Report::Stale { problem: "p".to_owned() }] {
            assert_eq!(Report::decode(&report.encode().unwrap()).unwrap(), report);
        }
        assert!(matches!(Report::decode(&[9]), Err(Error::Task(BadTask::Body(_)))));
    }
}
