//! Tables that were written for the test in each format, and one of a real program.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

use std::fs;

use gopclntab::{GoFrame, Module, StackKind, Table};
use testkit::go::{Go, LOADED, TEXT, program};

fn frames(file: &[u8], at: u64) -> Vec<(String, String, u32, u32)> {
    let table = Table::of(&Module::find(file).unwrap()).unwrap();
    let frames = table.frames(file, LOADED + TEXT + at);
    frames.into_iter().map(|it: GoFrame| (it.name, it.file, it.line, it.start_line)).collect()
}

#[test]
fn functions_lines_and_inlined_calls_are_told_in_all_formats() {
    for go in Go::ALL {
        for has_sections in [true, false] {
            let file = program(go, has_sections);
            let start = |line| if go >= Go::V1_20 { line } else { 0 };
            let frame = |name: &str, file: &str, line, begin| {
                (name.to_owned(), file.to_owned(), line, start(begin))
            };
            let outer = |line| frame("main.outer", "/a.go", line, 9);
            let inner = frame("main.inner", "/b.go", 7, 5);
            let case = format!("{go:?} {has_sections}");
            assert_eq!(frames(&file, 0), [outer(10)], "{case}");
            assert_eq!(frames(&file, 0x0f), [outer(11)], "{case}");
            assert_eq!(frames(&file, 0x10), [inner.clone(), outer(11)], "{case}");
            assert_eq!(frames(&file, 0x1f), [inner, outer(11)], "{case}");
            assert_eq!(frames(&file, 0x37), [outer(12)], "{case}");
            assert_eq!(frames(&file, 0x38), [], "padding: {case}");
            assert_eq!(frames(&file, 0x40), [frame("runtime.goexit", "", 0, 0)], "{case}");
            assert_eq!(frames(&file, 0x50), [], "{case}");
        }
    }
}

#[test]
fn depths_of_stacks_are_told_by_instruction() {
    for go in Go::ALL {
        let file = program(go, true);
        let module = Module::find(&*file).unwrap();
        let mut found = Vec::new();
        let is_whole = Table::of(&module).unwrap().stacks(&module, |stack, depths| {
            let begin = stack.function.begin;
            let rows = depths.iter().map(|(code, depth)| (code.start - begin, *depth));
            found.push((stack.kind, stack.name.to_vec(), rows.collect::<Vec<_>>()));
        });
        assert!(is_whole);
        let outer = (StackKind::Plain, b"main.outer".to_vec(), vec![(0, 0), (4, 24), (0x34, 0)]);
        let goexit = (StackKind::Outermost, b"runtime.goexit".to_vec(), vec![(0, 0)]);
        assert_eq!(found, [outer, goexit], "{go:?}");
    }
}

/// Reads all that a file tells; how many functions.
fn read(file: &[u8]) -> usize {
    let Some(module) = Module::find(file) else { return 0 };
    let Ok(table) = Table::of(&module) else { return 0 };
    let mut count = 0;
    table.stacks(&module, |_, depths| {
        assert!(depths.iter().all(|(code, _)| code.start <= code.end));
        count += 1;
    });
    for function in table.functions().take(100) {
        let frames = table.frames(file, function.begin + 0x10);
        assert!(frames.len() <= 65);
    }
    count
}

#[test]
fn a_file_cut_anywhere_has_fewer_functions() {
    for go in Go::ALL {
        for has_sections in [true, false] {
            let file = program(go, has_sections);
            assert_eq!(read(&file), 2);
            for len in 0..file.len() {
                assert!(read(&file[..len]) <= 2, "{go:?} {len}");
            }
        }
    }
}

#[test]
fn bytes_that_are_others_cost_names_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(7);
    for go in Go::ALL {
        for has_sections in [true, false] {
            let file = program(go, has_sections);
            for _ in 0..3000 {
                let mut other = file.clone();
                for _ in 0..random.usize(1..8) {
                    let at = random.usize(0..other.len());
                    other[at] = if random.bool() { random.u8(..) } else { 0xff };
                }
                read(&other);
            }
        }
    }
    for _ in 0..1000 {
        let bytes: Vec<u8> = (0..random.usize(0..500)).map(|_| random.u8(..)).collect();
        assert_eq!(read(&bytes), 0);
    }
}

/// Debian's server of NATS was stripped.
#[test]
fn a_stripped_program_tells_its_functions() {
    let Ok(file) = fs::read("/usr/sbin/nats-server") else {
        testkit::skip("nats-server is not installed");
        return;
    };
    let module = Module::find(&*file).unwrap();
    let table = Table::of(&module).unwrap();
    assert!(table.len() > 5000);
    let (mut main, mut inlined, mut outermost) = (None, 0, 0);
    table.stacks(&module, |stack, _| {
        if stack.name == b"main.main" {
            main = Some(stack.function);
        }
        outermost += u64::from(stack.kind == StackKind::Outermost);
    });
    for function in table.functions() {
        let begin = table.frames(&*file, function.begin);
        assert!(begin.iter().all(|it| !it.name.is_empty()), "{function:x?}");
        let inside = table.frames(&*file, (function.begin + function.end) / 2);
        inlined += u64::from(inside.len() > 1);
    }
    let begin = table.frames(&*file, main.unwrap().begin);
    assert_eq!((begin.len(), &*begin[0].name), (1, "main.main"));
    assert!(begin[0].file.ends_with("/main.go") && begin[0].line > 1, "{begin:?}");
    assert!(inlined > 100 && outermost >= 3, "{inlined} {outermost}");
    // Each cut leaves a file that is read in part, or not at all.
    for part in 0..20 {
        let len = file.len() * part / 20;
        if let Some(Ok(cut)) = Module::find(&file[..len]).map(|module| Table::of(&module)) {
            assert!(cut.len() <= table.len());
        }
    }
}
