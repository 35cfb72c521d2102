//! What goes over the wire.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

use export::{Auth, Cell, Clock, CursorFile, Exporter, Remote, Sender, Source};
use testkit::wait_for;
use wire::remote_write::{Labels, NAME, Sample, Version, decode};

struct StoodStill;

impl Clock for StoodStill {
    fn now_ms(&mut self) -> i64 {
        1_000_000
    }

    fn chance(&mut self) -> f64 {
        0.0
    }
}

struct One(Cell);

impl Source for One {
    fn read(&mut self, from: u64, _most: usize) -> io::Result<Vec<Cell>> {
        Ok(if from == 0 { vec![self.0.clone()] } else { Vec::new() })
    }
}

fn one() -> Box<One> {
    let labels = Labels::new([(NAME.to_owned(), "m".to_owned())]).unwrap();
    let sample = Sample { value: 2.0, time_ms: 1_000_000, start_ms: 0 };
    Box::new(One(Cell { labels, sample, metadata: None }))
}

/// Answers a connection for each text `head|body`, once, with it; gives heads and bodies of the requests.
fn answer_with(answers: &'static [&'static str]) -> (String, thread::JoinHandle<Vec<Request>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/api/v1/push", listener.local_addr().unwrap());
    let answering = move || {
        let answer = |answer: &&str| {
            let (socket, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(socket);
            let lines = reader.by_ref().lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let len = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; len.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let (said, rest) = answer.split_once('|').unwrap_or((answer, ""));
            let answer = format!("HTTP/1.1 {said}\r\nconnection: close\r\n\r\n{rest}");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            Request { head, body }
        };
        answers.iter().map(answer).collect()
    };
    (url, thread::spawn(answering))
}

struct Request {
    head: Vec<String>,
    body: Vec<u8>,
}

impl Request {
    fn says(&self, line: &str) -> bool {
        self.head.iter().any(|it| it == line)
    }
}

fn secret(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("secret");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

fn send(folder: &tempfile::TempDir, url: &str, auth: Auth) -> Exporter {
    let mut remote = Remote::new(url.parse().unwrap());
    remote.auth = auth;
    remote.tenant = Some("team-a".to_owned());
    let cursor = Box::new(CursorFile::new(folder.path().join("cursor")));
    let sender = Sender::new(remote, one(), cursor, Box::new(StoodStill)).unwrap();
    Exporter::start(sender).unwrap()
}

#[test]
fn requests_say_who_comes_and_what_it_is_in_both_versions() {
    let (url, answering) = answer_with(&["415 No\r\ncontent-length: 0", "204 Yes"]);
    let folder = tempfile::tempdir().unwrap();
    let password = secret(&folder, "p:w\n");
    let exporter = send(&folder, &url, Auth::Basic { user: "me".to_owned(), password });
    wait_for("the cell", || (exporter.status().cursor.taken == 1).then_some(()));
    assert_eq!(exporter.status().version, Version::V1);
    let requests = answering.join().unwrap();
    let versions = [Version::V2, Version::V1];
    for (request, version) in requests.iter().zip(versions) {
        assert!(request.says("POST /api/v1/push HTTP/1.1"));
        assert!(request.says(&format!("content-type: {}", version.content_type())));
        let number = version.header();
        assert!(request.says(&format!("x-prometheus-remote-write-version: {number}")));
        assert!(request.says("content-encoding: snappy"));
        assert!(request.says("x-scope-orgid: team-a"));
        assert!(request.says("authorization: Basic bWU6cDp3"));
        assert!(request.head.iter().any(|it| it.starts_with("user-agent: throughline/")));
        let received = decode(version, &request.body).unwrap();
        assert_eq!(received.series[0].samples[0].value.to_bits(), 2.0_f64.to_bits());
    }
}

#[test]
fn written_counts_are_read_and_a_waiting_cell_is_shown_with_the_receivers_words() {
    const WRITTEN: &str = "204 Yes\r\nX-Prometheus-Remote-Write-Samples-Written: 1";
    let (url, answering) = answer_with(&["503 No\r\nretry-after: 1|busy", WRITTEN]);
    let folder = tempfile::tempdir().unwrap();
    let token = secret(&folder, "abc\n");
    let exporter = send(&folder, &url, Auth::Bearer(token));
    let trouble = wait_for("trouble", || exporter.status().trouble);
    assert!(trouble.contains("503") && trouble.contains("busy"), "{trouble}");
    wait_for("the cell", || (exporter.status().cursor.taken == 1).then_some(()));
    assert_eq!((exporter.status().version, exporter.status().trouble), (Version::V2, None));
    let requests = answering.join().unwrap();
    assert!(requests.iter().all(|it| it.says("authorization: Bearer abc")));
    assert_eq!(requests[0].body, requests[1].body);
}
