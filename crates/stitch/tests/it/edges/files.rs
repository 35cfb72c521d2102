//! What descriptors stand for.

use model::{Fd, Tid};
use stitch::Kind;
use stitch::fact::{CallArgs, Effect, FactKind};

use super::{Kinds, OPEN, bytes, dump, enter, fork, leave, named, of_one, on, read, summary};

const KEPT: CallArgs<&str> =
    CallArgs { fd: None, path: Some("/a"), effect: Effect::Open { close_on_exec: false } };
const EXEC: Kinds = FactKind::Exec { comm: "new", old: None };

fn with(effect: Effect<&'static str>) -> CallArgs<&'static str> {
    CallArgs { effect, ..CallArgs::NONE }
}

/// Things that one thread does.
fn by<const N: usize>(tid: i32, kinds: [Kinds; N]) -> Vec<(i32, Kinds)> {
    kinds.into_iter().map(|kind| (tid, kind)).collect()
}

fn opens(tid: i32, args: CallArgs<&'static str>, fd: i64) -> Vec<(i32, Kinds)> {
    by(tid, [enter("openat", args), leave("openat", fd)])
}

fn reads(tid: i32) -> Vec<(i32, Kinds)> {
    by(tid, read())
}

fn closes(tid: i32) -> Vec<(i32, Kinds)> {
    by(tid, [enter("close", on(3, Effect::Close)), leave("close", 0)])
}

/// Process 1 gives birth to process 20 in a call with these arguments.
fn births(call: &'static str, args: CallArgs<&'static str>) -> Vec<(i32, Kinds)> {
    let parent = by(1, [enter(call, args), fork(20, 20), leave(call, 20)]);
    [parent, by(20, [leave(call, 0)])].concat()
}

fn shares() -> Vec<(i32, Kinds)> {
    births("clone", with(Effect::ShareTable))
}

#[test]
fn processes_that_share_a_table_see_each_other_s_descriptors() {
    let all = [shares(), opens(1, KEPT, 3), reads(20), closes(20), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]));
    // A thread of the child shares as well.
    let thread = by(20, [fork(21, 20)]);
    let mut of_thread = reads(20);
    of_thread.extend([thread, opens(1, KEPT, 3)].concat());
    let all = [shares(), of_thread, reads(20)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]));
}

#[test]
fn without_the_flag_a_child_has_a_copy_also_a_vforked_one() {
    for (call, args) in
        [("clone", CallArgs::NONE), ("vfork", CallArgs::NONE), ("clone3", CallArgs::NONE)]
    {
        let all = [births(call, args), opens(1, KEPT, 3), reads(20), reads(1)].concat();
        assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]), "{call}");
    }
}

#[test]
fn a_birth_that_says_whether_it_shares_needs_no_call() {
    let says = |shares_table| FactKind::Fork {
        child: Tid::new(20),
        child_pid: model::Pid::new(20),
        shares_table: Some(shares_table),
        comm: "child",
    };
    let all = |shares| [by(1, [says(shares)]), opens(1, KEPT, 3), reads(20)].concat();
    assert_eq!(bytes(&summary(&all(true))), named(&[("/a", 10)]));
    assert_eq!(bytes(&summary(&all(false))), named(&[("(fd 3)", 10)]));
}

#[test]
fn sharing_ends_with_unshare_and_with_exec() {
    let unshare = |ret| by(20, [enter("unshare", with(Effect::LeaveTable)), leave("unshare", ret)]);
    for (ends, alone) in [(unshare(0), true), (unshare(-1), false), (by(20, [EXEC]), true)] {
        let all = [shares(), opens(1, KEPT, 3), ends, closes(1), reads(20)].concat();
        let name = if alone { "/a" } else { "(fd 3)" };
        assert_eq!(bytes(&summary(&all)), named(&[(name, 10)]));
    }
}

#[test]
fn an_exec_closes_nothing_of_who_shared_the_table() {
    let all = [shares(), opens(1, OPEN, 3), by(20, [EXEC]), reads(20), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]));
}

