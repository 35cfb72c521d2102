//! How far a reading is, on a terminal whose output goes elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tracedir::{Event, Recording};

/// Counts the bytes of the packets that have been entered.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Of each stream: the packet that was entered last.
    entered: Vec<u64>,
}

impl Progress {
    /// Shows nothing.
    pub(crate) const fn none() -> Self {
        Self { bar: None, entered: Vec::new() }
    }

    /// Shown when standard error is a terminal and no output comes there meanwhile: it goes elsewhere, or is `late`.
    /// `whole`: everything will be read, so that the end can be foreseen.
    pub(crate) fn new(recording: &Recording, late: bool, whole: bool) -> Self {
        let shown = io::stderr().is_terminal() && (late || !io::stdout().is_terminal());
        if !shown {
            return Self::none();
        }
        let files = recording.streams().iter().flat_map(|stream| stream.files());
        let bytes: u64 = files.map(|file| file.len).sum();
        let (bar, template) = if whole {
            let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            (ProgressBar::new(bytes), template)
        } else {
            (ProgressBar::new_spinner(), "{spinner} {bytes}, {bytes_per_sec}")
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar: Some(bar), entered: vec![u64::MAX; recording.streams().len()] }
    }

    #[inline]
    pub(crate) fn at(&mut self, event: &Event<'_>) {
        let Some(bar) = &self.bar else { return };
        let Some(entered) = self.entered.get_mut(event.stream_index) else { return };
        if std::mem::replace(entered, event.packet_index) != event.packet_index {
            bar.inc(event.record.packet().total_bytes().unwrap_or(0));
        }
    }

    /// Does what writes lines to the terminal.
    pub(crate) fn aside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// A packet was gone through.
    pub(crate) fn pass(&self, packet_bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(packet_bytes);
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
