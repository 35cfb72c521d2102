//! What is compressed is read as before by every command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::process::THROUGHLINE;
use crate::read::{stderr, stdout, trace};

fn throughline(arguments: &[&str], path: &Path) -> Output {
    Command::new(THROUGHLINE).args(arguments).arg(path).env("TZ", "UTC").output().unwrap()
}

/// What each command that reads says of a folder: its output, and the last line beside it.
fn answers(folder: &Path) -> Vec<(String, Option<i32>, Vec<u8>)> {
    let output = tempfile::tempdir().unwrap();
    let converted = output.path().join("converted");
    let to = ["ctf", "convert", "--to", "2", "-o", converted.to_str().unwrap()];
    let commands: [&[&str]; 7] = [
        &["read"],
        &["read", "--format", "json"],
        &["read", "--count"],
        &["ctf", "info"],
        &["ctf", "info", "--format", "json"],
        &["ctf", "check"],
        &to,
    ];
    let mut answers: Vec<_> = commands
        .iter()
        .map(|arguments| {
            let output = throughline(arguments, folder);
            (arguments.join(" "), output.status.code(), output.stdout)
        })
        .collect();
    answers.last_mut().unwrap().0 = "convert".to_owned();
    for file in files(&converted) {
        let name = file.strip_prefix(&converted).unwrap().display().to_string();
        // Converting makes UUIDs of nothing but what is there.
        answers.push((name, None, fs::read(&file).unwrap()));
    }
    answers
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let place = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
}

#[test]
fn every_command_says_the_same_of_a_compressed_trace() {
    let made = trace();
    let real = ["kernel-uneven-1cpu", "ust-lost-events"].map(testkit::unpacked_trace);
    let mut compressed = 0;
    for from in [made.path().to_owned()].into_iter().chain(real.into_iter().flatten()) {
        let folder = tempfile::tempdir().unwrap();
        copy(&from, folder.path());
        let before = answers(folder.path());
        let done = throughline(&["ctf", "compress", "--without-manifest"], folder.path());
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        compressed += usize::from(
            files(folder.path()).iter().any(|it| it.extension().is_some_and(|it| it == "zst")),
        );
        for (before, after) in before.iter().zip(answers(folder.path())) {
            assert_eq!(before.0, after.0);
            assert!(*before == after, "{} differs of {}", before.0, from.display());
        }
        let undone = throughline(&["ctf", "decompress", "--without-manifest"], folder.path());
        assert_eq!(undone.status.code(), Some(0), "{}", stderr(&undone));
        for file in files(&from) {
            let now = folder.path().join(file.strip_prefix(&from).unwrap());
            assert!(fs::read(now).unwrap() == fs::read(file).unwrap());
        }
    }
    assert!(compressed > 0 || testkit::shared_dir().is_none());
}

#[test]
fn what_is_not_known_to_be_complete_is_left_alone() {
    let trace = trace();
    let before = files(trace.path());
    let refused = throughline(&["ctf", "compress"], trace.path());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--without-manifest"), "{}", stderr(&refused));
    assert_eq!(stdout(&refused), "");
    assert_eq!(files(trace.path()), before);
    let wrong = throughline(&["ctf", "compress", "--method", "zstd:99"], trace.path());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("from 1 to 19"), "{}", stderr(&wrong));
}
