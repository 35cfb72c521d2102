//! A job from places to one summary.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mapper::job::{Known, Plan, Survey};
use mapper::{Analysis, SpanRules};
use model::Timestamp;
use sha2::{Digest, Sha256};
use stitch::{Selection, Summary};
use tracedir::manifest::{Contents, Manifest};
use tracedir::{ChunkName, ClassCache, discover};

use crate::chunks;
use crate::error::Error;
use crate::hands::Hands;
use crate::id::BlockId;
use crate::threads::Threads;
use crate::tree::{FAN, Fold, Has, Names, Node, joined, row};
use crate::work::{Engine, EngineError, Outcome, Piece, Place, Segment, Step, Work};

/// How often a job is taken up again without anything having come in between.
const ATTEMPTS: usize = 5;

/// What is analysed, and where summaries are kept.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which events are spans.
    pub rules: SpanRules,
    /// What is counted, where it is not all.
    pub selection: Option<Selection>,
    /// A folder or URL for blocks; they are not kept when absent.
    pub blocks: Option<String>,
    /// Only these windows: from, and the first not; all when absent.
    pub windows: Option<(usize, usize)>,
}

/// What recordings say, and how it was found out.
#[derive(Debug)]
pub struct Answer {
    /// As an analysis of folders without blocks gives it.
    pub analysis: Analysis,
    /// Blocks that were made: of windows, of merges, and of who is who.
    pub blocks_made: u64,
    /// Summaries that came from blocks made before.
    pub blocks_used: u64,
    /// Merges that were needed at the end because no block has exactly these windows.
    pub last_merges: usize,
    /// Blocks that were refused, a line each.
    pub refused: Vec<String>,
    /// What engines lost and others did again, a line each.
    pub lost: Vec<String>,
}

/// Analyses the recordings at or below places, folders or URLs of buckets, all of one host. The engine does the reading and
/// merging, this process the planning and the last merges.
///
/// # Errors
///
/// What planning meets: [`Error::Objects`], [`Error::NoChunk`], [`Error::Manifest`], [`Error::Mapper`];
/// [`Error::Step`] when a part cannot be done, [`Error::Incomplete`] when the engine loses parts again and again,
/// [`Error::Nobody`], [`Error::Stopped`].
pub fn analyse(
    places: &[PathBuf],
    options: &Options,
    hands: &Hands,
    engine: &dyn Engine,
) -> Result<Answer, Error> {
    let (pieces, surveys) = survey(places, &options.rules, hands)?;
    let plan = Plan::of(&surveys, &options.rules, options.selection.clone())?;
    let windows = plan.parts.len();
    let work = Arc::new(Work {
        common: plan.common.clone(),
        parts: plan.parts.clone(),
        pieces,
        blocks: options.blocks.clone(),
    });
    let mut answer = Answer {
        analysis: Analysis {
            summary: Summary::identity(),
            findings: Vec::new(),
            more_findings: 0,
            unsealed: mapper::unsealed(surveys.iter().map(Survey::folder))?,
            events: 0,
            windows,
        },
        blocks_made: 0,
        blocks_used: 0,
        last_merges: 0,
        refused: Vec::new(),
        lost: Vec::new(),
    };
    for survey in &surveys {
        let (findings, more) = survey.findings();
        answer.analysis.findings.extend_from_slice(findings);
        answer.analysis.more_findings += more;
    }
    let mut job = Job { work: &work, hands, engine, answer };
    let range = options.windows.unwrap_or((0, windows));
    if !plan.needs_known {
        match job.summarise(&plan, &[], range) {
            // Processes that share descriptors are looked for when there are some: nearly always there are none.
            Err(Error::Summary(stitch::Error::StaleAssumption { .. }) | Error::Stale { .. }) => {}
            done => return job.finish(done?),
        }
    }
    let known = job.known()?;
    let segments = job.summarise(&plan, &known, range)?;
    job.finish(segments)
}

/// A job on its way.
struct Job<'j> {
    work: &'j Arc<Work>,
    hands: &'j Hands,
    engine: &'j dyn Engine,
    answer: Answer,
}