#[test]
fn a_shared_table_lives_as_long_as_one_of_its_processes() {
    let ends = |tid: i32| by(tid, [FactKind::Exit { tid: Tid::new(tid), is_last: Some(true) }]);
    let all = [shares(), opens(1, KEPT, 3), ends(20), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("/a", 10)]));
    // The number of the one that gave the table its name is born again: another table.
    let again = by(
        20,
        [FactKind::Fork {
            child: Tid::new(1),
            child_pid: model::Pid::new(1),
            shares_table: Some(false),
            comm: "again",
        }],
    );
    let all = [shares(), opens(1, KEPT, 3), ends(1), again, closes(1), reads(20)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("/a", 10)]));
}

#[test]
fn close_range_frees_all_numbers_of_a_range_also_those_never_seen() {
    let range = |first, last| Effect::CloseRange {
        first: Fd::new(first),
        last: Fd::new(last),
        only_mark: false,
        leaves_table: false,
    };
    let all = |first, last| {
        let close =
            by(1, [enter("close_range", with(range(first, last))), leave("close_range", 0)]);
        summary(&[reads(1), close, by(1, [dump(3, "/late")]), reads(1)].concat())
    };
    assert_eq!(bytes(&all(3, i32::MAX)), named(&[("(fd 3)", 10), ("/late", 10)]));
    assert_eq!(bytes(&all(4, i32::MAX)), named(&[("/late", 20)]));
    assert_eq!(bytes(&all(0, 2)), named(&[("/late", 20)]));
}

#[test]
fn close_range_that_only_marks_leaves_the_closing_to_exec() {
    let mark = with(Effect::CloseRange {
        first: Fd::new(3),
        last: Fd::new(i32::MAX),
        only_mark: true,
        leaves_table: false,
    });
    let mark = by(1, [enter("close_range", mark), leave("close_range", 0)]);
    let all = [opens(1, KEPT, 3), mark, reads(1), by(1, [EXEC]), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]));
}

#[test]
fn close_range_that_unshares_closes_nothing_of_the_others() {
    let range = with(Effect::CloseRange {
        first: Fd::new(0),
        last: Fd::new(i32::MAX),
        only_mark: false,
        leaves_table: true,
    });
    let close = by(20, [enter("close_range", range), leave("close_range", 0)]);
    let all = [shares(), opens(1, KEPT, 3), close, reads(20), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), ("/a", 10)]));
}

#[test]
fn a_close_that_is_interrupted_or_fails_to_write_has_closed() {
    for errno in [-4, -5] {
        let close = by(1, [enter("close", on(3, Effect::Close)), leave("close", errno)]);
        let all = [by(1, [dump(3, "/old")]), close, reads(1)].concat();
        assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10)]), "{errno}");
    }
}

/// It says that the number was free: there is nothing to free, and what was believed of the number was wrong.
#[test]
fn a_close_of_a_free_number_takes_nothing_from_who_gets_it_meanwhile() {
    let begin = by(1, [enter("close", on(3, Effect::Close))]);
    let end = by(1, [leave("close", -9)]);
    let all = [begin, opens(2, KEPT, 3), end, reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("/a", 10)]));
}

#[test]
fn a_duplicate_that_closes_on_exec_does() {
    let dup = |close_on_exec| {
        let args = on(4, Effect::Duplicate { close_on_exec });
        by(1, [dump(4, "/four"), enter("fcntl", args), leave("fcntl", 3), EXEC])
    };
    assert_eq!(bytes(&summary(&[dup(false), reads(1)].concat())), named(&[("/four", 10)]));
    assert_eq!(bytes(&summary(&[dup(true), reads(1)].concat())), named(&[("(fd 3)", 10)]));
}

#[test]
fn both_ends_of_a_pipe_are_named_and_closed_on_exec_as_the_call_said() {
    let pair = |call, close_on_exec| {
        let effect = Effect::MakePair { name: "pipe", kind: Kind::Other, close_on_exec };
        let left = FactKind::CallExit {
            name: call,
            ret: 0,
            pair: Some((Fd::new(3), Fd::new(4))),
            address: None,
            opened: None,
        };
        by(1, [enter("pipe2", with(effect)), left])
    };
    let write = by(1, [enter("read", on(4, Effect::Nothing)), leave("read", 5)]);
    for call in ["pipe2", ""] {
        let all = |marked| [pair(call, marked), by(1, [EXEC]), reads(1), write.clone()].concat();
        assert_eq!(bytes(&summary(&all(false))), named(&[("pipe", 15)]));
        assert_eq!(bytes(&summary(&all(true))), named(&[("(fd 3)", 10), ("(fd 4)", 5)]));
    }
}

