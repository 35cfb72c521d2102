//! The metadata of one trace, of which viewers are shown whole documents only.

use super::documents::Documents;
use super::file::TraceFile;

/// A metadata stream. After a rotation all of it comes again into another file; viewers are shown the old one until the
/// other has as much, because what they have is the beginning of both.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    shown: Option<(TraceFile, Documents)>,
    coming: Option<(TraceFile, Documents)>,
    /// How many times others replaced all of them: who has some of an earlier edition cannot go on with this one.
    edition: u64,
    is_closed: bool,
}

impl Metadata {
    /// All there are, in a file of `len` bytes.
    pub(super) fn complete(file: TraceFile, len: u64) -> Self {
        let shown = Some((file, Documents::complete(len)));
        Self { shown, is_closed: true, ..Self::default() }
    }

    /// More may come again.
    pub(super) const fn reopen(&mut self) {
        self.is_closed = false;
    }

    /// They begin in a new file.
    pub(super) fn begin(&mut self, file: TraceFile) {
        let begun = Some((file, Documents::default()));
        if self.shown.is_some() {
            self.coming = begun;
        } else {
            self.shown = begun;
        }
    }

    /// The file is about to be emptied, for metadata that replace those it had.
    pub(super) fn reset(&mut self, file: TraceFile) {
        self.shown = Some((file, Documents::default()));
        self.coming = None;
        self.edition += 1;
    }

    pub(super) const fn edition(&self) -> u64 {
        self.edition
    }

    /// More came.
    pub(super) fn grow(&mut self, bytes: &[u8], padding: u64) {
        let growing = self.coming.as_mut().or(self.shown.as_mut());
        if let Some((_, documents)) = growing {
            documents.push(bytes);
            documents.push_zeros(padding);
        }
        self.catch_up();
    }

    /// Their file, and how much of it may be shown.
    pub(super) fn file(&self) -> Option<(TraceFile, u64)> {
        self.shown.as_ref().map(|(file, documents)| (file.clone(), documents.whole()))
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Shows the other file once it has as much as the one that is shown.
    fn catch_up(&mut self) {
        if self.coming.as_ref().is_some_and(|(_, coming)| coming.whole() >= self.whole()) {
            self.shown = self.coming.take();
        }
    }

    /// How much of them may be shown.
    pub(super) fn whole(&self) -> u64 {
        self.shown.as_ref().map_or(0, |(_, documents)| documents.whole())
    }

    /// No more comes.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for (_, documents) in self.shown.iter_mut().chain(self.coming.iter_mut()) {
            documents.finish();
        }
        self.catch_up();
    }
}
