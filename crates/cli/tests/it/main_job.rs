//! The main job on real input: a real server under real LTTng tools, the kernel beneath it, the relay, the stitched
//! answer, the page in a real browser; an independent witness counts the system calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testkit::browser::Browser;
use testkit::lttng::SessionDaemon;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::thumbnailer;
use crate::up::{Up, analyze};

const REQUESTS: u32 = 60;

#[test]
fn the_time_of_a_real_servers_requests_is_told_to_the_nanosecond() {
    let programs = match needs(&["lttng-sessiond", "ffmpeg", "bpftrace"]) {
        Ok(programs) => programs,
        Err(reason) => return testkit::skip(&reason),
    };
    if let Err(reason) = capture::kernel::preflight() {
        return testkit::skip(&reason.to_string());
    }
    let Scene { folder, video, mut up, daemon } = Scene::start();
    let at = |name: &str| folder.path().join(name);
    let mut witness = Witness::start(&at("witness.json"), &at("witness.log"));
    let mut capture = start_capture(&up, &at("capture.log"));
    let (mut server, port) =
        thumbnailer::start_server(&daemon, programs, &video, &at("server.log"));
    let server_pid = server.child.id();
    thumbnailer::load(programs, &port, REQUESTS);
    assert!(server.end("TERM").success(), "{}", server.said());
    assert!(capture.end("TERM").success(), "{}", capture.said());
    let witnessed = witness.end(server_pid);
    daemon.lttng(["destroy", "thumbs"]).unwrap();
    up.wait_until_answered();

    let phases = analyze(&["analyze", "phases", "--format", "json"], &up.traces());
    assert_eq!(
        phases.trim_end(),
        up.get("/api/v1/phases").trim_end(),
        "what `up` merged as chunks arrived"
    );
    let whole = analyze(&["analyze", "phases", "--format", "json", "--whole"], &up.traces());
    assert_eq!(phases, whole, "chunks merged, and one chunk that holds all");

    let phases: Value = serde_json::from_str(&phases).unwrap();
    assert_eq!(phases["loss"]["events_discarded"], 0, "{}", capture.said());
    requests_are_complete_and_add_up(&phases);
    files_are_named(&phases, video.to_str().unwrap());
    let syscalls = analyze(&["analyze", "syscalls", "--format", "json"], &up.traces());
    assert_eq!(syscalls.trim_end(), up.get("/api/v1/syscalls").trim_end());
    match witnessed {
        Some(witnessed) => {
            assert_eq!(calls_of(&serde_json::from_str(&syscalls).unwrap(), server_pid), witnessed);
        }
        None => testkit::skip("bpftrace hangs instead of ending: calls are not compared"),
    }
    page_shows(&up, &phases);
    assert!(up.process.end("TERM").success(), "{}", up.process.said());
}

#[test]
fn without_the_kernel_half_requests_are_still_told_and_their_time_is_unknown() {
    let programs = match needs(&["lttng-sessiond", "ffmpeg"]) {
        Ok(programs) => programs,
        Err(reason) => return testkit::skip(&reason),
    };
    let Scene { folder, video, up, daemon } = Scene::start();
    let at = |name: &str| folder.path().join(name);
    let (mut server, port) =
        thumbnailer::start_server(&daemon, programs, &video, &at("server.log"));
    thumbnailer::load(programs, &port, 10);
    assert!(server.end("TERM").success());
    daemon.lttng(["destroy", "thumbs"]).unwrap();
    up.wait_until_answered();

    let answer = up.json("/api/v1/phases");
    assert_eq!(answer["requests"]["complete"], 10);
    let decode = phase(&answer, "decode");
    assert_eq!(decode["spans"], 10);
    assert_ne!(number(decode, "wall_ns"), 0);
    assert_eq!(number(decode, "unknown_ns"), number(decode, "wall_ns"));
}

#[test]
fn a_killed_relay_leaves_sealed_chunks_readable_and_starts_again_on_the_same_folder() {
    let programs = match needs(&["lttng-sessiond", "ffmpeg"]) {
        Ok(programs) => programs,
        Err(reason) => return testkit::skip(&reason),
    };
    let Scene { folder, video, mut up, daemon } = Scene::start();
    let at = |name: &str| folder.path().join(name);
    let (_server, port) = thumbnailer::start_server(&daemon, programs, &video, &at("server.log"));
    thumbnailer::load(programs, &port, 10);
    wait_for("two sealed chunks with requests in them", || {
        thumbnailer::load(programs, &port, 2);
        let status = up.json("/api/v1/status");
        let answer = up.json("/api/v1/phases");
        (status["chunks_sealed"].as_u64()? >= 2 && answer["requests"]["complete"].as_u64()? >= 10)
            .then_some(())
    });
    let before = up.json("/api/v1/phases")["requests"]["complete"].as_u64().unwrap();
    up.process.end("KILL");

    let read =
        Command::new(THROUGHLINE).args(["read", "--count"]).arg(up.traces()).output().unwrap();
    let events: u64 = String::from_utf8_lossy(&read.stdout).trim().parse().unwrap();
    assert!(events >= 12 * before, "{events} events of {before} requests with six spans each");

    let again = Up::start(&at("data"), &at("again.log"));
    again.wait_until_answered();
    let status = again.json("/api/v1/status");
    let missing = status["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{status}");
    assert!(again.process.said().contains("interrupted"), "{}", again.process.said());
    assert!(again.json("/api/v1/phases")["requests"]["complete"].as_u64().unwrap() >= before);
}

