//! Lines and inlined functions of programs of several compilers, as others tell them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::ReadCache;
use symbols::{DebugLinks, Functions, Lines, LinesError, SourceLine};

/// Functions inlined into each other, three deep, whose lines are known here.
const NESTED: &str = "\
volatile unsigned sink;
static inline __attribute__((always_inline)) unsigned third(unsigned n) {
  sink = n * 3;
  return n;
}
static inline __attribute__((always_inline)) unsigned second(unsigned n) {
  return third(n + 2) + 1;
}
static inline __attribute__((always_inline)) unsigned first(unsigned n) {
  return second(n + 1);
}
__attribute__((noinline)) unsigned outer(unsigned n) {
  return first(n) * 7;
}
int main(int c, char **v) { return outer(c); }
";

/// Templates, exceptions, constructors and lambdas.
const TEMPLATES: &str = r#"
#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
namespace shapes {
template <typename T> struct Pair { T a, b; Pair(T a, T b) : a(a), b(b) {} T sum() const { return a + b; } };
class Base { public: virtual ~Base() = default; virtual int area(int n) const { if (n < 0) throw std::range_error("negative"); return n; } };
class Square : public Base { public: int area(int n) const override { return Base::area(n) * n; } };
}
template <typename T> T total(const std::vector<T> &all) { T sum{}; for (auto &it : all) sum += shapes::Pair<T>(it, it).sum(); return sum; }
int main(int c, char **v) {
  std::vector<long> numbers; std::map<std::string, int> names;
  for (int i = 0; i < 100; i++) { numbers.push_back(i * c); names[std::to_string(i)] += i; }
  std::sort(numbers.begin(), numbers.end(), [](long a, long b) { return a % 7 < b % 7; });
  std::unique_ptr<shapes::Base> shape = std::make_unique<shapes::Square>();
  try { return shape->area(-c) + total(numbers); } catch (const std::exception &e) { return names.size() + e.what()[0]; }
}
"#;

const RUST: &str = r#"
use std::collections::HashMap;
#[inline] fn twice<T: Copy + std::ops::Add<Output = T>>(n: T) -> T { n + n }
struct Words<'a>(&'a str);
impl Words<'_> { fn count(&self) -> HashMap<&str, usize> { let mut all = HashMap::new(); for it in self.0.split(' ') { *all.entry(it).or_insert(0) += twice(1); } all } }
fn main() {
    let text: Vec<String> = (0..std::env::args().count() * 50).map(|n| format!("{n} words {}", n % 3)).collect();
    let mut sums: Vec<usize> = text.iter().map(|it| Words(it).count().values().sum()).collect();
    sums.sort_by_key(|n| std::cmp::Reverse(*n));
    println!("{sums:?}");
}
"#;

/// Compiles a program; `None`, said, where there is no such compiler.
fn compiled(folder: &Path, name: &str, source: &str, command: &[&str]) -> Option<PathBuf> {
    let (compiler, options) = command.split_first().unwrap();
    if !is_installed(compiler) {
        return None;
    }
    let program = folder.join(format!("{name}.out"));
    fs::write(folder.join(name), source).unwrap();
    let mut run = Command::new(compiler);
    let run = run.current_dir(folder).args(options).arg("-o").arg(&program).arg(name);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    Some(program)
}

fn is_installed(program: &str) -> bool {
    let is_there = testkit::is_installed(program);
    if !is_there {
        testkit::skip(&format!("{program} is not installed"));
    }
    is_there
}

/// What one address is of: functions, each with `file:line` or, where no line is known, another text. Innermost first.
type Told = Vec<(String, String)>;

const UNKNOWN: &str = "no line";

fn place(file: Option<&str>, line: u32) -> String {
    file.filter(|_| line != 0).map_or_else(|| UNKNOWN.to_owned(), |file| format!("{file}:{line}"))
}

/// A program whose lines are asked for, read from its file.
struct Program {
    file: File,
    lines: Lines,
    functions: Functions,
}

impl Program {
    fn open(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let lines = Lines::of(&ReadCache::new(&file), None).unwrap();
        let functions = Functions::of(&ReadCache::new(&file)).unwrap();
        Self { file, lines, functions }
    }

