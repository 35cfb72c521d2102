//! The live view, with a source that a test plays.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use server::live::{
    Begin, LiveSession, LiveSessions, LiveSource, Lost, MAX_TAILS, MAX_WAITING_EVENTS, Refusal,
    StreamState, TailEvent, TailRequest, TailSender, TailState,
};
use server::{Published, Snapshot};
use testkit::browser::{Browser, Page};

use crate::client::Server;

/// Markup, quotes, control and direction characters.
const HOSTILE: &str = "<script>document.title='owned'</script>\"'&\u{1b}\u{0}\u{202e}";

/// How long a test waits for what must come.
const WATCHDOG: Duration = Duration::from_secs(60);

struct Played {
    sessions: Vec<LiveSession>,
    asked: Mutex<Sender<(TailRequest, TailSender)>>,
}

impl LiveSource for Played {
    fn sessions_json(&self) -> Snapshot {
        let sessions = LiveSessions { sessions: self.sessions.clone(), problem: None };
        Snapshot { bytes: sessions.to_json().into(), version: 0 }
    }

    fn follow(&self, request: TailRequest, tail: TailSender) -> Result<(), Refusal> {
        if request.condition == "ret <" {
            return Err(Refusal::Condition { message: "column 6: expected a value".to_owned() });
        }
        self.asked.lock().unwrap().send((request, tail)).unwrap();
        Ok(())
    }
}

/// A server of sessions with these names, and what it is asked for.
struct Setup {
    server: Server,
    asked: Receiver<(TailRequest, TailSender)>,
}

impl Setup {
    fn new(names: &[&str]) -> Self {
        let session = |name: &&str| LiveSession {
            host: "web-1".to_owned(),
            name: (*name).to_owned(),
            streams: 3,
            viewers: 1,
            live_timer_us: 500_000,
            format: "CTF 1.8",
            since_ms: 1_795_193_047_000,
        };
        let (sender, asked) = channel();
        let sessions = names.iter().map(session).collect();
        let source = Played { sessions, asked: Mutex::new(sender) };
        let server = Server::start_with(Arc::new(Published::new()), Some(Arc::new(source)));
        Self { server, asked }
    }

    fn asked(&self) -> (TailRequest, TailSender) {
        self.asked.recv_timeout(WATCHDOG).expect("a page that follows")
    }

    /// A page that follows a session, and where its events come from.
    fn page(&self, browser: &mut Browser, fragment: &str) -> (Page, TailRequest, TailSender) {
        let page = browser.open(&format!("{}#{fragment}", self.server.url()));
        let (request, tail) = self.asked();
        (page, request, tail)
    }

    /// A connection that asks to follow and has not read anything.
    fn connect(&self, query: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address).expect("a connection");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        let address = self.server.address;
        write!(stream, "GET /api/v1/live/tail?{query} HTTP/1.1\r\nHost: {address}\r\n\r\n")
            .expect("sent");
        stream
    }
}

const SHOP: &str = "view=live&live-host=web-1&live-session=shop";

fn tick(tail: &TailSender, number: i64) {
    let payload = format!("seq = {number}");
    tail.event(&TailEvent {
        at_ns: 1_795_193_047_736_468_000 + number,
        stream: "ch_0",
        name: "shop:tick",
        payload: &payload,
        context: "{ cpu_id = 0 }",
    });
}

/// How many rows of events there are, and the first and the last one's payload.
fn rows(browser: &mut Browser, page: &Page) -> (u64, String, String) {
    let script = r#"(() => {
        const rows = [...document.querySelectorAll('#tail-table tbody tr[data-t]')];
        const text = (row) => row?.querySelector('.fields').firstChild.textContent ?? '';
        return [rows.length, text(rows[0]), text(rows.at(-1))];
    })()"#;
    let rows = browser.eval(page, script);
    let text = |at: usize| rows[at].as_str().unwrap().to_owned();
    (rows[0].as_u64().unwrap(), text(1), text(2))
}

