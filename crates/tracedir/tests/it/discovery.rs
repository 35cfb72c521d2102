use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tracedir::{Error, MAX_DEPTH, discover};

fn trace(folder: &Path, files: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    for file in files {
        fs::write(folder.join(file), file).unwrap();
    }
}

fn found(paths: &[&Path], below: &Path) -> Vec<PathBuf> {
    let folders = discover(paths).expect("readable folders");
    folders.iter().map(|found| found.path.strip_prefix(below).unwrap().to_owned()).collect()
}

#[test]
fn lttng_layouts_are_found_below_one_path() {
    let root = tempfile::tempdir().unwrap();
    let chunk = "archives/20261120T164407+0000-20261120T164408+0000-0";
    let folders = [
        format!("{chunk}/kernel"),
        format!("{chunk}/ust/uid/0/64-bit"),
        "host/session-20261120-164407/ust/pid/server-17-20261120-164407".to_owned(),
    ];
    for folder in &folders {
        trace(&root.path().join(folder), &["metadata", "ch_1", "ch_0", ".hidden"]);
        trace(&root.path().join(folder).join("index"), &["ch_0.idx"]);
    }
    fs::create_dir_all(root.path().join("host/empty")).unwrap();
    assert_eq!(found(&[root.path()], root.path()), folders.map(PathBuf::from));
    let first = discover(&[root.path()]).unwrap().remove(0);
    let names: Vec<_> = first.stream_files.iter().map(|f| f.path.file_name().unwrap()).collect();
    assert_eq!(names, ["ch_0", "ch_1"], "sorted, without metadata, hidden files and index");
    assert_eq!((first.metadata_len, first.stream_bytes()), (8, 8));
}

#[test]
fn a_trace_inside_of_a_trace_is_found_and_overlapping_paths_list_it_once() {
    let root = tempfile::tempdir().unwrap();
    trace(root.path(), &["metadata", "s"]);
    trace(&root.path().join("inner"), &["metadata", "s"]);
    let inner = root.path().join("inner");
    let all = [PathBuf::new(), PathBuf::from("inner")];
    assert_eq!(found(&[root.path(), &inner], root.path()), all);
    assert_eq!(found(&[&inner, root.path()], root.path()), all);
}

#[test]
fn links_below_a_path_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    trace(outside.path(), &["metadata", "s"]);
    let root = tempfile::tempdir().unwrap();
    trace(root.path(), &["metadata", "s"]);
    symlink(outside.path(), root.path().join("away")).unwrap();
    symlink(root.path(), root.path().join("round")).unwrap();
    symlink(outside.path().join("s"), root.path().join("t")).unwrap();
    let folders = discover(&[root.path()]).unwrap();
    assert_eq!(folders.len(), 1);
    assert_eq!(folders.first().map(|folder| folder.stream_files.len()), Some(1));
}

#[test]
fn what_cannot_be_listed_is_named() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("missing");
    assert!(matches!(discover(&[&missing]), Err(Error::Io { path, .. }) if path == missing));
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(discover(&[&file]), Err(Error::NotAFolder { path }) if path == file));
    let deep = (0..=MAX_DEPTH).fold(root.path().to_owned(), |path, _| path.join("d"));
    fs::create_dir_all(deep).unwrap();
    assert!(matches!(discover(&[root.path()]), Err(Error::TooDeep { limit: MAX_DEPTH, .. })));
}
