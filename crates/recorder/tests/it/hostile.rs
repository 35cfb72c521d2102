//! Processes that say what cannot be: they lose what they lied about, and nobody else does.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use recorder::Recorder;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};

use crate::process::{Process, TICKS, WRITERS};
use crate::{lines, start, ticks};

/// Comes to a recorder with a greeting and files.
fn come(folder: &Path, greeting: &[u8], files: &[OwnedFd]) -> OwnedFd {
    let address = SocketAddrUnix::new(folder.join("rings.sock")).unwrap();
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &address).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    }
    sendmsg(&socket, &[IoSlice::new(greeting)], &mut control, SendFlags::NOSIGNAL).unwrap();
    socket
}

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("rings", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

/// Until the recorder has counted this so often.
fn wait_for_trouble(recorder: &Recorder, what: &str, count: u64) {
    while recorder.ledger().troubles.get(what).copied().unwrap_or(0) < count {
        std::thread::yield_now();
    }
}

#[test]
fn who_comes_with_what_are_no_rings_is_counted_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = start(folder.path());
    let greeting = tracepoint::greeting();
    let _strangers = [
        come(folder.path(), b"GET / HTTP/1.1", &[]),
        come(folder.path(), &greeting, &[]),
        come(folder.path(), &greeting, &[file(4096), file(4096)]),
    ];
    wait_for_trouble(&recorder, "greeting", 3);
    // Not sealed, empty, and nobody who says anything at all.
    let _liars = [
        come(folder.path(), &greeting, &[file(1 << 20)]),
        come(folder.path(), &greeting, &[file(0)]),
    ];
    wait_for_trouble(&recorder, "memory_file", 2);
    Process::start("ticks", folder.path()).ends();
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up() && ledger.stored == WRITERS * TICKS, "{ledger:?}");
}

#[test]
fn a_ring_that_lies_is_given_up_and_its_neighbours_are_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = start(folder.path());
    let mut liar = Process::start("liar", folder.path());
    while recorder.ledger().stored < 1 {
        std::thread::yield_now();
    }
    liar.go_on();
    liar.hears();
    wait_for_trouble(&recorder, "ring", 1);
    Process::start("ticks", folder.path()).ends();
    while recorder.ledger().stored < 1 + 100 + WRITERS * TICKS {
        std::thread::yield_now();
    }
    liar.ends();
    let ledger = recorder.stop(Duration::from_secs(30)).unwrap();
    assert!(ledger.adds_up(), "{ledger:?}");
    // Once, and not at each turn.
    assert_eq!(ledger.troubles["ring"], 1);
    assert_eq!(ticks(&lines(folder.path()))[&1].len() as u64, 100 + TICKS);
}
