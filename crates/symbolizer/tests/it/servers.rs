//! Debug information of servers: a real `debuginfod`, and some that do not behave.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use symbolizer::{Fetches, Named, Settings, SettingsError, Symbolizer};
use testkit::{Running, wait_for};

use crate::program::{Program, known};

const PATIENCE: Duration = Duration::from_secs(60);

fn over(servers: &[String], cache: &Path, cache_bytes: u64) -> Symbolizer {
    let servers = servers.iter().map(|uri| uri.parse().unwrap()).collect();
    let cache = Some(cache.to_owned());
    Symbolizer::new(&Settings { folders: Vec::new(), servers, cache, cache_bytes }).unwrap()
}

fn fetches(symbolizer: &Symbolizer) -> Fetches {
    symbolizer.fetches().unwrap()
}

/// What is in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_debuginfod_is_asked_once_and_what_it_has_is_there_the_next_time() {
    if !testkit::is_installed("debuginfod") {
        eprintln!("skipped: debuginfod is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let served = folder.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::copy(&program.debug, served.join("program.debug")).unwrap();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command = Command::new("debuginfod");
    command.args(["-d", ":memory:", "-p", &port.to_string(), "-t", "1", "-F"]).arg(&served);
    command.stdout(Stdio::null());
    let mut server = Running::start(&mut command, "debuginfod", &folder.path().join("log"));
    // It reads its folder first.
    wait_for("debuginfod to have the file", || {
        let url = format!("http://127.0.0.1:{port}/buildid/{}/debuginfo", program.build_id);
        let status = Command::new("curl").args(["-fso", "/dev/null", &url]).status().unwrap();
        status.success().then_some(())
    });
    let cache = folder.path().join("cache");
    let url = format!("http://127.0.0.1:{port}/");
    let symbolizer = over(std::slice::from_ref(&url), &cache, 1 << 30);
    let address = program.outer.0;
    let mut batch = program.samples("native", &[address]);
    let named = wait_for("a name", || {
        symbolizer.symbolize(&mut batch, PATIENCE);
        let named = symbolizer.named();
        (named.named > 0).then_some(named)
    });
    assert_eq!(known(&batch), [program.by_addr2line(address)]);
    assert!(named.no_file > 0, "nobody waits for the server");
    assert_eq!(names(&cache), [format!("{}.debug", program.build_id)]);
    // What it does not have is not asked for again and again.
    let mut other = Program { build_id: "00112233445566778899".to_owned(), ..program };
    for _ in 0..3 {
        symbolizer.symbolize(&mut other.samples("native", &[address]), PATIENCE);
        wait_for("an answer", || (fetches(&symbolizer).absent > 0).then_some(()));
    }
    assert_eq!((fetches(&symbolizer).found, fetches(&symbolizer).absent), (1, 1));
    // What was fetched stays when the server has gone.
    server.end("TERM");
    let build_id = names(&cache)[0].trim_end_matches(".debug").to_owned();
    other.build_id = build_id;
    let mut batch = other.samples("native", &[address]);
    let symbolizer = over(&[url], &cache, 1 << 30);
    symbolizer.symbolize(&mut batch, PATIENCE);
    assert_eq!(symbolizer.named(), Named { named: 1, ..Named::default() });
    assert_eq!(fetches(&symbolizer), Fetches::default());
}

/// A server that answers each request by one of these, in turn, then no more.
fn answering(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut connection, _)) = listener.accept() else { return };
            let mut request: Vec<u8> = Vec::new();
            let mut piece = [0; 1024];
            while !request.windows(4).any(|it| it == b"\r\n\r\n") {
                match connection.read(&mut piece) {
                    Ok(count @ 1..) => request.extend(&piece[..count]),
                    _ => return,
                }
            }
            drop(connection.write_all(&answer));
        }
    });
    url
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[test]
fn what_servers_say_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let debug = fs::read(&program.debug).unwrap();
    let other = fs::read("/proc/self/exe").unwrap();
    let cut = {
        let mut cut = answer("200 OK", &debug);
        cut.truncate(cut.len() / 2);
        cut
    };
    let moved = |to: &str| answer(&format!("302 Found\r\nLocation: {to}"), b"");
    let wrong = [
        answer("200 OK", b"<html>sign in</html>"),
        answer("200 OK", &other),
        cut,
        answer("500 Internal Server Error", b""),
        b"nonsense\r\n\r\n".to_vec(),
        moved("file:///etc/passwd"),
        moved("gopher://x/"),
        answer("302 Found", b""),
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let cache = folder.path().join(format!("cache{number}"));
        let symbolizer = over(&[answering(vec![wrong])], &cache, 1 << 30);
        symbolizer.symbolize(&mut program.samples("native", &[program.outer.0]), PATIENCE);
        wait_for("a failure", || (fetches(&symbolizer).failed == 1).then_some(()));
        assert_eq!(fetches(&symbolizer), Fetches { failed: 1, ..Fetches::default() });
        assert!(names(&cache).is_empty(), "{number}: {:?}", names(&cache));
    }
    // In a circle it is led so often, and no more.
    let cache = folder.path().join("circle");
    let symbolizer = over(&[answering(vec![moved("/again"); 20])], &cache, 1 << 30);
    symbolizer.symbolize(&mut program.samples("native", &[program.outer.0]), PATIENCE);
    wait_for("a failure", || (fetches(&symbolizer).failed == 1).then_some(()));
}

