//! Streams and chunks as tracers and people leave them: equal times, times that go back, chunks given twice.

use std::fs;
use std::path::Path;

use mapper::{Analysis, Options, analyse};

use crate::compare::{answers, same};
use crate::written::Is::{Comm, Int};
use crate::written::{Happens, Piece, analysis, bytes_read, event, switch, write, write_piece};

fn read(fd: i64, ret: i64) -> [Happens; 2] {
    [
        event("syscall_entry_read", [("fd", Int(fd))]),
        event("syscall_exit_read", [("ret", Int(ret))]),
    ]
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
}

fn of<P: AsRef<Path>>(paths: &[P]) -> Analysis {
    analyse(paths, &Options::default()).unwrap()
}

/// A thread of CPU 1 closes what one of CPU 0 reads at the same time: the order is that of the streams, whatever is cut.
#[test]
fn events_of_two_cpus_at_one_time_come_in_the_order_of_their_streams() {
    let dump = |tid| {
        let fields = [("tid", Int(tid)), ("pid", Int(10)), ("name", Comm("process"))];
        event("lttng_statedump_process_state", fields)
    };
    let file = [("pid", Int(10)), ("fd", Int(3)), ("filename", crate::written::Is::Text("/a"))];
    let [enter, leave] = read(3, 10);
    let close = event("syscall_entry_close", [("fd", Int(3))]);
    let order = |reads_on, closes_on| {
        let all = [
            dump(10),
            dump(11),
            event("lttng_statedump_file_descriptor", file),
            switch(0, 10).on(reads_on),
            switch(0, 11).on(closes_on),
            enter.clone().on(reads_on).at(7_000),
            close.clone().on(closes_on).at(7_000),
            leave.clone().on(reads_on).at(8_000),
        ];
        bytes_read(&analysis(&all, &[]))
    };
    assert_eq!(order(0, 1), named(&[("/a", 10)]));
    assert_eq!(order(1, 0), named(&[("(fd 3)", 10)]));
}

#[test]
fn a_time_that_goes_back_in_its_stream_is_told_and_the_order_of_the_stream_stands() {
    let [enter, leave] = read(3, 10);
    let all = [switch(0, 10), enter.at(2_500), leave.at(2_200), switch(10, 0)];
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &all, &[]);
    let found = of(&[folder.path()]);
    assert_eq!(bytes_read(&found), named(&[("(fd 3)", 10)]));
    let loss = stitch::loss(&found.summary);
    assert_eq!((loss.backward_times, loss.calls_without_begin), (1, 0));
}

/// Two chunks of one session, cut in the middle of a call; the second begins with this count of discarded events.
fn two_chunks(session: &Path, discarded: u64) -> [std::path::PathBuf; 2] {
    let [enter, leave] = read(3, 10);
    let all = [switch(0, 10), enter, leave, switch(10, 0)];
    let piece =
        |first, end, sequence_number, discarded| Piece { first, end, sequence_number, discarded };
    let chunks = [
        ("20261120T164408+0000-20261120T164409+0000-0", piece(0, 2, 0, 5)),
        ("20261120T164409+0000-20261120T164410+0000-1", piece(2, 4, 1, discarded)),
    ];
    chunks.map(|(name, piece)| {
        let chunk = session.join("archives").join(name);
        fs::create_dir_all(chunk.join("kernel")).unwrap();
        write_piece(&chunk.join("kernel"), &all, &[], piece);
        chunk
    })
}

#[test]
fn a_chunk_s_first_count_of_discarded_events_is_a_loss_only_above_the_last_of_the_chunk_before() {
    for (discarded, lost, uncertain) in [(5, 0, 0), (8, 3, 1)] {
        let session = tempfile::tempdir().unwrap();
        let chunks = two_chunks(session.path(), discarded);
        let answer = stitch::syscalls(&of(&[session.path()]).summary);
        assert_eq!(answer.loss.events_discarded, lost);
        assert_eq!(answer.loss.uncertain_calls + answer.loss.without_thread, uncertain);
        // Alone, a chunk does not know what was lost before it.
        assert_eq!(stitch::loss(&of(&chunks[1..]).summary).events_discarded, 0);
    }
}

#[test]
fn a_chunk_without_events_changes_nothing() {
    let [enter, leave] = read(3, 10);
    let all = [switch(0, 10), enter, leave, switch(10, 0)];
    let piece = |first, end, sequence_number| Piece { first, end, sequence_number, discarded: 0 };
    let session = tempfile::tempdir().unwrap();
    for (name, piece) in [("a", piece(0, 2, 0)), ("b", piece(2, 2, 1)), ("c", piece(2, 4, 2))] {
        let folder = session.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        write_piece(&folder, &all, &[], piece);
    }
    let found = of(&[session.path()]);
    assert_eq!(found.findings, Vec::<String>::new());
    assert_eq!(bytes_read(&found), named(&[("(fd 3)", 10)]));
    assert_eq!(stitch::loss(&found.summary).calls_without_begin, 0);
}

#[test]
fn a_chunk_that_is_given_twice_counts_once_and_is_named() {
    let session = tempfile::tempdir().unwrap();
    let chunks = two_chunks(session.path(), 5);
    let once = of(&[session.path()]);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(chunks[1].join("kernel")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    for paths in [[session.path(), &copy], [&copy, session.path()]] {
        let twice = of(&paths);
        let (expected, found) = (answers(&once.summary), answers(&twice.summary));
        same(&expected.0, &found.0);
        same(&expected.1, &found.1);
        let [finding] = twice.findings.as_slice() else { panic!("{:?}", twice.findings) };
        assert!(finding.contains("copy") && finding.contains("twice"), "{finding}");
    }
}

#[test]
fn a_late_free_of_a_dead_thread_ends_nothing_of_the_one_that_has_its_number_since() {
    let free = event("sched_process_free", [("comm", Comm("old")), ("tid", Int(20))]);
    let fields = [("child_comm", Comm("child")), ("child_tid", Int(20)), ("child_pid", Int(20))];
    let born = event("sched_process_fork", fields);
    let exits = event("sched_process_exit", [("comm", Comm("old")), ("tid", Int(20))]);
    let file = [("pid", Int(20)), ("fd", Int(3)), ("filename", crate::written::Is::Text("/old"))];
    let [enter, leave] = read(3, 10);
    let all = [
        event("lttng_statedump_file_descriptor", file),
        switch(0, 20),
        enter.clone(),
        leave.clone(),
        exits,
        switch(20, 10),
        born,
        switch(10, 20),
        enter,
        free,
        leave,
    ];
    let found = analysis(&all, &[]);
    assert_eq!(bytes_read(&found), named(&[("(fd 3)", 10), ("/old", 10)]));
    assert_eq!(stitch::loss(&found.summary).calls_without_begin, 0);
}
