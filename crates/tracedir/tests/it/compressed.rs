//! Chunks whose data streams are compressed are read like plain ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::{TimeRange, Timestamp};
use tracedir::manifest::{Contents, Difference, Manifest};
use tracedir::seekable::{Level, Seekable, SeekableError};
use tracedir::{
    Follow, FollowOptions, Item, Recording, check, compress_chunk, compress_loose, compressed_path,
    decompress_chunk, decompress_loose, discover,
};

use crate::made::{Trace, packet};
use crate::manifests::{chunk, copy, differences, seal};

const GO_ON: &dyn Fn() -> bool = &|| true;

/// All that reading gives, one line each, and what could not be read.
fn read(folder: &Path, range: TimeRange) -> (Vec<String>, Vec<String>) {
    let recording = Recording::open(&[folder]).unwrap();
    let mut merged = recording.merged(range);
    let mut items = Vec::new();
    while let Some(item) = merged.next_item() {
        items.push(match item {
            Item::Event(event) => format!(
                "{} {} {} {} {}",
                event.timestamp.nanos(),
                event.stream_index,
                event.packet_index,
                event.record.name(),
                event.record.begin_bits(),
            ),
            Item::Loss(loss) => {
                format!(
                    "{} {} {:?} {}",
                    loss.begin.nanos(),
                    loss.stream_index,
                    loss.kind,
                    loss.count
                )
            }
        });
    }
    let findings = recording.findings().kept().iter().chain(merged.findings().kept());
    (items, findings.map(ToString::to_string).collect())
}

/// All that `check` says, with paths below the folder.
fn remarks(folder: &Path) -> Vec<String> {
    let mut remarks = Vec::new();
    let shown = format!("{}/", folder.display());
    check(&[folder], &mut |remark| remarks.push(remark.to_string().replace(&shown, ""))).unwrap();
    remarks
}

/// The middle third of a recording.
fn middle(folder: &Path) -> TimeRange {
    let recording = Recording::open(&[folder]).unwrap();
    let covers = recording.covers();
    let begin = covers.iter().filter_map(|cover| cover.begin).min().unwrap().nanos();
    let end = covers.iter().filter_map(|cover| cover.end).max().unwrap().nanos();
    let at = |part: i64| Timestamp::from_nanos(begin + (end - begin) / 3 * part);
    TimeRange { begin: at(1), end: at(2) }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let folders = discover(&[folder]).unwrap();
    folders.into_iter().flat_map(|folder| folder.stream_files).map(|file| file.path).collect()
}

#[test]
fn real_traces_give_the_same_compressed() {
    let names = [
        "kernel-uneven-1cpu",
        "ust-lost-events",
        "ust-statedump",
        "kernel-basic-lttng210",
        "ust-cyg-profile",
    ];
    let mut compared = 0;
    for name in names {
        let Some(shared) = testkit::unpacked_trace(name) else { continue };
        let folder = tempfile::tempdir().unwrap();
        copy(&shared, folder.path());
        let range = middle(folder.path());
        let answers = || (read(folder.path(), TimeRange::ALL), read(folder.path(), range));
        let (before, found) = (answers(), remarks(folder.path()));
        let contents = Contents::of(folder.path(), None).unwrap();
        assert!(!before.0.0.is_empty());

        let done = compress_loose(&[folder.path()], Level::default(), GO_ON).unwrap();
        assert!(done.files > 0 && done.compressed_bytes < done.content_bytes, "{name}: {done:?}");
        let plain = files(folder.path()).iter().filter(|path| path.exists()).count() as u64;
        assert_eq!(plain, done.left, "{name}");
        assert!(answers() == before, "{name} is read otherwise");
        assert_eq!(remarks(folder.path()), found, "{name}");
        let mut compressed = Contents::of(folder.path(), None).unwrap();
        let marked = compressed.files.iter_mut().filter_map(|file| file.compressed.take()).count();
        assert_eq!(marked as u64, done.files);
        assert!(compressed == contents, "{name}: what a manifest would say");

        let back = decompress_loose(&[folder.path()], GO_ON).unwrap();
        assert_eq!((back.files, back.content_bytes), (done.files, done.content_bytes));
        assert!(Contents::of(folder.path(), None).unwrap() == contents, "{name} and back");
        compared += 1;
    }
    if compared == 0 {
        testkit::skip("no shared traces");
    }
}