/// A running `up` that a private session daemon records into.
struct Scene {
    folder: TempDir,
    video: PathBuf,
    up: Up,
    daemon: SessionDaemon,
}

impl Scene {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let video = at("video.mp4");
        thumbnailer::make_video(&video);
        let up = Up::start(&at("data"), &at("up.log"));
        let daemon = SessionDaemon::start().unwrap();
        thumbnailer::start_recording(&daemon, "thumbs", &up.relay_url());
        Self { folder, video, up, daemon }
    }
}

/// The built example when all programs are installed, else what is missing.
fn needs(programs: &[&str]) -> Result<&'static Path, String> {
    if let Some(missing) = programs.iter().find(|program| !testkit::is_installed(program)) {
        return Err(format!("{missing} is not installed"));
    }
    thumbnailer::programs().map_err(str::to_owned)
}

fn start_capture(up: &Up, log: &Path) -> Running {
    let mut command = Command::new(THROUGHLINE);
    command.args(["capture", "kernel", "--rotate", "1s", "--to", &up.relay_url()]);
    // Counts are compared with a witness's: nothing may be discarded, however busy the machine is.
    command.args(["--buffer", "64MiB"]);
    command.args(["--exclude-pid", &up.process.child.id().to_string()]);
    let mut capture = Running::start(&mut command, "throughline capture kernel", log);
    capture.wait_until_said("capturing the kernel");
    capture
}

/// bpftrace counting the ends of system calls by process and number.
struct Witness {
    process: Running,
    output: PathBuf,
}

impl Witness {
    /// Says "attached" at the first call that it sees. A thread's first return from `clone` (56), `vfork` (58) or
    /// `clone3` (435) is its birth and no call of its own.
    const PROGRAM: &str = r#"tracepoint:raw_syscalls:sys_exit {
            if (@seen == 0) { @seen = 1; printf("attached\n"); }
            if (args->ret != 0 || (args->id != 56 && args->id != 58 && args->id != 435)) {
                @calls[pid, args->id] = count();
            }
        }"#;

    fn start(output: &Path, log: &Path) -> Self {
        let mut command = testkit::bpftrace();
        command.args(["-B", "line", "-f", "json", "-o"]).arg(output).args(["-e", Self::PROGRAM]);
        command.env("BPFTRACE_MAP_KEYS_MAX", "65536").stdout(Stdio::null());
        let mut process = Running::start(&mut command, "bpftrace", log);
        wait_for("bpftrace", || {
            assert!(
                process.child.try_wait().unwrap().is_none(),
                "bpftrace ended: {}",
                process.said()
            );
            fs::read_to_string(output).is_ok_and(|said| said.contains("attached")).then_some(())
        });
        Self { process, output: output.to_owned() }
    }

    /// How long bpftrace may take to write its counts. Version 0.17 was seen to hang for ever once.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Calls by name of one process; `None` when bpftrace hangs.
    fn end(&mut self, pid: u32) -> Option<BTreeMap<String, u64>> {
        self.process.signal("INT");
        let deadline = Instant::now() + Self::PATIENCE;
        let status = wait_for("the end of bpftrace", || match self.process.child.try_wait() {
            Ok(None) if Instant::now() < deadline => None,
            status => Some(status.unwrap()),
        })?;
        assert!(status.success(), "{}", self.process.said());
        let names = call_names();
        let mut calls = BTreeMap::new();
        for line in
            fs::read_to_string(&self.output).unwrap().lines().filter(|line| !line.is_empty())
        {
            let json: Value = serde_json::from_str(line).unwrap();
            for (key, count) in json["data"]["@calls"].as_object().into_iter().flatten() {
                let (of, number) = key.split_once(',').unwrap();
                if of == pid.to_string() {
                    calls.insert(names[number].clone(), count.as_u64().unwrap());
                }
            }
        }
        Some(calls)
    }
}

