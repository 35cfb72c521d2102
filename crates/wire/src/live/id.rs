//! Numbers of the protocol, each with a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the number as it stands on the wire.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number as it stands on the wire.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// A stream in one relay; the relay chooses it in its reply to `ADD_STREAM`.
    StreamHandle
);
number!(
    /// A relay session: one control connection of one consumer daemon.
    RelaySessionId
);
number!(
    /// A recording session as its lttng-sessiond numbers it.
    SessiondSessionId
);
number!(
    /// A trace chunk within one recording session, counted from 0.
    ChunkId
);
number!(
    /// A packet's number on the data connection, per stream. Not always from 0, and not the
    /// [`PacketSeqNum`].
    NetSeqNum
);
number!(
    /// A packet's number in its packet context, per stream; gaps are packets lost by the tracer.
    PacketSeqNum
);
number!(
    /// Seconds since the Unix epoch, by the clock of the producer's host.
    UnixSeconds
);

number!(
    /// One viewer's connection; the relay chooses it in its reply to `CONNECT`.
    ViewerSessionId
);
number!(
    /// A recording session as a relay numbers it for viewers.
    ViewedSessionId
);
number!(
    /// A stream as a relay numbers it for viewers.
    ViewedStreamId
);
number!(
    /// A trace, that is the streams that one metadata stream describes, as a relay numbers it for viewers.
    ViewedTraceId
);

impl ViewerSessionId {
    /// What a viewer says before it has one (all bits set).
    pub const NONE: Self = Self(u64::MAX);
}

impl NetSeqNum {
    /// Stands for "no packet at all" (all bits set), in `CLOSE_STREAM` and `DATA_PENDING`.
    pub const NONE: Self = Self(u64::MAX);

    /// How far this number is beyond `other`, as the protocol counts: wrapping, signed, so that
    /// [`NetSeqNum::NONE`] is one before 0.
    #[must_use]
    pub const fn distance_from(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The number of the packet after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Identity of one run of lttng-sessiond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessiondUuid(pub [u8; 16]);

impl SessiondUuid {
    /// Whether all bytes are zero, which no sessiond may send.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for SessiondUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