    fn find(&mut self, address: u64) -> Vec<SourceLine> {
        self.lines.find(&ReadCache::new(&self.file), None, address).unwrap()
    }

    /// The function whose code it is by the name of the symbol table, as others do: debug information has one name for a function
    /// that was split.
    fn told(&mut self, address: u64) -> Told {
        let text = |line: &SourceLine| {
            let function = line.function.as_ref().map_or("??", |it| it.linkage.as_str());
            (function.to_owned(), place(line.file.as_deref(), line.line))
        };
        let mut told: Told = self.find(address).iter().map(text).collect();
        if let (Some(last), Some(function)) =
            (told.last_mut(), self.functions.find(&ReadCache::new(&self.file), address))
        {
            last.0 = function.name.into_owned();
        }
        told
    }

    /// Addresses all over the functions.
    fn addresses(&self, path: &Path, most: usize) -> Vec<u64> {
        let bytes = fs::read(path).unwrap();
        let image = unwind::Image::parse(&*bytes).unwrap();
        let code = image.segments().iter().filter(|it| it.is_executable);
        let all = code.flat_map(|it| (it.address..it.address + it.file_bytes).step_by(3));
        let all: Vec<u64> = all
            .filter(|at| self.functions.find(&ReadCache::new(&self.file), *at).is_some())
            .collect();
        let step = all.len().div_ceil(most).max(1);
        all.into_iter().step_by(step).collect()
    }
}

/// What another program with the options of `addr2line` says.
fn peer(peer: &str, program: &Path, addresses: &[u64]) -> Vec<Told> {
    let mut command = Command::new(peer);
    let command = command.args(["-a", "-i", "-f", "-e"]).arg(program);
    let list: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let asked = program.with_extension("addresses");
    fs::write(&asked, list).unwrap();
    let output = command.stdin(File::open(&asked).unwrap()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let mut found = Vec::<Told>::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Vec::new());
            continue;
        }
        let at = lines.next().unwrap().split(" (discriminator").next().unwrap();
        let (file, number) = at.rsplit_once(':').unwrap();
        let at = place(Some(file).filter(|it| *it != "??"), number.parse().unwrap_or(0));
        found.last_mut().unwrap().push((line.to_owned(), at));
    }
    assert_eq!(found.len(), addresses.len());
    found
}

/// Programs of all compilers that are installed.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let commands: [(&str, &str, &[&str]); 9] = [
        ("c5.c", NESTED, &["gcc", "-O2", "-gdwarf-5"]),
        ("c4.c", NESTED, &["gcc", "-O2", "-gdwarf-4", "-no-pie"]),
        ("gxx5.cc", TEMPLATES, &["g++", "-O2", "-gdwarf-5"]),
        ("gxx4.cc", TEMPLATES, &["g++", "-O2", "-gdwarf-4", "-ffunction-sections"]),
        ("zlib.cc", TEMPLATES, &["g++", "-O1", "-g", "-gz=zlib"]),
        ("clang5.cc", TEMPLATES, &["clang++", "-O2", "-gdwarf-5"]),
        ("clang4.cc", TEMPLATES, &["clang++", "-O2", "-gdwarf-4"]),
        ("lines.rs", RUST, &["rustc", "-O", "-g"]),
        ("tables.rs", RUST, &["rustc", "-Cdebuginfo=line-tables-only"]),
    ];
    let compiled = |(name, source, command)| compiled(folder, name, source, command);
    commands.into_iter().filter_map(compiled).collect()
}

