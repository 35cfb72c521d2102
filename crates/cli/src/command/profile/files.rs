//! Profiles in files: OTLP requests, as they are or in gzip.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use profile::view::Weights;
use profile::{Limits, Packet, Request, ungzip};

/// The first bytes of a file in gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Profiles that were read.
pub(super) struct Read {
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Read {
    /// The bytes of all files.
    pub(super) fn all(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let read = |path: &PathBuf| -> anyhow::Result<_> {
            let shown = || path.display().to_string();
            let bytes = fs::read(path).with_context(shown)?;
            let bytes = match bytes.starts_with(&GZIP) {
                true => ungzip(&bytes, Limits::default()).with_context(shown)?,
                false => bytes,
            };
            Ok((path.clone(), bytes))
        };
        Ok(Self { files: paths.iter().map(read).collect::<anyhow::Result<_>>()? })
    }

    /// What is in them.
    pub(super) fn requests(&self) -> anyhow::Result<Vec<Request<'_>>> {
        let requests = self.files.iter().map(|(path, bytes)| {
            Request::decode(bytes, Limits::default())
                .with_context(|| format!("{} is no profile", path.display()))
        });
        requests.collect()
    }

    /// All of them together; one that is given twice counts once.
    pub(super) fn weights(&self) -> anyhow::Result<Weights> {
        let mut weights = Weights::new();
        for request in self.requests()? {
            weights.add(&request);
        }
        Ok(weights)
    }
}

/// The file beside another whose name begins so.
pub(super) fn beside(path: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let Some(name) = path.file_name() else { bail!("{} is no name of a file", path.display()) };
    let mut prefixed = OsString::from(prefix);
    prefixed.push(name);
    Ok(path.with_file_name(prefixed))
}

/// Writes packets: the first to this file, and where one was full the next beside it, numbered from 2 on.
pub(super) fn write(path: &Path, packets: &[Packet]) -> anyhow::Result<()> {
    let Some(name) = path.file_name() else { bail!("{} is no name of a file", path.display()) };
    for (number, packet) in (1..).zip(packets) {
        let mut numbered = name.to_owned();
        if number > 1 {
            numbered.push(format!(".{number}"));
        }
        let path = path.with_file_name(numbered);
        let is_plain = path.extension().is_some_and(|it| it == "otlp");
        let bytes = if is_plain { packet.bytes.clone() } else { packet.gzip() };
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// To standard output.
pub(super) fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
