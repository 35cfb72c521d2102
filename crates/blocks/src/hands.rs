//! Doing steps: what an engine's threads and a worker's have in common.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crc32c::crc32c;
use mapper::job::{self, Entry, Known};
use model::with_causes;
use objects::Io;
use tracedir::ClassCache;

use crate::block::{Summarised, Told};
use crate::blocks::{Blocks, find, keep};
use crate::cache::{Cache, Held};
use crate::error::{Error, Refused};
use crate::id::BlockId;
use crate::task::{Kept, Report, Task};
use crate::threads::Threads;
use crate::tree::{Fold, Node};
use crate::work::{Engine, EngineError, Outcome, Piece, Segment, Step, Stop, Work};

/// How many sets of trace classes are kept for the next steps.
const KEPT_CLASSES: usize = 16;
/// How many places for blocks stay open.
const KEPT_BLOCKS: usize = 16;

/// Where chunks of buckets are copied to while they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// In which folder; the system's for temporary files when absent.
    pub folder: Option<PathBuf>,
    /// How many bytes of files it may hold.
    pub bytes: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { folder: None, bytes: 4 << 30 }
    }
}

/// Does steps, on any number of threads at a time. It holds nothing that a step depends on: what is kept saves work.
#[derive(Debug)]
pub struct Hands {
    cache: Cache,
    io: Io,
    classes: Mutex<Vec<ClassCache>>,
    blocks: Mutex<Vec<((String, String), Blocks)>>,
}

impl Hands {
    /// Hands with an empty cache.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when there is no room for the cache, or no thread.
    pub fn new(cache: &CacheOptions) -> Result<Self, Error> {
        Ok(Self {
            cache: Cache::new(cache.folder.as_deref(), cache.bytes)?,
            io: Io::start()?,
            classes: Mutex::default(),
            blocks: Mutex::default(),
        })
    }

    pub(crate) const fn io(&self) -> &Io {
        &self.io
    }

    pub(crate) fn root(&self) -> &Path {
        self.cache.root()
    }

    /// Does one step.
    #[must_use]
    pub fn run(&self, work: &Work, step: &Step) -> Outcome {
        let done = match step {
            Step::Map { part, id, entry } => self.map(work, *part, *id, entry),
            Step::Load { node, id } => self.load(work, *node, *id),
        };
        done.unwrap_or_else(|error| Outcome::Failed {
            place: place(work, step),
            problem: with_causes(&error),
        })
    }

    /// Begins to merge segments of a job as far as they are whole nodes; the merges are committed.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`] when there is no place for the merges.
    pub fn folding(&self, work: &Work) -> Result<Folding, Error> {
        Ok(Folding { fold: Fold::new(work.parts.len()), blocks: self.blocks(work)? })
    }

