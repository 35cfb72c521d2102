//! The local runner: recordings on disk, windows mapped on several threads, summaries merged in order.
//!
//! All traces of a host share its monotonic clock, but each measured the clock's distance from the epoch by itself. For
//! traces whose clocks have the same UUID the smallest of these distances counts for all, so that events of the kernel
//! and of applications come in the order in which they happened.
//!
//! The windows of a rotated session end where the last stream of a chunk ended; a window reads from every file that
//! overlaps it, so the cuts of one session hold for all. Where a cut lies changes no answer, only how work is divided.

mod chunks;
mod flow;
mod log;
mod round;
mod source;
mod twice;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use model::{TimeRange, Timestamp};
use stitch::{Cover, Identities, Selection, Summary};
use tracedir::{ClassCache, UnsealedChunk};

use crate::Error;
use crate::adapter::SpanRules;
pub(crate) use chunks::{Times, holes, times_of};
pub use flow::Mapped;
pub use log::read_log;
pub(crate) use round::Stretch;
pub(crate) use source::{Origins, Source, clock, host_of, one_host};

/// How recordings are cut into windows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Windows {
    /// At the ends of rotation chunks.
    #[default]
    Chunks,
    /// Not at all.
    Whole,
    /// At these times.
    At(Vec<Timestamp>),
}

/// How recordings are analysed.
#[derive(Debug, Clone)]
pub struct Options {
    /// How they are cut.
    pub windows: Windows,
    /// Which events are spans.
    pub rules: SpanRules,
    /// How many threads map windows; all CPUs when absent.
    pub threads: Option<NonZeroUsize>,
    /// What is counted, where it is not all.
    pub selection: Option<Arc<Selection>>,
    /// The time of the answer. What lies before it is read for what is open where it begins; what lies after it is not.
    pub range: TimeRange,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            windows: Windows::default(),
            rules: SpanRules::default(),
            threads: None,
            selection: None,
            range: TimeRange::ALL,
        }
    }
}

/// What recordings say.
#[derive(Debug)]
pub struct Analysis {
    /// Everything merged.
    pub summary: Summary,
    /// What could not be read, a line each; the rest was.
    pub findings: Vec<String>,
    /// How many findings there are beyond those kept.
    pub more_findings: u64,
    /// Chunks that were never sealed, with what they lack.
    pub unsealed: Vec<UnsealedChunk>,
    /// How many event records were read to be summarised.
    pub events: u64,
    /// How many windows there were.
    pub windows: usize,
}

/// Analyses the recordings at or below `paths`, all of one host.
///
/// # Errors
///
/// [`Error::Recording`] when nothing can be read, [`Error::SeveralHosts`], [`Error::NoTime`] when no event has a time.
pub fn analyse<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<Analysis, Error> {
    let Plan { source, windows, mut analysis } = plan(paths, options)?;
    let threads = threads(options).get().min(windows.len());
    if threads < 2 {
        for window in &windows {
            let mapped = map(&source, window, analysis.entry(&source, window), options.select());
            analysis.reach(window);
            analysis.add(mapped)?;
        }
        return Ok(analysis.finish());
    }
    let entries = source.identities(&windows);
    let work: Vec<_> = windows.iter().zip(entries).collect();
    let map =
        |(window, entry): &(&Stretch, _)| map(&source, window, Arc::clone(entry), options.select());
    for (window, mut mapped) in windows.iter().zip(map_all(&work, threads, map)) {
        analysis.reach(window);
        // Who shares descriptors is not looked for before: nearly always it is nobody.
        let summary = &analysis.analysis.summary;
        if summary.precedes(&mapped.summary).is_err() {
            mapped = map(&(window, Arc::new(summary.identities())));
        }
        analysis.add(mapped)?;
    }
    Ok(analysis.finish())
}

/// What is to be read, and the answer so far.
struct Plan {
    source: Source,
    windows: Vec<Stretch>,
    analysis: Progress,
}

