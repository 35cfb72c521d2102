//! Which event of which tracer says what: names and fields of all generations, in traces written for the test.

use mapper::Analysis;

use crate::written::Is::{Bits, CloneFlags, Comm, Int, Pair, Registers, Text};
use crate::written::{Happens, analysis, bytes_read, event, switch};

/// Names of LTTng 2.6 and later.
fn read(fd: i64, ret: i64) -> [Happens; 2] {
    [
        event("syscall_entry_read", [("fd", Int(fd)), ("count", Int(100))]),
        event("syscall_exit_read", [("ret", Int(ret))]),
    ]
}

fn open(flags: i64, ret: i64) -> [Happens; 2] {
    [
        event("syscall_entry_open", [("filename", Text("/a")), ("flags", Int(flags))]),
        event("syscall_exit_open", [("ret", Int(ret))]),
    ]
}

fn call<const N: usize, const M: usize>(
    entry: (&'static str, [(&'static str, crate::written::Is); N]),
    exit: (&'static str, [(&'static str, crate::written::Is); M]),
) -> [Happens; 2] {
    [event(entry.0, entry.1), event(exit.0, exit.1)]
}

const O_CLOEXEC: i64 = 0o2_000_000;

fn exec(tid: i64, old_tid: i64) -> Happens {
    let fields = [("filename", Text("/bin/new")), ("tid", Int(tid)), ("old_tid", Int(old_tid))];
    event("sched_process_exec", fields)
}

fn fork(child: i64) -> Happens {
    let fields = [
        ("parent_tid", Int(10)),
        ("parent_pid", Int(10)),
        ("child_comm", Comm("child")),
        ("child_tid", Int(child)),
        ("child_pid", Int(child)),
    ];
    event("sched_process_fork", fields)
}

/// Thread 10 has CPU 0.
fn by_ten<const N: usize>(parts: [&[Happens]; N]) -> Analysis {
    let mut all = vec![switch(0, 10)];
    parts.iter().for_each(|part| all.extend_from_slice(part));
    analysis(&all, &[])
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
}

/// Calls and errors by name.
fn calls(analysis: &Analysis) -> Vec<(String, u64, u64)> {
    let answer = stitch::syscalls(&analysis.summary);
    let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
    let mut calls: Vec<_> =
        calls.map(|call| (call.name.to_string(), call.calls, call.errors)).collect();
    calls.sort();
    calls
}

#[test]
fn files_are_named_by_the_events_of_every_generation_of_lttng() {
    let before_2_6 = [
        event("sys_open", [("filename", Text("/a")), ("flags", Int(0))]),
        event("exit_syscall", [("ret", Int(3))]),
        event("sys_read", [("fd", Int(3))]),
        event("exit_syscall", [("ret", Int(10))]),
    ];
    let compat_before_2_6 = [
        event("compat_sys_open", [("filename", Text("/a")), ("flags", Int(0))]),
        event("exit_syscall", [("ret", Int(3))]),
        event("compat_sys_read", [("fd", Int(3))]),
        event("exit_syscall", [("ret", Int(10))]),
    ];
    let compat = [
        event("compat_syscall_entry_open", [("filename", Text("/a")), ("flags", Int(0))]),
        event("compat_syscall_exit_open", [("ret", Int(3))]),
        event("compat_syscall_entry_read", [("fd", Int(3))]),
        event("compat_syscall_exit_read", [("ret", Int(10))]),
    ];
    let since_2_6 = [open(0, 3), read(3, 10)].concat();
    for events in [&before_2_6[..], &compat_before_2_6, &compat, &since_2_6] {
        let found = by_ten([events]);
        assert_eq!(bytes_read(&found), named(&[("/a", 10)]), "{events:?}");
        let names: Vec<String> = calls(&found).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["open", "read"]);
    }
}

#[test]
fn calls_of_32_bit_programs_have_their_own_numbers() {
    let call = |id, registers: [u64; 6], ret| {
        [
            event(
                "compat_syscall_entry_unknown",
                [("id", Int(id)), ("args", Registers(registers))],
            ),
            event("compat_syscall_exit_unknown", [("id", Int(id)), ("ret", Int(ret))]),
        ]
    };
    let found = by_ten([&call(3, [7, 0, 100, 0, 0, 0], 10), &call(120, [0; 6], 11)]);
    assert_eq!(calls(&found), [("clone".to_owned(), 1, 0), ("read".to_owned(), 1, 0)]);
    assert_eq!(bytes_read(&found), named(&[("(fd 7)", 10)]));
}

