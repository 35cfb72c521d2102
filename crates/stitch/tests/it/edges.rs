//! Known answers of small cases, each also with a window for every event.

mod calls;
mod cpus;
mod files;
mod loss;

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use stitch::answer::{Phases, Syscalls};
use stitch::fact::{CallArgs, Effect, Fact, FactKind, LeftAs, Span};
use stitch::{Kind, Summary};

use crate::compare::{answers, same, sums_hold};
use crate::laws::{map, reduce};

type Kinds = FactKind<&'static str>;

const OPEN: CallArgs<&str> =
    CallArgs { fd: None, path: Some("/a"), effect: Effect::Open { close_on_exec: true } };

fn on(fd: i32, effect: Effect<&'static str>) -> CallArgs<&'static str> {
    CallArgs { fd: Some(Fd::new(fd)), path: None, effect }
}

fn enter(name: &'static str, args: CallArgs<&'static str>) -> Kinds {
    FactKind::CallEntry { name, args }
}

fn leave(name: &'static str, ret: i64) -> Kinds {
    FactKind::CallExit { name, ret, pair: None, address: None, opened: None }
}

fn begin(name: &'static str) -> Kinds {
    FactKind::SpanBegin(span(name))
}

fn end(name: &'static str) -> Kinds {
    FactKind::SpanEnd(span(name))
}

fn span(name: &'static str) -> Span<&'static str> {
    Span { name, request: Some(7), is_request: name == "request" }
}

fn switch(prev: i32, left_as: LeftAs, next: i32) -> Kinds {
    let (prev, next) = (Tid::new(prev), Tid::new(next));
    FactKind::Switch { prev, prev_comm: "prev", left_as, next, next_comm: "next" }
}

fn dump(fd: i32, name: &'static str) -> Kinds {
    FactKind::DumpFd {
        pid: Some(Pid::new(1)),
        table: None,
        fd: Fd::new(fd),
        name,
        kind: Kind::of_name(name),
    }
}

fn fork(child: i32, child_pid: i32) -> Kinds {
    let (child, child_pid) = (Tid::new(child), Pid::new(child_pid));
    FactKind::Fork { child, child_pid, shares_table: None, comm: "child" }
}

/// A read from descriptor 3 that moves 10 bytes.
fn read() -> [Kinds; 2] {
    [enter("read", on(3, Effect::Nothing)), leave("read", 10)]
}

/// The summary of these things, 10 ns apart, each in its thread on CPU 0; checked to be the same for any cut.
fn summary(all: &[(i32, Kinds)]) -> Summary {
    let facts: Vec<Fact<&str>> = (10_i64..)
        .step_by(10)
        .zip(all)
        .map(|(at, (tid, kind))| Fact {
            at: Timestamp::from_nanos(at),
            cpu: Some(CpuId::new(0)),
            tid: Some(Tid::new(*tid)),
            pid: Some(Pid::new(if *tid < 10 { 1 } else { *tid })),
            kind: *kind,
        })
        .collect();
    let ends = (0..=facts.len()).map(|n| Timestamp::from_nanos(i64::try_from(n).unwrap() * 10 + 5));
    let ends: Vec<Timestamp> = ends.collect();
    let whole = map(&facts, ends[0], ends[facts.len()]);
    let parts = ends.windows(2).map(|pair| map(&facts, pair[0], pair[1])).collect();
    let (expected, found) = (answers(&whole), answers(&reduce(parts, &[3, 1, 4, 1, 5])));
    same(&expected.0, &found.0);
    same(&expected.1, &found.1);
    whole
}

fn of_one(kinds: impl IntoIterator<Item = Kinds>) -> Summary {
    summary(&kinds.into_iter().map(|kind| (1, kind)).collect::<Vec<_>>())
}

/// The bytes read by file name.
fn bytes(summary: &Summary) -> Vec<(String, u64)> {
    let answer: Syscalls = stitch::syscalls(summary);
    let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
    let files =
        calls.filter(|call| &*call.name == "read").flat_map(|call| call.files.iter().flatten());
    let mut bytes: Vec<(String, u64)> =
        files.map(|file| (file.name.to_string(), file.bytes)).collect();
    bytes.sort();
    bytes
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
}

#[test]
fn bytes_count_under_the_path_that_was_opened() {
    let opened = [enter("openat", OPEN), leave("openat", 3)];
    assert_eq!(bytes(&of_one(opened.into_iter().chain(read()))), named(&[("/a", 10)]));
    let failed = [enter("openat", OPEN), leave("openat", -2)];
    assert_eq!(bytes(&of_one(failed.into_iter().chain(read()))), named(&[("(fd 3)", 10)]));
}

#[test]
fn a_dump_names_what_came_before_it_and_overrules_no_event() {
    let late = read().into_iter().chain([dump(3, "/late")]).chain(read());
    assert_eq!(bytes(&of_one(late)), named(&[("/late", 20)]));
    let opened = [enter("openat", OPEN), leave("openat", 3), dump(3, "/wrong")];
    assert_eq!(bytes(&of_one(opened.into_iter().chain(read()))), named(&[("/a", 10)]));
}

#[test]
fn a_closed_number_is_something_else_afterwards() {
    let close = [enter("close", on(3, Effect::Close)), leave("close", 0)];
    let all = [dump(3, "/first")].into_iter().chain(read()).chain(close).chain(read());
    assert_eq!(bytes(&of_one(all)), named(&[("(fd 3)", 10), ("/first", 10)]));
}

#[test]
fn exec_closes_what_is_marked_and_keeps_what_a_dup_made() {
    let dup = [enter("dup", on(3, Effect::Duplicate { close_on_exec: false })), leave("dup", 4)];
    let exec = [FactKind::Exec { comm: "new", old: None }];
    let copy = [enter("read", on(4, Effect::Nothing)), leave("read", 5)];
    let all = [enter("openat", OPEN), leave("openat", 3)].into_iter();
    let all = all.chain(dup).chain(exec).chain(read()).chain(copy);
    assert_eq!(bytes(&of_one(all)), named(&[("(fd 3)", 10), ("/a", 5)]));
}

#[test]
fn a_child_has_a_copy_of_the_table_also_of_what_was_never_seen() {
    let fork = fork(20, 20);
    let birth = leave("clone", 0);
    let [enter, exit] = read();
    let all = [(1, fork), (20, birth), (20, enter), (20, exit), (1, dump(3, "/shared"))];
    let summary = summary(&all);
    assert_eq!(bytes(&summary), named(&[("/shared", 10)]));
    assert_eq!(stitch::syscalls(&summary).loss.calls_without_begin, 0, "a birth is no call");
}

#[test]
fn restarts_are_no_errors_and_a_return_without_entry_is_counted() {
    let all = [
        leave("read", 5),
        enter("nanosleep", CallArgs::NONE),
        leave("nanosleep", -516),
        enter("read", on(3, Effect::Nothing)),
        leave("read", -9),
    ];
    let answer = stitch::syscalls(&of_one(all));
    let found: Vec<(&str, u64, u64)> = answer.processes[0]
        .syscalls
        .iter()
        .map(|call| (&*call.name, call.calls, call.errors))
        .collect();
    assert_eq!(found, [("nanosleep", 1, 0), ("read", 1, 1)]);
    assert_eq!(answer.loss.calls_without_begin, 1);
}

#[test]
fn a_request_is_split_by_what_its_thread_did_and_who_had_the_cpu() {
    let woken = FactKind::Wakeup { tid: Tid::new(1), comm: "next" };
    let all = [
        (1, begin("request")),
        (1, begin("decode")),
        (1, enter("futex", CallArgs::NONE)),
        (1, switch(1, LeftAs::Interruptible, 10)),
        (10, woken),
        (10, switch(10, LeftAs::Preempted, 11)),
        (11, switch(11, LeftAs::Preempted, 1)),
        (1, leave("futex", 0)),
        (1, end("decode")),
        (1, end("request")),
    ];
    let answer: Phases = stitch::phases(&summary(&all));
    let request = &answer.request_list[0];
    assert_eq!((request.id, request.split.wall_ns), (Some(7), 90));
    let decode = &answer.phases[0];
    assert_eq!((&*decode.name, decode.split.wall_ns), ("decode", 70));
    assert_eq!(decode.split.running_ns, 20 + 20);
    assert_eq!(decode.split.blocked_ns.lock, 10);
    assert_eq!(decode.split.waiting_ns, 20);
    let had: Vec<(i32, u64)> = decode.waited_for.iter().map(|row| (row.tid, row.ns)).collect();
    assert_eq!(had, [(10, 10), (11, 10)]);
    assert_eq!((&*decode.syscalls[0].name, decode.syscalls[0].ns), ("futex", 50));
    sums_hold(&answer);
}

#[test]
fn phases_without_an_end_close_with_their_request() {
    let all = [begin("request"), begin("decode"), begin("scale"), end("decode"), begin("send")];
    let answer = stitch::phases(&of_one(all.into_iter().chain([end("request"), end("send")])));
    let names: Vec<(&str, u64)> =
        answer.phases.iter().map(|phase| (&*phase.name, phase.split.wall_ns)).collect();
    assert_eq!(names, [("(between)", 20), ("decode", 10), ("decode/scale", 10), ("send", 10)]);
    assert_eq!((answer.loss.abandoned_phases, answer.loss.unmatched_span_ends), (2, 1));
    sums_hold(&answer);
}

#[test]
fn a_request_that_another_one_cuts_off_is_partial() {
    let all =
        [end("request"), begin("request"), begin("request"), end("request"), begin("request")];
    let answer = stitch::phases(&of_one(all));
    assert_eq!((answer.requests.complete, answer.requests.partial), (1, 3));
}

#[test]
fn phases_nested_deeper_than_the_limit_are_abandoned_from_the_outside_and_time_still_adds_up() {
    let deep = (0..40).map(|_| begin("nested"));
    let answer = stitch::phases(&of_one(
        [begin("request")]
            .into_iter()
            .chain(deep)
            .chain((0..40).map(|_| end("nested")))
            .chain([end("request")]),
    ));
    assert_eq!(answer.requests.complete, 1);
    assert_eq!(answer.loss.abandoned_phases, 24);
    sums_hold(&answer);
}

#[test]
fn a_call_belongs_to_its_thread_however_many_cuts_and_switches_lie_in_it() {
    let all = [
        (1, enter("read", on(3, Effect::Nothing))),
        (1, switch(1, LeftAs::Uninterruptible, 10)),
        (10, FactKind::Wakeup { tid: Tid::new(1), comm: "next" }),
        (10, switch(10, LeftAs::Preempted, 1)),
        (1, leave("read", 10)),
    ];
    let answer = stitch::syscalls(&summary(&all));
    let [process] = answer.processes.as_slice() else { panic!("{answer:?}") };
    let call = &process.syscalls[0];
    assert_eq!((process.pid, &*call.name, call.calls, call.ns), (1, "read", 1, 40));
}

#[test]
fn exit_and_exit_group_never_return() {
    for name in ["exit", "exit_group"] {
        let answer = stitch::syscalls(&of_one([enter(name, CallArgs::NONE), leave("read", 1)]));
        assert_eq!(answer.loss.calls_without_begin, 1, "{name}");
        assert!(answer.processes.is_empty(), "{answer:?}");
    }
}

#[test]
fn a_return_that_does_not_say_from_which_call_ends_the_one_its_thread_is_in() {
    let opened = [enter("open", OPEN), leave("", 3)];
    let nameless = [enter("read", on(3, Effect::Nothing)), leave("", 10), leave("", 7)];
    let summary = of_one(opened.into_iter().chain(nameless));
    assert_eq!(bytes(&summary), named(&[("/a", 10)]));
    assert_eq!(stitch::syscalls(&summary).loss.calls_without_begin, 1);
    let fork = fork(20, 20);
    let born = stitch::syscalls(&self::summary(&[(1, fork), (20, leave("", 0))]));
    assert_eq!(born.loss.calls_without_begin, 0, "a birth is no call");
}

#[test]
fn a_number_that_another_thread_gets_before_its_close_returns_is_the_new_file() {
    let close = |fd| enter("close", on(fd, Effect::Close));
    let [enter_read, leave_read] = read();
    let all = [
        (1, dump(3, "/old")),
        (1, close(3)),
        (2, enter("openat", OPEN)),
        (2, leave("openat", 3)),
        (1, leave("close", 0)),
        (1, enter_read),
        (1, leave_read),
    ];
    assert_eq!(bytes(&summary(&all)), named(&[("/a", 10)]));
}

#[test]
fn a_dup_onto_an_open_number_replaces_it_only_when_it_succeeds() {
    let first = [dump(3, "/three"), dump(4, "/four")];
    let dup = |ret| {
        let args = on(4, Effect::Duplicate { close_on_exec: false });
        [enter("dup2", args), leave("dup2", ret)]
    };
    let all = |ret| of_one(first.into_iter().chain(dup(ret)).chain(read()));
    assert_eq!(bytes(&all(3)), named(&[("/four", 10)]));
    assert_eq!(bytes(&all(-9)), named(&[("/three", 10)]));
}

#[test]
fn a_dup_onto_its_own_number_changes_nothing() {
    let args = on(3, Effect::Duplicate { close_on_exec: false });
    let all = [dump(3, "/three"), enter("dup2", args), leave("dup2", 3)].into_iter().chain(read());
    assert_eq!(bytes(&of_one(all)), named(&[("/three", 10)]));
}

#[test]
fn an_open_that_fails_makes_nothing_and_every_number_keeps_its_meaning() {
    let all = [dump(3, "/old"), enter("openat", OPEN), leave("openat", -2)].into_iter();
    let summary = of_one(all.chain(read()));
    assert_eq!(bytes(&summary), named(&[("/old", 10)]));
    let calls = stitch::syscalls(&summary);
    let open = calls.processes[0].syscalls.iter().find(|call| &*call.name == "openat").unwrap();
    assert_eq!((open.calls, open.errors), (1, 1));
}

#[test]
fn the_first_return_of_a_child_is_its_birth_and_no_call() {
    let all = [
        (1, enter("clone", CallArgs::NONE)),
        (1, fork(2, 1)),
        (2, leave("clone", 0)),
        (1, leave("clone", 2)),
    ];
    let calls = stitch::syscalls(&summary(&all));
    assert_eq!(calls.loss.calls_without_begin, 0);
    let [process] = calls.processes.as_slice() else { panic!("{:?}", calls.processes) };
    let counted: Vec<_> = process.syscalls.iter().map(|call| (&*call.name, call.calls)).collect();
    assert_eq!(counted, [("clone", 1)]);
}

#[test]
fn a_flag_set_later_decides_what_exec_closes() {
    let kept = CallArgs { effect: Effect::Open { close_on_exec: false }, ..OPEN };
    let set = |value| {
        let args = on(3, Effect::SetCloseOnExec(value));
        [enter("fcntl", args), leave("fcntl", 0)]
    };
    let all = |open, value| {
        let opened = [enter("openat", open), leave("openat", 3)].into_iter().chain(set(value));
        of_one(opened.chain([FactKind::Exec { comm: "new", old: None }]).chain(read()))
    };
    assert_eq!(bytes(&all(kept, true)), named(&[("(fd 3)", 10)]));
    assert_eq!(bytes(&all(OPEN, false)), named(&[("/a", 10)]));
}

#[test]
fn of_two_wake_ups_the_first_counts_and_one_of_a_running_thread_does_not() {
    let woken = FactKind::Wakeup { tid: Tid::new(1), comm: "next" };
    let all = [
        (1, begin("request")),
        (1, woken),
        (1, switch(1, LeftAs::Interruptible, 10)),
        (10, woken),
        (10, woken),
        (10, switch(10, LeftAs::Preempted, 1)),
        (1, end("request")),
    ];
    let split = stitch::phases(&summary(&all)).request_list[0].split;
    assert_eq!((split.running_ns, split.blocked_ns.other, split.waiting_ns), (30, 10, 20));
}

#[test]
fn a_number_that_is_born_again_is_another_life_that_ends_nothing_of_the_old() {
    let fork = fork(2, 1);
    let all = [
        (2, begin("request")),
        (2, enter("read", on(3, Effect::Nothing))),
        (1, fork),
        (2, leave("clone", 0)),
        (2, leave("read", 10)),
        (2, end("request")),
    ];
    let summary = summary(&all);
    let (phases, calls) = (stitch::phases(&summary), stitch::syscalls(&summary));
    assert_eq!((phases.requests.complete, phases.requests.partial), (0, 2));
    assert_eq!((calls.loss.calls_without_begin, calls.processes.len()), (1, 0));
}

#[test]
fn a_thread_that_keeps_its_cpu_runs_through_windows_without_an_event_of_it() {
    let others = (0..20).map(|_| (10, FactKind::Seen));
    let all = [(1, begin("request"))].into_iter().chain(others).chain([(1, end("request"))]);
    let mut all: Vec<(i32, Kinds)> = all.collect();
    all.iter_mut().for_each(|(tid, _)| *tid = if *tid == 10 { 0 } else { *tid });
    let split = stitch::phases(&summary(&all)).request_list[0].split;
    assert_eq!((split.wall_ns, split.running_ns), (210, 210));
}

#[test]
fn a_socket_is_named_by_the_peer_that_accept_returns() {
    let make = Effect::Make { name: "socket", kind: Kind::Socket, close_on_exec: false };
    let accepted = FactKind::CallExit {
        name: "accept4",
        ret: 3,
        pair: None,
        address: Some("10.0.0.9:1234"),
        opened: None,
    };
    let all = [enter("accept4", on(5, make)), accepted].into_iter().chain(read());
    assert_eq!(bytes(&of_one(all)), named(&[("socket 10.0.0.9:1234", 10)]));
}

/// More switches than a window keeps one by one, while one thread waits inside a request from before them to after them, one
/// that was woken among them gets no CPU in the window at all, and one of the left window waits for its first.
#[test]
fn who_had_the_cpu_is_known_after_any_number_of_switches() {
    const SWITCHES: i64 = 50_000;
    let preempted = LeftAs::Preempted;
    let mut all = vec![
        (3, begin("request")),
        (3, switch(3, preempted, 2)),
        (2, begin("request")),
        (2, switch(2, LeftAs::Interruptible, 1)),
        (1, begin("request")),
        (1, switch(1, preempted, 20)),
    ];
    for n in 0..SWITCHES / 2 {
        all.push((20, switch(20, preempted, 21)));
        if n == SWITCHES / 8 {
            all.push((21, FactKind::Wakeup { tid: Tid::new(2), comm: "woken" }));
        }
        all.push((21, switch(21, preempted, 20)));
    }
    all.extend([
        (20, switch(20, preempted, 1)),
        (1, end("request")),
        (1, switch(1, LeftAs::Dead, 2)),
        (2, end("request")),
        (2, switch(2, LeftAs::Dead, 3)),
        (3, end("request")),
    ]);
    let fact = |(n, (tid, kind)): (i64, &(i32, Kinds))| Fact {
        at: Timestamp::from_nanos(10 * n + 10),
        cpu: Some(CpuId::new(0)),
        tid: Some(Tid::new(*tid)),
        pid: Some(Pid::new(1)),
        kind: *kind,
    };
    let facts: Vec<Fact<&str>> = (0_i64..).zip(&all).map(fact).collect();
    let cut_at = |cuts: &[i64]| {
        let ends: Vec<Timestamp> = cuts.iter().map(|n| Timestamp::from_nanos(10 * n + 5)).collect();
        let parts = ends.windows(2).map(|pair| map(&facts, pair[0], pair[1])).collect();
        answers(&reduce(parts, &[3, 1, 2]))
    };
    let last = i64::try_from(facts.len()).unwrap();
    let whole = cut_at(&[0, last]);
    let short: Vec<i64> = (0..=last / 5_000).map(|n| n * 5_000).chain([last]).collect();
    same(&whole.0, &cut_at(&short).0);
    // What goes on waiting at a cut behind many switches, and what began to wait before one.
    same(&whole.0, &cut_at(&[0, 3, 4, 40_000, last]).0);
    let answer =
        stitch::phases(&map(&facts, Timestamp::from_nanos(0), Timestamp::from_nanos(1 << 40)));
    sums_hold(&answer);
    let waiting: u64 = answer.phases.iter().map(|phase| phase.split.waiting_ns).sum();
    let blamed = answer.phases.iter().flat_map(|phase| &phase.waited_for);
    assert_eq!(blamed.map(|row| row.ns).sum::<u64>(), waiting);
    assert!(waiting > 10 * (SWITCHES as u64) * 5 / 2, "{waiting}");
}