#[test]
fn functions_inlined_three_deep_are_told_with_the_lines_of_their_calls() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-gdwarf-5"][..], &["-gdwarf-4"], &["-gdwarf-5", "-gz=zlib"]] {
        let command = [&["cc", "-O2"], options].concat();
        let Some(path) = compiled(folder.path(), "nested.c", NESTED, &command) else { return };
        let mut program = Program::open(&path);
        let addresses = program.addresses(&path, 10_000);
        let found: Vec<_> = addresses.into_iter().map(|address| program.find(address)).collect();
        let deepest = found.iter().max_by_key(|lines| lines.len()).unwrap();
        let rows: Vec<_> = deepest
            .iter()
            .map(|it| (it.function.as_ref().unwrap().readable.as_str(), it.line, it.start_line))
            .collect();
        let expected = [("third", 3, 2), ("second", 7, 6), ("first", 10, 9), ("outer", 13, 12)];
        assert_eq!(rows, expected, "{options:?}");
        let source = folder.path().join("nested.c");
        assert!(deepest.iter().all(|it| it.file.as_deref() == source.to_str()), "{deepest:?}");
    }
}

/// LLVM's `addr2line` tells the same, but where functions of equal code were made one: which of their names it takes is its own choice.
#[test]
fn every_address_is_told_as_llvm_tells_it() {
    if !is_installed("llvm-addr2line") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let copy = folder.path().join("own");
    fs::copy(own, &copy).unwrap();
    for path in programs(folder.path()).into_iter().chain([copy]) {
        let mut program = Program::open(&path);
        let addresses = program.addresses(&path, 1500);
        let told = peer("llvm-addr2line", &path, &addresses);
        let (mut same, mut merged) = (0, 0);
        for (address, mut theirs) in addresses.iter().copied().zip(told) {
            let mut ours = program.told(address);
            // Where nothing is known they tell the symbol.
            if ours.is_empty() && theirs.iter().all(|(_, place)| place == UNKNOWN) {
                continue;
            }
            if ours == theirs {
                same += 1;
                continue;
            }
            let (our_last, their_last) = (ours.last_mut().unwrap(), theirs.last_mut().unwrap());
            their_last.0.clone_from(&our_last.0);
            assert_eq!(ours, theirs, "{address:#x} of {}", path.display());
            merged += 1;
        }
        assert!(merged * 50 < same, "{merged} of {same} merged in {}", path.display());
    }
}

/// The GNU binutils tell the same lines. Names they tell otherwise: that of the symbol for the innermost function where that has no
/// linker's name. Functions inlined by clang in DWARF 5 they do not find, so that of lists only the first line is compared.
#[test]
fn every_address_has_the_line_that_binutils_tell() {
    if !is_installed("addr2line") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for path in programs(folder.path()) {
        let mut program = Program::open(&path);
        let addresses = program.addresses(&path, 1500);
        let told = peer("addr2line", &path, &addresses);
        let mut lines = 0;
        for (address, theirs) in addresses.iter().copied().zip(told) {
            let ours = program.told(address);
            let of = |told: &Told| told.first().map_or(UNKNOWN.to_owned(), |it| it.1.clone());
            assert_eq!(of(&ours), of(&theirs), "{address:#x} of {}", path.display());
            lines += usize::from(of(&ours) != UNKNOWN);
        }
        assert!(lines > 5, "{}", path.display());
    }
}

/// Files with debug information, each with the file of its code: programs of all compilers, this one, the C library if its own is installed.
fn files(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let own = std::env::current_exe().unwrap();
    let mut files: Vec<_> =
        programs(folder).into_iter().chain([own]).map(|path| (path.clone(), path)).collect();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library = library.map(PathBuf::from).find(|path| path.ends_with("libc.so.6"));
    let separate = library.and_then(|library| {
        let id = DebugLinks::of(&*fs::read(&library).unwrap())?.build_id?;
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = digits.split_at(2);
        Some((format!("/usr/lib/debug/.build-id/{first}/{rest}.debug").into(), library))
    });
    match separate.filter(|(debug, _): &(PathBuf, _)| debug.exists()) {
        Some(both) => files.push(both),
        None => testkit::skip("debug information of the C library is not installed"),
    }
    files
}

/// Puts them into another order, for each seed its own: numbers of an xorshift.
fn shuffle<T>(all: &mut [T], seed: u64) {
    let mut random = seed;
    for last in (1..all.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        all.swap(last, usize::try_from(random % (last as u64 + 1)).unwrap());
    }
}

