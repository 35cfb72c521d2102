//! `manifest.json`: what a sealed chunk holds, told beside it by whoever sealed it.
//!
//! `docs/formats/chunk.md` has the fields. A manifest is made from indexes and packet headers ([`Contents::of`]) and
//! verified against the bytes and the headers alone ([`Manifest::differences`]): an index that says something else than
//! its packets shows.
//!
//! Bounds: [`MAX_MANIFEST_BYTES`] are read, [`MAX_MANIFEST_FILES`] are listed, [`StreamSurvey::GAPS`] gaps of each stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use ctf::{CtfVersion, EnvValue};
use model::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::classes::ClassCache;
pub use crate::digest::hex;
use crate::discover::{INDEX, MAX_DEPTH, METADATA};
use crate::error::{Action, Error};
use crate::finding::Findings;
use crate::options::{Correlate, ReadOptions};
use crate::recording::{LogicalTrace, Recording};
use crate::seekable::Source;
use crate::source::{self, PacketSource};
use crate::survey::{StreamSurvey, Told};

/// Name of a chunk's manifest.
pub const MANIFEST: &str = "manifest.json";
/// Name of the manifest of a chunk whose own folder is a trace: there, other readers take every visible file for a stream.
pub const HIDDEN_MANIFEST: &str = ".manifest.json";
/// The only format there is.
pub const MANIFEST_FORMAT: &str = "throughline-chunk/1";
/// Longest manifest that is read.
pub const MAX_MANIFEST_BYTES: u64 = 256 << 20;
/// Most files that a manifest lists.
pub const MAX_MANIFEST_FILES: usize = 1 << 18;

/// How much is read at a time for a checksum.
const PIECE: usize = 256 << 10;
/// Most problems that are kept.
const MAX_PROBLEMS: usize = 100;

/// What a sealed chunk holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_FORMAT`].
    pub format: String,
    /// Which chunk it is.
    #[serde(flatten)]
    pub origin: Origin,
    /// What is in it.
    #[serde(flatten)]
    pub contents: Contents,
    /// Streams that lost something, and what, as it was seen while they were received.
    pub losses: Vec<StreamLosses>,
}

/// Which chunk of which recording session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Host of the producer.
    pub host: String,
    /// Name of the recording session.
    pub session: String,
    /// Number of the chunk in its session.
    pub chunk: u64,
    /// Its folder, relative to the folder that the relay writes below.
    pub folder: String,
    /// When the producer began it, seconds since 1970.
    pub begin_s: Option<u64>,
    /// When the producer ended it, seconds since 1970.
    pub end_s: Option<u64>,
    /// Why it ended.
    pub sealed_by: SealedBy,
}

/// Why a chunk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SealedBy {
    /// Its producer closed it.
    Closed,
    /// Its producer went away, or the relay was stopped, before it was closed.
    ProducerGone,
    /// The relay was killed; what had arrived was sealed at its next start.
    Interrupted,
}

/// What was lost of a stream, as the one who received it saw it: by the tracer or on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLosses {
    /// The stream: path of its first file in the chunk, without the number of a trace file.
    pub stream: String,
    /// Packets that were lost between the producer and the relay.
    pub network_packets: u64,
    /// Packets that the tracer never sent.
    pub tracer_packets: u64,
    /// Event records that the tracer discarded, those since the last packet of the chunk before included.
    pub tracer_event_records: u64,
    /// Each loss in its place, as far as they were noted.
    pub places: Vec<LossPlace>,
    /// Losses that are counted and not in `places`.
    pub without_place: u64,
}

/// One loss and its place in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossPlace {
    /// `network`, `packet-never-came`, `index-never-came`, `tracer-packets` or `tracer-events`.
    pub cause: String,
    /// Network: the first number lost, as the producer numbers what it sends. Tracer: the packet before.
    pub first: u64,
    /// Network: the last number lost. Tracer: the packet after.
    pub last: u64,
    /// Packets lost; event records for `tracer-events`.
    pub count: u64,
}

/// What is in a chunk. Paths are relative to its folder, with `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Its traces.
    pub traces: Vec<Trace>,
    /// Its data streams.
    pub streams: Vec<ManifestStream>,
    /// Its files, sorted: streams, metadata and indexes.
    pub files: Vec<ManifestFile>,
    /// How many files there are beyond [`MAX_MANIFEST_FILES`].
    pub files_unlisted: u64,
    /// What could not be read when the manifest was made.
    pub problems: Vec<String>,
    /// Sums.
    pub totals: Totals,
}

