//! `throughline profile` of real programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::read::{stderr, stdout};

/// Three quarters of its time in `hot`, the rest in `warm`.
const BUSY: &str = r"
__attribute__((noinline)) unsigned hot(unsigned n) { for (unsigned i = 0; i < 3000000; i++) n = n * 31 + i; return n; }
__attribute__((noinline)) unsigned warm(unsigned n) { for (unsigned i = 0; i < 1000000; i++) n = n * 17 + i; return n; }
int main(int c, char **v) { volatile unsigned s = c; for (int i = 0; i < 200; i++) s += hot(s) + warm(s); return c > 1 ? 7 : 0; }
";

fn profile(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    command.arg("profile").args(arguments).current_dir(folder).output().unwrap()
}

pub(crate) fn can_sample() -> bool {
    if let Err(reason) = capture::kernel::preflight() {
        testkit::skip(&reason.to_string());
        return false;
    }
    if !testkit::is_installed("cc") {
        testkit::skip("cc is not installed");
        return false;
    }
    true
}

/// Shares of the samples below these functions, of folded stacks.
fn shares(folded: &str, names: [&str; 2]) -> [f64; 2] {
    let stacks = folded.lines().filter_map(|line| {
        let (stack, count) = line.rsplit_once(' ')?;
        Some((stack, count.parse::<f64>().ok()?))
    });
    let stacks: Vec<_> = stacks.collect();
    let all: f64 = stacks.iter().map(|(_, count)| count).sum();
    names.map(|name| {
        let of_name = |stack: &str| stack.split(';').any(|frame| frame == name);
        stacks.iter().filter(|(stack, _)| of_name(stack)).map(|(_, count)| count).sum::<f64>() / all
    })
}

#[test]
fn a_command_is_sampled_with_its_children_and_its_exit_code_is_ours() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("busy.c"), BUSY).unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder.path()).args([
        "-O1",
        "-fomit-frame-pointer",
        "-o",
        "busy",
        "busy.c",
    ]);
    assert!(compiler.status().unwrap().success());
    let run = profile(folder.path(), &["--frequency", "499", "--", "sh", "-c", "./busy; ./busy x"]);
    assert_eq!(run.status.code(), Some(7), "{}", stderr(&run));
    assert!(stdout(&run).contains("busy"), "{}", stdout(&run));
    assert!(stderr(&run).contains("profile.otlp.gz"), "{}", stderr(&run));

    let show =
        |format: &str| profile(folder.path(), &["show", "profile.otlp.gz", "--format", format]);
    let folded = show("folded");
    let [hot, warm] = shares(stdout(&folded), ["hot", "warm"]);
    assert!((0.6..0.9).contains(&hot) && (0.1..0.4).contains(&warm), "{hot} {warm}");
    assert!(stdout(&folded).contains(";main;hot"), "{}", stdout(&folded));
    let page = show("html");
    assert!(stdout(&page).contains("hot") && stdout(&page).contains("</html>"));
    assert!(show("pprof").stdout.starts_with(&[0x1f, 0x8b]));
    let firefox: serde_json::Value = serde_json::from_slice(&show("firefox").stdout).unwrap();
    assert!(firefox["threads"].as_array().is_some_and(|threads| !threads.is_empty()));
    let same = profile(folder.path(), &["diff", "profile.otlp.gz", "profile.otlp.gz"]);
    assert!(same.status.success(), "{}", stderr(&same));
}

#[test]
fn what_cannot_be_read_or_run_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text"), "no profile").unwrap();
    fs::write(folder.path().join("broken.gz"), [0x1f, 0x8b, 1, 2]).unwrap();
    for file in ["text", "broken.gz", "absent"] {
        let shown = profile(folder.path(), &["show", file]);
        assert_eq!(shown.status.code(), Some(2), "{file}: {}", stderr(&shown));
        let line = stderr(&shown);
        assert!(line.contains(file) && line.trim_end().lines().count() == 1, "{line}");
    }
    if can_sample() {
        let run = profile(folder.path(), &["--", "/no/such/program"]);
        assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
        assert!(stderr(&run).contains("/no/such/program"), "{}", stderr(&run));
        assert!(!folder.path().join("profile.otlp.gz").exists());
    }
}
