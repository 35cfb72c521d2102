//! Debug information in folders.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use symbolizer::{Named, Settings, Symbolizer};

use crate::program::{Program, known};

const PATIENCE: Duration = Duration::from_secs(60);

fn over(folders: Vec<PathBuf>) -> Symbolizer {
    Symbolizer::new(&Settings { folders, ..Settings::default() }).unwrap()
}

#[test]
fn functions_lines_and_inlined_calls_are_those_that_addr2line_tells() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    fs::copy(&program.debug, program.place(folder.path(), ".debug")).unwrap();
    let (begin, bytes) = program.outer;
    let addresses: Vec<u64> = (begin..begin + bytes).collect();
    let mut batch = program.samples("native", &addresses);
    let symbolizer = over(vec![folder.path().to_owned()]);
    symbolizer.symbolize(&mut batch, PATIENCE);
    let found = known(&batch);
    for (address, found) in addresses.iter().zip(&found) {
        assert_eq!(*found, program.by_addr2line(*address), "{address:x}");
    }
    assert!(found.iter().any(|stack| stack.len() == 3), "some is inlined twice");
    assert_eq!(symbolizer.named(), Named { named: bytes, ..Named::default() });
    // Named again they stay as they are.
    symbolizer.symbolize(&mut batch, PATIENCE);
    assert_eq!(known(&batch), found);
    assert_eq!(symbolizer.named().named, bytes);
}

#[test]
fn offsets_need_the_headers_of_the_executable() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    fs::copy(&program.debug, program.place(folder.path(), ".debug")).unwrap();
    let symbolizer = over(vec![folder.path().to_owned()]);
    // Linkers of Debian put code where it is in the file.
    let offset = program.outer.0;
    let mut batch = program.samples("", &[offset]);
    symbolizer.symbolize(&mut batch, PATIENCE);
    assert_eq!(known(&batch)[0][0].0, "");
    assert_eq!(symbolizer.named(), Named { no_headers: 1, ..Named::default() });
    fs::copy(&program.stripped, program.place(folder.path(), "")).unwrap();
    let symbolizer = over(vec![folder.path().to_owned()]);
    symbolizer.symbolize(&mut batch, PATIENCE);
    assert_eq!(known(&batch), [program.by_addr2line(offset)]);
    // An executable with all of it needs no other file.
    fs::remove_file(program.place(folder.path(), ".debug")).unwrap();
    fs::copy(&program.with_all, program.place(folder.path(), "")).unwrap();
    let mut batch = program.samples("", &[offset]);
    over(vec![folder.path().to_owned()]).symbolize(&mut batch, PATIENCE);
    assert_eq!(known(&batch), [program.by_addr2line(offset)]);
}

#[test]
fn what_is_not_known_stays_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let symbolizer = over(vec![folder.path().to_owned()]);
    let nameless = |kind: &str, addresses: &[u64]| {
        let mut batch = program.samples(kind, addresses);
        symbolizer.symbolize(&mut batch, PATIENCE);
        assert!(known(&batch).iter().all(|stack| stack.len() == 1 && stack[0].0.is_empty()));
    };
    nameless("native", &[1, 2]);
    assert_eq!(symbolizer.named(), Named { no_file: 2, ..Named::default() });
    // A file with another build id than its name says.
    let place = program.place(folder.path(), ".debug");
    fs::copy("/proc/self/exe", &place).unwrap();
    nameless("native", &[1]);
    assert_eq!(symbolizer.named().no_file, 3);
    // No function is there.
    fs::copy(&program.debug, &place).unwrap();
    nameless("native", &[1]);
    assert_eq!(symbolizer.named(), Named { no_file: 3, no_function: 1, ..Named::default() });
    // Frames of the kernel and of interpreters are not looked for.
    nameless("kernel", &[program.outer.0]);
    nameless("cpython", &[program.outer.0]);
    let mut batch = program.samples("native", &[program.outer.0]);
    symbolizer.symbolize(&mut batch, Duration::ZERO);
    let left = Named { no_file: 3, no_function: 1, no_time: 1, ..Named::default() };
    assert_eq!(symbolizer.named(), left);
}

#[test]
fn damaged_files_tell_nothing_or_what_is_left_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let place = program.place(folder.path(), ".debug");
    let whole = fs::read(&program.debug).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..20) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(bytes.len() / 2..=bytes.len()));
        fs::write(&place, bytes).unwrap();
        let mut batch = program.samples("native", &[program.outer.0, u64::MAX, 1]);
        over(vec![folder.path().to_owned()]).symbolize(&mut batch, PATIENCE);
        assert_eq!(batch.samples().len(), 3);
    }
}
