//! What `throughline relay` does with sealed chunks, and what the other commands make of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::lttng::SessionDaemon;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::read::{stderr, stdout};
use crate::up::Up;

fn ctf(arguments: &[&str], path: &Path) -> Output {
    Command::new(THROUGHLINE).arg("ctf").args(arguments).arg(path).output().unwrap()
}

/// A session daemon, a program that it traces, and a folder; `None` when something is not installed.
fn tracer() -> Option<(SessionDaemon, PathBuf, TempDir)> {
    for tool in ["lttng-sessiond", "cc"] {
        if !testkit::is_installed(tool) {
            testkit::skip(&format!("{tool} is not installed"));
            return None;
        }
    }
    let daemon = SessionDaemon::start().unwrap();
    let program = daemon.compile_ticks().unwrap();
    Some((daemon, program, tempfile::tempdir().unwrap()))
}

/// A relay with more options, and the `net://` URL of its ports.
fn relay(root: &Path, options: &[&str], log: &Path) -> (Running, String) {
    let mut command = Command::new(THROUGHLINE);
    command.arg("relay").arg("--output").arg(root).args(options);
    for port in ["--control", "--data", "--live"] {
        command.args([port, "127.0.0.1:0"]);
    }
    let mut relay = Running::start(&mut command, "throughline relay", log);
    relay.wait_until_said("writing below");
    let said = relay.said();
    let port = |name: &str| {
        let address = said.split(&format!("{name} 127.0.0.1:")).nth(1).unwrap();
        address.chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    let url = format!("net://127.0.0.1:{}:{}", port("control"), port("data"));
    (relay, url)
}

#[test]
fn a_program_is_told_of_a_chunk_that_check_and_info_then_agree_on() {
    let Some((daemon, program, folder)) = tracer() else { return };
    let script = folder.path().join("told");
    let text = r#"#!/bin/sh
here=$(dirname "$0"); cat > "$here/manifest.new"; echo "$1" > "$here/folder"; mv "$here/manifest.new" "$here/manifest"
"#;
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let root = folder.path().join("traces");
    let options = [
        "--announce-program",
        script.to_str().unwrap(),
        "--keep-size",
        "1GiB",
        "--compress",
        "zstd",
    ];
    let (mut relay, url) = relay(&root, &options, &folder.path().join("log"));

    let lttng = |command: &str| daemon.lttng(command.split_whitespace()).unwrap();
    lttng(&format!("create told --set-url={url}"));
    lttng("enable-event -u testkit:tick");
    lttng("start");
    let mut traced = daemon.command(&program);
    traced.arg("700").env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
    assert!(traced.status().unwrap().success());
    lttng("rotate told");
    let manifest = folder.path().join("manifest");
    wait_for("the announcement", || manifest.exists().then_some(()));
    let told = fs::read_to_string(folder.path().join("folder")).unwrap();
    let chunk = PathBuf::from(told.trim_end());
    assert!(chunk.parent().unwrap().ends_with("archives"), "{told}");
    let told: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let files = told["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["compressed"]["bytes"].as_u64() < file["bytes"].as_u64()));
    lttng("destroy told");
    assert!(relay.end("TERM").success(), "{}", relay.said());

    let checked = ctf(&["check"], &chunk);
    assert_eq!((stdout(&checked), checked.status.code()), ("", Some(0)));
    assert!(
        stderr(&checked).contains("700 event records, 1 manifests; 0 findings"),
        "{}",
        stderr(&checked)
    );
    let info: Value =
        serde_json::from_str(stdout(&ctf(&["info", "--format", "json"], &chunk))).unwrap();
    assert_eq!(info["manifests"][0]["manifest"], told);
    let streams = info["traces"][0]["streams"].as_array().unwrap();
    let sum = |key: &str, streams: &[Value]| -> u64 {
        streams.iter().map(|stream| stream[key].as_u64().unwrap()).sum()
    };
    let described = told["streams"].as_array().unwrap();
    for key in ["packets", "bytes", "content_bits"] {
        assert_eq!(sum(key, streams), sum(key, described), "{key}");
    }
    assert_eq!(told["traces"][0]["environment"]["tracer_name"], "lttng-ust");
    assert!(stdout(&ctf(&["info"], &chunk)).contains("sealed chunk"));

    let index = told["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap());
    let metadata = chunk.join(index.clone().find(|path| path.ends_with("metadata")).unwrap());
    let mut bytes = fs::read(&metadata).unwrap();
    // In the padding of the last packet, which nothing else looks at.
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&metadata, bytes).unwrap();
    let checked = ctf(&["check", "--format", "json"], &chunk);
    let finding: Value = serde_json::from_str(stdout(&checked).trim_end()).unwrap();
    assert_eq!((finding["code"].as_str(), checked.status.code()), (Some("manifest"), Some(1)));
    assert_eq!(finding["path"], metadata.to_str().unwrap());
}

#[test]
fn up_announces_chunks_and_deletes_them_after_their_summaries_were_made() {
    let Some((daemon, program, folder)) = tracer() else { return };
    let (script, told) = (folder.path().join("told"), folder.path().join("folders"));
    fs::write(&script, "#!/bin/sh\necho \"$1\" >> \"$(dirname \"$0\")/folders\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let log = folder.path().join("log");
    let options = ["--announce-program", script.to_str().unwrap(), "--keep-for", "300ms"];
    let mut up = Up::start_with(&folder.path().join("data"), &log, &options);

    let lttng = |command: &str| daemon.lttng(command.split_whitespace()).unwrap();
    lttng(&format!("create kept --set-url={}", up.relay_url()));
    lttng("enable-event -u testkit:tick");
    lttng("start");
    for _ in 0..4 {
        let mut traced = daemon.command(&program);
        traced.arg("50").env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        assert!(traced.status().unwrap().success());
        lttng("rotate kept");
    }
    // What a summary cannot be made of yet, because the next chunk may reach into it, is there however old it is.
    wait_for("the first chunks to go", || {
        let announced = fs::read_to_string(&told).unwrap_or_default();
        let announced: Vec<&Path> = announced.lines().map(Path::new).collect();
        (announced.len() >= 4 && announced.iter().any(|chunk| !chunk.exists())).then_some(())
    });
    lttng("destroy kept");
    up.wait_until_answered();
    wait_for("all chunks to go", || {
        let announced = fs::read_to_string(&told).unwrap();
        announced.lines().all(|chunk| !Path::new(chunk).exists()).then_some(())
    });
    assert!(up.process.end("TERM").success(), "{}", up.process.said());
    assert!(!up.process.said().contains("not part of the answer"), "{}", up.process.said());

    let hosts: Vec<PathBuf> = fs::read_dir(up.data.join("summaries"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(hosts.len(), 1, "{hosts:?}");
    let names = fs::read_dir(&hosts[0]).unwrap().map(|entry| entry.unwrap().file_name());
    let mut windows: Vec<(u64, u64)> = names
        .map(|name| {
            let name = name.into_string().unwrap();
            let (begin, end) = name.trim_end_matches(".summary").split_once('-').unwrap();
            (begin.parse().unwrap(), end.parse().unwrap())
        })
        .collect();
    windows.sort_unstable();
    assert!(windows.len() >= 2, "{windows:?}");
    assert!(windows.windows(2).all(|pair| pair[0].1 == pair[1].0), "{windows:?}");
}

#[test]
fn settings_that_make_no_sense_are_refused_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("traces");
    for (option, value, why) in [
        ("--announce-url", "ftp://h/", "https://"),
        ("--announce-url", "nowhere", "not a URL"),
        ("--announce-timeout", "0s", "range"),
        ("--keep-for", "7", "unit"),
        ("--keep-size", "much", "number"),
    ] {
        let output = Command::new(THROUGHLINE)
            .args(["relay", option, value, "--output"])
            .arg(&root)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    assert!(!root.exists());
}
