//! Tables of the files of this machine.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Command;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, RegisterRule, UnwindContext,
    UnwindSection, X86_64,
};
use gopclntab::StackKind;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache};
use unwind::{Cfa, Image, Rule, Table};

/// The files that this process has mapped: its own, the loader and the C library.
pub(crate) fn mapped() -> BTreeSet<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter(|line| line.contains(" r-xp ")).filter_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

/// What the row says must be what the file says, at the first and the last byte of each of its stretches of code.
fn check(bytes: &[u8]) -> (usize, usize) {
    let image = Image::parse(bytes).unwrap();
    let (table, left) = Table::of(&image).unwrap();
    assert_eq!((left.functions, left.is_cut), (0, false));
    let file = object::File::parse(bytes).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let frames = EhFrame::new(section.data().unwrap(), NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let (mut entries, mut context) = (frames.entries(&bases), UnwindContext::new());
    let (mut exact, mut left_out) = (0, 0);
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(function) = entry else { continue };
        let function = function.parse(EhFrame::cie_from_offset).unwrap();
        let mut rows = function.rows(&frames, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let (first, last) = (row.start_address(), row.end_address() - 1);
            if row.start_address() >= row.end_address() || function.is_signal_trampoline() {
                continue;
            }
            let rule = table.find(first);
            assert_eq!(rule, table.find(last), "{first:#x}");
            if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
                assert_eq!(rule, Rule::OUTERMOST);
                continue;
            }
            let expected = match row.cfa() {
                CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
                    u32::try_from(*offset).map_or(Cfa::Unknown, Cfa::StackPointer)
                }
                CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
                    u32::try_from(*offset).map_or(Cfa::Unknown, Cfa::FramePointer)
                }
                _ => Cfa::Unknown,
            };
            let saved = match row.register(X86_64::RBP) {
                Some(RegisterRule::Offset(below)) => u32::try_from(-below).ok(),
                _ => None,
            };
            match rule.cfa() {
                Cfa::LinkageTable | Cfa::AtStackPointer(_) | Cfa::BelowFramePointer(_) => {
                    assert!(matches!(row.cfa(), CfaRule::Expression(_)));
                }
                Cfa::Unknown => left_out += 1,
                cfa => {
                    assert_eq!((cfa, rule.saved()), (expected, saved), "{first:#x}");
                    exact += 1;
                }
            }
        }
    }
    (exact, left_out)
}

#[test]
fn rows_say_what_the_files_say() {
    if !cfg!(target_arch = "x86_64") {
        testkit::skip("the rows are compared with what x86-64 files say");
        return;
    }
    let mut total = 0;
    for path in mapped() {
        let bytes = fs::read(&path).unwrap();
        let (exact, left_out) = check(&bytes);
        assert!(exact > 100, "{}: {exact}", path.display());
        // Functions written by hand, and those that keep their frame in other registers.
        assert!(left_out * 100 < exact, "{}: {left_out} of {exact}", path.display());
        total += exact;
    }
    assert!(total > 10_000, "{total}");
}

#[test]
fn a_file_without_section_headers_has_the_same_rows() {
    let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let (whole, _) = Table::of(&Image::parse(&*bytes).unwrap()).unwrap();
    // e_shoff, e_shnum and e_shstrndx of Elf64_Ehdr.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    let image = Image::parse(&*bytes).unwrap();
    assert!(image.build_id().is_some());
    let (found, left) = Table::of(&image).unwrap();
    assert_eq!(left.functions, 0);
    assert!(found == whole, "{} rows and {}", found.len(), whole.len());
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_a_smaller_table() {
    let bytes = fs::read(
        mapped()
            .into_iter()
            .find(|it| it.ends_with("libgcc_s.so.1"))
            .unwrap_or_else(|| std::env::current_exe().unwrap()),
    )
    .unwrap();
    let (whole, _) = Table::of(&Image::parse(&*bytes).unwrap()).unwrap();
    for part in 0..200 {
        let cut = &bytes[..bytes.len() * part / 200];
        if let Ok(image) = Image::parse(cut)
            && let Ok((table, _)) = Table::of(&image)
        {
            assert!(table.len() <= whole.len() + 1);
        }
    }
    assert!(Image::parse(&b""[..]).is_err());
    assert!(Image::parse(&b"#!/bin/sh\n"[..]).is_err());
}

/// Between JavaScript and C++ lies code that Node.js does not describe.
#[test]
fn builtins_of_v8_keep_frame_pointers() {
    let Ok(bytes) = fs::read("/usr/bin/node") else {
        testkit::skip("Node.js is not installed");
        return;
    };
    let file = object::File::parse(&*bytes).unwrap();
    let entry = file.symbols().find(|it| it.name() == Ok("Builtins_JSEntry"));
    let Some(entry) = entry.map(|it| it.address()) else {
        testkit::skip("Node.js has no symbols");
        return;
    };
    let image = Image::parse(&*bytes).unwrap();
    let (table, _) = Table::of(&image).unwrap();
    let frame_pointers = Rule::frame_pointers(image.architecture());
    assert_eq!(table.find(entry), frame_pointers);
    // Code of C++ is as it was described.
    let main = file.symbols().find(|it| it.name() == Ok("main")).unwrap().address();
    assert_ne!(table.find(main), frame_pointers);
}

/// A file that counts how often something is read of it.
struct Counted<'a> {
    bytes: Cursor<&'a [u8]>,
    reads: &'a Cell<usize>,
}

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        self.bytes.read(to)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// A library with much code that it does not describe, as BOLT leaves it, may have names of many megabytes.
#[test]
fn of_symbols_outside_of_code_that_may_be_v8_s_no_name_is_read() {
    const NAMES: usize = 3000;
    if !testkit::is_installed("gcc") {
        testkit::skip("gcc is not installed");
        return;
    }
    let data: String = (0..NAMES).map(|n| format!("name_{n}: .byte 0\\n")).collect();
    let source = format!(
        r#"
__attribute__((noinline)) int before(int n) {{ return n * 3; }}
asm(".type Builtins_JSEntry, @function\nBuiltins_JSEntry: .skip 0x60000\n.size Builtins_JSEntry, 0x60000");
int main(int c, char **v) {{ return before(c); }}
asm(".data\n{data}.text");
"#
    );
    let bytes = compiled("names", &source, &["-O1", "-fno-toplevel-reorder"]);
    let reads = Cell::new(0);
    let file = ReadCache::new(Counted { bytes: Cursor::new(&bytes), reads: &reads });
    let image = Image::parse(&file).unwrap();
    assert!(reads.get() < NAMES / 10, "{}", reads.get());
    let symbols = object::File::parse(&*bytes).unwrap();
    let address = |name| symbols.symbols().find(|it| it.name() == Ok(name)).unwrap().address();
    let (table, _) = Table::of(&image).unwrap();
    let frame_pointers = Rule::frame_pointers(image.architecture());
    assert_eq!(table.find(address("Builtins_JSEntry")), frame_pointers);
    assert_ne!(table.find(address("before")), frame_pointers);
}

