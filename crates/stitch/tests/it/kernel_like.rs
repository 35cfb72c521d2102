//! Sequences that a small kernel could have produced, with a few events that none could.
//!
//! Three CPUs, five threads, four descriptor numbers. Each step is three bytes, so that a failing sequence shrinks by
//! leaving steps out.

use std::collections::BTreeMap;

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use stitch::Kind;
use stitch::fact::{CallArgs, Effect, Fact, FactKind, LeftAs, Line, Missing, Span};

const CPUS: u8 = 3;
const THREADS: u8 = 5;
const FDS: u8 = 4;
const COMMS: [&str; 6] = ["swapper", "one", "two", "three", "four", "five"];
const PATHS: [&str; 4] = ["/data/a", "/data/b", "/dev/null", "/etc/c"];
const PHASES: [&str; 3] = ["decode", "encode", "send"];

/// One step: what, how, and how much time before it.
pub(crate) type Step = (u8, u8, u8);

#[derive(Clone, Copy, PartialEq)]
enum State {
    Running,
    Runnable,
    Blocked,
    Dead,
}

struct Thread {
    pid: Pid,
    state: State,
    call: Option<&'static str>,
    /// Whether a child that is born in the call shares descriptors.
    shares: bool,
    spans: Vec<&'static str>,
    request: u64,
}

struct Kernel {
    now: i64,
    on: [Tid; CPUS as usize],
    threads: BTreeMap<Tid, Thread>,
    requests: u64,
    /// Of each CPU whose events are being lost, how many switches are left; the last of them is recorded again.
    hidden: [u8; CPUS as usize],
    facts: Vec<Fact<&'static str>>,
}

/// The facts of these steps, and the first moment after the last.
pub(crate) fn facts(steps: &[Step]) -> (Vec<Fact<&'static str>>, Timestamp) {
    let mut threads = BTreeMap::new();
    for (tid, pid) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5)] {
        let thread = Thread {
            pid: Pid::new(pid),
            state: if tid < 3 { State::Runnable } else { State::Blocked },
            call: None,
            shares: false,
            spans: Vec::new(),
            request: 0,
        };
        threads.insert(Tid::new(tid), thread);
    }
    let mut kernel = Kernel {
        now: 1_000,
        on: [Tid::IDLE; 3],
        threads,
        requests: 0,
        hidden: [0; 3],
        facts: Vec::new(),
    };
    for step in steps {
        kernel.step(*step);
    }
    (kernel.facts, Timestamp::from_nanos(kernel.now + 1))
}

impl Kernel {
    fn step(&mut self, (what, how, pause): Step) {
        self.now += i64::from(pause % 32);
        if what >= 248 {
            return self.impossible(how);
        }
        let cpu = what % CPUS;
        let tid = self.on[usize::from(cpu)];
        match (tid, what / CPUS) {
            (Tid::IDLE, n) if n % 4 == 0 => self.wake(cpu, how),
            (Tid::IDLE, _) => self.switch(cpu, LeftAs::Preempted, how),
            (_, n) => self.run(cpu, tid, n, how),
        }
    }

    fn run(&mut self, cpu: u8, tid: Tid, n: u8, how: u8) {
        let in_call = self.threads[&tid].call.is_some();
        match n % 16 {
            0 | 1 => self.switch(cpu, LeftAs::Preempted, how),
            2 => self.wake(cpu, how),
            3 if in_call => self.switch(cpu, LeftAs::Uninterruptible, how),
            4 | 5 if in_call => self.switch(cpu, LeftAs::Interruptible, how),
            3 if how.is_multiple_of(8) => self.switch(cpu, LeftAs::Dead, how),
            4 if how.is_multiple_of(2) => self.switch(cpu, LeftAs::Uninterruptible, how),
            6 if how.is_multiple_of(4) => self.dump(cpu, tid, how / 4),
            7 if how.is_multiple_of(8) => self.fork(cpu, tid, how / 8),
            7 if self.threads[&tid].call == Some("clone") => self.fork(cpu, tid, how),
            8 if how.is_multiple_of(16) => self.exec(cpu, tid, how / 16),
            8 if how.is_multiple_of(7) => self.exit(cpu, tid),
            _ if in_call => self.exit_call(cpu, tid, how),
            9..=11 => self.span(cpu, tid, how),
            _ => self.enter_call(cpu, tid, how),
        }
    }

