//! Names of functions of this machine's files.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

mod lines;

use std::fs;

use symbols::Functions;

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
    let found = functions.find(address).unwrap();
    assert_eq!(found.address, address);
    assert_eq!(symbols::readable(found.name), "it::a_function_of_this_test");
    assert_eq!(functions.find(address + 1).unwrap(), found);
    assert!(functions.find(address - 1).is_none_or(|before| before != found));
}

#[test]
fn a_stripped_library_has_what_it_exports() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = path.into_iter().find(|path| path.contains("libc.so")).unwrap();
    let functions = Functions::of(&*fs::read(path).unwrap()).unwrap();
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
