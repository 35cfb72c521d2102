//! What is in a chunk, as its files, indexes and packet headers tell it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ctf::{CtfVersion, EnvValue};
use model::{Timestamp, with_causes};
use sha2::{Digest, Sha256};

use super::{
    CompressedFile, Contents, EnvEntry, HIDDEN_MANIFEST, Lost, MANIFEST, MAX_MANIFEST_FILES,
    ManifestFile, ManifestStream, Totals, Trace,
};
use crate::classes::ClassCache;
use crate::digest::hex;
use crate::discover::{MAX_DEPTH, METADATA};
use crate::error::{Action, Error};
use crate::finding::Findings;
use crate::options::{Correlate, ReadOptions};
use crate::recording::{LogicalTrace, Recording};
use crate::seekable::Source;
use crate::source::{self, PacketSource};
use crate::survey::{StreamSurvey, Told};

/// How much is read at a time for a checksum.
const PIECE: usize = 256 << 10;
/// Most problems that are kept.
const MAX_PROBLEMS: usize = 100;

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

    pub(super) fn told(
        folder: &Path,
        tops: Option<&BTreeSet<PathBuf>>,
        told: Told,
    ) -> Result<Self, Error> {
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
            Err(error) => return self.problem(with_causes(&error)),
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
}

fn relative(base: &Path, path: &Path) -> String {
    let path = path.strip_prefix(base).unwrap_or(path);
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

/// What a manifest says of a file, but for its path. Of a compressed one that cannot be decompressed the checksum is absent.
pub(super) fn checksums(path: &Path) -> io::Result<ManifestFile> {
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