#[test]
fn an_answer_depends_on_file_and_address_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (debug, code) in files(folder.path()) {
        let file = File::open(&debug).unwrap();
        let reading = || ReadCache::new(&file);
        let addresses = Program::open(&debug).addresses(&code, 50);
        let mut first = Lines::of(&reading(), None).unwrap();
        let mut known: Vec<_> = addresses
            .into_iter()
            .map(|address| (address, first.find(&reading(), None, address)))
            .collect();
        let is_told =
            known.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|it| !it.is_empty()));
        assert!(is_told, "{}", debug.display());
        // As much as is needed, an eighth of it, and none.
        for (seed, room) in [(1, usize::MAX), (2, first.bytes() / 8), (3, 0)] {
            shuffle(&mut known, seed);
            let mut lines = Lines::with_room(&reading(), None, room).unwrap();
            for (address, expected) in known.iter().chain(known.iter().rev()) {
                let found = lines.find(&reading(), None, *address);
                assert_eq!(found, *expected, "{address:#x} of {} in {room}", debug.display());
            }
        }
        // Of whom nothing was asked before, and where all bytes are at hand.
        let whole = fs::read(&debug).unwrap();
        for (address, expected) in known.iter().take(5) {
            let mut lines = Lines::of(&*whole, None).unwrap();
            let found = lines.find(&*whole, None, *address);
            assert_eq!(found, *expected, "{address:#x} of {}, first", debug.display());
        }
    }
}

#[test]
fn units_are_dropped_where_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["rustc", "-O", "-g"];
    let Some(path) = compiled(folder.path(), "lines.rs", RUST, &command) else { return };
    let mut program = Program::open(&path);
    let addresses = program.addresses(&path, 500);
    let deep = addresses.iter().filter(|address| program.find(**address).len() > 1).count();
    assert!(deep > 50, "{deep}");
    let kept = program.lines.bytes();
    for room in [0, kept / 8] {
        let mut small = Lines::with_room(&ReadCache::new(&program.file), None, room).unwrap();
        let bytes = addresses.iter().map(|address| {
            small.find(&ReadCache::new(&program.file), None, *address).unwrap();
            small.bytes()
        });
        let fewest = bytes.min().unwrap();
        assert!(fewest < kept / 2, "{fewest} of {kept}");
    }
}

/// `program` with another `.debug_aranges`, or none.
fn with_list(folder: &Path, program: &Path, list: Option<&[u8]>) -> PathBuf {
    let (changed, bytes) = (folder.join("changed"), folder.join("list"));
    let mut objcopy = Command::new("objcopy");
    match list {
        Some(list) => {
            fs::write(&bytes, list).unwrap();
            let option = format!(".debug_aranges={}", bytes.display());
            objcopy.arg("--update-section").arg(option)
        }
        None => objcopy.arg("--remove-section=.debug_aranges"),
    };
    assert!(objcopy.arg(program).arg(&changed).status().unwrap().success());
    changed
}

/// All addresses that are told, with what is told of them.
fn all_told(debug: &Path, code: &Path, most: usize) -> Vec<(u64, Vec<SourceLine>)> {
    let mut program = Program::open(debug);
    let addresses = program.addresses(code, most);
    addresses.into_iter().map(|address| (address, program.find(address))).collect()
}

#[test]
fn units_are_found_the_same_by_the_list_of_their_code_and_without_it() {
    if !is_installed("objcopy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let others = files(folder.path()).into_iter().filter(|(path, _)| *path != own);
    for (debug, code) in others {
        let expected = all_told(&debug, &code, 100);
        let without = with_list(folder.path(), &debug, None);
        assert!(all_told(&without, &code, 100) == expected, "{}", debug.display());
    }
}

#[test]
fn a_list_of_code_that_is_broken_tells_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(folder.path(), "c.c", NESTED, &["gcc", "-O2", "-g"]) else { return };
    if !is_installed("objcopy") {
        return;
    }
    let expected = all_told(&path, &path, 100);
    assert!(expected.iter().any(|(_, lines)| lines.len() == 4));
    let head = |len: u32, version: u8, address_bytes: u8| {
        [&len.to_ne_bytes()[..], &[version, 0, 0, 0, 0, 0, address_bytes, 0, 0, 0, 0, 0]].concat()
    };
    let pairs = vec![0; 4 << 20];
    let in_units_place = [0x1000_u64.to_ne_bytes(), 0x10_0000_u64.to_ne_bytes()].concat();
    let lists: [Vec<u8>; 6] = [
        pairs.clone(),
        vec![255; 4096],
        [head((4 << 20) + 12, 2, 8), pairs].concat(),
        [head(u32::MAX - 16, 2, 8), in_units_place.clone()].concat(),
        [head(28, 9, 8), in_units_place.clone()].concat(),
        [head(28, 2, 4), in_units_place].concat(),
    ];
    for (number, list) in lists.iter().enumerate() {
        let broken = with_list(folder.path(), &path, Some(list));
        assert!(all_told(&broken, &path, 100) == expected, "list {number}");
    }
}

