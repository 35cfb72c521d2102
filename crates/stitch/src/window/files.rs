//! What facts do to the calls of threads and to the descriptors of processes.

use std::sync::Arc;

use model::{Fd, Pid, Tid};

use super::{Context, Window};
use crate::call::{Call, HeadExit, InFlight, Makes};
use crate::descriptors::{Stamp, Table, TableId};
use crate::fact::{CallArgs, Effect, LeftAs, TableKey};
use crate::ident::{Entry, Flag, Ident, Kind, Left, Made, Maker, Name};
use crate::sharing::{self, Intent};
use crate::summary::{LossCount, Owner};

impl Context {
    /// The thread and its process, for who shares descriptor tables.
    fn told(self) -> Option<(Tid, Pid)> {
        self.is_told.then_some((self.tid, self.pid))
    }

    fn stamp(self) -> Stamp {
        Stamp { at: self.at, pid: self.pid }
    }
}

impl Window {
    /// The table that a process has.
    fn table_of(&mut self, pid: Pid) -> TableId {
        self.summary.who.sharing(&self.entry).table_of(pid)
    }

    pub(super) fn dump_descriptor(
        &mut self,
        (pid, key): (Option<Pid>, Option<TableKey>),
        fd: Fd,
        name: &str,
        kind: Kind,
    ) {
        let by_key = || self.summary.who.process_of_table(key?, &self.entry);
        let Some(pid) = pid.or_else(by_key) else { return };
        let table = self.table_of(pid);
        let ident = self.summary.entry(table, fd).ident;
        let name = Name { text: self.intern(name), kind };
        self.summary.learn(ident, self.now, name);
    }

    pub(super) fn fork(
        &mut self,
        parent: Option<Context>,
        (child, child_pid): (Tid, Pid),
        shares_table: Option<bool>,
    ) {
        let at = self.now;
        self.summary.who.born(child, child_pid);
        self.here.clear();
        let told = parent.and_then(Context::told);
        let sharing = self.summary.who.sharing(&self.entry);
        let own = sharing.fork(at, told, (child, child_pid), shares_table);
        let parent = parent.filter(|parent| parent.pid != child_pid);
        if let (Some(parent), Some(own)) = (parent, own) {
            let from = self.table_of(parent.pid);
            self.copy_table(sharing::Left { from, to: own });
        }
    }

    fn copy_table(&mut self, sharing::Left { from, to }: sharing::Left) {
        if from != to {
            let table = self.summary.table(from);
            self.summary.tables.insert(to, table);
        }
    }

    /// Gives a process a table of its own.
    fn leave_table(&mut self, context: Context) {
        if let Some((_, pid)) = context.told()
            && let Some(left) = self.summary.who.sharing(&self.entry).leave(context.at, pid)
        {
            self.copy_table(left);
        }
    }

    /// The process starts another program. `old`: the thread whose call that was, when it takes another's number.
    pub(super) fn exec(&mut self, context: Context, old: Option<Tid>) {
        if let Some(old) = old {
            let slot = self.summary.slot(old);
            let thread = self.summary.threads.at(slot);
            let call = std::mem::replace(&mut thread.call, InFlight::Nothing).handed_over(old);
            if let Some(cpu) = context.cpu {
                self.switch(cpu, (old, ""), LeftAs::Dead, (context.tid, ""));
            }
            self.summary.threads.at(context.slot).call = call;
        }
        self.leave_table(context);
        let table = self.table_of(context.pid);
        self.summary.table_mut(table).exec(context.stamp());
    }

    /// A thread ended; the tables that only its process had go with its last one.
    pub(super) fn exit(&mut self, context: Context, tid: Tid, is_last: Option<bool>) {
        let Owner::Process(pid) = context.owner else { return };
        if !is_last.unwrap_or(pid.get() == tid.get()) {
            return;
        }
        let ended = match context.told() {
            Some(_) => self.summary.who.sharing(&self.entry).end(pid),
            None => vec![TableId::Of(pid)],
        };
        for table in ended {
            self.summary.tables.insert(table, Table::forgotten(context.stamp()));
        }
    }

