//! Documents of the store: the page, and flame graphs in it.

use axum::http::Version;
use axum::http::{Request, StatusCode};
use http_body_util::Full;
use intake::Limits;
use prost::Message as _;

use super::store::{NOW, PUSH, Reply, Store, TYPE, pprof, push};

fn get(store: &Store, host: &str, path: &str) -> Reply {
    let request = Request::get(path).header("host", host).body(Full::default()).unwrap();
    store.send(request)
}

/// The address of a flame graph of the hour before now.
fn graph(service: &str, more: &str) -> String {
    let now = NOW.nanos() / 1_000_000;
    let (start, end) = (now - 3_600_000, now + 60_000);
    let selector = format!("%7Bservice_name%3D%22{service}%22%7D");
    format!("/flame.svg?type={TYPE}&selector={selector}&start={start}&end={end}{more}")
}

#[test]
fn documents_let_only_their_own_scripts_run_and_are_framed_by_nobody_else() {
    let store = Store::start(Limits::default());
    let fields = [("content-type", "application/proto")];
    let body = push("shop", &pprof(&[("</script><script>alert(1)</script>", 30)])).encode_to_vec();
    assert_eq!(store.post(Version::HTTP_11, PUSH, &fields, body).status, StatusCode::OK);
    let page = get(&store, "localhost", "/");
    let shown = get(&store, "localhost", &graph("shop", "&theme=dark"));
    assert_eq!(shown.field("content-type"), Some("image/svg+xml; charset=utf-8"));
    assert_eq!(shown.text().matches("<script").count(), 1);
    assert!(shown.text().contains("&lt;/script&gt;&lt;script&gt;alert(1)"), "{}", shown.text());
    for (document, ancestors) in
        [(&page, "frame-ancestors 'none'"), (&shown, "frame-ancestors 'self'")]
    {
        assert_eq!(document.status, StatusCode::OK);
        let policy = document.field("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src '"), "{policy}");
        assert!(!policy.contains("unsafe-inline") && policy.ends_with(ancestors), "{policy}");
        assert_eq!(document.field("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn graphs_that_cannot_be_drawn_say_why() {
    let store = Store::start(Limits::default());
    let check = |host: &str, path: &str, status: u16, words: &str| {
        let reply = get(&store, host, path);
        assert_eq!(reply.status.as_u16(), status, "{path} {}", reply.text());
        assert!(reply.text().contains(words), "{path} {}", reply.text());
    };
    check("localhost", &graph("shop", ""), 404, "no samples");
    check("localhost", &graph("shop", "&base_start=1"), 400, "go together");
    check("localhost", &graph("shop", "&theme=pink"), 400, "pink");
    check("localhost", "/flame.svg", 400, "type");
    check("localhost", "/flame.svg?type=cpu&selector=%7B%7D&start=1&end=2", 400, "cpu");
    let wrong = graph("shop", "").replace("%7Bservice", "service");
    check("localhost", &wrong, 400, "invalid_argument");
    check("evil.example", "/", 421, "localhost");
    check("evil.example", &graph("shop", ""), 421, "localhost");
}
