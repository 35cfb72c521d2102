//! Segments as files: `FIRST_ENTRY.seg`, twenty digits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, On, Result};
use crate::frame::{Decoded, HEADER_LEN, Header, PREAMBLE_LEN, Position, Preamble, decode};

const SUFFIX: &str = ".seg";
/// How much is read at a time when a segment is gone through.
const READ_LEN: usize = 256 << 10;

/// A segment that is there.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) begin: Position,
    /// Bytes that are whole entries, and what is before them.
    pub(crate) len: u64,
}

impl Segment {
    /// Makes a segment; one of the same name that nobody knows gives way.
    pub(crate) fn create(folder: &Path, journal: [u8; 16], begin: Position) -> Result<Self> {
        let path = folder.join(format!("{:020}{SUFFIX}", begin.entry));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).on("make", &path)?;
        let preamble = Preamble { journal, begin }.encode();
        if let Err(error) = file.write_all_at(&preamble, 0) {
            // Without it the next start takes no notice of the file.
            drop(fs::remove_file(&path));
            return Err(error).on("write", &path);
        }
        Ok(Self { path, file: Arc::new(file), begin, len: PREAMBLE_LEN as u64 })
    }

    /// Opens one that an earlier process made. Nothing when it died before it was one.
    pub(crate) fn open(path: PathBuf) -> Result<Option<(Self, [u8; 16])>> {
        let file = OpenOptions::new().read(true).write(true).open(&path).on("open", &path)?;
        let len = file.metadata().on("look at", &path)?.len();
        let mut preamble = [0; PREAMBLE_LEN];
        if len < PREAMBLE_LEN as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut preamble, 0).on("read", &path)?;
        let preamble = Preamble::decode(&preamble).map_err(|(offset, what)| Error::Damaged {
            path: path.clone(),
            offset,
            what,
        })?;
        let Preamble { journal, begin } = preamble;
        Ok(Some((Self { path, file: Arc::new(file), begin, len }, journal)))
    }

    /// Goes through entries from an offset up to the segment's end. Gives where whole entries end, and what is wrong there.
    pub(crate) fn scan(
        &self,
        from: u64,
        mut visit: impl FnMut(&Header, &[u8]),
    ) -> Result<(u64, Option<&'static str>)> {
        self.scan_while(from, |header, payload| {
            visit(header, payload);
            true
        })
    }

    /// The same for as long as `visit` wants more.
    pub(crate) fn scan_while(
        &self,
        from: u64,
        mut visit: impl FnMut(&Header, &[u8]) -> bool,
    ) -> Result<(u64, Option<&'static str>)> {
        let mut offset = from;
        let mut buffer = Vec::new();
        let mut want = READ_LEN;
        loop {
            let left = self.len.saturating_sub(offset);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(want);
            buffer.resize(len, 0);
            self.file.read_exact_at(&mut buffer, offset).on("read", &self.path)?;
            let mut rest = buffer.as_slice();
            let needed = loop {
                match decode(rest) {
                    Decoded::Entry(header, payload) => {
                        if !visit(&header, payload) {
                            return Ok((offset, None));
                        }
                        let len = HEADER_LEN + payload.len();
                        rest = rest.get(len..).unwrap_or_default();
                        offset += len as u64;
                    }
                    Decoded::Short(needed) => break needed,
                    Decoded::Damaged(what) => return Ok((offset, Some(what))),
                }
            };
            let left = self.len.saturating_sub(offset);
            if left == 0 {
                return Ok((offset, None));
            }
            if needed as u64 > left {
                return Ok((offset, Some("an entry that is cut off")));
            }
            want = needed.max(READ_LEN);
        }
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Paths of a folder's segments, in order.
pub(crate) fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).on("list", folder)? {
        let path = entry.on("list", folder)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let digits = name.and_then(|name| name.strip_suffix(SUFFIX));
        if digits.is_some_and(|it| it.len() == 20 && it.bytes().all(|byte| byte.is_ascii_digit())) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A small file, whole.
pub(crate) fn read_small(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
