//! Numbers the kernel hands out, each with a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! kernel_number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the number as the kernel reports it.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The number as the kernel reports it.
            #[must_use]
            pub const fn get(self) -> $inner {
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

kernel_number!(
    /// A thread, in the root PID namespace. 0 is the idle thread of whichever CPU runs it.
    Tid(i32)
);
kernel_number!(
    /// A process: the thread id of the thread group's leader.
    Pid(i32)
);
kernel_number!(
    /// A logical CPU.
    CpuId(u32)
);
kernel_number!(
    /// A file descriptor number of one process.
    Fd(i32)
);

impl Tid {
    /// The idle thread; every CPU has one and all share this number.
    pub const IDLE: Self = Self::new(0);
}
