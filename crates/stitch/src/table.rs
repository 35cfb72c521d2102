//! Answers as tables: columns that say what they hold, rows of typed cells.

use std::sync::Arc;

use model::{CpuId, Fd, Pid, Tid, TimeRange, Timestamp};

use crate::fact::{BlockOp, Dev, Line};

/// One table of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What kind of table it is.
    pub class: &'static Class,
    /// The time it is about.
    pub range: TimeRange,
    /// As many cells in each row as the class has columns.
    pub rows: Vec<Vec<Cell>>,
    /// How many rows a limit left out.
    pub left_out: u64,
}

/// A kind of table.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    /// The name for programs, unique.
    pub name: &'static str,
    /// The heading for people.
    pub title: &'static str,
    /// The columns.
    pub columns: &'static [Column],
}

/// A column of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// The name for programs.
    pub name: &'static str,
    /// The heading for people.
    pub title: &'static str,
    /// What its cells are.
    pub kind: Kind,
    /// What its numbers count, if they are counts.
    pub unit: Option<&'static str>,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A count.
    Number,
    /// Nanoseconds.
    Duration,
    /// Bytes.
    Size,
    /// A part of a whole.
    Ratio,
    /// A point in time.
    Time,
    /// Text.
    Text,
    /// A thread or process.
    Process,
    /// A system call.
    Syscall,
    /// A file.
    Path,
    /// A CPU.
    Cpu,
    /// An interrupt.
    Irq,
    /// A block device.
    Disk,
    /// A file descriptor.
    Fd,
    /// A network interface.
    Interface,
}

/// One value, or what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// There is none.
    Nothing,
    /// There is one, and nobody knows it.
    Unknown,
    /// A count.
    Count(Bound),
    /// Nanoseconds.
    Ns(Bound),
    /// Bytes.
    Bytes(Bound),
    /// A part of a whole; the whole is not zero.
    Ratio {
        /// The part.
        part: u64,
        /// The whole.
        whole: u64,
    },
    /// Nanoseconds of one of many, on average; `n` is not zero.
    Mean {
        /// The sum of all.
        sum: u64,
        /// How many.
        n: u64,
    },
    /// The deviation of nanoseconds of a sample; `n` is at least two.
    Deviation {
        /// How many.
        n: u64,
        /// The sum of all.
        sum: u64,
        /// The sum of their squares.
        squares: u128,
    },
    /// A point in time.
    At(Timestamp),
    /// Text.
    Text(Arc<str>),
    /// A thread or process.
    Process {
        /// The thread; `None` for a whole process.
        tid: Option<Tid>,
        /// Its process, when it is known.
        pid: Option<Pid>,
        /// Its command name; empty when it is unknown.
        comm: Arc<str>,
    },
    /// A system call, without prefix.
    Syscall(Arc<str>),
    /// A file's name.
    Path(Arc<str>),
    /// A CPU.
    Cpu(CpuId),
    /// An interrupt.
    Irq {
        /// Which one.
        line: Line,
        /// Its names, joined; empty when it is unknown.
        name: Arc<str>,
    },
    /// A block device.
    Disk {
        /// Which one.
        dev: Dev,
        /// Its name; empty when it is unknown.
        name: Arc<str>,
    },
    /// A file descriptor.
    Fd(Fd),
    /// A network interface.
    Interface(Arc<str>),
}

/// A number that is at least and at most so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// What is certain.
    pub low: u64,
    /// What is possible; `None` without limit.
    pub high: Option<u64>,
}

impl Bound {
    /// A number that is known.
    #[must_use]
    pub const fn exactly(value: u64) -> Self {
        Self { low: value, high: Some(value) }
    }

    /// The number, when it is known.
    #[must_use]
    pub fn certain(self) -> Option<u64> {
        self.high.filter(|high| *high == self.low)
    }
}

impl Cell {
    /// A count that is known.
    #[must_use]
    pub const fn count(value: u64) -> Self {
        Self::Count(Bound::exactly(value))
    }

    /// Nanoseconds that are known.
    #[must_use]
    pub const fn ns(value: u64) -> Self {
        Self::Ns(Bound::exactly(value))
    }

    /// Bytes that are known.
    #[must_use]
    pub const fn bytes(value: u64) -> Self {
        Self::Bytes(Bound::exactly(value))
    }

    /// The cell as one number with a fraction: a ratio, a mean, a deviation. `None` for all others.
    #[must_use]
    pub fn real(&self) -> Option<f64> {
        match *self {
            Self::Ratio { part, whole } => Some(part as f64 / whole as f64),
            Self::Mean { sum, n } => Some(sum as f64 / n as f64),
            Self::Deviation { n, sum, squares } => Some(deviation(n, sum, squares)),
            _ => None,
        }
    }
}

/// The deviation of a sample, `sqrt((n * squares - sum^2) / (n * (n - 1)))`, as far as possible in integers.
fn deviation(n: u64, sum: u64, squares: u128) -> f64 {
    let wide = u128::from(n);
    let square = u128::from(sum) * u128::from(sum);
    let over = match wide.checked_mul(squares) {
        Some(all) => all.saturating_sub(square) as f64,
        None => n as f64 * squares as f64 - square as f64,
    };
    (over / (wide * (wide - 1)) as f64).sqrt()
}

impl BlockOp {
    /// What people call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let found = Cell::Deviation { n: 4, sum: 20, squares: 120 }.real().unwrap();
        assert!((found - (20.0_f64 / 3.0).sqrt()).abs() < 1e-12, "{found}");
        let far = u64::from(u32::MAX) << 20;
        let squares = 2 * u128::from(far) * u128::from(far);
        assert_eq!(Cell::Deviation { n: 2, sum: 2 * far, squares }.real(), Some(0.0));
    }
}
