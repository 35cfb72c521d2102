//! Names and paths from the network that are safe to use for files.
//!
//! On the wire a string has its length in front (counting one terminating NUL) or stands in a
//! fixed array, ended by NUL. Once it is a [`Name`] or a [`RelativePath`] no check is needed: it
//! cannot leave the folder it is joined to.
//! Bytes that are not UTF-8 and control characters become U+FFFD: process names may hold anything, and
//! refusing them would stop the whole recording session.

use std::fmt;
use std::path::Path;

use super::error::{Error, Result};
use super::reader::Reader;

/// Longest name in bytes, without NUL: what file systems take as one component.
pub const MAX_NAME_LEN: usize = 255;
/// Longest path in bytes, without NUL.
pub const MAX_PATH_LEN: usize = 4095;

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// A separator in what must be one component.
    #[error("it contains a slash")]
    Slash,
    /// A name that would be hidden, or `.` or `..`.
    #[error("it begins with a dot")]
    LeadingDot,
    /// A path component `.` or `..`.
    #[error("it has a component of dots only")]
    DotComponent,
    /// A path from the root.
    #[error("it is absolute")]
    Absolute,
    /// A NUL inside.
    #[error("it contains a NUL byte")]
    Nul,
    /// Longer than [`MAX_NAME_LEN`] or, for a path, than [`MAX_PATH_LEN`].
    #[error("it is too long")]
    TooLong,
    /// Reserved for the relay's own folders.
    #[error("it is a reserved name")]
    Reserved,
}

/// One path component: not empty, no slash, no NUL, no leading dot, at most [`MAX_NAME_LEN`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// The [`NameProblem`] found first.
    pub fn new(name: impl Into<String>) -> std::result::Result<Self, NameProblem> {
        let name = name.into();
        if name.is_empty() {
            Err(NameProblem::Empty)
        } else if name.starts_with('.') {
            Err(NameProblem::LeadingDot)
        } else if name.contains('/') {
            Err(NameProblem::Slash)
        } else if name.contains('\0') {
            Err(NameProblem::Nul)
        } else if name.len() > MAX_NAME_LEN {
            Err(NameProblem::TooLong)
        } else {
            Ok(Self(name))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(
        reader: &mut Reader<'_>,
        field: &'static str,
        len_with_nul: usize,
    ) -> Result<Self> {
        let offset = reader.offset();
        let text = text(reader.bytes(field, len_with_nul)?);
        Self::new(text).map_err(|problem| Error::BadName { field, offset, problem })
    }
}

/// A path of zero or more components, relative, none of them `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelativePath(String);

impl RelativePath {
    /// Checks a path; doubled and trailing slashes are dropped. The empty path is allowed.
    ///
    /// # Errors
    /// The [`NameProblem`] found first.
    pub fn new(path: &str) -> std::result::Result<Self, NameProblem> {
        if path.starts_with('/') {
            return Err(NameProblem::Absolute);
        }
        if path.len() > MAX_PATH_LEN {
            return Err(NameProblem::TooLong);
        }
        if path.contains('\0') {
            return Err(NameProblem::Nul);
        }
        let mut clean = String::with_capacity(path.len());
        for component in path.split('/').filter(|component| !component.is_empty()) {
            if component == "." || component == ".." {
                return Err(NameProblem::DotComponent);
            }
            if component.len() > MAX_NAME_LEN {
                return Err(NameProblem::TooLong);
            }
            if !clean.is_empty() {
                clean.push('/');
            }
            clean.push_str(component);
        }
        Ok(Self(clean))
    }

    /// The path, components joined by single slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for use with the standard library.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Whether it has no component.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its components from the first to the last.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// This path with one more component.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        self.join_path(&Self(name.0.clone()))
    }

    /// This path followed by another.
    #[must_use]
    pub fn join_path(&self, tail: &Self) -> Self {
        match (self.is_empty(), tail.is_empty()) {
            (true, _) => tail.clone(),
            (_, true) => self.clone(),
            _ => Self(format!("{}/{}", self.0, tail.0)),
        }
    }

    pub(super) fn read(
        reader: &mut Reader<'_>,
        field: &'static str,
        len_with_nul: usize,
    ) -> Result<Self> {
        let offset = reader.offset();
        let text = text(reader.bytes(field, len_with_nul)?);
        Self::new(&text).map_err(|problem| Error::BadName { field, offset, problem })
    }

    /// Like [`RelativePath::read`] for protocol versions whose paths look absolute.
    pub(super) fn read_rooted(
        reader: &mut Reader<'_>,
        field: &'static str,
        len_with_nul: usize,
    ) -> Result<Self> {
        let offset = reader.offset();
        let text = text(reader.bytes(field, len_with_nul)?);
        Self::new(text.trim_start_matches('/')).map_err(|problem| Error::BadName {
            field,
            offset,
            problem,
        })
    }
}