    fn fact(&mut self, cpu: u8, tid: Tid, kind: FactKind<&'static str>) {
        let of_kernel = !matches!(kind, FactKind::SpanBegin(_) | FactKind::SpanEnd(_));
        if of_kernel && self.hidden[usize::from(cpu)] > 0 {
            return;
        }
        let pid = self.threads.get(&tid).map(|thread| thread.pid);
        self.facts.push(Fact {
            at: Timestamp::from_nanos(self.now),
            cpu: Some(CpuId::new(u32::from(cpu))),
            tid: Some(tid),
            pid,
            kind,
        });
    }

    fn switch(&mut self, cpu: u8, left_as: LeftAs, how: u8) {
        let prev = self.on[usize::from(cpu)];
        let mut ready: Vec<Tid> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.state == State::Runnable)
            .map(|(tid, _)| *tid)
            .collect();
        ready.push(Tid::IDLE);
        let next = ready[usize::from(how) % ready.len()];
        if next == prev {
            return;
        }
        if let Some(thread) = self.threads.get_mut(&prev) {
            thread.state = match left_as {
                LeftAs::Preempted => State::Runnable,
                LeftAs::Interruptible | LeftAs::Uninterruptible => State::Blocked,
                LeftAs::Dead => State::Dead,
            };
        }
        if let Some(thread) = self.threads.get_mut(&next) {
            thread.state = State::Running;
        }
        self.on[usize::from(cpu)] = next;
        let hidden = &mut self.hidden[usize::from(cpu)];
        *hidden = hidden.saturating_sub(1);
        let comm = |tid: Tid| COMMS[usize::try_from(tid.get()).unwrap()];
        self.fact(
            cpu,
            prev,
            FactKind::Switch { prev, prev_comm: comm(prev), left_as, next, next_comm: comm(next) },
        );
    }

    fn wake(&mut self, cpu: u8, how: u8) {
        let tid = Tid::new(i32::from(how % THREADS) + 1);
        let thread = self.threads.get_mut(&tid).unwrap();
        if thread.state == State::Blocked {
            thread.state = State::Runnable;
            let comm = COMMS[usize::from(how % THREADS) + 1];
            self.handle(cpu, how, |kernel| {
                let on_cpu = kernel.on[usize::from(cpu)];
                kernel.fact(cpu, on_cpu, FactKind::Wakeup { tid, comm });
            });
        }
    }

    /// Does something in a handler of an interrupt or outside of one; the handler may not end, or not begin, or nest.
    fn handle(&mut self, cpu: u8, how: u8, inside: impl FnOnce(&mut Self)) {
        let on_cpu = self.on[usize::from(cpu)];
        let (line, inner) = (Line::Hard(u16::from(how / 5 % 2)), Line::Soft(how / 10 % 2));
        let begins = |line| FactKind::IrqEntry { line, name: "" };
        let shape = how / 20;
        if matches!(shape, 3..=8) {
            self.fact(cpu, on_cpu, begins(line));
        }
        if matches!(shape, 6 | 7) {
            self.now += 1;
            self.fact(cpu, on_cpu, begins(inner));
        }
        if shape == 7 {
            self.now += 1;
            self.fact(cpu, on_cpu, FactKind::IrqExit { line: inner });
        }
        self.now += i64::from(how % 3);
        inside(self);
        if matches!(shape, 4..=6 | 9) {
            self.now += i64::from(how % 4);
            self.fact(cpu, on_cpu, FactKind::IrqExit { line });
        }
    }

    fn fork(&mut self, cpu: u8, parent: Tid, how: u8) {
        let child = Tid::new(i32::from(how % THREADS) + 1);
        if self.threads[&child].state != State::Dead {
            return;
        }
        let child_pid =
            if how & 8 == 0 { self.threads[&parent].pid } else { Pid::new(child.get()) };
        let thread = Thread {
            pid: child_pid,
            state: State::Blocked,
            call: Some("clone"),
            shares: false,
            spans: Vec::new(),
            request: 0,
        };
        self.threads.insert(child, thread);
        // Some tracers say it, the others leave it to the call.
        let shares_table = (how & 16 != 0).then_some(self.threads[&parent].shares);
        let kind = FactKind::Fork { child, child_pid, shares_table, comm: "child" };
        self.fact(cpu, parent, kind);
        if how & 4 != 0 {
            self.live_shortly(cpu, parent, child);
        }
    }

    /// A child has its parent's CPU for a moment, and that is its life.
    fn live_shortly(&mut self, cpu: u8, parent: Tid, child: Tid) {
        for (prev, left_as, next) in
            [(parent, LeftAs::Preempted, child), (child, LeftAs::Dead, parent)]
        {
            self.now += 1;
            self.on[usize::from(cpu)] = next;
            let hidden = &mut self.hidden[usize::from(cpu)];
            *hidden = hidden.saturating_sub(1);
            let (prev_comm, next_comm) = ("", "");
            self.fact(cpu, prev, FactKind::Switch { prev, prev_comm, left_as, next, next_comm });
        }
        if let Some(thread) = self.threads.get_mut(&child) {
            thread.state = State::Dead;
        }
    }

    /// A thread starts another program; one that was not the first of its process becomes that.
    fn exec(&mut self, cpu: u8, tid: Tid, how: u8) {
        let leader = Tid::new(self.threads[&tid].pid.get());
        let free = self.threads.get(&leader).is_some_and(|thread| thread.state != State::Running);
        if leader == tid || !free || how.is_multiple_of(2) {
            return self.fact(cpu, tid, FactKind::Exec { comm: "next", old: None });
        }
        let call = self.threads.get_mut(&tid).unwrap().call.take();
        self.threads.get_mut(&tid).unwrap().state = State::Dead;
        let thread = self.threads.get_mut(&leader).unwrap();
        (thread.call, thread.state) = (call, State::Running);
        self.on[usize::from(cpu)] = leader;
        self.fact(cpu, leader, FactKind::Exec { comm: "next", old: Some(tid) });
    }

    fn exit(&mut self, cpu: u8, tid: Tid) {
        let pid = self.threads[&tid].pid;
        let of_process = self.threads.values().filter(|thread| thread.pid == pid);
        let is_last = of_process.filter(|thread| thread.state != State::Dead).count() == 1;
        self.fact(cpu, tid, FactKind::Exit { tid, is_last: Some(is_last) });
    }

    fn dump(&mut self, cpu: u8, tid: Tid, how: u8) {
        let kind = match how % 3 {
            0 => FactKind::DumpThread { tid, pid: None, table: None, comm: "dumped" },
            n => FactKind::DumpFd {
                pid: Some(Pid::new([1, 3, 5][usize::from(how % 7 % 3)])),
                table: None,
                fd: Fd::new(i32::from(how / 3 % FDS)),
                name: if n == 1 { "/data/dumped" } else { "socket:[7]" },
                kind: if n == 1 { Kind::Regular } else { Kind::Socket },
            },
        };
        self.fact(cpu, tid, kind);
    }

    fn span(&mut self, cpu: u8, tid: Tid, how: u8) {
        let requests = self.requests;
        let thread = self.threads.get_mut(&tid).unwrap();
        let begin = thread.spans.is_empty() || how % 5 < 2 && thread.spans.len() < 4;
        let name = match (begin, thread.spans.last()) {
            (true, None) => "request",
            (true, Some(_)) => PHASES[usize::from(how / 5 % 3)],
            (false, last) => last.copied().unwrap_or("request"),
        };
        if begin {
            thread.spans.push(name);
            if name == "request" {
                thread.request = requests + 1;
                self.requests = requests + 1;
            }
        } else {
            thread.spans.pop();
        }
        let span = Span { name, request: Some(thread.request), is_request: name == "request" };
        let kind = if begin { FactKind::SpanBegin(span) } else { FactKind::SpanEnd(span) };
        self.fact(cpu, tid, kind);
    }

    fn enter_call(&mut self, cpu: u8, tid: Tid, how: u8) {
        let fd = Some(Fd::new(i32::from(how / 16 % FDS)));
        let path = Some(PATHS[usize::from(how / 16 % 4)]);
        let close_on_exec = how >= 128;
        let on = |effect| CallArgs { fd, path: None, effect };
        let range = |only_mark, leaves_table| Effect::CloseRange {
            first: Fd::new(i32::from(how / 32 % 4)),
            last: Fd::new(if how >= 128 { i32::MAX } else { 2 }),
            only_mark,
            leaves_table,
        };
        let (name, args) = match how % 23 {
            0 | 1 => {
                ("openat", CallArgs { fd: None, path, effect: Effect::Open { close_on_exec } })
            }
            2 | 3 => ("close", on(Effect::Close)),
            4 => ("dup", on(Effect::Duplicate { close_on_exec: false })),
            5 => ("fcntl", on(Effect::Duplicate { close_on_exec })),
            6 => ("fcntl", on(Effect::SetCloseOnExec(close_on_exec))),
            7 => {
                let effect = Effect::Make { name: "socket", kind: Kind::Socket, close_on_exec };
                ("socket", CallArgs { effect, ..CallArgs::NONE })
            }
            8 => ("connect", on(Effect::Address("10.0.0.1:80"))),
            9 => ("futex", CallArgs::NONE),
            10 => ("clock_nanosleep", CallArgs::NONE),
            11 => {
                let effect = Effect::MakePair { name: "pipe", kind: Kind::Other, close_on_exec };
                ("pipe2", CallArgs { effect, ..CallArgs::NONE })
            }
            12 => ("execve", CallArgs { fd: None, path, effect: Effect::Nothing }),
            13 => {
                ("accept4", on(Effect::Make { name: "socket", kind: Kind::Socket, close_on_exec }))
            }
            14 => ("write", on(Effect::Nothing)),
            15 => ("bind", on(Effect::Address("0.0.0.0:80"))),
            16 => ("clone", CallArgs { effect: Effect::ShareTable, ..CallArgs::NONE }),
            17 => ("unshare", CallArgs { effect: Effect::LeaveTable, ..CallArgs::NONE }),
            18 => {
                ("close_range", CallArgs { effect: range(false, how & 64 != 0), ..CallArgs::NONE })
            }
            19 => {
                ("close_range", CallArgs { effect: range(true, how & 64 != 0), ..CallArgs::NONE })
            }
            20 => ("io_uring_enter", CallArgs::NONE),
            _ => ("read", on(Effect::Nothing)),
        };
        let thread = self.threads.get_mut(&tid).unwrap();
        (thread.call, thread.shares) = (Some(name), args.effect == Effect::ShareTable);
        self.fact(cpu, tid, FactKind::CallEntry { name, args });
    }

    fn exit_call(&mut self, cpu: u8, tid: Tid, how: u8) {
        let thread = self.threads.get_mut(&tid).unwrap();
        let Some(name) = thread.call.take() else { return };
        thread.shares = false;
        let new = i64::from(how / 8 % FDS);
        let ret = match (name, how % 8) {
            (_, 0) => -9,
            (_, 1) => -512,
            ("read" | "write", _) => i64::from(how),
            ("io_uring_enter" | "clone", _) => new + 1,
            ("connect", 2) => -115,
            ("openat" | "dup" | "fcntl" | "socket" | "accept4", _) => new,
            _ => 0,
        };
        let pair = (name == "pipe2").then(|| (Fd::new(i32::from(how / 8 % FDS)), Fd::new(3)));
        let opened = (name == "openat" && how.is_multiple_of(5)).then_some("/data/resolved");
        let address = (name == "accept4" && how.is_multiple_of(3)).then_some("10.0.0.9:1234");
        self.fact(cpu, tid, FactKind::CallExit { name, ret, pair, address, opened });
    }

    fn impossible(&mut self, how: u8) {
        let cpu = how % CPUS;
        let tid = Tid::new(i32::from(how / 3 % THREADS) + 1);
        let span = |name| Span { name, request: None, is_request: name == "request" };
        let mut hides = 0;
        let kind = match how % 15 {
            0 => FactKind::CallExit {
                name: "openat",
                ret: 2,
                pair: None,
                address: None,
                opened: None,
            },
            1 => FactKind::CallExit {
                name: "clone",
                ret: 0,
                pair: None,
                address: None,
                opened: None,
            },
            2 => FactKind::SpanEnd(span("request")),
            3 => FactKind::SpanEnd(span("encode")),
            4 => FactKind::SpanBegin(span("request")),
            5 => FactKind::SpanBegin(span("send")),
            6 => FactKind::Seen,
            7 => FactKind::Wakeup { tid, comm: "woken" },
            8 => FactKind::Fork {
                child: tid,
                child_pid: Pid::new(1),
                shares_table: (how & 64 != 0).then_some(how & 128 != 0),
                comm: "again",
            },
            9 => FactKind::Exit { tid, is_last: Some(true) },
            10 => {
                let what = match how / 14 % 6 {
                    0 => Missing::KernelEverywhere,
                    1 => Missing::Spans,
                    _ => {
                        // Who comes next comes unseen, and may have been seen elsewhere meanwhile.
                        hides = how / 14 % 2 + 2;
                        Missing::Kernel(CpuId::new(u32::from(cpu)))
                    }
                };
                FactKind::Lost { what, events: u64::from(how), packets: 1 }
            }
            11 => FactKind::CallExit {
                name: "fcntl",
                ret: 1,
                pair: None,
                address: None,
                opened: None,
            },
            13 => FactKind::Offline { cpu: CpuId::new(u32::from(how / 15 % CPUS)) },
            12 => FactKind::Exec { comm: "odd", old: Some(Tid::new(i32::from(how / 14 % 5) + 1)) },
            _ => FactKind::Switch {
                prev: tid,
                prev_comm: "x",
                left_as: LeftAs::Interruptible,
                next: Tid::new(i32::from(how / 15 % THREADS)),
                next_comm: "y",
            },
        };
        self.fact(cpu, tid, kind);
        if hides > 0 {
            self.hidden[usize::from(cpu)] = hides;
        }
    }
}
