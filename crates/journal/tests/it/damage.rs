//! Files that are cut, changed or gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use journal::{Bounds, Error, Journal, Reason};

use crate::{append, open, take_all};

fn segments(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "seg"));
    paths.sort();
    paths
}

const MIB: Bounds = Bounds {
    bytes: 1 << 20,
    age: std::time::Duration::from_secs(3600),
    read: std::time::Duration::from_secs(3600),
};

#[test]
fn the_last_entry_that_is_whole_is_the_last_wherever_a_file_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    drop(journal.reader("it").unwrap());
    (0..3).for_each(|number| append(&journal, number, 12, 0));
    drop(journal);
    let [path] = &segments(folder.path())[..] else { panic!() };
    let whole = fs::read(path).unwrap();
    let entry = (whole.len() - 56) / 3;
    for cut in (0..whole.len()).rev() {
        let other = tempfile::tempdir().unwrap();
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap().path();
            fs::copy(&file, other.path().join(file.file_name().unwrap())).unwrap();
        }
        fs::write(other.path().join(path.file_name().unwrap()), &whole[..cut]).unwrap();
        let journal = open(other.path(), MIB);
        let left = cut.saturating_sub(56) / entry;
        let mut reader = journal.reader("it").unwrap();
        append(&journal, left as u64, 12, 0);
        assert_eq!(take_all(&mut reader), (0..=left as u64).collect::<Vec<_>>(), "{cut}");
    }
}

#[test]
fn damage_in_the_middle_costs_the_rest_of_its_segment_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), MIB);
    let mut reader = journal.reader("it").unwrap();
    (0..300).for_each(|number| append(&journal, number, 1_000, 0));
    let paths = segments(folder.path());
    assert!(paths.len() > 3);
    let file = OpenOptions::new().write(true).open(&paths[1]).unwrap();
    file.write_all_at(b"\xff\xff", 10_000).unwrap();
    let left = take_all(&mut reader);
    let counts = journal.levels().readers["it"].1.clone();
    assert_eq!(counts.dropped[&Reason::Damaged], 300 - left.len() as u64);
    assert_eq!(counts.acknowledged, left.len() as u64);
    let gap = left.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert_eq!((gap, left.first(), left.last()), (1, Some(&0), Some(&299)));
}

#[test]
fn a_file_that_is_none_of_a_journal_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("00000000000000000000.seg");
    fs::write(&path, [b'x'; 100]).unwrap();
    let error = Journal::open(folder.path(), MIB).unwrap_err();
    assert!(matches!(&error, Error::Damaged { path: at, offset: 0, .. } if *at == path), "{error}");
    fs::remove_file(&path).unwrap();
    let journal = open(folder.path(), MIB);
    fs::write(folder.path().join("it.reader"), "{}").unwrap();
    assert!(matches!(journal.reader("it"), Err(Error::Damaged { .. })));
}
