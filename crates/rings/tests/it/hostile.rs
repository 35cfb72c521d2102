//! Memory files that lie.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use rings::{Door, Error, Rings};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tracepoint::layout::Shape;

use crate::peer::{App, wait_for};

fn memory_file(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let file = std::fs::File::from(file);
    file.write_all_at(bytes, 0).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

/// The memory file of a real application that has ended, with small rings.
fn real() -> (Vec<u8>, Shape) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.sock");
    let door = Door::bind(&path, false).unwrap();
    let variables = [("TRACEPOINTS_RING_BYTES", "1"), ("TRACEPOINTS_RINGS", "3")];
    let mut app = App::start("threads", &path, &variables);
    let connection = wait_for("an application", || door.accept().unwrap());
    let file = wait_for("its file", || connection.memory_file().unwrap());
    app.hears("written");
    let file = std::fs::File::from(file);
    let shape = Rings::open(&file).unwrap().about().shape;
    let mut bytes = vec![0; usize::try_from(shape.file_len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    app.ends();
    (bytes, shape)
}

/// Reads everything; gives how many items there were, and how many rings were given up.
fn read_all(file: OwnedFd) -> Result<(usize, usize), Error> {
    let rings = Rings::open(file)?;
    let (mut items, mut damaged) = (0, 0);
    for place in 0..rings.touched() {
        match read_ring(&rings, place) {
            Ok(found) => items += found,
            Err(_) => damaged += 1,
        }
    }
    Ok((items, damaged))
}

fn read_ring(rings: &Rings, place: u32) -> Result<usize, Error> {
    let Some(mut ring) = rings.ring(place)? else { return Ok(0) };
    let mut found = 0;
    // More often than a ring has blocks.
    for _ in 0..20 {
        let batch = rings.read(&mut ring, 4096)?;
        let mut items = batch.items();
        let end = loop {
            match items.next_item() {
                Ok(Some(rings::Item::Record(record))) => found += record.values().count().min(1),
                Ok(Some(rings::Item::Dropped { .. })) => {}
                Ok(None) => break Ok(items.cursor()),
                Err(wrong) => break Err((items.cursor(), wrong)),
            }
        };
        let cursor = end.map_err(|(at, wrong)| ring.damaged(at, wrong))?;
        rings.release(&mut ring, cursor);
    }
    Ok(found)
}

#[test]
fn files_that_could_be_made_shorter_or_are_something_else_are_refused() {
    let (bytes, _) = real();
    let open = |bytes: &[u8], seals| Rings::open(memory_file(bytes, seals)).map(drop);
    assert!(open(&bytes, SealFlags::SHRINK).is_ok());
    assert!(matches!(open(&bytes, SealFlags::GROW), Err(Error::NotSealed)));
    assert!(matches!(open(&[0; 8192], SealFlags::SHRINK), Err(Error::NotRings)));
    assert!(matches!(open(&bytes[..7], SealFlags::SHRINK), Err(Error::NotRings)));
    let short = open(&bytes[..bytes.len() - 1], SealFlags::SHRINK);
    assert!(matches!(short, Err(Error::Header { field: "length", .. })), "{short:?}");
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        open(&bytes, SealFlags::SHRINK)
    };
    assert!(matches!(with(8, 9), Err(Error::Version { version: 9, .. })));
    assert!(matches!(with(16, 1), Err(Error::Header { field: "ring length", .. })));
    assert!(matches!(with(32, 7), Err(Error::Header { field: "mode", value: 7 })));
    assert!(matches!(with(36, 7), Err(Error::Header { field: "clock", value: 7 })));
    let pipe = rustix::pipe::pipe().unwrap();
    assert!(matches!(Rings::open(pipe.0), Err(Error::Map(_))));
}

#[test]
fn a_ring_that_lies_is_given_up_and_the_others_are_read() {
    let (bytes, shape) = real();
    let whole = read_all(memory_file(&bytes, SealFlags::SHRINK)).unwrap();
    assert_eq!((whole.0 % 3, whole.1), (0, 0), "three rings that are full");
    let offset = |field: u64| usize::try_from(shape.ring(1) + field).unwrap();
    let records = usize::try_from(shape.records(1)).unwrap();
    let sites = usize::try_from(shape.sites(1)).unwrap();
    // Of the second ring: state, head, length of descriptions, a record's length, call site and number, a description's length and a type.
    let lies = [
        (offset(0), 9),
        (offset(64), 1),
        (offset(71), 1),
        (offset(32), 255),
        (records, 0),
        (records, 255),
        (records + 2, 77),
        (records + 4, 1),
        (sites, 0),
        (sites + 1, 200),
        (sites + 4, 99),
    ];
    for (at, value) in lies {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let read = read_all(memory_file(&bytes, SealFlags::SHRINK)).unwrap();
        assert_eq!(read, (whole.0 / 3 * 2, 1), "byte {at} as {value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_may_be_wrong(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        static REAL: std::sync::LazyLock<(Vec<u8>, Shape)> = std::sync::LazyLock::new(real);
        let (bytes, shape) = &*REAL;
        // Headers, descriptions and the first records.
        let heads = (0..3).map(|ring| shape.ring(ring)..shape.ring(ring) + 512);
        let sites = (0..3).map(|ring| shape.sites(ring)..shape.sites(ring) + 128);
        let records = (0..3).map(|ring| shape.records(ring)..shape.records(ring) + 256);
        let places: Vec<u64> =
            heads.chain(sites).chain(records).flatten().chain(0..512).collect();
        let mut bytes = bytes.clone();
        for (place, value) in changes {
            bytes[usize::try_from(places[place.index(places.len())]).unwrap()] = value;
        }
        // It ends, and touches nothing beyond the file.
        let read = read_all(memory_file(&bytes, SealFlags::SHRINK));
        if let Ok((items, damaged)) = read {
            prop_assert!(items <= bytes.len() / 16 * 20 && damaged <= 3);
        }
    }
}
