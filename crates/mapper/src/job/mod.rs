//! Work on recordings that can be done piece by piece, anywhere, by whoever can read the pieces.
//!
//! ```text
//! pieces ─ Survey ─▶ Plan ─▶ parts ─ learn ─▶ Known ─▶ Entry for each part
//!                              └────────────── map ──────┴─▶ Mapped, a Summary each
//! ```
//!
//! A **piece** is a rotation chunk, or a trace that was never rotated; a **part** is a window of the plan with the pieces that
//! it needs. What [`learn`] and [`map`] give depends on their arguments only, so that they may be asked anywhere, and again; and
//! with the entries, parts may be mapped in any order.

mod known;
mod plan;
mod survey;

use std::path::Path;
use std::sync::Arc;

use model::TimeRange;
use stitch::Cover;
use tracedir::ClassCache;

pub use known::{Entry, Known};
pub use plan::{Common, Part, Plan};
pub use survey::Survey;

use crate::Error;
use crate::local::{Mapped, Source, Stretch};

/// Raised with every change of what the same events become, so that what was kept by another version is not taken.
pub const VERSION: u32 = 1;

/// What is known after a part, from what is known before. `folders` are the part's pieces.
///
/// # Errors
///
/// [`Error::Recording`] when none of the pieces can be read.
pub fn learn<P: AsRef<Path>>(
    common: &Common,
    part: &Part,
    before: &Known,
    folders: &[P],
    cache: &mut ClassCache,
) -> Result<Known, Error> {
    let mut known = before.clone();
    if part.is_gap {
        known.pass_gap(part.end);
    } else {
        let range = TimeRange { begin: part.begin, end: part.end };
        open(common, folders, cache)?.facts(range, |fact| known.take(fact));
    }
    Ok(known)
}

/// The summary of a part that begins with these known. `folders` are the part's pieces. What of the pieces could not be opened
/// is not among the findings: the survey has it.
///
/// # Errors
///
/// [`Error::Recording`] when none of the pieces can be read.
pub fn map<P: AsRef<Path>>(
    common: &Common,
    part: &Part,
    entry: &Entry,
    folders: &[P],
    cache: &mut ClassCache,
) -> Result<Mapped, Error> {
    let window = Stretch { begin: part.begin, end: part.end, is_gap: part.is_gap };
    if part.is_gap {
        let (begin, end) = (window.begin, window.end);
        let summary = stitch::Summary::gap(Cover { host: common.host().into(), begin, end });
        return Ok(Mapped { summary, ..Mapped::default() });
    }
    let source = open(common, folders, cache)?;
    let selection = common.selection.clone().map(Arc::new);
    Ok(crate::local::map(&source, &window, Arc::new(entry.0.clone()), selection.as_ref()))
}

fn open<P: AsRef<Path>>(
    common: &Common,
    folders: &[P],
    cache: &mut ClassCache,
) -> Result<Source, Error> {
    let mut origins = common.origins();
    let source = Source::open(folders, &common.rules(), cache, &mut origins)?;
    Ok(source.into_part_of(common.host(), common.scheduled))
}