#[test]
fn a_file_without_debug_information_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(folder.path(), "c.c", NESTED, &["cc", "-O2"]) else { return };
    let none = Lines::of(&*fs::read(&path).unwrap(), None).unwrap_err();
    assert_eq!(none, LinesError::None);
    assert_eq!(Lines::of(&b"#!/bin/sh"[..], None).unwrap_err(), LinesError::NotElf);
}

/// Entries that two programs have alike are moved to a file of their own, as distributions do: what is told stays.
#[test]
fn entries_shared_with_other_files_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    if !is_installed("dwz") {
        return;
    }
    let command = ["c++", "-O2", "-g"];
    let names = ["one.cc", "two.cc"];
    let both = names.map(|name| compiled(folder.path(), name, TEMPLATES, &command));
    let [Some(one), Some(two)] = both else { return };
    let mut before = Program::open(&one);
    let addresses = before.addresses(&one, 1000);
    let expected: Vec<_> = addresses.iter().map(|address| before.find(*address)).collect();
    let mut dwz = Command::new("dwz");
    let dwz = dwz.arg("-m").arg(folder.path().join("shared.debug")).args([&one, &two]);
    assert!(dwz.status().unwrap().success());
    let links = DebugLinks::of(&*fs::read(&one).unwrap()).unwrap();
    let (path, id) = links.shared.unwrap();
    assert!(links.has_own && path.ends_with(b"shared.debug"));
    let (bytes, shared) = (fs::read(&one).unwrap(), fs::read(folder.path().join("shared.debug")));
    let shared = shared.unwrap();
    assert_eq!(DebugLinks::of(&*shared).unwrap().build_id, Some(id));
    let mut lines = Lines::of(&*bytes, Some(&*shared)).unwrap();
    let mut alone = Lines::of(&*bytes, None).unwrap();
    let mut without_name = 0;
    for (address, mut expected) in addresses.into_iter().zip(expected) {
        let mut found = lines.find(&*bytes, Some(&*shared), address).unwrap();
        // Where a declaration was moved its file has another number.
        found.iter_mut().chain(&mut expected).for_each(|line| line.start_line = 0);
        assert_eq!(found, expected, "{address:#x}");
        let alone = alone.find(&*bytes, None, address).unwrap();
        without_name += usize::from(alone.iter().any(|line| line.function.is_none()));
    }
    assert!(without_name > 0);
}

#[test]
fn the_files_that_a_file_names_are_those_that_objcopy_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compiled(folder.path(), "c.c", NESTED, &["cc", "-O2", "-g"]) else { return };
    if !is_installed("objcopy") {
        return;
    }
    let debug = folder.path().join("the.debug");
    let stripped = folder.path().join("stripped");
    let run = |options: &[&str], to: &Path| {
        let mut objcopy = Command::new("objcopy");
        let objcopy = objcopy.current_dir(folder.path()).args(options).arg(&path).arg(to);
        assert!(objcopy.status().unwrap().success());
    };
    run(&["--only-keep-debug"], &debug);
    run(&["--strip-all", "--add-gnu-debuglink=the.debug"], &stripped);
    let [whole, debug, stripped] = [&path, &debug, &stripped].map(|path| fs::read(path).unwrap());
    let checksum = symbols::link_checksum(&*debug).unwrap();
    let links = [&whole, &debug, &stripped].map(|it| DebugLinks::of(&**it).unwrap());
    let separate = Some((b"the.debug".to_vec(), checksum));
    assert_eq!(links.clone().map(|it| it.separate), [None, None, separate]);
    assert_eq!(links.clone().map(|it| it.has_own), [true, true, false]);
    assert!(links[0].build_id.is_some() && links.iter().all(|it| it.build_id == links[0].build_id));
    for cut in (0..stripped.len()).step_by(61) {
        drop(DebugLinks::of(&stripped[..cut]));
    }
}

