//! Compiles the eBPF programs and generates their loader.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

const PROGRAMS: [&str; 2] = ["kernel", "profile"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    if Command::new(&clang).arg("--version").output().is_err() {
        fail(&format!("the eBPF programs need the C compiler `{clang}`: apt install clang"));
    }
    let Some(out) = env::var_os("OUT_DIR") else { fail("OUT_DIR is not set") };
    for name in PROGRAMS {
        let source = format!("bpf/{name}.bpf.c");
        let skeleton = PathBuf::from(&out).join(format!("{name}.skel.rs"));
        let built = SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(["-Wall", "-Werror"])
            .build_and_generate(&skeleton);
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
