//! `throughline up` as a test drives it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{Running, THROUGHLINE, wait_for};

/// A running `throughline up` on ports of the system's choice.
pub(crate) struct Up {
    pub(crate) process: Running,
    pub(crate) data: PathBuf,
    control: String,
    stream: String,
    pub(crate) http: String,
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
        command.args([
            "--control",
            "127.0.0.1:0",
            "--stream",
            "127.0.0.1:0",
            "--live",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ]);
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
        Self { process, data: data.to_owned(), control, stream, http }
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

/// Runs `throughline ARGUMENTS TRACES` and gives its standard output; it must succeed.
pub(crate) fn analyze(arguments: &[&str], traces: &Path) -> String {
    let output = Command::new(THROUGHLINE).args(arguments).arg(traces).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
