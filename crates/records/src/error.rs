//! Errors.

/// Why bytes are not those of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// They end early, or hold what no field can be.
    #[error("no batch of a ring's records")]
    Form(#[from] postcard::Error),
    /// A number is out of its bounds.
    #[error("{field} is {value}")]
    Value {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
    },
    /// A call site's description cannot be read.
    #[error("description {number} cannot be read")]
    Description {
        /// Which of them, from 0 on.
        number: usize,
    },
    /// Records are damaged.
    #[error("at byte {position} of the ring: {what}")]
    Records {
        /// Where, of the ring's life.
        position: u64,
        /// What is wrong.
        what: rings::Wrong,
    },
}
