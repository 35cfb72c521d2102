//! What a look at the folders finds: trace folders, and files that are of a stream once they have a whole packet.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::TraceClass;
use model::Timestamp;

use super::Follow;
use super::source::{Listed, MISSED, Order, Source, order, reach};
use crate::discover::{StreamFile, TraceFolder};
use crate::error::Error;
use crate::finding::Cause;
use crate::heads::{Head, Headers};
use crate::join::{TraceKey, grouping, place, stream_of};
use crate::lane::{Lane, PacketEnds};
use crate::merge::MAX_OPEN_FILES;
use crate::source::{FileId, PacketSource};
use crate::stream::PacketFile;
use crate::turns::Turn;
use crate::window::{Handles, READ_AHEAD_OF_MANY, Window};

/// A trace folder.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) metadata_len: u64,
    /// Absent while the metadata cannot be read.
    pub(super) class: Option<Arc<TraceClass>>,
    pub(super) trouble: Option<Error>,
    pub(super) first_seen: Timestamp,
}

/// A stream file.
#[derive(Debug)]
pub(super) enum Known {
    /// Without a whole packet, or not taken up yet.
    Waiting { first_seen: Timestamp },
    /// A file of a source.
    Read { source: usize, id: Option<FileId> },
}

/// A file with a whole packet that was not taken up.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) file: PacketFile,
    /// Its last whole packet.
    pub(super) last: Head,
    pub(super) source: usize,
}

impl Follow {
    pub(super) fn folder(&mut self, folder: TraceFolder, now: Timestamp) {
        let known = self.folders.entry(folder.path.clone()).or_insert(Folder {
            metadata_len: 0,
            class: None,
            trouble: None,
            first_seen: now,
        });
        if folder.metadata_len != known.metadata_len {
            match self.cache.read(&folder, &self.options.read) {
                Ok(class) => {
                    let replaced = known.class.replace(Arc::clone(&class));
                    (known.metadata_len, known.trouble) = (folder.metadata_len, None);
                    if let Some(replaced) = replaced {
                        self.replace_class(&folder.path, &replaced, &class);
                    }
                }
                // Half of a declaration: more of it will come, and what was there before still holds.
                Err(error) => known.trouble = Some(error),
            }
        }
        let Some(known) = self.folders.get(&folder.path) else { return };
        let Some(class) = known.class.clone() else {
            // What is in there may come before all else.
            self.steady &= self.is_silent(known.first_seen, now);
            return;
        };
        for file in folder.stream_files {
            self.file(file, &class, now);
        }
    }

    /// Packets that are not read yet are read by the metadata that came later.
    pub(super) fn replace_class(
        &mut self,
        folder: &Path,
        old: &Arc<TraceClass>,
        new: &Arc<TraceClass>,
    ) {
        let files = self.sources.iter_mut().flat_map(|source| &mut source.stream.files);
        let own = files.filter(|file| file.file.path.parent() == Some(folder));
        own.filter(|file| Arc::ptr_eq(&file.class, old))
            .for_each(|file| file.class = Arc::clone(new));
    }

    pub(super) fn file(&mut self, file: StreamFile, class: &Arc<TraceClass>, now: Timestamp) {
        let is_known = match self.files.get(&file.path) {
            Some(Known::Read { source, id }) => {
                let source = *source;
                if file.is(*id) && self.grow(source, &file, now) {
                    return;
                }
                false
            }
            Some(Known::Waiting { .. }) => true,
            None => false,
        };
        if !is_known {
            self.files.insert(file.path.clone(), Known::Waiting { first_seen: now });
        }
        if file.len == 0 {
            return;
        }
        // What cannot be read yet is tried again, and told in the end.
        let Some(handle) = self.found(file.open()) else { return };
        let len = file.len;
        let mut opened = match PacketFile::open(file, class) {
            Ok(opened) => opened,
            Err((_, Cause::Io(error))) => {
                self.found::<()>(Err(error));
                return;
            }
            Err(_) => return,
        };
        opened.file.len = 0;
        let Some((whole, last)) = whole_packets(handle, &opened, len) else { return };
        opened.file.len = whole;
        let source = self.source_of(&opened, now);
        let moved = self.sources.get(source).and_then(|source| source.position(&opened)).is_some();
        if moved {
            self.add(opened, Some(&last), now);
        } else {
            self.arrived.push(Arrived { file: opened, last, source });
        }
    }

    /// What was opened; remembers that a file was listed and is not there.
    pub(super) fn found<T>(&mut self, opened: io::Result<T>) -> Option<T> {
        let missing = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.steady &= !missing;
        opened.ok()
    }

    /// Takes up files of which nothing that comes before can be missing.
    ///
    /// The file before may have been listed before its last packet was written and the further one after it, and it may
    /// not have been found while a rotation moved it.
    pub(super) fn take_arrived(&mut self, now: Timestamp) {
        let steady = std::mem::replace(&mut self.steady, true);
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.sort_by_key(|arrived| order(&arrived.file));
        let empty = self.places_of_empty_files(&arrived);
        let mut limits: HashMap<usize, Option<Order>> = HashMap::new();
        for Arrived { file, last, source: index } in arrived {
            let Some(source) = self.sources.get_mut(index) else { continue };
            let limit = *limits.entry(index).or_insert_with(|| {
                let alone = || !empty.contains(&place(&file.file.path).1);
                let first = source.stream.files.is_empty() && alone();
                let seen = source.seen.max(first.then(|| order(&file)));
                (source.has_found_all(&self.files) && steady).then_some(seen).flatten()
            });
            source.seen = source.seen.max(Some(order(&file)));
            if limit.is_some_and(|limit| order(&file) <= limit) {
                self.add(file, Some(&last), now);
            }
        }
    }