/// Asks for some addresses of what may be broken.
fn ask(bytes: &[u8], addresses: &[u64]) {
    let Ok(mut lines) = Lines::of(bytes, None) else { return };
    for address in addresses {
        drop(lines.find(bytes, None, *address));
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_tells_less() {
    let folder = tempfile::tempdir().unwrap();
    for (name, source, compiler) in [("n.c", NESTED, "cc"), ("t.cc", TEMPLATES, "c++")] {
        let command = [compiler, "-O2", "-g"];
        let Some(path) = compiled(folder.path(), name, source, &command) else { return };
        let program = Program::open(&path);
        let (bytes, addresses) = (fs::read(&path).unwrap(), program.addresses(&path, 5));
        let sections = Command::new("readelf").arg("-SW").arg(&path).output();
        let text = String::from_utf8(sections.unwrap().stdout).unwrap();
        let offsets = text.lines().filter_map(|line| {
            let offset = line.split(']').nth(1)?.split_whitespace().nth(3)?;
            usize::from_str_radix(offset, 16).ok()
        });
        let cuts: Vec<usize> = offsets.flat_map(|at| [at.saturating_sub(1), at, at + 1]).collect();
        assert!(cuts.len() > 60);
        for cut in cuts.into_iter().chain((0..50).map(|part| bytes.len() * part / 50)) {
            ask(bytes.get(..cut).unwrap_or(&bytes), &addresses);
            // The section headers stand last: with these, sections end early.
            let mut zeroed = bytes.clone();
            let headers = bytes.len() - 64 * 60;
            if cut < headers {
                zeroed[cut..headers].fill(0);
                ask(&zeroed, &addresses);
            }
        }
    }
}

#[test]
fn bytes_changed_anywhere_change_an_answer_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["g++", "-O2", "-g"];
    let Some(path) = compiled(folder.path(), "t.cc", TEMPLATES, &command) else { return };
    let program = Program::open(&path);
    let (bytes, addresses) = (fs::read(&path).unwrap(), program.addresses(&path, 10));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    for _ in 0..150 {
        let mut changed = bytes.clone();
        for _ in 0..20 {
            let at = next(changed.len());
            changed[at] = u8::try_from(next(256)).unwrap();
        }
        ask(&changed, &addresses);
    }
}

/// A unit with one list of a million stretches of code, and a hundred thousand functions that all say it is theirs.
const LONG_LISTS: &str = "
    .section .debug_abbrev
    .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
    .byte 2, 0x2e, 0, 0x55, 0x17, 0, 0
    .byte 0
    .section .debug_info
    .long 2f - 1f
1:  .short 4
    .long 0
    .byte 8
    .byte 1
    .quad 0x1000
    .quad 0x1000
    .rept 100000
    .byte 2
    .long 0
    .endr
    .byte 0
2:
    .section .debug_ranges
    .rept 1000000
    .quad 1, 9
    .endr
    .quad 0, 0
";

#[test]
fn what_would_take_too_long_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["as", "--64"];
    let Some(path) = compiled(folder.path(), "long.s", LONG_LISTS, &command) else { return };
    let bytes = fs::read(path).unwrap();
    let mut lines = Lines::of(&*bytes, None).unwrap();
    let left_out = lines.find(&*bytes, None, 0x1234).unwrap_err();
    assert_eq!(left_out, LinesError::TooLarge { part: "unit" });
    assert_eq!(lines.find(&*bytes, None, 0x2000).unwrap(), []);
    assert!(lines.bytes() < 1000, "{}", lines.bytes());
}
