//! Files that are gone: their figures are added up, so that what is kept does not grow with every descriptor that was opened
//! and closed.
//!
//! A file may get a better name as long as something has it: a table, a call in flight, a term that the left part decides.
//! Once nothing has it, no window to the right can speak of it, and none to the left ever knew it. Then it counts as what an
//! answer calls it: by its name, or as something without one under its number. So no answer depends on when, or in which
//! part of a trace, files are added up.

use std::collections::{BTreeMap, HashSet};

use model::{Pid, Timestamp};

use crate::call::{Calls, Class, ClassTerm, Figures, InFlight};
use crate::descriptors::Stamp;
use crate::ident::{Ident, Name};
use crate::keyed::Mixers;
use crate::spent::Spent;
use crate::summary::Summary;

/// So many files that an answer shows by what they are called may be apart, or twice those that something has, before
/// they are looked through.
const MANY: usize = 2_048;

/// What of the files is not gone.
struct Alive {
    idents: HashSet<Ident, Mixers>,
    /// Tables know of every number that they do not list that it was closed then.
    stamps: HashSet<(Timestamp, Pid), Mixers>,
    /// The same of all tables that are not listed.
    forgotten: Option<Timestamp>,
    names: BTreeMap<Ident, (Timestamp, Name)>,
}

impl Alive {
    /// Those of a summary, whose names are taken out.
    fn in_summary(summary: &mut Summary) -> Self {
        let names = std::mem::take(&mut summary.names);
        let mut idents = HashSet::default();
        let mut stamps = HashSet::default();
        let mut add = |ident: &Ident| idents.extend(ident.sources());
        for table in summary.tables.values() {
            table.entries().for_each(|entry| add(&entry.ident));
            stamps.extend(table.stamps().map(|Stamp { at, pid }| (at, pid)));
        }
        for thread in summary.threads.values() {
            if let InFlight::Call(call) = &thread.call {
                let made = call.makes.one().or(call.makes.pair()).map(|entry| &entry.ident);
                call.file.iter().chain(made).for_each(&mut add);
            }
        }
        // What nothing but a name is known of, the left part may yet tell from others.
        names.keys().filter(|ident| !ident.is_settled()).for_each(&mut add);
        Self { idents, stamps, forgotten: summary.forgotten.files, names }
    }

    fn has(&self, ident: &Ident) -> bool {
        let by_stamp = |at, pid| self.forgotten == Some(at) || self.stamps.contains(&(at, pid));
        ident.appeared().is_some_and(|number| by_stamp(number.at, number.pid))
            || self.idents.contains(ident)
    }

    /// What a file that is gone counts as; `None` where that is what it is, and of all others.
    fn called(&self, ident: &Ident) -> Option<Ident> {
        let unnamed = ident.without_identity().filter(|_| !self.has(ident))?;
        Some(self.names.get(ident).map_or(unnamed, |(_, name)| Ident::named(name.clone())))
    }

    /// The same of a wait for it: one without a name is neither disk nor network.
    fn cause(&self, class: &ClassTerm) -> Option<ClassTerm> {
        let ClassTerm::File(ident) = class else { return None };
        let called = self.called(ident)?;
        Some(ClassTerm::Known(called.kind().map_or(Class::Other, Class::of_kind)))
    }
}

#[cfg(feature = "law")]
impl crate::Window {
    /// Adds up the figures of files that are gone, as is done where there are many.
    pub fn add_up_gone(&mut self) {
        self.summary_mut().add_up();
    }
}

impl Summary {
    /// Adds up the figures of files that are gone, as is done where there are many.
    #[cfg(feature = "law")]
    pub fn add_up_gone(&mut self) {
        self.add_up();
    }

    fn add_up(&mut self) {
        let alive = Alive::in_summary(self);
        for total in self.calls_mut().flat_map(|calls| calls.total.values_mut()) {
            let is_kept = |ident: &Ident| alive.called(ident).is_none();
            let change = |ident: &mut Ident| {
                if let Some(called) = alive.called(ident) {
                    *ident = called;
                }
            };
            total.files.rekey(is_kept, change, Figures::add);
        }
        let cause = |class: &ClassTerm| alive.cause(class);
        self.paths.settle_causes(&cause);
        self.lives.settle_causes(&cause);
        self.requests.settle_causes(&cause);
        self.spent_mut().for_each(|spent| spent.times.settle_causes(cause));
        self.names = alive.names;
    }

