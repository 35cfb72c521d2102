//! `throughline up` as a test drives it.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{Running, THROUGHLINE, wait_for};
use crate::store::Door;

/// A running `throughline up` on ports of the system's choice.
pub(crate) struct Up {
    pub(crate) process: Running,
    pub(crate) data: PathBuf,
    control: String,
    stream: String,
    pub(crate) http: String,
    /// Of the store of profiles, if there is one.
    pub(crate) profiles: Option<Door>,
}

impl Up {
    /// Starts it on a data folder and waits until it listens.
    pub(crate) fn start(data: &Path, log: &Path) -> Self {
        Self::start_with(data, log, &[])
    }

    /// As [`Self::start`], with more options.
    pub(crate) fn start_with(data: &Path, log: &Path, options: &[&str]) -> Self {
        let addresses = data.join("up.json");
        if addresses.exists() {
            fs::remove_file(&addresses).unwrap();
        }
        let mut command = Command::new(THROUGHLINE);
        command.arg("up").arg("--data").arg(data).args(options);
        let ports = ["--control", "--stream", "--live", "--http", "--profiles"];
        for port in ports.into_iter().filter(|port| !options.contains(port)) {
            command.args([port, "127.0.0.1:0"]);
        }
        let mut process = Running::start(&mut command, "throughline up", log);
        let text = wait_for("the addresses of throughline up", || {
            assert!(
                process.child.try_wait().unwrap().is_none(),
                "throughline up ended: {}",
                process.said()
            );
            fs::read_to_string(&addresses).ok()
        });
        let json: Value = serde_json::from_str(&text).unwrap();
        let address = |key: &str| json[key].as_str().unwrap().to_owned();
        let (control, stream, http) = (address("control"), address("stream"), address("http"));
        let profiles = json["profiles"].as_str();
        let profiles = profiles.map(|address| Door { url: format!("http://{address}") });
        Self { process, data: data.to_owned(), control, stream, http, profiles }
    }

    /// Where tracers send to.
    pub(crate) fn relay_url(&self) -> String {
        let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
        format!("net://127.0.0.1:{}:{}", port(&self.control), port(&self.stream))
    }

    /// The body of a GET.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut connection = TcpStream::connect(&self.http).unwrap();
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.http
        )
        .unwrap();
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).unwrap();
        let reply = String::from_utf8(reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }

    /// The JSON of a GET.
    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    /// Waits until every session is closed and everything that was sealed is part of the answer.
    pub(crate) fn wait_until_answered(&self) {
        wait_for("the end of the analysis", || {
            let status = self.json("/api/v1/status");
            (status["recording"] == false && status["windows_mapped"] != 0).then_some(())
        });
    }

    /// The folder of the recorded traces.
    pub(crate) fn traces(&self) -> PathBuf {
        self.data.join("traces")
    }
}

#[test]
fn profiles_that_are_pushed_to_it_are_there_at_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut up = Up::start(&data, &log);
    let store = up.profiles.as_ref().unwrap();
    assert_eq!(store.push("shop", &[], "main;serve 30\n"), (200, String::new()));
    let port = store.url.rsplit(':').next().unwrap();
    assert_eq!(up.json("/api/v1/status")["profiles_port"].to_string(), port);
    assert!(up.process.end("TERM").success(), "{}", up.process.said());

    let mut up = Up::start(&data, &log);
    assert_eq!(up.profiles.as_ref().unwrap().total("shop"), 300_000_000);
    let mut command = Command::new(THROUGHLINE);
    let ports =
        ["--control", "--stream", "--live", "--http"].map(|port| format!("{port}=127.0.0.1:0"));
    command.arg("up").arg("--data").arg(folder.path().join("other")).args(ports);
    let taken = up.profiles.as_ref().unwrap().url.trim_start_matches("http://").to_owned();
    let output = command.args(["--profiles", &taken]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("cannot listen on {taken} for profiles (--profiles")), "{said}");
    assert!(up.process.end("TERM").success());

    let mut up = Up::start_with(&data, &log, &["--profiles", "off"]);
    assert!(up.profiles.is_none());
    assert!(up.json("/api/v1/status")["profiles_port"].is_null());
    assert!(up.process.end("TERM").success());
}

#[test]
fn a_page_that_others_reach_is_served_to_those_who_are_allowed() {
    let Some(outer) = outer_address() else {
        testkit::skip("this machine has the loopback interface only");
        return;
    };
    for (network, is_allowed) in [("203.0.113.77", false), (outer.to_string().as_str(), true)] {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--http", "0.0.0.0:0", "--allow", network];
        let mut up = Up::start_with(folder.path(), &folder.path().join("log"), &options);
        let port = up.http.rsplit(':').next().unwrap().parse().unwrap();
        let asked = ask_from(outer, port);
        assert_eq!(asked.starts_with("HTTP/1.1 200"), is_allowed, "{asked}");
        assert_eq!(asked.is_empty(), !is_allowed, "{asked}");
        // This machine always may, also at that address.
        for own in [outer.to_string(), "127.0.0.1".to_owned()] {
            up.http = format!("{own}:{port}");
            assert_eq!(up.get("/healthz"), "ok\n");
        }
        assert!(up.process.end("TERM").success());
    }
}

/// An address of this machine that is not the loopback's, if it has one.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent: only a route is looked up, to an address that belongs to nobody.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// What a page on the loopback replies to another address, from the first byte to the last.
fn ask_from(from: IpAddr, port: u16) -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut connection = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let address = (Ipv4Addr::LOCALHOST, port).into();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    connection.set_nonblocking(false).unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // Who is not allowed may find it closed already.
    drop(connection.write_all(request.as_bytes()));
    let mut reply = Vec::new();
    drop(connection.read_to_end(&mut reply));
    String::from_utf8(reply).unwrap()
}

/// Runs `throughline ARGUMENTS TRACES` and gives its standard output; it must succeed.
pub(crate) fn analyze(arguments: &[&str], traces: &Path) -> String {
    let output = Command::new(THROUGHLINE).args(arguments).arg(traces).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
