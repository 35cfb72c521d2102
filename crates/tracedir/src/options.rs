/// How traces are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Added to the times of all clocks, nanoseconds. A clock class whose offset cannot take it is an error
    /// ([`Error::ClockOffset`](crate::Error::ClockOffset)).
    pub clock_offset_ns: i128,
    /// What is asked of clocks before their times are put in one order.
    pub correlate: Correlate,
}

/// What is asked of the clocks of several traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Correlate {
    /// All of them must be comparable: a recording with others is refused
    /// ([`Error::Uncorrelated`](crate::Error::Uncorrelated)).
    #[default]
    Required,
    /// All of them are taken to count from the Unix epoch, whatever they say.
    ForceUnixEpoch,
    /// Nothing. For who looks at one trace after the other: in the merged order, times of clocks that cannot be
    /// compared stand side by side. [`Recording::correlation`](crate::Recording::correlation) says whether there are
    /// such.
    Unchecked,
}