#[test]
fn a_sealed_chunk_that_is_compressed_is_what_its_manifest_says() {
    let Some(chunk) = chunk() else { return };
    let sealed = seal(chunk.path());
    let date = fs::metadata(chunk.path().join("manifest.json")).unwrap().modified().unwrap();
    let done = compress_chunk(chunk.path(), Level::default(), GO_ON).unwrap();
    assert!(done.files > 0);
    assert_eq!(differences(chunk.path()).1, []);
    let manifest = Manifest::read(chunk.path()).unwrap().unwrap();
    assert_eq!(manifest.contents.totals, sealed.contents.totals);
    let stored = fs::metadata(chunk.path().join("manifest.json")).unwrap().modified().unwrap();
    assert_eq!(stored, date, "it was sealed when it was");
    let mut bytes = 0;
    for (now, before) in manifest.contents.files.iter().zip(&sealed.contents.files) {
        assert_eq!(
            (&now.path, now.bytes, &now.sha256),
            (&before.path, before.bytes, &before.sha256)
        );
        let stored = fs::metadata(chunk.path().join(now.stored_path().unwrap())).unwrap().len();
        assert_eq!(stored, now.stored_bytes());
        bytes += stored;
    }
    assert!(bytes < sealed.contents.totals.bytes);
    // Again changes nothing.
    assert_eq!(compress_chunk(chunk.path(), Level::default(), GO_ON).unwrap().files, 0);

    // Compressed again otherwise, it is still the same recording, and not the file of the manifest.
    let file = manifest.contents.files.iter().find(|file| file.compressed.is_some()).unwrap();
    let path = compressed_path(&chunk.path().join(&file.path));
    let content = zstd_d(&fs::read(&path).unwrap());
    let ends = [content.len() as u64].into_iter().filter(|len| *len > 0);
    let mut other = Vec::new();
    let level = "zstd:1".parse().unwrap();
    let ends = ends.flat_map(|len| (1..=len.div_ceil(65_536)).map(move |n| (n * 65_536).min(len)));
    tracedir::seekable::compress(&mut &*content, ends, level, &mut other, GO_ON).unwrap();
    fs::write(&path, other).unwrap();
    assert_eq!(differences(chunk.path()).1, [(file.path.clone(), Difference::Recompressed)]);

    decompress_chunk(chunk.path(), GO_ON).unwrap();
    assert_eq!(differences(chunk.path()).1, []);
    assert!(Manifest::read(chunk.path()).unwrap().unwrap() == sealed);
}

/// As everybody's zstd reads it.
fn zstd_d(file: &[u8]) -> Vec<u8> {
    let table = Seekable::open(file, file.len() as u64).unwrap();
    let mut content = vec![0; usize::try_from(table.table().content_len()).unwrap()];
    let mut filled = 0;
    while filled < content.len() {
        filled += table.read_some_at(&mut content[filled..], filled as u64).unwrap();
    }
    content
}

#[test]
fn the_command_zstd_reads_what_is_written() {
    if !testkit::is_installed("zstd") {
        return testkit::skip("zstd is not installed");
    }
    let Some(chunk) = chunk() else { return };
    let before: Vec<_> =
        files(chunk.path()).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    compress_loose(&[chunk.path()], Level::default(), GO_ON).unwrap();
    let mut compared = 0;
    for (content, path) in before.into_iter().filter(|(_, path)| !path.exists()) {
        let output = std::process::Command::new("zstd")
            .arg("-dc")
            .arg(compressed_path(&path))
            .output()
            .unwrap();
        assert!(output.status.success() && output.stdout == content, "{}", path.display());
        compared += 1;
    }
    assert!(compared > 0);
}