#[test]
fn the_next_server_is_asked_and_files_that_do_not_fit_go() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let debug = fs::read(&program.debug).unwrap();
    let whole = answer("200 OK", &debug);
    let absent = answer("404 Not Found", b"");
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("00ff.debug"), vec![0; 4096]).unwrap();
    fs::write(cache.join("README"), "of somebody").unwrap();
    let moved = answer("301 Moved Permanently\r\nLocation: /there", b"");
    let servers = [answering(vec![absent.clone()]), answering(vec![moved, whole.clone()])];
    let symbolizer = over(&servers, &cache, debug.len() as u64 + 100);
    let mut batch = program.samples("native", &[program.outer.0]);
    symbolizer.symbolize(&mut batch, PATIENCE);
    wait_for("the file", || (fetches(&symbolizer).found == 1).then_some(()));
    symbolizer.symbolize(&mut batch, PATIENCE);
    assert_eq!(known(&batch), [program.by_addr2line(program.outer.0)]);
    let mut expected = ["README".to_owned(), format!("{}.debug", program.build_id)];
    expected.sort();
    assert_eq!(names(&cache), expected);
    // A file that is larger than the cache is not taken.
    let small = folder.path().join("small");
    let symbolizer = over(&[answering(vec![whole])], &small, 100);
    symbolizer.symbolize(&mut program.samples("native", &[program.outer.0]), PATIENCE);
    wait_for("a failure", || (fetches(&symbolizer).failed == 1).then_some(()));
    assert!(fs::read_dir(&small).unwrap().next().is_none());
}

#[test]
fn a_file_without_debug_information_is_fetched_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::compile(folder.path());
    let symbols = folder.path().join("symbols");
    let strip = ["--strip-debug", program.with_all.to_str().unwrap(), symbols.to_str().unwrap()];
    assert!(Command::new("objcopy").args(strip).status().unwrap().success());
    let whole = answer("200 OK", &fs::read(symbols).unwrap());
    let cache = folder.path().join("cache");
    let symbolizer = over(&[answering(vec![whole; 5])], &cache, 1 << 30);
    for round in 1..=4 {
        let mut batch = program.samples("native", &[program.outer.0]);
        symbolizer.symbolize(&mut batch, PATIENCE);
        wait_for("the file", || (fetches(&symbolizer).found > 0).then_some(()));
        let name = if round == 1 { "" } else { "outer" };
        assert_eq!(known(&batch)[0][0].0, name);
        // Another request would have been answered by then.
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(fetches(&symbolizer), Fetches { found: 1, ..Fetches::default() });
}

#[test]
fn servers_are_told_by_url() {
    let folder = tempfile::tempdir().unwrap();
    for wrong in ["ftp://127.0.0.1/", "/buildid", "http://127.0.0.1/?a=b"] {
        let servers = vec![wrong.parse().unwrap()];
        let cache = Some(folder.path().to_owned());
        let settings = Settings { servers, cache, cache_bytes: 1, ..Settings::default() };
        let error = Symbolizer::new(&settings).unwrap_err();
        assert!(matches!(error, SettingsError::Server { .. }), "{error}");
    }
}
