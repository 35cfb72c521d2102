//! What is known of a piece of recording before any of its event records is read: who wrote it, when, by which clocks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::{TraceClass, Uuid};
use model::Timestamp;
use tracedir::manifest::{Manifest, ManifestStream};
use tracedir::{ARCHIVES, ChunkName, ClassCache, Recording, StreamKey};

use crate::Error;
use crate::adapter::{SpanRules, has_spans, has_switches, needs_identities};
use crate::local::{clock, host_of};

/// A rotation chunk of a session, or a trace that was never rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    pub(super) folder: PathBuf,
    pub(super) hosts: BTreeSet<String>,
    /// Of each trace: its clock's UUID and distance from the epoch.
    pub(super) clocks: Vec<Option<(Uuid, i64)>>,
    pub(super) streams: Vec<Surveyed>,
    pub(super) needs_identities: bool,
    pub(super) has_spans: bool,
    findings: Vec<String>,
    more_findings: u64,
}

/// A data stream, as far as it is in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surveyed {
    /// The same in every piece, as far as packets say.
    pub(super) key: StreamKey,
    /// Position in [`Survey::clocks`].
    pub(super) trace: usize,
    pub(super) begin: Timestamp,
    /// The last packet's end, where the last event may be.
    pub(super) last: Timestamp,
    /// Whether its trace has switches.
    pub(super) switches: bool,
}

impl Survey {
    /// Of a folder that can be read. Reads metadata, and the first and last packet header of each stream.
    ///
    /// # Errors
    ///
    /// [`Error::Recording`] when nothing in it can be read.
    pub fn of_folder(
        folder: &Path,
        rules: &SpanRules,
        cache: &mut ClassCache,
    ) -> Result<Self, Error> {
        let recording = match Recording::open_with(&[folder], cache) {
            // A chunk without a trace holds nothing.
            Err(tracedir::Error::NoTrace { .. } | tracedir::Error::MetadataEmpty { .. }) => {
                return Ok(Self::empty(folder));
            }
            other => other?,
        };
        let mut survey = Self::empty(folder);
        let mut positions = BTreeMap::new();
        for trace in recording.traces() {
            let position = survey.add(trace.class(), rules);
            positions.extend(trace.folders().iter().map(|folder| (folder.clone(), position)));
        }
        let covers = recording.covers().into_iter();
        let mut covers: BTreeMap<_, _> =
            covers.map(|cover| (cover.stream.clone(), cover)).collect();
        for stream in recording.streams() {
            let Some(file) = stream.files().next() else { continue };
            let Some(cover) = covers.remove(stream.key()) else { continue };
            let trace = file.path.parent().and_then(|folder| positions.get(folder)).copied();
            let (Some(begin), Some(last), Some(trace)) = (cover.begin, cover.end, trace) else {
                continue;
            };
            let class = stream.trace_classes().next();
            let switches = class.is_some_and(|class| has_switches(class));
            let key = StreamKey { file: inner(folder, cover.stream.file), ..cover.stream };
            survey.streams.push(Surveyed { key, trace, begin, last, switches });
        }
        let findings = recording.findings();
        survey.findings = findings.kept().iter().map(ToString::to_string).collect();
        survey.more_findings = findings.more();
        Ok(survey)
    }

    /// Of a sealed chunk that lies, or will lie, in `folder`, by its manifest and the classes of its traces, given by the
    /// traces' folders below it; nothing else of the chunk is read.
    #[must_use]
    pub fn of_manifest(
        folder: &Path,
        manifest: &Manifest,
        classes: &BTreeMap<PathBuf, Arc<TraceClass>>,
        rules: &SpanRules,
    ) -> Self {
        let mut survey = Self::empty(folder);
        let mut positions: BTreeMap<*const TraceClass, usize> = BTreeMap::new();
        for class in classes.values() {
            if let Entry::Vacant(position) = positions.entry(Arc::as_ptr(class)) {
                position.insert(survey.add(class, rules));
            }
        }
        let mut without = Vec::new();
        for stream in &manifest.contents.streams {
            let file = stream.files.first().map(PathBuf::from).unwrap_or_default();
            let of_trace = file.parent().and_then(|folder| classes.get(folder));
            let Some(class) = of_trace else {
                without.push(file);
                continue;
            };
            let trace = positions.get(&Arc::as_ptr(class)).copied().unwrap_or_default();
            survey.streams.extend(surveyed(stream, file, class, trace));
        }
        survey.findings = manifest.contents.problems.clone();
        let unread = without.iter().map(|file| format!("{}: no metadata", file.display()));
        survey.findings.extend(unread);
        survey
    }

    fn empty(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            hosts: BTreeSet::new(),
            clocks: Vec::new(),
            streams: Vec::new(),
            needs_identities: false,
            has_spans: false,
            findings: Vec::new(),
            more_findings: 0,
        }
    }

    /// Takes in a trace; gives its position.
    fn add(&mut self, class: &TraceClass, rules: &SpanRules) -> usize {
        self.hosts.extend(host_of(class).map(str::to_owned));
        self.needs_identities |= needs_identities(class, rules);
        self.has_spans |= has_spans(class, rules);
        self.clocks.push(clock(class));
        self.clocks.len() - 1
    }

    /// What could not be opened, and how much more of that there is.
    #[must_use]
    pub fn findings(&self) -> (&[String], u64) {
        (&self.findings, self.more_findings)
    }

    /// The folder it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The session and number of the chunk that it is; `None` for a trace that was never rotated.
    pub(super) fn chunk(&self) -> Option<(PathBuf, u64)> {
        let name = ChunkName::parse(self.folder.file_name()?.to_str()?)?;
        let above = self.folder.parent()?;
        let in_archives = above.file_name().is_some_and(|name| name == ARCHIVES);
        let session = if in_archives { above.parent()? } else { above };
        Some((session.to_owned(), name.id))
    }
}

/// A file's path from a piece's folder on.
fn inner(folder: &Path, file: Option<PathBuf>) -> Option<PathBuf> {
    file.map(|file| file.strip_prefix(folder).map_or_else(|_| file.clone(), Path::to_owned))
}

fn surveyed(
    stream: &ManifestStream,
    file: PathBuf,
    class: &TraceClass,
    trace: usize,
) -> Option<Surveyed> {
    let begin = Timestamp::from_nanos(stream.begin_ns?);
    let last = stream.end_ns.filter(|end| *end != 0).map(Timestamp::from_nanos);
    let mut key = StreamKey::of(class, stream.class_id, stream.instance_id);
    if key.trace.is_none() || key.instance_id.is_none() {
        key.file = Some(file);
    }
    let last = last.unwrap_or(begin).max(begin);
    Some(Surveyed { key, trace, begin, last, switches: has_switches(class) })
}
