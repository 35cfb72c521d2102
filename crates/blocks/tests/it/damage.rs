//! Blocks that were damaged, and chunks that are not what they were.

use std::fs;
use std::path::{Path, PathBuf};

use blocks::{BlockId, Error, Threads, analyse};

use crate::jobs::{same_answers, whole};
use crate::recipe::{committed, hands, home, options, run, session};

fn files(kept: &Path) -> Vec<PathBuf> {
    committed(kept).into_keys().map(|name| home(kept).join(name)).collect()
}

fn id(file: &Path) -> BlockId {
    BlockId::from_hex(file.file_stem().unwrap().to_str().unwrap()).unwrap()
}

#[test]
fn every_damaged_block_is_refused_by_name_and_made_again_as_it_was() {
    let (folder, _) = session(20, 60);
    let (traces, kept) = (folder.path().join("traces"), folder.path().join("kept"));
    run(&traces, &options(Some(&kept)));
    let whole = whole(&traces);
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(&kept).into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect();
    for (n, (file, bytes)) in before.iter().enumerate() {
        let mut torn = bytes.clone();
        match n % 3 {
            0 => torn.truncate(n * bytes.len() / before.len()),
            1 => torn[bytes.len() / 2] ^= 1,
            _ => torn.clone_from(&before[(n + 1) % before.len()].1),
        }
        fs::write(file, torn).unwrap();
    }
    let answer = run(&traces, &options(Some(&kept)));
    same_answers(&whole, &answer.analysis);
    assert_eq!(answer.refused.len(), before.len(), "{:?}", answer.refused);
    for (file, bytes) in &before {
        let name = id(file).to_hex();
        assert!(answer.refused.iter().any(|line| line.contains(&name)), "{name}");
        assert_eq!(fs::read(file).unwrap(), *bytes, "{name}");
    }
    assert_eq!(run(&traces, &options(Some(&kept))).refused, Vec::<String>::new());
}

#[test]
fn one_lost_block_costs_itself_and_nothing_else() {
    let (folder, _) = session(20, 60);
    let (traces, kept) = (folder.path().join("traces"), folder.path().join("kept"));
    let first = run(&traces, &options(Some(&kept)));
    let all = files(&kept);
    assert_eq!(all.len() as u64, first.blocks_made);
    for file in all {
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let again = run(&traces, &options(Some(&kept)));
        // One below a block that is there is not missed.
        assert!(again.blocks_made <= 1, "{}", file.display());
        same_answers(&first.analysis, &again.analysis);
        // What is made again is what was there; what was not missed is put back.
        assert!(!file.exists() || fs::read(&file).unwrap() == bytes, "{}", file.display());
        fs::write(&file, bytes).unwrap();
    }
}

#[test]
fn a_chunk_that_changed_is_another_block() {
    let (folder, chunks) = session(6, 60);
    let (traces, kept) = (folder.path().join("traces"), folder.path().join("kept"));
    run(&traces, &options(Some(&kept)));
    let manifest = chunks[3].join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"closed\"", "\"interrupted\"")).unwrap();
    let again = run(&traces, &options(Some(&kept)));
    // The chunk's window and the one before, which ends in it; the merge of all; what is known from there on.
    assert_eq!(again.blocks_made, 2 + 1 + 4);
}

#[test]
fn an_empty_place_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let hands = hands();
    let engine = Threads::new(&hands, None);
    let places = [folder.path().to_owned()];
    let refused = analyse(&places, &options(None), &hands, &engine).unwrap_err();
    assert!(matches!(refused, Error::Mapper(_)), "{refused:?}");
    let places = [PathBuf::from("gs://bucket/x")];
    let refused = analyse(&places, &options(None), &hands, &engine).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "gs://bucket/x: not a folder, or a URL such as file:///folder or s3://bucket/prefix"
    );
}
