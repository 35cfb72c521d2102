use std::io;

/// Why a memory file, or a ring in it, is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be examined or mapped.
    #[error("cannot map the memory file")]
    Map(#[source] io::Error),
    /// Its maker could make it shorter while it is read.
    #[error("the memory file is not sealed against being made shorter")]
    NotSealed,
    /// Its beginning is that of something else.
    #[error("the memory file does not begin as rings do")]
    NotRings,
    /// It is of another version.
    #[error("the memory file is of version {version}, and {known} is known")]
    Version {
        /// Its own.
        version: u32,
        /// What this crate reads.
        known: u32,
    },
    /// A field of its header is out of its bounds.
    #[error("the memory file's {field} is {value}")]
    Header {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
    },
    /// A ring says what cannot be: it is not read any further.
    #[error("ring {ring} at byte {position}: {what}")]
    Ring {
        /// The number of its place.
        ring: u32,
        /// Of the ring's life.
        position: u64,
        /// What is wrong.
        what: Wrong,
    },
}

/// What cannot be of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The head is before what was read, or further than a ring's length.
    #[error("its head is at {head}")]
    Head {
        /// Where.
        head: u64,
    },
    /// A record is empty, or goes beyond its block or what is published.
    #[error("a record of {words} words")]
    Length {
        /// How long it says it is.
        words: u16,
    },
    /// A record's number is not the one after that of the record before.
    #[error("record {number} where {expected} was expected")]
    Number {
        /// Its own.
        number: u32,
        /// The other.
        expected: u32,
    },
    /// A record is of a call site that is not described.
    #[error("a record of call site {site}, which is not described")]
    Site {
        /// Its number.
        site: u16,
    },
    /// A record's fields do not fill it as its call site's description says.
    #[error("fields of call site {site} that do not fit in its record")]
    Fields {
        /// Its number.
        site: u16,
    },
    /// The length of the descriptions is more than there is room for, or less than it was.
    #[error("descriptions of {len} bytes")]
    SitesLen {
        /// What it says.
        len: u64,
    },
    /// A description cannot be read.
    #[error("a description at {offset}")]
    Description {
        /// Where it begins among them.
        offset: u64,
    },
    /// The state of its place is none that there is.
    #[error("its state is {code}")]
    State {
        /// What it says.
        code: u32,
    },
}
