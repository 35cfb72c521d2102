//! Any number of small programs or libraries, each of which is another one: with a build id and a function of its own.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of both kinds.
const SOURCE: &str = r#"
static volatile unsigned sink;
__attribute__((noinline, visibility("hidden"))) void executable_00000(void) {
	volatile char pad[72];
	pad[3] = 1;
	for (unsigned i = 0; i < 20000; i++) sink = sink * 31 + i + pad[3];
}
#ifdef LIBRARY
void run(void) {
	executable_00000();
	sink++;
}
#else
#if defined(__x86_64__)
__asm__(".globl _start\n.type _start, @function\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n\thlt\n");
enum { CLOCK_GETTIME = 228, EXIT_GROUP = 231 };
static long ask(long number, long first, long second) {
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
__asm__(".globl _start\n.type _start, %function\n_start:\n\tmov x29, #0\n\tmov x30, #0\n\tmov x0, sp\n\tbl begin\n\tbrk #0\n");
enum { CLOCK_GETTIME = 113, EXIT_GROUP = 94 };
static long ask(long number, long first, long second) {
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	return x0;
}
#endif
static long cpu_ns(void) {
	long time[2] = { 0, 0 };
	ask(CLOCK_GETTIME, 2, (long)time); /* CLOCK_PROCESS_CPUTIME_ID */
	return time[0] * 1000000000L + time[1];
}
void begin(long *stack) {
	long end = 0;
	if (stack[0] > 1)
		for (const char *digit = (const char *)stack[2]; *digit; digit++) end = end * 10 + (*digit - '0');
	while (cpu_ns() < end * 1000000L) executable_00000();
	ask(EXIT_GROUP, 0, 0);
}
#endif
"#;

/// What stands for its number in the one that is compiled.
const NAME: &str = "executable_00000";

/// The build id of the one that is compiled; the last four bytes are the number in others.
const BUILD_ID: [u8; 20] = *b"throughline law\x000000";

/// How many there can be.
pub const MAX_EXECUTABLES: u32 = 100_000;

/// What they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Programs without a C library, which are a few kilobytes long and begin at once. Each spends the milliseconds of CPU time that its
    /// argument says in its function.
    Program,
    /// Libraries that export `run`, which calls their function once: loaders find names by their hash, so that is the same in all.
    Library,
}

/// They are copies of one that is compiled once.
#[derive(Debug)]
pub struct Executables {
    image: Vec<u8>,
}

impl Executables {
    /// Compiles the one, in this folder.
    ///
    /// # Errors
    /// When there is no C compiler, or it refuses.
    pub fn compile(folder: &Path, kind: Kind) -> io::Result<Self> {
        let (source, program) = (folder.join("executable.c"), folder.join("executable"));
        fs::write(&source, SOURCE)?;
        let kind: &[&str] = match kind {
            Kind::Program => &["-fno-pie", "-no-pie", "-static"],
            Kind::Library => &["-fPIC", "-shared", "-DLIBRARY"],
        };
        let status = Command::new("cc")
            .args(["-O1", "-fomit-frame-pointer", "-fno-stack-protector", "-nostdlib", "-w"])
            .arg("-fasynchronous-unwind-tables")
            .args(kind)
            .args(["-Wl,-z,noseparate-code", &format!("-Wl,--build-id=0x{}", hex(&BUILD_ID))])
            .arg("-o")
            .args([&program, &source])
            .status()?;
        let image = if status.success() { fs::read(&program)? } else { Vec::new() };
        if places(&image, NAME.as_bytes()).len() != 1 || places(&image, &BUILD_ID).len() != 1 {
            return Err(io::Error::other("cc does not compile the executable"));
        }
        Ok(Self { image })
    }

    /// Writes the one with this number into a folder; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// From [`MAX_EXECUTABLES`] on.
    pub fn write(&self, folder: &Path, number: u32) -> io::Result<PathBuf> {
        let mut image = self.image.clone();
        replace(&mut image, NAME.as_bytes(), function(number).as_bytes());
        replace(&mut image, &BUILD_ID, &id(number));
        let path = folder.join(format!("x{number:05}"));
        let mut file: File =
            File::options().write(true).create(true).truncate(true).mode(0o755).open(&path)?;
        file.write_all(&image)?;
        Ok(path)
    }
}

/// The function in which it spends its time.
///
/// # Panics
/// From [`MAX_EXECUTABLES`] on.
#[must_use]
pub fn function(number: u32) -> String {
    assert!(number < MAX_EXECUTABLES, "{number}: there are not so many");
    format!("executable_{number:05}")
}

/// Its build id in hexadecimal digits.
#[must_use]
pub fn build_id(number: u32) -> String {
    hex(&id(number))
}

fn id(number: u32) -> [u8; 20] {
    let mut id = BUILD_ID;
    if let Some(last) = id.last_chunk_mut() {
        *last = number.to_be_bytes();
    }
    id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn places(image: &[u8], wanted: &[u8]) -> Vec<usize> {
    let all = image.windows(wanted.len()).enumerate();
    all.filter(|(_, found)| *found == wanted).map(|(at, _)| at).collect()
}

/// With another text of the same length.
fn replace(image: &mut [u8], from: &[u8], to: &[u8]) {
    for at in places(image, from) {
        if let Some(place) = image.get_mut(at..at + to.len()) {
            place.copy_from_slice(to);
        }
    }
}