    /// The same once there are too many, when something has so many of them. Gives how many something has.
    pub(crate) fn bound_gone(&mut self, had: usize) -> usize {
        if self.apart() <= had.saturating_mul(2).max(MANY) {
            return had;
        }
        self.add_up();
        self.apart()
    }

    /// How many files have figures of their own until they are gone.
    fn apart(&mut self) -> usize {
        let totals = self.calls_mut().flat_map(|calls| calls.total.values_mut());
        let mut apart = 0;
        for total in totals {
            total.files.for_each_key(|ident| apart += usize::from(ident.has_identity()));
        }
        apart
    }

    fn calls_mut(&mut self) -> impl Iterator<Item = &mut Calls> {
        let Self { processes, phases, threads, .. } = self;
        let spent = spent_in(phases.values_mut(), threads.values_mut());
        processes.values_mut().chain(spent.map(|spent| &mut spent.calls))
    }

    fn spent_mut(&mut self) -> impl Iterator<Item = &mut Spent> {
        spent_in(self.phases.values_mut(), self.threads.values_mut())
    }
}

/// What spans collected, those that are open too.
fn spent_in<'s>(
    phases: impl Iterator<Item = &'s mut crate::spent::Phase>,
    threads: impl Iterator<Item = &'s mut crate::thread::Thread>,
) -> impl Iterator<Item = &'s mut Spent> {
    let open = threads.flat_map(|thread| thread.stack.spent_mut());
    phases.map(|phase| &mut phase.spent).chain(open)
}

#[cfg(test)]
mod tests {
    use model::{CpuId, Fd, Tid};

    use super::*;
    use crate::fact::{CallArgs, Effect, Fact, FactKind};
    use crate::{Cover, Kind, Window};

    /// So many times a descriptor is made without a name, read and closed, and once more it is made and read. A connected one
    /// is a socket with an address.
    fn window(times: i64, is_connected: bool) -> Summary {
        let cover = Cover {
            host: "h".into(),
            begin: Timestamp::from_nanos(0),
            end: Timestamp::from_nanos(10 * (times + 1)),
        };
        let mut window = Window::new(cover);
        let (tid, pid) = (Some(Tid::new(5)), Some(Pid::new(5)));
        let mut give = |ns, kind| {
            let at = Timestamp::from_nanos(ns);
            window.add(&Fact { at, cpu: Some(CpuId::new(0)), tid, pid, kind });
        };
        let exit =
            |name, ret| FactKind::CallExit { name, ret, pair: None, address: None, opened: None };
        for n in 0..=times {
            let mut call = |after, name, fd: Option<i32>, effect, ret| {
                let args = CallArgs { fd: fd.map(Fd::new), path: None, effect };
                give(10 * n + after, FactKind::CallEntry { name, args });
                give(10 * n + after + 1, exit(name, ret));
            };
            if is_connected {
                let (name, kind) = ("socket", Kind::Socket);
                call(1, "socket", None, Effect::Make { name, kind, close_on_exec: false }, 3);
                call(3, "connect", Some(3), Effect::Address("10.0.0.1:80"), 0);
            } else {
                call(1, "openat", None, Effect::Open { close_on_exec: false }, 3);
            }
            call(5, "read", Some(3), Effect::Nothing, 7);
            if n < times {
                call(7, "close", Some(3), Effect::Close, 0);
            }
        }
        window.finish()
    }

    fn most_files(summary: &mut Summary) -> usize {
        let totals = summary.calls_mut().flat_map(|calls| calls.total.values());
        totals.map(|total| total.files.len()).max().unwrap_or(0)
    }

    #[test]
    fn closed_files_without_a_name_are_added_up_and_the_answer_stays() {
        let mut summary = window(100, false);
        let answer = crate::syscalls(&summary);
        assert_eq!(most_files(&mut summary), 101);
        summary.add_up();
        assert_eq!(most_files(&mut summary), 2);
        assert_eq!(crate::syscalls(&summary), answer);
    }

    #[test]
    fn closed_sockets_are_added_up_under_the_addresses_they_got() {
        let mut summary = window(100, true);
        let answer = crate::syscalls(&summary);
        assert_eq!(most_files(&mut summary), 101);
        summary.add_up();
        assert_eq!(most_files(&mut summary), 2);
        assert_eq!(crate::syscalls(&summary), answer);
    }

    #[test]
    fn what_a_window_holds_does_not_grow_with_files_that_were_opened_and_closed() {
        let many = i64::try_from(MANY).unwrap();
        for is_connected in [false, true] {
            let mut summary = window(4 * many, is_connected);
            assert!(most_files(&mut summary) <= MANY);
        }
    }
}
