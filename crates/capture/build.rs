//! Compiles the eBPF programs and generates their loader.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

const PROGRAMS: [&str; 2] = ["kernel", "profile"];
/// Those that are loaded without a generated loader.
const OBJECTS: [&str; 1] = ["names"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    if Command::new(&clang).arg("--version").output().is_err() {
        fail(&format!("the eBPF programs need the C compiler `{clang}`: apt install clang"));
    }
    let Some(out) = env::var_os("OUT_DIR") else { fail("OUT_DIR is not set") };
    for name in PROGRAMS.iter().chain(&OBJECTS) {
        let source = format!("bpf/{name}.bpf.c");
        let built_to = |kind: &str| PathBuf::from(&out).join(format!("{name}.{kind}"));
        let mut builder = SkeletonBuilder::new();
        builder.source(&source).clang(&clang).clang_args(["-Wall", "-Werror"]);
        let built = if OBJECTS.contains(name) {
            builder.obj(built_to("bpf.o")).build()
        } else {
            builder.build_and_generate(built_to("skel.rs"))
        };
        if let Err(error) = built {
            fail(&format!("{source}: {error:?}"));
        }
    }
}

#[expect(clippy::print_stderr, reason = "the way a build script says why it failed")]
fn fail(why: &str) -> ! {
    eprintln!("{why}");
    exit(1);
}