/// A trace, as its metadata describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Its folders.
    pub folders: Vec<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// `CTF 1.8` or `CTF 2`.
    pub format: String,
    /// The environment of its tracer. Numbers beyond 64 bits do not exist.
    pub environment: BTreeMap<String, EnvEntry>,
}

/// A value of the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnvEntry {
    /// A number up to 2⁶³ − 1.
    Signed(i64),
    /// A larger number.
    Unsigned(u64),
    /// A text.
    Text(String),
}

/// A data stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestStream {
    /// Its files.
    pub files: Vec<String>,
    /// Data stream class id.
    pub class_id: u64,
    /// Data stream instance id.
    pub instance_id: Option<u64>,
    /// Packets.
    pub packets: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bits of packet content, headers and contexts included.
    pub content_bits: u64,
    /// Begin of the first packet, nanoseconds from the clock's origin; LTTng's is 1970.
    pub begin_ns: Option<i64>,
    /// End of the last packet.
    pub end_ns: Option<i64>,
    /// Sequence number of the first packet.
    pub first_packet: Option<u64>,
    /// Sequence number of the last packet.
    pub last_packet: Option<u64>,
    /// The tracer's counter of discarded event records at the first packet's end.
    pub discarded_at_first: Option<u64>,
    /// The same counter at the last packet's end.
    pub discarded_at_last: Option<u64>,
    /// What is absent between the first packet and the last.
    pub lost: Lost,
}

/// What a stream lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Event records that the tracer had no room for.
    pub event_records: u64,
    /// Packets, by their sequence numbers.
    pub packets: u64,
    /// Which: the first and the last of each run, the first 1,000 runs.
    pub gaps: Vec<(u64, u64)>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Where it is.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes, hexadecimal.
    pub sha256: String,
    /// What it is compressed to: a file of that name with `.zst` behind it. What the other fields say is so of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed: Option<CompressedFile>,
}

/// A compressed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressedFile {
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes, hexadecimal.
    pub sha256: String,
}

impl ManifestFile {
    /// Bytes that it takes on the disk.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.compressed.as_ref().map_or(self.bytes, |compressed| compressed.bytes)
    }

    /// The file's path in a chunk's folder as it is on the disk; `None` for one that leads elsewhere.
    #[must_use]
    pub fn stored_path(&self) -> Option<PathBuf> {
        let path = inner_path(&self.path)?;
        Some(if self.compressed.is_some() { source::compressed_path(&path) } else { path })
    }
}

/// A path of a manifest, if it leads to something below the chunk's folder.
pub(crate) fn inner_path(path: &str) -> Option<PathBuf> {
    let is_inner = |component| matches!(component, Component::Normal(_));
    let path = Path::new(path);
    (!path.as_os_str().is_empty() && path.components().all(is_inner)).then(|| path.to_owned())
}

/// Sums over a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Packets of all streams.
    pub packets: u64,
    /// Event records that tracers had no room for.
    pub lost_event_records: u64,
    /// Packets that are absent by their sequence numbers.
    pub lost_packets: u64,
}

/// Where a chunk and its manifest disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// The manifest is damaged.
    #[error("the manifest cannot be read: {problem}")]
    Unreadable {
        /// Why.
        problem: String,
    },
    /// A file of the manifest is not there.
    #[error("the file is not there; the manifest names {bytes} bytes")]
    Missing {
        /// Its length by the manifest.
        bytes: u64,
    },
    /// A file is of another length.
    #[error("the file has {found} bytes, the manifest says {expected}")]
    Length {
        /// Length of the file.
        found: u64,
        /// Length by the manifest.
        expected: u64,
    },
    /// A file of the right length has other bytes.
    #[error(
        "the file's checksum is not the manifest's: its bytes were changed after it was sealed"
    )]
    Changed,
    /// A compressed file whose content is right, and which is not the one that the manifest describes.
    #[error("the file was compressed again after the manifest was written")]
    Recompressed,
    /// A file that the manifest does not name.
    #[error("the manifest does not name this file")]
    Unnamed,
    /// A count or bound of a stream is another one.
    #[error("{what} of the stream: the packets say {found}, the manifest {}", shown(*expected))]
    Stream {
        /// What.
        what: &'static str,
        /// By the packets.
        found: i128,
        /// By the manifest.
        expected: Option<i128>,
    },
    /// A stream of the manifest is not there, or one that is there is not in the manifest.
    #[error("{there} stream {class_id} of {files} files")]
    OtherStream {
        /// Which of both.
        there: &'static str,
        /// Data stream class id.
        class_id: u64,
        /// Its files.
        files: u64,
    },
}

