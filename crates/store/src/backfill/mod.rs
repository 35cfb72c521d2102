//! The series of rules over cells that are over: what the samples of blocks add up to, as OpenMetrics text.
//!
//! ```text
//! blocks ─ rows ───▶ all sums: which series there are, within the limits
//!        ─ samples ▶ sums by cell, a window of time after the other ─▶ runs (files) ─ merged by series ─▶ text
//! ```
//! Merged blocks know when their samples were taken, and not when they came. So a sample is in the cell in which it was taken, whereas
//! a cell that the store closes ([`crate::cells`]) has what came in it; the [grid](Grid), the sums, the names and the bounds are the same.
//!
//! Memory: a row group, [`Wanted::most_sums`] sums of cells or one cell's, and the series within the limits. Windows are cut where there are more,
//! and what is beyond the cut is read again. What is between windows and text is in files.

mod runs;
mod tell;
mod window;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, Write};
use std::ops::Range;
use std::path::Path;

use export::Prefix;
use model::Timestamp;
use model::samples::{Batch, ProfileType, Series};
use rules::{Bounds, Reason, Rule, SeriesLimits, Sums, sums};
use wire::remote_write::Labels;

use self::runs::Runs;
use self::tell::Teller;
use self::window::Window;
use crate::block::{Detail, Selection, groups, read_group_into};
use crate::cells::Grid;
use crate::error::Error;
use crate::lake::name::Tenant;
use crate::lake::{Block, Reader};

/// Sums of cells that are in memory at a time, some 64 bytes each. A cell that has more alone is not cut.
pub const MAX_SUMS: usize = 1 << 20;
/// How long a window is at most: a block has no more than a day.
const WINDOW_MS: i64 = 24 * 3_600_000;

/// What is backfilled.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose samples.
    pub tenant: Tenant,
    /// By which rules, all together: those of the default form share series, as in any cell.
    pub rules: Vec<Rule>,
    /// What metrics' names begin with.
    pub prefix: Prefix,
    /// How many series there may be.
    pub limits: SeriesLimits,
    /// Series that were exported, by the labels of their deltas: they keep their places.
    pub known: BTreeSet<Labels>,
    /// The cells.
    pub grid: Grid,
    /// When the first cell begins, and the first behind the last; milliseconds since 1970, both begins of cells.
    pub cells: Range<i64>,
    /// When the first cell began that a store closed with the rules; what came from then on is in such cells.
    pub live_ms: Option<i64>,
    /// Sums of cells that are in memory at a time: [`MAX_SUMS`].
    pub most_sums: usize,
}

/// What was backfilled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filled {
    /// Blocks that were read.
    pub blocks: usize,
    /// Blocks that were left out, as all that they have came in cells that a store closed with the rules.
    pub live_blocks: usize,
    /// Blocks of which nobody knows whether they have what came in such cells: they were merged with what came before.
    pub mixed_blocks: usize,
    /// Series of deltas, the overflow among them; there are as many counters.
    pub series: u64,
    /// Samples of all series.
    pub samples: u64,
    /// Sums in the overflow, and why they are there.
    pub overflow: BTreeMap<Reason, i128>,
    /// Sums above 2^53, which no sample's value is exactly.
    pub inexact: u64,
    /// Sums below zero, which counters leave out.
    pub left_out: u64,
}

/// Writes what rules make of the samples that were taken in cells. `folder` is for files that nobody needs afterwards: as long as the text, more or less.
///
/// # Errors
///
/// [`Error::Gone`] for a block that was merged more than [`ENDED_STAY`](crate::lake::ENDED_STAY) ago, when the store runs; what reading blocks meets
/// first, with the block's name; [`Error::Backfill`]; [`Error::Uneven`].
pub fn backfill<W: Write>(
    reader: &Reader,
    wanted: &Wanted,
    folder: &Path,
    out: W,
) -> Result<Filled, Error> {
    let mut filled = Filled::default();
    let sources = Sources { reader, wanted, blocks: chosen(reader, wanted, &mut filled) };
    let bounds = Bounds::new(wanted.limits, wanted.known.iter().cloned());
    let all = sources.all(&bounds)?;
    filled.overflow = all.overflows().map(|(reason, amount)| (reason, amount.sum)).collect();
    // With these as known, each part of a cell has places for just them.
    let known = wanted.known.iter().chain(all.iter().map(|(labels, _)| labels)).cloned();
    let bounds = Bounds::new(wanted.limits, known);

    let mut runs = Runs::new(folder);
    let mut parts: i128 = 0;
    let most = sources.longest();
    let (mut begin, mut length) = (sources.begin(), most);
    while begin < wanted.cells.end {
        let end = begin.saturating_add(length).min(wanted.cells.end);
        let mut window = Window::new(wanted.grid, begin..end, wanted.most_sums);
        sources.fill(&bounds, &mut window)?;
        let filled = window.cells();
        (begin, length) = (filled.end, (filled.end - filled.start).saturating_mul(2).min(most));
        parts += window.sum();
        runs.add(window.into_series()).map_err(Error::Backfill)?;
    }
    let whole = all.iter().map(|(_, sum)| sum).sum::<i128>() + all.overflow().sum;
    if whole != parts {
        return Err(Error::Uneven { whole, parts });
    }
    told(wanted, runs, folder, out, &mut filled).map_err(Error::Backfill)?;
    Ok(filled)
}

