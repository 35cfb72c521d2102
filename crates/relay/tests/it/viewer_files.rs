//! Files that viewers read: those that cannot be opened for a moment, and how many are kept open.

use std::fs;
use std::path::{Path, PathBuf};

use relay::Limits;
use wire::live::viewer::{NextIndex, PacketPiece, Seek};
use wire::live::{CloseAction, PacketIndex, Request};

use crate::client::shown;
use crate::disk::wait_until;
use crate::producer::{index, packet};
use crate::viewer::{Setup, live};

/// The files below a folder that have a name.
fn named(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut found: Vec<PathBuf> = files.into_iter().filter(|path| path.ends_with(name)).collect();
    found.extend(folders.iter().flat_map(|folder| named(folder, name)));
    found.sort();
    found
}

/// How many files below a folder this process has open.
fn open_below(folder: &Path) -> usize {
    let folder = folder.canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    open.filter(|path| path.starts_with(&folder) && path.is_file()).count()
}

#[test]
fn a_packet_whose_file_cannot_be_opened_for_a_moment_is_waited_for_and_none_is_waited_for_long() {
    let mut setup = Setup::with(live(), Limits { open_files: 1, ..Limits::default() });
    let stream = setup.viewed();
    setup.send(0..3);
    setup.rotate(0, 3, CloseAction::MoveToArchives);
    setup.send(3..5);
    let files = named(setup.root.path(), "ch_0");
    let sealed = files.iter().find(|path| path.to_str().unwrap().contains("archives")).unwrap();
    let away = sealed.with_file_name("away");
    let mut viewer = setup.attach(Seek::Beginning);
    let mut late = setup.attach(Seek::Beginning);
    fs::rename(sealed, &away).unwrap();
    for _ in 0..3 {
        assert_eq!(viewer.next(stream).index, NextIndex::NotYet);
    }
    fs::rename(&away, sealed).unwrap();
    assert_eq!(viewer.read_on(stream), [0, 1, 2, 3, 4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);

    fs::rename(sealed, &away).unwrap();
    let mut asked = 0;
    wait_until("the file to be given up", || {
        asked += 1;
        late.next(stream).index != NextIndex::NotYet
    });
    assert!(asked > 3, "given up after {asked}");
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 3);
    assert_eq!(late.read_on(stream), [4]);
    setup.end();
}

#[test]
fn viewers_keep_few_files_open_however_many_streams_they_read() {
    let limits = Limits { open_files: 4, viewed_open_files: 4, ..Limits::default() };
    let mut setup = Setup::with(live(), limits);
    let mut streams = vec![setup.stream];
    streams.extend((1..40).map(|number| setup.producer.stream(&format!("ch_{number}"), 0)));
    setup.producer.ok(&Request::StreamsSent);
    for stream in &streams {
        setup.producer.packet(*stream, 0);
        setup.producer.index(*stream, 0);
    }
    let mut viewer = setup.attach(Seek::Beginning);
    let mut entries = Vec::new();
    for stream in &streams {
        let stream = shown(*stream);
        let NextIndex::Packet(entry) = viewer.next(stream).index else { panic!("a packet") };
        entries.push((stream, entry));
    }
    let open = open_below(setup.root.path());
    assert!(open <= 4 + 4 + 4, "{open} files open");
    for _ in 0..2 {
        for (stream, entry) in &entries {
            let whole = (PacketPiece::Bytes(128), packet(0).to_vec());
            assert_eq!(viewer.bytes(*stream, entry.offset_bytes, 128), whole);
        }
    }
    let open = open_below(setup.root.path());
    assert!(open <= 4 + 4 + 4, "{open} files open");
    setup.end();
}

#[test]
fn a_packet_that_is_shorter_than_its_entry_says_is_passed_over_and_counted() {
    let mut setup = Setup::with(live(), Limits::default());
    let stream = setup.viewed();
    setup.send(0..1);
    for (number, size) in [(1, 4 * 128 * 8), (2, 1 << 30)] {
        setup.producer.packet(setup.stream, number);
        let entry = PacketIndex { packet_size_bits: size, ..index(setup.stream, number) };
        setup.producer.ok(&Request::SendIndex(entry));
    }
    let mut viewer = setup.attach(Seek::Beginning);
    assert_eq!(viewer.read_on(stream), [0]);
    assert_eq!(viewer.next(stream).index, NextIndex::NotYet);
    let totals = setup.relay.totals();
    assert_eq!((totals.packets_short, totals.packets_missed_by_viewers), (2, 2));
    setup.end();
}
