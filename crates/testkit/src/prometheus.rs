//! A Prometheus that takes remote writes, without out-of-order window.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::http::exchange;
use crate::{Running, is_installed, skip, wait_for};

/// The server, with its data in a folder of its own.
#[derive(Debug)]
pub struct Prometheus {
    program: PathBuf,
    process: Option<Running>,
    folder: tempfile::TempDir,
    port: u16,
}

impl Prometheus {
    /// Starts it on any free port; `None`, said, when it is not installed.
    ///
    /// # Panics
    /// When it is, and does not come up.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !is_installed("prometheus") {
            skip("prometheus is not installed");
            return None;
        }
        Some(Self::of("prometheus".into()))
    }

    /// The same of one that takes remote write 2.0: what `THROUGHLINE_PROMETHEUS` names; `None`, said, when there is none.
    ///
    /// # Panics
    /// When there is, and does not come up.
    #[must_use]
    pub fn start_newest() -> Option<Self> {
        let Some(program) = std::env::var_os("THROUGHLINE_PROMETHEUS") else {
            skip("THROUGHLINE_PROMETHEUS names no Prometheus that takes remote write 2.0");
            return None;
        };
        Some(Self::of(program.into()))
    }

    /// The same with blocks that `promtool` made of a file of OpenMetrics; `None`, said, when one of them is not installed.
    ///
    /// # Panics
    /// When `promtool` refuses the file, and when the server does not come up.
    #[must_use]
    pub fn start_with(openmetrics: &Path) -> Option<Self> {
        if !is_installed("prometheus") || !is_installed("promtool") {
            skip("prometheus and promtool are not installed");
            return None;
        }
        let mut server = Self::new("prometheus".into());
        let mut command = Command::new("promtool");
        command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(openmetrics);
        let made = command.arg(server.folder.path().join("data")).output().expect("promtool");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{}: {said}", openmetrics.display());
        server.resume();
        Some(server)
    }

    fn of(program: PathBuf) -> Self {
        let mut server = Self::new(program);
        server.resume();
        server
    }

    /// One that does not run.
    fn new(program: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("config.yml"), "global: {}\n").expect("a file");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("a port").port();
        drop(free);
        Self { program, process: None, folder, port }
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again with the data that it has, and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn resume(&mut self) {
        let folder = self.folder.path();
        let mut command = Command::new(&self.program);
        command.arg(format!("--config.file={}", folder.join("config.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{}", self.port));
        command.args(["--web.enable-remote-write-receiver", "--log.level=warn"]);
        command.stdout(Stdio::null());
        self.process = Some(Running::start(&mut command, "prometheus", &folder.join("log")));
        wait_for("prometheus", || (self.get("/-/ready")?.0 == 200).then_some(()));
    }

    /// Where it listens, on the loopback.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it takes remote writes.
    #[must_use]
    pub fn write_url(&self) -> String {
        format!("http://127.0.0.1:{}/api/v1/write", self.port)
    }

    /// Writes a body as another writer would; the status.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn write(&self, body: &[u8]) -> u16 {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection");
        exchange(socket, "POST", "/api/v1/write", body).expect("an answer").0
    }

    /// What it answers to a query at a time: all series, each with labels and what it has.
    ///
    /// # Panics
    /// When it refuses.
    #[must_use]
    pub fn query(&self, query: &str, at_s: i64) -> Vec<Value> {
        self.result("query", &[("query", query), ("time", &at_s.to_string())])
    }

    /// What it answers to a query over a range of time.
    ///
    /// # Panics
    /// When it refuses.
    #[must_use]
    pub fn query_range(&self, query: &str, begin_s: i64, end_s: i64, step_s: i64) -> Vec<Value> {
        let [begin, end, step] = [begin_s, end_s, step_s].map(|it| it.to_string());
        let arguments = [("query", query), ("start", &begin), ("end", &end), ("step", &step)];
        self.result("query_range", &arguments)
    }

    fn result(&self, what: &str, arguments: &[(&str, &str)]) -> Vec<Value> {
        let mut path = format!("/api/v1/{what}?");
        for (name, value) in arguments {
            write!(path, "{name}={}&", escaped(value)).expect("a text");
        }
        let (status, body) = self.get(&path).expect("an answer");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).expect("JSON");
        match answer.pointer_mut("/data/result").map(Value::take) {
            Some(Value::Array(result)) => result,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        exchange(socket, "GET", path, &[]).ok()
    }
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        write!(escaped, "%{byte:02x}").expect("a text");
        escaped
    })
}
