//! Lines of JSON in files `records-FIRST_ENTRY.jsonl`, each record's line there once.
//!
//! What a file holds is noted before it is acknowledged: who was killed in between cuts off what was not noted, and passes over what was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use journal::Entry;
use records::{EntryKind, RingBatch, decode_notified, write_lines, write_notified_lines};
use serde::{Deserialize, Serialize};

use super::{Driver, Outcome};
use crate::error::{Error, On, Result};
use crate::known::{checked, write_checked};

/// The length from which on a file is not written to any more, in bytes.
const FILE_LEN: u64 = 64 << 20;

pub(super) struct JsonLines {
    folder: PathBuf,
    state: PathBuf,
    keep_bytes: u64,
    noted: Noted,
    file: Option<File>,
}

/// What was noted.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Noted {
    /// Entries before this one are in files.
    entry: u64,
    /// The first entry of the file that is written to, and how long it is.
    first: u64,
    len: u64,
}

impl JsonLines {
    pub(super) fn open(folder: &Path, state: PathBuf, keep_bytes: u64) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).on("make the folder", folder)?;
        let noted = match fs::read(&state) {
            Ok(bytes) => checked(&bytes)
                .and_then(|noted| postcard::from_bytes(noted).ok())
                .ok_or_else(|| Error::Damaged { path: state.clone() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Noted::default(),
            Err(error) => return Err(error).on("read", &state),
        };
        let folder = folder.to_owned();
        Ok(Self { folder, state, keep_bytes, noted, file: None })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("records-{:020}.jsonl", self.noted.first))
    }

    fn write(&mut self, entries: &[Entry]) -> Result<()> {
        let new: Vec<&Entry> =
            entries.iter().filter(|it| it.header.position.entry >= self.noted.entry).collect();
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        let mut lines = Vec::new();
        for entry in &new {
            write_entry(entry, &mut lines);
        }
        let mut noted = Noted { entry: last.header.end().entry, ..self.noted };
        if self.file.is_none() || self.noted.len >= FILE_LEN {
            let is_other = self.noted.len == 0 || self.noted.len >= FILE_LEN;
            if is_other {
                self.noted = Noted { first: first.header.position.entry, len: 0, ..self.noted };
            }
            let path = self.path();
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).open(&path).on("open", &path)?;
            // What was written and not noted.
            file.set_len(self.noted.len).on("cut", &path)?;
            self.file = Some(file);
            self.let_go()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.write_all(&lines).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // The next attempt begins where this one did.
            self.file = None;
            return Err(error).on("write", &self.path());
        }
        (noted.first, noted.len) = (self.noted.first, self.noted.len + lines.len() as u64);
        let bytes = postcard::to_allocvec(&noted).map_err(io::Error::other);
        let written = bytes.on("write", &self.state).and_then(|it| write_checked(&self.state, &it));
        if written.is_err() {
            self.file = None;
        }
        written?;
        self.noted = noted;
        Ok(())
    }

    /// Deletes the oldest files while all together are too large.
    fn let_go(&self) -> Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).on("list", &self.folder)? {
            let entry = entry.on("list", &self.folder)?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let digits = name.strip_prefix("records-").and_then(|it| it.strip_suffix(".jsonl"));
            if digits.is_some_and(|it| it.len() == 20 && it.bytes().all(|it| it.is_ascii_digit())) {
                let len = entry.metadata().on("look at", &entry.path())?.len();
                files.push((entry.path(), len));
            }
        }
        files.sort();
        let mut all: u64 = files.iter().map(|(_, len)| len).sum();
        // The last one is written to.
        files.pop();
        for (path, len) in files {
            if all <= self.keep_bytes {
                break;
            }
            fs::remove_file(&path).on("remove", &path)?;
            all -= len;
        }
        Ok(())
    }
}

fn write_entry(entry: &Entry, lines: &mut Vec<u8>) {
    let written = match EntryKind::from_code(entry.header.kind) {
        Some(EntryKind::Ring) => {
            RingBatch::decode(&entry.payload).and_then(|batch| write_lines(&batch, lines))
        }
        Some(EntryKind::Notified) => decode_notified(&entry.payload)
            .map(|notified| write_notified_lines(&notified, entry.header.time, lines)),
        Some(EntryKind::ProcessEnded) | None => Ok(()),
    };
    if let Err(error) = written {
        let entry = entry.header.position.entry;
        tracing::warn!(entry, error = model::with_causes(&error), "an entry cannot be read");
    }
}

impl Driver for JsonLines {
    fn deliver(&mut self, entries: &[Entry]) -> Outcome {
        match self.write(entries) {
            Ok(()) => Outcome::Taken,
            Err(error) => Outcome::Again(None, model::with_causes(&error)),
        }
    }
}
