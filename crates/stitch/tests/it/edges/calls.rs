//! Which begin and which return are one call.

use stitch::Summary;
use stitch::fact::{CallArgs, FactKind};

use super::{Kinds, OPEN, bytes, enter, leave, named, of_one, read, summary};

/// Name, calls, nanoseconds and errors of every call, over all processes.
fn calls(summary: &Summary) -> Vec<(String, u64, u64, u64)> {
    let answer = stitch::syscalls(summary);
    let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
    let mut rows: Vec<_> =
        calls.map(|call| (call.name.to_string(), call.calls, call.ns, call.errors)).collect();
    rows.sort();
    rows
}

fn row(name: &str, calls: u64, ns: u64, errors: u64) -> (String, u64, u64, u64) {
    (name.to_owned(), calls, ns, errors)
}

fn exec_of(old: i32) -> Kinds {
    FactKind::Exec { comm: "new", old: Some(model::Tid::new(old)) }
}

#[test]
fn an_exec_by_another_thread_than_the_first_is_entered_by_it_and_left_by_the_first() {
    let all = [
        (1, enter("futex", CallArgs::NONE)),
        (2, enter("execve", CallArgs::NONE)),
        (1, exec_of(2)),
        (1, leave("execve", 0)),
    ];
    let summary = summary(&all);
    assert_eq!(calls(&summary), [row("execve", 1, 20, 0)]);
    assert_eq!(stitch::syscalls(&summary).loss.calls_without_begin, 0);
}

#[test]
fn the_thread_whose_number_is_free_after_an_exec_is_in_no_call() {
    let all = [(2, enter("execve", CallArgs::NONE)), (1, exec_of(2)), (2, leave("execve", 0))];
    let summary = summary(&all);
    assert_eq!(calls(&summary), []);
    assert_eq!(stitch::syscalls(&summary).loss.calls_without_begin, 1);
}

#[test]
fn an_exec_of_the_other_thread_closes_what_its_process_marked() {
    let opened = [(1, enter("openat", OPEN)), (1, leave("openat", 3))];
    let exec = [(2, enter("execve", CallArgs::NONE)), (1, exec_of(2)), (1, leave("execve", 0))];
    let all: Vec<(i32, Kinds)> =
        opened.into_iter().chain(exec).chain(read().map(|kind| (1, kind))).collect();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10)]));
}

#[test]
fn a_call_that_is_begun_again_is_two_calls_and_no_error() {
    for restarted in [-512, -513, -514, -516] {
        let all = [
            enter("nanosleep", CallArgs::NONE),
            leave("nanosleep", restarted),
            enter("restart_syscall", CallArgs::NONE),
            leave("restart_syscall", 0),
        ];
        let summary = of_one(all);
        assert_eq!(calls(&summary), [row("nanosleep", 1, 10, 0), row("restart_syscall", 1, 10, 0)]);
        assert_eq!(stitch::syscalls(&summary).loss.calls_without_begin, 0);
    }
}

#[test]
fn bytes_of_a_return_without_a_begin_count_and_its_time_does_not() {
    let summary = of_one([leave("read", 100), leave("openat", 7), leave("write", -4)]);
    assert_eq!(calls(&summary), []);
    let loss = stitch::loss(&summary);
    assert_eq!((loss.calls_without_begin, loss.bytes_without_begin), (3, 100));
}

#[test]
fn a_return_from_a_signal_is_an_instant() {
    for name in ["rt_sigreturn", "sigreturn"] {
        let all = [enter(name, CallArgs::NONE), enter("read", CallArgs::NONE), leave("read", 1)];
        let summary = of_one(all);
        assert_eq!(calls(&summary), [row("read", 1, 10, 0)]);
        let open = of_one([enter(name, CallArgs::NONE)]);
        assert_eq!(calls(&open), []);
        assert_eq!(stitch::loss(&open).calls_without_begin, 0);
    }
}