#[test]
fn a_return_from_a_signal_handler_is_no_call_and_nothing_without_a_begin() {
    let signal = [
        event("syscall_entry_unknown", [("id", Int(15)), ("args", Registers([0; 6]))]),
        event("compat_syscall_exit_unknown", [("id", Int(-1)), ("ret", Int(0))]),
    ];
    let found = by_ten([&signal, &read(3, 10)]);
    assert_eq!(calls(&found), [("read".to_owned(), 1, 0)]);
    assert_eq!(stitch::loss(&found.summary).calls_without_begin, 0);
}

#[test]
fn arguments_of_calls_told_by_number_are_found_by_position() {
    let call = |id: i64, registers: [u64; 6], ret: i64| {
        [
            event("raw_syscalls:sys_enter", [("id", Int(id)), ("args", Registers(registers))]),
            event("raw_syscalls:sys_exit", [("id", Int(id)), ("ret", Int(ret))]),
        ]
    };
    let eventfd2 = |flags: i64| call(290, [0, flags.cast_unsigned(), 0, 0, 0, 0], 3);
    let read = call(0, [3, 0, 100, 0, 0, 0], 10);
    let close = call(3, [3, 0, 0, 0, 0, 0], 0);
    let found = by_ten([&eventfd2(0), &read, &close, &read]);
    assert_eq!(bytes_read(&found), named(&[("(fd 3)", 10), ("eventfd", 10)]));
    for (flags, name) in [(0, "eventfd"), (O_CLOEXEC, "(fd 3)")] {
        let found = by_ten([&eventfd2(flags), &[exec(10, 10)], &read]);
        assert_eq!(bytes_read(&found), named(&[(name, 10)]), "{flags:#o}");
    }
}

#[test]
fn flags_of_clone_say_who_shares_descriptors_as_one_number_and_as_two_fields() {
    const CLONE_FILES: u64 = 0x400;
    const CLONE_THREAD: u64 = 0x1_0000;
    const SIGCHLD: u64 = 17;
    let clone = |flags| {
        let split = event("syscall_entry_clone", [("flags", CloneFlags(flags))]);
        let whole = event("syscall_entry_clone", [("clone_flags", Bits(flags))]);
        [split, whole]
    };
    for (flags, name) in [
        (CLONE_FILES | SIGCHLD, "/a"),
        (SIGCHLD, "(fd 3)"),
        // Not a process, says the flag, whatever the record says.
        (CLONE_FILES | CLONE_THREAD, "(fd 3)"),
    ] {
        for entry in clone(flags) {
            let birth = [entry, fork(20), event("syscall_exit_clone", [("ret", Int(20))])];
            let found = by_ten([&birth, &open(0, 3), &[switch(10, 20)], &read(3, 10)]);
            assert_eq!(bytes_read(&found), named(&[(name, 10)]), "{flags:#x}");
        }
    }
}

#[test]
fn unshare_and_close_range_leave_a_shared_table() {
    const CLONE_FILES: i64 = 0x400;
    let clone = event("syscall_entry_clone", [("clone_flags", Int(CLONE_FILES))]);
    let birth = [clone, fork(20), event("syscall_exit_clone", [("ret", Int(20))])];
    let unshare = |flags| {
        call(
            ("syscall_entry_unshare", [("unshare_flags", Int(flags))]),
            ("syscall_exit_unshare", [("ret", Int(0))]),
        )
    };
    let close_range = |first, last, flags| {
        let fields = [("fd", Int(first)), ("max_fd", Int(last)), ("flags", Int(flags))];
        call(("syscall_entry_close_range", fields), ("syscall_exit_close_range", [("ret", Int(0))]))
    };
    let all = i64::from(u32::MAX);
    for (leaves, name) in [
        (unshare(CLONE_FILES), "/a"),
        (unshare(0x200), "(fd 3)"),
        (close_range(4, all, 2), "/a"),
        (close_range(4, all, 0), "(fd 3)"),
        (close_range(0, all, 2), "(fd 3)"),
    ] {
        let close = call(
            ("syscall_entry_close", [("fd", Int(3))]),
            ("syscall_exit_close", [("ret", Int(0))]),
        );
        let then = [switch(20, 10)];
        let there = [switch(10, 20)];
        let again = [switch(10, 20)];
        let found =
            by_ten([&birth, &open(0, 3), &there, &leaves, &then, &close, &again, &read(3, 10)]);
        assert_eq!(bytes_read(&found), named(&[(name, 10)]), "{leaves:?}");
    }
    let marked =
        by_ten([&open(0, 3), &close_range(3, all, 4), &read(3, 10), &[exec(10, 10)], &read(3, 10)]);
    assert_eq!(bytes_read(&marked), named(&[("(fd 3)", 10), ("/a", 10)]));
}