    pub(super) fn call_entry(&mut self, context: Context, name: &str, args: &CallArgs<&str>) {
        let Context { at, tid, pid, .. } = context;
        if context.is_told {
            let intent = Intent::of(&args.effect);
            self.summary.who.sharing(&self.entry).enter(tid, intent);
        }
        let fd = args.fd.filter(|fd| fd.get() >= 0);
        let table = self.table_of(pid);
        let on_fd = fd.map(|fd| self.summary.entry(table, fd));
        let path =
            args.path.filter(|path| !path.is_empty()).map(|path| Ident::named(self.name(path)));
        let call = Call {
            name: self.call_names.of(name),
            at,
            fd,
            by_path: path.is_some(),
            makes: self.makes(context, path.as_ref(), on_fd.as_ref(), args.effect),
            names: match args.effect {
                Effect::Address(address) => {
                    let text = self.intern(&format!("socket {address}"));
                    Some(Name { text, kind: Kind::Socket })
                }
                _ => None,
            },
            file: path.or(on_fd.map(|entry| entry.ident)),
            is_uncertain: false,
        };
        self.change_table(table, context.stamp(), fd, args.effect);
        self.summary.threads.at(context.slot).call = match call.name.traits().never_returns() {
            true => InFlight::Nothing,
            false => InFlight::Call(self.boxed(call)),
        };
    }

    /// In the memory of a call that has returned, if one is there.
    fn boxed(&mut self, call: Call) -> Box<Call> {
        match self.spare.take() {
            Some(mut spare) => {
                *spare = call;
                spare
            }
            None => Box::new(call),
        }
    }

    fn name(&mut self, text: &str) -> Name {
        Name { text: self.intern(text), kind: Kind::of_name(text) }
    }

    /// What a call will put into the table.
    fn makes(
        &mut self,
        Context { at, tid, .. }: Context,
        path: Option<&Ident>,
        on_fd: Option<&Entry>,
        effect: Effect<&str>,
    ) -> Makes {
        let entry =
            |ident, close_on_exec| Entry { ident, close_on_exec: Flag::certain(close_on_exec) };
        match effect {
            Effect::Open { close_on_exec } => {
                path.map_or(Makes::Nothing, |path| Makes::One(entry(path.clone(), close_on_exec)))
            }
            Effect::Duplicate { close_on_exec } => {
                let ident = on_fd.map(|on_fd| on_fd.ident.clone());
                ident.map_or(Makes::Nothing, |ident| Makes::One(entry(ident, close_on_exec)))
            }
            Effect::Make { name, kind, close_on_exec } => {
                let name = Name { text: self.intern(name), kind };
                // A socket gets an address later.
                let ident = match kind {
                    Kind::Socket => Ident::made(at, tid, name),
                    Kind::Regular | Kind::Pipe | Kind::Other => Ident::named(name),
                };
                Makes::One(entry(ident, close_on_exec))
            }
            Effect::MakePair { name, kind, close_on_exec } => {
                let name = Name { text: self.intern(name), kind };
                Makes::Pair(entry(Ident::named(name), close_on_exec))
            }
            _ => Makes::Nothing,
        }
    }

    /// What a call does to its own descriptors as soon as it begins.
    fn change_table(&mut self, table: TableId, by: Stamp, fd: Option<Fd>, effect: Effect<&str>) {
        let summary = &mut self.summary;
        match (effect, fd) {
            (Effect::Close, Some(fd)) => summary.table_mut(table).close(by.number(fd)),
            (Effect::SetCloseOnExec(value), Some(fd)) => {
                summary.table_mut(table).set_close_on_exec(fd, value);
            }
            (Effect::CloseRange { first, last, only_mark, leaves_table: false }, _) => {
                let table = summary.table_mut(table);
                match only_mark {
                    true => table.mark_range(first, last),
                    false => table.close_range(first, last, by),
                }
            }
            _ => {}
        }
    }

