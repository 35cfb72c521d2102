//! What can go wrong.

/// Why a sample was not taken. Whoever adds samples counts these as losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The sample's time is not in the packet's window.
    #[error("a sample at {at_unix_ns} ns is outside the window")]
    OutsideWindow {
        /// The sample's time.
        at_unix_ns: u64,
    },
    /// The packet holds as much as a receiver must be ready to take: seal it and begin another.
    #[error("the packet is full")]
    Full,
    /// A process or frame of another builder.
    #[error("an id of another builder")]
    ForeignId,
    /// More frames than a stack may have.
    #[error("a stack of {frames} frames")]
    TooDeep {
        /// How many there were.
        frames: usize,
    },
    /// A value that this kind of sample cannot have: not 1 on a CPU, more than 2^63 - 1 off it.
    #[error("a sample of this kind cannot have the value {value}")]
    Value {
        /// The value.
        value: u64,
    },
}
