//! Copies of sealed chunks: whole or not to be taken for it, and never deleted before.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use relay::{Config, Keep, Target};
use tracedir::manifest::Manifest;

use crate::announce::{Setup, hurry, record};
use crate::disk::{files, manifests, wait_until};
use crate::producer::STREAM_PATH;

fn copy_to(config: &mut Config, folder: &Path) {
    let url = format!("file://{}", folder.display());
    config.announce.targets.push(Target::Copy(url.parse().unwrap()));
    hurry(config);
}

/// Files below a folder, manifests among them.
fn all(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for name in files(folder).into_keys() {
        all.insert(name.clone(), fs::read(folder.join(&name)).unwrap());
    }
    for folder_of in manifests(folder).into_keys() {
        let path = folder_of.join("manifest.json");
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        all.insert(name, fs::read(path).unwrap());
    }
    all
}

#[test]
fn a_copy_is_the_same_files_in_the_same_places() {
    let setup = Setup::new();
    let target = tempfile::tempdir().unwrap();
    let copies = target.path().canonicalize().unwrap().join("copies");
    let relay = setup.start(|config| {
        copy_to(config, &copies);
        config.compress = Some("zstd".parse().unwrap());
    });
    record(&relay, "s", 3);
    wait_until("three copies", || relay.totals().chunks_copied == 3);
    let totals = relay.totals();
    assert_eq!(
        (totals.copies_failed, totals.announcements, totals.files_copied_changed),
        (0, 0, 0)
    );
    setup.runtime.block_on(relay.shutdown());
    let copied = all(&copies);
    assert_eq!(copied, all(&setup.root.path().canonicalize().unwrap()));
    assert_eq!(copied.values().map(Vec::len).sum::<usize>() as u64, totals.bytes_copied);
    assert!(copied.keys().any(|name| name.ends_with("ch_0.zst")), "{:?}", copied.keys());
    assert_eq!(setup.outbox_len(), 0);
}

#[test]
fn half_a_copy_has_no_manifest_and_goes_on_where_it_was() {
    let setup = Setup::new();
    let copies = tempfile::tempdir().unwrap();
    let root = copies.path().canonicalize().unwrap();
    let relay = setup.start(|_| {});
    record(&relay, "s", 1);
    setup.runtime.block_on(relay.shutdown());
    let (folder, manifest) = setup.manifests().pop().unwrap();
    let place = root.join(&manifest.origin.folder);
    // Left by a copy that was killed: one file, half of another, and a manifest of something older.
    let index = place.join(STREAM_PATH).join("index");
    fs::create_dir_all(&index).unwrap();
    let index_file = format!("{STREAM_PATH}/index/ch_0.idx");
    fs::copy(folder.join(&index_file), place.join(&index_file)).unwrap();
    fs::write(place.join(STREAM_PATH).join(".ch_0.part"), b"half").unwrap();
    fs::write(place.join("manifest.json"), b"{}").unwrap();
    // Something is in the way of the stream.
    let stream = place.join(STREAM_PATH).join("ch_0");
    fs::create_dir_all(stream.join("in the way")).unwrap();
    let outbox = setup.root.path().join(".relay/outbox");
    fs::create_dir_all(&outbox).unwrap();
    let url = format!("file://{}", root.display());
    let note = format!("relay-announcement 1\nto copy {url}\nfolder {}\n", manifest.origin.folder);
    fs::write(outbox.join("0"), note).unwrap();

    let relay = setup.start(|config| {
        copy_to(config, &root);
        // Deleted as soon as it may be.
        config.keep = Keep { age: Some(std::time::Duration::ZERO), bytes: None };
    });
    wait_until("three attempts", || relay.totals().copies_failed >= 3);
    assert_eq!(Manifest::read(&place), Ok(None), "what is there is not whole");
    assert!(!place.join("manifest.json").exists());
    assert!(folder.exists(), "nothing is deleted before it was copied");
    fs::remove_dir_all(&stream).unwrap();
    wait_until("the copy", || relay.totals().chunks_copied == 1);
    wait_until("its deletion", || !folder.exists());
    let sent = relay.totals().bytes_copied;
    setup.runtime.block_on(relay.shutdown());
    let copied = all(&root);
    assert_eq!(copied.len(), manifest.contents.files.len() + 1);
    let index_len = fs::metadata(place.join(&index_file)).unwrap().len();
    let len = copied.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(sent, len - index_len, "what was there was not sent again");
}

#[test]
fn a_file_that_changed_after_it_was_sealed_is_copied_as_it_is_and_counted() {
    let setup = Setup::new();
    let copies = tempfile::tempdir().unwrap();
    let relay = setup.start(|_| {});
    record(&relay, "s", 1);
    setup.runtime.block_on(relay.shutdown());
    let (folder, manifest) = setup.manifests().pop().unwrap();
    fs::write(folder.join(STREAM_PATH).join("ch_0"), b"somebody was here").unwrap();
    let outbox = setup.root.path().join(".relay/outbox");
    fs::create_dir_all(&outbox).unwrap();
    let url = format!("file://{}", copies.path().display());
    let note = format!("relay-announcement 1\nto copy {url}\nfolder {}\n", manifest.origin.folder);
    fs::write(outbox.join("0"), note).unwrap();
    let relay = setup.start(|config| copy_to(config, copies.path()));
    wait_until("the copy", || relay.totals().chunks_copied == 1);
    assert_eq!(relay.totals().files_copied_changed, 1);
    setup.runtime.block_on(relay.shutdown());
    let copied = copies.path().join(&manifest.origin.folder).join(STREAM_PATH).join("ch_0");
    assert_eq!(fs::read(copied).unwrap(), b"somebody was here");
}
