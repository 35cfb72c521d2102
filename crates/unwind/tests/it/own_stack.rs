//! This program's own stack, against the unwinder of the C library.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use unwind::walk::{Code, End, MAX_FRAMES, Registers, walk};
use unwind::{Architecture, Image, Table};

/// Code of a file in this process.
struct Mapped {
    begin: u64,
    end: u64,
    /// From an address in memory to one of the file.
    moved_by: u64,
    table: Table,
}

fn code() -> Vec<Mapped> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let executable = maps.lines().filter(|line| line.contains(" r-xp "));
    let found = executable.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end, offset) = (number(begin)?, number(end)?, number(words.nth(1)?)?);
        let name = words.nth(2)?;
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap()];
        if Path::new(name).is_absolute() {
            bytes = fs::read(name).ok()?;
        } else if name == "[vdso]" {
            memory.read_exact_at(&mut bytes, begin).ok()?;
        } else {
            return None;
        }
        let image = Image::parse(&*bytes).ok()?;
        let (table, _) = Table::of(&image).ok()?;
        let moved_by = begin.wrapping_sub(image.code_address(offset)?);
        Some(Mapped { begin, end, moved_by, table })
    });
    found.collect()
}

/// Walks its own stack, twice; gives how many frames it has.
#[inline(never)]
#[expect(unsafe_code, reason = "registers are read in assembly")]
fn check(code: &[Mapped]) -> usize {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: reads registers only.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp,
            out(reg) fp, options(nomem, nostack, preserves_flags));
    }
    // SAFETY: reads registers only.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) sp,
            out(reg) fp, options(nomem, nostack, preserves_flags));
    }
    let architecture =
        if cfg!(target_arch = "x86_64") { Architecture::X86_64 } else { Architecture::Aarch64 };
    let find = |pc: u64| {
        let found = code.iter().find(|it| pc >= it.begin && pc < it.end);
        found.map_or(Code::Unmapped, |it| Code::Rule(it.table.find(pc.wrapping_sub(it.moved_by))))
    };
    let memory = File::open("/proc/self/mem").unwrap();
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    let start = Registers { pc, sp, fp, lr: 0 };
    let mut found = Vec::new();
    let end = walk(architecture, start, MAX_FRAMES, &word, find, |pc| found.push(pc));
    assert_eq!(end, End::Root, "{found:#x?}");

    let mut known = Vec::new();
    backtrace::trace(|frame| {
        // Behind the first function of a thread it tells of an empty one.
        known.extend(Some(frame.ip() as u64).filter(|pc| *pc != 0));
        true
    });
    // The other unwinder's stack begins deeper; callers are known there by where their call returns to, code that a signal
    // interrupted by its next instruction.
    let is_same = |(found, known): (&u64, &u64)| *known == found + 1 || known == found;
    let callers: Vec<u64> = found.iter().copied().skip(1).collect();
    let first = callers.first().unwrap();
    let known: Vec<u64> = known.into_iter().skip_while(|known| !is_same((first, known))).collect();
    assert_eq!(callers.len(), known.len());
    assert!(callers.iter().zip(&known).all(is_same), "{callers:x?} {known:x?}");
    found.len()
}

#[inline(never)]
fn deep(depth: u32, then: &mut dyn FnMut()) -> u32 {
    // A frame of another size at each second level, and work after the call, so that none is a jump.
    let padding = [depth; 37];
    if depth == 0 {
        then();
    } else if depth.is_multiple_of(2) {
        deep(depth - 1, then);
    } else {
        [depth].iter().for_each(|depth| {
            deep(depth - 1, then);
        });
    }
    std::hint::black_box(padding).iter().sum()
}

#[test]
fn a_deep_stack_is_walked_to_its_root() {
    let code = code();
    let mut frames = 0;
    deep(100, &mut || frames = check(&code));
    assert!(frames > 100, "{frames}");
}

#[test]
fn a_thread_s_stack_ends_at_the_thread_s_begin() {
    let code = code();
    let frames = thread::spawn(move || check(&code)).join().unwrap();
    assert!(frames > 2 && frames < 60, "{frames}");
}

/// Where a handler is called in the midst of something, all registers come from what the kernel saved.
#[test]
fn a_signal_handler_s_stack_goes_on_below_it() {
    static FRAMES: AtomicUsize = AtomicUsize::new(0);
    static CODE: OnceLock<Vec<Mapped>> = OnceLock::new();
    extern "C" fn handler(_: libc::c_int) {
        FRAMES.store(check(CODE.get().unwrap()), Ordering::Relaxed);
    }
    CODE.get_or_init(code);
    deep(50, &mut || raise(handler));
    assert!(FRAMES.load(Ordering::Relaxed) > 50);
}

#[expect(unsafe_code, reason = "a handler is set and a signal raised")]
fn raise(handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handler runs on this thread, while it waits in `raise`, and takes no lock that it may hold.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        libc::raise(libc::SIGUSR1);
    }
}