    /// Does the steps of a task, which are neighbours mostly, on so many threads; merges and commits what is a whole node.
    /// Gives what came of them once all are done, in the order of their windows, and at once what cannot be done.
    ///
    /// # Errors
    ///
    /// [`EngineError::Stopped`]; [`EngineError::Failed`] with [`Error::Objects`] when there is no place for the
    /// merges.
    pub fn work(
        &self,
        task: Task,
        threads: Option<NonZeroUsize>,
        stop: &Stop,
        give: &mut dyn FnMut(Report) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let (work, steps) = task.into_parts();
        let work = Arc::new(work);
        let mut folding = self.folding(&work)?;
        let mut is_whole = true;
        Threads::new(self, threads).until(stop.clone()).run(&work, steps, &mut |outcome| {
            let report = match outcome {
                Outcome::Segment(segment) => match folding.add(segment) {
                    Ok(()) => return ControlFlow::Continue(()),
                    Err(error) => unmerged(&error),
                },
                Outcome::Gone { id, refused } => {
                    return give(Report::Gone { id, refused });
                }
                Outcome::Stale { problem } => Report::Stale { problem },
                Outcome::Failed { place, problem } => Report::Failed { place, problem },
            };
            is_whole = false;
            // Whether it is wanted or not, nothing follows.
            let (ControlFlow::Continue(()) | ControlFlow::Break(())) = give(report);
            ControlFlow::Break(())
        })?;
        if !is_whole {
            return Ok(());
        }
        for Segment { node, id, content, made, loaded, refused } in folding.finish() {
            let (bytes, checksum) = (content.summary.len() as u64, crc32c(&content.summary));
            let kept = Kept { node, id, bytes, checksum, made, loaded, refused };
            if give(Report::Kept(kept)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// What a worker's report says, with the summary from where the blocks of the job are.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`] and its like; [`Error::Step`] for a block that is not there, or is not what the worker made.
    pub fn outcome(&self, work: &Work, report: Report) -> Result<Outcome, Error> {
        let kept = match report {
            Report::Kept(kept) => kept,
            Report::Gone { id, refused } => return Ok(Outcome::Gone { id, refused }),
            Report::Stale { problem } => return Ok(Outcome::Stale { problem }),
            Report::Failed { place, problem } => return Ok(Outcome::Failed { place, problem }),
        };
        let Kept { node, id, bytes, checksum, made, loaded, refused } = kept;
        let content = match self.load(work, node, id)? {
            Outcome::Segment(segment) => segment.content,
            Outcome::Gone { refused: None, .. } => {
                return Err(Error::Step {
                    place: format!("block {id}"),
                    problem: format!(
                        "a worker says that it is kept, and it is not in {}: workers must have the same folder there",
                        work.blocks.as_deref().unwrap_or("no place")
                    ),
                });
            }
            other => return Ok(other),
        };
        if (content.summary.len() as u64, crc32c(&content.summary)) != (bytes, checksum) {
            let problem = "it is not the one that a worker says it kept".to_owned();
            return Err(Error::Step { place: format!("block {id}"), problem });
        }
        Ok(Outcome::Segment(Segment { node, id, content, made, loaded, refused }))
    }

    /// Where the blocks of a job are; `None` when they are not kept.
    pub(crate) fn blocks(&self, work: &Work) -> Result<Option<Blocks>, Error> {
        let Some(url) = &work.blocks else { return Ok(None) };
        let key = (url.clone(), work.common.host().to_owned());
        let mut open = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, blocks)) = open.iter().find(|(known, _)| *known == key) {
            return Ok(Some(blocks.clone()));
        }
        let blocks = Blocks::open(url, work.common.host(), &self.io)?;
        if open.len() >= KEPT_BLOCKS {
            open.remove(0);
        }
        open.push((key, blocks.clone()));
        Ok(Some(blocks))
    }

    /// What is known after a part, and its block's name. Says whether the block was made, and which was refused.
    pub(crate) fn known(
        &self,
        work: &Work,
        part: usize,
        before: (&Known, Option<BlockId>),
    ) -> Result<Learnt, Error> {
        let blocks = self.blocks(work)?;
        let (before, id_before) = before;
        let id = BlockId::of_known(work, part, id_before)?;
        let mut refused = None;
        if let Some(blocks) = &blocks {
            match blocks.get(&id)? {
                Ok(Some(known)) => return Ok(Learnt { known, id, made: false, refused }),
                Ok(None) => {}
                Err(damaged) => refused = Some(damaged.line()),
            }
        }
        let known = self.reading(work, part, |held, classes| {
            let part = work.parts.get(part).ok_or_else(|| unknown(part))?;
            Ok(job::learn(&work.common, part, before, &held.folders, classes)?)
        })?;
        let made = match &blocks {
            Some(blocks) => blocks.put(&id, &known)?,
            None => false,
        };
        Ok(Learnt { known, id, made, refused })
    }

    fn map(&self, work: &Work, part: usize, id: BlockId, entry: &Entry) -> Result<Outcome, Error> {
        if BlockId::of_map(work, part, entry)? != id {
            let problem = "its block is called otherwise here".to_owned();
            return Err(Error::Step { place: format!("window {part}"), problem });
        }
        let node = Node::window(part);
        // Somebody else may have made it since the job was planned.
        let mut refused = Vec::new();
        match self.load(work, node, id)? {
            Outcome::Gone { refused: damaged, .. } => refused.extend(damaged),
            made_before => return Ok(made_before),
        }
        let mapped = self.reading(work, part, |held, classes| {
            let part = work.parts.get(part).ok_or_else(|| unknown(part))?;
            Ok(job::map(&work.common, part, entry, &held.folders, classes)?)
        })?;
        let told = Told::new(mapped.events, mapped.findings, mapped.more_findings);
        let content = Summarised { told, summary: mapped.summary.to_bytes()? };
        let made = u64::from(keep(self.blocks(work)?.as_ref(), &id, &content)?);
        Ok(Outcome::Segment(Segment { node, id, content, made, loaded: 0, refused }))
    }

    fn load(&self, work: &Work, node: Node, id: BlockId) -> Result<Outcome, Error> {
        Ok(match find(self.blocks(work)?.as_ref(), &id)? {
            Ok(Some(content)) => {
                let refused = Vec::new();
                Outcome::Segment(Segment { node, id, content, made: 0, loaded: 1, refused })
            }
            Ok(None) => Outcome::Gone { id, refused: None },
            Err(damaged) => Outcome::Gone { id, refused: Some(damaged.line()) },
        })
    }

    /// Reads the pieces of a part.
    fn reading<T>(
        &self,
        work: &Work,
        part: usize,
        read: impl FnOnce(&Held<'_>, &mut ClassCache) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let numbers = work.parts.get(part).map(|part| part.pieces.as_slice()).unwrap_or_default();
        let pieces: Vec<&Piece> =
            numbers.iter().filter_map(|piece| work.pieces.get(*piece)).collect();
        let held = self.cache.hold(&pieces, &self.io)?;
        let kept = || self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut classes = kept().pop().unwrap_or_default();
        let read = read(&held, &mut classes);
        let mut kept = kept();
        if kept.len() < KEPT_CLASSES {
            kept.push(classes);
        }
        read
    }
}

/// What is known after a part.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub(crate) known: Known,
    pub(crate) id: BlockId,
    pub(crate) made: bool,
    pub(crate) refused: Option<String>,
}

/// Segments that are merged as they come.
#[derive(Debug)]
pub struct Folding {
    fold: Fold,
    blocks: Option<Blocks>,
}

impl Folding {
    /// Takes in the next one.
    ///
    /// # Errors
    ///
    /// [`Error::Twice`]; [`Error::Summary`] when neighbours do not merge; [`Error::Objects`] when a merge cannot be committed.
    pub fn add(&mut self, segment: Segment) -> Result<(), Error> {
        self.fold.add(segment, self.blocks.as_ref())
    }

