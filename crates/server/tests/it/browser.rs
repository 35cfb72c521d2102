//! Debian's chromium, headless, as the reader of a page.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The browser of Debian 12, named in full: a wrapper of the same name elsewhere may behave differently.
const CHROMIUM: &str = "/usr/bin/chromium";
/// A browser that hangs is ended after this many seconds.
const WATCHDOG_S: &str = "180";

/// One browser at a time: each one alone fills a small machine.
static TURN: Mutex<()> = Mutex::new(());

/// The document at `url` as it stands after its scripts have run for some virtual seconds; `None` without a browser.
pub(crate) fn document(url: &str) -> Option<Document> {
    let dom = run(url, &["--dump-dom"])?;
    assert!(dom.contains("<html"), "no document from the browser: {dom:?}");
    Some(Document { dom })
}

fn run(url: &str, arguments: &[&str]) -> Option<String> {
    if !Path::new(CHROMIUM).exists() {
        testkit::skip("chromium is not installed");
        return None;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let profile = tempfile::tempdir().expect("a folder");
    let output = Command::new("timeout")
        .args([
            "--kill-after=10",
            WATCHDOG_S,
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
        ])
        .args([
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(url)
        .output()
        .expect("chromium runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium failed: {errors}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// A document as the browser writes it out: attributes in double quotes, `<` and `&` of text escaped.
pub(crate) struct Document {
    pub(crate) dom: String,
}

impl Document {
    /// From the element with this start tag to its end tag.
    pub(crate) fn element(&self, start: &str, end: &str) -> &str {
        let from = self.dom.find(start).unwrap_or_else(|| panic!("no {start} in {}", self.dom));
        let rest = &self.dom[from..];
        &rest[..rest.find(end).unwrap_or_else(|| panic!("no {end} after {start}"))]
    }

    /// A figure of the phase table, by phase and key, as its attribute has it.
    pub(crate) fn phase_figure(&self, phase: &str, key: &str) -> &str {
        figure(self.element(&format!("<tr data-phase=\"{phase}\">"), "</tr>"), key)
    }
}

/// The exact figure that the cell with this key holds.
pub(crate) fn figure<'a>(row: &'a str, key: &str) -> &'a str {
    let mark = format!("data-key=\"{key}\"");
    let rest = row.split_once(&mark).unwrap_or_else(|| panic!("no {mark} in {row}")).1;
    let cell = rest.split_once('>').expect("the end of a tag").0;
    let value = ["data-ns=\"", "data-count=\"", "data-bytes=\""]
        .iter()
        .find_map(|name| cell.split_once(name));
    let (_, value) = value.unwrap_or_else(|| panic!("no figure in {cell}"));
    value.split_once('"').expect("a quoted value").0
}
