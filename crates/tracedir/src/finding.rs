use std::fmt;
use std::io;
use std::path::PathBuf;

use ctf::DecodeError;
use model::with_causes;

use crate::error::Error;

/// Part of a recording that cannot be read; the rest can.
#[derive(Debug)]
#[non_exhaustive]
pub enum Finding {
    /// A whole trace folder, whose metadata is of no use, or a folder that cannot be listed.
    Trace(Error),
    /// From one place of a stream file on; what the rest says is lost with it.
    Rest {
        /// The stream file.
        path: PathBuf,
        /// Where the first packet that is lost begins, bytes.
        offset_bytes: u64,
        /// How much is lost, bytes.
        lost_bytes: u64,
        /// What is wrong.
        cause: Cause,
    },
    /// The rest of one packet; the next one is read again.
    Packet {
        /// The stream file.
        path: PathBuf,
        /// Where the packet begins, bytes.
        offset_bytes: u64,
        /// What is wrong.
        cause: Cause,
    },
}

/// What is wrong at a place of a stream file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The bytes contradict the metadata.
    Damaged(Box<DecodeError>),
    /// The file cannot be read.
    Io(io::Error),
    /// A packet is longer than what this reader takes memory for.
    TooLong {
        /// The length it announces, bytes.
        announced: u64,
        /// The most that is taken, bytes.
        limit: u64,
    },
    /// A packet of another stream than the file's first.
    OtherStream {
        /// Data stream class id.
        class_id: u64,
        /// Data stream instance id.
        instance_id: Option<u64>,
    },
    /// The file ends inside of a packet's header.
    CutHeader {
        /// Bytes that are there.
        available: u64,
    },
}

impl Cause {
    /// The numbers of the message by their names, for programs.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, i128)> {
        match self {
            Self::Damaged(error) => error.kind.values(),
            Self::Io(_) => Vec::new(),
            Self::TooLong { announced, limit } => {
                vec![("announced_bytes", (*announced).into()), ("limit_bytes", (*limit).into())]
            }
            Self::OtherStream { class_id, instance_id } => {
                let instance = instance_id.map(|id| ("instance_id", id.into()));
                let class = ("class_id", (*class_id).into());
                std::iter::once(class).chain(instance).collect()
            }
            Self::CutHeader { available } => vec![("available_bytes", (*available).into())],
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(error) => error.fmt(f),
            Self::Io(error) => write!(f, "cannot read: {error}"),
            Self::TooLong { announced, limit } => {
                write!(f, "the packet announces {announced} bytes, the limit is {limit}")
            }
            Self::OtherStream { class_id, instance_id: Some(instance) } => {
                write!(f, "the packet is of stream {instance} of class {class_id}")
            }
            Self::OtherStream { class_id, instance_id: None } => {
                write!(f, "the packet is of stream class {class_id}")
            }
            Self::CutHeader { available } => {
                write!(f, "the file ends {available} bytes into the packet's header")
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => f.write_str(&with_causes(error)),
            Self::Rest { path, offset_bytes, lost_bytes, cause } => write!(
                f,
                "{}: packet at byte {offset_bytes}: {cause}; the remaining {lost_bytes} bytes are not read",
                path.display()
            ),
            Self::Packet { path, offset_bytes, cause } => {
                write!(f, "{}: packet at byte {offset_bytes}: {cause}", path.display())
            }
        }
    }
}

/// Findings: the first ones themselves, the others by number.
#[derive(Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

impl Findings {
    /// How many are kept; a recording can have as many as it has packets.
    pub const KEPT: usize = 100;

    /// Adds one; from [`Self::KEPT`] on it is only counted.
    pub fn push(&mut self, finding: Finding) {
        if self.kept.len() < Self::KEPT {
            self.kept.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Those that are kept, and how many more there were.
    pub(crate) fn into_parts(self) -> (Vec<Finding>, u64) {
        (self.kept, self.more)
    }

    /// The first [`Self::KEPT`], in the order in which they were met.
    #[must_use]
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// How many came after those that are kept.
    #[must_use]
    pub const fn more(&self) -> u64 {
        self.more
    }

    /// Whether all could be read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
