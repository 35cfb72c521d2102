//! Identities, times, names of system calls, samples of profiles and the line of an error, which every part of Throughline shares.
//!
//! Vocabulary:
//! - **timestamp**: nanoseconds since the Unix epoch, as the trace clock says;
//! - **span of time**: a half-open interval `[begin, end)` of timestamps;
//! - **thread id** (`Tid`): the kernel's number of a thread in the root PID namespace;
//! - **process id** (`Pid`): the kernel's thread group id, the `Tid` of the leader;
//! - **CPU**: the kernel's logical CPU number;
//! - **sample**: a stack with a value at a time, of a **series**: labels and what values count.
//!
//! This crate knows no wire format and does no I/O.

mod causes;
mod errno;
mod id;
pub mod intern;
pub mod samples;
mod syscall;
mod time;

pub use causes::with_causes;
pub use errno::errno_name;
pub use id::{CpuId, Fd, Pid, Tid};
pub use syscall::{compat_syscall_name, syscall_name, syscall_number};
pub use time::{Nanos, TimeRange, Timestamp};