    pub(super) fn call_exit(
        &mut self,
        context: Context,
        exit: &HeadExit,
        address: Option<&str>,
        pair: Option<(Fd, Fd)>,
    ) {
        let Context { tid, owner, .. } = context;
        let thread = self.summary.threads.at(context.slot);
        let in_flight = std::mem::replace(&mut thread.call, InFlight::Nothing);
        if let Some(spent) = thread.stack.top() {
            spent.calls.count(tid, exit, &in_flight);
        }
        self.summary.processes.or_default(&owner).count(tid, exit, &in_flight);
        self.summary.folds.call_exit(&mut thread.counted, exit, &in_flight);
        if let InFlight::Call(call) = &in_flight
            && let Some((file, name)) = call.names(exit)
        {
            self.summary.learn(file, exit.at, name);
        }
        self.end_intent(context, exit.ret);
        if exit.name == self.ring_enter {
            let ring_operations = u64::try_from(exit.ret).unwrap_or(0);
            self.summary.loss.add(LossCount { ring_operations, ..LossCount::default() });
        }
        if let Some(fd) = i32::try_from(exit.ret).ok().filter(|fd| *fd >= 0).map(Fd::new) {
            self.set_returned(context, fd, exit, &in_flight, address);
        }
        if let Some((one, other)) = pair.filter(|_| exit.ret == 0) {
            self.set_pair(context, exit, &in_flight, [one, other]);
        }
        if let InFlight::Call(spare) = in_flight {
            let may_be_gone = spare.file.as_ref().is_some_and(Ident::has_identity);
            self.since_look += usize::from(may_be_gone);
            self.spare = Some(spare);
        }
    }

    /// A call that gives its process a table of its own, returns.
    fn end_intent(&mut self, context: Context, ret: i64) {
        if !context.is_told {
            return;
        }
        let intent = self.summary.who.sharing(&self.entry).exit(context.tid, ret);
        let Some(intent) = intent.filter(|intent| intent.leaves()) else { return };
        self.leave_table(context);
        if let Intent::LeaveAndClose { first, last, only_mark } = intent {
            let table = self.table_of(context.pid);
            let effect = Effect::CloseRange { first, last, only_mark, leaves_table: false };
            self.change_table(table, context.stamp(), None, effect);
        }
    }

    /// A call returned a number.
    fn set_returned(
        &mut self,
        context: Context,
        fd: Fd,
        exit: &HeadExit,
        in_flight: &InFlight,
        address: Option<&str>,
    ) {
        let traits = exit.name.traits();
        let is_made = traits.always_makes_descriptor();
        if !is_made && !traits.may_make_descriptor() && exit.opened.is_none() {
            return;
        }
        let table = self.table_of(context.pid);
        let maker = maker(context, fd, exit, false);
        match maker.made(in_flight) {
            Made::File(entry) => self.set(table, fd, entry),
            Made::Nothing if is_made => self.set(table, fd, Entry::fresh(maker.number)),
            Made::Nothing => {}
            Made::AskFurtherLeft(maker) => {
                let before = match is_made {
                    true => Entry::fresh(maker.number),
                    false => self.summary.entry(table, fd),
                };
                self.set(table, fd, before.unless_made_by(&maker));
            }
        }
        let name = match (&exit.opened, address) {
            (_, Some(address)) if matches!(exit.name.text(), "accept" | "accept4") => {
                Name { text: self.intern(&format!("socket {address}")), kind: Kind::Socket }
            }
            (Some(opened), _) => opened.clone(),
            (None, _) => return,
        };
        let close_on_exec = self.summary.entry(table, fd).close_on_exec;
        self.set(table, fd, Entry { ident: Ident::named(name), close_on_exec });
    }

    /// A call wrote two descriptors to memory.
    fn set_pair(&mut self, context: Context, exit: &HeadExit, in_flight: &InFlight, pair: [Fd; 2]) {
        let kind = if exit.name.text() == "socketpair" { Kind::Socket } else { Kind::Pipe };
        let text = self.intern(if kind == Kind::Socket { "socket pair" } else { "pipe" });
        let ident = Ident::named(Name { text: Arc::clone(&text), kind });
        let unseen = Entry { ident, close_on_exec: Flag::certain(false) };
        let table = self.table_of(context.pid);
        for fd in pair {
            let entry = match maker(context, fd, exit, true).made(in_flight) {
                Made::File(entry) => entry,
                Made::Nothing => unseen.clone(),
                Made::AskFurtherLeft(maker) => unseen.clone().unless_made_by(&maker),
            };
            self.set(table, fd, entry);
        }
    }

    fn set(&mut self, table: TableId, fd: Fd, entry: Entry) {
        self.summary.table_mut(table).set(fd, entry);
    }
}

/// The return of a call that gave this number.
fn maker(context: Context, fd: Fd, exit: &HeadExit, is_of_pair: bool) -> Maker {
    Maker {
        tid: context.tid,
        call: exit.name.clone(),
        number: context.stamp().number(fd),
        is_of_pair,
        taint: exit.taint,
    }
}