    /// What came of them, in order.
    #[must_use]
    pub fn finish(self) -> Vec<Segment> {
        self.fold.into_segments()
    }
}

/// Why neighbours do not merge; a window that began with less than it has to know begins again with more.
fn unmerged(error: &Error) -> Report {
    let problem = with_causes(error);
    match error {
        Error::Summary(stitch::Error::StaleAssumption { .. }) => Report::Stale { problem },
        _ => Report::Failed { place: "a merge".to_owned(), problem },
    }
}

fn unknown(part: usize) -> Error {
    Error::Step { place: format!("window {part}"), problem: "the job has none".to_owned() }
}

/// What a step is about, for people.
fn place(work: &Work, step: &Step) -> String {
    let part = match step {
        Step::Map { part, .. } => *part,
        Step::Load { id, .. } => return format!("block {id}"),
    };
    let numbers = work.parts.get(part).map(|part| part.pieces.as_slice()).unwrap_or_default();
    let pieces = numbers.iter().filter_map(|piece| work.pieces.get(*piece));
    let names: Vec<String> = pieces.map(Piece::name).collect();
    format!("window {part} of {}", names.join(", "))
}

impl Refused {
    /// As it is told.
    pub(crate) fn line(&self) -> String {
        with_causes(self)
    }
}
