//! A stream that is being written: its files, and how far it has come.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use model::Timestamp;

use super::files::Known;
use crate::discover::StreamFile;
use crate::heads::Head;
use crate::join::stream_of;
use crate::lane::Lane;
use crate::source::FileId;
use crate::stream::{COMPARED, PacketFile, Stream};

/// A file is lost when it was not found so many times in a row: once may be while a rotation moves it.
pub(super) const MISSED: u32 = 2;

/// So many files of a stream are remembered at least, also when they were read and deleted.
pub(super) const REMEMBERED: usize = 1024;

/// Where in its stream a packet belongs: begin and sequence number.
pub(super) type Order = (Option<u64>, Option<u64>);

pub(super) fn order(file: &PacketFile) -> Order {
    (file.first.begin, file.first.sequence)
}

/// A stream that is being written.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) stream: Stream,
    /// The last file that was seen, by its first packet.
    pub(super) seen: Option<Order>,
    /// How many times in a row files had to wait because the one before was not found.
    pub(super) held_up: u32,
    pub(super) lane: Lane,
    pub(super) trace: usize,
    /// Whether the lane has no turn.
    pub(super) drained: bool,
    /// How far the stream has come.
    pub(super) reach: i64,
    /// When a packet was added last.
    pub(super) grown: Timestamp,
    /// How many times in a row the file that is being read was not found.
    pub(super) missed: u32,
}

impl Source {
    /// Forgets files that were read and are not there any more: a recording of which old chunks are deleted has no end.
    pub(super) fn forget_all_but(&mut self, listed: &Listed<'_>) {
        let spare = self.stream.files.len().saturating_sub(REMEMBERED).min(self.lane.file());
        let gone = |file: &&PacketFile| !listed.holds(&file.file);
        let gone = self.stream.files.iter().take(spare).take_while(gone).count();
        self.stream.files.drain(..gone);
        self.lane.forget(gone);
    }

    /// Where in the stream this very file is, wherever it lay before. A copy beside it is another.
    pub(super) fn position(&self, file: &PacketFile) -> Option<usize> {
        let tells = file.first.begin.is_some() || file.first.sequence.is_some();
        let path = &file.file.path;
        self.stream.files.iter().position(|other| {
            let same = other.file.id.is_some() && other.file.id == file.file.id;
            let replaced = || other.file.path == *path || other.file.open().is_err();
            other.first == file.first && (same || tells && replaced())
        })
    }

    /// Where in the stream the file is that lies there; `None` when that one was moved, and this is another.
    pub(super) fn known(&self, file: &StreamFile) -> Option<usize> {
        let mut files = self.stream.files.iter();
        files.position(|known| known.file.is(file.id) && known.file.path == file.path)
    }

    /// Whether the last file is where it was, or was not there for so long that it is not waited for.
    pub(super) fn has_found_all(&mut self, files: &HashMap<PathBuf, Known>) -> bool {
        let found = self.stream.files.last().is_none_or(|last| {
            let known = files.get(&last.file.path);
            known.is_some_and(|it| matches!(it, Known::Read { id, .. } if last.file.is(*id)))
        });
        self.held_up = if found { 0 } else { self.held_up.saturating_add(1) };
        found || self.held_up > MISSED
    }

    /// Takes up a file: one that was moved, or a further one.
    pub(super) fn add(&mut self, mut file: PacketFile, last: Option<&Head>, now: Timestamp) {
        let same = self.position(&file);
        let reach = reach(&file, last.unwrap_or(&file.first));
        if reach > self.reach || self.stream.files.is_empty() || same.is_none() {
            self.grown = now;
        }
        self.reach = self.reach.max(reach);
        match same {
            Some(at) => {
                if let Some(known) = self.stream.files.get_mut(at) {
                    let len = known.file.len.max(file.file.len);
                    known.file = StreamFile { len, ..file.file };
                    known.class = file.class;
                }
            }
            None => {
                // Never before the file that is being read, if one is.
                let reading = usize::from(self.lane.has_begun());
                let begun = self.lane.file().saturating_add(reading).min(self.stream.files.len());
                let later = self.stream.files.iter().skip(begun);
                let before = later.take_while(|other| order(other) <= order(&file)).count();
                let at = begun + before;
                let before = self.stream.files.get(at.saturating_sub(COMPARED)..at);
                before.into_iter().flatten().for_each(|before| file.pass_over_packets_of(before));
                if self.stream.files.is_empty() {
                    self.stream = stream_of(vec![file]);
                } else {
                    self.stream.files.insert(at, file);
                }
            }
        }
    }
}

/// The files that a look has found.
pub(super) struct Listed<'f>(pub(super) HashMap<&'f Path, Option<FileId>>);

impl Listed<'_> {
    /// Whether this very file is where it was.
    pub(super) fn holds(&self, file: &StreamFile) -> bool {
        self.0.get(file.path.as_path()).is_some_and(|id| file.is(*id))
    }
}

/// How far a stream has come with its last whole packet.
pub(super) fn reach(file: &PacketFile, last: &Head) -> i64 {
    let end = file.time(last.end.filter(|end| *end != 0)).max(file.time(last.begin));
    // Event records without a time come before all others, whenever they come.
    end.map_or(i64::MAX, Timestamp::nanos)
}