fn told<W: Write>(
    wanted: &Wanted,
    mut runs: Runs<'_>,
    folder: &Path,
    out: W,
    filled: &mut Filled,
) -> std::io::Result<()> {
    let counters = runs::file(&folder.join("counters"))?;
    let mut teller = Teller::new(wanted.grid, wanted.cells.end, out, counters);
    runs.read(|series, cells| teller.tell(&series, &cells))?;
    let told = teller.finish()?;
    (filled.series, filled.samples) = (told.series, told.samples);
    (filled.inexact, filled.left_out) = (told.inexact, told.left_out);
    Ok(())
}

/// The blocks that have what is wanted.
fn chosen<'r>(reader: &'r Reader, wanted: &Wanted, filled: &mut Filled) -> Vec<&'r Block> {
    let mut chosen = Vec::new();
    for block in reader.blocks() {
        let Some(name) = block.name() else {
            chosen.push(block);
            continue;
        };
        if name.tenant != wanted.tenant || !overlaps(block, &wanted.cells) {
            continue;
        }
        let is_late = wanted.live_ms.is_some_and(|live_ms| name.came.nanos() >= nanos(live_ms));
        match name.level {
            // What it has came in one cell.
            0 | 1 if is_late => {
                filled.live_blocks += 1;
                continue;
            }
            _ if is_late => filled.mixed_blocks += 1,
            _ => {}
        }
        chosen.push(block);
    }
    filled.blocks = chosen.len();
    chosen
}

/// Whether a block may have samples of cells, by its name.
fn overlaps(block: &Block, cells: &Range<i64>) -> bool {
    block.name().is_none_or(|name| {
        name.begin.nanos() < nanos(cells.end) && name.end.nanos() >= nanos(cells.start)
    })
}

const fn nanos(ms: i64) -> i64 {
    ms.saturating_mul(1_000_000)
}

/// The first and the last time of cells.
const fn times(cells: &Range<i64>) -> (Timestamp, Timestamp) {
    let last = nanos(cells.end).saturating_sub(1);
    (Timestamp::from_nanos(nanos(cells.start)), Timestamp::from_nanos(last))
}

struct Sources<'a> {
    reader: &'a Reader,
    wanted: &'a Wanted,
    blocks: Vec<&'a Block>,
}

impl Sources<'_> {
    /// The first cell that may have samples.
    fn begin(&self) -> i64 {
        let Wanted { grid, cells, .. } = self.wanted;
        let begin = |block: &&Block| block.name().map_or(cells.start, |it| grid.cell_of(it.begin));
        self.blocks.iter().map(begin).min().map_or(cells.end, |first| first.max(cells.start))
    }

    /// How long a window may be: whole cells, one at least.
    fn longest(&self) -> i64 {
        let cell_ms = self.wanted.grid.cell_ms();
        (WINDOW_MS / cell_ms).max(1) * cell_ms
    }

    /// The sums of all cells together.
    fn all(&self, bounds: &Bounds) -> Result<Sums, Error> {
        let mut all = Sums::default();
        let Wanted { rules, prefix, cells, .. } = self.wanted;
        for block in &self.blocks {
            self.each_group(block, &|| cells.clone(), Detail::Totals, &mut |batch| {
                all.merge(sums(rules, prefix, batch, bounds), bounds);
            })?;
        }
        Ok(all)
    }

    /// Adds what blocks have of a window to it.
    fn fill(&self, bounds: &Bounds, window: &mut Window) -> Result<(), Error> {
        let Wanted { rules, prefix, grid, .. } = self.wanted;
        for block in &self.blocks {
            if !overlaps(block, &window.cells()) {
                continue;
            }
            // Fewer cells may be taken after each row group.
            let window = RefCell::new(&mut *window);
            let cells = || window.borrow().cells();
            self.each_group(block, &cells, Detail::Samples, &mut |batch| {
                let mut window = window.borrow_mut();
                let cell_of = |at| grid.cell_of(at);
                rules::sums_by_cell(rules, prefix, batch, bounds, cell_of, |cell_ms, sums| {
                    window.add(cell_ms, sums.with_overflow(prefix));
                });
            })?;
        }
        Ok(())
    }

    /// Has `visit` see what is wanted of a block, a row group after the other; `cells` says before each what is.
    fn each_group(
        &self,
        block: &Block,
        cells: &dyn Fn() -> Range<i64>,
        detail: Detail,
        visit: &mut dyn FnMut(&Batch),
    ) -> Result<(), Error> {
        let bytes = self.reader.read(block)?;
        let rules = &self.wanted.rules;
        let takes = |series: &Series| rules.iter().any(|rule| rule.takes(series));
        let mut selection = Selection {
            profile_type: self.only_type(),
            series: &takes,
            times: times(&cells()),
            detail,
        };
        let found = groups(&bytes, &selection, None).map_err(|error| block.blame(error))?;
        for group in found {
            let mut batch = Batch::new();
            selection.times = times(&cells());
            read_group_into(&bytes, group, &selection, &mut batch)
                .map_err(|error| block.blame(error))?;
            visit(&batch);
        }
        Ok(())
    }

    /// The profile type that all rules are of.
    fn only_type(&self) -> Option<&ProfileType> {
        let mut types = self.wanted.rules.iter().map(Rule::profile_type);
        let first = types.next()?;
        types.all(|other| other == first).then_some(first)
    }
}

/// A file that is written, read from its begin, and emptied.
trait Scratch: Read + Write + Seek {}

impl<T: Read + Write + Seek> Scratch for T {}