    /// Where files lie, in every chunk of their sessions, that have not got a packet yet; nowhere when no stream begins.
    pub(super) fn places_of_empty_files(&self, arrived: &[Arrived]) -> HashSet<PathBuf> {
        let begins = |arrived: &Arrived| {
            let source = self.sources.get(arrived.source);
            source.is_some_and(|source| source.stream.files.is_empty())
        };
        if !arrived.iter().any(begins) {
            return HashSet::new();
        }
        let with_packets: HashSet<&Path> =
            arrived.iter().map(|arrived| arrived.file.file.path.as_path()).collect();
        let waiting = self.files.iter().filter(|(path, known)| {
            matches!(known, Known::Waiting { .. }) && !with_packets.contains(path.as_path())
        });
        waiting.map(|(path, _)| place(path).1).collect()
    }

    pub(super) fn add(&mut self, file: PacketFile, last: Option<&Head>, now: Timestamp) {
        let source = self.source_of(&file, now);
        self.files.insert(file.file.path.clone(), Known::Read { source, id: file.file.id });
        if let Some(source) = self.sources.get_mut(source) {
            source.add(file, last, now);
        }
    }

    /// Forgets where files were that are not there any more.
    pub(super) fn forget_all_but(&mut self, folders: &[TraceFolder]) {
        let files = folders.iter().flat_map(|folder| &folder.stream_files);
        let listed = Listed(files.map(|file| (file.path.as_path(), file.id)).collect());
        self.files.retain(|path, _| listed.0.contains_key(path.as_path()));
        let there: HashSet<&Path> = folders.iter().map(|folder| folder.path.as_path()).collect();
        self.folders.retain(|path, _| there.contains(path.as_path()));
        for source in &mut self.sources {
            let file = source.stream.files.get(source.lane.file());
            let missed = file.is_some_and(|file| !listed.holds(&file.file));
            source.missed = if missed { source.missed.saturating_add(1) } else { 0 };
            source.forget_all_but(&listed);
        }
    }

    /// Takes up what was added to a known file; `false` when another one lies there.
    pub(super) fn grow(&mut self, source: usize, file: &StreamFile, now: Timestamp) -> bool {
        let same = self.sources.get(source).and_then(|source| source.known(file));
        let known = |follow: &mut Self| {
            let source = follow.sources.get_mut(source)?;
            Some(source.stream.files.get_mut(same?)?.file.len)
        };
        let Some(len) = known(self).filter(|len| *len <= file.len) else { return false };
        if file.len == len {
            return true;
        }
        let Some(handle) = self.found(file.open()) else { return true };
        let Some(source) = self.sources.get_mut(source) else { return false };
        let known = same.and_then(|at| source.stream.files.get_mut(at));
        let Some(known) = known else { return false };
        if let Some((whole, last)) = whole_packets(handle, known, file.len) {
            known.file.len = whole;
            let reach = reach(known, &last);
            source.reach = source.reach.max(reach);
            source.grown = now;
        }
        true
    }

    /// The stream that the file is of, which may have no file yet.
    pub(super) fn source_of(&mut self, file: &PacketFile, now: Timestamp) -> usize {
        let path = &file.file.path;
        let trace = TraceKey::of(path.parent().unwrap_or(path), &file.class);
        let trace = self.traces.iter().position(|known| *known == trace).unwrap_or_else(|| {
            self.traces.push(trace);
            self.traces.len() - 1
        });
        let named = self.traces.get(trace).is_some_and(TraceKey::is_named);
        let key = (grouping(file, named), trace);
        let next = self.sources.len();
        let index = *self.by_key.entry(key).or_insert(next);
        if index == next {
            // A descriptor also leads to a file that is being moved.
            let handles = if next < MAX_OPEN_FILES { Handles::Keep } else { Handles::Release };
            let window = Window::new(handles, READ_AHEAD_OF_MANY);
            self.sources.push(Source {
                stream: stream_of(vec![]),
                seen: None,
                held_up: 0,
                lane: Lane::new(window, PacketEnds::Passed),
                trace,
                drained: true,
                reach: i64::MIN,
                grown: now,
                missed: 0,
            });
        }
        index
    }

    /// Gives turns to streams that had come to their end and went on.
    pub(super) fn resume(&mut self) {
        for (index, source) in self.sources.iter_mut().enumerate().filter(|(_, s)| s.drained) {
            source.lane.set_patient(source.missed < MISSED);
            if let Some(at) = source.lane.next_packet(&source.stream, &mut self.findings) {
                source.drained = false;
                self.turns.push(Reverse(Turn::new(at, index)));
            }
        }
    }
}

/// Where the whole packets of a file of `len` bytes end, and the last of them, if there are more than is known.
fn whole_packets(handle: PacketSource, file: &PacketFile, len: u64) -> Option<(u64, Head)> {
    let mut headers = Headers::new(handle, &file.class);
    let mut whole = file.file.len;
    let mut last = None;
    while whole < len {
        let Ok(info) = headers.info(whole) else { break };
        let head = Head::of(&info, whole);
        match head.next_offset().filter(|next| *next <= len) {
            Some(next) => (whole, last) = (next, Some(head)),
            None => break,
        }
    }
    Some((whole, last?))
}