impl Contents {
    /// Bytes that all files take on the disk.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let saved = self.files.iter().map(|file| file.bytes.saturating_sub(file.stored_bytes()));
        self.totals.bytes.saturating_sub(saved.sum())
    }

    /// What is in the chunk at `folder`: all of it, or only what is at or below `tops` in it.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be listed or read. Traces that cannot be decoded are told in
    /// [`Self::problems`].
    pub fn of(folder: &Path, tops: Option<&BTreeSet<PathBuf>>) -> Result<Self, Error> {
        Self::told(folder, tops, Told::ByIndexes)
    }

    fn told(folder: &Path, tops: Option<&BTreeSet<PathBuf>>, told: Told) -> Result<Self, Error> {
        let mut contents = Self::default();
        let mut traces = Vec::new();
        match tops {
            None => {
                contents.add_folder(folder, folder, 0)?;
                traces.push(folder.to_owned());
            }
            Some(tops) => {
                let is_manifest = |top: &&PathBuf| {
                    [MANIFEST, HIDDEN_MANIFEST].iter().any(|name| **top == Path::new(name))
                };
                for top in tops.iter().filter(|top| !is_manifest(top)) {
                    let path = folder.join(top);
                    match fs::symlink_metadata(&path) {
                        Ok(found) if found.is_dir() => {
                            contents.add_folder(folder, &path, 1)?;
                            traces.push(path);
                        }
                        Ok(found) if found.is_file() => {
                            contents.add_file(folder, &path)?;
                            if traces.first().is_none_or(|trace| *trace != folder) {
                                traces.insert(0, folder.to_owned());
                            }
                        }
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            if source::compressed_len(&source::compressed_path(&path)).is_some() {
                                contents.add_file(folder, &path)?;
                                if traces.first().is_none_or(|trace| *trace != folder) {
                                    traces.insert(0, folder.to_owned());
                                }
                            }
                        }
                        Err(error) => return Err(Error::io(Action::Open, path, error)),
                    }
                }
            }
        }
        contents.files.sort_by(|a, b| a.path.cmp(&b.path));
        contents.add_streams(folder, &traces, told);
        contents.sum();
        Ok(contents)
    }

    fn add_folder(&mut self, base: &Path, folder: &Path, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep { path: folder.to_owned(), limit: MAX_DEPTH });
        }
        let failed = |source| Error::io(Action::List, folder, source);
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            // Hidden files and the manifest are not the recording's.
            let hidden = name.as_encoded_bytes().first() == Some(&b'.');
            if hidden || (depth == 0 && name == MANIFEST) {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.add_folder(base, &entry.path(), depth + 1)?;
            } else if kind.is_file() {
                let path = entry.path();
                match source::plain_path(&path) {
                    // While one is made of the other both are there.
                    Some(plain) if plain.exists() => {}
                    Some(plain) => self.add_file(base, &plain)?,
                    None => self.add_file(base, &path)?,
                }
            }
        }
        Ok(())
    }

    fn add_file(&mut self, base: &Path, path: &Path) -> Result<(), Error> {
        if self.files.len() >= MAX_MANIFEST_FILES {
            self.files_unlisted += 1;
            return Ok(());
        }
        let mut file = checksums(path).map_err(|source| Error::io(Action::Read, path, source))?;
        file.path = relative(base, path);
        self.files.push(file);
        Ok(())
    }

    fn add_streams(&mut self, base: &Path, traces: &[PathBuf], told: Told) {
        if traces.is_empty() {
            return;
        }
        let options = ReadOptions { correlate: Correlate::Unchecked, ..ReadOptions::default() };
        let recording = match Recording::open_as(traces, &options, &mut ClassCache::default()) {
            Ok(recording) => recording,
            // A chunk in which nothing was recorded.
            Err(Error::NoTrace { .. }) => return,
            Err(error) => return self.problem(crate::check::chain(&error)),
        };
        let mut findings = Findings::default();
        let surveys = recording.survey_by(told, &mut findings);
        for finding in recording.findings().kept().iter().chain(findings.kept()) {
            // Paths would differ from host to host and from place to place.
            let text = finding.to_string();
            self.problem(text.replace(&format!("{}/", base.display()), ""));
        }
        // A folder that is a trace itself may hold more than this chunk.
        let own: BTreeSet<&str> = self.files.iter().map(|file| &*file.path).collect();
        let is_own = |trace: &Trace| {
            let metadata = |folder: &String| match &**folder {
                "." => METADATA.to_owned(),
                folder => format!("{folder}/{METADATA}"),
            };
            self.files_unlisted > 0
                || trace.folders.iter().any(|folder| own.contains(&*metadata(folder)))
        };
        let traces = recording.traces().iter().map(|trace| Trace::of(base, trace));
        self.traces = traces.filter(is_own).collect();
        for (stream, survey) in recording.streams().iter().zip(surveys) {
            let files = stream.files.iter().map(|file| relative(base, &file.file.path));
            let files: Vec<String> = files.collect();
            if self.files_unlisted > 0 || files.iter().any(|file| own.contains(&**file)) {
                self.streams.push(ManifestStream::of(files, &survey));
            }
        }
        self.streams.sort_by(|a, b| a.files.cmp(&b.files));
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text);
        }
    }

    fn sum(&mut self) {
        self.totals = Totals {
            files: self.files.len() as u64 + self.files_unlisted,
            bytes: self.files.iter().map(|file| file.bytes).sum(),
            packets: self.streams.iter().map(|stream| stream.packets).sum(),
            lost_event_records: self.streams.iter().map(|stream| stream.lost.event_records).sum(),
            lost_packets: self.streams.iter().map(|stream| stream.lost.packets).sum(),
        };
    }
}

