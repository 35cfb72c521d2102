//! Reads a recording in order of time for a viewer's format.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use model::{TimeRange, Timestamp};
use thiserror::Error;
use tracedir::{Item, PacketEnds, Recording};

use crate::scene::{Canvas, Scene};

/// What of a recording is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerOptions {
    /// Event records with `range.begin <= time < range.end`.
    pub range: TimeRange,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Summary {
    /// Event records read.
    pub events: u64,
    /// Marks that the format has no room for.
    pub left_out: u64,
    /// Event records and packets that the tracer lost.
    pub lost: u64,
    /// What could not be read, one line each: the first [`tracedir::Findings::KEPT`].
    pub unreadable: Vec<String>,
    /// How much more could not be read.
    pub more_unreadable: u64,
}

/// Why a recording is not shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ViewerError {
    /// It cannot be read at all.
    #[error(transparent)]
    Read(Box<tracedir::Error>),
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Write(#[from] io::Error),
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

impl From<tracedir::Error> for ViewerError {
    fn from(error: tracedir::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

/// A format.
pub(crate) trait Viewer: Canvas<Error = io::Error> {
    /// Ends the output; gives the number of marks that it has no room for.
    fn finish(&mut self, scene: &Scene) -> io::Result<u64>;
}

pub(crate) fn run<P: AsRef<Path>>(
    inputs: &[P],
    options: &ViewerOptions,
    viewer: &mut impl Viewer,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Summary, ViewerError> {
    let recording = Recording::open(inputs)?;
    let mut merged = recording.merged_with(options.range, PacketEnds::Passed);
    let mut scene = Scene::default();
    let mut summary = Summary::default();
    let mut last = Timestamp::MIN;
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => {
                scene.event(&event, viewer)?;
                last = last.max(event.timestamp);
                summary.events += 1;
                if progress(summary.events).is_break() {
                    return Err(ViewerError::Stopped);
                }
            }
            Item::Loss(loss) => summary.lost = summary.lost.saturating_add(loss.count),
        }
    }
    scene.finish(last, viewer)?;
    summary.left_out = viewer.finish(&scene)?;
    let findings = [recording.findings(), merged.findings()];
    summary.unreadable =
        findings.iter().flat_map(|found| found.kept()).map(ToString::to_string).collect();
    summary.more_unreadable =
        findings.iter().fold(0, |more, found| more.saturating_add(found.more()));
    Ok(summary)
}
