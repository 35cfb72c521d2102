//! Everything that ended, one by one, in order: recordings are read from left to right and what is complete is given away.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use stitch::{Cover, Identities, Log, Summary};

use super::flow::{Mapped, Taker};
use super::{Analysis, Options, Plan, Progress, plan};
use crate::Error;

/// How many items are kept before they are given away, besides those that end at the same time.
const PIECE: usize = 65_536;

/// Reads the recordings at or below `paths`, all of one host, and gives the log that the options' selection asks for in
/// pieces of at most about 65,536 items, one after the other, until `give` has enough. Names are better taken from the
/// summary of all ([`super::analyse`]) than from the one returned, which may not have seen all.
///
/// # Errors
///
/// As [`super::analyse`].
pub fn read_log<P: AsRef<Path>>(
    paths: &[P],
    options: &Options,
    give: &mut dyn FnMut(&Log) -> ControlFlow<()>,
) -> Result<Analysis, Error> {
    let Plan { source, windows, analysis } = plan(paths, options)?;
    let mut reader = Reader { progress: analysis, give, is_over: false, failed: None };
    for window in &windows {
        reader.progress.reach(window);
        let entry = reader.progress.entry(&source, window);
        let mapped = if window.is_gap {
            super::map(&source, window, entry, options.select())
        } else {
            let (begin, end) = (window.begin, window.end);
            let cover = Cover { host: source.host().into(), begin, end };
            source.map(cover, entry, options.select(), Some(&mut reader))
        };
        if !reader.is_over {
            reader.add(mapped);
        }
        if reader.is_over {
            break;
        }
    }
    match reader.failed {
        Some(error) => Err(error),
        None => Ok(reader.progress.finish()),
    }
}

struct Reader<'g> {
    progress: Progress,
    give: &'g mut dyn FnMut(&Log) -> ControlFlow<()>,
    is_over: bool,
    failed: Option<Error>,
}

impl Reader<'_> {
    fn add(&mut self, mapped: Mapped) {
        if let Err(error) = self.progress.add(mapped) {
            self.failed = Some(error);
            self.is_over = true;
            return;
        }
        let log = self.progress.analysis.summary.take_log();
        // What ended before the time that was asked for is not wanted.
        let is_wanted = self.progress.counts_from.is_none();
        if let Some(log) = log.filter(|_| is_wanted) {
            self.is_over = (self.give)(&log).is_break();
        }
    }
}

impl Taker for Reader<'_> {
    fn piece(&self) -> usize {
        PIECE
    }

    fn take(&mut self, piece: Summary) -> ControlFlow<(), Arc<Identities>> {
        self.add(Mapped { summary: piece, ..Mapped::default() });
        if self.is_over {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(Arc::new(self.progress.analysis.summary.identities()))
    }
}