impl Trace {
    fn of(base: &Path, trace: &LogicalTrace) -> Self {
        let class = trace.class();
        let entry = |value: &EnvValue| match value {
            EnvValue::Text(text) => EnvEntry::Text(text.clone()),
            EnvValue::Integer(number) => match i64::try_from(*number) {
                Ok(number) => EnvEntry::Signed(number),
                Err(_) => EnvEntry::Unsigned(u64::try_from(*number).unwrap_or(u64::MAX)),
            },
        };
        Self {
            folders: trace.folders().iter().map(|folder| relative(base, folder)).collect(),
            uuid: trace.uuid().map(|uuid| uuid.to_string()),
            format: match class.version() {
                CtfVersion::V1_8 => "CTF 1.8",
                CtfVersion::V2 => "CTF 2",
            }
            .to_owned(),
            environment: class
                .environment()
                .map(|(name, value)| (name.to_owned(), entry(value)))
                .collect(),
        }
    }
}

impl ManifestStream {
    fn of(files: Vec<String>, survey: &StreamSurvey) -> Self {
        Self {
            files,
            class_id: survey.key.class_id,
            instance_id: survey.key.instance_id,
            packets: survey.packets,
            bytes: survey.bytes,
            content_bits: survey.content_bits,
            begin_ns: survey.begin.map(Timestamp::nanos),
            end_ns: survey.end.map(Timestamp::nanos),
            first_packet: survey.first_sequence,
            last_packet: survey.last_sequence,
            discarded_at_first: survey.discarded_at_first,
            discarded_at_last: survey.discarded_at_last,
            lost: Lost {
                event_records: survey.lost_event_records,
                packets: survey.lost_packets,
                gaps: survey.gaps.clone(),
            },
        }
    }

