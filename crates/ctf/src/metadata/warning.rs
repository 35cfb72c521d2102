//! What metadata says that nothing takes: kept, so that a misspelt attribute can be noticed.

use std::fmt;

/// At most so many warnings of one metadata stream are kept; the others are counted.
pub(crate) const MAX_WARNINGS: usize = 256;

/// A place in the metadata that was read past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataWarning {
    /// Where in the text; for packetised metadata without packet headers.
    pub offset_bytes: usize,
    /// The same as a line number, from 1.
    pub line: usize,
    /// What is there.
    pub kind: WarningKind,
}

impl fmt::Display for MetadataWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata text, line {}, byte {}: {}", self.line, self.offset_bytes, self.kind)
    }
}

/// What was read past. Names are cut to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WarningKind {
    /// An attribute that has no meaning in its block; it may be misspelt.
    #[error("`{name}` has no meaning in {block} and is left out")]
    UnknownAttribute {
        /// The block.
        block: &'static str,
        /// The attribute.
        name: String,
    },
    /// A second value for a name; the last one holds.
    #[error("{what} `{name}` is given again; the last value holds")]
    Replaced {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A value without the quotes it should have; taken as text.
    #[error("the value of {what} `{name}` has no quotes")]
    Unquoted {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A field whose name has a meaning that its class cannot carry; taken as any other field.
    #[error("{what} would have to be {expected}; it is an ordinary field")]
    OrdinaryField {
        /// The field.
        what: &'static str,
        /// What it would have to be.
        expected: &'static str,
    },
    /// The text does not begin with `/* CTF 1.8`.
    #[error("does not begin with /* CTF 1.8 */")]
    NoSignature,
}

/// Warnings by their byte offset, up to the maximum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    all: Vec<(usize, WarningKind)>,
    more: u64,
}

impl Found {
    pub(crate) fn add(&mut self, at: usize, kind: WarningKind) {
        if self.all.len() < MAX_WARNINGS {
            self.all.push((at, kind));
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// By rising offset, with line numbers.
    pub(crate) fn locate(mut self, text: &[u8]) -> Warnings {
        self.all.sort_by_key(|(at, _)| *at);
        let (mut line, mut counted) = (1, 0);
        let locate = |(offset_bytes, kind)| {
            let between = text.get(counted..offset_bytes).unwrap_or(&[]);
            line += between.iter().filter(|byte| **byte == b'\n').count();
            counted = offset_bytes;
            MetadataWarning { offset_bytes, line, kind }
        };
        Warnings { list: self.all.into_iter().map(locate).collect(), more: self.more }
    }
}

/// The warnings of a metadata stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    pub(crate) list: Vec<MetadataWarning>,
    /// How many there are beyond the list.
    pub(crate) more: u64,
}
