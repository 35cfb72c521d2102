//! A cursor in a file.
//!
//! ```text
//! throughline-export-cursor 1 CRC32C␊      checksum of all behind this line, 8 hexadecimal digits
//! {…}                                      the cursor as JSON
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cursor::{Cursor, KeepCursor};
use crate::error::{Error, Result};

const MAGIC: &str = "throughline-export-cursor 1 ";

/// Longest file: labels of [`MAX_PARKED`](crate::MAX_PARKED) series, escaped twice, and words.
const MAX_LEN: u64 = 64 << 20;

/// Keeps a cursor in a file of its own, which is replaced whole. One sender at a time.
#[derive(Debug)]
pub struct CursorFile {
    path: PathBuf,
}

impl CursorFile {
    /// The file need not be there; its folder must.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { path: self.path.clone(), what }
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl KeepCursor for CursorFile {
    fn load(&mut self) -> Result<Option<Cursor>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Cursor(error)),
            Ok(known) if known.len() > MAX_LEN => return Err(self.damaged("it is too long")),
            Ok(_) => {}
        }
        let text = fs::read_to_string(&self.path).map_err(Error::Cursor)?;
        let rest = text.strip_prefix(MAGIC).ok_or_else(|| self.damaged("another first line"))?;
        let (checksum, json) = rest.split_once('\n').ok_or_else(|| self.damaged("it is cut"))?;
        if checksum != format!("{:08x}", crc32c::crc32c(json.as_bytes())) {
            return Err(self.damaged("wrong checksum"));
        }
        serde_json::from_str(json).map(Some).map_err(|_json| self.damaged("another content"))
    }

    fn save(&mut self, cursor: &Cursor) -> Result<()> {
        let json = serde_json::to_string(cursor).map_err(io::Error::from).map_err(Error::Cursor)?;
        let checksum = crc32c::crc32c(json.as_bytes());
        self.replace(&format!("{MAGIC}{checksum:08x}\n{json}")).map_err(Error::Cursor)
    }
}

#[cfg(test)]
mod tests {
    use wire::remote_write::Version;

    use super::*;
    use crate::cursor::{Intent, Learned, Reason};

    fn cursor() -> Cursor {
        let mut cursor = Cursor { next: 7, taken: 6, newest_ms: Some(-1), ..Cursor::default() };
        cursor.intent = Some(Intent { cells: 3, version: Version::V2 });
        cursor.learned = Some(Learned { endpoint: "http://p/".into(), version: Version::V1 });
        cursor.lose(Reason::Refused);
        cursor.park("m{a=\"\\\"\"}".into(), 5, Reason::Refused, "no".into());
        cursor
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = CursorFile::new(folder.path().join("cursor"));
        assert_eq!(file.load().unwrap(), None);
        for saved in [Cursor::default(), cursor()] {
            file.save(&saved).unwrap();
            assert_eq!(file.load().unwrap(), Some(saved));
        }
        let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["cursor"]);
    }

    #[test]
    fn a_damaged_file_is_told_and_never_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let mut file = CursorFile::new(&path);
        file.save(&cursor()).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(matches!(file.load(), Err(Error::Damaged { .. })), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(matches!(file.load(), Err(Error::Damaged { .. })), "{at} bytes");
        }
    }

    #[test]
    fn parked_series_are_bounded_and_the_last_words_stay() {
        let mut cursor = Cursor::default();
        for number in 0..250 {
            cursor.park(format!("m{}", number % 150), number, Reason::Failed, "w".into());
        }
        assert_eq!(cursor.parked.len(), crate::MAX_PARKED);
        assert!(cursor.parks("m99") && !cursor.parks("m100a"));
        cursor.unpark("m99");
        assert!(!cursor.parks("m99"));
    }
}