    /// Every number of it, by name.
    fn numbers(&self) -> [(&'static str, Option<i128>); 11] {
        let number = |value: Option<u64>| value.map(i128::from);
        let time = |value: Option<i64>| value.map(i128::from);
        [
            ("instance id", number(self.instance_id)),
            ("packets", Some(self.packets.into())),
            ("bytes", Some(self.bytes.into())),
            ("content bits", Some(self.content_bits.into())),
            ("begin", time(self.begin_ns)),
            ("end", time(self.end_ns)),
            ("first packet", number(self.first_packet)),
            ("last packet", number(self.last_packet)),
            ("discarded event records", number(self.discarded_at_last)),
            ("lost event records", Some(self.lost.event_records.into())),
            ("lost packets", Some(self.lost.packets.into())),
        ]
    }
}

impl Manifest {
    /// The name under which the manifest of the chunk in `folder` is written.
    #[must_use]
    pub fn name_in(folder: &Path) -> &'static str {
        if folder.join(METADATA).is_file() { HIDDEN_MANIFEST } else { MANIFEST }
    }

    /// As it is written: JSON, one field a line.
    ///
    /// # Panics
    /// Never: all of its keys are text.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads the manifest of the chunk in `folder`; `None` when there is none, or a `manifest.json` of somebody else.
    ///
    /// # Errors
    /// [`Difference::Unreadable`].
    pub fn read(folder: &Path) -> Result<Option<Self>, Difference> {
        for name in [MANIFEST, HIDDEN_MANIFEST] {
            match fs::symlink_metadata(folder.join(name)) {
                Ok(found) if found.is_file() => return Self::read_file(&folder.join(name)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn read_file(path: &Path) -> Result<Option<Self>, Difference> {
        let unreadable = |problem: String| Difference::Unreadable { problem };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let read = file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(error.to_string()))?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(unreadable(format!("longer than {MAX_MANIFEST_BYTES} bytes")));
        }
        Self::parse(&bytes)
    }

    /// Writes it in place of the one that is there, in one step and with its date: that is when the chunk was sealed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn replace(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(Self::name_in(folder));
        let coming = folder.join(".manifest.json.new");
        let failed = |source| Error::io(Action::Write, &path, source);
        let write = || {
            let sealed = fs::metadata(&path)?.modified()?;
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).open(&coming)?;
            file.write_all(&self.to_json())?;
            file.set_times(FileTimes::new().set_modified(sealed))?;
            file.sync_all()?;
            fs::rename(&coming, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(failed)
    }

    /// Reads the text of a manifest; `None` for JSON of another kind.
    ///
    /// # Errors
    /// [`Difference::Unreadable`].
    pub fn parse(text: &[u8]) -> Result<Option<Self>, Difference> {
        #[derive(Deserialize)]
        struct Kind {
            #[serde(default)]
            format: Option<String>,
        }
        let unreadable =
            |error: serde_json::Error| Difference::Unreadable { problem: error.to_string() };
        let kind: Kind = serde_json::from_slice(text).map_err(unreadable)?;
        match kind.format.as_deref() {
            Some(MANIFEST_FORMAT) => serde_json::from_slice(text).map(Some).map_err(unreadable),
            Some(other) if other.starts_with("throughline-chunk/") => {
                let problem =
                    format!("its format is {other:?}, this reader knows {MANIFEST_FORMAT:?}");
                Err(Difference::Unreadable { problem })
            }
            _ => Ok(None),
        }
    }

    /// Reads all bytes and packet headers of the chunk in `folder` again and tells where they differ, with the path of
    /// the file or of the stream's first file.
    ///
    /// # Errors
    /// As [`Contents::of`].
    pub fn differences(&self, folder: &Path) -> Result<Vec<(PathBuf, Difference)>, Error> {
        // A chunk that lies in its session's folder shares it with others: only what it names is its own.
        let own = self.contents.files.iter().filter_map(|file| {
            let mut components = Path::new(&file.path).components();
            match components.next() {
                Some(Component::Normal(top)) => Some(PathBuf::from(top)),
                _ => None,
            }
        });
        let tops: BTreeSet<PathBuf> = own.collect();
        let found = Contents::told(folder, Some(&tops), Told::ByHeaders)?;
        let mut differences = Vec::new();
        self.compare_files(&found, &mut differences);
        self.compare_streams(&found, &mut differences);
        Ok(differences.into_iter().map(|(path, what)| (folder.join(path), what)).collect())
    }

    fn compare_files(&self, found: &Contents, differences: &mut Vec<(String, Difference)>) {
        let there: BTreeMap<&str, &ManifestFile> =
            found.files.iter().map(|file| (&*file.path, file)).collect();
        let mut named = BTreeSet::new();
        for file in &self.contents.files {
            named.insert(&*file.path);
            let difference = match there.get(&*file.path) {
                None => Difference::Missing { bytes: file.bytes },
                Some(now) if now.bytes != file.bytes => {
                    Difference::Length { found: now.bytes, expected: file.bytes }
                }
                Some(now) if now.sha256 != file.sha256 => Difference::Changed,
                Some(ManifestFile { compressed: Some(now), .. })
                    if file.compressed.as_ref().is_some_and(|compressed| compressed != now) =>
                {
                    Difference::Recompressed
                }
                Some(_) => continue,
            };
            differences.push((file.path.clone(), difference));
        }
        if self.contents.files_unlisted == 0 {
            let unnamed = there.keys().filter(|path| !named.contains(**path));
            differences.extend(unnamed.map(|path| ((*path).to_owned(), Difference::Unnamed)));
        }
    }

    fn compare_streams(&self, found: &Contents, differences: &mut Vec<(String, Difference)>) {
        let by_files = |streams: &'_ [ManifestStream]| -> BTreeMap<Vec<String>, ManifestStream> {
            streams.iter().map(|stream| (stream.files.clone(), stream.clone())).collect()
        };
        let (told, mut there) = (by_files(&self.contents.streams), by_files(&found.streams));
        let mut other = |stream: &ManifestStream, there| {
            let files = stream.files.len() as u64;
            let what = Difference::OtherStream { there, class_id: stream.class_id, files };
            differences.push((stream.files.first().cloned().unwrap_or_default(), what));
        };
        let mut numbers = Vec::new();
        for (files, stream) in &told {
            let Some(now) = there.remove(files) else {
                other(stream, "nothing can be read of");
                continue;
            };
            let path = files.first().cloned().unwrap_or_default();
            for ((what, expected), (_, found)) in stream.numbers().into_iter().zip(now.numbers()) {
                // What packets do not tell, an index told.
                if let Some(found) = found.filter(|found| Some(*found) != expected) {
                    numbers.push((path.clone(), Difference::Stream { what, found, expected }));
                }
            }
        }
        there.values().for_each(|stream| other(stream, "the manifest does not name"));
        differences.extend(numbers);
    }
}

fn shown(number: Option<i128>) -> String {
    number.map_or_else(|| "nothing".to_owned(), |number| number.to_string())
}

/// The folders at or below `paths` that hold a file named as a manifest, sorted.
pub fn find<P: AsRef<Path>>(paths: &[P]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<(PathBuf, usize)> =
        paths.iter().map(|path| (path.as_ref().to_owned(), 0)).collect();
    while let Some((folder, depth)) = pending.pop() {
        // What cannot be listed is told by the reading of the traces.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_file() && (name == MANIFEST || name == HIDDEN_MANIFEST) {
                found.insert(folder.clone());
            } else if kind.is_dir()
                && depth < MAX_DEPTH
                && name != INDEX
                && name.as_encoded_bytes().first() != Some(&b'.')
            {
                pending.push((entry.path(), depth + 1));
            }
        }
    }
    found.into_iter().collect()
}