#[test]
fn what_calls_make_is_named_by_its_kind() {
    for name in ["eventfd", "epoll", "timerfd", "memfd", "inotify", "signalfd", "io_uring"] {
        let make = with(Effect::Make { name, kind: Kind::Other, close_on_exec: true });
        let made = by(1, [enter("eventfd2", make), leave("eventfd2", 3)]);
        let all = [made, reads(1), by(1, [EXEC]), reads(1)].concat();
        assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10), (name, 10)]));
    }
}

fn socket(fd: i64) -> Vec<(i32, Kinds)> {
    let make = with(Effect::Make { name: "socket", kind: Kind::Socket, close_on_exec: false });
    by(1, [enter("socket", make), leave("socket", fd)])
}

fn addressed(call: &'static str, address: &'static str, ret: i64) -> Vec<(i32, Kinds)> {
    by(1, [enter(call, on(3, Effect::Address(address))), leave(call, ret)])
}

#[test]
fn a_socket_is_named_by_the_address_that_connect_or_bind_gave_it_and_only_when_they_did() {
    for (call, ret, name) in [
        ("connect", 0, "socket 10.0.0.1:80"),
        ("connect", -115, "socket 10.0.0.1:80"),
        ("connect", -111, "socket"),
        ("bind", 0, "socket 10.0.0.1:80"),
        ("bind", -98, "socket"),
    ] {
        // Also what was read before belongs to the socket.
        let all = [socket(3), reads(1), addressed(call, "10.0.0.1:80", ret), reads(1)].concat();
        assert_eq!(bytes(&summary(&all)), named(&[(name, 20)]), "{call} {ret}");
    }
    // A socket from before the recording.
    let all = [reads(1), addressed("connect", "10.0.0.1:80", 0)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("socket 10.0.0.1:80", 10)]));
}

#[test]
fn the_second_attempt_to_connect_names_the_socket_when_the_first_failed() {
    let first = addressed("connect", "10.0.0.1:80", -111);
    let second = addressed("connect", "10.0.0.2:80", 0);
    let all = [socket(3), first, second, reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("socket 10.0.0.2:80", 10)]));
}

#[test]
fn two_sockets_without_an_address_are_two_though_they_are_called_the_same() {
    let close = closes(1);
    let first = [socket(3), reads(1), close].concat();
    let second = [socket(3), reads(1), addressed("connect", "10.0.0.1:80", 0)].concat();
    let all = [first, second].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("socket", 10), ("socket 10.0.0.1:80", 10)]));
}

/// No event tells which numbers a message brought; a number that is used without having been opened came that way.
#[test]
fn received_descriptors_are_named_by_a_later_dump_only() {
    let receive = by(1, [enter("recvmsg", on(5, Effect::Nothing)), leave("recvmsg", 1)]);
    let before = [by(1, [dump(3, "/old")]), closes(1)].concat();
    let received = [before, receive, reads(1)].concat();
    assert_eq!(bytes(&summary(&received)), named(&[("(fd 3)", 10)]));
    let dumped = [received, by(1, [dump(3, "/received")])].concat();
    assert_eq!(bytes(&summary(&dumped)), named(&[("/received", 10)]));
}

#[test]
fn operations_of_rings_are_reported_as_not_seen() {
    let submit =
        by(1, [enter("io_uring_enter", on(3, Effect::Nothing)), leave("io_uring_enter", 5)]);
    let failed =
        by(1, [enter("io_uring_enter", on(3, Effect::Nothing)), leave("io_uring_enter", -4)]);
    let answer = stitch::syscalls(&summary(&[submit, failed].concat()));
    assert_eq!(answer.loss.ring_operations, 5);
}

#[test]
fn a_number_that_an_unreadable_open_returned_is_not_what_it_was_before() {
    let unread = CallArgs { path: None, ..KEPT };
    let all = [by(1, [dump(3, "/old")]), opens(1, unread, 3), reads(1)].concat();
    assert_eq!(bytes(&summary(&all)), named(&[("(fd 3)", 10)]));
    let unseen = of_one([dump(3, "/old"), leave("openat", 3)].into_iter().chain(read()));
    assert_eq!(bytes(&unseen), named(&[("(fd 3)", 10)]));
}
