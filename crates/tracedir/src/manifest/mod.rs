//! `manifest.json`: what a sealed chunk holds, told beside it by whoever sealed it.
//!
//! `docs/formats/chunk.md` has the fields. A manifest is made from indexes and packet headers ([`Contents::of`]) and
//! verified against the bytes and the headers alone ([`Manifest::differences`]): an index that says something else than
//! its packets shows.
//!
//! Bounds: [`MAX_MANIFEST_BYTES`] are read, [`MAX_MANIFEST_FILES`] are listed, [`StreamSurvey::GAPS`](crate::StreamSurvey::GAPS) gaps of each stream.

mod contents;
mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use contents::checksum;
pub use differences::Difference;

pub use crate::digest::hex;
use crate::discover::{INDEX, MAX_DEPTH, METADATA};
use crate::error::{Action, Error};
use crate::source;

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

#[cfg(test)]
mod tests {
    use super::contents::checksums;
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