impl From<Name> for RelativePath {
    fn from(name: Name) -> Self {
        Self(name.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text before the first NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).replace(char::is_control, "\u{fffd}")
}

/// Length of a string on the wire: its bytes and one NUL.
pub(super) fn wire_len(text: &str) -> u32 {
    // Names and paths are bounded by MAX_PATH_LEN when they are made.
    u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Appends the bytes and one NUL.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Appends the text in an array of fixed length, filled with NULs.
pub(super) fn put_fixed(
    out: &mut Vec<u8>,
    field: &'static str,
    text: &str,
    len: usize,
) -> Result<()> {
    let Some(fill) = len.checked_sub(text.len()).filter(|fill| *fill > 0) else {
        return Err(Error::BadName { field, offset: 0, problem: NameProblem::TooLong });
    };
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + fill, 0);
    Ok(())
}

/// As much of the text as fits an array of fixed length with a NUL, cut between characters, filled with NULs.
pub(super) fn put_cut(out: &mut Vec<u8>, text: &str, len: usize) {
    let end = out.len().saturating_add(len);
    out.extend_from_slice(cut(text, len.saturating_sub(1)).as_bytes());
    out.resize(end, 0);
}

/// At most so many bytes of the text, cut between characters.
pub(super) fn cut(text: &str, max_len: usize) -> &str {
    text.get(..text.floor_char_boundary(max_len)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        let cases = [
            ("", NameProblem::Empty),
            ("..", NameProblem::LeadingDot),
            (".hidden", NameProblem::LeadingDot),
            ("a/b", NameProblem::Slash),
            ("../../x", NameProblem::LeadingDot),
            ("a\0b", NameProblem::Nul),
        ];
        for (name, problem) in cases {
            assert_eq!(Name::new(name), Err(problem), "{name:?}");
        }
        assert_eq!(Name::new("x".repeat(256)), Err(NameProblem::TooLong));
        assert!(Name::new("x".repeat(255)).is_ok());
    }

    #[test]
    fn paths_that_could_leave_their_folder_are_refused() {
        let cases = [
            ("/etc", NameProblem::Absolute),
            ("..", NameProblem::DotComponent),
            ("a/../b", NameProblem::DotComponent),
            ("a/./b", NameProblem::DotComponent),
            ("a/b/..", NameProblem::DotComponent),
        ];
        for (path, problem) in cases {
            assert_eq!(RelativePath::new(path), Err(problem), "{path:?}");
        }
    }

    #[test]
    fn paths_are_kept_with_single_slashes() {
        let path = RelativePath::new("ust//uid/0/64-bit/").unwrap();
        assert_eq!(path.as_str(), "ust/uid/0/64-bit");
        assert_eq!(path.components().collect::<Vec<_>>(), ["ust", "uid", "0", "64-bit"]);
        assert!(RelativePath::new("").unwrap().is_empty());
    }
}
