//! Debian's chromium, headless, as somebody who looks at a page and acts on it.
//!
//! It is told what to do by the DevTools protocol over two pipes: JSON messages that end with NUL.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The browser of Debian 12, named in full: a wrapper of the same name elsewhere may behave differently.
const CHROMIUM: &str = "/usr/bin/chromium";
/// A browser that hangs is ended after this many seconds, and then answers nothing more.
const WATCHDOG_S: &str = "300";
/// How long a page may take for what a test waits for.
const PATIENCE: Duration = Duration::from_secs(90);

/// One browser at a time in a test program: each one alone fills a small machine.
static TURN: Mutex<()> = Mutex::new(());

/// A running browser. It ends with this value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    last: u64,
    _profile: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// An open page of a [`Browser`].
#[derive(Debug, Clone)]
pub struct Page(String);

impl Browser {
    /// Starts it with a window of this size; `None`, said, when it is not installed.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(width: u32, height: u32) -> Option<Self> {
        if !Path::new(CHROMIUM).exists() {
            crate::skip("chromium is not installed");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().expect("a folder");
        let pipes = ["to", "from"].map(|name| profile.path().join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().expect("mkfifo").success());
        let [to, from] = &pipes;
        // The shell opens the pipes as the numbers that the browser expects, in the order in which they are opened here.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "exec \"$@\" 3<\"$TO\" 4>\"$FROM\"",
            "sh",
            "timeout",
            "--kill-after=5",
        ]);
        command.env("TO", to).env("FROM", from).arg(WATCHDOG_S).arg(CHROMIUM);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        command.args([
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]);
        command.arg("--remote-debugging-pipe").arg(format!("--window-size={width},{height}"));
        command.arg(format!("--user-data-dir={}", profile.path().join("profile").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("a shell");
        let to = fs::OpenOptions::new().write(true).open(to).expect("the pipe to the browser");
        let from = BufReader::new(File::open(from).expect("the pipe from the browser"));
        Some(Self { child, to, from, last: 0, _profile: profile, _turn: turn })
    }

    /// Opens a page and begins to load an address.
    ///
    /// # Panics
    /// When the browser refuses.
    pub fn open(&mut self, url: &str) -> Page {
        let target = self.ask(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.ask(None, "Target.attachToTarget", attach);
        let page = Page(attached["sessionId"].as_str().expect("a session").to_owned());
        let loaded = self.ask(Some(&page), "Page.navigate", json!({ "url": url }));
        assert!(loaded["errorText"].is_null(), "{url}: {loaded}");
        self.wait(&page, "document.readyState === 'complete' || null");
        page
    }

    /// What a script comes to, as JSON; it runs as the browser's own, which the page's policy does not hold up.
    ///
    /// # Panics
    /// When the script throws.
    pub fn eval(&mut self, page: &Page, script: &str) -> Value {
        let asked = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut done = self.ask(Some(page), "Runtime.evaluate", asked);
        assert!(done["exceptionDetails"].is_null(), "{script}: {done}");
        done["result"]["value"].take()
    }

    /// Asks over and over until a script comes to something else than `null` and `false`.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait(&mut self, page: &Page, script: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.eval(page, script);
            if !value.is_null() && value != false {
                return value;
            }
            if Instant::now() > deadline {
                let text = self.eval(page, "document.body.innerText");
                panic!("waited in vain for {script} in {text}");
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Presses a key that gives a character.
    ///
    /// # Panics
    /// When the browser refuses.
    pub fn press(&mut self, page: &Page, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "text": if kind == "keyDown" { key } else { "" } });
            self.ask(Some(page), "Input.dispatchKeyEvent", event);
        }
    }

    /// Shows pages with dark colours or light ones.
    ///
    /// # Panics
    /// When the browser refuses.
    pub fn prefer(&mut self, page: &Page, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask(Some(page), "Emulation.setEmulatedMedia", features);
    }

    /// The window as a PNG file, base64.
    ///
    /// # Panics
    /// When the browser refuses.
    pub fn picture(&mut self, page: &Page) -> String {
        let picture = self.ask(Some(page), "Page.captureScreenshot", json!({ "format": "png" }));
        picture["data"].as_str().expect("a picture").to_owned()
    }

    fn ask(&mut self, page: Option<&Page>, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(Page(session)) = page {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        loop {
            let mut reply = Vec::new();
            self.from.read_until(0, &mut reply).expect("the browser writes");
            assert_eq!(reply.pop(), Some(0), "the browser has ended");
            let mut reply: Value = serde_json::from_slice(&reply).expect("JSON");
            if reply["id"] == self.last {
                assert!(reply["error"].is_null(), "{method}: {reply}");
                return reply["result"].take();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `timeout` passes this on.
        drop(Command::new("kill").arg(self.child.id().to_string()).status());
        drop(self.child.wait());
    }
}
