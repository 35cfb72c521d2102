use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use server::{AnswerFolder, Published, Status};

use crate::client::Server;
use crate::sample;

#[test]
fn each_path_gives_its_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let phases = sample::answer(20).to_string();
    std::fs::write(folder.path().join("phases.json"), &phases).expect("written");
    std::fs::write(folder.path().join("syscalls.json"), "{\"calls\":1}").expect("written");
    let server = Server::start(Arc::new(AnswerFolder::read(folder.path()).expect("answers")));

    let json = |path| {
        let reply = server.get(path, &[]);
        assert_eq!(
            (reply.status, reply.field("content-type")),
            (200, Some("application/json")),
            "{path}"
        );
        reply.body
    };
    assert_eq!(json("/api/v1/phases"), phases);
    assert_eq!(json("/api/v1/syscalls"), "{\"calls\":1}");
    assert_eq!(json("/api/v1/status"), Status::default().to_json());
    let page = server.get("/", &[]);
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.body, server::page::served());
    assert_eq!(
        (server.get("/healthz", &[]).body.as_str(), server.get("/../etc/passwd", &[]).status),
        ("ok\n", 404)
    );
    server.stop().expect("a clean end");
}

#[test]
fn an_unchanged_answer_is_not_sent_twice() {
    let answers = Arc::new(Published::new());
    let server = Server::start(Arc::clone(&answers) as Arc<dyn server::AnswerSource>);
    answers.set_phases("{\"first\":1}");
    let first = server.get("/api/v1/phases", &[]);
    let tag = first.field("etag").expect("a tag").to_owned();

    let same = server.get("/api/v1/phases", &[("If-None-Match", &format!("\"other\", W/{tag}"))]);
    assert_eq!(
        (same.status, same.body.as_str(), same.field("etag")),
        (304, "", Some(tag.as_str()))
    );
    answers.set_phases("{\"first\":1}");
    assert_eq!(server.get("/api/v1/phases", &[("If-None-Match", &tag)]).status, 304);
    answers.set_phases("{\"second\":2}");
    let second = server.get("/api/v1/phases", &[("If-None-Match", &tag)]);
    assert_eq!((second.status, second.body.as_str()), (200, "{\"second\":2}"));

    let next_run = Server::start(answers);
    let known = second.field("etag").expect("a tag");
    assert_eq!(next_run.get("/api/v1/phases", &[("If-None-Match", known)]).status, 200);
}

#[test]
fn every_reply_protects_its_reader() {
    let server = Server::start(Arc::new(Published::new()));
    for path in ["/", "/api/v1/phases", "/healthz", "/nothing"] {
        let reply = server.get(path, &[]);
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.field("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(reply.field("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        let policy = reply.field("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
}

#[test]
fn a_rebound_name_learns_nothing() {
    let server = Server::start(Arc::new(Published::new()));
    let ask = |host: &str| {
        server.send(&format!("GET /api/v1/phases HTTP/1.1\r\n{host}Connection: close\r\n\r\n"))
    };
    let refused = ask("Host: evil.example\r\n");
    assert_eq!(refused.status, 421);
    assert!(!refused.body.contains("format"));
    assert_eq!(ask("").status, 421);
    assert_eq!(ask(&format!("Host: localhost:{}\r\n", server.address.port())).status, 200);
}

#[test]
fn only_small_get_requests_are_answered() {
    let server = Server::start(Arc::new(Published::new()));
    let ask = |start: &str, fields: &str| {
        server
            .send(&format!(
                "{start} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"
            ))
            .status
    };
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        assert_eq!(ask(&format!("{method} /api/v1/phases"), ""), 405, "{method}");
    }
    assert_eq!(ask("GET /", "Content-Length: 5\r\n"), 413);
    assert_eq!(ask("GET /", "Transfer-Encoding: chunked\r\n"), 413);
    assert_eq!(ask("GET /", &format!("X-Long: {}\r\n", "x".repeat(32 << 10))), 431);
    assert_eq!(ask("GET /healthz", ""), 200);
}

#[test]
fn a_stop_closes_idle_connections() {
    let server = Server::start(Arc::new(Published::new()));
    let mut idle = TcpStream::connect(server.address).expect("a connection");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut start = [0; 12];
    idle.read_exact(&mut start).expect("a reply");
    assert_eq!(&start, b"HTTP/1.1 200");
    server.stop().expect("a clean end");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).expect("closed by the server");
    assert!(rest.ends_with(b"ok\n"));
}

#[test]
fn a_folder_without_answers_is_refused_with_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let read = || AnswerFolder::read(folder.path()).expect_err("refused");
    assert!(matches!(read(), server::Error::Read { path, .. } if path.ends_with("phases.json")));
    std::fs::write(folder.path().join("phases.json"), "{\"cut\":").expect("written");
    assert!(matches!(read(), server::Error::NotJson { path, .. } if path.ends_with("phases.json")));
}
