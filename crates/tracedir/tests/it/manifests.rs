//! A sealed chunk and its manifest.

use std::fs;
use std::path::Path;

use tracedir::manifest::{
    Contents, Difference, MANIFEST, MANIFEST_FORMAT, Manifest, Origin, SealedBy,
};
use tracedir::{Checked, Problem, check};

/// Makes `folder` a sealed chunk.
pub(crate) fn seal(folder: &Path) -> Manifest {
    let manifest = Manifest {
        format: MANIFEST_FORMAT.to_owned(),
        origin: Origin {
            host: "h".to_owned(),
            session: "s".to_owned(),
            chunk: 0,
            folder: "h/s".to_owned(),
            begin_s: None,
            end_s: None,
            sealed_by: SealedBy::Closed,
        },
        contents: Contents::of(folder, None).unwrap(),
        losses: vec![],
    };
    fs::write(folder.join(Manifest::name_in(folder)), manifest.to_json()).unwrap();
    manifest
}

/// What is wrong with a folder beyond `known` remarks: files and differences from manifests.
pub(crate) fn differences(folder: &Path) -> (Checked, Vec<(String, Difference)>) {
    let mut found = Vec::new();
    let checked = check(&[folder], &mut |remark| {
        if let Problem::Manifest(difference) = remark.problem {
            let path = remark.path.strip_prefix(folder).unwrap();
            found.push((path.display().to_string(), difference));
        }
    });
    (checked.unwrap(), found)
}

/// A chunk of recorded traces, each in a folder of its own.
pub(crate) fn chunk() -> Option<tempfile::TempDir> {
    let chunk = tempfile::tempdir().unwrap();
    for name in ["kernel-uneven-1cpu", "ust-lost-events"] {
        let Some(trace) = testkit::unpacked_trace(name) else { continue };
        copy(&trace, &chunk.path().join(name));
    }
    if fs::read_dir(chunk.path()).unwrap().next().is_none() {
        testkit::skip("no shared traces");
        return None;
    }
    Some(chunk)
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_sealed_chunk_is_what_its_manifest_says_until_a_byte_changes() {
    let Some(chunk) = chunk() else { return };
    let before = differences(chunk.path()).0;
    let manifest = seal(chunk.path());
    let (checked, found) = differences(chunk.path());
    assert_eq!(found, []);
    // The manifest is no trace, and costs no other finding.
    assert_eq!(checked, Checked { manifests: 1, ..before });
    // Every packet that reading meets is in the manifest.
    assert_eq!(manifest.contents.totals.packets, checked.packets);

    let stream = manifest.contents.streams.first().unwrap();
    let name = stream.files.first().unwrap();
    let path = chunk.path().join(name);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(differences(chunk.path()).1, [(name.clone(), Difference::Changed)]);
}

#[test]
fn a_manifest_that_counts_otherwise_is_found() {
    let Some(chunk) = chunk() else { return };
    let mut manifest = seal(chunk.path());
    let stream = manifest.contents.streams.first_mut().unwrap();
    let name = stream.files.first().unwrap().clone();
    stream.packets += 1;
    stream.lost.event_records += 5;
    let expected = [
        ("packets", i128::from(stream.packets)),
        ("lost event records", i128::from(stream.lost.event_records)),
    ];
    fs::write(chunk.path().join(MANIFEST), manifest.to_json()).unwrap();
    let found = differences(chunk.path()).1;
    let told: Vec<_> = found
        .iter()
        .map(|(path, difference)| match difference {
            Difference::Stream { what, expected, found } => {
                assert_eq!(path, &name);
                let expected = expected.unwrap();
                assert!(*found < expected);
                (*what, expected)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn a_trace_that_is_a_chunk_by_itself_keeps_its_manifest_out_of_sight() {
    let Some(trace) = testkit::unpacked_trace("kernel-uneven-1cpu") else {
        testkit::skip("no shared trace kernel-uneven-1cpu");
        return;
    };
    let chunk = tempfile::tempdir().unwrap();
    let metadata = find_trace(&trace);
    copy(&metadata, chunk.path());
    let before = differences(chunk.path()).0;
    seal(chunk.path());
    assert!(!chunk.path().join(MANIFEST).exists());
    assert_eq!(differences(chunk.path()), (Checked { manifests: 1, ..before }, vec![]));
}

/// The folder with the metadata at or below a folder.
fn find_trace(folder: &Path) -> std::path::PathBuf {
    tracedir::discover(&[folder]).unwrap().remove(0).path
}