/// Every state that a kill leaves while a chunk is compressed, by the step at which it happens.
#[test]
fn a_kill_while_a_chunk_is_compressed_costs_nothing() {
    let Some(chunk) = chunk() else { return };
    let sealed = seal(chunk.path());
    let before = read(chunk.path(), TimeRange::ALL);
    let whole = tempfile::tempdir().unwrap();
    copy(chunk.path(), whole.path());
    compress_chunk(whole.path(), Level::default(), GO_ON).unwrap();
    let compressed = Manifest::read(whole.path()).unwrap().unwrap();
    let names: Vec<&str> = compressed
        .contents
        .files
        .iter()
        .filter(|file| file.compressed.is_some())
        .map(|file| &*file.path)
        .collect();
    assert!(names.len() >= 2);
    let zst = |folder: &Path, name: &str| compressed_path(&folder.join(name));
    let hidden = |folder: &Path, name: &str| {
        let path = zst(folder, name);
        path.with_file_name(format!(".{}", path.file_name().unwrap().to_str().unwrap()))
    };
    let steps: [&dyn Fn(&Path); 5] = [
        // In the middle of the first file.
        &|folder| {
            let bytes = fs::read(zst(whole.path(), names[0])).unwrap();
            fs::write(hidden(folder, names[0]), &bytes[..bytes.len() / 2]).unwrap();
        },
        // The first is whole, the second is not.
        &|folder| {
            fs::copy(zst(whole.path(), names[0]), zst(folder, names[0])).unwrap();
            fs::write(hidden(folder, names[1]), b"").unwrap();
        },
        // All are whole.
        &|folder| {
            for name in &names {
                fs::copy(zst(whole.path(), name), zst(folder, name)).unwrap();
            }
        },
        // The manifest says so.
        &|folder| {
            for name in &names {
                fs::copy(zst(whole.path(), name), zst(folder, name)).unwrap();
            }
            fs::write(folder.join("manifest.json"), compressed.to_json()).unwrap();
        },
        // Some of the plain ones are gone.
        &|folder| {
            for name in &names {
                fs::copy(zst(whole.path(), name), zst(folder, name)).unwrap();
            }
            fs::write(folder.join("manifest.json"), compressed.to_json()).unwrap();
            fs::remove_file(folder.join(names[0])).unwrap();
        },
    ];
    for (number, step) in steps.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        copy(chunk.path(), folder.path());
        step(folder.path());
        let shown = |(items, findings): &(Vec<String>, Vec<String>), at: &Path| {
            let findings = findings.iter().map(|it| it.replace(&at.display().to_string(), ""));
            (items.clone(), findings.collect::<Vec<_>>())
        };
        let expected = shown(&before, chunk.path());
        let same = |folder: &Path| shown(&read(folder, TimeRange::ALL), folder) == expected;
        assert!(same(folder.path()), "step {number}");
        assert_eq!(differences(folder.path()).1, [], "step {number}");
        compress_chunk(folder.path(), Level::default(), GO_ON).unwrap();
        assert!(same(folder.path()), "step {number}, finished");
        assert_eq!(Manifest::read(folder.path()), Ok(Some(compressed.clone())), "step {number}");
        for name in &names {
            assert!(!folder.path().join(name).exists() && !hidden(folder.path(), name).exists());
        }
        assert_eq!(sealed.contents.totals, compressed.contents.totals);
    }
}

#[test]
fn what_is_told_to_stop_stops_and_leaves_what_was_there() {
    let Some(chunk) = chunk() else { return };
    seal(chunk.path());
    let error = compress_chunk(chunk.path(), Level::default(), &|| false).unwrap_err();
    let tracedir::Error::Io { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::Interrupted);
    assert_eq!(differences(chunk.path()).1, []);
    assert!(files(chunk.path()).iter().all(|path| path.exists()));
}

#[test]
fn only_what_the_manifest_says_is_compressed_of_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let times: Vec<u64> = (1..2000).collect();
    let path = Trace::default().write(folder.path(), "ch", &[packet(0, &times)]);
    seal(folder.path());
    // It is not what was sealed any more: its sums would not be true.
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let done = compress_chunk(folder.path(), Level::default(), GO_ON).unwrap();
    assert_eq!((done.files, done.left), (0, 1));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let loose = tempfile::tempdir().unwrap();
    Trace::default().write(loose.path(), "ch", &[packet(0, &times)]);
    let error = compress_chunk(loose.path(), Level::default(), GO_ON).unwrap_err();
    assert!(matches!(error, tracedir::Error::NoManifest { problem: None, .. }), "{error}");
}

#[test]
fn a_recording_that_is_compressed_while_it_is_followed_is_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::default();
    let times = |number: u64| (number * 1000..number * 1000 + 1000).collect::<Vec<_>>();
    let packets: Vec<_> = (0..3).map(|number| packet(number, &times(number))).collect();
    let path = trace.write(folder.path(), "ch", &packets[..2]);
    let mut follow =
        Follow::new(&[folder.path()], FollowOptions { grace_ns: 1, ..FollowOptions::default() });
    let poll = |follow: &mut Follow, now: i64| {
        follow.poll(Timestamp::from_nanos(now)).unwrap();
        let mut count = 0;
        while follow.next_item().is_some() {
            count += 1;
        }
        count
    };
    assert_eq!(poll(&mut follow, 0), 2000);
    fs::write(&path, trace.stream(&packets)).unwrap();
    compress_loose(&[folder.path()], Level::default(), GO_ON).unwrap();
    assert!(!path.exists());
    assert_eq!(poll(&mut follow, 1) + poll(&mut follow, 5), 1000);
    follow.finish(Timestamp::from_nanos(9)).unwrap();
    assert!(follow.next_item().is_none());
    assert!(follow.findings().is_empty(), "{:?}", follow.findings());
}