/// The kernel's names of the calls by number: the C library's, but for those whose function is called otherwise.
fn call_names() -> BTreeMap<String, String> {
    const RENAMED: [(&str, &str); 6] = [
        ("stat", "newstat"),
        ("fstat", "newfstat"),
        ("lstat", "newlstat"),
        ("uname", "newuname"),
        ("sendfile", "sendfile64"),
        ("umount2", "umount"),
    ];
    let header = fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").unwrap();
    let defines = header.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
    defines
        .map(|define| {
            let (name, number) = define.split_once(' ').unwrap();
            let renamed = RENAMED.iter().find(|(library, _)| *library == name);
            (number.trim().to_owned(), renamed.map_or(name, |(_, kernel)| *kernel).to_owned())
        })
        .collect()
}

fn calls_of(answer: &Value, pid: u32) -> BTreeMap<String, u64> {
    let processes = answer["processes"].as_array().unwrap();
    let server =
        processes.iter().find(|process| process["pid"] == pid).expect("the server's calls");
    let calls = server["syscalls"].as_array().unwrap().iter();
    calls.map(|call| (call["name"].as_str().unwrap().to_owned(), number(call, "calls"))).collect()
}

fn requests_are_complete_and_add_up(answer: &Value) {
    assert_eq!(answer["requests"]["complete"], REQUESTS);
    let requests = answer["request_list"].as_array().unwrap();
    assert_eq!(requests.len(), REQUESTS as usize);
    for request in requests {
        let wall = number(request, "wall_ns");
        assert_eq!(wall, number(request, "end_ns") - number(request, "begin_ns"), "{request}");
        assert_eq!(wall, split_sum(request), "{request}");
        assert_eq!(number(request, "unknown_ns"), 0, "{request}");
        let phases = request["phases"].as_array().unwrap();
        assert_eq!(
            wall,
            phases.iter().map(|phase| number(phase, "wall_ns")).sum::<u64>(),
            "{request}"
        );
        for phase in phases {
            assert_eq!(number(phase, "wall_ns"), split_sum(phase), "{request}");
        }
    }
    for name in ["open", "seek", "decode", "encode", "send"] {
        let phase = phase(answer, name);
        assert_eq!(phase["spans"], REQUESTS, "{name}");
        assert_eq!(number(phase, "wall_ns"), split_sum(phase), "{name}");
    }
}

fn split_sum(row: &Value) -> u64 {
    let blocked = row["blocked_ns"].as_object().unwrap().values();
    let blocked: u64 = blocked.map(|ns| ns.as_u64().unwrap()).sum();
    blocked + number(row, "running_ns") + number(row, "waiting_ns") + number(row, "unknown_ns")
}

fn files_are_named(answer: &Value, video: &str) {
    let open = phase(answer, "open")["syscalls"].as_array().unwrap().clone();
    let file = |name: &str| -> Value {
        let mut calls = open.iter();
        let call = calls.find(|call| call["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        let mut files = call["files"].as_array().unwrap().iter();
        let file = files.find(|file| file["name"] == video);
        file.unwrap_or_else(|| panic!("{name} is not on {video}: {call}")).clone()
    };
    assert_eq!(file("openat")["calls"], REQUESTS);
    // A call on the descriptor itself has the descriptor's file.
    assert!(number(&file("newfstatat"), "calls") > 0);
    assert!(number(&file("read"), "bytes") > 0);
}

/// Reads the phases' figures off the page, in a browser.
fn page_shows(up: &Up, answer: &Value) {
    let Some(mut browser) = Browser::start(1300, 900) else { return };
    let shown = browser.open(&format!("http://{}/", up.http));
    browser.wait(&shown, "document.querySelector('[data-phase=decode]') !== null");
    let page = browser.eval(&shown, "document.documentElement.outerHTML");
    let page = page.as_str().unwrap();
    for name in ["open", "seek", "decode", "encode", "send"] {
        let row = element(page, "tr", &format!("data-phase=\"{name}\""));
        for key in ["wall_ns", "running_ns", "waiting_ns"] {
            let cell = element(row, "td", &format!("data-key=\"{key}\""));
            let shown =
                cell.split("data-ns=\"").nth(1).and_then(|rest| rest.split('"').next()).expect(key);
            assert_eq!(shown, number(phase(answer, name), key).to_string(), "{name} {key}");
        }
    }
}

/// The first element of a kind with an attribute: its attributes and what follows up to the next of its kind.
fn element<'p>(page: &'p str, kind: &str, attribute: &str) -> &'p str {
    let opening = format!("<{kind} ");
    let found = page
        .split(opening.as_str())
        .skip(1)
        .find(|part| part.split('>').next().unwrap().contains(attribute));
    found.unwrap_or_else(|| panic!("no <{kind} {attribute}> in {page}"))
}

fn phase<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let phases = answer["phases"].as_array().unwrap();
    phases
        .iter()
        .find(|phase| phase["name"] == name)
        .unwrap_or_else(|| panic!("no phase {name}: {answer}"))
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}
