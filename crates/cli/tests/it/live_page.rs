//! The page's live view of real sessions, in a real browser.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::browser::{Browser, Page};
use testkit::lttng::SessionDaemon;

use crate::process::wait_for;
use crate::read::{read, stdout};
use crate::up::Up;

struct Setup {
    browser: Browser,
    up: Up,
    daemon: SessionDaemon,
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Setup {
    /// `None` when something is not installed.
    fn new() -> Option<Self> {
        for tool in ["lttng-sessiond", "cc"] {
            if !testkit::is_installed(tool) {
                testkit::skip(&format!("{tool} is not installed"));
                return None;
            }
        }
        let browser = Browser::start(1300, 850)?;
        let folder = tempfile::tempdir().unwrap();
        let up = Up::start(&folder.path().join("data"), &folder.path().join("log"));
        let daemon = SessionDaemon::start().unwrap();
        let program = daemon.compile_ticks().unwrap();
        Some(Self { browser, up, daemon, program, _folder: folder })
    }

    fn lttng(&self, command: &str) {
        self.daemon.lttng(command.split_whitespace()).unwrap();
    }

    /// A live session that records ticks into a channel with these options.
    fn record(&self, name: &str, channel: &str) {
        self.lttng(&format!("create {name} --live=100000 --set-url={}", self.up.relay_url()));
        self.lttng(&format!("enable-channel -u {channel} ch"));
        self.lttng("enable-event -u -c ch testkit:tick");
        self.lttng("start");
    }

    fn emit(&self, count: u64) {
        let mut command = self.daemon.command(&self.program);
        command.arg(count.to_string()).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        assert!(command.status().unwrap().success());
    }

    /// A page that follows a session, once it is in the list.
    fn follow(&mut self, name: &str, asked: &str) -> Page {
        let host = wait_for("the session in the list", || {
            let sessions = self.up.json("/api/v1/live/sessions")["sessions"].take();
            let found =
                sessions.as_array().unwrap().iter().find(|session| session["name"] == name)?;
            assert_eq!(found["live_timer_us"], 100_000);
            Some(found["host"].as_str().unwrap().to_owned())
        });
        let http = &self.up.http;
        let address =
            format!("http://{http}/#view=live&live-host={host}&live-session={name}&{asked}");
        self.browser.open(&address)
    }

    fn wait_until_it_says(&mut self, page: &Page, status: &str) {
        let script = format!("document.getElementById('tail-status').textContent === '{status}'");
        self.browser.wait(page, &script);
    }

    /// Each event as `throughline read` prints it, with the date and without difference and host.
    fn lines(&mut self, page: &Page) -> Vec<String> {
        let script = r"[...document.querySelectorAll('#tail-table tbody tr[data-t]')].map((row) => {
            const text = (part) => row.querySelector(part).textContent;
            const at = row.querySelector('.at').title.replace(' UTC', '');
            const payload = row.querySelector('.fields').firstChild.textContent;
            return `[${at}] ${text('td.what')}: ${text('.context')}, { ${payload} }`;
        })";
        let lines = self.browser.eval(page, script);
        let lines = lines.as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap().to_owned()).collect()
    }

    /// A count of the first line of the table of streams.
    fn counted(&mut self, page: &Page, key: &str) -> u64 {
        let script = format!(
            "document.querySelector('#stream-table .whole [data-key={key}]').dataset.count"
        );
        self.browser.eval(page, &script).as_str().unwrap().parse().unwrap()
    }

    /// The folder that was recorded of a session.
    fn recorded(&self, name: &str) -> PathBuf {
        let below = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let hosts = below(&self.up.traces()).into_iter().filter(|path| path.is_dir());
        let mut sessions = hosts.flat_map(|host| below(&host));
        let begin = format!("{name}-");
        let is_it =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&begin);
        sessions.find(is_it).expect("a folder of the session")
    }
}

#[test]
fn the_page_shows_the_events_that_read_prints_of_the_folder() {
    let Some(mut setup) = Setup::new() else { return };
    setup.record("shop", "--subbuf-size=1M --num-subbuf=4");
    setup.emit(1500);
    let where_ = "live-begin=beginning&live-names=testkit%3A*+other&live-where=seq+%3E%3D+1200";
    let page = setup.follow("shop", where_);
    let other = setup.follow("shop", "live-begin=beginning&live-where=seq+%3D%3D+7");
    let rows = |count: u64| {
        format!("document.querySelectorAll('#tail-table tbody tr[data-t]').length === {count}")
    };
    setup.browser.wait(&page, &rows(300));
    setup.browser.wait(&other, &rows(1));

    setup.browser.press(&page, "p");
    setup.emit(1400);
    let paused = "document.getElementById('tail-pause').textContent === 'Resume (200 new)'";
    setup.browser.wait(&page, paused);
    setup.browser.wait(&other, &rows(2));
    assert_eq!(setup.lines(&page).len(), 300);
    setup.browser.press(&page, "p");
    setup.browser.wait(&page, &rows(500));

    setup.lttng("destroy shop");
    setup.wait_until_it_says(&page, "the session has ended");
    setup.wait_until_it_says(&other, "the session has ended");
    let folder = setup.recorded("shop");
    let printed = |condition: &str| -> Vec<String> {
        let style = ["--no-delta", "--clock-gmt", "--clock-date", "--fields", "none"];
        let wanted = ["--name", "testkit:*", "--grep", condition];
        let output = read(&[&style[..], &wanted[..]].concat(), &[&folder]);
        stdout(&output).lines().map(str::to_owned).collect()
    };
    let expected = printed("seq >= 1200");
    assert_eq!(expected.len(), 500);
    assert_eq!(setup.lines(&page), expected);
    assert_eq!(setup.lines(&other), printed("seq == 7"));
    assert_eq!(setup.counted(&page, "events"), 2900);
    assert_eq!(setup.counted(&page, "lost_events"), 0);
    assert!(setup.up.process.end("TERM").success(), "{}", setup.up.process.said());
}

#[test]
fn what_the_tracer_discards_is_shown_and_a_field_that_is_not_there_is_said() {
    const EMITTED: u64 = 300_000;
    let Some(mut setup) = Setup::new() else { return };
    setup.record("busy", "--subbuf-size=4096 --num-subbuf=2");
    let page = setup.follow("busy", "live-begin=now&live-where=sequence+%3D%3D+7");
    setup.wait_until_it_says(&page, "following");
    setup.emit(EMITTED);
    setup.lttng("destroy busy");
    setup.wait_until_it_says(&page, "the session has ended");
    let (events, lost) = (setup.counted(&page, "events"), setup.counted(&page, "lost_events"));
    let streams = setup.browser.eval(&page, "document.getElementById('stream-table').innerText");
    assert_eq!(events + lost, EMITTED, "{streams}");
    assert!(lost > 0, "nothing was discarded");
    let note = setup.browser.eval(&page, "document.getElementById('tail-note').textContent");
    let note = note.as_str().unwrap();
    assert!(note.contains("no event record class has a field `sequence`"), "{note}");

    let address = format!("http://{}/", setup.up.http);
    let refused = setup.browser.eval(&page, &format!(
        "fetch('{address}api/v1/live/tail?host=x&session=y&where=ret+%3C').then((reply) => reply.text())"
    ));
    assert!(refused.as_str().unwrap().contains("column"), "{refused}");
    assert!(setup.up.process.end("TERM").success(), "{}", setup.up.process.said());
}
