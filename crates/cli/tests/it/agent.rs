//! `throughline agent` on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use profile::request::{Line, Location};
use profile::{Limits, Request, keys, ungzip};
use testkit::{agent, wait_for};

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
    agent::start(Path::new(THROUGHLINE), folder, "agent", options)
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
fn s4_packets_of_an_agent_that_is_started_again_and_again_lack_no_name() {
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
        // One of the first samples may be without its callers; what it has of the program has names.
        let mut of_program = names.iter().filter(|((path, _), _)| path.ends_with("/spin"));
        assert!(of_program.all(|(_, name)| name.is_some()), "{file}: {names:?}");
        for (place, name) in names {
            let before = known.entry(place.clone()).or_insert_with(|| name.clone());
            assert_eq!(*before, name, "{file}: {place:?}");
        }
    }
    let called = |name| known.values().flatten().any(|it: &String| it == name);
    assert!(called("work") && called("main"), "{known:?}");
}

/// Has OpenTelemetry's own messages read the files of a folder, and follow all that is referred to.
fn other_people_read(folder: &Path) {
    let Ok(python) = std::env::var("THROUGHLINE_OTLP_PYTHON") else {
        testkit::skip("OpenTelemetry's messages for Python are not installed");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/it/otlp_peer.py");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    let read = Command::new(python).args([script, "read"]).args(&files).output().unwrap();
    assert!(read.status.success(), "{}", stderr(&read));
    assert_eq!(stdout(&read).lines().count(), files.len());
    for line in stdout(&read).lines() {
        let packet: serde_json::Value = serde_json::from_str(line).unwrap();
        for profile in packet["profiles"].as_array().unwrap() {
            assert_eq!(profile["attributes"]["host.name"], "renamed");
            assert_eq!(profile["type"], "samples");
            let begin = profile["begin"].as_u64().unwrap();
            let mut times = profile["times"].as_array().unwrap().iter();
            assert!(times.all(|at| (begin..begin + 300_000_000).contains(&at.as_u64().unwrap())));
        }
    }
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
    other_people_read(&kept);
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
fn s12_a_collector_that_was_away_gets_what_fits_the_spool_once_each_also_after_a_kill() {
    const SPOOL: u64 = 100_000;
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (url, size) = (format!("http://{address}"), format!("{SPOOL}B"));
    let options =
        ["--send", &url, "--spool-size", &size, "--window", "200ms", "--frequency", "499"];
    let waiting = || {
        let queues = folder.path().join("throughline-spool/queues");
        let queue = fs::read_dir(queues).unwrap().next().unwrap().unwrap();
        let files = fs::read_dir(queue.path()).unwrap();
        let lengths = files.map(|file| {
            let file = file.unwrap();
            // One that was dropped meanwhile has none.
            let length = file.metadata().map_or(0, |it| it.len());
            (file.file_name().into_string().unwrap(), length)
        });
        lengths.collect::<BTreeMap<_, _>>()
    };
    let mut agent = start(folder.path(), &options);
    // Until the oldest is dropped.
    let first = wait_for("a packet", || waiting().into_keys().next());
    wait_for("a drop", || (!waiting().contains_key(&first)).then_some(()));
    assert!(!agent.end("KILL").success());
    let left = waiting();
    let bytes: u64 = left.values().sum();
    let largest = left.values().max().copied().unwrap_or(0);
    // The one that was just written, and one that is being sent.
    assert!(bytes <= SPOOL + 2 * largest, "{bytes} bytes, the largest {largest}");

    let mut agent = start(folder.path(), &options);
    let (youngest, _) = left.last_key_value().unwrap();
    wait_for("a younger packet", || {
        waiting().last_key_value().is_some_and(|(name, _)| name > youngest).then_some(())
    });
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let takes = Arc::clone(&bodies);
    agent::collect(address, move |body| takes.lock().unwrap().push(body)).unwrap();
    let plain = |body: &Vec<u8>| ungzip(body, Limits::default()).unwrap();
    let told = |bodies: &[Vec<u8>]| {
        let losses = bodies
            .iter()
            .flat_map(|body| Request::decode(&plain(body), Limits::default()).unwrap().losses());
        let undelivered = losses.filter(|(class, _)| class == "undelivered.size");
        undelivered.map(|(_, samples)| samples).sum::<u64>()
    };
    wait_for("what was dropped", || (told(&bodies.lock().unwrap()) > 0).then_some(()));
    assert!(agent.end("TERM").success(), "{}", agent.said());
    let said = agent.said();
    let bodies = bodies.lock().unwrap();
    let ids: BTreeSet<_> =
        bodies.iter().map(|body| profile::packet_id(&plain(body)).unwrap().to_string()).collect();
    assert_eq!(ids.len(), bodies.len(), "some came twice");
    assert!(said.contains(&format!("{} packets delivered of ", bodies.len())), "{said}");
    assert!(waiting().is_empty() && !said.contains("wait"), "{said}");
    // What waited at the kill was delivered, but for what the second agent had to drop.
    let kept = left.keys().filter(|name| ids.iter().any(|id| name.contains(id))).count();
    let mut parts = said.lines().flat_map(|line| line.split(", "));
    let dropped = parts.find_map(|part| part.strip_suffix(" dropped (size)"));
    let dropped = dropped.map_or(0, |count| count.parse::<usize>().unwrap());
    assert!(kept + dropped >= left.len(), "{kept} and {dropped} of {}: {said}", left.len());
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