/// Our own capture: thread, process and descriptor table on every event record.
#[test]
fn addresses_of_tables_say_who_shares_descriptors() {
    let of = |happens: Happens, tid, table| {
        happens.with([("tid", Int(tid)), ("pid", Int(tid)), ("file_table_address", Bits(table))])
    };
    let born = |child_table| {
        event(
            "sched_process_fork",
            [
                ("child_comm", Comm("child")),
                ("child_tid", Int(20)),
                ("child_pid", Int(20)),
                ("child_file_table_address", Bits(child_table)),
            ],
        )
    };
    for (parent, child_table, name) in [(10, 0xa, "/a"), (10, 0xb, "(fd 3)"), (2, 0xa, "(fd 3)")] {
        let mut all = vec![of(switch(0, parent), 0, 0), of(born(child_table), parent, 0xa)];
        all.extend(open(0, 3).map(|happens| of(happens, parent, 0xa)));
        all.push(of(switch(parent, 20), parent, 0xa));
        all.extend(read(3, 10).map(|happens| of(happens, 20, child_table)));
        assert_eq!(
            bytes_read(&analysis(&all, &[])),
            named(&[(name, 10)]),
            "{parent} {child_table}"
        );
    }
}

#[test]
fn an_exec_by_another_thread_than_the_first_has_its_call_and_the_first_s_number() {
    let execve = event("syscall_entry_execve", [("filename", Text("/bin/new"))]);
    let dump = |tid| {
        let fields = [("tid", Int(tid)), ("pid", Int(10)), ("name", Comm("process"))];
        event("lttng_statedump_process_state", fields)
    };
    let all = [
        dump(10),
        dump(11),
        switch(0, 11),
        execve,
        exec(10, 11),
        event("syscall_exit_execve", [("ret", Int(0))]),
        switch(10, 0),
    ];
    let found = analysis(&all, &[]);
    assert_eq!(calls(&found), [("execve".to_owned(), 1, 0)]);
    assert_eq!(stitch::loss(&found.summary).calls_without_begin, 0);
}

#[test]
fn a_duplicate_onto_itself_does_nothing_and_onto_another_replaces_it() {
    let dup3 = |old, new, flags| {
        let fields = [("oldfd", Int(old)), ("newfd", Int(new)), ("flags", Int(flags))];
        call(("syscall_entry_dup3", fields), ("syscall_exit_dup3", [("ret", Int(new))]))
    };
    let dup2 = |old, new| {
        let fields = [("oldfd", Int(old)), ("newfd", Int(new))];
        call(("syscall_entry_dup2", fields), ("syscall_exit_dup2", [("ret", Int(new))]))
    };
    let after_exec =
        |dup: &[Happens], fd| by_ten([&open(O_CLOEXEC, 3), dup, &[exec(10, 10)], &read(fd, 10)]);
    assert_eq!(bytes_read(&after_exec(&dup2(3, 3), 3)), named(&[("(fd 3)", 10)]));
    assert_eq!(bytes_read(&after_exec(&dup2(3, 4), 4)), named(&[("/a", 10)]));
    assert_eq!(bytes_read(&after_exec(&dup3(3, 4, 0), 4)), named(&[("/a", 10)]));
    assert_eq!(bytes_read(&after_exec(&dup3(3, 4, O_CLOEXEC), 4)), named(&[("(fd 4)", 10)]));
}

#[test]
fn fcntl_and_ioctl_set_whether_exec_closes() {
    let fcntl = |cmd, arg, ret| {
        let fields = [("fd", Int(3)), ("cmd", Int(cmd)), ("arg", Int(arg))];
        call(("syscall_entry_fcntl", fields), ("syscall_exit_fcntl", [("ret", Int(ret))]))
    };
    let ioctl = |cmd| {
        let fields = [("fd", Int(3)), ("cmd", Int(cmd)), ("arg", Int(0))];
        call(("syscall_entry_ioctl", fields), ("syscall_exit_ioctl", [("ret", Int(0))]))
    };
    let (f_dupfd, f_setfd, f_dupfd_cloexec) = (0, 2, 1030);
    let (fioclex, fionclex) = (0x5451, 0x5450);
    for (opened, then, fd, name) in [
        (0, fcntl(f_setfd, 1, 0), 3, "(fd 3)"),
        (O_CLOEXEC, fcntl(f_setfd, 0, 0), 3, "/a"),
        (0, ioctl(fioclex), 3, "(fd 3)"),
        (O_CLOEXEC, ioctl(fionclex), 3, "/a"),
        (O_CLOEXEC, fcntl(f_dupfd, 10, 10), 10, "/a"),
        (0, fcntl(f_dupfd_cloexec, 10, 10), 10, "(fd 10)"),
    ] {
        let found = by_ten([&open(opened, 3), &then, &[exec(10, 10)], &read(fd, 10)]);
        assert_eq!(bytes_read(&found), named(&[(name, 10)]), "{then:?}");
    }
}

