//! `throughline agent` on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use profile::request::{Line, Location};
use profile::{Limits, Request, keys, ungzip};
use testkit::wait_for;

use crate::process::{Running, THROUGHLINE};
use crate::profile::can_sample;
use crate::read::{stderr, stdout};

/// Never ends.
const SPIN: &str = r"
__attribute__((noinline)) unsigned work(unsigned n) { for (unsigned i = 0; i < 3000000; i++) n = n * 31 + i; return n; }
int main(int c, char **v) { volatile unsigned s = c; for (;;) s += work(s); }
";

/// An agent that has begun to sample.
fn start(folder: &Path, options: &[&str]) -> Running {
    let mut command = Command::new(THROUGHLINE);
    command.current_dir(folder).arg("agent").args(options).stdout(Stdio::null());
    let mut agent = Running::start(&mut command, "agent", &folder.join("log"));
    agent.wait_until_said("agent: sampling");
    agent
}

/// The packets of a folder, plain, by name.
fn packets(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(files) = fs::read_dir(folder) else { return BTreeMap::new() };
    let files = files.map(|file| file.unwrap().path());
    let whole = files.filter(|path| path.extension().is_some_and(|it| it == "gz"));
    let read = |path: std::path::PathBuf| {
        let bytes = ungzip(&fs::read(&path).unwrap(), Limits::default()).unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), bytes)
    };
    whole.map(read).collect()
}

/// What the frames of a program's samples are called, by file and address; nothing where a frame has no name.
fn names(bytes: &[u8], program: &str) -> BTreeMap<(String, u64), Option<String>> {
    let request = Request::decode(bytes, Limits::default()).unwrap();
    let d = &request.dictionary;
    let is_of = |name| name == Some(program);
    let resources = request.resources.iter();
    let resources = resources.filter(|it| is_of(it.find_text(d, keys::EXECUTABLE_NAME)));
    let samples = resources.flat_map(|it| &it.profiles).flat_map(|it| &it.samples);
    let frames = samples.flat_map(|sample| d.stack(sample.stack));
    let named = |frame: &Location| {
        let by_build_id = d.mappings.get(frame.mapping as usize).map(|it| d.string(it.path));
        let by_path = d.find_text(&frame.attributes, keys::MAPPED_PATH);
        let path = by_path.or(by_build_id).unwrap_or_default().to_owned();
        let name = |line: &Line| d.string(d.functions[line.function as usize].name).to_owned();
        ((path, frame.address), frame.lines.first().map(name))
    };
    frames.map(named).collect()
}

#[test]
fn packets_of_an_agent_that_is_started_again_and_again_lack_no_name() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("spin.c"), SPIN).unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder.path()).args([
        "-O1",
        "-fomit-frame-pointer",
        "-o",
        "spin",
        "spin.c",
    ]);
    assert!(compiler.status().unwrap().success());
    let mut spin = Command::new(folder.path().join("spin"));
    let _spin = Running::start(&mut spin, "spin", &folder.path().join("spin.log"));
    let options = ["--send", "file:kept", "--frequency", "199", "--window", "300ms"];
    let kept = folder.path().join("kept");
    for _ in 0..3 {
        let before = packets(&kept).len();
        let mut agent = start(folder.path(), &options);
        wait_for("a packet", || (packets(&kept).len() > before).then_some(()));
        assert!(agent.end("TERM").success(), "{}", agent.said());
        let said = agent.said();
        let new = packets(&kept).len() - before;
        // All that was sealed is delivered, and nothing waits.
        assert!(said.contains(&format!("file: {new} packets delivered of {new}\n")), "{said}");
    }
    let mut known = BTreeMap::new();
    for (file, bytes) in packets(&kept) {
        let names = names(&bytes, "spin");
        let called = |name| names.values().flatten().any(|it| it == name);
        assert!(names.is_empty() || (called("work") && called("main")), "{file}: {names:?}");
        for (place, name) in names {
            let before = known.entry(place.clone()).or_insert_with(|| name.clone());
            assert_eq!(*before, name, "{file}: {place:?}");
        }
    }
    assert!(known.len() >= 2, "{known:?}");
}

#[test]
fn labels_of_the_configuration_and_of_the_machine_are_on_every_process() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "[agent]\nsend = 'file:kept'\nspool = 'waits'\nwindow = '300ms'\nfrequency = 199\n\
                [agent.label]\n'deployment.environment.name' = 'test'\n'host.name' = 'renamed'\n";
    fs::write(folder.path().join("agent.toml"), text).unwrap();
    let mut agent = start(folder.path(), &["--config", "agent.toml"]);
    let kept = folder.path().join("kept");
    wait_for("a packet", || (!packets(&kept).is_empty()).then_some(()));
    assert!(agent.end("INT").success(), "{}", agent.said());
    assert!(folder.path().join("waits").is_dir());
    for bytes in packets(&kept).values() {
        let request = Request::decode(bytes, Limits::default()).unwrap();
        for resource in &request.resources {
            let find = |key| resource.find_text(&request.dictionary, key);
            assert_eq!(find("deployment.environment.name"), Some("test"));
            assert_eq!(find("host.name"), Some("renamed"));
            assert_eq!(find("os.type"), Some("linux"));
        }
    }
    // What lies there can be sent again, as often as one likes: here to another folder.
    let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|it| it.unwrap().path()).collect();
    for _ in 0..2 {
        let mut send = Command::new(THROUGHLINE);
        send.current_dir(folder.path()).args(["profile", "send", "--to", "file:again"]);
        let sent = send.args(&files).args(files.iter().rev()).output().unwrap();
        assert!(sent.status.success(), "{}", stderr(&sent));
        assert_eq!(stdout(&sent), "");
    }
    assert_eq!(packets(&folder.path().join("again")), packets(&kept));
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open"), "Authorization: Bearer x\n").unwrap();
    let fails = |arguments: &[&str], part: &str| {
        let mut command = Command::new(THROUGHLINE);
        let run = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{}", stderr(&run));
        assert!(stderr(&run).contains(part), "{part}: {}", stderr(&run));
        assert!(!stderr(&run).contains("Bearer"), "{}", stderr(&run));
    };
    fails(&["agent"], "--send");
    fails(&["agent", "--send", "https://me:word@h/"], "a file with headers");
    fails(&["agent", "--send", "http://h", "--label", "x"], "KEY=VALUE");
    let file = folder.path().join("absent.otlp");
    let to = ["--to", "http://127.0.0.1:9"];
    let send = ["profile", "send", file.to_str().unwrap()];
    fails(&[&send[..], &to].concat(), "absent.otlp");
    fails(&[&send[..], &to, &["--header-file", "open"]].concat(), "open");
}