/// A program of C, as its file is.
fn compiled(name: &str, source: &str, options: &[&str]) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("unwind-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let status = Command::new("gcc").args(options).arg("-o").args([&program, &file]).status();
    assert!(status.unwrap().success());
    let bytes = fs::read(&program).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    bytes
}

/// What GCC puts elsewhere of a function has a symbol of its own, which the call frame information must lead to without it.
#[test]
fn the_parts_of_a_function_are_found_without_symbols() {
    const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((cold, noinline)) void rare(int n) { printf("%d\n", n); }
__attribute__((noinline)) int first(int n, char **v) { n += rand(); if (n < 0) { rare(n); rare(n + 1); return rand(); } return n * 3 + v[0][0]; }
__attribute__((noinline)) int second(int n) { return n * 5; }
int main(int c, char **v) { return first(c, v) + second(c); }
"#;
    if !testkit::is_installed("gcc") {
        testkit::skip("gcc is not installed");
        return;
    }
    let bytes = compiled("parts", SOURCE, &["-O2"]);
    let file = object::File::parse(&*bytes).unwrap();
    let image = Image::parse(&*bytes).unwrap();
    let symbol = |name: &str| {
        let symbol = file.symbols().find(|it| it.name() == Ok(name))?;
        Some(symbol.address()..symbol.address() + symbol.size())
    };
    let (first, second) = (symbol("first").unwrap(), symbol("second").unwrap());
    let expected: Vec<_> =
        [Some(first.clone()), symbol("first.cold")].into_iter().flatten().collect();
    assert_eq!(unwind::parts(&image, first.start, 9), expected);
    assert_eq!(unwind::parts(&image, first.start, 1), std::slice::from_ref(&first));
    assert_eq!(unwind::parts(&image, second.start, 9), [second]);
    assert_eq!(unwind::parts(&image, first.start + 1, 9), []);
}

/// Debian's server of NATS has no call frame information for its own code: what there is of it is Go's.
#[test]
fn code_of_go_has_rows_by_what_its_linker_says() {
    let Ok(bytes) = fs::read("/usr/sbin/nats-server") else {
        testkit::skip("nats-server is not installed");
        return;
    };
    let (table, left) = Table::of(&Image::parse(&*bytes).unwrap()).unwrap();
    assert!(!left.is_cut);
    let module = gopclntab::Module::find(&*bytes).unwrap();
    let (mut exact, mut roots, mut switches) = (0, 0, 0);
    let is_whole = gopclntab::Table::of(&module).unwrap().stacks(&module, |stack, depths| {
        let begin = table.find(stack.function.begin);
        match stack.kind {
            StackKind::Outermost => {
                assert_eq!(begin, Rule::OUTERMOST);
                roots += 1;
            }
            StackKind::Switching => {
                let rules = depths.iter().map(|(code, _)| table.find(code.end - 1));
                switches += u32::from(rules.into_iter().any(Rule::is_elsewhere));
            }
            StackKind::Plain if stack.name.starts_with(b"runtime.sigreturn") => {
                assert_eq!(begin.cfa(), Cfa::Signal(40));
            }
            StackKind::Plain => {
                for (code, depth) in depths.iter().filter(|(code, _)| !code.is_empty()) {
                    let has_room = depth / 8 + 1 < 1 << 17;
                    let by_depth = Cfa::StackPointer(depth + 8);
                    let expected = if has_room { by_depth } else { Cfa::FramePointer(16) };
                    assert_eq!(table.find(code.end - 1).cfa(), expected, "{code:x?}");
                    exact += 1;
                }
            }
        }
    });
    assert!(
        is_whole && exact > 20_000 && roots >= 3 && switches >= 3,
        "{exact} {roots} {switches}"
    );
}
