//! `throughline profile` of real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
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
    if let Err(reason) = capture::preflight() {
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

/// Whoever is nobody samples what is theirs, as far as the machine allows, and is told in one line what is missing.
#[test]
fn without_rights_own_commands_are_sampled_or_refused_with_what_it_takes() {
    const NOBODY: u32 = 65_534;
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let of_nobody = folder.path().join("nobody");
    fs::create_dir(&of_nobody).unwrap();
    std::os::unix::fs::chown(&of_nobody, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Where nobody may run it.
    let program = folder.path().join("throughline");
    let built = env!("CARGO_BIN_EXE_throughline");
    fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
    fs::write(folder.path().join("busy.c"), BUSY).unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder.path()).args(["-O1", "-o", "busy", "busy.c"]);
    assert!(compiler.status().unwrap().success());
    let profile = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(NOBODY).gid(NOBODY).current_dir(&of_nobody).arg("profile").args(arguments);
        command.output().unwrap()
    };
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let paranoid: i32 = paranoid.trim().parse().unwrap();
    let run = profile(&["--frequency", "499", "--", "../busy"]);
    if paranoid <= 2 {
        assert!(run.status.success(), "{}", stderr(&run));
        assert!(stderr(&run).contains("by copies of stacks"), "{}", stderr(&run));
        let folded = profile(&["show", "profile.otlp.gz", "--format", "folded"]);
        let [hot, warm] = shares(stdout(&folded), ["hot", "warm"]);
        assert!((0.6..0.9).contains(&hot) && (0.1..0.4).contains(&warm), "{hot} {warm}");
    } else {
        assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
        assert!(stderr(&run).contains("kernel.perf_event_paranoid"), "{}", stderr(&run));
    }
    if paranoid >= 1 {
        let all = profile(&["--for", "1s"]);
        assert_eq!(all.status.code(), Some(2), "{}", stderr(&all));
        let line = stderr(&all);
        assert!(line.contains("CAP_PERFMON") && line.trim_end().lines().count() == 1, "{line}");
    }
}