fn wait_for_last(browser: &mut Browser, page: &Page, number: i64) {
    let script = format!(
        "document.querySelector('#tail-table tbody tr:last-child .fields')?.firstChild.textContent === 'seq = {number}'"
    );
    browser.wait(page, &script);
}

fn text(browser: &mut Browser, page: &Page, id: &str) -> String {
    let text = browser.eval(page, &format!("document.getElementById('{id}').textContent"));
    text.as_str().unwrap().to_owned()
}

#[test]
fn the_list_is_shown_and_a_chosen_session_is_followed_to_its_end() {
    let setup = Setup::new(&["shop", "ticks"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let page = browser.open(&format!("{}#view=live", setup.server.url()));
    browser.wait(&page, "document.querySelectorAll('#session-table tbody tr').length === 2");
    let cells = "[...document.querySelector('[data-session=shop]').cells].slice(0, 6).map((cell) => cell.innerText.trim()).join('|')";
    assert_eq!(browser.eval(&page, cells), "shop|web-1|3|1|500 ms|CTF 1.8");

    browser.eval(&page, "document.querySelector('[data-session=shop] button').click()");
    let (request, tail) = setup.asked();
    assert_eq!((request.host.as_str(), request.session.as_str()), ("web-1", "shop"));
    assert_eq!(request.begin, Begin::Ago(Duration::from_secs(60)));
    assert_eq!((request.names, request.condition), (vec![], String::new()));
    (0..500).for_each(|number| tick(&tail, number));
    wait_for_last(&mut browser, &page, 499);
    assert_eq!(rows(&mut browser, &page), (500, "seq = 0".to_owned(), "seq = 499".to_owned()));
    let last = "[...document.querySelector('#tail-table tbody tr:last-child').cells].map((cell) => cell.innerText).join('|')";
    let expected = "16:44:07.736468|ch_0|shop:tick|seq = 499{ cpu_id = 0 }";
    assert_eq!(browser.eval(&page, last), expected);

    let stream = StreamState {
        path: "ust/uid/0/64-bit/ch_0".to_owned(),
        events: 500,
        lost_events: 7,
        lost_packets: 5,
        lost_packets_network: 2,
    };
    let state = TailState {
        at_ms: 2000,
        events: 500,
        matched: 500,
        // Others have ended.
        lost: Lost { events: 9, packets: 8, packets_network: 2 },
        streams: vec![stream],
        ..TailState::default()
    };
    tail.state(&state);
    let counts = "[...document.querySelectorAll('#stream-table [data-stream$=ch_0] [data-count]')].map((cell) => cell.dataset.count).join()";
    browser.wait(&page, "document.querySelector('#stream-table [data-stream$=ch_0]') !== null");
    assert_eq!(browser.eval(&page, counts), "500,7,3,2");
    let all = "[...document.querySelectorAll('#stream-table [data-stream=\"\"] [data-count]')].map((cell) => cell.dataset.count).join()";
    assert_eq!(browser.eval(&page, all), "500,9,6,2");

    tail.end("the session has ended");
    drop(tail);
    browser.wait(
        &page,
        "document.getElementById('tail-status').textContent === 'the session has ended'",
    );
    assert!(setup.asked.try_recv().is_err(), "a page that follows an ended session again");
}

#[test]
fn paused_nothing_is_drawn_and_what_falls_out_is_counted() {
    let setup = Setup::new(&["shop"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let (page, _, tail) = setup.page(&mut browser, SHOP);
    tick(&tail, 0);
    wait_for_last(&mut browser, &page, 0);
    browser.press(&page, "p");
    browser.wait(
        &page,
        "document.getElementById('tail-pause').getAttribute('aria-pressed') === 'true'",
    );

    let total = 2 * i64::try_from(MAX_WAITING_EVENTS).unwrap() + 345;
    for number in 1..=total {
        tick(&tail, number);
        if number % 200 == 0 {
            // Each as one piece, which the page takes before the next: nothing is left out on the way.
            browser.wait(&page, &format!("document.getElementById('tail-pause').textContent.includes('new') && {number} > 0"));
            while tail.waiting() > 0 {
                std::thread::park_timeout(Duration::from_millis(2));
            }
        }
    }
    let said = format!("Resume (2\u{202f}000 new, {} left out)", spaced(total - 2000));
    browser.wait(&page, &format!("document.getElementById('tail-pause').textContent === '{said}'"));
    assert_eq!(rows(&mut browser, &page), (1, "seq = 0".to_owned(), "seq = 0".to_owned()));

    browser.eval(&page, "document.getElementById('tail-pause').click()");
    wait_for_last(&mut browser, &page, total);
    let (count, first, last) = rows(&mut browser, &page);
    assert_eq!(
        (count, first, last),
        (2000, format!("seq = {}", total - 1999), format!("seq = {total}"))
    );
    tick(&tail, total + 1);
    wait_for_last(&mut browser, &page, total + 1);
}

fn spaced(number: i64) -> String {
    format!("{}\u{202f}{:03}", number / 1000, number % 1000)
}

#[test]
fn a_few_events_left_out_while_paused_leave_their_row() {
    let setup = Setup::new(&["shop"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let (page, _, tail) = setup.page(&mut browser, SHOP);
    browser.eval(&page, "document.getElementById('tail-pause').click()");
    (0..2000).for_each(|number| tick(&tail, number));
    browser.wait(
        &page,
        "document.getElementById('tail-pause').textContent.includes('2\u{202f}000 new')",
    );
    (2000..2010).for_each(|number| tick(&tail, number));
    browser
        .wait(&page, "document.getElementById('tail-pause').textContent.includes('10 left out')");
    browser.eval(&page, "document.getElementById('tail-pause').click()");
    wait_for_last(&mut browser, &page, 2009);
    let gap =
        browser.eval(&page, "document.querySelector('#tail-table tbody tr').innerText.trim()");
    assert_eq!(gap, "10 events left out while paused");
    assert_eq!(rows(&mut browser, &page).0, 2000);
    assert!(text(&mut browser, &page, "tail-foot").contains("10 left out"));
}

#[test]
fn hostile_names_and_texts_stay_text() {
    let setup = Setup::new(&[HOSTILE]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let page = browser.open(&format!("{}#view=live", setup.server.url()));
    browser.wait(&page, "document.querySelector('#session-table tbody button')?.click() === undefined && document.querySelectorAll('#session-table tbody tr').length === 1");
    let (request, tail) = setup.asked();
    assert_eq!(request.session, HOSTILE);
    let path = format!("ust/{HOSTILE}");
    tail.event(&TailEvent {
        at_ns: 1,
        stream: HOSTILE,
        name: HOSTILE,
        payload: HOSTILE,
        context: HOSTILE,
    });
    tail.note(HOSTILE);
    let stream = StreamState { path, ..StreamState::default() };
    tail.state(&TailState { streams: vec![stream], ..TailState::default() });
    browser.wait(&page, "document.querySelectorAll('#stream-table tbody tr').length === 2");
    browser.wait(&page, "document.querySelectorAll('#tail-table tbody tr').length === 1");
    tail.end(HOSTILE);
    browser.wait(&page, "document.getElementById('tail-status').textContent.includes('script')");

    let title = browser.eval(&page, "document.title");
    assert!(title.as_str().unwrap().ends_with("\\u{202e} – Throughline"), "{title}");
    assert_eq!(browser.eval(&page, "document.querySelectorAll('#live-view script').length"), 0);
    let shown = "<script>document.title='owned'</script>\"'&\\u{1b}\\u{0}\\u{202e}";
    for place in [
        "#session-table tbody button",
        "#tail-table .from bdi, #tail-table td.from",
        "#tail-table td.what",
        "#tail-table .context",
        "#tail-note",
        "#tail-status",
    ] {
        let text = browser.eval(&page, &format!("document.querySelector({place:?}).textContent"));
        assert_eq!(text, shown, "{place}");
    }
}

#[test]
fn filters_are_asked_for_and_a_wrong_one_is_explained() {
    let setup = Setup::new(&["shop"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let (page, request, tail) = setup.page(
        &mut browser,
        &format!("{SHOP}&live-begin=beginning&live-names=a*+b&live-where=x+%3D%3D+1"),
    );
    assert_eq!((request.begin, request.condition.as_str()), (Begin::Beginning, "x == 1"));
    assert_eq!(request.names, ["a*", "b"]);
    browser.eval(&page, "document.getElementById('tail-where').value = 'ret <'; document.getElementById('tail-filter').requestSubmit()");
    browser.wait(&page, "!document.getElementById('tail-error').hidden");
    assert_eq!(text(&mut browser, &page, "tail-error"), "column 6: expected a value");
    let deadline = Instant::now() + WATCHDOG;
    while !tail.is_left() {
        assert!(Instant::now() < deadline, "the first tail goes on");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    browser.eval(&page, "document.getElementById('tail-where').value = 'ret < 0'; document.getElementById('tail-filter').requestSubmit()");
    let (request, tail) = setup.asked();
    assert_eq!(request.condition, "ret < 0");
    tick(&tail, 1);
    wait_for_last(&mut browser, &page, 1);
    assert_eq!(browser.eval(&page, "document.getElementById('tail-error').hidden"), true);
    let address = browser.eval(&page, "location.hash");
    assert!(address.as_str().unwrap().contains("live-where=ret+%3C+0"), "{address}");
}

#[test]
fn two_pages_on_one_session_are_independent() {
    let setup = Setup::new(&["shop"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let (one, _, to_one) = setup.page(&mut browser, SHOP);
    let (other, _, to_other) = setup.page(&mut browser, SHOP);
    browser.eval(&one, "document.getElementById('tail-pause').click()");
    for number in 0..100 {
        tick(&to_one, number);
        tick(&to_other, number);
    }
    wait_for_last(&mut browser, &other, 99);
    browser.wait(&one, "document.getElementById('tail-pause').textContent === 'Resume (100 new)'");
    assert_eq!((rows(&mut browser, &one).0, rows(&mut browser, &other).0), (0, 100));
    to_other.end("it ended");
    drop(to_other);
    browser.wait(&other, "document.getElementById('tail-status').textContent === 'it ended'");
    assert!(!to_one.is_left());
}

#[test]
fn a_lost_connection_is_said_and_tried_again() {
    let setup = Setup::new(&["shop"]);
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let (page, _, tail) = setup.page(&mut browser, SHOP);
    tick(&tail, 0);
    wait_for_last(&mut browser, &page, 0);
    // Without a word why.
    drop(tail);
    let (request, tail) = setup.asked();
    assert_eq!(request.begin, Begin::Now);
    tick(&tail, 1);
    wait_for_last(&mut browser, &page, 1);
    let rows = browser.eval(
        &page,
        "[...document.querySelectorAll('#tail-table tbody tr')].map((row) => row.innerText.trim())",
    );
    assert_eq!(rows[1], "the connection was lost: events may be missing here");
}

#[test]
fn a_page_that_never_reads_costs_bounded_memory_and_is_told_what_it_missed() {
    const EVENTS: i64 = 100_000;
    let setup = Setup::new(&["shop"]);
    let mut stream = setup.connect("host=web-1&session=shop");
    let (_, tail) = setup.asked();
    let before = resident_kib();
    let long = "x".repeat(2000);
    for number in 0..EVENTS {
        let payload = format!("{number} {long}");
        tail.event(&TailEvent {
            at_ns: number,
            stream: "ch_0",
            name: "e",
            payload: &payload,
            context: "",
        });
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB for 200 MB of events");
    assert!(!tail.is_left());
    tail.end("it ended");
    drop(tail);
    let (mut got, mut left_out, mut last) = (0, 0, 0);
    for (kind, data) in messages(&mut stream) {
        if kind == "events" {
            let events = data["events"].as_array().unwrap();
            got += events.len() as u64;
            left_out += data["left_out"].as_u64().unwrap();
            last = events.last().unwrap()["t"].as_str().unwrap().parse().unwrap();
        }
    }
    assert_eq!((got + left_out, last), (EVENTS as u64, EVENTS - 1));
    assert!(left_out > 90_000, "{left_out}");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The server-sent events of a reply until it ends.
fn messages(stream: &mut TcpStream) -> Vec<(String, Value)> {
    let mut reply = Vec::new();
    let mut piece = [0; 64 << 10];
    // The connection stays open for other requests: the reply ends with an empty chunk.
    while !reply.ends_with(b"\r\n0\r\n\r\n") {
        let len = stream.read(&mut piece).expect("a reply");
        assert!(len > 0, "closed in the middle");
        reply.extend_from_slice(&piece[..len]);
    }
    let (_, mut chunks) = split_at(&reply, b"\r\n\r\n");
    let mut body = Vec::new();
    while !chunks.is_empty() {
        let (len, rest) = split_at(chunks, b"\r\n");
        let len = usize::from_str_radix(std::str::from_utf8(len).unwrap(), 16).unwrap();
        body.extend_from_slice(&rest[..len]);
        chunks = &rest[len + 2..];
    }
    let body = String::from_utf8(body).unwrap();
    let message = |text: &str| {
        let (kind, data) = text.split_once('\n')?;
        let data = serde_json::from_str(data.strip_prefix("data: ")?).unwrap();
        Some((kind.strip_prefix("event: ")?.to_owned(), data))
    };
    body.split("\n\n").filter_map(message).collect()
}

fn split_at<'b>(bytes: &'b [u8], mark: &[u8]) -> (&'b [u8], &'b [u8]) {
    let at = bytes.windows(mark.len()).position(|window| window == mark).expect("a mark");
    (&bytes[..at], &bytes[at + mark.len()..])
}

#[test]
fn so_many_pages_follow_and_one_more_is_told_why_not() {
    let setup = Setup::new(&["shop"]);
    let ask = || setup.connect("host=web-1&session=shop");
    let mut following: Vec<_> = (0..MAX_TAILS).map(|_| (ask(), setup.asked().1)).collect();
    let refused = setup.server.get("/api/v1/live/tail?host=web-1&session=shop", &[]);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.body, "32 pages follow sessions already; close one of them\n");
    let (page, tail) = following.pop().unwrap();
    drop(page);
    let deadline = Instant::now() + WATCHDOG;
    while !tail.is_left() {
        assert!(Instant::now() < deadline, "a closed page keeps its place");
        // What is to be sent shows that nobody reads.
        tick(&tail, 0);
        std::thread::park_timeout(Duration::from_millis(5));
    }
    drop(tail);
    following.push((ask(), setup.asked().1));
    setup.server.stop().expect("a clean end");
}

#[test]
fn only_this_machines_names_and_sensible_requests_are_answered() {
    let setup = Setup::new(&["shop"]);
    for path in ["/api/v1/live/sessions", "/api/v1/live/tail?host=web-1&session=shop"] {
        let rebound =
            format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert_eq!(setup.server.send(&rebound).status, 421, "{path}");
    }
    for (query, why) in [
        ("", "missing field"),
        ("host=web-1&session=shop&x=1", "unknown field"),
        ("host=web-1&session=shop&begin=-5m", "begin is now, beginning, or a number"),
        ("host=web-1&session=shop&where=ret+%3C", "column 6: expected a value"),
    ] {
        let refused = setup.server.get(&format!("/api/v1/live/tail?{query}"), &[]);
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.body.contains(why), "{query}: {}", refused.body);
        assert_eq!(refused.field("x-content-type-options"), Some("nosniff"));
    }
    assert!(setup.asked.try_recv().is_err());
    let without = Server::start(Arc::new(Published::new()));
    assert_eq!(without.get("/api/v1/live/sessions", &[]).status, 404);
}
