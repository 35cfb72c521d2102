//! Names of functions of this machine's files.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

mod lines;

use std::fs;

use symbols::{Functions, TlsVariable};

#[inline(never)]
fn a_function_of_this_test() -> usize {
    std::hint::black_box(7)
}

/// Where the code of this program begins in memory, and in its file.
fn moved_by(bytes: &[u8]) -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let own = std::env::current_exe().unwrap();
    let line = maps
        .lines()
        .find(|it| it.contains(" r-xp ") && it.ends_with(own.to_str().unwrap()))
        .unwrap();
    let mut words = line.split_whitespace();
    let begin = u64::from_str_radix(words.next().unwrap().split_once('-').unwrap().0, 16).unwrap();
    let offset = u64::from_str_radix(words.nth(1).unwrap(), 16).unwrap();
    let image = unwind::Image::parse(bytes).unwrap();
    begin - image.code_address(offset).unwrap()
}

#[test]
fn a_function_is_found_by_its_first_byte_and_not_by_the_one_before() {
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let functions = Functions::of(&*bytes).unwrap();
    assert!(functions.len() > 1000);
    assert_eq!(a_function_of_this_test(), 7);
    let address = a_function_of_this_test as fn() -> usize as usize as u64 - moved_by(&bytes);
    let found = functions.find(&*bytes, address).unwrap();
    assert_eq!(found.address, address);
    assert_eq!(symbols::readable(&found.name), "it::a_function_of_this_test");
    assert_eq!(functions.find(&*bytes, address + 1).unwrap(), found);
    assert!(functions.find(&*bytes, address - 1).is_none_or(|before| before != found));
}

/// The C library that this program uses.
fn libc() -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = path.into_iter().find(|path| path.contains("libc.so")).unwrap();
    fs::read(path).unwrap()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_variable_of_each_thread_is_found_by_its_name() {
    let bytes = libc();
    let Some(errno) = TlsVariable::of(&*bytes, b"errno") else {
        testkit::skip("the C library here exports no such variable");
        return;
    };
    assert!(errno.distance_slot.is_some() && errno.in_program < 0, "{errno:?}");
    assert_eq!((errno.module_slot, errno.descriptor_slot), (None, None));
    assert_eq!(TlsVariable::of(&*bytes, b"printf"), None, "a function");
    assert_eq!(TlsVariable::of(&*bytes, b"none_such"), None);
    for part in 0..100 {
        if let Some(cut) = TlsVariable::of(&bytes[..bytes.len() * part / 100], b"errno") {
            assert_eq!(cut.offset, errno.offset);
        }
    }
}

#[test]
fn a_stripped_library_has_what_it_exports() {
    let functions = Functions::of(&*libc()).unwrap();
    assert!(functions.len() > 1500, "{}", functions.len());
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_has_fewer_functions() {
    let bytes = fs::read("/proc/self/exe").unwrap();
    let whole = Functions::of(&*bytes).unwrap().len();
    for part in 0..100 {
        if let Ok(cut) = Functions::of(&bytes[..bytes.len() * part / 100]) {
            assert!(cut.len() <= whole);
        }
    }
}

#[test]
fn the_running_kernel_has_a_build_id() {
    let notes = fs::read("/sys/kernel/notes").unwrap();
    let id = symbols::build_id_of_notes(&notes).unwrap();
    assert!(id.len() >= 8, "{id:?}");
}
