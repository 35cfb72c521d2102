//! What takes samples: a program in the kernel, or the kernel's events with copies of stacks.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use libbpf_rs::MapCore;
use model::{Pid, Tid};

use super::code::ForWhom;
use super::control::Settings;
use super::copies::{Copies, threads};
use super::off_cpu::Pace;
use super::perf::{ALL_PROCESSES, SideBand};
use super::processes::{Process, Processes};
use super::programs::{Counts, Programs};
use super::{Config, Means};
use crate::error::{Error, Result};
use crate::object::Storage;
use crate::preflight;

/// What takes samples.
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Backend<'obj> {
    Programs(Programs<'obj>),
    Copies { copies: Copies, refused: Option<Arc<Error>> },
}

impl<'obj> Backend<'obj> {
    /// Takes a program when that is allowed, else copies. Nothing is sampled yet, but what processes do to their code is followed. `caller`:
    /// the thread that starts others.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] when neither is, [`Error::Bpf`] and [`Error::Os`] when the kernel refuses for another reason.
    pub(super) fn open(
        storage: &'obj mut Storage,
        config: &Config,
        cpus: &[i32],
        caller: Tid,
    ) -> Result<(Self, Vec<SideBand>)> {
        let refused = if config.copies_only {
            None
        } else {
            let loaded = preflight().map_err(Error::from);
            match loaded.and_then(|()| Programs::load(storage, config)) {
                Ok(programs) => {
                    let open = |cpu: &i32| SideBand::open(*cpu, &[ALL_PROCESSES]);
                    let side_bands = cpus.iter().map(open).collect::<std::io::Result<_>>();
                    let side_bands = side_bands.map_err(Error::os("follow what processes map"))?;
                    return Ok((Self::Programs(programs), side_bands));
                }
                Err(refused) => Some(Arc::new(refused)),
            }
        };
        let threads = threads(config.processes.as_deref(), caller);
        let period_ns = 1_000_000_000 / config.frequency_hz.max(1);
        match Copies::open(cpus, &threads, period_ns) {
            Ok((copies, side_bands)) => Ok((Self::Copies { copies, refused }, side_bands)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Error::NotAllowed { of_all: config.processes.is_none(), refused })
            }
            Err(error) => Err(Error::Os { step: "open a clock that copies stacks", source: error }),
        }
    }

    /// Which of the two it is.
    pub(super) fn means(&self) -> Means {
        match self {
            Self::Programs(_) => Means::Program,
            Self::Copies { copies, refused } => {
                Means::Copies { refused: refused.clone(), with_kernel: copies.with_kernel }
            }
        }
    }

    /// Who reads rows.
    pub(super) const fn for_whom(&self) -> ForWhom {
        match self {
            Self::Programs(_) => ForWhom::Program,
            Self::Copies { .. } => ForWhom::Here,
        }
    }

    /// Samples this process and those it starts, when only listed ones are sampled.
    ///
    /// # Errors
    /// [`Error::Bpf`] when there is no room.
    pub(super) fn list(&self, pid: Pid) -> Result<()> {
        match self {
            Self::Programs(programs) => programs.list(pid),
            Self::Copies { .. } => Ok(()),
        }
    }

    /// How samples are taken from now on. Copies have no other depth than their length.
    ///
    /// # Errors
    /// [`Error::Os`] when a clock cannot be changed.
    pub(super) fn set(&mut self, settings: &Settings) -> Result<()> {
        match self {
            Self::Programs(programs) => programs.set(settings),
            Self::Copies { copies, .. } => {
                let period_ns = 1_000_000_000 / settings.frequency_hz.max(1);
                copies.set_period(period_ns).map_err(Error::os("change the clock"))
            }
        }
    }

    /// Starts the clocks, which count for nothing from `end_ns` on (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// [`Error::Os`] when there is no clock, [`Error::Bpf`] when the kernel refuses.
    pub(super) fn start(&mut self, cpus: &[i32], config: &Config, end_ns: u64) -> Result<()> {
        match self {
            Self::Programs(programs) => programs.start(cpus, config.frequency_hz, end_ns),
            Self::Copies { copies, .. } => {
                copies.start(end_ns).map_err(Error::os("start the clock"))
            }
        }
    }

    /// Ends sampling; what was written stays readable.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Programs(programs) => programs.stop(),
            Self::Copies { copies, .. } => copies.stop(),
        }
    }

    /// Lets so many bytes of stacks be copied of processes that a program knows nothing of.
    pub(super) fn allow_stacks(&mut self, bytes: i64) {
        if let Self::Programs(programs) = self {
            programs.allow_stacks(bytes);
        }
    }

    /// How times off the CPU are sampled from now on.
    pub(super) fn set_pace(&mut self, pace: Pace) {
        if let Self::Programs(programs) = self {
            programs.set_pace(pace);
        }
    }

    /// What was counted until now.
    pub(super) fn counts(&self) -> Counts {
        match self {
            Self::Programs(programs) => programs.counts(),
            Self::Copies { copies, .. } => copies.counts(),
        }
    }

    /// Where a program finds the tables of files.
    pub(super) fn tables(&self) -> Option<&impl MapCore> {
        match self {
            Self::Programs(programs) => Some(programs.tables()),
            Self::Copies { .. } => None,
        }
    }

    /// When a process last had all mapped that the kernel maps for another program, as far as a program has to know.
    pub(super) fn begun_ns(&self, pid: Pid) -> Option<u64> {
        match self {
            Self::Programs(programs) => programs.begun_ns(pid),
            Self::Copies { .. } => None,
        }
    }

    /// Tells a program what processes have mapped.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel takes no more.
    pub(super) fn tell(&mut self, processes: &[(Pid, Arc<Process>)]) -> Result<()> {
        match self {
            Self::Programs(programs) => programs.tell(processes),
            Self::Copies { .. } => Ok(()),
        }
    }

    /// Tells a program of a process's interpreter, if that is known, when other files are still to be read.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel takes no more.
    pub(super) fn tell_interpreter(&mut self, pid: Pid, process: &Process) -> Result<()> {
        match self {
            Self::Programs(programs) => programs.tell_interpreter(pid, process),
            Self::Copies { .. } => Ok(()),
        }
    }

    /// What is readable when samples should not wait for a tick; copies have nothing.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Programs(programs) => Some(programs.news()),
            Self::Copies { .. } => None,
        }
    }

    /// Processes of CPython for which a program had no room.
    pub(super) fn pythons_left_out(&self) -> u64 {
        match self {
            Self::Programs(programs) => programs.pythons_left_out(),
            Self::Copies { .. } => 0,
        }
    }

    /// Tells the program where threads tell their spans, of processes whose libraries were not linked yet.
    pub(super) fn tell_spans_again(&mut self, processes: &Processes) {
        if let Self::Programs(programs) = self {
            programs.tell_spans_again(processes);
        }
    }

    /// Processes whose spans a program had no room for.
    pub(super) const fn spans_left_out(&self) -> u64 {
        match self {
            Self::Programs(programs) => programs.spans_left_out(),
            Self::Copies { .. } => 0,
        }
    }

    /// Processes that it was told of are gone.
    pub(super) fn forget(&mut self, pids: &[Pid]) {
        match self {
            Self::Programs(programs) => programs.forget(pids),
            Self::Copies { copies, .. } => pids.iter().for_each(|pid| copies.forget(*pid)),
        }
    }
}