impl Job<'_> {
    /// Runs steps until there are none left to run: `left` says which, after each attempt; `take` says whether an outcome
    /// brings the job on.
    fn run(
        &mut self,
        mut left: impl FnMut(&mut Self) -> Result<Vec<Step>, Error>,
        mut take: impl FnMut(&mut Self, Outcome) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let here = Threads::new(self.hands, None);
        let mut in_vain = 0;
        let mut fewest_maps = usize::MAX;
        let mut why = String::new();
        loop {
            let steps = left(self)?;
            let missing = steps.len();
            let maps = steps.iter().filter(|step| matches!(step, Step::Map { .. })).count();
            if maps < fewest_maps {
                // What was committed by those who were lost is gained, too.
                fewest_maps = maps;
                in_vain = 0;
            }
            if missing == 0 {
                return Ok(());
            }
            if in_vain == ATTEMPTS {
                return Err(Error::Incomplete { missing, attempts: ATTEMPTS, why });
            }
            in_vain += 1;
            let mut failed = None;
            // To bring a few blocks is less than to ask others for it.
            let is_small =
                missing <= 2 * FAN && steps.iter().all(|it| matches!(it, Step::Load { .. }));
            let engine = if is_small { &here } else { self.engine };
            let ended = engine.run(&Arc::clone(self.work), steps, &mut |outcome| match take(
                self, outcome,
            ) {
                Ok(is_progress) => {
                    in_vain = if is_progress { 0 } else { in_vain };
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            match ended {
                Ok(()) => "the engine left steps out".clone_into(&mut why),
                Err(EngineError::Lost { what }) => {
                    self.answer.lost.push(what.clone());
                    why = what;
                }
                Err(EngineError::Nobody { tried }) => {
                    return Err(Error::Nobody {
                        tried,
                        lost: std::mem::take(&mut self.answer.lost),
                    });
                }
                Err(EngineError::Stopped) => return Err(Error::Stopped),
                Err(EngineError::Failed(error)) => return Err(error),
            }
        }
    }

    /// What is known after each window, learnt in the order of time.
    fn known(&mut self) -> Result<Vec<Known>, Error> {
        let begin = self.work.parts.first().map(|part| part.begin);
        let mut before = (Known::at(begin.unwrap_or(Timestamp::MIN)), None);
        let mut known = Vec::new();
        for part in 0..self.work.parts.len() {
            if self.engine.is_cancelled() {
                return Err(Error::Stopped);
            }
            let learnt = self.hands.known(self.work, part, (&before.0, before.1))?;
            self.answer.blocks_made += u64::from(learnt.made);
            self.answer.refused.extend(learnt.refused);
            known.push(learnt.known.clone());
            before = (learnt.known, Some(learnt.id));
        }
        Ok(known)
    }

    /// The summaries of a range of windows, by the steps that are needed for them.
    fn summarise(
        &mut self,
        plan: &Plan,
        known: &[Known],
        (from, to): (usize, usize),
    ) -> Result<Vec<Segment>, Error> {
        let windows = plan.parts.len();
        let entries = plan.entries(known);
        let work = Arc::clone(self.work);
        let ids = entries.iter().enumerate();
        let ids = ids.map(|(part, entry)| BlockId::of_map(&work, part, entry));
        let names = Names::new(ids.collect::<Result<_, _>>()?)?;
        let rows = row(windows, from.min(windows)..to.min(windows));
        self.segments(&|fold, there| {
            let mut steps = Vec::new();
            for node in &rows {
                needed(*node, windows, fold, &names, there, &mut |node, is_there| {
                    let id = names.id(node)?;
                    steps.push(if is_there {
                        Step::Load { node, id }
                    } else {
                        let (part, entry) =
                            (node.first, Box::new(entries.get(node.first)?.clone()));
                        Step::Map { part, id, entry }
                    });
                    Some(())
                });
            }
            steps
        })
    }

    /// The segments that the steps bring, merged as far as they are whole nodes.
    fn segments(
        &mut self,
        steps: &dyn Fn(&Fold, &BTreeSet<BlockId>) -> Vec<Step>,
    ) -> Result<Vec<Segment>, Error> {
        let fold = std::cell::RefCell::new(Fold::new(self.work.parts.len()));
        let blocks = self.hands.blocks(self.work)?;
        self.run(
            |_| {
                let there = blocks.as_ref().map_or(Ok(BTreeSet::new()), |blocks| blocks.ids())?;
                Ok(steps(&fold.borrow(), &there))
            },
            |job, outcome| match outcome {
                Outcome::Segment(mut segment) => {
                    job.answer.refused.append(&mut segment.refused);
                    fold.borrow_mut().add(segment, blocks.as_ref())?;
                    Ok(true)
                }
                other => job.other(other),
            },
        )?;
        Ok(fold.into_inner().into_segments())
    }

    /// What is no answer.
    fn other(&mut self, outcome: Outcome) -> Result<bool, Error> {
        match outcome {
            // It is planned again, without this block.
            Outcome::Gone { refused, .. } => {
                let is_removed = refused.is_some();
                self.answer.refused.extend(refused);
                Ok(is_removed)
            }
            Outcome::Failed { place, problem } => Err(Error::Step { place, problem }),
            Outcome::Stale { problem } => Err(Error::Stale { problem }),
            Outcome::Segment(_) => Ok(false),
        }
    }

    fn finish(mut self, segments: Vec<Segment>) -> Result<Answer, Error> {
        self.answer.blocks_made += segments.iter().map(|segment| segment.made).sum::<u64>();
        self.answer.blocks_used += segments.iter().map(|segment| segment.loaded).sum::<u64>();
        self.answer.last_merges = segments.len().saturating_sub(1);
        let whole = joined(segments.into_iter().map(|segment| segment.content))?;
        let analysis = &mut self.answer.analysis;
        analysis.summary = Summary::from_bytes(&whole.summary)?;
        analysis.events = whole.told.events;
        analysis.findings.extend(whole.told.findings);
        analysis.more_findings += whole.told.more_findings;
        Ok(self.answer)
    }
}

/// Gives the highest nodes of which blocks are there, and the windows of which none is, for what has not come of a node.
fn needed(
    node: Node,
    windows: usize,
    fold: &Fold,
    names: &Names,
    there: &BTreeSet<BlockId>,
    give: &mut impl FnMut(Node, bool) -> Option<()>,
) {
    let has = fold.has(node);
    if has == Has::All {
        return;
    }
    let is_there = names.id(node).is_some_and(|id| there.contains(&id));
    let is_whole = has == Has::Nothing && !node.is_only_child(windows);
    if (is_there && is_whole) || node.level == 0 {
        give(node, is_there);
        return;
    }
    node.children(windows).for_each(|child| needed(child, windows, fold, names, there, give));
}

/// The pieces at or below places, in the order of their names, and what is known of each.
fn survey(
    places: &[PathBuf],
    rules: &SpanRules,
    hands: &Hands,
) -> Result<(Vec<Piece>, Vec<Survey>), Error> {
    let mut all: Vec<(Piece, Survey)> = Vec::new();
    let mut folders = Vec::new();
    for place in places {
        let url = place.to_str().filter(|text| text.contains("://"));
        match url.and_then(|url| url.split_once("://").map(|(scheme, rest)| (url, scheme, rest))) {
            None => folders.push(place.clone()),
            Some((_, "file", path)) if path.starts_with('/') => folders.push(PathBuf::from(path)),
            Some((url, ..)) => {
                let found = chunks::find(url, rules, hands.root(), hands.io())?;
                all.extend(found.into_iter().map(|chunk| (chunk.piece, chunk.survey)));
            }
        }
    }
    let mut cache = ClassCache::default();
    for folder in if folders.is_empty() { BTreeSet::new() } else { pieces_below(&folders)? } {
        let survey = Survey::of_folder(&folder, rules, &mut cache)?;
        all.push((piece_of(folder)?, survey));
    }
    all.sort_by(|(_, a), (_, b)| a.folder().cmp(b.folder()));
    all.dedup_by(|(_, a), (_, b)| a.folder() == b.folder());
    Ok(all.into_iter().unzip())
}

/// The chunks, and the traces that are in none, at or below folders.
fn pieces_below(folders: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Error> {
    let mut pieces = BTreeSet::new();
    for trace in discover(folders).map_err(mapper::Error::from)? {
        let path = std::path::absolute(&trace.path)
            .map_err(|source| Error::Io { path: trace.path.clone(), source })?;
        let is_chunk = |folder: &&Path| {
            let name = folder.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| ChunkName::parse(name).is_some())
        };
        let chunk = path.ancestors().find(is_chunk);
        pieces.insert(chunk.unwrap_or(&path).to_owned());
    }
    if pieces.is_empty() {
        let error = tracedir::Error::NoTrace { paths: folders.to_vec() };
        return Err(mapper::Error::from(error).into());
    }
    Ok(pieces)
}

/// A folder as a piece. One without a manifest is read once, for its checksums.
fn piece_of(folder: PathBuf) -> Result<Piece, Error> {
    let unreadable =
        |problem: String| Error::Manifest { name: folder.display().to_string(), problem };
    let manifest = Manifest::read(&folder).map_err(|error| unreadable(error.to_string()))?;
    let sealed = manifest.is_some();
    let contents = match manifest {
        Some(manifest) => manifest.contents,
        None => Contents::of(&folder, None).map_err(mapper::Error::from)?,
    };
    let bytes = contents.files.iter().map(|file| file.stored_bytes()).sum();
    let text = match sealed {
        true => {
            let path = folder.join(Manifest::name_in(&folder));
            std::fs::read(&path).map_err(|source| Error::Io { path, source })?
        }
        false => postcard::to_stdvec(&contents)?,
    };
    Ok(Piece { checksum: Sha256::digest(&text).into(), bytes, place: Place::Folder(folder) })
}
