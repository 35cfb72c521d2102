//! Interpreters that are installed.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

use std::fs;
use std::path::PathBuf;

use cpython::{FrameKind, Interpreter, ToldBy, Version};
use object::{Object, ObjectSymbol};
use unwind::Image;

/// CPython of Debian, and of pyenv.
fn files() -> Vec<PathBuf> {
    let versions = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = versions.and_then(|versions| fs::read_dir(versions).ok()).into_iter().flatten();
    let folders = versions.flatten().map(|version| version.path().join("lib"));
    let folders = folders.chain(["/usr/bin".into(), "/usr/lib/x86_64-linux-gnu".into()]);
    let all = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let files = all.map(|it| it.path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = name.strip_prefix("lib").unwrap_or(&name);
        let minor = name.strip_prefix("python3.").map(|it| it.trim_end_matches(".so.1.0"));
        let minor = minor.and_then(|minor| minor.parse::<u8>().ok());
        path.is_file() && !path.is_symlink() && minor.is_some_and(|minor| (8..=14).contains(&minor))
    });
    files.collect()
}

#[test]
fn installed_interpreters_are_known_by_their_versions() {
    let files = files();
    if files.is_empty() {
        testkit::skip("there is no CPython of 3.8 or later");
    }
    for path in files {
        let bytes = fs::read(&path).unwrap();
        let image = Image::parse(&*bytes).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let found = Interpreter::of(&*bytes, &image, &name).unwrap().unwrap();
        let what = format!("{}: {found:x?}", path.display());
        let Version { minor, micro } = found.version;
        assert!(name.contains(&format!("3.{minor}")), "{what}");
        let (told_by, kind) = match minor {
            ..=10 => (ToldBy::Name, FrameKind::Objects),
            11 => (ToldBy::Symbol, FrameKind::Entries),
            12 => (ToldBy::Symbol, FrameKind::Shims),
            _ => (ToldBy::DebugOffsets, FrameKind::Shims),
        };
        assert_eq!((found.told_by, found.layout.kind), (told_by, kind), "{what}");
        assert_eq!(micro.is_some(), minor > 10, "{what}");
        // Under another name it has its section, and from 3.11 on tells its version.
        let other = Interpreter::of(&*bytes, &image, "embeds");
        match minor {
            ..=9 => assert_eq!(other, None),
            10 => assert!(other.unwrap().is_err()),
            _ => assert_eq!(other.unwrap().unwrap(), found),
        }
        let file = object::File::parse(&*bytes).unwrap();
        let mut parts = 0;
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.size() == 0 {
                continue;
            }
            let name = symbol.name().unwrap_or_default();
            let is_part = name.starts_with("_PyEval_EvalFrameDefault");
            assert_eq!(is_part, found.is_evaluation(symbol.address()), "{name} {what}");
            parts += u64::from(is_part);
        }
        assert!(parts > 0, "{what}");
    }
}

#[test]
fn other_programs_are_none() {
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let image = Image::parse(&*bytes).unwrap();
    assert_eq!(Interpreter::of(&*bytes, &image, "python3.11"), None);
    assert_eq!(Interpreter::of(&*bytes, &image, "test"), None);
    assert_eq!(Interpreter::of(&b"#!/bin/sh"[..], &image, "python3.11"), None);
}