#[test]
fn what_calls_make_is_named_by_kind_and_closed_on_exec_as_each_call_says_it() {
    for (entry, exit, field, flag, name) in [
        ("syscall_entry_eventfd2", "syscall_exit_eventfd2", "flags", O_CLOEXEC, "eventfd"),
        ("syscall_entry_epoll_create1", "syscall_exit_epoll_create1", "flags", O_CLOEXEC, "epoll"),
        (
            "syscall_entry_timerfd_create",
            "syscall_exit_timerfd_create",
            "flags",
            O_CLOEXEC,
            "timerfd",
        ),
        (
            "syscall_entry_inotify_init1",
            "syscall_exit_inotify_init1",
            "flags",
            O_CLOEXEC,
            "inotify",
        ),
        ("syscall_entry_signalfd4", "syscall_exit_signalfd4", "flags", O_CLOEXEC, "signalfd"),
        ("syscall_entry_socket", "syscall_exit_socket", "type", O_CLOEXEC | 1, "socket"),
        ("syscall_entry_memfd_create", "syscall_exit_memfd_create", "flags", 1, "memfd"),
        ("syscall_entry_fanotify_init", "syscall_exit_fanotify_init", "flags", 1, "fanotify"),
        ("syscall_entry_perf_event_open", "syscall_exit_perf_event_open", "flags", 8, "perf_event"),
    ] {
        for (flags, after) in [(0, name), (flag, "(fd 3)")] {
            let make = call((entry, [(field, Int(flags))]), (exit, [("ret", Int(3))]));
            let before = by_ten([&make, &read(3, 10)]);
            assert_eq!(bytes_read(&before), named(&[(name, 10)]));
            let found = by_ten([&make, &[exec(10, 10)], &read(3, 10)]);
            assert_eq!(bytes_read(&found), named(&[(after, 10)]), "{name} {flags}");
        }
    }
    // These always close on exec.
    for (entry, exit, name) in [
        ("syscall_entry_pidfd_open", "syscall_exit_pidfd_open", "pidfd"),
        ("syscall_entry_pidfd_getfd", "syscall_exit_pidfd_getfd", "received"),
        ("syscall_entry_io_uring_setup", "syscall_exit_io_uring_setup", "io_uring"),
    ] {
        let make = call((entry, [("flags", Int(0))]), (exit, [("ret", Int(3))]));
        let found = by_ten([&make, &read(3, 10), &[exec(10, 10)], &read(3, 5)]);
        assert_eq!(bytes_read(&found), named(&[("(fd 3)", 5), (name, 10)]));
    }
}

#[test]
fn pipes_and_socket_pairs_are_named_and_marked_by_their_calls() {
    let pipe2 = |flags| {
        call(
            ("syscall_entry_pipe2", [("flags", Int(flags))]),
            ("syscall_exit_pipe2", [("ret", Int(0)), ("fildes", Pair(3, 4))]),
        )
    };
    let socketpair = |kind| {
        call(
            ("syscall_entry_socketpair", [("family", Int(1)), ("type", Int(kind))]),
            ("syscall_exit_socketpair", [("ret", Int(0)), ("socket", Pair(3, 4))]),
        )
    };
    for (make, name) in [
        (pipe2(0), "pipe"),
        (pipe2(O_CLOEXEC), "(fd 4)"),
        (socketpair(1), "socket pair"),
        (socketpair(O_CLOEXEC | 1), "(fd 4)"),
    ] {
        let found = by_ten([&make, &[exec(10, 10)], &read(4, 10)]);
        assert_eq!(bytes_read(&found), named(&[(name, 10)]));
    }
}

#[test]
fn a_loss_on_one_cpu_makes_the_calls_uncertain_of_the_thread_that_was_on_it() {
    let of = |happens: Happens, tid: i64| happens.with([("tid", Int(tid)), ("pid", Int(tid))]);
    let [enter, leave] = read(3, 10);
    let all = [
        of(switch(0, 10), 0),
        of(switch(0, 11).on(1), 0),
        of(enter.clone(), 10),
        of(enter.on(1), 11),
        of(leave.clone(), 10),
        of(leave.on(1), 11),
        of(switch(11, 0).on(1), 11),
    ];
    let found = analysis(&all, &[(1, 4, 5)]);
    let answer = stitch::syscalls(&found.summary);
    let rows = answer.processes.iter().flat_map(|process| {
        process.syscalls.iter().map(|call| (process.pid, call.calls, call.uncertain))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    assert_eq!(rows, [(10, 1, 0), (11, 0, 1)]);
    assert_eq!((answer.loss.events_discarded, answer.loss.uncertain_calls), (5, 1));
}