#[test]
fn a_damaged_frame_costs_its_packets_and_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    // Frames of some 200 packets each.
    let packets: Vec<_> = (0..1000_u64)
        .map(|number| packet(number, &(0..100).map(|k| number * 100 + k).collect::<Vec<_>>()))
        .collect();
    let path = Trace::default().write(folder.path(), "ch", &packets);
    compress_loose(&[folder.path()], Level::default(), GO_ON).unwrap();
    let compressed = compressed_path(&path);
    let mut bytes = fs::read(&compressed).unwrap();
    let table = Seekable::open(&*bytes, bytes.len() as u64).unwrap().table().clone();
    assert!(table.frames() > 2);
    let second = table.frame(1).unwrap();
    let at = usize::try_from(second.offset).unwrap() + second.len / 2;
    bytes[at] ^= 0x10;
    fs::write(&compressed, &bytes).unwrap();
    let (items, findings) = read(folder.path(), TimeRange::ALL);
    assert!(!items.is_empty() && items.len() < 100_000, "{}", items.len());
    let place = format!("frame 1 at byte {} of the compressed file", second.offset);
    assert!(findings.len() == 1 && findings[0].contains(&place), "{findings:?}");
    assert!(findings[0].contains("/ch: packet at byte"), "{findings:?}");
    assert!(remarks(folder.path()).iter().any(|remark| remark.contains(&place)));
}

#[test]
fn a_file_that_declares_what_it_does_not_hold_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::default();
    trace.write(folder.path(), "good", &[packet(0, &[1, 2])]);
    let frame = zstd_of_zeros();
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let file = |content_len: u32, frames: u32| {
        let mut file = frame.clone();
        file.extend(words(&[
            0x184D_2A5E,
            17,
            u32::try_from(frame.len()).unwrap(),
            content_len,
            frames,
        ]));
        file.push(0);
        file.extend(words(&[0x8F92_EAB1]));
        file
    };
    for (bytes, told) in [
        (file(u32::MAX, 1), "frame 0 at byte 0 of the compressed file announces 4294967295 bytes"),
        // Its beginning is zeros, which no packet begins with; more is not decompressed.
        (file(1000, 1), "magic is 0x0"),
        (file(1000, u32::MAX), "the seek table announces 4294967295 frames"),
        (frame.clone(), "its last 9 bytes are no end of a zstd seek table"),
    ] {
        let path = folder.path().join("bomb.zst");
        fs::write(&path, &bytes).unwrap();
        let ((items, findings), most) =
            testkit::alloc::most_held(|| read(folder.path(), TimeRange::ALL));
        assert_eq!(items.len(), 2, "the other stream is read");
        assert!(findings.len() == 1 && findings[0].contains(told), "{findings:?}");
        assert!(findings[0].contains("bomb: packet at byte 0"), "{findings:?}");
        assert!(most < 4 << 20, "{most} bytes held");
    }
}

/// 256 MiB of zeros in one frame of 8 KiB.
fn zstd_of_zeros() -> Vec<u8> {
    // Magic; window of 128 KiB, no content size, no checksum; blocks of one repeated byte, the last one marked.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38];
    for block in 0..2048_u32 {
        let header = (128 << 10) << 3 | 1 << 1 | u32::from(block == 2047);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

#[test]
fn a_stream_file_that_is_only_called_so_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    Trace::default().write(folder.path(), "ch.zst", &[packet(0, &[1, 2, 3])]);
    assert_eq!(read(folder.path(), TimeRange::ALL).0.len(), 3);
    assert_eq!(files(folder.path()), [folder.path().join("ch.zst")]);
}

#[test]
fn errors_of_compressed_files_are_values() {
    let error = Seekable::open(&b"too short"[..3], 3).unwrap_err();
    assert_eq!(error.downcast::<SeekableError>().unwrap(), SeekableError::NoTable);
}