fn plan<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<Plan, Error> {
    let mut cache = ClassCache::default();
    let mut origins = Origins::new();
    let (source, left_out) = match twice::once(paths) {
        None => (Source::open(paths, &options.rules, &mut cache, &mut origins)?, Vec::new()),
        Some((folders, left_out)) => {
            (Source::open(&folders, &options.rules, &mut cache, &mut origins)?, left_out)
        }
    };
    let sessions = chunks::sessions(source.folders())?;
    let mut gaps = chunks::gaps(&sessions, source.shifts(), &mut cache)?;
    gaps.extend(holes(source.covers()));
    let mut cuts = match &options.windows {
        Windows::Whole => Vec::new(),
        Windows::At(cuts) => cuts.clone(),
        Windows::Chunks => chunks::ends(&sessions, source.shifts(), &mut cache)?,
    };
    cuts.extend(gaps.iter().flat_map(|(begin, end)| [*begin, *end]));
    cuts.push(options.range.begin);
    let windows = windows(cuts, source.begin(), source.end().min(options.range.end));
    let is_gap = |begin: Timestamp| gaps.iter().any(|(from, to)| *from <= begin && begin < *to);
    let windows: Vec<Stretch> = windows
        .into_iter()
        .map(|(begin, end)| Stretch { begin, end, is_gap: is_gap(begin) })
        .collect();
    let (mut findings, more_findings) = source.findings();
    findings.splice(..0, left_out);
    let analysis = Analysis {
        summary: Summary::identity(),
        findings,
        more_findings,
        unsealed: sessions.into_iter().flat_map(|session| session.unsealed).collect(),
        events: 0,
        windows: windows.len(),
    };
    let counts_from = Some(options.range.begin).filter(|begin| source.begin() < *begin);
    Ok(Plan { source, windows, analysis: Progress { analysis, counts_from } })
}

/// The chunks among these folders that were never sealed, with what they lack.
///
/// # Errors
///
/// [`Error::Recording`] when a session's folder cannot be listed.
pub fn unsealed<'p>(folders: impl Iterator<Item = &'p Path>) -> Result<Vec<UnsealedChunk>, Error> {
    let sessions = chunks::sessions(folders.filter(|folder| folder.is_dir()))?;
    Ok(sessions.into_iter().flat_map(|session| session.unsealed).collect())
}

/// The summary of one window, or of a gap.
pub(crate) fn map(
    source: &Source,
    window: &Stretch,
    entry: Arc<Identities>,
    selection: Option<&Arc<Selection>>,
) -> flow::Mapped {
    let cover = Cover { host: source.host().into(), begin: window.begin, end: window.end };
    if window.is_gap {
        return flow::Mapped { summary: Summary::gap(cover), ..flow::Mapped::default() };
    }
    source.map(cover, entry, selection, None)
}

/// Windows merged from the first one on.
struct Progress {
    analysis: Analysis,
    /// Where counting begins, while what came so far lies before.
    counts_from: Option<Timestamp>,
}

impl Progress {
    /// Who is who at the begin of the next window.
    fn entry(&self, source: &Source, window: &Stretch) -> Arc<Identities> {
        let summary = &self.analysis.summary;
        let mut entry = summary.identities();
        if summary.cover().is_none() {
            entry = entry.outside_spans();
        }
        if summary.cover().is_none() || summary.ends_in_gap() {
            source.look_ahead(window.begin).complete(&mut entry);
        }
        Arc::new(entry)
    }

    /// What comes next belongs to this window.
    fn reach(&mut self, window: &Stretch) {
        if self.counts_from.is_some_and(|begin| begin <= window.begin) {
            self.count_from_here();
        }
    }

    /// Appends what comes next.
    fn add(&mut self, mapped: flow::Mapped) -> Result<(), Error> {
        let flow::Mapped { summary, events, findings, more_findings } = mapped;
        let analysis = &mut self.analysis;
        analysis.summary = std::mem::take(&mut analysis.summary).merge(summary)?;
        analysis.events += events;
        analysis.findings.extend(findings);
        analysis.more_findings += more_findings;
        Ok(())
    }

    fn count_from_here(&mut self) {
        let summary = std::mem::take(&mut self.analysis.summary);
        self.analysis.summary = summary.counting_from_its_end();
        self.counts_from = None;
    }

    fn finish(mut self) -> Analysis {
        if self.counts_from.is_some() {
            self.count_from_here();
        }
        self.analysis
    }
}

impl Options {
    fn select(&self) -> Option<&Arc<Selection>> {
        self.selection.as_ref()
    }
}

fn threads(options: &Options) -> NonZeroUsize {
    options.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// The begins and ends of the windows that these cuts give.
pub(crate) fn windows(
    mut cuts: Vec<Timestamp>,
    begin: Timestamp,
    end: Timestamp,
) -> Vec<(Timestamp, Timestamp)> {
    if end <= begin {
        return Vec::new();
    }
    cuts.retain(|cut| begin < *cut && *cut < end);
    cuts.extend([begin, end]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.iter().copied().zip(cuts.iter().copied().skip(1)).collect()
}

/// Maps windows on so many threads; the results come in the windows' order.
fn map_all<W: Sync>(
    windows: &[W],
    threads: usize,
    map: impl Fn(&W) -> Mapped + Sync,
) -> Vec<Mapped> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(windows.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(window) = windows.get(index) else { return };
                    let mapped = map(window);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, mapped));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, mapped)| mapped).collect()
}

/// Folders of traces.
type Folders = Vec<PathBuf>;