fn relative(base: &Path, path: &Path) -> String {
    let path = path.strip_prefix(base).unwrap_or(path);
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

/// What a manifest says of a file, but for its path. Of a compressed one that cannot be decompressed the checksum is absent.
fn checksums(path: &Path) -> io::Result<ManifestFile> {
    let nameless =
        |bytes, sha256, compressed| ManifestFile { path: String::new(), bytes, sha256, compressed };
    let source = match PacketSource::open(path) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Ok(nameless(source::len_of(path), String::new(), None));
        }
        Err(error) => return Err(error),
    };
    let compressed = match source.is_compressed() {
        true => {
            let (bytes, sha256) = checksum(source.file())?;
            Some(CompressedFile { bytes, sha256 })
        }
        false => None,
    };
    match checksum(&source) {
        Ok((bytes, sha256)) => Ok(nameless(bytes, sha256, compressed)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ok(nameless(source.content_len()?, String::new(), compressed))
        }
        Err(error) => Err(error),
    }
}

/// Length and SHA-256.
pub(crate) fn checksum(source: &impl Source) -> io::Result<(u64, String)> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut len = 0;
    loop {
        let read = match source.read_some_at(&mut piece, len) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(piece.get(..read).unwrap_or_default());
        len += read as u64;
    }
    Ok((len, hex(&digest.finalize())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            format: MANIFEST_FORMAT.to_owned(),
            origin: Origin {
                host: "h".to_owned(),
                session: "s".to_owned(),
                chunk: 3,
                folder: "h/s/archives/x".to_owned(),
                begin_s: Some(1),
                end_s: None,
                sealed_by: SealedBy::ProducerGone,
            },
            contents: Contents::default(),
            losses: vec![StreamLosses {
                stream: "ust/ch_0".to_owned(),
                network_packets: 1,
                tracer_packets: 2,
                tracer_event_records: 3,
                places: vec![LossPlace {
                    cause: "network".to_owned(),
                    first: 4,
                    last: 4,
                    count: 1,
                }],
                without_place: 1,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Manifest::parse(&manifest().to_json()), Ok(Some(manifest())));
    }

    #[test]
    fn a_manifest_cut_anywhere_is_refused_and_one_of_somebody_else_is_left_alone() {
        let text = manifest().to_json();
        for len in 0..text.len() - 2 {
            assert!(matches!(Manifest::parse(&text[..len]), Err(Difference::Unreadable { .. })));
        }
        assert_eq!(Manifest::parse(b"{\"name\": \"web page\"}"), Ok(None));
        let newer = String::from_utf8(text).unwrap().replace("chunk/1", "chunk/2");
        let Err(Difference::Unreadable { problem }) = Manifest::parse(newer.as_bytes()) else {
            panic!("refused");
        };
        assert!(problem.contains("throughline-chunk/2"), "{problem}");
    }

    #[test]
    fn each_kind_of_difference_is_told_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            fs::create_dir_all(folder.path().join("d")).unwrap();
            fs::write(folder.path().join(name), bytes).unwrap();
        };
        for name in ["d/same", "d/longer", "d/changed", "d/gone"] {
            write(name, b"content");
        }
        let contents = Contents::of(folder.path(), None).unwrap();
        let sealed = Manifest { contents, ..manifest() };
        assert_eq!(sealed.contents.totals.bytes, 28);
        assert_eq!(sealed.differences(folder.path()).unwrap(), []);
        write("d/longer", b"contents");
        write("d/changed", b"Content");
        write("d/more", b"");
        fs::remove_file(folder.path().join("d/gone")).unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(
            sealed.differences(folder.path()).unwrap(),
            [
                (at("d/changed"), Difference::Changed),
                (at("d/gone"), Difference::Missing { bytes: 7 }),
                (at("d/longer"), Difference::Length { found: 8, expected: 7 }),
                (at("d/more"), Difference::Unnamed),
            ]
        );
    }

    #[test]
    fn paths_that_lead_elsewhere_are_files_that_are_not_there() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"1234567").unwrap();
        let folder = outside.path().join("chunk");
        fs::create_dir_all(folder.join("ust")).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("link")).unwrap();
        let sha256 = checksums(&outside.path().join("secret")).unwrap().sha256;
        let absolute = outside.path().join("secret").display().to_string();
        let mut sealed = manifest();
        for path in ["../secret", "ust/../../secret", "link/secret", "", ".", "/", &absolute] {
            let file = ManifestFile {
                path: path.to_owned(),
                bytes: 7,
                sha256: sha256.clone(),
                compressed: None,
            };
            sealed.contents.files.push(file);
        }
        let differences = sealed.differences(&folder).unwrap();
        assert_eq!(differences.len(), sealed.contents.files.len());
        for (path, difference) in differences {
            assert_eq!(difference, Difference::Missing { bytes: 7 }, "{}", path.display());
        }
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_told_and_not_taken_for_somebody_elses() {
        let folder = tempfile::tempdir().unwrap();
        for (text, is_ours) in
            [("{", true), ("[]", false), ("{\"format\": 7}", true), ("{}", false)]
        {
            fs::write(folder.path().join(MANIFEST), text).unwrap();
            match Manifest::read(folder.path()) {
                Ok(None) => assert!(!is_ours, "{text}"),
                Err(Difference::Unreadable { .. }) => assert!(is_ours, "{text}"),
                other => panic!("{other:?} of {text}"),
            }
        }
    }
}
